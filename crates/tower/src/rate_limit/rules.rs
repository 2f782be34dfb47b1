//! The limits, and what they say of a call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use smallvec::SmallVec;
use tollgate::store::{Answer, MemoryPermit, MemoryStore, Said, Store, StoreError};
use tollgate::{Decision, Verdict};
use tollgate_flow::Time;
use tollgate_http::Standing;

use super::builder::{Options, RateLimitBuilder, Unavailable};
use super::denial::{Denial, Reason};
use super::desk::{Desk, Want, Wants};
use super::error::LimitError;
use crate::head::Head;
use crate::key::{KeyBytes, NoKey};
use crate::limit::Limit;
use crate::observe::{Observer, Outcome};

/// The limits of a layer, and where their state lives.
pub(crate) struct Rules<S: Store> {
    entries: Vec<Entry>,
    pub(super) desk: Desk<S>,
    /// Who decides while the store cannot.
    pub(super) local: Option<Desk<MemoryStore>>,
    options: Options,
    pub(super) observer: Observer,
}

pub(super) struct Entry {
    pub(super) limit: Limit,
    /// As callers are told of it, for each quota.
    told: Vec<tollgate_http::Limit>,
    name: Arc<str>,
}

/// What a call wants.
#[derive(Default)]
pub(super) struct Asked {
    enforced: Wants,
    shadow: Wants,
    /// The limit that refuses it because it has no key.
    nameless: Option<usize>,
}

/// What is done with a call.
pub(super) enum Ruling<S: Store> {
    Pass(Pass<S>),
    Refuse(Refusal),
}

/// A decision that is not there yet.
pub(super) type Judging<S> = Pin<Box<dyn Future<Output = Ruling<S>> + Send>>;

/// A call that passes, and what it took.
pub(super) struct Pass<S: Store> {
    pub(super) enforced: Taken<S>,
    pub(super) shadow: Option<Box<Taken<S>>>,
}

pub(super) struct Taken<S: Store> {
    pub(super) wants: Wants,
    /// None if nobody was asked, or nobody could tell.
    pub(super) answer: Option<Answer>,
    pub(super) held: Option<Held<S>>,
}

/// What can be settled.
pub(super) enum Held<S: Store> {
    Store(S::Permit),
    Local(MemoryPermit),
}

pub(super) struct Refusal {
    reason: Reason,
    wants: Wants,
    answer: Option<Answer>,
    nameless: Option<usize>,
}

impl<S: Store> Rules<S> {
    pub(super) fn new(builder: RateLimitBuilder<S>) -> Result<Self, LimitError> {
        let RateLimitBuilder { store, limits, options } = builder;
        let mut entries: Vec<Entry> = Vec::with_capacity(limits.len());
        for limit in limits {
            if entries.iter().any(|entry| entry.limit.name == limit.name) {
                return Err(LimitError::SameName(limit.name));
            }
            let (told, name) = (limit.told()?, limit.name.as_str().into());
            entries.push(Entry { limit, told, name });
        }
        let rules: Vec<_> = entries.iter().map(|entry| entry.limit.rule(&options.domain)).collect();
        let local = matches!(options.unavailable, Unavailable::Local).then(|| {
            let store = MemoryStore::new();
            let limits = rules.iter().map(|rule| store.open(rule)).collect();
            Desk::new(store, limits)
        });
        let opened = rules.iter().map(|rule| store.open(rule)).collect();
        let observer = Observer::new(Arc::clone(&options.domain));
        Ok(Self { entries, desk: Desk::new(store, opened), local, options, observer })
    }

    pub(super) fn limits(&self) -> Vec<&Limit> {
        self.entries.iter().map(|entry| &entry.limit).collect()
    }

    pub(super) fn entry(&self, want: &Want) -> &Entry {
        &self.entries[want.limit]
    }

    /// What a call wants of which limits.
    pub(super) fn read(&self, head: &Head<'_>) -> Asked {
        let mut asked = Asked::default();
        if self.is_exempt(head) {
            return asked;
        }
        for (limit, entry) in self.entries.iter().enumerate() {
            let Entry { limit: rule, .. } = entry;
            if !rule.applies_to(head) {
                continue;
            }
            let Some(key) = self.key(entry, head) else {
                if rule.no_key == NoKey::Refuse && !rule.is_shadow {
                    asked.nameless = asked.nameless.or(Some(limit));
                }
                continue;
            };
            let want = Want { limit, key, cost: rule.cost.first(head) };
            if rule.is_shadow { asked.shadow.push(want) } else { asked.enforced.push(want) }
        }
        asked
    }

    fn is_exempt(&self, head: &Head<'_>) -> bool {
        let Options { allowed, clients, .. } = &self.options;
        !allowed.is_empty()
            && clients
                .address(head)
                .is_some_and(|address| allowed.iter().any(|network| network.contains(&address)))
    }

    fn key(&self, entry: &Entry, head: &Head<'_>) -> Option<KeyBytes> {
        let key = entry.limit.key.bytes(head, &self.options.clients);
        if key.is_some() {
            return key;
        }
        match entry.limit.no_key {
            NoKey::Share => return Some(KeyBytes::new()), // which is nobody's, since no key is empty
            NoKey::Refuse if entry.limit.is_shadow => self.observer.count(&entry.name, Outcome::ShadowDenied),
            NoKey::Refuse | NoKey::Pass => {}
        }
        None
    }

    /// Decides.
    pub(super) async fn judge(self: Arc<Self>, asked: Asked) -> Ruling<S> {
        let Asked { enforced, shadow, nameless } = asked;
        if let Some(limit) = nameless {
            self.observer.count(&self.entries[limit].name, Outcome::Denied);
            return Ruling::Refuse(Refusal {
                reason: Reason::NoKey,
                wants: Wants::new(),
                answer: None,
                nameless,
            });
        }
        let (answer, held) = match self.take(&enforced).await {
            Ok(taken) => taken,
            Err(reason) => {
                return Ruling::Refuse(Refusal { reason, wants: enforced, answer: None, nameless });
            }
        };
        let delay = answer.as_ref().map_or(Duration::ZERO, Answer::delay);
        if let Some(answer) = &answer {
            self.report(&enforced, answer, Outcome::Denied);
            if !answer.is_admitted() {
                let (reason, answer) = (Reason::LimitReached, Some(answer.clone()));
                return Ruling::Refuse(Refusal { reason, wants: enforced, answer, nameless });
            }
        }
        let shadow = if shadow.is_empty() { None } else { self.take_shadow(shadow).await.map(Box::new) };
        if !delay.is_zero() {
            self.options.time.clone().unwrap_or_else(Time::tokio).sleep(delay).await;
        }
        Ruling::Pass(Pass { enforced: Taken { wants: enforced, answer, held }, shadow })
    }

    /// Takes from the store, or does what is to be done if it cannot tell.
    async fn take(&self, wants: &[Want]) -> Result<(Option<Answer>, Option<Held<S>>), Reason> {
        if wants.is_empty() {
            return Ok((None, None));
        }
        let is_settled = self.is_settled(wants);
        let error = match self.desk.take(wants, is_settled).await {
            Ok((answer, permit)) => return Ok((Some(answer), permit.map(Held::Store))),
            Err(error) => error,
        };
        match (&self.local, &self.options.unavailable) {
            (Some(local), _) => match local.take(wants, is_settled).await {
                Ok((answer, permit)) => {
                    self.fail(wants, &error, Outcome::ErrorLocal);
                    Ok((Some(answer), permit.map(Held::Local)))
                }
                Err(error) => Err(self.closed(wants, &error)),
            },
            (None, Unavailable::Open) => {
                self.fail(wants, &error, Outcome::ErrorOpen);
                Ok((None, None))
            }
            (None, _) => Err(self.closed(wants, &error)),
        }
    }

    fn closed(&self, wants: &[Want], error: &StoreError) -> Reason {
        self.fail(wants, error, Outcome::ErrorClosed);
        Reason::StoreUnavailable
    }

    /// What shadow limits say is only reported.
    async fn take_shadow(&self, wants: Wants) -> Option<Taken<S>> {
        match self.desk.take(&wants, self.is_settled(&wants)).await {
            Ok((answer, permit)) => {
                self.report(&wants, &answer, Outcome::ShadowDenied);
                Some(Taken { wants, answer: Some(answer), held: permit.map(Held::Store) })
            }
            Err(error) => {
                self.fail(&wants, &error, Outcome::ErrorOpen);
                None
            }
        }
    }

    fn is_settled(&self, wants: &[Want]) -> bool {
        wants.iter().any(|want| self.entry(want).limit.cost.settle.is_some())
    }

    /// Tells whoever watches. A limit that would have admitted what others refused has nothing to tell.
    fn report(&self, wants: &[Want], answer: &Answer, refused: Outcome) {
        let is_admitted = answer.is_admitted();
        for (hit, want) in wants.iter().enumerate() {
            let refuses = !is_admitted && answer.of_hit(hit).iter().any(|said| !said.decision.is_admitted());
            if is_admitted || refuses {
                let outcome = if refuses { refused } else { Outcome::Allowed };
                self.observer.count(&self.entry(want).name, outcome);
            }
        }
    }

    fn fail(&self, wants: &[Want], error: &StoreError, outcome: Outcome) {
        self.observer.store_failed(error, outcome);
        for want in wants {
            self.observer.count(&self.entry(want).name, outcome);
        }
    }

    /// Writes how the caller stands.
    pub(super) fn write(&self, taken: &Taken<S>, headers: &mut HeaderMap) {
        if let Some(answer) = &taken.answer {
            self.options.writer.write(&self.standings(&taken.wants, answer), headers);
        }
    }

    fn standings(&self, wants: &[Want], answer: &Answer) -> SmallVec<[Standing<'_>; 4]> {
        let is_refused = !answer.is_admitted();
        let standing = |said: &Said| {
            let told = &self.entry(wants.get(said.hit as usize)?).told;
            let decision = if is_refused { not_taken(said) } else { said.decision };
            Some(told.get(said.quota as usize)?.after(decision))
        };
        answer.each().iter().filter_map(standing).collect()
    }

    /// The answer to a call that is refused.
    pub(super) fn refuse(&self, head: Head<'_>, refusal: &Refusal) -> Response<Bytes> {
        let Refusal { reason, wants, answer, nameless } = refusal;
        let standings = answer.as_ref().map(|answer| self.standings(wants, answer)).unwrap_or_default();
        let nameless = nameless.map(|limit| self.entries[limit].limit.name.as_str());
        let denial = Denial { head, reason: *reason, standings: &standings, nameless };
        let mut response = (self.options.on_denial)(&denial);
        self.options.writer.write(&standings, response.headers_mut());
        response
    }
}

/// What a limit would have admitted, but others refused: it said what would be left, and so much more is.
fn not_taken(said: &Said) -> Decision {
    let Said { cost, decision, .. } = said;
    if !decision.is_admitted() {
        return *decision;
    }
    let left = decision.remaining().saturating_add(*cost).min(decision.limit());
    let until_fresh = decision.reset_after().map_or(u64::MAX, |span| span.as_nanos() as u64); // it was a u64 before
    Decision::new(Verdict::Allow, decision.limit(), left, 0, until_fresh)
}

impl Asked {
    /// Whether there is nothing to decide.
    pub(super) fn is_nothing(&self) -> bool {
        self.enforced.is_empty() && self.shadow.is_empty() && self.nameless.is_none()
    }
}

impl<S: Store> Pass<S> {
    /// One that takes nothing.
    pub(super) fn free() -> Self {
        Self { enforced: Taken { wants: Wants::new(), answer: None, held: None }, shadow: None }
    }
}
