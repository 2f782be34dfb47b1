//! Who listens.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tollgate::Tick;

use super::{Health, Shared};

/// Somebody who listens to a [`Heart`](crate::Heart) and tells healthy, slow and dead apart. Any number may listen, and may
/// come and go; clones go on from where the original is.
///
/// [`health`](Self::health) is how the worker is at this moment; [`changed`](Self::changed) waits until it is otherwise;
/// [`pulse`](Self::pulse) waits for a beat.
#[derive(Clone, Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    /// What [`changed`](Self::changed) said last.
    told: Health,
    /// How many beats [`pulse`](Self::pulse) knows of.
    heard: u64,
}

/// The latest sign of life. The numbers are read one after the other, so during a beat one may be ahead of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// When the last beat was, by the heart's time; when the heart was made, if it never beat.
    pub at: Tick,
    /// How many beats there were, of either kind.
    pub beats: u64,
    /// How many units of work were begun.
    pub units: u64,
}

impl Monitor {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let heard = shared.beats.load(SeqCst);
        Self { shared, told: Health::Healthy, heard }
    }

    /// How the worker is now.
    pub fn health(&self) -> Health {
        self.health_at(self.shared.time.now())
    }

    /// How the worker is at `now`, by what is known. A clock that steps back makes nobody worse.
    pub fn health_at(&self, now: Tick) -> Health {
        self.shared.health_at(now)
    }

    /// The latest sign of life.
    pub fn latest(&self) -> Pulse {
        let beats = self.shared.beats.load(SeqCst);
        Pulse { at: self.shared.last(), beats, units: self.shared.units.load(SeqCst) }
    }

    /// Waits until the worker's health is not what this said last time ([`Health::Healthy`] at first), and says what it is.
    /// `None` once it has said [`Health::Ended`].
    ///
    /// A change that is over before anybody looks is not told. Nothing is polled: a healthy worker's beats wake nobody.
    ///
    /// # Cancel safety
    /// Safe: a change is told by the next call.
    pub async fn changed(&mut self) -> Option<Health> {
        if self.told == Health::Ended {
            return None;
        }
        let shared = Arc::clone(&self.shared);
        loop {
            let news = shared.news.notified();
            if self.told != Health::Healthy {
                shared.wanted.store(true, SeqCst);
            }
            let health = self.health();
            if health != self.told {
                self.told = health;
                return Some(health);
            }
            let worse = shared.rhythm.worse_at(health, shared.last());
            tokio::select! {
                () = news => {}
                () = shared.time.sleep_until(worse) => {}
            }
        }
    }

    /// Waits for a beat since the last one this told of, or since the monitor was made, and tells the latest. `None` once
    /// there will be no more.
    ///
    /// # Cancel safety
    /// Safe: a beat is told by the next call.
    pub async fn pulse(&mut self) -> Option<Pulse> {
        let shared = Arc::clone(&self.shared);
        loop {
            let news = shared.news.notified();
            shared.wanted.store(true, SeqCst);
            let ended = shared.ended.load(SeqCst);
            let pulse = self.latest();
            if pulse.beats != self.heard {
                self.heard = pulse.beats;
                return Some(pulse);
            }
            if ended {
                return None;
            }
            news.await;
        }
    }
}
