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
//! | `when` | [CEL](#expressions) that must be true as well | |
//! | `entries` | `["path_/login", "ip"]`: the descriptor's [entries](Entry), exactly these in this order | applies whatever the order |
//! | `once` | whether a call with several descriptors is counted once | for each |
//! | `key` | a field or several: who is counted | all are counted together |
//! | `per` | CEL whose values say so too | |
//! | `rate` | `"10/s burst 20"`, or several: `["10/s", "1000/h"]` | an error |
//! | `override.FIELD.VALUE` | another rate for that value: a plan, a tenant | none |
//! | `algorithm` | the arithmetic: [`Kind`](tollgate_core::Kind) | `token-bucket` |
//! | `mode` | `enforce`, `shadow` or `off` | `enforce` |
//! | `cost` | the field that says what a call costs | what the caller says |
//! | `priority` | the higher, the earlier | `0` |
//! | `replaces` | limits, by name or label, that do not apply where this one does | none |
//! | `if_store_fails` | `local`, `allow` or `deny` | `local` |
//! | `count_refused` | whether refused calls use up the limit too | `false` |
//! | `quota_mode` | whether it refuses only if all others like it do | `false` |
//! | `label` | what callers are told it is called | its name |
//! | `id`, `metadata`, `detailed_metric` | what else programs want to know | |
//! | `domain` | its group | `default` |
//!
//! `domain`, `algorithm`, `mode`, `if_store_fails`, `once` and `count_refused` may also stand at the top of the file, for all
//! limits in it.
//!
//! - A limit applies where all its conditions hold and all the fields of its key are there. So whoever leaves out a field
//!   slips past a limit that counts by it: add one for those, with `absent`.
//! - All limits that apply decide together. Another rate is another state: whoever changes plans starts afresh.
//! - `unlimited` is a rate; with `replaces` it is how exceptions are made.
//! - Of limits with `entries` only the most specific one applies. One that is `off` limits nothing, and neither does any that is
//!   less specific: so exceptions are made there.
//!
//! [`schema`] is the JSON schema for editors.
//!
//! # Files of others
//!
//! [`Policy::load`] also reads files in YAML that were written for envoyproxy/ratelimit or limitador, as they are, and
//! directories of files; [`convert`] turns them into files like the above. All are read into the same [`Draft`], whatever they can
//! say has a word above, and what is wrong with them is told in the same way.
//!
//! | Envoy's service | here |
//! | --- | --- |
//! | a descriptor | a limit with `entries`; without `rate_limit` and with nothing below it, one that is `off` |
//! | `value`, `*`, `share_threshold`, `value_to_metric` | `entries = ["key_value", { entry = "key_*", shared = true, in_metrics = true }]` |
//! | `unit`, `requests_per_unit`, `unlimited` | `rate`, with `algorithm = "fixed-window"`; [`Unit::of`] gives the unit back |
//! | `name`, `replaces` | `label`, `replaces` |
//! | `shadow_mode`, `quota_mode`, `detailed_metric`, `metadata` | `mode = "shadow"`, `quota_mode`, `detailed_metric`, `metadata` |
//! | refused calls use up the limit | `count_refused = true` |
//!
//! | limitador | here |
//! | --- | --- |
//! | `namespace`, `max_value`, `seconds` | `domain`, `rate`, with `algorithm = "fixed-window"` |
//! | `conditions`, `variables` | `match` and `key` for comparisons and fields, else `when` and `per` |
//! | `name`, `id` | `label`, `id` |
//! | a call is counted once | `once = true` |
//!
//! Two things differ, both against mistakes. A word that stands in the wrong place is refused, and so are two limits of limitador that
//! are the same but for what they allow. Where limitador starts a window with the first call, ours start at multiples of their
//! length, as Envoy's do.
//!
//! A window starts at a multiple of its length since the origin of the store's clock. To start with the minutes, days and weeks
//! of everybody else, that origin must be a multiple of every length since 1970: 15330 days, which is 1 324 512 000 s or
//! 2011-12-21, is one of all of Envoy's units.
//!
//! # Expressions
//!
//! With the feature `cel`, `when` and `per` are expressions in the [Common Expression Language](https://cel.dev). They see
//! `descriptors`, a list of maps from fields to texts (`descriptors[0].path`, `descriptors[0]['req.method']`), and
//! `limit.name` and `limit.id`, which are the limit's label and id. A limit does not apply where an expression needs a field that is missing;
//! where one cannot be computed for another reason, [`Matches::failure`] tells. Limits with expressions are tried one by one,
//! if their other conditions hold.

mod choice;
mod compute;
mod condition;
mod descriptor;
mod draft;
mod entries;
mod explain;
mod expression;
mod format;
mod import;
mod key_part;
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
mod unit;
mod yaml;

pub use choice::{Mode, OnBadValue, OnStoreFailure, Unmatched};
pub use condition::{Condition, Test};
pub use descriptor::{DEFAULT_DOMAIN, Descriptor, DescriptorBuf, DescriptorError, Field, escaped};
pub use draft::{Draft, DraftDomain, DraftLimit, EnvoyFields, LimitadorFields, Override, Reference};
pub use entries::Entry;
pub use explain::{ConditionExplained, Explanation, LimitExplained, Outcome};
pub use expression::Expression;
pub use format::{Format, convert, read};
pub use key_part::KeyPart;
pub use limit::{Cost, Limit, Rates};
pub use load::LARGEST_FILE;
pub use matches::{BadValue, Match, Matches, Scratch};
pub use native::schema;
pub use pattern::Pattern;
pub use policy::Policy;
pub use problem::{Problem, Problems};
pub use source::{Place, Source};
pub use suggest::{did_you_mean, nearest};
pub use unit::Unit;
