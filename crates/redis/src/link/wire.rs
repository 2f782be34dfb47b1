//! A connection: to one server, or to a cluster.

use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use super::primary::Watch;

/// How often a command that a cluster sends elsewhere is sent again.
const REDIRECTIONS: u32 = 5;

/// A connection. Clones are the same.
#[derive(Clone)]
pub(super) struct Wire {
    to: To,
    /// Knows if another is the primary now.
    watch: Option<Watch>,
    /// Tells connections apart.
    id: Arc<()>,
}

#[derive(Clone)]
enum To {
    One(MultiplexedConnection),
    /// The client must not send anything twice by itself: it would also do so when it does not know what became of it.
    Cluster(ClusterConnection),
}

impl Wire {
    pub(super) fn to_one(connection: MultiplexedConnection) -> Self {
        Self { to: To::One(connection), watch: None, id: Arc::new(()) }
    }

    pub(super) fn to_cluster(connection: ClusterConnection) -> Self {
        Self { to: To::Cluster(connection), watch: None, id: Arc::new(()) }
    }

    /// The same, as long as it is the primary's.
    pub(super) fn watched_by(self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Whether it is the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.id, &other.id)
    }

    /// Asks the server whether it is there. A cluster's client looks after its nodes itself, and one that is gone must not keep us
    /// from the others.
    pub(super) async fn beat(&mut self) -> RedisResult<()> {
        if let Some(watch) = &mut self.watch {
            watch.check().await?;
        }
        match &self.to {
            To::One(_) => self.send(&redis::cmd("PING")).await.map(drop),
            To::Cluster(_) => Ok(()),
        }
    }

    /// Sends a command and waits for its answer.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match &mut self.to {
            To::One(connection) => connection.send_packed_command(command).await?.extract_error(),
            To::Cluster(connection) => send_to_cluster(connection, command).await,
        }
    }
}

/// Follows redirections, which all mean that nothing was done.
async fn send_to_cluster(connection: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
    let mut answer = connection.req_packed_command(command).await.and_then(Value::extract_error);
    for _ in 0..REDIRECTIONS {
        let Err(error) = &answer else { break };
        answer = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::TryAgain) => {
                // The client asks for the new map by itself, and has us wait for it.
                tokio::task::yield_now().await;
                connection.req_packed_command(command).await.and_then(Value::extract_error)
            }
            ErrorKind::Server(ServerErrorKind::Ask) => match asked_of(error) {
                Some(node) => ask(connection, command, node).await,
                None => break,
            },
            _ => break,
        };
    }
    answer
}

/// The node that a half-moved key is to be asked of.
fn asked_of(error: &RedisError) -> Option<SingleNodeRoutingInfo> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
}

async fn ask(
    connection: &mut ClusterConnection,
    command: &Cmd,
    node: SingleNodeRoutingInfo,
) -> RedisResult<Value> {
    let mut both = redis::pipe();
    both.cmd("ASKING").ignore().add_command(command.clone());
    let mut answers = connection.route_pipeline(both, 0, 2, node).await?;
    answers.pop().unwrap_or(Value::Nil).extract_error()
}
