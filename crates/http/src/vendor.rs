//! The fields that services made up for themselves.
//!
//! Most are a family: a prefix, what is told (limit, remaining, used, reset) and of which budget. OpenAI writes
//! `x-ratelimit-remaining-tokens`, Anthropic `anthropic-ratelimit-tokens-remaining`, Kong puts the window where they put the
//! budget (`x-ratelimit-limit-minute`). Reading them by family covers services that we have never heard of, too.

mod family;
mod github;
mod shopify;
mod stripe;

pub(crate) use family::families;
pub(crate) use github::{is_refusal as is_github_refusal, wait as github_wait};
pub(crate) use shopify::call_limit;
pub(crate) use stripe::refusal as stripe_refusal;
