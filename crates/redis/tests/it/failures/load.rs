//! Callers that go on asking while something breaks, and what became of their calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::Quota;
use tollgate::store::{Health, Hit, Mode, Rule, Store};
use tollgate_redis::{Guarded, RedisStore};

/// How many processes there are, as far as Redis can tell, and how many ask at once in each.
pub(crate) const PROCESSES: usize = 2;
const TASKS: usize = 4;
/// What each of those does between two calls.
const PAUSE: Duration = Duration::from_millis(1);

/// Callers at work.
pub(crate) struct Load {
    stores: Vec<Guarded<RedisStore>>,
    calls: Arc<Mutex<Vec<Call>>>,
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    /// The most that may be admitted of each key, whenever.
    bound: u64,
}

/// One call, and how it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) key: usize,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Admitted,
    Refused,
    /// The store could not tell.
    Unanswered,
}

/// What a key is called.
pub(crate) fn name(key: usize) -> String {
    format!("user-{key}")
}

impl Load {
    /// Asks for `bound` of each of so many keys, again and again. Nothing ever comes back.
    pub(crate) fn start(url: &str, keys: usize, bound: u64) -> Self {
        let rule = Rule::new("failures", "all", Quota::per_second(0).burst(bound));
        // Tests look for the keys in Redis.
        let store = |_| Guarded::new(RedisStore::builder(url).clear_keys().build().expect("a good address"));
        let stores: Vec<Guarded<RedisStore>> = (0..PROCESSES).map(store).collect();
        let (calls, is_over) = (Arc::<Mutex<Vec<Call>>>::default(), Arc::<AtomicBool>::default());
        let mut tasks = JoinSet::new();
        for (number, store) in stores.iter().cycle().take(PROCESSES * TASKS).enumerate() {
            let (store, rule, calls, is_over) =
                (store.clone(), rule.clone(), Arc::clone(&calls), Arc::clone(&is_over));
            tasks.spawn(async move {
                let limit = store.open(&rule);
                for key in (0..keys).cycle().skip(number) {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let (began, name) = (Instant::now(), name(key));
                    let answer = store.decide(Mode::Take, &[Hit::new(&limit, name.as_bytes())]).await;
                    let end = match answer {
                        Ok(answer) if answer.is_admitted() => End::Admitted,
                        Ok(_) => End::Refused,
                        Err(_) => End::Unanswered,
                    };
                    let call = Call { key, began, took: began.elapsed(), end };
                    calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
                    sleep(PAUSE).await;
                }
            });
        }
        Self { stores, calls, is_over, tasks, bound }
    }

    /// How many calls that began since then ended so.
    pub(crate) fn count(&self, since: Instant, end: End) -> usize {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|call| call.began >= since && call.end == end).count()
    }

    /// Waits until so many calls that began since then ended so.
    pub(crate) async fn until(&self, since: Instant, end: End, enough: usize) {
        for _ in 0..6_000 {
            if self.count(since, end) >= enough {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{enough} calls never were {end:?}: {:?}", self.health());
    }

    /// How all stores together have been.
    pub(crate) fn health(&self) -> Vec<Health> {
        self.stores.iter().map(Guarded::health).collect()
    }

    /// Ends it, and says what became of all calls.
    pub(crate) async fn end(mut self) -> Outcome {
        self.is_over.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        let calls = std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        Outcome { calls, health: self.health(), bound: self.bound }
    }
}

/// What became of all calls.
pub(crate) struct Outcome {
    pub(crate) calls: Vec<Call>,
    health: Vec<Health>,
    bound: u64,
}

impl Outcome {
    /// How many were admitted beyond the bound of their key.
    pub(crate) fn over(&self) -> u64 {
        let mut admitted = std::collections::HashMap::<usize, u64>::new();
        for call in self.calls.iter().filter(|call| call.end == End::Admitted) {
            *admitted.entry(call.key).or_default() += 1;
        }
        admitted.values().map(|admitted| admitted.saturating_sub(self.bound)).sum()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.calls.iter().map(|call| call.took).max().unwrap_or_default()
    }

    /// How long after that moment the last call was not answered.
    pub(crate) fn exact_after(&self, moment: Instant) -> Duration {
        let unanswered = self.calls.iter().filter(|call| call.end == End::Unanswered && call.began >= moment);
        unanswered.map(|call| call.began + call.took - moment).max().unwrap_or_default()
    }

    /// How many calls that began in between ended so.
    pub(crate) fn between(&self, from: Instant, to: Instant, end: End) -> usize {
        self.calls.iter().filter(|call| call.end == end && (from..to).contains(&call.began)).count()
    }

    /// How many were not answered in time, failed, and were not even tried.
    pub(crate) fn unanswered(&self) -> [u64; 3] {
        let sum = |of: fn(&Health) -> u64| self.health.iter().map(of).sum();
        [sum(|health| health.late), sum(|health| health.failed), sum(|health| health.untried)]
    }
}
