//! Whether the primary is still the one that we are connected to.
//!
//! A primary that was replaced does not know it at once: for some seconds it goes on answering, and what it admits then is
//! forgotten. The sentinels know, so they are asked.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, RedisResult};

/// Asks a sentinel who is the primary.
#[derive(Clone)]
pub(super) struct Watch {
    sentinels: Vec<ConnectionInfo>,
    service: String,
    /// The primary that we are connected to.
    at: String,
    /// To the sentinel that answered last.
    connection: Option<MultiplexedConnection>,
}

impl Watch {
    pub(super) fn new(sentinels: Vec<ConnectionInfo>, service: String, at: String) -> Self {
        Self { sentinels, service, at, connection: None }
    }

    /// Fails if another is the primary now. That no sentinel answers is no reason to leave the one there is.
    pub(super) async fn check(&mut self) -> RedisResult<()> {
        match self.primary().await {
            Some(primary) if primary != self.at => {
                Err(RedisError::from((ErrorKind::Io, "another is the primary now", primary)))
            }
            _ => Ok(()),
        }
    }

    /// Where the primary is, if a sentinel says so.
    async fn primary(&mut self) -> Option<String> {
        if self.connection.is_none() {
            self.connection = self.connect().await;
        }
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer: RedisResult<Option<(String, u16)>> = ask.query_async(self.connection.as_mut()?).await;
        if answer.is_err() {
            self.connection = None; // the next time another is asked
        }
        answer.ok().flatten().map(|(host, port)| format!("{host}:{port}"))
    }

    /// To the first that can be reached.
    async fn connect(&self) -> Option<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(super::PATIENCE / 4))
            .set_response_timeout(Some(super::PATIENCE / 4));
        for sentinel in &self.sentinels {
            let client = Client::open(sentinel.clone()).ok()?;
            if let Ok(connection) = client.get_multiplexed_async_connection_with_config(&config).await {
                return Some(connection);
            }
        }
        None
    }
}
