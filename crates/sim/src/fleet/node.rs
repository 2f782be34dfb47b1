//! A node: what it has on lease, and when it asks. See `account.rs` in `tollgate-redis`.

use super::server::{Reply, TIME};
use super::{Call, Report, SECOND};

/// A lease is meant to last so long.
const HORIZON: u64 = TIME / 4;
/// What will be used within this time is asked for before it is needed.
const AHEAD: u64 = SECOND / 100;
/// How long a refusal is believed at most.
const REMEMBERED: u64 = SECOND / 50;
/// The largest first lease, and the smallest that is worth it.
const FIRST: u64 = 4;
const WORTHWHILE: u64 = 2;

pub(super) struct Node {
    most: u64,
    /// How long it is not worth asking again after a refusal.
    spare: u64,
    left: u64,
    until: u64,
    size: u64,
    low: u64,
    pace: u64,
    asked: u64,
    called: Option<u64>,
    is_calling: bool,
    is_tight: bool,
    refused_until: u64,
    /// When those came who wait for the answer to somebody else's question.
    waiting: Vec<u64>,
}

/// What a node does about somebody who asks.
#[derive(Clone, Copy)]
pub(super) enum Said {
    /// It admits by its lease, and perhaps asks for more.
    Paid(Option<Call>),
    Refused,
    Call(Call),
    /// Another call will probably answer this, too.
    Waits,
}

impl Node {
    pub(super) fn new(most: u64, spare: u64) -> Self {
        Self {
            most,
            spare,
            left: 0,
            until: 0,
            size: 0,
            low: 0,
            pace: 0,
            asked: 0,
            called: None,
            is_calling: false,
            is_tight: false,
            refused_until: 0,
            waiting: Vec::new(),
        }
    }

    /// Somebody comes.
    pub(super) fn asks(&mut self, now: u64) -> Said {
        self.asked += 1;
        if self.left == 0 && now >= self.refused_until && self.is_calling && (self.size > 0 || self.is_tight)
        {
            self.waiting.push(now);
            return Said::Waits;
        }
        self.decides(now, now)
    }

    /// Those who have waited.
    pub(super) fn woken(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting)
    }

    /// About somebody who came at `came`.
    pub(super) fn decides(&mut self, now: u64, came: u64) -> Said {
        if now >= self.until {
            self.left = 0;
        }
        if self.left > 0 {
            self.left -= 1;
            let is_low = self.left <= self.low && self.low > 0 && !self.is_calling;
            return Said::Paid(is_low.then(|| self.call(now, None)));
        }
        if now < self.refused_until {
            return Said::Refused;
        }
        if self.is_calling || self.most < WORTHWHILE {
            return Said::Call(Call { sent: now, came: Some(came), report: None });
        }
        Said::Call(self.call(now, Some(came)))
    }

    /// Asks for somebody, or only for more. What is left stays.
    fn call(&mut self, now: u64, came: Option<u64>) -> Call {
        let (size, pace) = self.wish(now);
        let report = Report { left: self.left, keep: self.left, want: size.saturating_sub(self.left) };
        (self.asked, self.called, self.is_calling, self.pace) = (0, Some(now), true, pace);
        Call { sent: now, came, report: Some(report) }
    }

    fn wish(&self, now: u64) -> (u64, u64) {
        let Some(called) = self.called else { return (0, 0) };
        let within =
            |span: u64| u128::from(self.asked) * u128::from(span) / u128::from((now - called).max(1));
        let [wanted, pace] = [HORIZON, AHEAD].map(|span| u64::try_from(within(span)).unwrap_or(u64::MAX));
        let size = wanted.min(self.size.saturating_mul(2).max(FIRST)).min(self.most);
        (if size < WORTHWHILE { 0 } else { size }, pace)
    }

    pub(super) fn hears(&mut self, now: u64, call: Call, reply: Reply) {
        self.is_tight = !reply.fits;
        if self.is_tight && self.most >= WORTHWHILE {
            self.refused_until = now + reply.wait.max(self.spare).min(REMEMBERED);
        }
        if let Some(report) = call.report {
            self.is_calling = false;
            self.left += reply.lent;
            self.size = report.keep + reply.lent;
            self.low = self.pace.min(self.size / 2);
            self.until = call.sent + TIME / 16 * 15;
            if reply.lent > 0 {
                self.refused_until = 0;
            }
        }
    }
}
