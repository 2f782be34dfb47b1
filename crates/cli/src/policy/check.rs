//! `tollgate policy check`: the problems of policies.

use std::path::Path;

use clap::ArgMatches;
use serde::Serialize;
use tollgate_policy::{Problem, Problems};

use super::{BUILT_IN_NAME, as_asked, files, is_json, read};
use crate::failure::Failure;
use crate::output;

/// The result for one policy.
#[derive(Serialize)]
struct Checked {
    path: String,
    /// The number of limits, or `None` if the policy is invalid.
    limits: Option<usize>,
    domains: Vec<String>,
    #[serde(flatten)]
    problems: Problems,
    /// Valid settings that look like mistakes.
    warnings: Problems,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let checked: Vec<Checked> = files(matches).map(|path| check(path, matches)).collect();
    if is_json(matches) {
        output::print_json(&checked)?;
    } else {
        let texts: Vec<String> = checked.iter().map(Checked::text).collect();
        output::print(&texts.concat())?;
    }
    if checked.iter().all(|policy| policy.limits.is_some()) { Ok(()) } else { Err(Failure::Found) }
}

/// Reads a policy. By `--strict` its warnings are problems.
fn check(path: Option<&Path>, matches: &ArgMatches) -> Checked {
    let shown = path.map_or_else(|| BUILT_IN_NAME.to_owned(), |path| path.display().to_string());
    match read(path.map(|path| as_asked(path, matches))) {
        Ok((policy, _)) => {
            let warnings = policy.warnings();
            if matches.get_flag("strict") && !warnings.is_empty() {
                return Checked::wrong(shown, warnings);
            }
            Checked {
                path: shown,
                limits: Some(policy.limits().len()),
                domains: policy.domains().map(str::to_owned).collect(),
                problems: Problems::default(),
                warnings,
            }
        }
        Err(problems) => Checked::wrong(shown, problems),
    }
}

impl Checked {
    fn wrong(path: String, problems: Problems) -> Self {
        Self { path, limits: None, domains: Vec::new(), problems, warnings: Problems::default() }
    }

    fn text(&self) -> String {
        let Self { path, limits, domains, problems, warnings } = self;
        let Some(limits) = limits else {
            return format!("{problems}\n\n{path}: {}\n", counted(problems.count(), "problem"));
        };
        let (limits, domains) = (counted(*limits, "limit"), counted(domains.len(), "domain"));
        match warnings.count() {
            0 => format!("{path}: {limits} in {domains}, no problems\n"),
            count => {
                let count = counted(count, "warning");
                let warnings = labelled(warnings);
                format!(
                    "{warnings}\n\n{path}: {limits} in {domains}, {count}; --strict treats them as errors\n"
                )
            }
        }
    }
}

/// Formats warnings with the word `warning` before each message.
fn labelled(warnings: &Problems) -> String {
    let label = |warning: &Problem| {
        let mut labelled = warning.clone();
        labelled.message.insert_str(0, "warning: ");
        labelled.to_string()
    };
    let mut texts: Vec<String> = warnings.iter().map(label).collect();
    if warnings.count() > texts.len() {
        texts.push(format!("and {} more", warnings.count() - texts.len()));
    }
    texts.join("\n\n")
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
