//! A limiter in a file, so that a restart forgets nothing.
//!
//! The file, all numbers with the lowest byte first:
//!
//! ```text
//! "tollgate"  version: u32
//! seed: 2 × u64, and the fingerprint it gives a known text: u64
//! kind: text, parts: u32, quota: text
//! the time that states are kept in: u64, and the time since 1970 at that moment: u64, both in nanoseconds
//! the time since 1970 when the former was zero, which windows may be aligned to: u64, in nanoseconds
//! the state that new keys share if there is no room: state
//! the state of a key that was never seen: state
//! any number of
//!     'p' quota: text                               the quota of some keys; they are numbered from one
//!     'k' fingerprint: u64, plan: u32, state        a key; plan zero stands for the limiter's quota
//! number of keys: u64  "gatetoll"  CRC-32 of everything before: u32
//!
//! text = length: u8, UTF-8         state = number of words: u32, words: u64
//! ```
//!
//! Keys are not in it, only their fingerprints; so a restored limiter goes on with the seed of the file. If a key comes
//! twice, the later one counts.

mod error;
mod reader;
mod writer;

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::path::Path;
use std::time::Duration;

use tollgate_core::{Quota, Tick};

use super::cap::{AtCap, Share};
use super::hash::Seed;
use super::shard::Shard;
use super::shifted::Shifted;
use super::{KeyedBuilder, KeyedLimiter};
use crate::cell::Held;
use crate::clock::Clock;
use crate::sync::{Light, lock};
pub use error::{SnapshotError, SnapshotProblem};
use reader::Reader;
use writer::{Buffer, Writer};

const MAGIC: &[u8; 8] = b"tollgate";
const END: &[u8; 8] = b"gatetoll";
const VERSION: u32 = 2;
/// What is hashed to see whether the file's keys were hashed as this program does it.
const PROBE: &str = "the same text in every program";
const PLAN: u8 = b'p';
const KEY: u8 = b'k';

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Saves every key that counts, so that [`restore`](KeyedBuilder::restore) can go on after a restart; how many they are.
    ///
    /// Calls go on meanwhile, and wait for a thousand keys at most; only [`set_quota`](Self::set_quota) waits until it is
    /// done. What was decided before is in the file, what is decided meanwhile may be. Reservations are not: what was reserved
    /// stays taken, and cannot be given back after a restart. Nor are the [`stats`](Self::stats).
    ///
    /// A file that was there stays as it is until the new one is complete and on the disk. The new one is first written under
    /// a name that ends in `.tmp`. Keep it as private as the limiter: it holds no keys, but the seed that keeps others from
    /// finding keys that collide. On Unix nobody else may read it.
    ///
    /// # Errors
    /// If the file cannot be written; the old one, if there was one, is left alone.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    ///
    /// # let path = std::env::temp_dir().join(format!("tollgate-doc-{}.snapshot", std::process::id()));
    /// let quota = Quota::per_hour(2);
    /// let limiter = KeyedLimiter::<str>::new(quota);
    /// assert!(limiter.allow_n("alice", 2));
    /// assert_eq!(limiter.save(&path)?, 1);
    ///
    /// // After a restart:
    /// let (limiter, restored) = KeyedLimiter::<str>::builder(quota).restore(&path);
    /// match restored {
    ///     Ok(keys) => println!("{keys} keys restored"),
    ///     Err(error) if error.is_not_found() => println!("a first start"),
    ///     Err(error) => eprintln!("starting afresh: {error}"),
    /// }
    /// assert!(!limiter.allow("alice"));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        let _alone = lock(&self.store.saving);
        writer::replace(path, |file| self.write_all(file)).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot save a limiter as {}: {error}", path.display()))
        })
    }

    fn write_all(&self, file: &mut Writer) -> io::Result<usize> {
        let now = self.store.clock.now();
        file.write(&mut self.header(now))?;
        let mut keys = Keys { now, plans: HashMap::new(), written: 0, buffer: Buffer::default() };
        self.store.lines.pin(true);
        let written = self.write_keys(&mut keys, file);
        self.store.lines.pin(false);
        written?;
        keys.buffer.put_u64(keys.written as u64);
        file.write(&mut keys.buffer)?;
        Ok(keys.written)
    }

    fn write_keys(&self, keys: &mut Keys, file: &mut Writer) -> io::Result<()> {
        for shard in &self.store.shards {
            shard.0.lock().pin(true);
            let written = self.write_shard(&shard.0, keys, file);
            shard.0.lock().pin(false);
            written?;
        }
        for print in self.store.lines.prints() {
            self.write_in_line(print, keys);
        }
        file.write(&mut keys.buffer)
    }

    /// A key that has a limiter of its own, as it would be if it were in the table.
    fn write_in_line(&self, print: u64, keys: &mut Keys) {
        let (common, now) = (&self.store.common, keys.now);
        let Some((plan, algorithm, quota, state)) = self.store.lines.look(print) else { return };
        let shard = self.store.shard(print);
        let table = shard.algorithm(common, plan);
        let state = algorithm.moved(&state, now, quota, &table);
        if !table.is_idle(&state, now) {
            keys.put(print, plan, |plan| common.plans.get(plan).quota);
            keys.buffer.put_words(|words| table.write_state(&state, words));
        }
    }

    fn header(&self, now: Tick) -> Buffer {
        let mut header = Buffer::begin();
        let seed = &self.store.seed;
        for word in seed.bits().into_iter().chain([seed.print(PROBE)]) {
            header.put_u64(word);
        }
        let rest = lock(&self.store.rest);
        header.put_text(rest.algorithm.kind().name());
        header.put_u32(rest.algorithm.parts());
        header.put_text(&rest.quota.to_string());
        header.put_u64(now.as_nanos());
        for since_1970 in [self.store.clock.unix(), self.store.clock.age()] {
            header.put_u64(u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX));
        }
        header.put_words(|words| rest.algorithm.write_state(&rest.overflow, words));
        // All shards have the same, but for some that have found out already that it is as good as fresh.
        let unseen = self.store.shards[0].0.lock().unseen_state();
        header.put_words(|words| rest.algorithm.write_state(&unseen, words));
        header
    }

    fn write_shard(&self, shard: &Light<Shard<A>>, keys: &mut Keys, file: &mut Writer) -> io::Result<()> {
        let common = &self.store.common;
        for number in 0.. {
            // Locked anew for each segment, so that callers get in between.
            let is_there = shard.lock().visit(common, number, |print, plan, algorithm, state| {
                if !algorithm.is_idle(state, keys.now) {
                    keys.put(print, plan, |plan| common.plans.get(plan).quota);
                    keys.buffer.put_words(|words| algorithm.write_state(state, words));
                }
            });
            if !is_there {
                break;
            }
            file.write(&mut keys.buffer)?;
        }
        Ok(())
    }
}

/// Keys on their way into a file.
struct Keys {
    now: Tick,
    /// The number in the file of each quota that is in it.
    plans: HashMap<Quota, u32>,
    written: usize,
    buffer: Buffer,
}

impl Keys {
    /// Puts in a key, except for its state, and before it the quota of its plan if that is new.
    fn put(&mut self, print: u64, plan: u32, quota_of: impl FnOnce(u32) -> Quota) {
        let known = self.plans.len() as u32;
        let number = match plan {
            0 => 0,
            plan => {
                let quota = quota_of(plan);
                let number = *self.plans.entry(quota).or_insert(known + 1);
                if number > known {
                    self.buffer.put_tag(PLAN);
                    self.buffer.put_text(&quota.to_string());
                }
                number
            }
        };
        self.buffer.put_tag(KEY);
        self.buffer.put_u64(print);
        self.buffer.put_u32(number);
        self.written += 1;
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedBuilder<K, A, C> {
    /// The limiter, with the keys that another one [saved](KeyedLimiter::save); how many still count, or why there are none.
    /// There is a limiter in any case, an empty one if anything is wrong with the file.
    ///
    /// Every key goes on where it was, as if the limiter had been there all along: the time that has passed by
    /// [the time of the day](Clock::unix) counts, or none if that went back. The algorithm must be of the same
    /// [`Kind`](crate::Kind), and the key type must hash as it did. The rest is this builder's:
    /// - If the quota is another one, what was used stays used, as after [`set_quota`](KeyedLimiter::set_quota).
    /// - Keys with a quota [of their own](Self::quota_of) keep it until they are [refreshed](KeyedLimiter::refresh), or were idle.
    ///   Without `quota_of`, they get the quota of all the others, and what was used stays used.
    /// - Keys beyond [`max_keys`](Self::max_keys) or [`max_bytes`](Self::max_bytes) make room as new keys do: with
    ///   [`AtCap::Evict`](crate::AtCap::Evict) those that have used the least go, otherwise those that come last. Either way
    ///   they count as [evicted](crate::Stats::evicted).
    ///
    /// A limiter lasts 18 years, and that includes the times of those it was restored from.
    ///
    /// For an example see [`save`](KeyedLimiter::save).
    pub fn restore(self, path: impl AsRef<Path>) -> (KeyedLimiter<K, A, C>, Result<usize, SnapshotError>) {
        let path = path.as_ref();
        match self.again().read(path) {
            // Nothing to go on with, so its time need not go on either.
            Ok(limiter) if limiter.is_empty() && limiter.store.clock.is_old() => (self.build(), Ok(0)),
            Ok(limiter) => {
                let keys = limiter.len();
                (limiter, Ok(keys))
            }
            Err(problem) => (self.build(), Err(SnapshotError::new(path, problem))),
        }
    }

    fn read(self, path: &Path) -> Result<KeyedLimiter<K, A, C>, SnapshotProblem> {
        let mut file = Reader::open(path)?;
        let header = Header::read(&mut file)?;
        let (quota, algorithm) = (self.quota, self.make_algorithm(self.quota, header.age));
        header.check(&algorithm)?;
        let old = (header.quota, self.make_algorithm(header.quota, header.age));
        let overflow = file.state(|words| old.1.read_state(words))?;
        let unseen = file.state(|words| old.1.read_state(words))?;

        let clock = Shifted::resumed(self.clock.clone(), header.tick, header.unix, header.age);
        let now = clock.now();
        let limiter = self.build_with(header.seed, clock);
        let bytes = file.keys().saturating_mul(Shard::<A>::BYTES_PER_KEY);
        let share = limiter.store.common.room.share(limiter.store.shards.len(), bytes);
        let way = Way { old, new: (quota, algorithm), now, share, giving: 0 };
        lock(&limiter.store.rest).overflow = way.carried(&way.old.1, way.old.0, overflow);
        let unseen = way.carried(&way.old.1, way.old.0, unseen);
        for shard in &limiter.store.shards {
            shard.0.lock().resume(unseen.clone(), now);
        }
        limiter.read_keys(&mut file, way)?;
        Ok(limiter)
    }
}

/// What keys need on their way from a file into a limiter.
struct Way<A> {
    /// What those without a plan had.
    old: (Quota, A),
    /// What those without a plan will have.
    new: (Quota, A),
    now: Tick,
    /// How many fit into a shard.
    share: Share,
    /// The first shard that may have more than its share.
    giving: usize,
}

impl<A: Held> Way<A> {
    /// A state for the new quota.
    fn carried(&self, algorithm: &A, quota: Quota, state: A::State) -> A::State {
        if quota == self.new.0 { state } else { algorithm.moved(&state, self.now, self.new.0, &self.new.1) }
    }
}

impl<K: Hash + ?Sized, A: Held, C: Clock> KeyedLimiter<K, A, C> {
    /// Reads everything after the header.
    fn read_keys(&self, file: &mut Reader, mut way: Way<A>) -> Result<(), SnapshotProblem> {
        let (mut plans, mut keys) = (vec![0], 0);
        while !file.is_at_end() {
            let at = file.at();
            match file.tag()? {
                PLAN => plans.push(self.store.common.plans.number(file.quota()?)),
                KEY => {
                    self.read_key(file, &mut way, &plans)?;
                    keys += 1;
                }
                _ => return Err(Reader::impossible(at, "expected 'p' for a quota or 'k' for a key")),
            }
        }
        if keys == file.keys() {
            Ok(())
        } else {
            Err(Reader::impossible(file.at(), "there should be as many keys as it says here"))
        }
    }

    fn read_key(&self, file: &mut Reader, way: &mut Way<A>, plans: &[u32]) -> Result<(), SnapshotProblem> {
        let at = file.at();
        let (print, number) = (file.u64()?, file.u32()?);
        if print == 0 {
            return Err(Reader::impossible(at, "no key has the fingerprint zero"));
        }
        let Some(&plan) = plans.get(number as usize) else {
            return Err(Reader::impossible(at, "no quota with that number comes before the key"));
        };
        let common = &self.store.common;
        let own = (plan > 0).then(|| common.plans.get(plan));
        let (quota, algorithm) =
            own.as_ref().map_or((way.old.0, &way.old.1), |own| (own.quota, &own.algorithm));
        let state = file.state(|words| algorithm.read_state(words))?;
        if algorithm.is_idle(&state, way.now) {
            return Ok(());
        }
        let keeps_plan = plan > 0 && common.by_key;
        let key =
            if keeps_plan { (print, plan, state) } else { (print, 0, way.carried(algorithm, quota, state)) };
        self.make_way(print, way);
        self.store.shard(print).restore(common, way.share, key, way.now);
        Ok(())
    }

    /// Keys come shard by shard: if the store is full, the first shards have more than their share and must give some of it to
    /// those that come later.
    fn make_way(&self, print: u64, way: &mut Way<A>) {
        let (common, share) = (&self.store.common, way.share);
        if common.room.has_key() || common.at_cap != AtCap::Evict || self.store.shard(print).has_share(share)
        {
            return;
        }
        while let Some(shard) = self.store.shards.get(way.giving) {
            if shard.0.lock().make_way(common, share, way.now) {
                break;
            }
            way.giving += 1;
        }
    }
}

/// What a file says about the limiter.
struct Header {
    seed: Seed,
    probe: u64,
    kind: String,
    parts: u32,
    quota: Quota,
    tick: Tick,
    unix: Duration,
    age: Duration,
}

impl Header {
    fn read(file: &mut Reader) -> Result<Self, SnapshotProblem> {
        Ok(Self {
            seed: Seed::from_bits([file.u64()?, file.u64()?]),
            probe: file.u64()?,
            kind: file.text()?,
            parts: file.u32()?,
            quota: file.quota()?,
            tick: Tick::from_nanos(file.u64()?),
            unix: Duration::from_nanos(file.u64()?),
            age: Duration::from_nanos(file.u64()?),
        })
    }

    /// Whether its states are of that algorithm, and its keys can be found again.
    fn check(&self, algorithm: &impl Held) -> Result<(), SnapshotProblem> {
        let (kind, parts) = (algorithm.kind().name(), algorithm.parts());
        if (self.kind.as_str(), self.parts) != (kind, parts) {
            let found = named(&self.kind, self.parts);
            return Err(SnapshotProblem::OtherKind { found, wanted: named(kind, parts) });
        }
        if self.seed.print(PROBE) != self.probe {
            return Err(SnapshotProblem::OtherHash);
        }
        Ok(())
    }
}

fn named(kind: &str, parts: u32) -> String {
    if parts == 0 { kind.to_owned() } else { format!("{kind} in {parts} parts") }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use fastrand::Rng;
    use tollgate_core::{Ask, TokenBucket};

    use super::super::cap::Room;
    use super::super::plans::Plans;
    use super::super::shard::{Common, Query};
    use super::*;

    const QUOTA: Quota = Quota::per_hour(1);

    /// Adds or forgets keys with these fingerprints.
    fn change(shard: &mut Shard<TokenBucket>, common: &Common<TokenBucket>, prints: &[u64], add: bool) {
        for &print in prints {
            if add {
                shard.take(
                    common,
                    Query { print, plan: Some(0), now: Tick::ZERO, ask: Ask::now(1), is_patient: false },
                );
            } else {
                shard.remove(common, print);
            }
        }
        while !shard.sweep(common, Tick::ZERO, 1_000).ends {} // joins segments if there are too many
    }

    #[test]
    fn a_pinned_shard_shows_every_key_that_stays_once() {
        for seed in 0..20 {
            let mut rng = Rng::with_seed(seed);
            let plans = Plans::new(Arc::new(TokenBucket::new), false);
            let room = Room::new(u64::MAX, u64::MAX);
            let common = Common { plans, by_key: false, is_watched: false, room, at_cap: AtCap::Evict };
            let mut shard = Shard::new(&common, QUOTA);
            let mut prints = |count: usize| -> Vec<u64> { (0..count).map(|_| rng.u64(1..)).collect() };
            let (stay, go, come) = (prints(1_500), prints(9_000), prints(9_000));
            change(&mut shard, &common, &stay, true);
            change(&mut shard, &common, &go, true);
            shard.pin(true);
            let mut seen = Vec::new();
            for number in 0.. {
                if !shard.visit(&common, number, |print, _, _, _| seen.push(print)) {
                    break;
                }
                match number {
                    2 if seed % 2 == 0 => change(&mut shard, &common, &go, false),
                    2 => change(&mut shard, &common, &come, true),
                    5 => change(&mut shard, &common, &come, seed % 2 == 0),
                    _ => {}
                }
            }
            shard.pin(false);
            let once: HashSet<u64> = seen.iter().copied().collect();
            assert_eq!(once.len(), seen.len(), "seed {seed}: some were seen twice");
            assert!(stay.iter().all(|print| once.contains(print)), "seed {seed}: some were not seen");
        }
    }
}
