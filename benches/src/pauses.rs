//! The longest call that a caller sees.
//!
//! Every call is timed by itself, by the processor's counter. On a machine with two cores the longest of ten million calls
//! would mostly be one during which the kernel gave the core to somebody else. The kernel counts, for every thread, how long it was
//! ready to run and was not let (`/proc/thread-self/schedstat`, the second number); that is taken off. What a caller
//! spends waiting for a lock, for a page of memory or in an interrupt stays in, and so does what a hypervisor takes: hence
//! every case that uses this also has a contender that does nothing of the kind, as the noise of the machine.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Times the calls of one thread, each by itself.
#[derive(Debug)]
pub struct Pauses {
    schedstat: Option<File>,
    /// What the kernel has counted until now.
    kept_waiting: Duration,
    last_end: quanta::Instant,
    longest: Duration,
    longest_wall: Duration,
    calls: u64,
    /// The calls that took longer than a [`GLANCE`], by number, and how long.
    long: Vec<(u64, Duration)>,
}

/// A thread that loses its core is gone for longer than this, whether within a call or between two: by looking at the
/// kernel's count after each such span, a wait is never charged to another span than its own.
const GLANCE: Duration = Duration::from_micros(4);

impl Pauses {
    /// Nothing timed yet. To be used on the thread that made it.
    pub fn new() -> Self {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let now = quanta::Instant::now();
        let mut pauses = Self {
            schedstat,
            kept_waiting: Duration::ZERO,
            last_end: now,
            longest: Duration::ZERO,
            longest_wall: Duration::ZERO,
            calls: 0,
            long: Vec::new(),
        };
        pauses.kept_waiting = pauses.waited();
        pauses.last_end = quanta::Instant::now();
        pauses
    }

    /// Calls, and remembers how long that took if it is the longest.
    #[inline]
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let began = quanta::Instant::now();
        let answer = call();
        let ended = quanta::Instant::now();
        let (gap, wall) = (began - self.last_end, ended - began);
        self.last_end = ended;
        self.calls += 1;
        if gap.max(wall) > GLANCE {
            self.note(gap, wall);
        }
        answer
    }

    /// How many calls were timed.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The longest call in microseconds, without what it was kept waiting for a core. Nothing below a few
    /// microseconds is told apart.
    pub fn longest_us(&self) -> f64 {
        self.longest.as_secs_f64() * 1e6
    }

    /// The longest call in microseconds, whatever the reason.
    pub fn longest_wall_us(&self) -> f64 {
        self.longest_wall.as_secs_f64() * 1e6
    }

    /// The longest call in microseconds that took so long in all of these rounds, if they made the same calls in the same order:
    /// for each call its shortest time counts. What the machine does besides hits another call each time.
    pub fn longest_recurring_us(rounds: &[Self]) -> f64 {
        let mut least: Option<HashMap<u64, Duration>> = None;
        for round in rounds {
            let shorter = |(call, took): &(u64, Duration)| match &least {
                Some(least) => least.get(call).map(|before| (*call, *before.min(took))),
                None => Some((*call, *took)),
            };
            least = Some(round.long.iter().filter_map(shorter).collect());
        }
        let longest = least.unwrap_or_default().into_values().max().unwrap_or(GLANCE);
        longest.as_secs_f64() * 1e6
    }

    #[cold]
    fn note(&mut self, gap: Duration, wall: Duration) {
        let waited = self.waited();
        let since = waited.saturating_sub(self.kept_waiting);
        self.kept_waiting = waited;
        // What may have happened before the call began is not taken off.
        let within = if gap > GLANCE { since.saturating_sub(gap) } else { since };
        let took = wall.saturating_sub(within);
        if took > GLANCE {
            self.long.push((self.calls, took));
        }
        self.longest = self.longest.max(took);
        self.longest_wall = self.longest_wall.max(wall);
        self.last_end = quanta::Instant::now();
    }

    /// How long the kernel has kept this thread waiting for a core so far; nothing if it does not say.
    fn waited(&self) -> Duration {
        let mut text = [0; 96];
        let length = self.schedstat.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        let text = std::str::from_utf8(&text[..length.unwrap_or(0)]).unwrap_or_default();
        let nanos = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
        Duration::from_nanos(nanos.unwrap_or(0))
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_held_up_counts_in_full() {
        let mut pauses = Pauses::new();
        for _ in 0..100 {
            pauses.time(|| ());
        }
        pauses.time(|| std::thread::sleep(Duration::from_millis(20)));
        assert!(pauses.longest_us() >= 15_000.0, "{pauses:?}");
        assert!(pauses.longest_wall_us() >= pauses.longest_us());
        assert_eq!(pauses.calls(), 101);
    }

    #[test]
    fn what_takes_long_in_every_round_recurs_and_nothing_else() {
        let round = |long_calls: &[u64]| {
            let mut pauses = Pauses::new();
            for call in 0..100 {
                let millis = if long_calls.contains(&call) { 5 + call / 10 } else { 0 };
                pauses.time(|| std::thread::sleep(Duration::from_millis(millis)));
            }
            pauses
        };
        let recurring =
            Pauses::longest_recurring_us(&[round(&[1, 50]), round(&[1, 70]), round(&[1, 50, 70])]);
        assert!((5_000.0..10_000.0).contains(&recurring), "{recurring} us");
        let least = GLANCE.as_secs_f64() * 1e6;
        assert!(Pauses::longest_recurring_us(&[round(&[1]), round(&[2])]) < 5_000.0);
        assert!((Pauses::longest_recurring_us(&[]) - least).abs() < 1e-9);
    }

    #[test]
    fn being_kept_from_a_core_does_not_count() {
        // Two threads on one core take turns of some milliseconds each.
        let spin = |long: Duration| {
            let until = quanta::Instant::now() + long;
            while quanta::Instant::now() < until {
                std::hint::spin_loop();
            }
        };
        let (longest, wall) = std::thread::scope(|scope| {
            let rival = scope.spawn(|| {
                crate::pin_to_core(0);
                spin(Duration::from_millis(400));
            });
            let caller = scope.spawn(|| {
                crate::pin_to_core(0);
                let mut pauses = Pauses::new();
                let until = quanta::Instant::now() + Duration::from_millis(300);
                while quanta::Instant::now() < until {
                    pauses.time(|| spin(Duration::from_nanos(500)));
                }
                (pauses.longest_us(), pauses.longest_wall_us())
            });
            rival.join().expect("it only spins");
            caller.join().expect("it only spins")
        });
        assert!(longest < wall / 2.0, "{longest} us of {wall} us");
    }
}
