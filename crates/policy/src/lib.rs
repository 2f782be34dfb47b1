//! Who is asking for what, and which limits apply.
//!
//! A policy is a file of named limits. Three lines are enough:
//!
//! ```toml
//! [limit.per-ip]
//! key = "ip"
//! rate = "10/s burst 20"
//! ```
//!
//! [`Policy::load`] reads and compiles it, or reports everything that is wrong with it at once, each with its place and what
//! would be right. [`Policy::matching`] then tells for a [`Descriptor`] which limits apply, in which order, whose state each of
//! them means, and at what cost; [`Policy::explain`] tells why. To decide is up to whoever holds the states.
//!
//! ```
//! use tollgate_policy::{Descriptor, Policy, Scratch};
//!
//! let policy = Policy::parse("first.toml", "[limit.per-ip]\nkey = \"ip\"\nrate = \"10/s burst 20\"\n")?;
//! let mut scratch = Scratch::new(); // reused, so that matching allocates nothing
//! let descriptor = Descriptor::new().with("ip", "10.0.0.7").with("path", "/orders");
//! for found in policy.matching(&descriptor, &mut scratch).iter() {
//!     assert_eq!((found.limit().name(), found.key()), ("per-ip", &b"10.0.0.7"[..]));
//!     assert_eq!(found.rates().quotas()[0].to_string(), "10/s burst 20");
//! }
//! # Ok::<(), tollgate_policy::Problems>(())
//! ```
//!
//! # What a limit may say
//!
//! | field | what | if not there |
//! | --- | --- | --- |
//! | `match.FIELD` | `"GET"`, `"/api/*"`, `["POST", "PUT"]`, `{ network = "10.0.0.0/8" }`, `{ absent = true }`, `{ is = "a literal *" }` | applies to all |
//! | `key` | a field or several: who is counted | all are counted together |
//! | `rate` | `"10/s burst 20"`, or several: `["10/s", "1000/h"]` | an error |
//! | `override.FIELD.VALUE` | another rate for that value: a plan, a tenant | none |
//! | `algorithm` | the arithmetic: [`Kind`](tollgate_core::Kind) | `token-bucket` |
//! | `mode` | `enforce`, `shadow` or `off` | `enforce` |
//! | `cost` | the field that says what a call costs | what the caller says |
//! | `priority` | the higher, the earlier | `0` |
//! | `replaces` | limits that do not apply where this one does | none |
//! | `if_store_fails` | `local`, `allow` or `deny` | `local` |
//! | `domain` | its group | `default` |
//!
//! `domain`, `algorithm`, `mode` and `if_store_fails` may also stand at the top of the file, for all limits in it.
//!
//! - A limit applies where all its conditions hold and all the fields of its key are there. So whoever leaves out a field
//!   slips past a limit that counts by it: add one for those, with `absent`.
//! - All limits that apply decide together. Another rate is another state: whoever changes plans starts afresh.
//! - `unlimited` is a rate; with `replaces` it is how exceptions are made.
//!
//! Other formats are read into the same [`Draft`]. [`schema`] is the JSON schema for editors.

mod choice;
mod condition;
mod descriptor;
mod draft;
mod explain;
mod limit;
mod load;
mod matcher;
mod matches;
mod native;
mod network;
mod pattern;
mod policy;
mod problem;
mod source;
mod suggest;

pub use choice::{IfStoreFails, Mode};
pub use condition::{Condition, Test};
pub use descriptor::{DEFAULT_DOMAIN, Descriptor, DescriptorBuf, DescriptorError, Field};
pub use draft::{Draft, DraftLimit, Override, Reference};
pub use explain::{ConditionExplained, Explanation, LimitExplained, Outcome};
pub use limit::{Cost, Limit, Rates};
pub use load::LARGEST_FILE;
pub use matches::{Match, Matches, Scratch};
pub use native::{read, schema};
pub use pattern::Pattern;
pub use policy::Policy;
pub use problem::{Problem, Problems};
pub use source::{Place, Source};
pub use suggest::did_you_mean;
