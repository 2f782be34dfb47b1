//! One rate-limit service for every language.
//!
//! ```text
//! HTTP/JSON ─┐
//! Envoy RLS ─┼─▶ ask ─▶ clerk ─▶ policy: which limits ─▶ store: decide ─▶ ruling ─▶ answer in the caller's words
//! RESP      ─┘          └──────────── engine ────────────────────────┘
//! ```
//!
//! Every protocol turns what it hears into [`Ask`]s and says a [`Ruling`] in its own words; what is decided, and how, is the same
//! for all of them. A [`Server`] listens, hands connections to its workers, and drains them when it is told to stop.

mod access;
mod audit;
mod engine;
mod http;
mod limitador;
mod metrics;
mod reload;
pub mod resp;
pub mod rls;
mod server;
mod snapshots;
mod tls;

pub use access::{Access, Caller, Keyring, KeyringError, Keys, Principal, Scope, Scopes};
pub use engine::{
    Actual, Ask, AskError, Basis, CallCounts, CallOutcome, Clerk, DecisionLog, Engine, EngineOptions, Family,
    Finding, HoldBound, LONGEST_HOLD, LoadProblem, Loaded, LoggedCalls, NEAR_LIMIT_RATIO, Opened, Origin,
    Outcome, Own, PermitId, PermitIdError, PolicyStatus, Reset, Ruling, SettleError, Subject, Tallied, Tally,
    Told,
};
pub use http::{Hosts, HttpApi, HttpLimits, HttpProtocol, ReadyNeeds};
pub use metrics::{Compat, Connected, Meter, Metrics, TextFormat};
pub use reload::{PolicyPath, Reloader, read_policy};
pub use rls::{ConnectionAge, HeaderNames, RlsOptions, RlsProtocol};
pub use server::{
    Activity, Connection, ConnectionLimits, Protocol, ResponseGuard, Running, Server, Stop, Stream, Timeouts,
    Vigil,
};
pub use snapshots::Snapshots;
pub use tls::{Tls, TlsError, TlsFiles};
