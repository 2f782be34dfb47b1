//! How much of a limit a call takes.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use crate::head::{Head, Reply};

/// How much of a limit a call takes: at first, and in the end.
///
/// The first is taken before the service sees the call. If it turns out otherwise, the difference is given back or charged;
/// those who come later wait for what was charged. A call that ends without an answer, or is given up, costs what was taken
/// at first. Nothing is always allowed, even to whoever owes a lot: where callers say what a call costs, let it be one at least.
///
/// # Examples
/// ```
/// use tollgate_tower::Cost;
///
/// let one = Cost::default();
/// let failures_only = Cost::fixed(1).settled(|reply| Some(u64::from(!reply.status.is_success())));
/// let bytes_sent = Cost::fixed(10_000).settled_by_body();
/// let tokens = Cost::of(|head| {
///     let most = head.text("x-max-tokens").and_then(|text| text.parse().ok());
///     most.unwrap_or(1_000_u64).max(1)
/// })
/// .settled_by_handler();
/// ```
#[derive(Clone)]
pub struct Cost {
    first: First,
    pub(crate) settle: Option<Settle>,
}

#[derive(Clone)]
enum First {
    Fixed(u64),
    Of(Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>),
}

type Actual = dyn Fn(&Reply<'_>) -> Option<u64> + Send + Sync;

/// How the real cost is found out.
#[derive(Clone)]
pub(crate) enum Settle {
    Reply(Arc<Actual>),
    Body,
}

/// What a call really cost: a handler puts it into its response's extensions, for [`Cost::settled_by_handler`].
///
/// # Examples
/// ```
/// use http::Response;
/// use tollgate_tower::ActualCost;
///
/// let mut response = Response::new("forty-two");
/// response.extensions_mut().insert(ActualCost(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActualCost(pub u64);

impl Cost {
    /// So much for each call.
    pub fn fixed(cost: u64) -> Self {
        Self { first: First::Fixed(cost), settle: None }
    }

    /// What `cost` says of the request.
    pub fn of(cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        Self { first: First::Of(Arc::new(cost)), settle: None }
    }

    /// In the end, what `actual` says of the answer; if it says nothing, what was taken at first.
    #[must_use]
    pub fn settled(self, actual: impl Fn(&Reply<'_>) -> Option<u64> + Send + Sync + 'static) -> Self {
        Self { settle: Some(Settle::Reply(Arc::new(actual))), ..self }
    }

    /// In the end, one if the answer is an error (4xx or 5xx), else nothing: for attempts that may fail a few times.
    #[must_use]
    pub fn failures_only(self) -> Self {
        self.settled(|reply| {
            Some(u64::from(reply.status.is_client_error() || reply.status.is_server_error()))
        })
    }

    /// In the end, the number in a header of the answer. If it has none, or none that is a number, it stays what it was at first.
    #[must_use]
    pub fn settled_by_header(self, name: HeaderName) -> Self {
        self.settled(move |reply| reply.headers.get(&name)?.to_str().ok()?.trim().parse().ok())
    }

    /// In the end, what the handler says by an [`ActualCost`] in the extensions of its answer.
    #[must_use]
    pub fn settled_by_handler(self) -> Self {
        self.settled(|reply| reply.extensions.get::<ActualCost>().map(|cost| cost.0))
    }

    /// In the end, as many as the bytes of the answer's body that were sent.
    #[must_use]
    pub fn settled_by_body(self) -> Self {
        Self { settle: Some(Settle::Body), ..self }
    }

    /// What is taken at first.
    #[inline]
    pub(crate) fn first(&self, head: &Head<'_>) -> u64 {
        match &self.first {
            First::Fixed(cost) => *cost,
            First::Of(cost) => cost(head),
        }
    }
}

impl Default for Cost {
    /// One for each call.
    fn default() -> Self {
        Self::fixed(1)
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = match self.first {
            First::Fixed(cost) => Some(cost),
            First::Of(_) => None,
        };
        let settle = self.settle.as_ref().map(|settle| match settle {
            Settle::Reply(_) => "reply",
            Settle::Body => "body",
        });
        f.debug_struct("Cost").field("fixed", &first).field("settled_by", &settle).finish()
    }
}
