//! A store in Redis answers as one in process does: every number, for every algorithm, mode and number of hits. Times are
//! compared in microseconds, rounded up.

use std::time::Duration;

use crate::kit::{Both, in_ticks};
use fastrand::Rng;
use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Decision, Kind, Quota};
use tollgate_testkit::Redis;

const MODES: [Mode; 5] = [Mode::Take, Mode::Peek, Mode::Count, Mode::Charge, Mode::Refund];

/// Rates at which core does not round, and periods whose parts are whole microseconds.
fn draw_quota(rng: &mut Rng) -> Quota {
    let quota = match rng.u8(..6) {
        0 => Quota::per_minute(rng.u64(1..16)),
        1 => Quota::per_second([16, 25, 100, 1_250, 30_000_000][rng.usize(..5)]),
        2 => Quota::per(rng.u64(1..16), Duration::from_micros(40 * rng.u64(25..125_000))),
        3 => Quota::per_second(0),
        _ => Quota::per_second(rng.u64(1..16)),
    };
    if rng.bool() { quota.burst(rng.u64(..15)) } else { quota }
}

fn draw_rule(rng: &mut Rng, name: &str) -> Rule {
    let mut rule = Rule::new("d", name, draw_quota(rng));
    if rng.u8(..4) == 0 {
        rule = rule.with_quota(draw_quota(rng));
    }
    let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
    if kind == Kind::SubWindows && rng.bool() {
        rule.with_sub_windows([1, 2, 4, 5, 8, 20, 40][rng.usize(..7)])
    } else {
        rule.with_kind(kind)
    }
}

/// Forward, by nothing, a little or a lot. (Back is for the conformance suite: a store in process forgets idle keys early, and
/// then takes them to stand where they were forgotten.)
fn draw_step(rng: &mut Rng, both: &Both) {
    let bits = rng.u32(..24);
    let micros = rng.u64(..1 << bits);
    if rng.u8(..4) > 0 {
        both.clock.advance(Duration::from_micros(micros));
    }
}

async fn compare(redis: &Redis, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let both = Both::new(redis, seed);
    let rules: Vec<Rule> = (0..3).map(|number| draw_rule(&mut rng, &format!("{seed} {number}"))).collect();
    let here: Vec<_> = rules.iter().map(|rule| both.redis.open(rule)).collect();
    let there: Vec<_> = rules.iter().map(|rule| both.memory.open(rule)).collect();
    for step in 0..60 {
        draw_step(&mut rng, &both);
        let most = 1 << rng.u32(1..5);
        let asked: Vec<(usize, [u8; 1], u64)> = (0..rng.usize(1..4))
            .map(|_| (rng.usize(..rules.len()), [rng.u8(..2)], rng.u64(..most)))
            .collect();
        let mode = if rng.bool() { Mode::Take } else { MODES[rng.usize(..MODES.len())] };
        let hits: Vec<_> =
            asked.iter().map(|(rule, key, cost)| Hit::new(&here[*rule], key).costing(*cost)).collect();
        let got = both.redis.decide(mode, &hits).await.expect("redis is there");
        let hits: Vec<_> =
            asked.iter().map(|(rule, key, cost)| Hit::new(&there[*rule], key).costing(*cost)).collect();
        let want = both.memory.decide(mode, &hits).into_inner().expect("memory is there");
        let each = |answer: &tollgate::store::Answer| -> Vec<_> {
            answer
                .each()
                .iter()
                .map(|said| (said.hit, said.quota, said.cost, in_ticks(said.decision)))
                .collect()
        };
        let context = format!("seed {seed}, step {step} at {}: {mode:?} {asked:?} of {rules:?}", both.now());
        assert_eq!(each(&got), each(&want), "{context}");
        assert_eq!(got.is_admitted(), want.is_admitted(), "{context}");
    }
}

#[tokio::test]
async fn every_answer_is_that_of_a_store_in_process() {
    let redis = Redis::start();
    for seed in crate::kit::seeds(0..400) {
        compare(&redis, seed).await;
    }
}

/// One key, so that a store in process keeps receipts as exactly as core does.
async fn compare_receipts(redis: &Redis, kind: Kind, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let both = Both::new(redis, seed);
    let rule = Rule::new("receipts", format!("{seed}"), draw_quota(&mut rng)).with_kind(kind);
    let (here, there) = (both.redis.open(&rule), both.memory.open(&rule));
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for step in 0..80 {
        both.clock.advance(Duration::from_micros(rng.u64(..400_000) * u64::from(rng.bool())));
        let context = format!("{kind}, seed {seed}, step {step} at {}: {rule:?}", both.now());
        let cost = rng.u64(1..4);
        if rng.u8(..3) == 0 && !mine.is_empty() {
            let recent = mine.len() - 1 - rng.usize(..mine.len().min(4));
            let actual = if rng.bool() { 0 } else { rng.u64(..6) };
            both.redis.settle(&mut mine.remove(recent), &[actual]).await.expect("settled");
            both.memory.settle(&mut theirs.remove(recent), &[actual]).into_inner().expect("settled");
        } else if rng.u8(..8) == 0 {
            let mode = if rng.bool() { Mode::Charge } else { Mode::Refund };
            let _ = both.redis.decide(mode, &[Hit::new(&here, b"k").costing(cost)]).await.expect("decided");
            let _ = both.memory.decide(mode, &[Hit::new(&there, b"k").costing(cost)]).into_inner();
        } else {
            let (got, permit) =
                both.redis.acquire(&[Hit::new(&here, b"k").costing(cost)]).await.expect("decided");
            mine.extend(permit);
            let (want, permit) =
                both.memory.acquire(&[Hit::new(&there, b"k").costing(cost)]).into_inner().unwrap();
            theirs.extend(permit);
            assert_eq!(in_ticks(got.decision()), in_ticks(want.decision()), "{context}");
        }
        let got = both.redis.decide(Mode::Peek, &[Hit::new(&here, b"k").costing(0)]).await.expect("decided");
        let want = both.memory.decide(Mode::Peek, &[Hit::new(&there, b"k").costing(0)]).into_inner().unwrap();
        let left = |decision: Decision| (decision.remaining(), decision.reset_after().map(|_| ()));
        assert_eq!(left(got.decision()), left(want.decision()), "{context}");
    }
}

#[tokio::test]
async fn what_comes_back_is_what_comes_back_in_process() {
    let redis = Redis::start();
    for kind in Kind::ALL {
        for seed in crate::kit::seeds(0..60) {
            compare_receipts(&redis, kind, seed).await;
        }
    }
}

#[tokio::test]
async fn as_many_parts_and_entries_as_there_can_be() {
    let redis = Redis::start();
    let both = Both::new(&redis, 0);
    let quota = Quota::per_second(2_000);
    let rules = [
        Rule::new("d", "parts", quota).with_sub_windows(1_000),
        Rule::new("d", "log", quota).with_kind(Kind::SlidingLog),
    ];
    for rule in rules {
        let (here, there) = (both.redis.open(&rule), both.memory.open(&rule));
        for step in 0..2_500_u64 {
            let micros = if step == 2_300 { 999_000 } else { 450 };
            both.clock.advance(Duration::from_micros(micros));
            let cost = if step % 100 == 99 { 700 } else { 1 };
            let got = both.redis.decide(Mode::Take, &[Hit::new(&here, b"k").costing(cost)]).await.unwrap();
            let want =
                both.memory.decide(Mode::Take, &[Hit::new(&there, b"k").costing(cost)]).into_inner().unwrap();
            assert_eq!(in_ticks(got.decision()), in_ticks(want.decision()), "{rule}, step {step}");
        }
    }
}
