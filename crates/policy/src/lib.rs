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
//! # The fields of a limit
//!
//! | field | meaning | default |
//! | --- | --- | --- |
//! | `domain` | The group of the limit. Callers name a domain, and only its limits apply to them. | `default` |
//! | `match.FIELD` | A condition on a field: `"GET"`, `"/api/*"`, `["POST", "PUT"]`, `{ network = "10.0.0.0/8" }`, `{ absent = true }`, `{ is = "a literal *" }`. All conditions must hold. A `*` stands for any characters, also for `/`. | applies to all calls |
//! | `when` | [CEL](#expressions) that must be true as well. | none |
//! | `key` | Who is counted: a field (`"ip"`), an expression (`{ cel = "…" }`), or a list of both. Each combination of values has a state of its own. | all calls are counted together |
//! | `rate` | How much is allowed: `"10/s burst 20"`, or several at once: `["10/s", "1000/h"]`. Without `burst`, the burst is the count of one period. | required |
//! | `overrides` | Other rates for particular values, such as a plan or a tenant: `[{ field = "plan", rates = { gold = "1000/s" } }]`. The first field in the list that has some for a call decides. | none |
//! | `algorithm` | The arithmetic: a [`Kind`](tollgate_core::Kind). | `token-bucket` |
//! | `mode` | `enforce`; `shadow`, which counts and reports but denies nothing; or `off`. | `enforce` |
//! | `cost` | The field that says what a call costs, as a whole number. | what the caller says, or 1 |
//! | `on_store_failure` | What to answer when a shared store cannot: `local` (each process counts by itself), `allow` or `deny`. | `local` |
//! | `on_bad_value` | What to do with a bad value, which is a cost that is no whole number, or an expression that fails although its fields are there: `default` counts it as absent, `deny` denies the call. | `default` |
//! | `count_denied` | Whether calls that are denied use up the limit too. | `false` |
//!
//! `domain`, `algorithm`, `mode`, `on_store_failure`, `on_bad_value` and `count_denied` may also stand at the top of a file. They
//! then apply to all limits in it that do not say otherwise. One more field stands only there: `unmatched = "deny"` denies the
//! calls that no limit of their domain applies to, in every domain of the file; without it they are allowed.
//!
//! - All limits that apply decide together: a call is allowed if each of them allows it, and a denied call uses up nothing.
//! - A limit does not apply where a field of its key is missing. Add a limit with `{ absent = true }` for such calls, or set
//!   `unmatched`; `tollgate policy check` warns where neither is there.
//! - In a key, a field named `ip` or `remote_address` counts the first 64 bits of an IPv6 address, which is one network;
//!   `{ field = "ip", ipv6_prefix = 48 }` counts others, in any field. IPv4 addresses are counted whole, also those that are
//!   written as IPv6 (`::ffff:10.0.0.7`). A value that is no address is counted as text, and with `ipv6_prefix = false` every value
//!   is.
//! - Another rate is another state: a caller whose plan changes starts afresh.
//! - `unlimited` is a rate. With `envoy.replaces` it makes exceptions.
//!
//! What only files of Envoy's service or limitador need stands in the tables `[limit.NAME.envoy]` and `[limit.NAME.limitador]`:
//!
//! | field | meaning |
//! | --- | --- |
//! | `envoy.entries` | `["path_/login", "ip"]`: the descriptor's [entries](Entry), exactly these in this order. Of the limits with entries only the most specific one applies; one that is `off` limits nothing, and neither does a less specific one. |
//! | `envoy.label` | The name that callers are told; several limits may share one. |
//! | `envoy.replaces` | Limits, by name or label, that do not apply where this one does. |
//! | `envoy.any_of` | Whether the limit denies a call only if all others like it do. |
//! | `envoy.detailed_metric`, `envoy.metadata` | The values of all entries in the limit's name for metrics; JSON that comes with the answers. |
//! | `limitador.name`, `limitador.id` | The name that callers are told, and that of programs. Expressions see them as `limit.name` and `limit.id`. |
//! | `limitador.once` | Whether a call with several descriptors is counted once, by its first. |
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
//! | a descriptor | a limit with `envoy.entries`; without `rate_limit` and with nothing below it, one that is `off` |
//! | `value`, `*`, `share_threshold`, `value_to_metric` | `envoy.entries = ["key_value", { entry = "key_*", shared = true, in_metrics = true }]` |
//! | `unit`, `requests_per_unit`, `unlimited` | `rate`, with `algorithm = "fixed-window"`; [`Unit::of`] gives the unit back |
//! | `name`, `replaces` | `envoy.label`, `envoy.replaces` |
//! | `shadow_mode`, `quota_mode`, `detailed_metric`, `metadata` | `mode = "shadow"`, `envoy.any_of`, `envoy.detailed_metric`, `envoy.metadata` |
//! | denied calls use up the limit | `count_denied = true` |
//!
//! | limitador | here |
//! | --- | --- |
//! | `namespace`, `max_value`, `seconds` | `domain`, `rate`, with `algorithm = "fixed-window"` |
//! | `conditions`, `variables` | `match` and `key` for comparisons and fields, else `when` and `key = { cel = "…" }` |
//! | `name`, `id` | `limitador.name`, `limitador.id` |
//! | a call is counted once | `limitador.once = true` |
//!
//! Two things differ, both against mistakes. A word that stands in the wrong place is refused, and so are two limits of limitador that
//! are the same but for what they allow. Where limitador starts a window with the first call, ours start at multiples of their
//! length, as Envoy's do.
//!
//! Windows start at multiples of their length since 1970 (UTC), in every store.
//!
//! # Expressions
//!
//! With the feature `cel`, `when` and `{ cel = "…" }` in a key are expressions in the [Common Expression Language](https://cel.dev). They see
//! `descriptors`, a list of maps from fields to texts (`descriptors[0].path`, `descriptors[0]['req.method']`), and
//! `limit.name` and `limit.id`, which limitador's files set. A limit does not apply where an expression needs a field that is
//! missing. Where an expression fails for another reason, `on_bad_value` decides, and [`Matches::bad_values`] reports it. Limits with
//! expressions are tried one by one, if their other conditions hold.

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
mod metric_name;
mod native;
mod network;
mod pattern;
mod policy;
mod problem;
mod source;
mod suggest;
mod unit;
mod warnings;
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
pub use metric_name::MetricName;
pub use native::schema;
pub use pattern::Pattern;
pub use policy::Policy;
pub use problem::{Problem, Problems};
pub use source::{Place, Source};
pub use suggest::{did_you_mean, nearest};
pub use unit::Unit;
