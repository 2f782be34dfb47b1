//! From a request to its response, whatever carries them.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::Quota;
use tollgate::store::{Mode, Rule, Store};
use tollgate_policy::{Descriptor, Match, Policy, Scratch};
use tonic::Status;

use super::RlsOptions;
use super::call::{self, Wish, Wishes};
use super::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use super::reply::{Reply, over_limit};
use crate::access::{Scope, Scopes};
use crate::engine::{Ask, AskError, Clerk, Opened, Ruling, Subject};

/// The domain of limits that callers bring along.
const BROUGHT: crate::engine::Family = crate::engine::Family::new("@envoy");

/// Decides a `RateLimitRequest` of a caller that has every scope.
///
/// # Errors
/// `INVALID_ARGUMENT` if the request is malformed, and `UNAVAILABLE` if the store is unavailable and a limit then denies.
///
/// # Cancel safety
/// Tokens that were taken before the future is dropped stay taken.
///
/// # Examples
/// ```
/// use tollgate::store::MemoryStore;
/// use tollgate_policy::Policy;
/// use tollgate_server::rls::proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest};
/// use tollgate_server::rls::{RlsOptions, should_rate_limit};
/// use tollgate_server::{Engine, Origin};
///
/// let policy = Policy::parse("limits.toml", "domain = \"web\"\n[limit.per-ip]\nkey = \"ip\"\nrate = \"1/h\"\n")?;
/// let mut clerk = Engine::new(MemoryStore::new(), policy, Origin::default()).clerk();
/// let entries = vec![Entry { key: "ip".into(), value: "10.0.0.7".into() }];
/// let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
/// let request = RateLimitRequest { domain: "web".into(), descriptors, hits_addend: 1 };
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// for code in [Code::Ok, Code::OverLimit] {
///     let response = should_rate_limit(&mut clerk, RlsOptions::default(), &request).await?;
///     assert_eq!(response.overall_code(), code);
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn should_rate_limit<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    decide(clerk, options, request).await
}

/// Decides about a call.
///
/// # Errors
/// If the request is malformed, or the store is unavailable and a limit denies then.
pub(super) async fn decide<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    let is_empty = request.domain.is_empty() || request.descriptors.is_empty();
    if is_empty && clerk.engine().loaded().policy().is_limitador() {
        return Box::pin(decide_as_limitador(clerk, options, request)).await;
    }
    decide_all(clerk, options, request).await
}

async fn decide_all<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    if let Some(response) = decide_at_once(clerk, options, request)? {
        return Ok(response);
    }
    // Boxed, because every call under way would carry around what few of them need.
    Box::pin(async {
        let question = Question::read(clerk, request)?;
        let (modes, asks) = (question.modes(), question.asks(options));
        match clerk.decide_each(&modes, &asks).await {
            Ok(ruling) => question.answer(&ruling, options),
            Err(error) => question.undecided(&error),
        }
    })
    .await
}

/// Decides about a call without a domain, or without descriptors, as limitador does: nothing is known of the former, and limits
/// without conditions and variables apply to the latter.
async fn decide_as_limitador<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, Status> {
    if request.domain.is_empty() {
        return Ok(RateLimitResponse::default());
    }
    let request = RateLimitRequest { descriptors: vec![RateLimitDescriptor::default()], ..request.clone() };
    let response = decide_all(clerk, options, &request).await?;
    Ok(RateLimitResponse { statuses: Vec::new(), ..response })
}

fn decide_at_once<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    request: &RateLimitRequest,
) -> Result<Option<RateLimitResponse>, Status> {
    let question = Question::read(clerk, request)?;
    let (modes, asks) = (question.modes(), question.asks(options));
    match clerk.decide_each_at_once(&modes, &asks) {
        Ok(ruling) => ruling.map(|ruling| question.answer(&ruling, options)).transpose(),
        Err(error) => question.undecided(&error).map(Some),
    }
}

/// A call, understood.
struct Question<'a, S: Store> {
    request: &'a RateLimitRequest,
    wishes: Wishes<'a>,
    /// The limits that descriptors bring along.
    brought: SmallVec<[Option<Brought<S>>; 4]>,
    /// Whether limits without conditions apply to descriptors without entries, as in limitador.
    has_bare_limits: bool,
}

impl<'a, S: Store> Question<'a, S> {
    fn read(clerk: &mut Clerk<S>, request: &'a RateLimitRequest) -> Result<Self, Status> {
        let wishes = call::read(request)?;
        let brought = bring(clerk, &request.domain, &wishes);
        let has_bare_limits = wishes.iter().any(|wish| wish.fields.is_empty())
            && clerk.engine().loaded().policy().is_limitador();
        Ok(Self { request, wishes, brought, has_bare_limits })
    }

    fn modes(&self) -> SmallVec<[Mode; 8]> {
        self.wishes.iter().map(|wish| wish.mode).collect()
    }

    fn asks(&self, options: RlsOptions) -> SmallVec<[Ask<'_, S>; 4]> {
        let each = self.wishes.iter().zip(&self.brought);
        each.map(|(wish, brought)| {
            let ask = match brought {
                _ if wish.fields.is_empty() && !self.has_bare_limits => {
                    Ask::new(Subject::Nothing(&self.request.domain))
                }
                Some(brought) => {
                    Ask::limit(&brought.opened, &brought.key).in_place_of(&self.request.domain, &wish.fields)
                }
                None => Ask::new(Subject::Policy(&self.request.domain, &wish.fields)),
            };
            ask.costing(wish.cost)
                .probing(wish.mode == Mode::Peek)
                .in_quota_mode(options.quota_mode)
                .in_shadow_mode(options.shadow_mode)
        })
        .collect()
    }

    fn answer(&self, ruling: &Ruling<'_>, options: RlsOptions) -> Result<RateLimitResponse, Status> {
        if ruling.is_denied_without_store() {
            return Err(Status::unavailable("store unavailable; a limit has on_store_failure = \"deny\""));
        }
        Ok(Reply { request: self.request, wishes: &self.wishes, ruling, options }.response())
    }

    /// The response where nothing was decided. A bad value is a denial: Envoy would let a call pass that fails.
    fn undecided(&self, error: &AskError) -> Result<RateLimitResponse, Status> {
        match error {
            AskError::BadValue { ask, .. } => Ok(over_limit(self.wishes.len(), |place| place == *ask)),
            AskError::Unavailable { .. } => Err(Status::unavailable(error.to_string())),
            AskError::TooManyHeld { .. } | AskError::Supplied { .. } => {
                Err(Status::resource_exhausted(error.to_string()))
            }
        }
    }
}

/// Checks that the caller may send this request: a refund needs the scope `settle`.
///
/// # Errors
/// `PERMISSION_DENIED` with the missing scope.
pub(super) fn may_ask(request: &RateLimitRequest, scopes: Scopes) -> Result<(), Status> {
    let gives_back = request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits);
    if gives_back && !scopes.has(Scope::Settle) { Err(lacking(Scope::Settle)) } else { Ok(()) }
}

pub(super) fn lacking(scope: Scope) -> Status {
    Status::permission_denied(format!("the scope {scope} is required"))
}

/// A limit that a descriptor brings along, and whose state of it is meant.
struct Brought<S: Store> {
    opened: Arc<Opened<S>>,
    key: Vec<u8>,
}

/// The limits that descriptors bring along. They only count where the policy has limits at all.
fn bring<S: Store>(
    clerk: &mut Clerk<S>,
    domain: &str,
    wishes: &[Wish<'_>],
) -> SmallVec<[Option<Brought<S>>; 4]> {
    let any = wishes.iter().any(|wish| wish.instead.is_some());
    let loaded = any.then(|| clerk.engine().loaded()).filter(|loaded| loaded.policy().has_domain(domain));
    let bring = |wish: &Wish<'_>| {
        let quota = wish.instead.filter(|_| !wish.fields.is_empty())?;
        let (rule, key) = counter_of(loaded.as_ref()?.policy(), domain, wish, quota);
        Some(Brought { opened: clerk.open_counter(BROUGHT, rule), key })
    };
    wishes.iter().map(bring).collect()
}

/// The counter of a descriptor that brings its own limit. It is the one of the configured limit, if both count in the same unit:
/// the number of a limit is no part of its counter.
fn counter_of(policy: &Policy, domain: &str, wish: &Wish<'_>, quota: Quota) -> (Rule, Vec<u8>) {
    let fields = wish.fields.iter();
    let descriptor = fields.fold(Descriptor::in_domain(domain), |all, (name, value)| all.with(name, value));
    let mut scratch = Scratch::new();
    let found = policy.matching(&descriptor, &mut scratch);
    match found.iter().find(|found| counts_alike(found, quota)) {
        Some(found) => {
            let limit = found.limit();
            (Rule::new(limit.domain(), limit.name(), quota).counting(), found.key().to_vec())
        }
        None => (Rule::new(BROUGHT.domain(), "", quota).counting().brought(), whole(domain, wish)),
    }
}

/// Whether a limit has a counter for each descriptor, in windows as long as those of a quota.
fn counts_alike(found: &Match<'_>, quota: Quota) -> bool {
    let is_shared = found.limit().entries().iter().any(|entry| entry.shared);
    let has_period = |own: &Quota| !own.is_unlimited() && own.period() == quota.period();
    found.limit().is_counter() && !is_shared && found.rates().quotas().iter().all(has_period)
}

/// All of a descriptor, so that no two have the same.
fn whole(domain: &str, wish: &Wish<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    let parts = wish.fields.iter().flat_map(|(name, value)| [name.as_bytes(), value]);
    for part in std::iter::once(domain.as_bytes()).chain(parts) {
        key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        key.extend_from_slice(part);
    }
    key
}
