//! Many nodes that share one bucket over a network: what do leases cost?
//!
//! A model of the leases of `tollgate-redis`, one event after the other: callers come to nodes, nodes ask the server, and every
//! message takes its time. It has the same rules (how much is lent, when it is asked for, how long a refusal is believed), and none
//! of the code, which is tied to a server that goes by real time.

mod node;
mod server;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use tollgate_core::Quota;

use crate::history::Operation;
use crate::outcome::nanos;
use node::{Node, Said};
use server::{Reply, Server};

const SECOND: u64 = 1_000_000_000;

/// Some nodes, what they share, and how many come to them.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Kind, Quota};
/// use tollgate_sim::bound::Bound;
/// use tollgate_sim::fleet::Fleet;
///
/// let quota = Quota::per_second(1_000);
/// let fleet = Fleet { quota, nodes: 10, lease: 20, one_way: Duration::from_millis(5), demand: 3_000, seed: 1 };
/// let run = fleet.run(Duration::from_secs(2));
/// assert!(Bound::of(Kind::TokenBucket, quota).check(&run.admitted).is_ok());
/// assert!(run.missing() <= 10 * 20 && run.out <= 10 * 20);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// What they share: a token bucket that is full at the beginning.
    pub quota: Quota,
    /// How many nodes there are.
    pub nodes: u32,
    /// The most that each may have on lease; with less than two, everybody asks each time.
    pub lease: u64,
    /// How long a message takes to the server, and one back.
    pub one_way: std::time::Duration,
    /// How many come in a second, to any node, at random.
    pub demand: u64,
    /// What chance begins with.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Everything that was admitted in that time; an answer that is still on its way does not count.
    pub admitted: Vec<Operation>,
    /// How many came.
    pub asked: u64,
    /// How often the server was asked.
    pub calls: u64,
    /// The most that was out on lease at one time: so much is missing if those who have it do not need it.
    pub out: u64,
    /// What could have been admitted: what was asked for, and at most what the limit gives in that time.
    pub possible: u64,
}

impl Run {
    /// How much less was admitted than could have been.
    pub fn missing(&self) -> u64 {
        self.possible.saturating_sub(self.admitted.len() as u64)
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes { node: usize },
    AtServer { node: usize, call: Call },
    AtNode { node: usize, call: Call, reply: Reply },
}

/// A question, and the caller who asks it: when that one came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    sent: u64,
    /// `None` if more is asked for before somebody needs it.
    came: Option<u64>,
    /// `None` if nothing is to be lent.
    report: Option<Report>,
}

/// What a node says about its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Report {
    left: u64,
    keep: u64,
    want: u64,
}

impl Fleet {
    /// Lets so much time pass.
    pub fn run(&self, span: std::time::Duration) -> Run {
        let mut world = World::new(*self, nanos(span));
        while let Some(Reverse((now, _, event))) = world.events.pop() {
            world.happens(now, event);
        }
        let given = u128::from(self.quota.count()) * span.as_nanos() / self.quota.period().as_nanos();
        let limit = u128::from(self.quota.burst_size()) + given;
        let possible = u64::try_from(limit).unwrap_or(u64::MAX).min(world.asked);
        let World { admitted, asked, calls, out, .. } = world;
        Run { admitted, asked, calls, out, possible }
    }
}

/// Everything that changes.
struct World {
    fleet: Fleet,
    end: u64,
    rng: Rng,
    server: Server,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Keeps what happens at the same moment in order.
    number: u64,
    admitted: Vec<Operation>,
    asked: u64,
    calls: u64,
    out: u64,
}

impl World {
    fn new(fleet: Fleet, end: u64) -> Self {
        let server = Server::new(fleet.quota);
        let spare = if fleet.lease < 2 { 0 } else { server.spare(fleet.lease) };
        let mut world = Self {
            fleet,
            end,
            rng: Rng::with_seed(fleet.seed),
            server,
            nodes: (0..fleet.nodes).map(|_| Node::new(fleet.lease, spare)).collect(),
            events: BinaryHeap::new(),
            number: 0,
            admitted: Vec::new(),
            asked: 0,
            calls: 0,
            out: 0,
        };
        world.somebody_comes(0);
        world
    }

    fn at(&mut self, moment: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((moment, self.number, event)));
    }

    /// The next caller: the time until then is drawn as for those who know nothing of each other.
    #[allow(clippy::cast_precision_loss, reason = "chance is not that precise")]
    fn somebody_comes(&mut self, now: u64) {
        let mean = SECOND as f64 / self.fleet.demand.max(1) as f64;
        let moment = now + (-mean * (1.0 - self.rng.f64()).ln()) as u64 + 1;
        if moment < self.end {
            let node = self.rng.usize(..self.nodes.len());
            self.at(moment, Event::Comes { node });
        }
    }

    fn happens(&mut self, now: u64, event: Event) {
        let later = now + nanos(self.fleet.one_way);
        match event {
            Event::Comes { node } => {
                self.asked += 1;
                let said = self.nodes[node].asks(now);
                self.follow(node, now, now, said);
                self.somebody_comes(now);
            }
            Event::AtServer { node, call } => {
                self.calls += 1;
                let reply = self.server.hears(now, node, call);
                self.out = self.out.max(self.server.out());
                self.at(later, Event::AtNode { node, call, reply });
            }
            Event::AtNode { node, call, reply } => {
                self.nodes[node].hears(now, call, reply);
                if let Some(came) = call.came.filter(|_| reply.fits) {
                    self.admit(came, now);
                }
                let woken = if call.report.is_some() { self.nodes[node].woken() } else { Vec::new() };
                for came in woken {
                    let said = self.nodes[node].decides(now, came);
                    self.follow(node, now, came, said);
                }
            }
        }
    }

    /// Does what a node has said to somebody who came at `came`.
    fn follow(&mut self, node: usize, now: u64, came: u64, said: Said) {
        let later = now + nanos(self.fleet.one_way);
        match said {
            Said::Paid(refill) => {
                self.admit(came, now);
                if let Some(call) = refill {
                    self.at(later, Event::AtServer { node, call });
                }
            }
            Said::Refused | Said::Waits => {}
            Said::Call(call) => self.at(later, Event::AtServer { node, call }),
        }
    }

    fn admit(&mut self, invoke_ns: u64, response_ns: u64) {
        if response_ns <= self.end {
            self.admitted.push(Operation { invoke_ns, response_ns, cost: 1 });
        }
    }
}
