//! What is measured, and what it is measured against.

use serde_json::{Map, Value, json};

/// Whether more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As for throughput.
    Higher,
    /// As for time.
    Lower,
}

/// One thing that was measured, for every contender.
#[derive(Debug)]
pub struct Case {
    name: String,
    unit: &'static str,
    better: Better,
    /// In the order in which they were first measured.
    contenders: Vec<(&'static str, Vec<f64>)>,
    goals: Vec<Goal>,
}

impl Case {
    /// A case that nothing was measured for yet.
    pub fn new(name: impl Into<String>, unit: &'static str, better: Better) -> Self {
        Self { name: name.into(), unit, better, contenders: Vec::new(), goals: Vec::new() }
    }

    /// The same with a goal.
    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goals.push(goal);
        self
    }

    /// Adds a sample.
    pub fn sample(&mut self, contender: &'static str, value: f64) {
        match self.contenders.iter_mut().find(|(name, _)| *name == contender) {
            Some((_, samples)) => samples.push(value),
            None => self.contenders.push((contender, vec![value])),
        }
    }

    /// A contender's samples in one line; `None` if it was not measured.
    pub fn summary(&self, contender: &str) -> Option<Summary> {
        let (_, samples) = self.contenders.iter().find(|(name, _)| *name == contender)?;
        Some(Summary::of(samples))
    }

    /// The goals that are not met, in words.
    pub(crate) fn unmet(&self) -> impl Iterator<Item = String> + '_ {
        let missed = self.goals.iter().map(|goal| goal.judge(self)).filter(|judged| !judged.met);
        missed.map(|judged| format!("{}: {}", self.name, judged.words))
    }

    pub(crate) fn table(&self) -> String {
        let better = if self.better == Better::Higher { "higher" } else { "lower" };
        let mut lines = vec![format!("{} ({}, {better} is better)", self.name, self.unit)];
        lines.push(format!("  {:<22} {:>12} {:>12} {:>12}", "", "median", "min", "max"));
        for (name, samples) in &self.contenders {
            let Summary { median, min, max } = Summary::of(samples);
            lines.push(format!("  {name:<22} {median:>12.3} {min:>12.3} {max:>12.3}"));
        }
        lines.extend(self.goals.iter().map(|goal| {
            let judged = goal.judge(self);
            format!("  {} {}", if judged.met { "goal met:     " } else { "GOAL NOT MET: " }, judged.words)
        }));
        lines.push(String::new());
        lines.join("\n")
    }

    pub(crate) fn json(&self) -> Value {
        let better = if self.better == Better::Higher { "higher" } else { "lower" };
        let contenders = self.contenders.iter().map(|(name, samples)| {
            let Summary { median, min, max } = Summary::of(samples);
            ((*name).to_owned(), json!({"median": short(median), "min": short(min), "max": short(max)}))
        });
        json!({
            "case": self.name,
            "unit": self.unit,
            "better": better,
            "contenders": contenders.collect::<Map<_, _>>(),
            "goals": self.goals.iter().map(|goal| goal.json(self)).collect::<Vec<_>>(),
        })
    }
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
    fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { median: f64::midpoint(lower, upper), min: sorted[0], max: sorted[sorted.len() - 1] }
    }
}

/// What a contender is meant to reach.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    contender: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    RatioAtLeast { against: &'static str, ratio: f64 },
    RatioAtMost { against: &'static str, ratio: f64 },
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
    pub fn ratio_at_least(contender: &'static str, against: &'static str, ratio: f64) -> Self {
        Self { contender, bound: Bound::RatioAtLeast { against, ratio } }
    }

    /// Its median is at most `ratio` times that of `against`.
    pub fn ratio_at_most(contender: &'static str, against: &'static str, ratio: f64) -> Self {
        Self { contender, bound: Bound::RatioAtMost { against, ratio } }
    }

    /// Its median is at least `value`.
    pub fn at_least(contender: &'static str, value: f64) -> Self {
        Self { contender, bound: Bound::AtLeast(value) }
    }

    /// Its median is at most `value`.
    pub fn at_most(contender: &'static str, value: f64) -> Self {
        Self { contender, bound: Bound::AtMost(value) }
    }

    /// Its least sample is at most `value`: for what the noise of the machine can only raise, such as the longest of
    /// many calls. What comes in every round shows in the least of them too.
    pub fn least_at_most(contender: &'static str, value: f64) -> Self {
        Self { contender, bound: Bound::LeastAtMost(value) }
    }

    /// Its greatest sample is at most `value`: so it is in every round.
    pub fn always_at_most(contender: &'static str, value: f64) -> Self {
        Self { contender, bound: Bound::AlwaysAtMost(value) }
    }

    /// It is zero in every round.
    pub fn never(contender: &'static str) -> Self {
        Self { contender, bound: Bound::Never }
    }

    fn judge(&self, case: &Case) -> Judged {
        // A contender that was not measured reaches nothing: comparisons with NaN are false.
        let summary = case.summary(self.contender);
        let median = summary.map_or(f64::NAN, |summary| summary.median);
        let ratio_to = |against| median / case.summary(against).map_or(f64::NAN, |peer| peer.median);
        let (measured, met, wanted) = match self.bound {
            Bound::RatioAtLeast { against, ratio } => {
                let measured = ratio_to(against);
                (measured, measured >= ratio, format!(">= {ratio} x {against}"))
            }
            Bound::RatioAtMost { against, ratio } => {
                let measured = ratio_to(against);
                (measured, measured <= ratio, format!("<= {ratio} x {against}"))
            }
            Bound::AtLeast(value) => (median, median >= value, format!(">= {value}")),
            Bound::AtMost(value) => (median, median <= value, format!("<= {value}")),
            Bound::LeastAtMost(value) => {
                let least = summary.map_or(f64::NAN, |summary| summary.min);
                (least, least <= value, format!("<= {value} in the best round"))
            }
            Bound::AlwaysAtMost(value) => {
                let most = summary.map_or(f64::NAN, |summary| summary.max);
                (most, most <= value, format!("<= {value} in every round"))
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
        let (key, value) = match self.bound {
            Bound::RatioAtLeast { against, ratio } => {
                goal.insert("against".to_owned(), json!(against));
                ("ratio_at_least", ratio)
            }
            Bound::RatioAtMost { against, ratio } => {
                goal.insert("against".to_owned(), json!(against));
                ("ratio_at_most", ratio)
            }
            Bound::AtLeast(value) => ("at_least", value),
            Bound::AtMost(value) => ("at_most", value),
            Bound::LeastAtMost(value) => ("least_at_most", value),
            Bound::AlwaysAtMost(value) => ("always_at_most", value),
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
}
