//! What is measured, and what it is measured against.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// How many times slower (or larger, for what is not a time) than an earlier commit a contender may be.
const SLOWER_AT_MOST: f64 = 1.05;

/// Whether more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As for throughput.
    Higher,
    /// As for time.
    Lower,
}

impl Better {
    fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// One thing that was measured, for every contender.
#[derive(Debug)]
pub struct Case {
    name: String,
    unit: &'static str,
    better: Better,
    /// In the order in which they were first measured.
    contenders: Vec<(String, Vec<f64>)>,
    goals: Vec<Goal>,
    /// Lines for people, below the table.
    notes: Vec<String>,
}

impl Case {
    /// A case that nothing was measured for yet.
    pub fn new(name: impl Into<String>, unit: &'static str, better: Better) -> Self {
        Self { name: name.into(), unit, better, contenders: Vec::new(), goals: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same with a goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goals.push(goal);
        self
    }

    /// Adds a sample.
    pub fn sample(&mut self, contender: &str, value: f64) {
        match self.contenders.iter_mut().find(|(name, _)| *name == contender) {
            Some((_, samples)) => samples.push(value),
            None => self.contenders.push((contender.to_owned(), vec![value])),
        }
    }

    /// A contender's samples in one line; `None` if it was not measured.
    pub fn summary(&self, contender: &str) -> Option<Summary> {
        let (_, samples) = self.contenders.iter().find(|(name, _)| *name == contender)?;
        Some(Summary::of(samples))
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    /// Adds the figures of this project's contenders from an earlier commit's run of the same case, given as JSON. Each contender
    /// gets the goal not to be slower than it was.
    pub(crate) fn add_before(&mut self, earlier: &Value) {
        if earlier["unit"] != self.unit || earlier["better"] != self.better.name() {
            self.note(format!("not compared: before measured {}", earlier["unit"]));
            return;
        }
        let names: Vec<String> = self.contenders.iter().map(|(name, _)| name.clone()).collect();
        let of_ours = names.iter().any(|name| is_ours(name));
        let mut peers = Vec::new();
        for name in names {
            let Some(summary) = Summary::from_json(&earlier["contenders"][&name]) else { continue };
            // A case without `tollgate` compares variants of our own.
            if is_ours(&name) || !of_ours {
                self.stand_beside(&name, summary);
            } else {
                peers.push(ratio(self.median(&name), summary.median));
            }
        }
        peers.sort_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (peers.first(), peers.last()) {
            self.note(format!("the same peers, now / before: {least:.3} to {most:.3}"));
        }
    }

    /// Adds what a contender reached before, right behind it.
    fn stand_beside(&mut self, name: &str, Summary { median, min, max }: Summary) {
        let earlier = name
            .strip_prefix("tollgate")
            .map_or_else(|| format!("before-{name}"), |rest| format!("before{rest}"));
        let ratio = ratio(self.median(name), median);
        let percent = (ratio - 1.0) * 100.0;
        let verdict = match self.better {
            _ if percent.abs() < 0.05 => "the same", // as printed
            Better::Higher if percent > 0.0 => "better",
            Better::Lower if percent < 0.0 => "better",
            _ => "worse",
        };
        self.note(format!("{name} / {earlier}: {ratio:.3} ({percent:+.1} %, {verdict})"));
        let at = self.contenders.iter().position(|(other, _)| other == name).map_or(0, |index| index + 1);
        // Three samples with just this median, minimum and maximum.
        self.contenders.insert(at, (earlier.clone(), vec![min, median, max]));
        let contender = name.to_owned();
        self.goals.push(match self.better {
            Better::Higher => Goal::ratio_at_least(contender, earlier, short(1.0 / SLOWER_AT_MOST)),
            Better::Lower => Goal::ratio_at_most(contender, earlier, SLOWER_AT_MOST),
        });
    }

    /// A contender that was not measured has no number: comparisons with it are false.
    fn median(&self, contender: &str) -> f64 {
        self.summary(contender).map_or(f64::NAN, |summary| summary.median)
    }

    /// The goals that are not met, in words.
    pub(crate) fn unmet(&self) -> impl Iterator<Item = String> + '_ {
        let missed = self.goals.iter().map(|goal| goal.judge(self)).filter(|judged| !judged.met);
        missed.map(|judged| format!("{}: {}", self.name, judged.words))
    }

    pub(crate) fn table(&self) -> String {
        let better = self.better.name();
        let mut lines = vec![format!("{} ({}, {better} is better)", self.name, self.unit)];
        let width = self.contenders.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(22);
        lines.push(format!("  {:<width$} {:>12} {:>12} {:>12}", "", "median", "min", "max"));
        for (name, samples) in &self.contenders {
            let Summary { median, min, max } = Summary::of(samples);
            lines.push(format!("  {name:<width$} {median:>12.3} {min:>12.3} {max:>12.3}"));
        }
        lines.extend(self.goals.iter().map(|goal| {
            let judged = goal.judge(self);
            format!("  {} {}", if judged.met { "goal met:     " } else { "GOAL NOT MET: " }, judged.words)
        }));
        lines.extend(self.notes.iter().map(|note| format!("  {note}")));
        lines.push(String::new());
        lines.join("\n")
    }

    pub(crate) fn json(&self) -> Value {
        let contenders = self.contenders.iter().map(|(name, samples)| {
            let Summary { median, min, max } = Summary::of(samples);
            (name.clone(), json!({"median": short(median), "min": short(min), "max": short(max)}))
        });
        json!({
            "case": self.name,
            "unit": self.unit,
            "better": self.better.name(),
            "contenders": contenders.collect::<Map<_, _>>(),
            "goals": self.goals.iter().map(|goal| goal.json(self)).collect::<Vec<_>>(),
        })
    }
}

/// Returns whether a contender is this project's own.
fn is_ours(contender: &str) -> bool {
    contender.starts_with("tollgate")
}

/// Two of the same are in the ratio of one, even if both are zero.
fn ratio(one: f64, other: f64) -> f64 {
    if one.total_cmp(&other).is_eq() { 1.0 } else { one / other }
}

/// The middle and the ends of some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle one; the mean of the two middle ones if there are two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Summary {
    fn from_json(json: &Value) -> Option<Self> {
        let number = |name: &str| json[name].as_f64();
        Some(Self { median: number("median")?, min: number("min")?, max: number("max")? })
    }

    fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: f64::midpoint(lower, upper), min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// What a contender is meant to reach.
#[derive(Clone, Debug)]
pub struct Goal {
    contender: Name,
    bound: Bound,
}

/// A contender's name.
type Name = Cow<'static, str>;

#[derive(Clone, Debug)]
enum Bound {
    RatioAtLeast { against: Name, ratio: f64 },
    RatioAtMost { against: Name, ratio: f64 },
    AtLeast(f64),
    AtMost(f64),
    LeastAtMost(f64),
    AlwaysAtMost(f64),
    Never,
}

/// A goal beside what was measured.
struct Judged {
    measured: f64,
    met: bool,
    words: String,
}

impl Goal {
    /// Its median is at least `ratio` times that of `against`.
    pub fn ratio_at_least(contender: impl Into<Name>, against: impl Into<Name>, ratio: f64) -> Self {
        Self { contender: contender.into(), bound: Bound::RatioAtLeast { against: against.into(), ratio } }
    }

    /// Its median is at most `ratio` times that of `against`.
    pub fn ratio_at_most(contender: impl Into<Name>, against: impl Into<Name>, ratio: f64) -> Self {
        Self { contender: contender.into(), bound: Bound::RatioAtMost { against: against.into(), ratio } }
    }

    /// Its median is at least `value`.
    pub fn at_least(contender: impl Into<Name>, value: f64) -> Self {
        Self { contender: contender.into(), bound: Bound::AtLeast(value) }
    }

    /// Its median is at most `value`.
    pub fn at_most(contender: impl Into<Name>, value: f64) -> Self {
        Self { contender: contender.into(), bound: Bound::AtMost(value) }
    }

    /// Its least sample is at most `value`: for what the noise of the machine can only raise, such as the longest of
    /// many calls. What comes in every round shows in the least of them too.
    pub fn least_at_most(contender: impl Into<Name>, value: f64) -> Self {
        Self { contender: contender.into(), bound: Bound::LeastAtMost(value) }
    }

    /// Its greatest sample is at most `value`: so it is in every round.
    pub fn always_at_most(contender: impl Into<Name>, value: f64) -> Self {
        Self { contender: contender.into(), bound: Bound::AlwaysAtMost(value) }
    }

    /// It is zero in every round.
    pub fn never(contender: impl Into<Name>) -> Self {
        Self { contender: contender.into(), bound: Bound::Never }
    }

    fn judge(&self, case: &Case) -> Judged {
        let summary = case.summary(&self.contender);
        let median = case.median(&self.contender);
        let ratio_to = |against: &Name| ratio(median, case.median(against));
        let (measured, met, wanted) = match &self.bound {
            Bound::RatioAtLeast { against, ratio } => {
                let measured = ratio_to(against);
                (measured, measured >= *ratio, format!(">= {ratio} x {against}"))
            }
            Bound::RatioAtMost { against, ratio } => {
                let measured = ratio_to(against);
                (measured, measured <= *ratio, format!("<= {ratio} x {against}"))
            }
            Bound::AtLeast(value) => (median, median >= *value, format!(">= {value}")),
            Bound::AtMost(value) => (median, median <= *value, format!("<= {value}")),
            Bound::LeastAtMost(value) => {
                let least = summary.map_or(f64::NAN, |summary| summary.min);
                (least, least <= *value, format!("<= {value} in the best round"))
            }
            Bound::AlwaysAtMost(value) => {
                let most = summary.map_or(f64::NAN, |summary| summary.max);
                (most, most <= *value, format!("<= {value} in every round"))
            }
            Bound::Never => {
                let most = summary.map_or(f64::NAN, |summary| summary.max);
                (most, most <= 0.0, "0 in every round".to_owned())
            }
        };
        Judged { measured, met, words: format!("{} {wanted}: {measured:.4}", self.contender) }
    }

    fn json(&self, case: &Case) -> Value {
        let mut goal = Map::new();
        if self.contender != "tollgate" {
            goal.insert("contender".to_owned(), json!(self.contender));
        }
        let (key, value) = match &self.bound {
            Bound::RatioAtLeast { against, ratio } => {
                goal.insert("against".to_owned(), json!(against));
                ("ratio_at_least", *ratio)
            }
            Bound::RatioAtMost { against, ratio } => {
                goal.insert("against".to_owned(), json!(against));
                ("ratio_at_most", *ratio)
            }
            Bound::AtLeast(value) => ("at_least", *value),
            Bound::AtMost(value) => ("at_most", *value),
            Bound::LeastAtMost(value) => ("least_at_most", *value),
            Bound::AlwaysAtMost(value) => ("always_at_most", *value),
            Bound::Never => ("at_most", 0.0),
        };
        let Judged { measured, met, .. } = self.judge(case);
        goal.insert(key.to_owned(), json!(value));
        goal.insert("measured".to_owned(), json!(short(measured)));
        goal.insert("met".to_owned(), json!(met));
        Value::Object(goal)
    }
}

/// Four decimals are more than any of this is good for.
fn short(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let mut case = Case::new("allow-2t", "Mop/s", Better::Higher)
            .goal(Goal::ratio_at_least("tollgate", "governor", 1.2))
            .goal(Goal::at_most("governor", 10.0));
        for (ours, theirs) in [(53.0, 40.0), (52.0, 41.0), (50.0, 39.0)] {
            case.sample("tollgate", ours);
            case.sample("governor", theirs);
        }
        case
    }

    #[test]
    fn the_json_is_as_written_down() {
        let expected = json!({
            "case": "allow-2t", "unit": "Mop/s", "better": "higher",
            "contenders": {
                "tollgate": {"median": 52.0, "min": 50.0, "max": 53.0},
                "governor": {"median": 40.0, "min": 39.0, "max": 41.0},
            },
            "goals": [
                {"against": "governor", "ratio_at_least": 1.2, "measured": 1.3, "met": true},
                {"contender": "governor", "at_most": 10.0, "measured": 40.0, "met": false},
            ],
        });
        assert_eq!(case().json(), expected);
    }

    #[test]
    fn a_missed_goal_is_named() {
        assert_eq!(case().unmet().collect::<Vec<_>>(), ["allow-2t: governor <= 10: 40.0000"]);
    }

    #[test]
    fn the_best_round_decides_where_it_is_asked_to() {
        let just = case().goal(Goal::least_at_most("tollgate", 50.0));
        let missed = case().goal(Goal::least_at_most("tollgate", 49.9));
        assert_eq!(just.unmet().count(), 1); // governor's
        assert_eq!(missed.unmet().nth(1).unwrap(), "allow-2t: tollgate <= 49.9 in the best round: 50.0000");
    }

    #[test]
    fn the_worst_round_decides_where_it_is_asked_to() {
        let just = case().goal(Goal::always_at_most("tollgate", 53.0));
        let missed = case().goal(Goal::always_at_most("tollgate", 52.9));
        assert_eq!(just.unmet().count(), 1); // governor's
        assert_eq!(missed.unmet().nth(1).unwrap(), "allow-2t: tollgate <= 52.9 in every round: 53.0000");
    }

    #[test]
    fn a_contender_that_was_not_measured_meets_no_goal() {
        let case = case().goal(Goal::never("absent")).goal(Goal::ratio_at_most("tollgate", "absent", 2.0));
        assert_eq!(case.unmet().count(), 3);
    }

    /// What an earlier commit reached in the same case.
    fn earlier(unit: &str, ours: f64) -> Value {
        let summary = |median: f64| json!({"median": median, "min": median - 1.0, "max": median + 1.0});
        json!({
            "case": "allow-2t", "unit": unit, "better": "higher",
            "contenders": {"tollgate": summary(ours), "gone": summary(1.0), "governor": summary(50.0)},
        })
    }

    #[test]
    fn before_stands_beside_its_contender_with_a_goal() {
        let mut case = case();
        case.sample("tollgate-new", 1.0);
        case.add_before(&earlier("Mop/s", 50.0));
        let json = case.json();
        let contenders: Vec<&String> = json["contenders"].as_object().unwrap().keys().collect();
        assert_eq!(contenders, ["tollgate", "before", "governor", "tollgate-new"]);
        assert_eq!(json["contenders"]["before"], json!({"median": 50.0, "min": 49.0, "max": 51.0}));
        // 52 to 50, with the least ratio of 1 / 1.05
        let goal = json!({"against": "before", "ratio_at_least": 0.9524, "measured": 1.04, "met": true});
        assert_eq!(json["goals"].as_array().unwrap().last(), Some(&goal));
        let table = case.table();
        assert!(table.contains("tollgate / before: 1.040 (+4.0 %, better)"), "{table}");
        assert!(table.contains("the same peers, now / before: 0.800 to 0.800"), "{table}");
    }

    #[test]
    fn a_case_that_is_slower_than_before_is_named() {
        let mut case = case();
        case.add_before(&earlier("Mop/s", 55.0));
        let expected = "allow-2t: tollgate >= 0.9524 x before: 0.9455";
        assert_eq!(case.unmet().collect::<Vec<_>>()[1..], [expected]); // the first is governor's
    }

    #[test]
    fn a_case_where_less_is_better_may_grow_by_a_twentieth() {
        for (now, met) in [(10.5, true), (10.6, false)] {
            let mut case = Case::new("allow-1t", "ns", Better::Lower);
            case.sample("tollgate-coarse", now);
            let contenders = json!({"tollgate-coarse": {"median": 10.0, "min": 9.0, "max": 11.0}});
            case.add_before(&json!({"unit": "ns", "better": "lower", "contenders": contenders}));
            assert_eq!(case.unmet().count() == 0, met, "{}", case.table());
            assert!(case.table().contains("tollgate-coarse / before-coarse: 1.0"), "{}", case.table());
        }
    }

    #[test]
    fn nothing_and_nothing_are_the_same() {
        let mut case = Case::new("lost", "grants", Better::Lower);
        case.sample("tollgate", 0.0);
        let zero = json!({"tollgate": {"median": 0.0, "min": 0.0, "max": 0.0}});
        case.add_before(&json!({"unit": "grants", "better": "lower", "contenders": zero}));
        assert_eq!(case.unmet().count(), 0);
        assert!(case.table().contains("tollgate / before: 1.000 (+0.0 %, the same)"), "{}", case.table());
    }

    #[test]
    fn without_a_contender_of_ours_all_are_compared() {
        let mut case = Case::new("leased-hot-key", "calls/s", Better::Higher);
        case.sample("leased", 2.0);
        let contenders = json!({"leased": {"median": 1.0, "min": 1.0, "max": 1.0}});
        case.add_before(&json!({"unit": "calls/s", "better": "higher", "contenders": contenders}));
        assert_eq!(case.summary("before-leased").map(|summary| summary.median), Some(1.0));
    }

    #[test]
    fn other_units_are_not_compared() {
        let mut case = case();
        case.add_before(&earlier("ns", 50.0));
        assert!(case.summary("before").is_none());
        assert!(case.table().contains("not compared: before measured \"ns\""), "{}", case.table());
    }
}
