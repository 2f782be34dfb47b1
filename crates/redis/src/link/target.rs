//! Where to connect to.

use std::fmt;
use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult, TlsMode,
};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};
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
pub(crate) struct Target {
    place: Place,
    /// Our certificate, in the form that the client wants for servers whose addresses it learns from others.
    #[cfg(feature = "tls")]
    certificates: Option<TlsCertificates>,
}

#[derive(Clone)]
enum Place {
    One(ConnectionInfo),
    /// The server's address is not known yet.
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        server: ConnectionInfo,
    },
    Cluster(Vec<ConnectionInfo>),
}

/// What we prove who we are by, besides what the address says.
#[derive(Clone, Default)]
pub(crate) struct Proofs {
    /// To sentinels.
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<String>,
    /// A certificate and its key in PEM, to every server.
    #[cfg(feature = "tls")]
    pub(crate) certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl Target {
    /// Reads `redis://…`, `redis+sentinel://…/name` or `redis+cluster://…`.
    pub(crate) fn parse(url: &str, proofs: &Proofs) -> Result<Self, StoreError> {
        let target = Self {
            place: Place::parse(url)?,
            #[cfg(feature = "tls")]
            certificates: None,
        };
        let target = target.known_to_sentinels_as(proofs)?;
        #[cfg(feature = "tls")]
        let target = match &proofs.certificate {
            Some((certificate, key)) => target.with_certificate(certificate, key)?,
            None => target,
        };
        Ok(target)
    }

    fn known_to_sentinels_as(mut self, proofs: &Proofs) -> Result<Self, StoreError> {
        let Proofs { sentinel_user, sentinel_password, .. } = proofs;
        if sentinel_user.is_none() && sentinel_password.is_none() {
            return Ok(self);
        }
        let Place::Sentinel { sentinels, .. } = &mut self.place else {
            return Err(unusable("a user or password for Sentinels needs an address with redis+sentinel://"));
        };
        for sentinel in sentinels {
            let mut settings = sentinel.redis_settings().clone();
            if let Some(user) = sentinel_user {
                settings = settings.set_username(user);
            }
            if let Some(password) = sentinel_password {
                settings = settings.set_password(password);
            }
            *sentinel = sentinel.clone().set_redis_settings(settings);
        }
        Ok(self)
    }

    #[cfg(feature = "tls")]
    fn with_certificate(self, certificate: &[u8], key: &[u8]) -> Result<Self, StoreError> {
        let client_tls =
            Some(ClientTlsConfig { client_cert: certificate.to_vec(), client_key: key.to_vec() });
        let certificates = TlsCertificates { client_tls, root_cert: None };
        let secured = |node: ConnectionInfo| {
            if !matches!(node.addr(), ConnectionAddr::TcpTls { .. }) {
                return Err(unusable("a client certificate needs TLS: use rediss://"));
            }
            // The error may quote the key.
            let client = Client::build_with_tls(node, certificates.clone())
                .map_err(|_| unusable("the certificate or its key cannot be read; both must be in PEM"))?;
            Ok(client.get_connection_info().clone())
        };
        let all = |nodes: Vec<ConnectionInfo>| nodes.into_iter().map(secured).collect::<Result<Vec<_>, _>>();
        let place = match self.place {
            Place::One(server) => Place::One(secured(server)?),
            Place::Cluster(nodes) => Place::Cluster(all(nodes)?),
            Place::Sentinel { sentinels, service, server } => {
                Place::Sentinel { sentinels: all(sentinels)?, service, server: secured(server)? }
            }
        };
        Ok(Self { place, certificates: Some(certificates) })
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// Connects, within a bounded time.
    pub(super) async fn connect(&self) -> RedisResult<Wire> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER))
            .set_pipeline_buffer_size(READY);
        match &self.place {
            Place::One(server) => {
                let client = Client::open(server.clone())?;
                client.get_multiplexed_async_connection_with_config(&config).await.map(Wire::to_one)
            }
            Place::Sentinel { sentinels, service, server } => {
                let primary = self.sentinels(sentinels, service, server)?.async_get_client().await?;
                let at = primary.get_connection_info().addr().to_string();
                let wire =
                    primary.get_multiplexed_async_connection_with_config(&config).await.map(Wire::to_one)?;
                Ok(wire.watched_by(Watch::new(sentinels.clone(), service.clone(), at)))
            }
            Place::Cluster(nodes) => {
                let builder = ClusterClient::builder(nodes.clone())
                    .retries(0)
                    .connection_timeout(CONNECT)
                    .response_timeout(ANSWER)
                    .tcp_settings(tcp());
                #[cfg(feature = "tls")]
                let builder = match &self.certificates {
                    Some(certificates) => builder.certs(certificates.clone()),
                    None => builder,
                };
                builder.build()?.get_async_connection().await.map(Wire::to_cluster)
            }
        }
    }

    /// What asks sentinels for the primary.
    fn sentinels(
        &self,
        sentinels: &[ConnectionInfo],
        service: &str,
        server: &ConnectionInfo,
    ) -> RedisResult<SentinelClient> {
        let addresses = sentinels.iter().map(|sentinel| sentinel.addr().clone());
        let mut builder = SentinelClientBuilder::new(addresses, service, SentinelServerType::Master)?
            .set_client_to_redis_db(server.redis_settings().db())
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_sentinel_tcp_settings(tcp());
        if let Some(user) = server.redis_settings().username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = server.redis_settings().password() {
            builder = builder.set_client_to_redis_password(password);
        }
        // All are asked as the same user.
        let as_whom = sentinels.first().map(ConnectionInfo::redis_settings);
        if let Some(user) = as_whom.and_then(|settings| settings.username()) {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = as_whom.and_then(|settings| settings.password()) {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if matches!(server.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            builder = builder.set_client_to_redis_certificates(certificates.clone());
        }
        builder.build()
    }
}

impl Place {
    fn parse(url: &str) -> Result<Self, StoreError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(unreadable("missing scheme, such as redis://"));
        };
        match scheme.split_once('+') {
            None | Some((_, "unix")) => Ok(Self::One(node(url)?)),
            Some((scheme, "cluster")) => Self::cluster(scheme, rest),
            Some((scheme, "sentinel")) => Self::sentinel(scheme, rest),
            Some(_) => Err(unreadable("unknown scheme; expected cluster or sentinel after +")),
        }
    }

    fn cluster(scheme: &str, rest: &str) -> Result<Self, StoreError> {
        let List { user, hosts, path } = List::of(rest);
        let nodes = hosts.iter().map(|host| node(&format!("{scheme}://{user}{host}{path}")));
        match nodes.collect::<Result<Vec<_>, _>>()? {
            nodes if nodes.is_empty() => Err(unreadable("missing host")),
            nodes => Ok(Self::Cluster(nodes)),
        }
    }

    /// The path is the name of the service, then perhaps the number of the database. The user is that of the servers.
    fn sentinel(scheme: &str, rest: &str) -> Result<Self, StoreError> {
        let List { user, hosts, path } = List::of(rest);
        let (service, database) =
            path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        if service.is_empty() {
            return Err(unreadable("missing service name, as in redis+sentinel://host:26379/name"));
        }
        let sentinels = hosts.iter().map(|host| node(&format!("{scheme}://{host}")));
        let server = node(&format!("{scheme}://{user}localhost/{database}"))?;
        Ok(Self::Sentinel {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            service: service.to_owned(),
            server,
        })
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
        .map_err(|error| unreadable("missing host, as in redis://host:6379").caused_by(error))?;
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
    Err(unreadable("TLS needs the feature `tls` of tollgate-redis, which is not built in"))
}

/// The message does not quote the address, which may hold a password.
fn unreadable(why: &str) -> StoreError {
    StoreError::permanent(format!("invalid address of Redis: {why}"))
}

fn unusable(why: &str) -> StoreError {
    StoreError::permanent(format!("cannot use these Redis settings: {why}"))
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

impl fmt::Debug for Place {
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

    fn parse(url: &str) -> Result<Target, StoreError> {
        Target::parse(url, &Proofs::default())
    }

    fn place(url: &str) -> Place {
        parse(url).unwrap().place
    }

    fn shown(url: &str) -> String {
        format!("{:?}", parse(url).unwrap())
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
        let Place::One(one) = place("redis://u:p@h:1/3") else { panic!("one") };
        assert_eq!((one.redis_settings().db(), one.tcp_settings().nodelay()), (3, true));
        let Place::Cluster(nodes) = place("redis+cluster://u:p@a:1,b:2") else { panic!("cluster") };
        assert!(nodes.iter().all(|node| node.redis_settings().username() == Some("u")));
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn where_tls_is_not_built_in_that_is_said() {
        for url in ["rediss://:secret@host", "rediss+cluster://:secret@host", "rediss+sentinel://host/main"] {
            let error = parse(url).unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains("which is not built in"), "{error}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_reaches_every_server() {
        let is_tls = |node: &ConnectionInfo| {
            matches!(node.addr(), redis::ConnectionAddr::TcpTls { insecure: false, .. })
        };
        let Place::One(one) = place("rediss://u:p@h:1/3") else { panic!("one") };
        let Place::Cluster(nodes) = place("rediss+cluster://u:p@a:1,b:2") else { panic!("cluster") };
        let Place::Sentinel { sentinels, server, .. } = place("rediss+sentinel://a:1,b:2/main") else {
            panic!("sentinel")
        };
        assert!(is_tls(&one) && nodes.iter().all(is_tls) && sentinels.iter().all(is_tls) && is_tls(&server));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let cases = [
            ("localhost:6379", "missing scheme"),
            ("redis+cloud://:secret@x", "expected cluster or sentinel after +"),
            ("redis+sentinel://:secret@a:1", "missing service name"),
            ("redis://:secret@", "missing host"),
            ("redis+cluster://:secret@", "missing host"),
        ];
        for (url, why) in cases {
            let error = parse(url).unwrap_err();
            assert!(!error.is_transient() && error.to_string().contains(why), "{url}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    /// Answers, item 24: sentinels may ask for a user and password of their own.
    #[test]
    fn sentinels_have_a_user_of_their_own() {
        let proofs = Proofs {
            sentinel_user: Some("ann".to_owned()),
            sentinel_password: Some("hunter2".to_owned()),
            ..Proofs::default()
        };
        let target = Target::parse("redis+sentinel://bob:secret@a:1,b:2/main", &proofs).unwrap();
        assert!(!format!("{target:?}").contains("hunter2"));
        let Place::Sentinel { sentinels, server, .. } = target.place else { panic!("sentinels") };
        let asks_as = |node: &ConnectionInfo| {
            let settings = node.redis_settings();
            (settings.username().unwrap().to_owned(), settings.password().unwrap().to_owned())
        };
        let ann = ("ann".to_owned(), "hunter2".to_owned());
        assert_eq!(sentinels.iter().map(asks_as).collect::<Vec<_>>(), [ann.clone(), ann]);
        assert_eq!(asks_as(&server), ("bob".to_owned(), "secret".to_owned()));
        for url in ["redis://a:1", "redis+cluster://a:1"] {
            let error = Target::parse(url, &proofs).unwrap_err().to_string();
            assert!(
                error.contains("needs an address with redis+sentinel://") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }

    /// Answers, item 24: a certificate that cannot be used is an error that does not show its key.
    #[cfg(feature = "tls")]
    #[test]
    fn a_certificate_that_cannot_be_used_is_an_error() {
        let proofs =
            Proofs { certificate: Some((b"hunter2".to_vec(), b"hunter2".to_vec())), ..Proofs::default() };
        for (url, why) in [("redis://a:1", "use rediss://"), ("rediss://a:1", "both must be in PEM")] {
            let error = Target::parse(url, &proofs).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
    }
}
