//! Everything there is to say about limits in front of a service.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tollgate::store::{MemoryStore, Store};
use tollgate_flow::Time;
use tollgate_http::{ClientAddress, Form, IpNet, Writer};
#[cfg(feature = "policy")]
use tollgate_policy::Policy;

#[cfg(feature = "policy")]
use super::by_policy::Vocabulary;
use super::current::Current;
use super::denial::Denial;
use super::error::LimitError;
use super::layer::RateLimitLayer;
use super::rules::Rules;
use crate::client_address::Clients;
#[cfg(feature = "policy")]
use crate::cost::Cost;
use crate::head::Head;
#[cfg(feature = "policy")]
use crate::key::Key;
use crate::limit::Limit;

/// What to do while the store cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unavailable {
    /// All calls pass.
    Open,
    /// All calls are refused, with status 503.
    Closed,
    /// This process decides alone, by its [share](tollgate::store::Rule::share) of each limit and a state of its own: one of
    /// as many shares as processes shared the store when it was last seen, or as [`processes`](RateLimitBuilder::processes) says.
    #[default]
    Local,
}

/// Makes a [`RateLimitLayer`].
pub struct RateLimitBuilder<S: Store = MemoryStore> {
    pub(super) store: S,
    pub(super) limits: Vec<Limit>,
    pub(super) options: Options,
    #[cfg(feature = "policy")]
    pub(super) policy: Option<Policy>,
}

/// What does not depend on the store.
pub(super) struct Options {
    pub(super) domain: Arc<str>,
    pub(super) clients: Clients,
    pub(super) allowed: Vec<IpNet>,
    pub(super) unavailable: Unavailable,
    pub(super) processes: Option<u32>,
    #[cfg(feature = "policy")]
    pub(super) vocabulary: Vocabulary,
    pub(super) writer: Writer,
    pub(super) on_denial: Arc<OnDenial>,
    pub(super) time: Option<Time>,
}

pub(super) type OnDenial = dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync;

impl RateLimitBuilder {
    pub(super) fn new() -> Self {
        let options = Options {
            domain: "default".into(),
            clients: Clients::default(),
            allowed: Vec::new(),
            unavailable: Unavailable::default(),
            processes: None,
            #[cfg(feature = "policy")]
            vocabulary: Vocabulary::default(),
            writer: Writer::new(),
            on_denial: Arc::new(|denial: &Denial<'_>| denial.response()),
            time: None,
        };
        Self {
            store: MemoryStore::new(),
            limits: Vec::new(),
            options,
            #[cfg(feature = "policy")]
            policy: None,
        }
    }
}

impl<S: Store> RateLimitBuilder<S> {
    /// A further limit. A call takes of all that apply to it, or of none.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Where the state lives; unless this says otherwise, in this process.
    #[must_use]
    pub fn store<T: Store>(self, store: T) -> RateLimitBuilder<T> {
        RateLimitBuilder {
            store,
            limits: self.limits,
            options: self.options,
            #[cfg(feature = "policy")]
            policy: self.policy,
        }
    }

    /// What the limits belong to, for the store, for policies and for metrics; `default` unless this says otherwise. Layers
    /// with equal limits of the same domain share their state, if they share the store.
    #[must_use]
    pub fn domain(self, domain: impl Into<Arc<str>>) -> Self {
        self.with(|options| options.domain = domain.into())
    }

    /// How a caller's address is found out; unless this says otherwise, it is the other end of the connection, and IPv6
    /// addresses count by their /64.
    #[must_use]
    pub fn clients(self, clients: ClientAddress) -> Self {
        self.with(|options| options.clients.address = clients)
    }

    /// Where the address of the connection's other end is found. Unless this says otherwise: in the request's extensions, as a
    /// `SocketAddr`, an `IpAddr`, or with the feature `axum` as its `ConnectInfo<SocketAddr>`.
    #[must_use]
    pub fn peer(self, peer: impl Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|options| options.clients.peer = Some(Arc::new(peer)))
    }

    /// Callers from that network are not limited at all.
    #[must_use]
    pub fn allow(self, network: IpNet) -> Self {
        self.with(|options| options.allowed.push(network))
    }

    /// What to do while the store cannot tell.
    #[must_use]
    pub fn if_unavailable(self, unavailable: Unavailable) -> Self {
        self.with(|options| options.unavailable = unavailable)
    }

    /// How many processes share the store, so that each has its share of every limit while it [decides alone](Unavailable::Local).
    /// Unless this says otherwise, as many as the [store last saw](Store::nodes).
    #[must_use]
    pub fn processes(self, processes: u32) -> Self {
        self.with(|options| options.processes = Some(processes))
    }

    /// In which words callers are told how they stand.
    #[must_use]
    pub fn form(self, form: Form) -> Self {
        self.with(|options| options.writer = Writer::new().form(form))
    }

    /// What refused callers get instead of the [usual answer](Denial::response). The fields are still added,
    /// and `Retry-After` too, unless it has one.
    #[must_use]
    pub fn on_denial(self, answer: impl Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        self.with(|options| options.on_denial = Arc::new(answer))
    }

    /// Whose time calls wait by that a leaky queue delays; unless this says otherwise, tokio's.
    #[must_use]
    pub fn time(self, time: Time) -> Self {
        self.with(|options| options.time = Some(time))
    }

    /// The layer.
    ///
    /// # Errors
    /// [`LimitError`], if there is no limit, callers cannot be told of the name of one, or two have the same.
    pub fn build(self) -> Result<RateLimitLayer<S>, LimitError> {
        Rules::new(self).map(|rules| RateLimitLayer { current: Current::new(rules) })
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }
}

#[cfg(feature = "policy")]
impl<S: Store> RateLimitBuilder<S> {
    /// Limits that a policy says, besides those that are said here: all of them that are in the layer's
    /// [domain](Self::domain). It can be [replaced](RateLimitLayer::set_policy) at any time.
    ///
    /// A policy knows requests by fields: `ip` (the caller's address, of IPv6 the network), `method`, `path`, `host`, with the
    /// feature `axum` also `route`, and what [`field`](Self::field) adds. A limit that has `on_bad_value = "deny"` denies
    /// a call with status 400 if its cost is no whole number or an expression fails on one of its values.
    ///
    /// # Examples
    /// ```
    /// use tollgate_policy::Policy;
    /// use tollgate_tower::{Key, RateLimitLayer};
    ///
    /// struct Plan(&'static str);
    ///
    /// let policy = Policy::parse("limits.toml", r#"
    ///     [limit.per-ip]
    ///     key = "ip"
    ///     rate = "10/s burst 20"
    ///     overrides = [{ field = "plan", rates = { pro = "100/s" } }]
    /// "#)?;
    /// let layer = RateLimitLayer::builder()
    ///     .field("plan", Key::extension(|plan: &Plan| plan.0))
    ///     .policy(policy)
    ///     .build()?;
    /// // Some time later:
    /// layer.set_policy(Policy::parse("limits.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"5/s\"\n")?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// What a policy calls `name` is this of a request. A request that lacks it does not have the field.
    #[must_use]
    pub fn field(self, name: impl Into<String>, value: Key) -> Self {
        self.with(|options| options.vocabulary.add_field(name.into(), value))
    }

    /// What calls cost by the policy's limit of that name, and how it is settled; one unless this says otherwise. Where the
    /// limit has a cost field, that says what is taken at first.
    #[must_use]
    pub fn policy_cost(self, limit: impl Into<String>, cost: Cost) -> Self {
        self.with(|options| options.vocabulary.add_cost(limit.into(), cost))
    }
}

impl<S: Store> fmt::Debug for RateLimitBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBuilder")
            .field("limits", &self.limits)
            .field("domain", &self.options.domain)
            .field("unavailable", &self.options.unavailable)
            .finish_non_exhaustive()
    }
}
