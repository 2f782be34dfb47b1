//! The results of the benchmarks, as the benches crate writes them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// The results of all benches.
#[derive(Debug)]
pub(super) struct Results(Vec<Bench>);

/// One run of one bench.
#[derive(Debug, Deserialize)]
pub(super) struct Bench {
    #[serde(rename = "bench")]
    name: String,
    commit: String,
    machine: String,
    date: String,
    peers: String,
    before: Option<String>,
    #[serde(default)]
    quick: bool,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Case {
    #[serde(rename = "case")]
    name: String,
    unit: String,
    /// In the order in which they were measured.
    #[serde(deserialize_with = "in_order")]
    contenders: Vec<(String, Summary)>,
    goals: Vec<Goal>,
}

#[derive(Debug, Deserialize)]
struct Summary {
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Debug, Deserialize)]
struct Goal {
    contender: Option<String>,
    against: Option<String>,
    /// `None` if the contender was not measured.
    measured: Option<f64>,
    met: bool,
    /// One bound by its kind, such as `ratio_at_most`.
    #[serde(flatten)]
    bound: BTreeMap<String, f64>,
}

impl Results {
    /// Reads every file of a directory. A directory that does not exist has none.
    pub(super) fn read(directory: &Path) -> Result<Self, String> {
        let paths = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let read = |path: std::path::PathBuf| {
            fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let texts = paths.map(read).collect::<Result<Vec<_>, _>>()?;
        Self::of(texts.iter().map(String::as_str))
    }

    pub(super) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let parse = |text| serde_json::from_str(text).map_err(|error| format!("a result is broken: {error}"));
        let benches = texts.into_iter().map(parse).collect::<Result<Vec<Bench>, _>>()?;
        match benches.iter().find(|bench| bench.quick) {
            Some(quick) => Err(format!("{} is of a --quick run", quick.name)),
            None => Ok(Self(benches)),
        }
    }

    pub(super) fn bench(&self, name: &str) -> Result<&Bench, String> {
        self.0.iter().find(|bench| bench.name == name).ok_or_else(|| {
            format!("there is no benches/results/{name}.json; `cargo xtask bench {name} --publish` writes it")
        })
    }
}

impl Bench {
    pub(super) fn case(&self, name: &str) -> Result<&Case, String> {
        let case = self.cases.iter().find(|case| case.name == name);
        case.ok_or_else(|| format!("{} has no case `{name}`", self.name))
    }

    /// Returns how it was measured, with the versions of some peers, separated by commas.
    pub(super) fn about(&self, peers: &str) -> Result<String, String> {
        let Self { name: bench, machine, date, commit, .. } = self;
        let short = |commit: &str| commit.chars().take(12).collect::<String>();
        let before = self.before.as_ref().map_or_else(String::new, |rev| format!(" --before {}", short(rev)));
        let dirty = if commit.ends_with("-dirty") { " with uncommitted changes" } else { "" };
        let (day, commit) = (date.split('T').next().unwrap_or(date), short(commit));
        let mut about = format!(
            "Measured with `cargo xtask bench {bench}{before}` on {day} at commit {commit}{dirty}, on {machine}."
        );
        let mut versions = Vec::new();
        for name in peers.split(", ").filter(|name| !name.is_empty()) {
            let mut known = self.peers.split(", ");
            let version = known.find(|peer| peer.split(' ').next() == Some(name));
            versions.push(version.ok_or_else(|| format!("{bench} has no peer `{name}`"))?);
        }
        if !versions.is_empty() {
            about = format!("{about} Peers: {}.", versions.join(", "));
        }
        Ok(about)
    }

    /// Returns a list of the goals that were missed.
    pub(super) fn missed(&self) -> String {
        let of_case = |case: &'_ Case| {
            case.goals.iter().filter(|goal| !goal.met).map(|goal| goal.sentence(case)).collect::<Vec<_>>()
        };
        let missed: Vec<String> = self.cases.iter().flat_map(of_case).collect();
        if missed.is_empty() {
            return "This run meets every goal of the bench.".to_owned();
        }
        format!("This run misses these goals:\n\n{}", missed.join("\n"))
    }
}

impl Case {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.contenders.iter().map(|(name, _)| name.as_str())
    }

    /// Returns a contender's median, or another statistic; `None` if it was not measured.
    pub(super) fn number(&self, contender: &str, statistic: Option<&str>) -> Result<Option<f64>, String> {
        let pick: fn(&Summary) -> f64 = match statistic {
            None => |summary| summary.median,
            Some("min") => |summary| summary.min,
            Some("max") => |summary| summary.max,
            Some(other) => return Err(format!("there is no statistic `{other}`; there are min and max")),
        };
        Ok(self.contenders.iter().find(|(name, _)| name == contender).map(|(_, summary)| pick(summary)))
    }

    /// Returns the message that a contender was not measured.
    pub(super) fn without(&self, contender: &str) -> String {
        format!("`{}` has no contender `{contender}`", self.name)
    }
}

impl Goal {
    /// Returns the sentence that the goal was missed, as a list item.
    fn sentence(&self, Case { name: case, unit, .. }: &Case) -> String {
        let contender = self.contender.as_deref().unwrap_or("tollgate");
        let (Some(measured), Some((kind, bound))) = (self.measured, self.bound.first_key_value()) else {
            return format!("- `{case}`: `{contender}` was not measured.");
        };
        let sample = match kind.as_str() {
            "least_at_most" => "best round",
            "always_at_most" => "worst round",
            "at_most" if *bound <= 0.0 => "worst round",
            _ => "median",
        };
        let unit = match &self.against {
            Some(against) => format!("times that of `{against}`"),
            None if unit == "us" => "µs".to_owned(),
            None => unit.clone(),
        };
        let direction = if kind.ends_with("at_least") { "at least" } else { "at most" };
        let rounded = figure(measured);
        // A goal that is missed by a hair must not look met.
        let measured = if rounded == figure(*bound) { measured.to_string() } else { rounded };
        format!(
            "- `{case}`: the {sample} of `{contender}` is {measured} {unit}; the goal is {direction} {bound}."
        )
    }
}

/// Formats a measured number with three significant digits. A share just below one has four.
pub(super) fn figure(value: f64) -> String {
    significant(value, if (0.9..1.0).contains(&value) { 4 } else { 3 })
}

/// Formats a number with some significant digits, thousands apart. A whole number has no decimals.
pub(super) fn significant(value: f64, digits: i32) -> String {
    let scientific = format!("{value:.*e}", digits as usize - 1);
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let decimals = if value.fract() == 0.0 { 0 } else { (digits - 1 - exponent).clamp(0, 4) };
    let rounded = scientific.parse().unwrap_or(value);
    let text = format!("{rounded:.*}", decimals as usize);
    let mut apart = String::new();
    for (index, digit) in text.char_indices() {
        if decimals == 0
            && (text.len() - index).is_multiple_of(3)
            && apart.ends_with(|c: char| c.is_ascii_digit())
        {
            apart.push(' ');
        }
        apart.push(digit);
    }
    apart
}

/// Reads the fields of an object in their order.
fn in_order<'de, D: Deserializer<'de>>(object: D) -> Result<Vec<(String, Summary)>, D::Error> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, Summary)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object with contenders")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut object: M) -> Result<Self::Value, M::Error> {
            std::iter::from_fn(|| object.next_entry().transpose()).collect()
        }
    }
    object.deserialize_map(Fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.00012, "0.0001"),
            (0.1746, "0.175"),
            (0.9986, "0.9986"),
            (9.996, "10.0"),
            (34.0, "34"),
            (106.66, "107"),
            (999.7, "1 000"),
            (28_682.0, "28 700"),
            (1_874_321.5, "1 870 000"),
            (-123.4, "-123"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(significant(0.9986, 3), "0.999");
    }
}
