//! Long computations that give way.

use std::time::Duration;

use tollgate::Tick;

use super::{Ended, Scope};

/// Makes a long computation stop when its scope ends, and give way to other tasks, at least once in every period; made
/// by [`Scope::preempt`].
///
/// Call [`point`](Self::point) in async code, [`check`](Self::check) in blocking code, once in each turn of the
/// innermost loop that is long. Both are made to be called in a tight loop: most calls only count. Every k-th reads the
/// clock and looks at the scope, with k at most 64 and such that k calls took no more than an eighth of the period. So
/// the period is kept as long as one turn takes less than an eighth of it and turns do not become more than four times
/// as slow from one moment to the next; a stretch of turns that do is over after at most 64 of them.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_flow::{Ended, Scope, Time};
///
/// async fn sum(scope: &Scope, numbers: &[u64]) -> Result<u64, Ended> {
///     let mut preempt = scope.preempt(Duration::from_millis(10));
///     let mut sum = 0;
///     for number in numbers {
///         sum += number;
///         preempt.point().await?;
///     }
///     Ok(sum)
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// let scope = Scope::new(Time::tokio());
/// assert_eq!(sum(&scope, &[1, 2, 3]).await, Ok(6));
/// # });
/// ```
///
/// ## On a thread for blocking work
/// Whoever waits for it may be dropped, and then nobody wants the result:
/// ```
/// # use std::time::Duration;
/// # use tollgate_flow::{Ended, Fault, Scope, Time};
/// async fn primes(scope: &Scope, below: u64) -> Result<usize, Fault> {
///     let scope = scope.child();
///     let _end = scope.cancel_on_drop();
///     let mut preempt = scope.preempt(Duration::from_millis(10));
///     let count = tokio::task::spawn_blocking(move || -> Result<usize, Ended> {
///         let mut count = 0;
///         for n in 2..below {
///             preempt.check()?;
///             count += usize::from((2..n).all(|d| n % d > 0));
///         }
///         Ok(count)
///     });
///     Ok(count.await??)
/// }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// assert_eq!(primes(&Scope::new(Time::tokio()), 100).await.unwrap(), 25);
/// # });
/// ```
#[derive(Debug)]
pub struct Preempt {
    scope: Scope,
    stride: Stride,
    /// When it yields at the latest.
    yields_after: Duration,
    yielded: Tick,
    /// When the clock was last read.
    read: Tick,
}

impl Preempt {
    pub(super) fn new(scope: Scope, period: Duration) -> Self {
        let now = scope.time.now();
        Self { stride: Stride::new(period / 8), yields_after: period / 2, yielded: now, read: now, scope }
    }

    /// A point at which async code can stop; now and then it yields to the runtime.
    ///
    /// # Errors
    /// Why the scope ended.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub async fn point(&mut self) -> Result<(), Ended> {
        let Some(now) = self.look()? else { return Ok(()) };
        if now.since(self.yielded) < self.yields_after {
            return Ok(());
        }
        tokio::task::yield_now().await;
        // The time that others took is not the computation's own, but it does count for the deadline.
        self.read = self.scope.time.now();
        self.yielded = self.read;
        self.scope.check_at(self.read)
    }

    /// A point at which blocking code can stop.
    ///
    /// # Errors
    /// Why the scope ended.
    pub fn check(&mut self) -> Result<(), Ended> {
        self.look().map(|_| ())
    }

    /// Counts; when it is time to, reads the clock and looks at the scope.
    #[inline]
    fn look(&mut self) -> Result<Option<Tick>, Ended> {
        if self.stride.step() { self.look_up().map(Some) } else { Ok(None) }
    }

    fn look_up(&mut self) -> Result<Tick, Ended> {
        let now = self.scope.time.now();
        self.stride.took(now.since(self.read));
        self.read = now;
        self.scope.check_at(now).map(|()| now)
    }
}

/// How many calls to make without reading the clock.
#[derive(Debug)]
struct Stride {
    calls: u32,
    left: u32,
    /// How long a stride should take at most.
    span: Duration,
}

const STRIDE_MAX: u32 = 64;

impl Stride {
    fn new(span: Duration) -> Self {
        Self { calls: 1, left: 1, span }
    }

    /// Counts a call; says whether it is the last of the stride.
    #[inline]
    fn step(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Chooses the next stride from how long this one took: twice as long if that fits, or as short as it needs to be.
    fn took(&mut self, elapsed: Duration) {
        let fitting = match elapsed.as_nanos() {
            0 => u128::from(STRIDE_MAX),
            nanos => self.span.as_nanos().saturating_mul(u128::from(self.calls)) / nanos,
        };
        self.calls = fitting.clamp(1, u128::from((self.calls * 2).min(STRIDE_MAX))) as u32;
        self.left = self.calls;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// The strides chosen, one after the other, when each call of the nth stride takes `each[n]`.
    fn strides(span: Duration, each: &[Duration]) -> Vec<u32> {
        let mut stride = Stride::new(span);
        let mut chosen = Vec::new();
        for turn in each {
            let calls = (1..=STRIDE_MAX).find(|_| stride.step()).unwrap();
            chosen.push(calls);
            stride.took(*turn * calls);
        }
        chosen
    }

    #[test]
    fn fast_turns_read_the_clock_every_64th_time() {
        assert_eq!(strides(1_000 * US, &[US; 9]), [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(strides(1_000 * US, &[Duration::ZERO; 8]), [1, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn slow_turns_read_it_as_often_as_they_must() {
        // 300 µs: three fit in a millisecond. 2 ms: not even one.
        assert_eq!(strides(1_000 * US, &[300 * US; 5]), [1, 2, 3, 3, 3]);
        assert_eq!(strides(1_000 * US, &[2_000 * US; 4]), [1, 1, 1, 1]);
    }

    #[test]
    fn turns_that_become_slow_are_noticed_after_one_stride() {
        let turns = [US, US, US, US, US, US, US, 100 * US, 100 * US, US, US];
        assert_eq!(strides(1_000 * US, &turns), [1, 2, 4, 8, 16, 32, 64, 64, 10, 10, 20]);
    }

    #[test]
    fn the_ends_of_the_scale() {
        assert_eq!(strides(Duration::ZERO, &[US; 3]), [1, 1, 1]);
        assert_eq!(strides(Duration::MAX, &[US; 8]), [1, 2, 4, 8, 16, 32, 64, 64]);
        assert_eq!(strides(US, &[Duration::MAX / 64; 3]), [1, 1, 1]);
    }
}
