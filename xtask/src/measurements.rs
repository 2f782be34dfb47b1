//! `cargo xtask measurements`: writes `docs/measurements.md` from a template and the results of the benchmarks.
//!
//! The template, `benches/measurements.md`, is Markdown with directives:
//!
//! - `{{about BENCH}}`: the command, date, commit and machine of the run. `{{about BENCH: PEER, PEER}}` adds the versions of peers.
//! - `{{table BENCH`, then lines, then `}}`: a table of medians. A line `HEADING: CASE` is a column. The line
//!   `rows: NAME, NAME as LABEL` selects contenders; by default, the rows are all but those of an earlier commit.
//! - `{{missed BENCH}}`: one sentence for each goal that the run misses.
//! - `{{BENCH CASE NAME}}`: a median. `{{BENCH CASE NAME/NAME}}`: the ratio of two medians.
//!
//! A `CASE min` or a `NAME min` takes the least sample instead of the median, and `max` the greatest.

mod results;

use std::fs;
use std::io::ErrorKind;

use results::{Bench, Results, figure, significant};

use crate::run::{Failure, root};

const TEMPLATE: &str = "benches/measurements.md";
const PAGE: &str = "docs/measurements.md";
/// Where the benches crate writes its results.
const MEASURED: &str = "target/bench";
const PUBLISHED: &str = "benches/results";

pub(crate) fn run() -> Result<(), Failure> {
    let page = page().map_err(Failure::Step)?;
    fs::write(root().join(PAGE), page).map_err(cannot("write", PAGE))?;
    println!("written to {PAGE}");
    Ok(())
}

/// Removes the result of an earlier run, so that a run that fails leaves nothing to publish.
pub(crate) fn forget(bench: &str) -> Result<(), Failure> {
    let path = format!("{MEASURED}/{bench}.json");
    match fs::remove_file(root().join(&path)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot("remove", &path)(error)),
        _ => Ok(()),
    }
}

/// Copies the results of benches that ran, and writes the page.
pub(crate) fn publish(benches: &[String]) -> Result<(), Failure> {
    fs::create_dir_all(root().join(PUBLISHED)).map_err(cannot("create", PUBLISHED))?;
    for bench in benches {
        let measured = root().join(format!("{MEASURED}/{bench}.json"));
        let published = format!("{PUBLISHED}/{bench}.json");
        if measured.exists() {
            fs::copy(measured, root().join(&published)).map_err(cannot("write", &published))?;
        }
    }
    run()
}

fn cannot(verb: &str, path: &str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Step(format!("cannot {verb} {path}: {error}"))
}

fn page() -> Result<String, String> {
    let template = fs::read_to_string(root().join(TEMPLATE))
        .map_err(|error| format!("cannot read {TEMPLATE}: {error}"))?;
    render(&template, &Results::read(&root().join(PUBLISHED))?)
}

fn render(template: &str, results: &Results) -> Result<String, String> {
    let (mut page, mut rest) = (String::new(), template);
    while let Some((text, after)) = rest.split_once("{{") {
        let line = template[..template.len() - after.len()].matches('\n').count() + 1;
        let in_line = |message| format!("{TEMPLATE}:{line}: {message}");
        let (directive, after) =
            after.split_once("}}").ok_or_else(|| in_line("a directive has no `}}`".to_owned()))?;
        page += text;
        page += &expand(directive, results).map_err(in_line)?;
        rest = after;
    }
    Ok(page + rest)
}

fn expand(directive: &str, results: &Results) -> Result<String, String> {
    let (head, lines) = directive.split_once('\n').unwrap_or((directive, ""));
    let (head, peers) = head.split_once(": ").unwrap_or((head, ""));
    match head.split_whitespace().collect::<Vec<_>>()[..] {
        ["about", bench] => results.bench(bench)?.about(peers),
        ["table", bench] => table(results.bench(bench)?, lines),
        ["missed", bench] => Ok(results.bench(bench)?.missed()),
        [bench, case_name, what, ref statistic @ ..] if statistic.len() < 2 => {
            let (case, statistic) = (results.bench(bench)?.case(case_name)?, statistic.first().copied());
            let number = |name: &str| case.number(name, statistic)?.ok_or_else(|| case.without(name));
            match what.split_once('/') {
                Some((one, other)) => match number(one)? / number(other)? {
                    ratio if ratio.is_finite() => Ok(significant(ratio, 3)),
                    _ => Err(format!("`{case_name}` has no ratio to `{other}`, which is zero")),
                },
                None => Ok(figure(number(what)?)),
            }
        }
        _ => Err(format!("there is no directive `{head}`")),
    }
}

fn table(bench: &Bench, lines: &str) -> Result<String, String> {
    let (mut headings, mut columns, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines.lines() {
        let (heading, what) = line.rsplit_once(": ").ok_or_else(|| format!("`{line}` has no `: `"))?;
        if heading == "rows" {
            rows.extend(what.split(", ").map(|row| row.split_once(" as ").unwrap_or((row, row))));
        } else {
            let (case, statistic) = what.split_once(' ').map_or((what, None), |(case, s)| (case, Some(s)));
            headings.push(heading);
            columns.push((bench.case(case)?, statistic));
        }
    }
    if rows.is_empty() {
        for name in columns.iter().flat_map(|(case, _)| case.names()) {
            if !rows.contains(&(name, name)) && !name.starts_with("before") {
                rows.push((name, name));
            }
        }
    }
    let mut table = format!("| | {} |\n| --- |{}", headings.join(" | "), " ---: |".repeat(headings.len()));
    for (name, label) in rows {
        let cells = columns.iter().map(|(case, statistic)| case.number(name, *statistic));
        let cells: Vec<Option<f64>> = cells.collect::<Result<_, _>>()?;
        if cells.iter().all(Option::is_none) {
            return Err(format!("no column of the table has the contender `{name}`"));
        }
        let cells =
            cells.iter().map(|cell| cell.map_or_else(|| " |".to_owned(), |n| format!(" {} |", figure(n))));
        table = format!("{table}\n| {label} |{}", cells.collect::<String>());
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECT: &str = r#"{
        "bench": "direct", "commit": "0123456789abcdef-dirty", "machine": "a Z80, 2 cores", "date": "2026-11-20T01:02:03Z",
        "peers": "governor 0.10.4, ratelimit 2.0.0", "before": "fedcba9876543210",
        "cases": [
            {"case": "allow-1t", "unit": "ns", "better": "lower", "contenders": {
                "tollgate": {"median": 9.996, "min": 9.0, "max": 11.0},
                "before": {"median": 12.0, "min": 9.0, "max": 13.0},
                "governor": {"median": 13.0, "min": 12.0, "max": 14.0}},
             "goals": [{"against": "governor", "ratio_at_most": 0.768, "measured": 0.7684, "met": false},
                       {"at_most": 10, "measured": 9.996, "met": true},
                       {"contender": "none", "always_at_most": 10, "measured": null, "met": false}]},
            {"case": "sweep", "unit": "us", "better": "lower", "contenders": {
                "floor": {"median": 28682, "min": 153.2, "max": 2e6},
                "none": {"median": 0, "min": 0, "max": 0}},
             "goals": [{"contender": "floor", "least_at_most": 100, "measured": 153.2, "met": false}]}]}"#;

    fn rendered(template: &str) -> Result<String, String> {
        render(template, &Results::of([DIRECT])?)
    }

    #[test]
    fn the_page_is_up_to_date() {
        let written = fs::read_to_string(root().join(PAGE)).unwrap();
        assert!(page().unwrap() == written, "{PAGE} is out of date: run `cargo xtask measurements`");
    }

    #[test]
    fn about_names_command_date_commit_machine_and_peers() {
        let expected = "Measured with `cargo xtask bench direct --before fedcba987654` on 2026-11-20 at commit 0123456789ab \
            with uncommitted changes, on a Z80, 2 cores";
        assert_eq!(rendered("{{about direct}}"), Ok(format!("{expected}.")));
        assert_eq!(
            rendered("{{about direct: governor}}"),
            Ok(format!("{expected}. Peers: governor 0.10.4."))
        );
    }

    #[test]
    fn a_table_has_every_contender_in_order_but_not_before() {
        let expected = "| | ns, 1 thread | µs |\n| --- | ---: | ---: |\n| tollgate | 10.0 | |\n| governor | 13 | |\n\
            | floor | | 28 700 |\n| none | | 0 |\n";
        assert_eq!(
            rendered("{{table direct\nns, 1 thread: allow-1t\nµs: sweep\n}}\n").as_deref(),
            Ok(expected)
        );
    }

    #[test]
    fn rows_select_and_rename_contenders() {
        let expected = "| | ns |\n| --- | ---: |\n| governor | 14 |\n| the parent | 13 |";
        let template = "{{table direct\nns: allow-1t max\nrows: governor, before as the parent\n}}";
        assert_eq!(rendered(template).as_deref(), Ok(expected));
    }

    #[test]
    fn numbers_stand_in_sentences() {
        let template =
            "{{direct sweep floor}} {{direct sweep floor min}} {{direct allow-1t tollgate/governor}}.";
        assert_eq!(rendered(template).as_deref(), Ok("28 700 153 0.769."));
    }

    #[test]
    fn missed_goals_are_sentences() {
        let expected = "This run misses these goals:\n\n\
            - `allow-1t`: the median of `tollgate` is 0.7684 times that of `governor`; the goal is at most 0.768.\n\
            - `allow-1t`: `none` was not measured.\n\
            - `sweep`: the best round of `floor` is 153 µs; the goal is at most 100.";
        assert_eq!(rendered("{{missed direct}}").as_deref(), Ok(expected));
    }

    #[test]
    fn an_unknown_name_is_an_error_with_its_line() {
        for (directive, message) in [
            (
                "about wait",
                "there is no benches/results/wait.json; `cargo xtask bench wait --publish` writes it",
            ),
            ("about direct: mutex", "direct has no peer `mutex`"),
            ("direct deny-1t tollgate", "direct has no case `deny-1t`"),
            ("direct allow-1t gov", "`allow-1t` has no contender `gov`"),
            ("direct sweep floor/none", "`sweep` has no ratio to `none`, which is zero"),
            ("direct allow-1t tollgate mean", "there is no statistic `mean`; there are min and max"),
            ("table direct\nns: deny-1t\n", "direct has no case `deny-1t`"),
            ("table direct\nns: allow-1t\nrows: gov\n", "no column of the table has the contender `gov`"),
            ("tabel direct", "there is no directive `tabel direct`"),
        ] {
            let expected = Err(format!("benches/measurements.md:2: {message}"));
            assert_eq!(rendered(&format!("first\n{{{{{directive}}}}}")), expected);
        }
        assert_eq!(rendered("{{about"), Err("benches/measurements.md:1: a directive has no `}}`".to_owned()));
    }

    #[test]
    fn results_of_a_quick_run_are_refused() {
        let quick = DIRECT.replace(r#""before": "fedcba9876543210""#, r#""quick": true"#);
        assert_eq!(Results::of([&*quick]).err().as_deref(), Some("direct is of a --quick run"));
    }
}
