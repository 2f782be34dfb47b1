//! How many calls at once.

mod future;
mod layer;
mod load_shed;
mod service;
mod slots;

pub use future::ConcurrencyFuture;
pub use layer::ConcurrencyLimitLayer;
pub use load_shed::LoadShed;
pub use service::ConcurrencyLimited;
pub use slots::Slots;
