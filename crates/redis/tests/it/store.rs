//! A store in Redis answers as one in process does: every number, for every algorithm, mode and number of hits. Times are
//! compared in microseconds, rounded up.

use std::time::Duration;

use crate::kit::{Both, histories, in_ticks};
use fastrand::Rng;
use tollgate::store::{Answer, Hit, MemoryPermit, MemoryStore, Mode, Rule, Store};
use tollgate::{Clock, Kind, ManualClock, Quota, SlidingLog, Tick};
use tollgate_redis::{RedisPermit, RedisStore};
use tollgate_testkit::Redis;

const MODES: [Mode; 5] = [Mode::Take, Mode::Peek, Mode::Count, Mode::Charge, Mode::Refund];
/// How far a clock may be behind its latest reading, in nanoseconds: a state that lies further ahead is taken for one that another
/// clock wrote.
const LEAP_NS: u64 = 60_000_000_000;

/// Rates at which core does not round.
fn draw_quota(rng: &mut Rng) -> Quota {
    let quota = match rng.u8(..8) {
        0 => Quota::per_minute(rng.u64(1..16)),
        1 => Quota::per_second([16, 25, 100, 1_250, 30_000_000][rng.usize(..5)]),
        2 => Quota::per(rng.u64(1..16), Duration::from_micros(rng.u64(1_000..5_000_000))),
        3 => Quota::per(rng.u64(1..16), Duration::from_nanos(rng.u64(1_000_000..5_000_000_000))),
        4 => Quota::per_hour(rng.u64(1..16)),
        5 => Quota::per_second(0),
        _ => Quota::per_second(rng.u64(1..16)),
    };
    if rng.bool() { quota.burst(rng.u64(..15)) } else { quota }
}

/// Whether both stores can keep it and give the same answers in the ticks of Redis, which are microseconds. Of a paced window with more
/// than one call a tick the last calls fall due between two of them. A bucket whose period is not a whole number of ticks is refilled
/// between them, so that one wait in some 100 000 histories is a tick longer in Redis.
fn is_comparable(rule: &Rule) -> bool {
    let is_told_apart = |quota: &Quota| u128::from(quota.count()) <= quota.period().as_micros();
    let is_whole = |quota: &Quota| quota.period().subsec_nanos().is_multiple_of(1_000);
    let mut quotas = rule.quotas().iter();
    rule.check().is_ok()
        && match rule.kind() {
            Kind::PacedWindow => quotas.all(is_told_apart),
            Kind::TokenBucket | Kind::LeakyBucket | Kind::LeakyQueue => quotas.all(is_whole),
            _ => true,
        }
}

fn draw_rule(rng: &mut Rng, name: &str, kind: Kind) -> Rule {
    loop {
        let rule = Rule::new("d", name, draw_quota(rng)).with_kind(kind);
        if kind == Kind::SubWindows && rng.bool() {
            return rule.with_sub_windows([1, 2, 3, 7, 20, 60][rng.usize(..6)]);
        } else if is_comparable(&rule) {
            return rule;
        }
    }
}

/// Something asked: the number of a rule, a key and a cost.
type Asked = (usize, [u8; 1], u64);

/// Hits on limits of whichever store.
fn hits<'a, L>(limits: &'a [L], asked: &'a [Asked]) -> Vec<Hit<'a, L>> {
    asked.iter().map(|(rule, key, cost)| Hit::new(&limits[*rule], key).costing(*cost)).collect()
}

/// All that an answer says, hit by hit and quota by quota.
fn all_of(answer: &Answer) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    answer.each().iter().map(|said| (said.hit, said.quota, said.cost, in_ticks(said.decision))).collect()
}

/// The same calls of two stores, by one clock that goes forward and back.
struct History<'a> {
    redis: RedisStore,
    memory: MemoryStore<ManualClock>,
    /// That of the scripts, which began in 1970.
    clock: &'a ManualClock,
    rng: Rng,
    rules: Vec<Rule>,
    keys: u8,
    /// The latest moment so far, in nanoseconds since 1970.
    latest: u64,
    /// The last wait that was named.
    wait: u64,
    /// What happened so far.
    story: Vec<String>,
    permits: Vec<(RedisPermit, MemoryPermit<ManualClock>)>,
}

impl<'a> History<'a> {
    /// One that begins anywhere in the windows of its limits. `kind` is that of the first.
    fn new(redis: &RedisStore, clock: &'a ManualClock, seed: u64, kind: Kind) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut rules = vec![draw_rule(&mut rng, &format!("{seed} first"), kind)];
        // With one state receipts are worth the same, as a store in process need not share its memory of them between keys.
        let is_alone = rng.bool();
        if !is_alone && rng.u8(..4) == 0 {
            let more = rules[0].clone().with_quota(draw_quota(&mut rng));
            rules[0] = if is_comparable(&more) { more } else { rules[0].clone() };
        }
        for number in 0..if is_alone { 0 } else { rng.u8(..3) } {
            let kind = Kind::ALL[rng.usize(..Kind::ALL.len())];
            rules.push(draw_rule(&mut rng, &format!("{seed} {number}"), kind));
        }
        let keys = if is_alone { 1 } else { rng.u8(1..3) };
        let begin = Duration::from_micros(rng.u64(1 << 50..1 << 51));
        let memory = MemoryStore::builder().clock(ManualClock::starting_at(begin)).build();
        let latest = u64::try_from(begin.as_nanos()).expect("not so late");
        let mut history = Self {
            redis: redis.clone(),
            memory,
            clock,
            rng,
            rules,
            keys,
            latest,
            wait: 0,
            story: Vec::new(),
            permits: Vec::new(),
        };
        history.set(latest + LEAP_NS); // so that it can be put back
        history
    }

    /// The time of both stores, in nanoseconds since 1970.
    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn set(&mut self, moment: u64) {
        self.clock.set(Tick::from_nanos(moment));
        let clock = self.memory.clock();
        let begin = clock.unix().saturating_sub(clock.now().since(Tick::ZERO));
        clock.set(Tick::ZERO + Duration::from_nanos(moment).saturating_sub(begin));
        self.latest = self.latest.max(moment);
    }

    /// Moves the clock: by nothing, a little or a lot, to where a window begins, to the end of a wait, or back.
    fn step(&mut self) {
        const MICROSECOND: u64 = 1_000;
        let (now, rng) = (self.now(), &mut self.rng);
        let period = self.rules[rng.usize(..self.rules.len())].quotas()[0].period();
        let period = u64::try_from(period.as_nanos()).expect("not so long").next_multiple_of(MICROSECOND);
        let bits = rng.u32(..34);
        let moment = match rng.u8(..16) {
            0..4 => now,
            4 => now.next_multiple_of(period) + rng.u64(..3) * MICROSECOND - MICROSECOND,
            5 => now + self.wait,
            6 => now + self.wait.saturating_sub(MICROSECOND),
            7 => now.saturating_sub(rng.u64(..=period)),
            8 => now - rng.u64(..4) * MICROSECOND,
            _ => now + rng.u64(..1 << bits),
        };
        self.set(moment.max(self.latest - LEAP_NS).next_multiple_of(MICROSECOND));
    }

    fn ask(&mut self) -> Vec<Asked> {
        let most = 1 << self.rng.u32(1..5);
        let number = if self.has_receipts() { 1 } else { self.rng.usize(1..4) };
        let rng = &mut self.rng;
        (0..number).map(|_| (rng.usize(..self.rules.len()), [rng.u8(..self.keys)], rng.u64(..most))).collect()
    }

    fn has_receipts(&self) -> bool {
        self.keys == 1 && self.rules.len() == 1 && self.rules[0].quotas().len() == 1
    }

    async fn run(mut self, seed: u64, steps: u32) {
        let here: Vec<_> = self.rules.iter().map(|rule| self.redis.open(rule)).collect();
        let there: Vec<_> = self.rules.iter().map(|rule| self.memory.open(rule)).collect();
        for _ in 0..steps {
            self.step();
            if !self.permits.is_empty() && self.rng.u8(..4) == 0 {
                self.settle().await;
            }
            let asked = self.ask();
            let mode = if self.rng.bool() { Mode::Take } else { MODES[self.rng.usize(..MODES.len())] };
            self.story.push(format!("at {}: {mode:?} {asked:?}", self.now()));
            let (mine, theirs) = (hits(&here, &asked), hits(&there, &asked));
            let (got, want) = if mode == Mode::Take && self.has_receipts() {
                let (got, mine) = self.redis.acquire(&mine).await.expect("redis is there");
                let (want, theirs) = self.memory.acquire(&theirs).into_inner().expect("there is room");
                self.permits.extend(mine.zip(theirs));
                (got, want)
            } else {
                let got = self.redis.decide(mode, &mine).await.expect("redis is there");
                (got, self.memory.decide(mode, &theirs).into_inner().expect("there is room"))
            };
            let wait = want.retry_after().map_or(0, |wait| wait.as_nanos());
            self.wait = u64::try_from(wait).expect("not so long");
            let context = || format!("seed {seed}: {:?}\n{}", self.rules, self.story.join("\n"));
            assert_eq!(all_of(&got), all_of(&want), "{}", context());
            assert_eq!(got.is_admitted(), want.is_admitted(), "{}", context());
        }
    }

    /// Says of one of the last admissions what it really cost.
    async fn settle(&mut self) {
        let recent = self.permits.len() - 1 - self.rng.usize(..self.permits.len().min(4));
        let actual = if self.rng.bool() { 0 } else { self.rng.u64(..8) };
        self.story.push(format!("at {}: settles {:?} with {actual}", self.now(), self.permits[recent].1));
        let (mut mine, mut theirs) = self.permits.remove(recent);
        self.redis.settle(&mut mine, &[actual]).await.expect("redis is there");
        self.memory.settle(&mut theirs, &[actual]).into_inner().expect("it is settled");
    }
}

/// Answers, item 17: both stores give the same answers to any history, whatever the algorithm, wherever in its window it begins, and
/// however the clock steps.
///
/// `TOLLGATE_HISTORIES=100000` runs so many histories, and `TOLLGATE_SEED` the one with this seed.
#[tokio::test]
async fn every_answer_is_that_of_a_store_in_process() {
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let store = crate::kit::plain(&redis, &clock);
    for seed in histories(0..1_000) {
        if seed % 1_000 == 999 {
            redis.ask(&["FLUSHALL"]);
        }
        let kind = Kind::ALL[usize::try_from(seed).expect("a small number") % Kind::ALL.len()];
        let history = History::new(&store, &clock, seed, kind);
        history.run(seed, 40).await;
    }
}

/// Answers, item 19: logs of hundreds of entries give the same answers while entries in the middle of them are settled and refunded.
#[tokio::test]
async fn a_deep_log_answers_like_that_of_a_store_in_process() {
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let store = crate::kit::plain(&redis, &clock);
    for seed in histories(0..8) {
        let mut history = History::new(&store, &clock, seed, Kind::SlidingLog);
        let quota = Quota::per(400, Duration::from_secs(1 << (8 + seed % 8)));
        history.rules = vec![Rule::new("d", format!("{seed} deep"), quota).with_kind(Kind::SlidingLog)];
        history.keys = 1;
        history.run(seed, 600).await;
    }
}

/// Answers, item 17: windows of every kind begin when those of the wall clock do, in every store.
#[tokio::test]
async fn windows_begin_by_the_wall_clock_in_every_store() {
    let (redis, clock) = (Redis::start(), ManualClock::starting_at(Duration::from_millis(1_794_767_961_500)));
    let both = Both::by(crate::kit::plain(&redis, &clock), clock.clone());
    // From 1.5 s into a window of 2 s on, twenty tries every quarter of a second.
    for kind in [Kind::FixedWindow, Kind::PacedWindow, Kind::SlidingCounter, Kind::SubWindows] {
        let rule = Rule::new("d", kind.name(), Quota::per(20, Duration::from_secs(2))).with_kind(kind);
        let (here, there) = (both.redis.open(&rule), both.memory.open(&rule));
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        clock.set(Tick::ZERO);
        for _ in 0..30 {
            let (mut of_redis, mut of_memory) = (0, 0);
            for _ in 0..20 {
                let got =
                    both.redis.decide(Mode::Take, &[Hit::new(&here, b"k")]).await.expect("redis is there");
                let want =
                    both.memory.decide(Mode::Take, &[Hit::new(&there, b"k")]).into_inner().expect("decided");
                of_redis += u32::from(got.is_admitted());
                of_memory += u32::from(want.is_admitted());
            }
            mine.push(of_redis);
            theirs.push(of_memory);
            clock.advance(Duration::from_millis(250));
        }
        assert_eq!(mine, theirs, "{kind}");
        if kind == Kind::SlidingCounter {
            // Half a second after the first, a window begins: what was admitted before weighs less and less.
            assert_eq!(mine[..5], [20, 0, 0, 2, 3]);
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

/// Answers, item 18: a clock that steps back over the beginning of a window gives nothing that was used already, as long as it does
/// not step back further than by what the scripts take for another clock.
#[tokio::test]
async fn a_step_back_over_the_beginning_of_a_window_admits_no_more() {
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let both = Both::by(crate::kit::plain(&redis, &clock), clock.clone());
    let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::LeakyQueue); // which delays them
    for kind in kinds {
        let rule = Rule::new("d", kind.name(), Quota::per_hour(10)).with_kind(kind);
        let (here, there) = (both.redis.open(&rule), both.memory.open(&rule));
        let hour = Tick::ZERO + Duration::from_secs(3_600);
        for (moment, mode, cost) in [
            (hour.as_nanos() - 30_000_000_000, Mode::Charge, 10),
            (hour.as_nanos() + 1_000_000_000, Mode::Charge, 3),
            (hour.as_nanos() - 1_000_000_000, Mode::Take, 1),
            (hour.as_nanos() - 59_000_000_000, Mode::Take, 1),
        ] {
            clock.set(Tick::from_nanos(moment));
            let got = both.redis.decide(mode, &[Hit::new(&here, b"k").costing(cost)]).await.expect("decided");
            let want = both.memory.decide(mode, &[Hit::new(&there, b"k").costing(cost)]).into_inner();
            assert_eq!(all_of(&got), all_of(&want.expect("decided")), "{kind} {mode:?} at {moment}");
            assert_eq!(got.is_admitted(), mode == Mode::Charge, "{kind} {mode:?} at {moment}");
        }
    }
}

/// How often scripts have read and written so far.
fn calls_of_scripts(redis: &Redis) -> u64 {
    let stats = redis.ask(&["INFO", "commandstats"]);
    let is_asked = |line: &&str| !line.starts_with("cmdstat_info:") && !line.starts_with("cmdstat_eval");
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter(is_asked).filter_map(calls).sum()
}

/// Answers, item 19: a call on a log that is as deep as it may be looks at few of its entries, whether it is refused or admitted.
#[tokio::test]
async fn a_call_on_the_deepest_log_looks_at_few_entries() {
    const MOST: u64 = SlidingLog::MAX_ENTRIES;
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let both = Both::by(crate::kit::plain(&redis, &clock), clock.clone());
    let rule = Rule::new("d", "log", Quota::per_hour(MOST)).with_kind(Kind::SlidingLog);
    let (here, there) = (both.redis.open(&rule), both.memory.open(&rule));
    for (advance, cost, times) in [
        (Duration::from_micros(1), 1, MOST),
        (Duration::ZERO, 1, 1),
        (Duration::ZERO, MOST / 2, 1),
        (Duration::ZERO, MOST, 1),
        // A quarter has left.
        (Duration::from_micros(3_600_000_000 - MOST * 3 / 4), MOST / 2, 1),
        (Duration::ZERO, 1, 1),
        // All of it has.
        (Duration::from_secs(2 * 3_600), MOST + 1, 1),
        (Duration::ZERO, MOST, 1),
    ] {
        let before = calls_of_scripts(&redis);
        for _ in 0..times {
            clock.advance(advance);
            let hits = [Hit::new(&here, b"k").costing(cost)];
            let got = both.redis.decide(Mode::Take, &hits).await.expect("decided");
            let hits = [Hit::new(&there, b"k").costing(cost)];
            let want = both.memory.decide(Mode::Take, &hits).into_inner().expect("decided");
            assert_eq!(all_of(&got), all_of(&want), "{cost} at {}", both.now());
        }
        let calls = (calls_of_scripts(&redis) - before) / times;
        assert!(calls < 60, "{calls} calls for {cost} at {}", both.now());
    }
}

/// Answers, item 19: a log whose entries are given back one after the other stays as short as what is in it.
#[tokio::test]
async fn refunds_leave_no_room_unused_in_a_log() {
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let both = Both::by(crate::kit::plain(&redis, &clock), clock.clone());
    let rule = Rule::new("d", "log", Quota::per_hour(5)).with_kind(Kind::SlidingLog);
    let (here, there) = (both.redis.open(&rule), both.memory.open(&rule));
    for mode in [Mode::Take].into_iter().chain([Mode::Take, Mode::Refund].into_iter().cycle().take(400)) {
        clock.advance(Duration::from_micros(1));
        let got = both.redis.decide(mode, &[Hit::new(&here, b"k")]).await.expect("decided");
        let want = both.memory.decide(mode, &[Hit::new(&there, b"k")]).into_inner().expect("decided");
        assert_eq!(all_of(&got), all_of(&want), "{mode:?} at {}", both.now());
    }
    let bytes: u64 = redis.ask(&["STRLEN", &redis.ask(&["--scan"])]).parse().expect("a number");
    assert!(bytes < 40 + 16 * 40, "{bytes} bytes");
}

/// Answers, item 19: what is charged again and again does not make a log deeper than it may be.
#[tokio::test]
async fn charges_make_no_log_deeper_than_it_may_be() {
    const MOST: u64 = SlidingLog::MAX_ENTRIES;
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let both = Both::by(crate::kit::plain(&redis, &clock), clock.clone());
    let rule = Rule::new("d", "log", Quota::per_hour(5)).with_kind(Kind::SlidingLog);
    let (here, there) = (both.redis.open(&rule), both.memory.open(&rule));
    for _ in 0..MOST + 20 {
        clock.advance(Duration::from_micros(1));
        let got = both.redis.decide(Mode::Charge, &[Hit::new(&here, b"k")]).await.expect("decided");
        let want = both.memory.decide(Mode::Charge, &[Hit::new(&there, b"k")]).into_inner().expect("decided");
        assert_eq!(all_of(&got), all_of(&want), "at {}", both.now());
    }
    let key = redis.ask(&["--scan"]);
    let bytes: u64 = redis.ask(&["STRLEN", &key]).parse().expect("a number");
    assert_eq!(bytes, 40 + 16 * MOST);
    // Those that came first leave one after the other, and what came last with the newest.
    for micros in [3_600_000_000 - MOST, 10, MOST / 2, MOST] {
        clock.advance(Duration::from_micros(micros));
        let got = both.redis.decide(Mode::Peek, &[Hit::new(&here, b"k")]).await.expect("decided");
        let want = both.memory.decide(Mode::Peek, &[Hit::new(&there, b"k")]).into_inner().expect("decided");
        assert_eq!(all_of(&got), all_of(&want), "at {}", both.now());
    }
}
