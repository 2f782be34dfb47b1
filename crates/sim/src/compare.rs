//! A subject against the oracle.

use std::fmt;

use fastrand::Rng;
use tollgate_core::{Ask, Kind, Quota, Tick};

use crate::Outcome;
use crate::draw::{self, Caller};
use crate::oracle::{self, HORIZON_NS};
use crate::outcome::nanos;
use crate::subject::Subject;

/// Where a subject and the oracle part.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed that shows it again.
    pub seed: u64,
    /// The question, counted from zero.
    pub step: u32,
    kind: Kind,
    quota: Quota,
    now: Tick,
    ask: Ask,
    want: Outcome,
    got: Outcome,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, step, kind, quota, now, ask, want, got } = self;
        write!(
            f,
            "seed {seed}, step {step}: {kind} {quota}, {ask:?} at {now}: {got:?}, exactly it is {want:?}"
        )
    }
}

/// A sequence in which a subject and the oracle agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// How many questions were asked.
    pub questions: u32,
    /// How many answers, within what the algorithm may be off by, named a moment more than a nanosecond away from the oracle's, or
    /// admitted where it refuses, or the other way round. That ends the sequence.
    pub rounded: u32,
}

/// One random sequence of questions, with everything in it drawn from the seed.
///
/// # Errors
/// The first answer that is not the oracle's, to the nanosecond, or to what the algorithm may be off by (see
/// [`oracle::tolerance_ns`]).
///
/// # Examples
/// ```
/// use tollgate_core::{AnyAlgorithm, Kind};
/// use tollgate_sim::compare;
/// use tollgate_sim::subject::Held;
///
/// let make = |quota| Held::new(AnyAlgorithm::new(Kind::SubWindows, quota));
/// let agreement = compare::sequence(Kind::SubWindows, make, 42).unwrap();
/// assert!(agreement.questions > 0 && agreement.rounded == 0);
/// ```
pub fn sequence<S: Subject>(
    kind: Kind,
    make: impl FnOnce(Quota) -> S,
    seed: u64,
) -> Result<Agreement, Difference> {
    let mut rng = Rng::with_seed(seed);
    let quota = draw::quota(&mut rng);
    let calls = rng.u32(10..=40);
    let (mut exact, tolerance_ns) = (oracle::of(kind, quota), oracle::tolerance_ns(kind, quota));
    let mut subject = make(quota);
    let mut caller = Caller::new(rng, quota).of(&subject);
    let mut agreement = Agreement { questions: 0, rounded: 0 };
    for step in 0..calls {
        let (now, ask) = caller.ask();
        let patience_ns = nanos(ask.patience());
        let wait_ns = exact.wait_ns(now.as_nanos(), ask.cost());
        let want = Outcome::of(wait_ns, patience_ns);
        let peeked = (step % 8 == 0).then(|| subject.peek(now, ask));
        let got = subject.decide(now, ask);
        let agrees =
            accepts(tolerance_ns, [want, got], now, patience_ns) && peeked.is_none_or(|peeked| peeked == got);
        if !agrees {
            return Err(Difference { seed, step, kind, quota, now, ask, want, got });
        }
        agreement.questions += 1;
        let parts = want.is_admitted() != got.is_admitted();
        agreement.rounded += u32::from(parts || !accepts(1, [want, got], now, patience_ns));
        if parts {
            break; // right on the boundary of a rounded rate: from here on they differ
        }
        if want.is_admitted() {
            exact.take(now.as_nanos(), ask.cost());
        }
        caller.hear(got, ask);
    }
    Ok(agreement)
}

/// Whether two answers are the same, or both name nearly the same moment.
fn accepts(tolerance_ns: u64, [want, got]: [Outcome; 2], now: Tick, patience_ns: u64) -> bool {
    let moment = |outcome: Outcome| {
        outcome.wait_ns(patience_ns).map_or(HORIZON_NS, |wait_ns| now.as_nanos().saturating_add(wait_ns))
    };
    want == got || (tolerance_ns > 0 && moment(want).abs_diff(moment(got)) <= tolerance_ns)
}
