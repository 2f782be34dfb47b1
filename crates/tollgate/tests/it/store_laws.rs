//! The laws through a store: it decides as the limiters and gates beneath it do, one hit or several, alone or in a crowd.

use std::sync::Barrier;
use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Answer, Hit, MemoryLimit, MemoryPermit, MemoryStore, Mode, Rule, Store};
use tollgate::{AnyAlgorithm, Ask, Decision, KeyedLimiter, KeyedReservation, Kind, ManualClock, Quota, Tick};
use tollgate_sim::Outcome;
use tollgate_sim::conformance::{self, Held, Subject, small_quota};

type Memory = MemoryStore<ManualClock>;
type Limit = MemoryLimit<ManualClock>;
type Keyed = KeyedLimiter<[u8], AnyAlgorithm, ManualClock>;

fn memory() -> (Memory, ManualClock) {
    let clock = ManualClock::new();
    (MemoryStore::builder().clock(clock.clone()).build(), clock)
}

fn decide(store: &Memory, mode: Mode, hits: &[Hit<'_, Limit>]) -> Answer {
    store.decide(mode, hits).into_inner().expect("a store in process decides")
}

fn rule(name: &str, kind: Kind, quota: Quota) -> Rule {
    Rule::new("laws", name, quota).with_kind(kind)
}

/// The conformance suite's view of a store; the first limit is the one that is compared.
struct Through {
    store: Memory,
    clock: ManualClock,
    limits: Vec<Limit>,
    admitted: Vec<Option<(MemoryPermit<ManualClock>, u64)>>,
}

const KEY: &[u8] = b"somebody";

impl Through {
    fn new(kind: Kind, quota: Quota, others: usize) -> Self {
        let (store, clock) = memory();
        let mut limits = vec![store.open(&rule("first", kind, quota))];
        let unlimited = |kind: &Kind| store.open(&rule("other", *kind, Quota::UNLIMITED));
        limits.extend(Kind::ALL.iter().rev().take(others).map(unlimited));
        Self { store, clock, limits, admitted: Vec::new() }
    }

    fn hits(&self, cost: u64) -> Vec<Hit<'_, Limit>> {
        self.limits.iter().map(|limit| Hit::new(limit, KEY).costing(cost)).collect()
    }

    fn of_first(answer: &Answer) -> Outcome {
        answer.of_hit(0)[0].decision.into()
    }
}

impl Subject for Through {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.clock.set(now);
        let (answer, permit) = self.store.acquire(&self.hits(ask.cost())).into_inner().expect("decided");
        assert_eq!(answer.is_admitted(), permit.is_some());
        self.admitted.extend(permit.map(|permit| Some((permit, ask.cost()))));
        Self::of_first(&answer)
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.clock.set(now);
        Self::of_first(&decide(&self.store, Mode::Peek, &self.hits(ask.cost())))
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        self.clock.set(now);
        if let Some((mut permit, cost)) = self.admitted.get_mut(admission).and_then(Option::take) {
            let settled = self.store.settle(&mut permit, &vec![cost - amount; self.limits.len()]);
            settled.into_inner().expect("settled");
        }
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.clock.set(now);
        let _ = decide(&self.store, Mode::Charge, &self.hits(extra));
    }

    fn set_quota(&mut self, _: Tick, _: Quota) {
        unreachable!("another quota is another rule");
    }

    fn reset(&mut self) {
        self.store.reset(&self.limits[0], KEY).into_inner().expect("reset");
        self.admitted.clear();
    }
}

/// A store, or core itself where a store counts windows in whole microseconds, or keeps no log that is so deep.
struct Either(Box<dyn Subject>);

impl Either {
    fn new(kind: Kind, quota: Quota, others: usize) -> Self {
        let algorithm = AnyAlgorithm::new(kind, quota);
        let is_bucket = matches!(kind, Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue);
        let parts = u128::from(algorithm.parts().max(1));
        let is_whole = is_bucket || quota.period().as_nanos().is_multiple_of(1_000 * parts);
        if is_whole && rule("first", kind, quota).check().is_ok() {
            Self(Box::new(Through::new(kind, quota, others)))
        } else {
            Self(Box::new(Held::new(algorithm)))
        }
    }
}

impl Subject for Either {
    fn decide(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.0.decide(now, ask)
    }

    fn peek(&mut self, now: Tick, ask: Ask) -> Outcome {
        self.0.peek(now, ask)
    }

    fn give_back(&mut self, now: Tick, admission: usize, amount: u64) {
        self.0.give_back(now, admission, amount);
    }

    fn charge(&mut self, now: Tick, extra: u64) {
        self.0.charge(now, extra);
    }

    fn set_quota(&mut self, _: Tick, _: Quota) {
        unreachable!("another quota is another rule");
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn can_promise(&self) -> bool {
        false
    }

    fn can_change(&self) -> bool {
        false
    }
}

#[test]
fn one_hit_is_decided_as_its_algorithm_does() {
    // A queue delays who comes alone; see below.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue) {
        conformance::run(kind, |quota| Either::new(kind, quota, 0), 0..1_000);
    }
}

#[test]
fn a_hit_is_decided_the_same_beside_others_on_unlimited_ones() {
    for kind in Kind::ALL {
        conformance::run(kind, |quota| Either::new(kind, quota, 1), 0..300);
        conformance::run(kind, |quota| Either::new(kind, quota, 3), 0..300);
    }
}

/// A comparison, which is told by what to name its keys, and says where there is a difference.
///
/// Keys share the notes by which it is known what a permit is still worth. Which ones do is up to their fingerprints, and these differ
/// from process to process and from store to store: about once in thirty thousand comparisons two that matter meet, and one of
/// the sides gives back less than it could. So a difference counts if other names do not make it go away.
#[track_caller]
fn agree(compare: impl Fn(u8) -> Result<(), String>) {
    let differences: Vec<String> = (0..3).map_while(|name| compare(name).err()).collect();
    assert!(differences.len() < 3, "{}", differences.join("\n"));
}

/// Random calls about a few keys of one quota, compared with a bare keyed limiter: every number of every answer.
fn compare_with_keyed(kind: Kind, seed: u64, name: u8) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let quota = small_quota(&mut rng);
    let (store, clock) = memory();
    let limit = store.open(&rule("one", kind, quota));
    let keyed: Keyed = KeyedLimiter::builder(quota).kind(kind).clock(clock.clone()).build();
    let patience = if kind == Kind::LeakyQueue {
        tollgate::Algorithm::patience(&AnyAlgorithm::new(kind, quota))
    } else {
        Duration::ZERO
    };
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for step in 0..200 {
        clock.advance(Duration::from_millis(rng.u64(..20) * rng.u64(..20)));
        let key = [name, rng.u8(..3)];
        let key: &[u8] = &key;
        let hit = Hit::new(&limit, key).costing(rng.u64(..4));
        let (got, want): (Decision, Decision) = match rng.u8(..10) {
            0 => (decide(&store, Mode::Peek, &[hit]).decision(), {
                use tollgate::Clock;
                keyed.peek_within_at(key, hit.cost, patience, clock.now())
            }),
            1 => {
                keyed.charge(key, hit.cost);
                (decide(&store, Mode::Charge, &[hit]).decision(), keyed.peek_n(key, 0))
            }
            2 => {
                let was_known = store.reset(&limit, key).into_inner().unwrap();
                assert_eq!(was_known, keyed.reset(key), "{kind} {quota}, seed {seed}, step {step}");
                continue;
            }
            3 | 4 if hit.cost > 0 => {
                let (answer, permit) = store.acquire(&[hit]).into_inner().unwrap();
                let taken = keyed.reserve_within(key, hit.cost, patience);
                let want = taken.as_ref().map_or_else(|refused| refused.0, KeyedReservation::decision);
                here.extend(permit);
                there.extend(taken.ok());
                (answer.decision(), want)
            }
            5 if !here.is_empty() => {
                let (index, actual) = (rng.usize(..here.len()), rng.u64(..6));
                store.settle(&mut here.swap_remove(index), &[actual]).into_inner().unwrap();
                there.swap_remove(index).settle(actual);
                continue;
            }
            _ => (decide(&store, Mode::Take, &[hit]).decision(), keyed.check_n(key, hit.cost)),
        };
        if got != want {
            return Err(format!("{kind} {quota}, seed {seed}, step {step}: {got:?} instead of {want:?}"));
        }
    }
    Ok(())
}

#[test]
fn one_hit_is_decided_as_by_a_keyed_limiter() {
    for kind in Kind::ALL {
        for seed in 0..150 {
            agree(|name| compare_with_keyed(kind, seed, name));
        }
    }
}

/// Random calls about two limits, one with two quotas, compared with a gate of three keyed limiters.
fn compare_with_gate(kinds: [Kind; 2], seed: u64, name: u8) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let quotas: [Quota; 3] = std::array::from_fn(|_| small_quota(&mut rng));
    let (store, clock) = memory();
    let two = store.open(&rule("two", kinds[0], quotas[0]).with_quota(quotas[1]));
    let one = store.open(&rule("one", kinds[1], quotas[2]));
    let keyed: [Keyed; 3] = [(kinds[0], quotas[0]), (kinds[0], quotas[1]), (kinds[1], quotas[2])]
        .map(|(kind, quota)| KeyedLimiter::builder(quota).kind(kind).clock(clock.clone()).build());
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for step in 0..200 {
        clock.advance(Duration::from_millis(rng.u64(..300)));
        let (user, place) = ([name, rng.u8(..3)], [name, rng.u8(..2)]);
        let (user, place): (&[u8], &[u8]) = (&user, &place);
        let costs = [rng.u64(..3), rng.u64(..3)];
        let hits = [Hit::new(&two, user).costing(costs[0]), Hit::new(&one, place).costing(costs[1])];
        let gate = keyed[0]
            .owned_key(user.to_vec())
            .costing(costs[0])
            .and(keyed[1].owned_key(user.to_vec()).costing(costs[0]))
            .and(keyed[2].owned_key(place.to_vec()).costing(costs[1]));
        let mut want = Vec::new();
        let got = match rng.u8(..6) {
            0 if !here.is_empty() => {
                let (index, actual) = (rng.usize(..here.len()), [rng.u64(..4), rng.u64(..4)]);
                store.settle(&mut here.swap_remove(index), &actual).into_inner().unwrap();
                let permit: tollgate::Permit<_> = there.swap_remove(index);
                permit.settle_each(|limit, _| actual[limit.position() / 2]);
                continue;
            }
            1 | 2 => {
                let (answer, permit) = store.acquire(&hits).into_inner().unwrap();
                here.extend(permit);
                there.extend(gate.acquire_noting(1, &mut want).ok());
                answer
            }
            _ => {
                let _ = gate.acquire_noting(1, &mut want).map(tollgate::Permit::release);
                decide(&store, Mode::Take, &hits)
            }
        };
        let got_each: Vec<Decision> = got.each().iter().map(|said| said.decision).collect();
        let want_each: Vec<Decision> = want.iter().map(|(_, decision)| *decision).collect();
        if got_each != want_each {
            return Err(format!(
                "{kinds:?} {quotas:?}, seed {seed}, step {step}: {got_each:?} instead of {want_each:?}"
            ));
        }
        assert_eq!(got.is_admitted(), want_each.iter().all(Decision::is_admitted));
        let places: Vec<(u32, u32)> = got.each().iter().map(|said| (said.hit, said.quota)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (1, 0)]);
    }
    Ok(())
}

#[test]
fn several_hits_are_decided_as_by_a_gate() {
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        for seed in 0..60 {
            let kinds = [kind, Kind::ALL[(number + seed as usize) % Kind::ALL.len()]];
            agree(|name| compare_with_gate(kinds, seed, name));
        }
    }
}

#[test]
fn threads_in_each_others_way_take_all_or_nothing() {
    let (store, _) = memory();
    let user = store.open(&rule("user", Kind::TokenBucket, Quota::per_second(0).burst(500)));
    let place = store.open(&rule("place", Kind::SlidingLog, Quota::per_hour(700)));
    let all =
        store.open(&rule("all", Kind::FixedWindow, Quota::per_hour(900)).with_quota(Quota::per_day(850)));
    let barrier = Barrier::new(8);
    let taken: Vec<[u64; 5]> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..8_u64)
            .map(|thread| {
                let (store, user, place, all, barrier) = (store.clone(), &user, &place, &all, &barrier);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(thread);
                    let mut taken = [0; 5]; // of users 0 and 1, of places 0 and 1, of all
                    barrier.wait();
                    for _ in 0..400 {
                        let (one, two, cost) = (rng.u8(..2), rng.u8(..2), rng.u64(1..3));
                        let (whose, where_) = ([one], [two]);
                        let mut hits = vec![
                            Hit::new(user, &whose).costing(cost),
                            Hit::new(place, &where_).costing(cost),
                            Hit::new(all, b"").costing(cost),
                        ];
                        rng.shuffle(&mut hits);
                        match rng.u8(..4) {
                            0 => {
                                let alone = decide(&store, Mode::Take, &[Hit::new(user, &whose)]);
                                taken[usize::from(one)] += u64::from(alone.is_admitted());
                                continue;
                            }
                            // Dropping the permit keeps what was taken.
                            1 if store.acquire(&hits).into_inner().unwrap().1.is_some() => {}
                            1 => continue,
                            _ if decide(&store, Mode::Take, &hits).is_admitted() => {}
                            _ => continue,
                        }
                        taken[usize::from(one)] += cost;
                        taken[2 + usize::from(two)] += cost;
                        taken[4] += cost;
                    }
                    taken
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).collect()
    });
    let sum = |index: usize| taken.iter().map(|taken| taken[index]).sum::<u64>();
    let left = |limit: &Limit, key: &[u8]| -> Vec<u64> {
        let answer = decide(&store, Mode::Peek, &[Hit::new(limit, key).costing(0)]);
        answer.each().iter().map(|said| said.decision.remaining()).collect()
    };
    for key in 0..2_u8 {
        assert_eq!(left(&user, &[key]), [500 - sum(key.into())]);
        assert_eq!(left(&place, &[key]), [700 - sum(2 + usize::from(key))]);
    }
    assert_eq!(left(&all, b""), [900 - sum(4), 850 - sum(4)]);
    assert!(sum(4) > 300, "they did take something: {}", sum(4));
}

#[test]
fn the_last_one_goes_to_one_of_many_threads() {
    for round in 0..50 {
        let (store, _) = memory();
        let one = store.open(&rule("one", Kind::TokenBucket, Quota::per_second(0).burst(1)));
        let two = store.open(&rule("two", Kind::SubWindows, Quota::per_hour(1)));
        let barrier = Barrier::new(4);
        let admitted: usize = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..4)
                .map(|thread| {
                    let (store, one, two, barrier) = (&store, &one, &two, &barrier);
                    scope.spawn(move || {
                        let mut hits = [Hit::new(one, b"k"), Hit::new(two, b"k")];
                        if thread % 2 == 0 {
                            hits.reverse();
                        }
                        barrier.wait();
                        usize::from(decide(store, Mode::Take, &hits).is_admitted())
                    })
                })
                .collect();
            handles.into_iter().map(|handle| handle.join().expect("no panic")).sum()
        });
        assert_eq!(admitted, 1, "round {round}");
    }
}

/// Whatever was asked before: what a limit says of itself when others refused is what it says when it is only looked at.
#[test]
fn a_limit_that_others_refused_for_stands_as_if_nobody_had_asked() {
    let mut random = Rng::with_seed(5);
    for kind in Kind::ALL {
        let is_exact =
            matches!(kind, Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue | Kind::FixedWindow);
        let mut refused_after_use = 0;
        for _ in 0..500 {
            let (store, clock) = memory();
            let admits = rule("admits", kind, small_quota(&mut random));
            let (opened, refuses) =
                (store.open(&admits), store.open(&Rule::new("d", "refuses", Quota::per_second(0))));
            for _ in 0..8 {
                clock.advance(Duration::from_nanos(random.u64(0..3_000_000_000)));
                let cost = random.u64(1..3);
                let both = [Hit::new(&opened, b"a").costing(cost), Hit::new(&refuses, b"")];
                let answer = decide(&store, Mode::Take, &both);
                assert!(!answer.is_admitted());
                let said = answer.each()[0];
                let (told, stands) =
                    (said.untaken(&admits), decide(&store, Mode::Peek, &[both[0].costing(0)]).decision());
                if said.decision.is_admitted() {
                    assert_eq!(told.remaining(), stands.remaining(), "{admits:?}, {said:?}");
                    assert_eq!(told.limit(), stands.limit());
                    let reset = |decision: Decision| decision.reset_after().map(|span| span.as_nanos());
                    match (reset(told), reset(stands)) {
                        (Some(told), Some(stands)) => assert!(
                            told.abs_diff(stands) <= 1 && told >= stands,
                            "{admits:?}, {said:?}: {told} {stands}"
                        ),
                        (told, _) => assert!(told.is_none() && !is_exact, "{admits:?}, {said:?}"),
                    }
                    refused_after_use += u32::from(stands.remaining() < stands.limit());
                } else {
                    assert_eq!(told, said.decision);
                }
                _ = decide(&store, Mode::Take, &[Hit::new(&opened, b"a")]);
            }
        }
        let can_be_used_and_admit = !matches!(kind, Kind::LeakyBucket | Kind::LeakyQueue);
        assert_eq!(refused_after_use > 50, can_be_used_and_admit, "{kind}: {refused_after_use}");
    }
}
