//! The contenders, each set up as its documentation recommends, with the clock that it brings: tollgate and governor read
//! the processor's counter, throttlecrab and limitador the wall clock, pingora-limits the system's steady one.

#![allow(clippy::inline_always, reason = "else it is chance whose check becomes part of the loop")]

use std::collections::HashMap;
use std::hash::Hash;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use governor::clock::DefaultClock;
use governor::state::keyed::ShrinkableKeyedStateStore;
use limitador::limit::{Limit, Namespace};
use throttlecrab::PeriodicStore;
use tollgate_benches::counted;

use crate::floor::Floor;
use crate::keys::Key;
use crate::ours::Ours;

/// A limiter of many keys.
pub(crate) trait Keyed<K>: Send + Sync {
    /// One check of one key, whether it has been seen before or not.
    fn allow(&self, key: &K) -> bool;

    /// Lets idle keys go and gives their memory back, where the user has to ask for it.
    fn clean(&self) {}

    /// How many keys it holds, if it says.
    fn keys(&self) -> Option<usize> {
        None
    }

    /// How much memory it thinks it has, if it says.
    fn own_bytes(&self) -> Option<usize> {
        None
    }

    /// The loop that is timed. It is compiled for each contender, so that its check can be inlined.
    fn pass(&self, keys: &[K]) -> Pass {
        let mut allowed = 0;
        let began = Instant::now();
        for key in keys {
            allowed += u64::from(black_box(self.allow(key)));
        }
        Pass { allowed, began, ended: Instant::now() }
    }

    /// The loop whose instructions are counted.
    fn count(&self, turns: u64, keys: &[K]) {
        let mut keys = keys.iter().cycle();
        counted(turns, || _ = black_box(keys.next().is_some_and(|key| self.allow(key))));
    }
}

/// What came of asking for some keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) allowed: u64,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// One quota for all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Also how long a key is busy after one call.
    pub(crate) per_token: Duration,
    pub(crate) burst: u32,
    /// For limitador, which must be told how many keys it may hold.
    pub(crate) capacity: u64,
    /// For throttlecrab: how often it looks for idle keys.
    pub(crate) cleanup: Duration,
}

impl Terms {
    /// Everything is admitted and no key is idle before the bench is over: even the most frequent key of a zipf sequence
    /// asks less often than the burst, and one call keeps a key busy for ten minutes.
    pub(crate) const BUSY: Self = Self {
        per_token: Duration::from_secs(600),
        burst: 5_000_000,
        capacity: 1_200_000,
        cleanup: Duration::from_secs(60), // its default
    };
}

/// A key type with its contenders.
pub(crate) trait Contest: Key {
    /// Names for [`make`](Self::make), ours first.
    const CONTENDERS: &'static [&'static str];

    /// The contender of a name.
    fn make(name: &str, terms: Terms) -> Box<dyn Keyed<Self>>;

    /// Ours with a thread that sweeps.
    fn ours_swept(terms: Terms, every: Duration) -> Box<dyn Keyed<Self>>;
}

impl Contest for u64 {
    // throttlecrab and limitador take strings only.
    const CONTENDERS: &'static [&'static str] =
        &["tollgate", "governor", "governor-ahash", "governor-hashmap", "pingora-limits"];

    fn make(name: &str, terms: Terms) -> Box<dyn Keyed<Self>> {
        match name {
            "tollgate" => Box::new(Ours::<u64>::new(terms)),
            "tollgate-coarse" => Box::new(Ours::<u64, _>::coarse(terms)),
            other => generic(other, terms),
        }
    }

    fn ours_swept(terms: Terms, every: Duration) -> Box<dyn Keyed<Self>> {
        Box::new(Ours::<u64>::swept(terms, every))
    }
}

impl Contest for String {
    const CONTENDERS: &'static [&'static str] = &[
        "tollgate",
        "governor",
        "governor-ahash",
        "governor-hashmap",
        "pingora-limits",
        "throttlecrab",
        "limitador",
    ];

    fn make(name: &str, terms: Terms) -> Box<dyn Keyed<Self>> {
        match name {
            "tollgate" => Box::new(Ours::<str>::new(terms)),
            "tollgate-coarse" => Box::new(Ours::<str, _>::coarse(terms)),
            "throttlecrab" => Box::new(Throttlecrab::new(terms)),
            "limitador" => Box::new(Limitador::new(terms)),
            other => generic(other, terms),
        }
    }

    fn ours_swept(terms: Terms, every: Duration) -> Box<dyn Keyed<Self>> {
        Box::new(Ours::<str>::swept(terms, every))
    }
}

/// Those that take keys of any type.
fn generic<K: Key>(name: &str, terms: Terms) -> Box<dyn Keyed<K>> {
    let burst = NonZeroU32::new(terms.burst).expect("a burst");
    let quota = governor::Quota::with_period(terms.per_token).expect("a period").allow_burst(burst);
    match name {
        "governor" => Box::new(governor::RateLimiter::dashmap(quota)),
        "governor-ahash" => {
            Box::new(governor::RateLimiter::dashmap_with_hasher(quota, ahash::RandomState::new()))
        }
        "governor-hashmap" => Box::new(governor::RateLimiter::hashmap(quota)),
        "pingora-limits" => Box::new(Pingora::new(terms)),
        "floor" => Box::new(Floor::new()),
        other => panic!("there is no contender {other:?}"),
    }
}

impl<K, S> Keyed<K> for governor::RateLimiter<K, S, DefaultClock>
where
    K: Key,
    S: ShrinkableKeyedStateStore<K> + Send + Sync,
{
    #[inline(always)]
    fn allow(&self, key: &K) -> bool {
        self.check_key(key).is_ok()
    }

    fn clean(&self) {
        self.retain_recent();
        self.shrink_to_fit();
    }

    fn keys(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// throttlecrab "is not thread-safe; for concurrent access, wrap it in a mutex".
struct Throttlecrab {
    limiter: Mutex<throttlecrab::RateLimiter<PeriodicStore>>,
    burst: i64,
    period_seconds: i64,
}

impl Throttlecrab {
    fn new(terms: Terms) -> Self {
        let store = PeriodicStore::builder().cleanup_interval(terms.cleanup).build();
        Self {
            limiter: Mutex::new(throttlecrab::RateLimiter::new(store)),
            burst: i64::from(terms.burst),
            period_seconds: i64::try_from(terms.per_token.as_secs()).expect("not for ever"),
        }
    }
}

impl Keyed<String> for Throttlecrab {
    #[inline(always)]
    fn allow(&self, key: &String) -> bool {
        let mut limiter = self.limiter.lock().expect("nobody panics with it");
        let answer = limiter.rate_limit(key, self.burst, 1, self.period_seconds, 1, SystemTime::now());
        answer.expect("a valid set-up").0
    }
}

/// limitador counts in fixed windows: the burst for every so many seconds.
struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: Namespace,
}

impl Limitador {
    fn new(terms: Terms) -> Self {
        let limiter = limitador::RateLimiter::new(terms.capacity);
        let variable = "key".try_into().expect("a valid expression");
        let (most, seconds) = (u64::from(terms.burst), terms.per_token.as_secs());
        let limit = Limit::new("bench", most, seconds, Vec::new(), vec![variable]);
        assert!(limiter.add_limit(limit), "a limit that was not there yet");
        Self { limiter, namespace: "bench".into() }
    }
}

impl Keyed<String> for Limitador {
    /// With the making of the context, which holds the key: a server does that for each request.
    #[inline(always)]
    fn allow(&self, key: &String) -> bool {
        let context = HashMap::from([("key".to_owned(), key.clone())]).into();
        let answer = self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1);
        !answer.expect("a valid set-up").limited
    }
}

/// pingora-limits estimates: four rows of a million counters, whatever the number of keys, cleared every second.
struct Pingora {
    rate: pingora_limits::rate::Rate,
    most: isize,
}

impl Pingora {
    fn new(terms: Terms) -> Self {
        let rate =
            pingora_limits::rate::Rate::new_with_estimator_config(Duration::from_secs(1), 4, 1_000_000);
        Self { rate, most: isize::try_from(terms.burst).expect("64 bits") }
    }
}

impl<K: Hash> Keyed<K> for Pingora {
    #[inline(always)]
    fn allow(&self, key: &K) -> bool {
        self.rate.observe(key, 1) <= self.most
    }
}
