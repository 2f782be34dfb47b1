//! Whether a turn that lay unseen for long may still go to somebody else.
//!
//! Until the state has become fresh that is no question: what was taken is still there to be given back. Later, time has
//! restored it, and handing it on would in general admit too much. But while a line is long the state never gets near fresh:
//! as long as it stands at least a quarter of the limit above its floor whenever somebody takes from it, what is admitted
//! would also keep to a limit three quarters as large. The last quarter is spare, and late turns may use it up once.
//!
//! ```text
//! in any span that begins after `since`:  taken in time <= 3/4 limit + refill,  handed on late <= 1/4 limit
//! ```
//!
//! A span that begins before a turn was granted contains it anyway, so only turns granted after `since` are handed on. Once
//! a turn comes along that was granted after the last that was handed on late, no span can be short of both, and counting
//! begins anew.

use tollgate_core::{Claim, Tick};

use crate::cell::Standing;

/// How long the state has kept its distance from being fresh, and how much was handed on late since.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    /// `None` if it did not keep it at the last take.
    kept: Option<Kept>,
    /// The level when the last turn was handed on late.
    late_at: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    since: Tick,
    /// The level as it was left; if it is another now, somebody changed it who did not tell.
    level: u64,
    /// Handed on late since, in units of the level.
    late: u64,
    /// When the last of that was.
    last: Tick,
}

impl Spare {
    /// Before something is taken.
    pub(crate) fn watch(&mut self, standing: Option<Standing>) {
        let keeps = |kept: &Kept| standing.is_some_and(|now| now.keeps_distance() && now.level == kept.level);
        if !self.kept.as_ref().is_some_and(keeps) {
            self.kept = None;
        }
    }

    /// After something was taken. The clock is read anew if the distance is kept from here on: nobody has taken by a later reading.
    pub(crate) fn took(&mut self, claim: Claim, clock: impl FnOnce() -> Tick) {
        let kept = self.kept.get_or_insert_with(|| {
            let since = clock();
            Kept { since, level: 0, late: 0, last: since }
        });
        kept.level = claim.mark;
    }

    /// Something came back, or the limit changed.
    pub(crate) fn forget(&mut self) {
        self.kept = None;
    }

    /// Whether a turn may be handed on late; if so, it counts as handed on.
    pub(crate) fn use_for(&mut self, claim: Claim, standing: Option<Standing>, now: Tick) -> bool {
        self.watch(standing);
        let (Some(kept), Some(standing)) = (&mut self.kept, standing) else {
            return false;
        };
        if claim.act <= kept.since {
            return false;
        }
        if claim.act > kept.last {
            (kept.since, kept.late) = (kept.last, 0);
        }
        let late = standing.unit.saturating_mul(claim.cost).saturating_add(kept.late);
        if late > standing.quarter() {
            return false;
        }
        (kept.late, kept.last) = (late, kept.last.max(now));
        self.late_at = Some(standing.level);
        true
    }

    /// Whether something was handed on late since `claim` was made: together with that, it may come back only as far as the distance is kept.
    pub(crate) fn bars(&self, claim: Claim) -> bool {
        self.late_at.is_some_and(|level| claim.mark <= level)
    }

    /// The limit changed, and with it the level.
    pub(crate) fn retuned(&mut self, standing: Option<Standing>) {
        self.kept = None;
        self.late_at = self.late_at.and(standing.map(|standing| standing.level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit of eight, of which a quarter is spare, and nearly all of it taken.
    fn standing(level: u64) -> Standing {
        Standing { level, above: 7, unit: 1, limit: 8 }
    }

    fn claim(act: u64, mark: u64) -> Claim {
        Claim { act: Tick::from_nanos(act), mark, cost: 1 }
    }

    /// Watched since the moment 10, with the level at 100.
    fn watched() -> Spare {
        let mut spare = Spare::default();
        spare.took(claim(9, 100), || Tick::from_nanos(10));
        spare
    }

    fn late(spare: &mut Spare, granted: u64, now: u64) -> bool {
        spare.use_for(claim(granted, 100), Some(standing(100)), Tick::from_nanos(now))
    }

    #[test]
    fn what_was_granted_before_anybody_watched_is_not_handed_on() {
        assert!(!late(&mut watched(), 10, 50));
        assert!(late(&mut watched(), 11, 50));
    }

    #[test]
    fn a_quarter_at_a_time() {
        let mut spare = watched();
        assert_eq!([11, 12, 13].map(|granted| late(&mut spare, granted, 50)), [true, true, false]);
        assert!(!late(&mut spare, 50, 60), "it may share a span with those");
        assert!(late(&mut spare, 51, 60), "it cannot");
    }

    #[test]
    fn what_was_counted_and_forgotten_bars_those_that_were_granted_before() {
        let mut spare = watched();
        assert!(late(&mut spare, 11, 50));
        assert!(late(&mut spare, 51, 60), "counting begins anew");
        assert!(!late(&mut spare, 50, 61), "a span from 50 on would hold the first two and this one");
    }

    #[test]
    fn a_level_that_somebody_else_changed_is_not_trusted() {
        let mut spare = watched();
        spare.watch(Some(standing(101)));
        assert!(!late(&mut spare, 11, 50));
    }

    #[test]
    fn a_state_near_its_floor_has_nothing_to_spare() {
        let mut spare = watched();
        spare.watch(Some(Standing { above: 1, ..standing(100) }));
        assert!(!late(&mut spare, 11, 50));
        let mut spare = watched();
        spare.forget();
        assert!(!late(&mut spare, 11, 50));
    }
}
