//! Where to connect to.

use std::fmt;
use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisResult, TlsMode};
use tollgate::store::StoreError;

use super::primary::Watch;
use super::wire::Wire;

/// How long making a connection may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How long an answer may take, for callers that have no time-out of their own.
const ANSWER: Duration = Duration::from_secs(1);
/// How many calls may lie ready to be written.
const READY: usize = 1_024;

/// One server, whichever is the primary of several, or a cluster.
#[derive(Clone)]
pub(crate) enum Target {
    One(ConnectionInfo),
    Sentinel { sentinels: Vec<ConnectionInfo>, service: String, node: SentinelNodeConnectionInfo },
    Cluster(Vec<ConnectionInfo>),
}

impl Target {
    /// Reads `redis://…`, `redis+sentinel://…/name` or `redis+cluster://…`.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(unreadable("it has no scheme, such as redis://"));
        };
        match scheme.split_once('+') {
            None | Some((_, "unix")) => Ok(Self::One(node(url)?)),
            Some((scheme, "cluster")) => Self::cluster(scheme, rest),
            Some((scheme, "sentinel")) => Self::sentinel(scheme, rest),
            Some(_) => Err(unreadable("after a + there may be cluster or sentinel")),
        }
    }

    fn cluster(scheme: &str, rest: &str) -> Result<Self, StoreError> {
        let List { user, hosts, path } = List::of(rest);
        let nodes = hosts.iter().map(|host| node(&format!("{scheme}://{user}{host}{path}")));
        match nodes.collect::<Result<Vec<_>, _>>()? {
            nodes if nodes.is_empty() => Err(unreadable("a cluster needs a host")),
            nodes => Ok(Self::Cluster(nodes)),
        }
    }

    /// The path is the name of the service, then perhaps the number of the database. The user is that of the servers.
    fn sentinel(scheme: &str, rest: &str) -> Result<Self, StoreError> {
        let List { user, hosts, path } = List::of(rest);
        let (service, database) =
            path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        if service.is_empty() {
            return Err(unreadable(
                "after the sentinels there must be the name of the service, as in redis+sentinel://host:26379/name",
            ));
        }
        let sentinels = hosts.iter().map(|host| node(&format!("{scheme}://{host}")));
        let server = node(&format!("{scheme}://{user}localhost/{database}"))?;
        let mut node = SentinelNodeConnectionInfo::default()
            .set_tcp_settings(server.tcp_settings().clone())
            .set_redis_connection_info(server.redis_settings().clone());
        if is_tls(scheme) {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        Ok(Self::Sentinel {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            service: service.to_owned(),
            node,
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Connects, within a bounded time.
    pub(super) async fn connect(&self) -> RedisResult<Wire> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER))
            .set_pipeline_buffer_size(READY);
        match self {
            Self::One(server) => {
                let client = Client::open(server.clone())?;
                client.get_multiplexed_async_connection_with_config(&config).await.map(Wire::to_one)
            }
            Self::Sentinel { sentinels, service, node } => {
                let mut client = SentinelClient::build(
                    sentinels.clone(),
                    service.clone(),
                    Some(node.clone()),
                    SentinelServerType::Master,
                )?;
                let primary = client.async_get_client().await?;
                let at = primary.get_connection_info().addr().to_string();
                let wire =
                    primary.get_multiplexed_async_connection_with_config(&config).await.map(Wire::to_one)?;
                Ok(wire.watched_by(Watch::new(sentinels.clone(), service.clone(), at)))
            }
            Self::Cluster(nodes) => {
                let client = ClusterClient::builder(nodes.clone())
                    .retries(0)
                    .connection_timeout(CONNECT)
                    .response_timeout(ANSWER)
                    .tcp_settings(tcp())
                    .build()?;
                client.get_async_connection().await.map(Wire::to_cluster)
            }
        }
    }
}

/// Without Nagle's algorithm, which would hold a call back until the answer to the one before has been acknowledged.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn node(url: &str) -> Result<ConnectionInfo, StoreError> {
    if is_tls(url.split(':').next().unwrap_or_default()) {
        prepare_tls()?;
    }
    let info = url
        .into_connection_info()
        .map_err(|error| unreadable("it wants a host, as in redis://host:6379").caused_by(error))?;
    Ok(info.set_tcp_settings(tcp()))
}

fn is_tls(scheme: &str) -> bool {
    matches!(scheme, "rediss" | "valkeys")
}

/// Of those who know how to encrypt, the client wants one to be chosen for the whole process; whoever has chosen keeps theirs.
#[cfg(feature = "tls")]
#[allow(clippy::unnecessary_wraps, reason = "without the feature it fails")]
fn prepare_tls() -> Result<(), StoreError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn prepare_tls() -> Result<(), StoreError> {
    Err(unreadable("TLS is the feature `tls` of tollgate-redis, which is not built in"))
}

/// The address is not part of it: it may hold a password.
fn unreadable(why: &str) -> StoreError {
    StoreError::permanent(format!("the address of redis cannot be read: {why}"))
}

/// What comes after `://` where there are several hosts.
struct List<'a> {
    /// With the `@` that ends it; empty if there is none.
    user: &'a str,
    hosts: Vec<&'a str>,
    /// With the slash that begins it; empty if there is none.
    path: &'a str,
}

impl<'a> List<'a> {
    fn of(rest: &'a str) -> Self {
        let (user, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        Self { user, hosts: hosts.split(',').filter(|host| !host.is_empty()).collect(), path }
    }
}

impl fmt::Debug for Target {
    /// Without users and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses =
            |nodes: &[ConnectionInfo]| nodes.iter().map(|node| node.addr().to_string()).collect::<Vec<_>>();
        match self {
            Self::One(node) => f.debug_tuple("One").field(&node.addr().to_string()).finish(),
            Self::Sentinel { sentinels, service, .. } => f
                .debug_struct("Sentinel")
                .field("sentinels", &addresses(sentinels))
                .field("service", service)
                .finish(),
            Self::Cluster(nodes) => f.debug_tuple("Cluster").field(&addresses(nodes)).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        format!("{:?}", Target::parse(url).unwrap())
    }

    #[test]
    fn addresses_of_every_kind_are_read() {
        assert_eq!(shown("redis://127.0.0.1:7000/3"), r#"One("127.0.0.1:7000")"#);
        assert_eq!(shown("redis+cluster://a:1,b:2"), r#"Cluster(["a:1", "b:2"])"#);
        assert_eq!(
            shown("redis+sentinel://:secret@a:1,b:2/main/4"),
            r#"Sentinel { sentinels: ["a:1", "b:2"], service: "main" }"#
        );
    }

    #[test]
    fn users_databases_and_nodelay_reach_every_server() {
        let Target::One(one) = Target::parse("redis://u:p@h:1/3").unwrap() else { panic!("one") };
        assert_eq!((one.redis_settings().db(), one.tcp_settings().nodelay()), (3, true));
        let Target::Cluster(nodes) = Target::parse("redis+cluster://u:p@a:1,b:2").unwrap() else {
            panic!("cluster")
        };
        assert!(nodes.iter().all(|node| node.redis_settings().username() == Some("u")));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn where_tls_is_not_built_in_that_is_said() {
        for url in ["rediss://:secret@host", "rediss+cluster://:secret@host", "rediss+sentinel://host/main"] {
            let error = Target::parse(url).unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains("which is not built in"), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_reaches_every_server() {
        let is_tls = |node: &ConnectionInfo| {
            matches!(node.addr(), redis::ConnectionAddr::TcpTls { insecure: false, .. })
        };
        let Target::One(one) = Target::parse("rediss://u:p@h:1/3").unwrap() else { panic!("one") };
        let Target::Cluster(nodes) = Target::parse("rediss+cluster://u:p@a:1,b:2").unwrap() else {
            panic!("cluster")
        };
        let Target::Sentinel { sentinels, node, .. } =
            Target::parse("rediss+sentinel://a:1,b:2/main").unwrap()
        else {
            panic!("sentinel")
        };
        assert!(is_tls(&one) && nodes.iter().all(is_tls) && sentinels.iter().all(is_tls));
        assert!(format!("{node:?}").contains("Secure"), "{node:?}");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let cases = [
            ("localhost:6379", "it has no scheme"),
            ("redis+cloud://:secret@x", "after a + there may be cluster or sentinel"),
            ("redis+sentinel://:secret@a:1", "the name of the service"),
            ("redis://:secret@", "wants a host"),
            ("redis+cluster://:secret@", "needs a host"),
        ];
        for (url, why) in cases {
            let error = Target::parse(url).unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains(why), "{url}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
    }
}
