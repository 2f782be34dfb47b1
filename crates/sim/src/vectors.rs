//! Golden vectors: short stories of questions with the answers that core gives, for whoever writes the algorithms again in
//! another language.
//!
//! They are in `testdata/vectors/`, one file for each algorithm, one story to a line; `cargo xtask vectors` makes them. Times are
//! whole microseconds, rounded up, because that is what the clocks of other systems can say; and all quotas are such that
//! nothing else need be rounded.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tollgate_core::{
    Algorithm, AnyAlgorithm, Ask, Claim, Decision, GiveBack, Kind, Quota, SubWindows, Tick, Verdict,
};

use crate::LineError;
use crate::lines;

/// A limit, and what happened to it.
///
/// # Examples
/// ```
/// use tollgate_core::Kind;
/// use tollgate_sim::vectors::{self, Vector};
///
/// let story = Vector::draw(Kind::TokenBucket, 7);
/// assert_eq!(story, story.told_by_core());
/// let mut file = Vec::new();
/// vectors::write(&mut file, &[story.clone()])?;
/// assert_eq!(vectors::read(&file[..]).unwrap(), [story]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// The algorithm by its [name](Kind::name).
    pub kind: String,
    /// Of sub-windows; zero for all others.
    pub parts: u32,
    /// How many per period.
    pub count: u64,
    /// The period.
    pub period_us: u64,
    /// How many at once.
    pub burst: u64,
    /// What happened, in order.
    pub steps: Vec<Step>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub at_us: u64,
    /// What.
    #[serde(rename = "do")]
    pub what: What,
    /// How much.
    pub cost: u64,
    /// What was said. After a charge, a refund or a return: how things stand.
    pub answer: Said,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// It is taken if it may be, by somebody as patient as the algorithm expects.
    Take,
    /// Nothing is taken.
    Peek,
    /// It is taken, whether it fits or not.
    Charge,
    /// It comes back, without a receipt.
    Refund,
    /// It comes back out of the take with this number, counting from zero those that took something.
    GiveBack(usize),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// `allow`, `delay` or `deny`.
    pub verdict: String,
    /// What is left.
    pub remaining: u64,
    /// How long to wait before acting.
    pub delay_us: u64,
    /// When to come back; never, if that is missing.
    pub retry_us: Option<u64>,
    /// When it is fresh; never, if that is missing.
    pub reset_us: Option<u64>,
}

impl From<Decision> for Said {
    fn from(decision: Decision) -> Self {
        let verdict = match decision.verdict() {
            Verdict::Allow => "allow",
            Verdict::Delay => "delay",
            Verdict::Deny => "deny",
        };
        let micros = |span: Duration| u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        Self {
            verdict: verdict.to_owned(),
            remaining: decision.remaining(),
            delay_us: micros(decision.delay()),
            retry_us: decision.retry_after().map(micros),
            reset_us: decision.reset_after().map(micros),
        }
    }
}

/// How many stories each algorithm has, and how many steps each story.
const STORIES: u64 = 16;
const STEPS: u32 = 30;

/// How far the clock of a story may be behind the latest moment in it: a store may take a state that lies further ahead for one
/// that was written by another clock.
const MOST_BEHIND_US: u64 = 60_000_000;

/// Count, period in microseconds, and burst: round and odd, fast and slow, nothing at all.
const QUOTAS: [(u64, u64, u64); 10] = [
    (3, 1_000_000, 3),
    (7, 1_000_000, 2),
    (10, 1_000_000, 20),
    (7, 60_000_000, 7),
    (100, 3_600_000_000, 10),
    (1, 86_400_000_000, 5),
    (1_000, 1_000_000, 100),
    (15, 40_000, 4),
    (0, 1_000_000, 3),
    (5, 1_000_000, 0),
];

impl Vector {
    /// All stories about an algorithm.
    pub fn all(kind: Kind) -> Vec<Self> {
        (0..STORIES).map(|seed| Self::draw(kind, seed)).collect()
    }

    /// A story drawn from a seed.
    pub fn draw(kind: Kind, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (count, period_us, burst) = QUOTAS[(seed as usize) % QUOTAS.len()]; // taken modulo
        let parts = match kind {
            Kind::SubWindows => [10, 4, 1, 40][rng.usize(..4)],
            _ => 0,
        };
        let mut story = Self { kind: kind.to_string(), parts, count, period_us, burst, steps: Vec::new() };
        let mut teller = Teller::new(&story);
        for _ in 0..STEPS {
            let step = teller.draw(&mut rng);
            story.steps.push(step);
        }
        story
    }

    /// The same story with the answers that core gives.
    #[must_use]
    pub fn told_by_core(&self) -> Self {
        let mut teller = Teller::new(self);
        let mut tell =
            |step: &Step| Step { answer: teller.answer(step.at_us, step.what, step.cost), ..step.clone() };
        Self { steps: self.steps.iter().map(&mut tell).collect(), ..self.clone() }
    }

    /// Its quota.
    pub fn quota(&self) -> Quota {
        Quota::per(self.count, Duration::from_micros(self.period_us)).burst(self.burst)
    }

    fn algorithm(&self) -> AnyAlgorithm {
        let kind: Kind = self.kind.parse().expect("a vector names an algorithm");
        match kind {
            Kind::SubWindows => AnyAlgorithm::SubWindows(SubWindows::new(self.quota()).parts(self.parts)),
            kind => AnyAlgorithm::new(kind, self.quota()),
        }
    }
}

/// Reads stories, one to a line.
///
/// # Errors
/// The first line that is none.
pub fn read(reader: impl BufRead) -> Result<Vec<Vector>, LineError> {
    lines::read(reader, |vector: &Vector| {
        vector.kind.parse::<Kind>().map(drop).map_err(|unknown| unknown.to_string())
    })
}

/// Writes stories, one to a line.
///
/// # Errors
/// If that cannot be written.
pub fn write(writer: impl Write, vectors: &[Vector]) -> io::Result<()> {
    lines::write(writer, vectors)
}

/// Core, and what it needs to go on with a story.
struct Teller {
    algorithm: AnyAlgorithm,
    state: <AnyAlgorithm as Algorithm>::State,
    /// One for each take that took something: its receipt until that is used, and how far the state had fallen.
    receipts: Vec<Option<(Claim, u64)>>,
    fallen: u64,
    now_us: u64,
    latest_us: u64,
    interval_us: u64,
    period_us: u64,
    most: u64,
}

impl Teller {
    fn new(story: &Vector) -> Self {
        Self {
            algorithm: story.algorithm(),
            state: <AnyAlgorithm as Algorithm>::State::default(),
            receipts: Vec::new(),
            fallen: 0,
            now_us: 0,
            latest_us: 0,
            interval_us: story.period_us / story.count.max(1),
            period_us: story.period_us,
            most: story.count.min(story.burst).clamp(2, 6),
        }
    }

    fn draw(&mut self, rng: &mut Rng) -> Step {
        self.now_us = match rng.u8(..12) {
            0 => self.now_us + self.period_us + rng.u64(..self.period_us),
            1 => self.now_us.saturating_sub(rng.u64(..=self.period_us)),
            2 => (self.now_us / self.period_us + 1) * self.period_us - u64::from(rng.bool()),
            3..7 => self.now_us,
            _ => self.now_us + rng.u64(..=self.interval_us),
        };
        self.now_us = self.now_us.max(self.latest_us.saturating_sub(MOST_BEHIND_US));
        self.latest_us = self.latest_us.max(self.now_us);
        let cost = if rng.u8(..3) == 0 { rng.u64(..=self.most + 1) } else { 1 };
        let open: Vec<usize> =
            (0..self.receipts.len()).filter(|index| self.receipts[*index].is_some()).collect();
        let what = match rng.u8(..12) {
            0 => What::Peek,
            1 => What::Charge,
            2 => What::Refund,
            3 | 4 if !open.is_empty() => {
                What::GiveBack(open[open.len() - 1 - rng.usize(..open.len().min(3))])
            }
            _ => What::Take,
        };
        let cost = match what {
            What::GiveBack(of) => self.receipts[of].map_or(0, |(claim, _)| rng.u64(1..=claim.cost)),
            _ => cost,
        };
        let at_us = self.now_us;
        Step { at_us, what, cost, answer: self.answer(at_us, what, cost) }
    }

    fn answer(&mut self, at_us: u64, what: What, cost: u64) -> Said {
        let now = Tick::ZERO + Duration::from_micros(at_us);
        let ask = Ask::within(cost, self.algorithm.patience());
        match what {
            What::Take => return self.take(now, ask).into(),
            What::Peek => return self.algorithm.decide(&self.state, now, ask).decision.into(),
            What::Charge => {
                if let Some(change) = self.algorithm.charge(&self.state, cost, now) {
                    self.algorithm.apply(&mut self.state, change);
                }
            }
            What::Refund => {
                let change = self.algorithm.refund(&self.state, cost, now);
                self.fall(change);
            }
            What::GiveBack(of) => self.give_back(of, cost, now),
        }
        self.algorithm.decide(&self.state, now, Ask::now(0)).decision.into()
    }

    fn take(&mut self, now: Tick, ask: Ask) -> Decision {
        let step = self.algorithm.decide(&self.state, now, ask);
        if let Some(change) = step.change {
            let claim = self.algorithm.claim(&change, ask.cost(), now + step.decision.delay());
            self.receipts.push(Some((claim, self.fallen)));
            self.algorithm.apply(&mut self.state, change);
        }
        step.decision
    }

    fn give_back(&mut self, of: usize, amount: u64, now: Tick) {
        let Some((claim, fallen)) = self.receipts.get_mut(of).and_then(Option::take) else { return };
        let before = self.fallen;
        let Some(claim) = self.algorithm.lowered(claim, before - fallen) else { return };
        let is_undone =
            before == fallen && amount >= claim.cost && self.algorithm.is_last(&self.state, &claim);
        self.fall(self.algorithm.give_back(&self.state, GiveBack { claim, amount, ahead: now }, now));
        if is_undone {
            self.fallen = before; // those below lie where they did
        }
    }

    fn fall(&mut self, change: Option<<AnyAlgorithm as Algorithm>::Change>) {
        if let Some(change) = change {
            self.fallen += self.algorithm.fall(&self.state, &change);
            self.algorithm.apply(&mut self.state, change);
        }
    }
}
