//! The connection, kept up by a task in the background.
//!
//! Nobody waits for a server that is not there. The first call starts the task and waits for its first attempt; after that a
//! call takes the connection there is, or fails at once. The task looks after the connection twice a second, so that one which
//! leads nowhere is noticed though nobody hears from it, and tries again a few times a second while there is none.
//!
//! Concurrent calls share the connection: the client writes what has come together in one go, and answers come back
//! in order. So they are pipelined without waiting for each other, and there is nothing to pool.
//!
//! The task also says that this process is here, and hears how many others are: `presence.rs`.

mod presence;
mod primary;
mod target;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tollgate::store::StoreError;

use crate::error;
pub(crate) use presence::Presence;
pub(crate) use target::{Proofs, Target};
use wire::Wire;

/// How often the task looks after a connection, and how long the server may take to show that it is there.
const HEARTBEAT: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(1);
/// The shortest pause between two attempts to connect, and what is added to it at most: how much of that is drawn, so that many
/// processes do not come back at once.
const PAUSE: Duration = Duration::from_millis(50);
const SPREAD: Duration = Duration::from_millis(200);

/// A connection that is kept up. Clones are the same.
#[derive(Clone)]
pub(crate) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    target: Target,
    /// None if it is not to be counted.
    presence: Option<Arc<Presence>>,
    status: watch::Sender<Status>,
    /// Wakes the task when a connection is found broken, or nobody needs it any more.
    broken: Arc<Notify>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What there is at the moment.
#[derive(Clone)]
enum Status {
    /// Nobody has tried yet, or the first attempt is under way.
    Unknown,
    Up(Wire),
    /// Why the last attempt failed.
    Down(Arc<str>),
}

impl Link {
    pub(crate) fn new(target: Target, presence: Option<Presence>) -> Self {
        let shared = Shared {
            target,
            presence: presence.map(Arc::new),
            status: watch::Sender::new(Status::Unknown),
            broken: Arc::default(),
            task: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether keys may lie on different servers.
    pub(crate) fn is_cluster(&self) -> bool {
        self.shared.target.is_cluster()
    }

    /// How many share the server, as far as is known.
    pub(crate) fn nodes(&self) -> u32 {
        self.shared.presence.as_ref().map_or(1, |presence| presence.nodes())
    }

    /// Sends a command and waits for its answer. It is sent at most once, but for redirections of a cluster, which did nothing.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Result<Value, RedisError>, StoreError> {
        let mut wire = self.wire().await?;
        let answer = wire.send(command).await;
        if let Err(failed) = &answer
            && error::asks_for_another_connection(failed)
            && !self.is_cluster()
        {
            self.give_up(&wire, failed);
        }
        Ok(answer)
    }

    /// Waits until there is a connection; fails if an attempt to make one does.
    async fn wire(&self) -> Result<Wire, StoreError> {
        if let Status::Up(wire) = &*self.shared.status.borrow() {
            return Ok(wire.clone());
        }
        self.keep_up()?;
        let mut status = self.shared.status.subscribe();
        let known = status.wait_for(|status| !matches!(status, Status::Unknown)).await;
        match known.as_deref() {
            Ok(Status::Up(wire)) => Ok(wire.clone()),
            Ok(Status::Down(why)) => Err(error::not_connected(why)),
            Ok(Status::Unknown) | Err(_) => Err(error::not_connected("the store was dropped")),
        }
    }

    /// Makes sure that the task is running.
    fn keep_up(&self) -> Result<(), StoreError> {
        let mut task = self.shared.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
                StoreError::permanent("a Redis store needs a tokio runtime").caused_by(error)
            })?;
            // A runtime that was shut down took the connection with it.
            self.shared.status.send_replace(Status::Unknown);
            let broken = Arc::clone(&self.shared.broken);
            *task = Some(runtime.spawn(keep_up(Arc::downgrade(&self.shared), broken)));
        }
        Ok(())
    }

    /// A connection is no good any more, unless there is another one already.
    fn give_up(&self, wire: &Wire, why: &RedisError) {
        let is_current = |status: &Status| matches!(status, Status::Up(current) if current.is(wire));
        let was_current = self.shared.status.send_if_modified(|status| {
            let is_current = is_current(status);
            if is_current {
                *status = Status::Down(why.to_string().into());
            }
            is_current
        });
        if was_current {
            self.shared.broken.notify_one();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.broken.notify_one();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.shared.target).finish()
    }
}

/// The task: connects, and again when that is needed, as long as somebody has the link.
async fn keep_up(link: Weak<Shared>, broken: Arc<Notify>) {
    let about = |shared: Arc<Shared>| (shared.target.clone(), shared.presence.clone());
    while let Some((target, presence)) = link.upgrade().map(about) {
        let connected = target.connect().await;
        let Some(shared) = link.upgrade() else { return };
        match connected {
            Ok(mut wire) => {
                let before = shared.status.send_replace(Status::Up(wire.clone()));
                let returned = matches!(before, Status::Down(_)).then_some(&target);
                drop(shared);
                let (why, beats) = broke(&mut wire, &broken, presence.as_deref(), returned).await;
                match (link.upgrade(), presence) {
                    (Some(shared), _) => _ = shared.status.send_replace(Status::Down(why)),
                    (None, Some(presence)) => presence.leave(&mut wire).await,
                    (None, None) => {}
                }
                if beats == 0 {
                    tokio::time::sleep(pause()).await; // so that nobody connects as fast as callers come
                }
            }
            Err(error) => {
                shared.status.send_replace(Status::Down(error.to_string().into()));
                drop(shared);
                tokio::time::sleep(pause()).await;
            }
        }
    }
}

/// Returns when a connection has broken, and says why, and how many heartbeats it has lasted. After the first one it logs that the
/// target has `returned`, if it was away.
async fn broke(
    wire: &mut Wire,
    broken: &Notify,
    presence: Option<&Presence>,
    returned: Option<&Target>,
) -> (Arc<str>, u32) {
    let mut beats = 0;
    loop {
        if let Some(presence) = presence {
            presence.say(wire, beats).await;
        }
        tokio::select! {
            () = broken.notified() => return ("the connection broke".into(), beats),
            () = tokio::time::sleep(HEARTBEAT) => {}
        }
        match tokio::time::timeout(PATIENCE, wire.beat()).await {
            Ok(Ok(())) => {
                if let (0, Some(target)) = (beats, returned) {
                    tracing::info!(store = ?target, "Redis responds again");
                }
                beats += 1;
            }
            Ok(Err(error)) => return (error.to_string().into(), beats),
            Err(_) => return (format!("no response within {PATIENCE:?}").into(), beats),
        }
    }
}

fn pause() -> Duration {
    PAUSE + SPREAD.mul_f64(fastrand::f64())
}
