//! The contenders' layers, all with one limit for each address.

use std::task::{Context, Poll};

use axum::body::Body;
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use tollgate::Quota;
use tollgate_tower::{Form, Key, Limit, NoKey, RateLimitLayer};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::PeerIpKeyExtractor;
use tower_layer::{LayerFn, layer_fn};
use tower_service::Service;

/// How much each address may do.
#[derive(Clone, Copy)]
pub(crate) enum Allowance {
    /// More than anybody asks for: a thousand million at once. Only one of them comes back each second, so that no state is fresh
    /// again when it is needed next, as in real use.
    Plenty,
    /// One a day.
    Hardly,
}

pub(crate) fn tollgate(allowance: Allowance, form: Form) -> RateLimitLayer {
    let quota = match allowance {
        Allowance::Plenty => Quota::per_second(1).burst(MANY.into()),
        Allowance::Hardly => Quota::per_day(1),
    };
    let limit = Limit::new("per-address", quota).per(Key::client(), NoKey::Refuse);
    RateLimitLayer::builder().form(form).limit(limit).build().expect("a name that can be told")
}

const MANY: u32 = 1_000_000_000;

/// A layer that does nothing: what any layer costs where it is put.
pub(crate) fn nothing<S>() -> LayerFn<fn(S) -> Nothing<S>> {
    layer_fn(Nothing as fn(S) -> Nothing<S>)
}

#[derive(Clone)]
pub(crate) struct Nothing<S>(S);

impl<R, S: Service<R>> Service<R> for Nothing<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.0.call(request)
    }
}

type Theirs<M> = GovernorLayer<PeerIpKeyExtractor, M, Body>;

pub(crate) fn tower_governor(allowance: Allowance) -> Theirs<NoOpMiddleware> {
    GovernorLayer::new(config(allowance).finish().expect("neither is zero"))
}

pub(crate) fn tower_governor_with_headers(allowance: Allowance) -> Theirs<StateInformationMiddleware> {
    GovernorLayer::new(config(allowance).use_headers().finish().expect("neither is zero"))
}

fn config(allowance: Allowance) -> GovernorConfigBuilder<PeerIpKeyExtractor, NoOpMiddleware> {
    let mut config = GovernorConfigBuilder::default();
    match allowance {
        Allowance::Plenty => config.per_second(1).burst_size(MANY),
        Allowance::Hardly => config.per_second(24 * 60 * 60).burst_size(1),
    };
    config
}
