//! What a shard holds, as it grows, is swept and shrinks.

use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;
use tollgate_core::TokenBucket;

use super::sweep::MOST_PER_SEGMENT;
use super::*;
use crate::keyed::segment::Slot;

fn common(by_key: bool) -> Common<TokenBucket> {
    Common {
        plans: Plans::new(Arc::new(TokenBucket::new), false),
        by_key,
        is_watched: false,
        room: Room::new(u64::MAX, u64::MAX),
        at_cap: AtCap::Evict,
    }
}

const QUOTA: Quota = Quota::per_second(1).burst(2);

fn take(shard: &mut Shard<TokenBucket>, common: &Common<TokenBucket>, print: u64, now: Tick) -> bool {
    let query = Query { print, plan: Some(0), now, ask: Ask::now(1), is_patient: false };
    matches!(shard.take(common, query), Answer::Decided(decision, _) if decision.is_allowed())
}

/// Every segment holds just the keys that belong there.
fn check(shard: &Shard<TokenBucket>, common: &Common<TokenBucket>) {
    for (number, segment) in shard.segments.iter().enumerate() {
        assert!(segment.iter().all(|(_, slot)| shard.segments.number_of(slot.print) == number));
    }
    let keys: usize = shard.segments.iter().map(Segment::len).sum();
    let bytes: usize = shard.segments.iter().map(|segment| segment.bytes() + size_of_val(segment)).sum();
    assert_eq!((keys, keys as u64), (shard.keys, common.room.keys()));
    let own = size_of_val(shard) + size_of_val(&*shard.aside);
    assert_eq!((bytes + own) as u64, common.room.bytes());
    assert!(size_of_val(shard) <= 256 - 8);
}

/// Sweeps until a round changes nothing.
fn sweep(shard: &mut Shard<TokenBucket>, common: &Common<TokenBucket>, now: Tick) {
    for _ in 0..50 {
        while !shard.sweep(common, now, 7).ends {}
    }
}

#[test]
fn segments_split_and_join_and_nothing_is_lost() {
    let (common, mut rng) = (common(false), Rng::with_seed(1));
    let mut shard = Shard::new(&common, QUOTA);
    let mut now = Tick::ZERO;
    for round in 0..12 {
        let prints: HashSet<u64> = (0..rng.usize(1..30_000)).map(|_| rng.u64(1..)).collect();
        for print in &prints {
            assert!(take(&mut shard, &common, *print, now) && take(&mut shard, &common, *print, now));
        }
        assert!(shard.segments.len() * MOST_PER_SEGMENT * 2 >= shard.keys, "round {round}");
        check(&shard, &common);
        now = now + Duration::from_secs(1);
        for print in prints.iter().filter(|print| *print % 8 == 0) {
            assert!(take(&mut shard, &common, *print, now), "one came back");
            assert!(!take(&mut shard, &common, *print, now), "and no more");
        }
        now = now + Duration::from_secs(1);
        sweep(&mut shard, &common, now);
        assert_eq!(shard.keys, prints.iter().filter(|print| *print % 8 == 0).count());
        check(&shard, &common);
        now = now + Duration::from_secs(1);
        sweep(&mut shard, &common, now);
        assert_eq!((shard.keys, shard.segments.len()), (0, 1), "round {round}");
        check(&shard, &common);
    }
}

/// Ten thousand keys take some four thousand lines; at 256 calls a line that would be a million calls.
#[test]
fn many_that_become_idle_together_are_soon_gone() {
    let (common, mut rng) = (common(false), Rng::with_seed(5));
    let mut shard = Shard::new(&common, QUOTA);
    for _ in 0..10_000 {
        assert!(take(&mut shard, &common, rng.u64(2..), Tick::ZERO));
    }
    let (later, mut calls) = (Tick::from_nanos(3_600_000_000_000), 0);
    while shard.keys > 1 {
        assert_eq!(take(&mut shard, &common, 1, later), calls < 2);
        calls += 1;
        assert!(calls < 500_000, "{} are left", shard.keys);
    }
    let Counts { calls: counted, denied, swept, .. } = shard.counts();
    assert_eq!((counted, denied, swept), (10_000 + calls, calls - 2, 10_000));
}

#[test]
fn a_shard_that_is_pinned_while_it_joins_segments_stays_as_it_is() {
    let (common, mut rng) = (common(false), Rng::with_seed(3));
    let mut shard = Shard::new(&common, QUOTA);
    for _ in 0..20_000 {
        assert!(take(&mut shard, &common, rng.u64(1..), Tick::ZERO));
    }
    let later = Tick::ZERO + Duration::from_secs(1);
    while shard.sweeping < shard.segments.len() {
        assert!(!shard.sweep(&common, later, 1_000).ends, "there is something to join");
    }
    shard.pin(true);
    let segments = shard.segments.len();
    for _ in 0..100 {
        drop(shard.sweep(&common, later, 1_000));
    }
    assert_eq!(shard.segments.len(), segments);
    shard.pin(false);
    sweep(&mut shard, &common, later);
    assert_eq!(shard.segments.len(), 1);
}

#[test]
fn a_change_of_quota_reaches_every_segment() {
    let (common, mut rng) = (common(true), Rng::with_seed(2));
    let mut shard = Shard::new(&common, QUOTA);
    let prints: Vec<u64> = (0..20_000).map(|_| rng.u64(1..)).collect();
    for print in &prints {
        assert!(take(&mut shard, &common, *print, Tick::ZERO));
    }
    shard.set_quota(&common, Quota::per_second(1).burst(9), Tick::ZERO);
    assert_eq!(shard.way, Way::Closed);
    shard.set_quota(&common, Quota::per_second(1).burst(5), Tick::ZERO);
    let calls = shard.segments.len();
    for print in &prints {
        assert!(take(&mut shard, &common, *print, Tick::ZERO), "one was left");
        assert!(!take(&mut shard, &common, *print, Tick::ZERO), "and no more");
    }
    assert!(prints.len() > calls && shard.aside.changes.is_empty());
    assert_eq!(shard.way, Way::ByPlan);
}

/// A segment knows before when nobody in it is idle; of two that are joined, the earlier moment counts.
#[test]
fn after_two_segments_were_joined_the_idle_still_go_before_those_who_count() {
    let mut common = common(false);
    common.room = Room::new(10_000, u64::MAX);
    let mut shard = Shard::new(&common, QUOTA);
    // Two segments: those with bit 32 and those without. Five of the former take one (idle after a second), all others two.
    let print = |number: u64, odd: bool| {
        number << 33 | u64::from(odd) << 32 | (number.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFF)
    };
    for number in 1..=400 {
        assert!(take(&mut shard, &common, print(number, false), Tick::ZERO));
        assert!(take(&mut shard, &common, print(number, false), Tick::ZERO));
        assert!(take(&mut shard, &common, print(number, true), Tick::ZERO));
        assert!(number % 80 == 7 || take(&mut shard, &common, print(number, true), Tick::ZERO));
    }
    assert_eq!(shard.segments.len(), 2, "as wanted");
    // Full: who comes to the first segment finds nobody idle there, and somebody is forgotten.
    common.room = Room::new(shard.keys as u64, u64::MAX);
    (0..shard.keys).for_each(|_| common.room.added());
    common.room.grown(1 << 20);
    assert!(take(&mut shard, &common, print(1_001, false), Tick::from_nanos(500_000_000)));
    assert_eq!(shard.counts.evicted, 1);
    // Most go, and the two segments are joined.
    for number in 1..=400 {
        if number % 8 < 3 {
            shard.remove(&common, print(number, false));
            shard.remove(&common, print(number, true));
        }
    }
    for _ in 0..50 {
        while !shard.sweep(&common, Tick::ZERO, 7).ends {}
    }
    assert_eq!(shard.segments.len(), 1);
    common.room = Room::new(shard.keys as u64, u64::MAX);
    (0..shard.keys).for_each(|_| common.room.added());
    common.room.grown(1 << 20);
    // A second later those five are idle.
    let now = Tick::from_nanos(1_000_000_000);
    let idle = (1..=400)
        .filter(|number| number % 80 == 7)
        .filter(|number| shard.segments[0].find(print(*number, true)).is_some())
        .count();
    assert_eq!(idle, 5);
    let before = shard.counts.evicted;
    for number in 0..idle as u64 {
        assert!(take(&mut shard, &common, print(2_000 + number, false), now));
    }
    assert_eq!(shard.counts.evicted - before, 0, "forgotten though {idle} were idle");
}

/// Does something to a key, which may be idle sooner or later for it.
fn stir(shard: &mut Shard<TokenBucket>, common: &Common<TokenBucket>, rng: &mut Rng, now: Tick) {
    let (print, cost) = (rng.u64(1..40) << 32 | 1, rng.u64(1..3));
    let query = Query { print, plan: Some(0), now, ask: Ask::now(cost), is_patient: false };
    match rng.u8(..7) {
        0 => _ = shard.charge(common, query),
        1 => _ = shard.refund(common, print, cost, now),
        2 => _ = shard.peek(common, Query { now: now + Duration::from_millis(rng.u64(..9_000)), ..query }),
        3 => shard.set_plan(common, print, common.plans.number(Quota::per_second(cost).burst(9)), now),
        4 => {
            let decide = |algorithm: &TokenBucket, state: &u64, now| algorithm.decide(state, now, query.ask);
            let (decision, drawn) = shard.draw(common, query, now, decide).unwrap();
            if decision.is_allowed() && shard.hold(print, &drawn) {
                shard.commit(common, print, drawn);
                shard.let_go(print);
            }
        }
        _ => {
            if let Answer::Decided(_, Some(receipt)) = shard.take(common, query)
                && rng.bool()
            {
                shard.give_back(common, print, receipt, 1, now);
            }
        }
    }
}

#[test]
fn nobody_is_idle_before_the_time_that_is_known() {
    let mut known = 0;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let at_cap = [AtCap::Refuse, AtCap::Share, AtCap::Evict][rng.usize(..3)];
        let common = Common { room: Room::new(8, u64::MAX), at_cap, ..common(true) };
        let mut shard = Shard::new(&common, QUOTA);
        let mut now = Tick::ZERO;
        for _ in 0..500 {
            now = now + Duration::from_millis(rng.u64(..200));
            stir(&mut shard, &common, &mut rng, now);
            let until = shard.segments[0].none_idle_before;
            if now < until {
                known += 1;
                let just_before = Tick::from_nanos(until.as_nanos() - 1);
                let segment = &shard.segments[0];
                let is_idle = |(place, slot): (usize, &Slot<u64>)| {
                    shard.algorithm(&common, segment.plan(place)).is_idle(&slot.state, just_before)
                };
                assert!(!segment.iter().any(is_idle), "seed {seed}: {at_cap:?}");
            }
        }
    }
    assert!(known > 10_000, "{known}");
}
