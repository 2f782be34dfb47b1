//! From a request to its response, whatever carries them.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::Kind;
use tollgate::store::{Mode, Store};
use tonic::Status;

use super::RlsOptions;
use super::call::{self, Wish, Wishes};
use super::proto::{RateLimitRequest, RateLimitResponse};
use super::reply::{Reply, over_limit};
use crate::access::{Scope, Scopes};
use crate::engine::{Ask, AskError, Basis, Clerk, Finding, Opened, Ruling, Subject, is_counted};

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
/// If the call makes no sense, or nobody can tell.
pub(super) async fn decide<S: Store>(
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
        let error = match clerk.decide_each(&modes, &asks).await {
            Ok(ruling) => return question.answer(&ruling, options),
            Err(error) => error,
        };
        question.undecided(clerk, &error)
    })
    .await
}

fn decide_at_once<S: Store>(
    clerk: &mut Clerk<S>,
    options: RlsOptions,
    request: &RateLimitRequest,
) -> Result<Option<RateLimitResponse>, Status> {
    let question = Question::read(clerk, request)?;
    let (modes, asks) = (question.modes(), question.asks(options));
    let error = match clerk.decide_each_at_once(&modes, &asks) {
        Ok(ruling) => return ruling.map(|ruling| question.answer(&ruling, options)).transpose(),
        Err(error) => error,
    };
    question.undecided(clerk, &error).map(Some)
}

/// A call, understood.
struct Question<'a, S: Store> {
    request: &'a RateLimitRequest,
    wishes: Wishes<'a>,
    /// The limits that descriptors bring along.
    brought: SmallVec<[Option<Brought<S>>; 4]>,
}

impl<'a, S: Store> Question<'a, S> {
    fn read(clerk: &mut Clerk<S>, request: &'a RateLimitRequest) -> Result<Self, Status> {
        let wishes = call::read(request)?;
        let brought = bring(clerk, &request.domain, &wishes);
        Ok(Self { request, wishes, brought })
    }

    fn modes(&self) -> SmallVec<[Mode; 8]> {
        self.wishes.iter().map(|wish| wish.mode).collect()
    }

    fn asks(&self, options: RlsOptions) -> SmallVec<[Ask<'_, S>; 4]> {
        let each = self.wishes.iter().zip(&self.brought);
        each.map(|(wish, brought)| {
            let ask = match brought {
                _ if wish.fields.is_empty() => Ask::new(Subject::Nothing(&self.request.domain)),
                Some(brought) => {
                    Ask::limit(&brought.opened, &brought.key).in_place_of(&self.request.domain, &wish.fields)
                }
                None => Ask::new(Subject::Policy(&self.request.domain, &wish.fields)),
            };
            ask.costing(wish.cost).in_quota_mode(options.quota_mode).in_shadow_mode(options.shadow_mode)
        })
        .collect()
    }

    fn answer(&self, ruling: &Ruling<'_>, options: RlsOptions) -> Result<RateLimitResponse, Status> {
        if nobody_can_tell(ruling) {
            return Err(Status::unavailable("the store cannot tell, and a limit says to refuse then"));
        }
        Ok(Reply { request: self.request, wishes: &self.wishes, ruling, options }.response())
    }

    /// The response where nothing was decided. A bad value is a denial: Envoy would let a call pass that fails.
    fn undecided(&self, clerk: &mut Clerk<S>, error: &AskError) -> Result<RateLimitResponse, Status> {
        match error {
            AskError::BadValue { ask, .. } => {
                if self.wishes.iter().any(|wish| is_counted(wish.mode)) {
                    clerk.note_denied(Some(&self.request.domain));
                }
                Ok(over_limit(self.wishes.len(), |place| place == *ask))
            }
            AskError::Unavailable { .. } => Err(Status::unavailable(error.to_string())),
            AskError::TooManyHeld { .. } | AskError::Supplied { .. } => {
                Err(Status::resource_exhausted(error.to_string()))
            }
        }
    }
}

/// Whether somebody may ask this: to give back takes more than to ask.
///
/// # Errors
/// What it would take.
pub(super) fn may_ask(request: &RateLimitRequest, scopes: Scopes) -> Result<(), Status> {
    let gives_back = request.descriptors.iter().any(|descriptor| descriptor.is_negative_hits);
    if gives_back && !scopes.has(Scope::Settle) { Err(lacking(Scope::Settle)) } else { Ok(()) }
}

pub(super) fn lacking(scope: Scope) -> Status {
    Status::permission_denied(format!("this needs the scope {scope}, which you do not have"))
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
    let is_known = any && clerk.engine().loaded().policy().has_domain(domain);
    let bring = |wish: &Wish<'_>| {
        let quota = wish.instead.filter(|_| is_known && !wish.fields.is_empty())?;
        let opened = clerk.open(BROUGHT, "", Kind::FixedWindow, quota);
        Some(Brought { opened, key: whole(domain, wish) })
    };
    wishes.iter().map(bring).collect()
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

/// Whether it is refused for no other reason than that the store cannot tell: then Envoy's own setting decides.
fn nobody_can_tell(ruling: &Ruling<'_>) -> bool {
    let refuses = |finding: &&Finding<'_>| !finding.is_shadow && finding.is_refusal();
    !ruling.is_allowed()
        && !ruling.is_unmatched_denial()
        && ruling.findings().iter().filter(refuses).all(|finding| finding.basis == Basis::Closed)
}
