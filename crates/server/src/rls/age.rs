//! How long a connection may exist.

use std::future::pending;
use std::time::Duration;

use tollgate_flow::Time;

/// How long a gRPC connection may exist.
///
/// A gRPC client uses one connection for as long as it lasts, so it never reaches servers that were started later. A connection that
/// reaches its maximum age is sent a GOAWAY: the client opens another one, and calls that have begun are finished on the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionAge {
    /// The age at which a connection is sent a GOAWAY. Each connection gets up to a tenth less or more, so that clients that connected
    /// together do not reconnect together.
    pub max: Duration,
    /// How long calls may go on after that, before the connection is closed. `None` waits for all of them.
    pub grace: Option<Duration>,
}

/// The part of the maximum age by which connections differ from it at most.
const JITTER: f64 = 0.1;

impl ConnectionAge {
    /// Waits until a connection that begins now has reached its age. Returns the grace.
    pub(super) async fn reached(self) -> Option<Duration> {
        Time::tokio().sleep(self.of_one(fastrand::f64())).await;
        self.grace
    }

    /// Waits until one of these is [reached](Self::reached): for ever, if there is none.
    pub(super) async fn reached_if_any(age: Option<Self>) -> Option<Duration> {
        match age {
            Some(age) => age.reached().await,
            None => pending().await,
        }
    }

    /// The age of one connection, by a random number from 0 to 1.
    fn of_one(self, random: f64) -> Duration {
        self.max.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const AGE: ConnectionAge =
        ConnectionAge { max: Duration::from_secs(100), grace: Some(Duration::from_secs(7)) };

    /// Item 26.6: connections differ in their age by a tenth of it at most.
    #[test]
    fn of_one_is_within_a_tenth_of_the_maximum() {
        for (random, expected) in [(0.0, 90.0), (0.5, 100.0), (1.0, 110.0)] {
            let seconds = AGE.of_one(random).as_secs_f64();
            assert!((seconds - expected).abs() < 1e-3, "{seconds} for {random}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reached_waits_for_the_age_and_returns_the_grace() {
        let begin = Instant::now();
        assert_eq!(ConnectionAge::reached_if_any(Some(AGE)).await, AGE.grace);
        assert!((90..=110).contains(&begin.elapsed().as_secs()));
    }
}
