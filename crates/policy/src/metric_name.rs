//! The names of limits in metrics.
//!
//! They follow the rules of envoyproxy/ratelimit, so that a dashboard for one works with the other.

use std::borrow::Cow;

use crate::descriptor::{Field, escaped};
use crate::draft::DraftLimit;
use crate::entries::Entry;

/// The name of a limit in metrics: its domain and its entries, joined with dots. A limit without entries has its own name in
/// their place.
///
/// If the policy asks for it, the name contains values of the descriptor. Then callers choose how many names there are.
///
/// # Examples
/// ```
/// use tollgate_policy::Policy;
///
/// let policy = Policy::parse("web.toml", r#"
///     domain = "web"
///
///     [limit.per-user]
///     envoy.entries = ["path_/login", { entry = "user", in_metrics = true }]
///     rate = "5/min"
/// "#)?;
/// let name = policy.limits()[0].metric_name();
/// assert_eq!(name.base(), "web.path_/login.user");
/// let fields = [("path", &b"/login"[..]), ("user", &b"ann"[..])];
/// assert_eq!(name.of(&fields), "web.path_/login.user_ann");
/// # Ok::<(), tollgate_policy::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    base: String,
    domain: String,
    entries: Vec<Entry>,
    is_detailed: bool,
}

impl MetricName {
    pub(crate) fn new(limit: &DraftLimit) -> Self {
        let (domain, entries) = (limit.domain.clone(), limit.envoy.entries.clone());
        let mut base = domain.clone();
        if entries.is_empty() {
            base = base + "." + &limit.name;
        }
        for entry in &entries {
            base = base + "." + &entry.text;
        }
        Self { base, domain, entries, is_detailed: limit.envoy.detailed_metric }
    }

    /// Returns the name without values of the descriptor.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns `true` if the name depends on the descriptor.
    pub fn has_values(&self) -> bool {
        !self.entries.is_empty()
            && (self.is_detailed || self.entries.iter().any(|entry| entry.in_metrics && !entry.shared))
    }

    /// Returns the name for the fields of a descriptor to which the limit applies.
    ///
    /// An entry whose values share a counter never has its value in the name.
    pub fn of(&self, fields: &[Field<'_>]) -> Cow<'_, str> {
        if !self.has_values() {
            return Cow::Borrowed(&self.base);
        }
        let is_any_shared = self.entries.iter().any(|entry| entry.shared);
        let mut name = self.domain.clone();
        for (entry, field) in self.entries.iter().zip(fields) {
            name.push('.');
            if entry.shared || !(self.is_detailed || entry.in_metrics) {
                name.push_str(&entry.text);
            } else {
                // Only the name of a detailed metric without shared entries shows that a value is empty.
                push_field(&mut name, field, self.is_detailed && !is_any_shared);
            }
        }
        Cow::Owned(name)
    }

    /// Returns the name of a limit that a descriptor supplies itself, in place of one of the policy.
    ///
    /// # Examples
    /// ```
    /// use tollgate_policy::MetricName;
    ///
    /// let fields = [("user", &b"ann"[..]), ("plan", &b""[..])];
    /// assert_eq!(MetricName::of_override("web", &fields), "web.user_ann.plan");
    /// ```
    pub fn of_override(domain: &str, fields: &[Field<'_>]) -> String {
        let mut name = domain.to_owned();
        for field in fields {
            name.push('.');
            push_field(&mut name, field, false);
        }
        name
    }
}

/// Appends `key_value`, or only the key if the value is empty and `shows_empty` is `false`.
fn push_field(name: &mut String, (key, value): &Field<'_>, shows_empty: bool) {
    name.push_str(key);
    if shows_empty || !value.is_empty() {
        name.push('_');
        name.push_str(&escaped(value));
    }
}
