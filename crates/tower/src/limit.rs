//! A limit in front of a service.

use std::fmt;
use std::sync::Arc;

use http::Method;
use tollgate::store::Rule;
use tollgate::{Kind, Quota};
use tollgate_http::Unit;

use crate::cost::Cost;
use crate::head::Head;
use crate::key::{Key, NoKey};

/// A limit: how much, for whom, of which calls, and what each of them costs.
///
/// # Examples
/// ```
/// use http::Method;
/// use tollgate_tower::{Key, Kind, Limit, NoKey, Quota};
///
/// #[derive(PartialEq)]
/// enum Plan { Free, Pro }
///
/// let everybody = Limit::new("everybody", Quota::per_second(1_000));
/// let writes = Limit::new("writes", Quota::per_minute(10))
///     .quota(Quota::per_day(500))
///     .kind(Kind::SlidingLog)
///     .per(Key::client(), NoKey::Refuse)
///     .methods([Method::POST, Method::PUT, Method::DELETE]);
/// let free_plan = Limit::new("free-plan", Quota::per_hour(100))
///     .per(Key::bearer_token(), NoKey::Pass)
///     .when(|head| head.extensions.get::<Plan>() == Some(&Plan::Free));
/// ```
#[derive(Clone)]
pub struct Limit {
    pub(crate) name: String,
    quotas: Vec<Quota>,
    kind: Kind,
    unit: Unit,
    pub(crate) key: Key,
    pub(crate) no_key: NoKey,
    pub(crate) cost: Cost,
    conditions: Vec<Arc<Condition>>,
    pub(crate) is_shadow: bool,
}

type Condition = dyn Fn(&Head<'_>) -> bool + Send + Sync;

impl Limit {
    /// A token bucket that all calls share, each of which takes one.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            quotas: vec![quota],
            kind: Kind::TokenBucket,
            unit: Unit::Requests,
            key: Key::EVERYBODY,
            no_key: NoKey::Pass,
            cost: Cost::default(),
            conditions: Vec::new(),
            is_shadow: false,
        }
    }

    /// A further quota: a call takes of all of them, or of none.
    #[must_use]
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quotas.push(quota);
        self
    }

    /// Another algorithm.
    #[must_use]
    pub fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// What is counted, as callers are told.
    #[must_use]
    pub fn unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// A share for each key, and what to do with calls that have none.
    #[must_use]
    pub fn per(self, key: Key, no_key: NoKey) -> Self {
        Self { key, no_key, ..self }
    }

    /// What each call takes.
    #[must_use]
    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// Only for calls of which this is true. Several conditions must all be.
    #[must_use]
    pub fn when(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Arc::new(condition));
        self
    }

    /// Only for calls of these methods.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods: Vec<Method> = methods.into_iter().collect();
        self.when(move |head| methods.contains(head.method))
    }

    /// Only for calls of this path and what is below it: `/users` is for `/users` and `/users/7`, not for `/users2`.
    #[must_use]
    pub fn path(self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.when(move |head| is_below(head.uri.path(), &path))
    }

    /// Decides, and reports what it would have refused, but refuses nothing. Callers are not told of it.
    #[must_use]
    pub fn shadow(self) -> Self {
        Self { is_shadow: true, ..self }
    }

    #[inline]
    pub(crate) fn applies_to(&self, head: &Head<'_>) -> bool {
        self.conditions.iter().all(|condition| condition(head))
    }

    /// What a store knows it by.
    pub(crate) fn rule(&self, domain: &str) -> Rule {
        let (first, others) = self.quotas.split_first().expect("there is one from the start");
        let rule = Rule::new(domain, self.name.as_str(), *first).with_kind(self.kind);
        others.iter().fold(rule, |rule, quota| rule.with_quota(*quota))
    }

    /// What callers are told of, for each quota: by its name, and by its numbers if there are several.
    pub(crate) fn told(&self) -> Result<Vec<tollgate_http::Limit>, tollgate_http::NameError> {
        let told = |quota: &Quota| {
            let name = told_as(&self.name, *quota, self.quotas.len());
            Ok(tollgate_http::Limit::new(&name, self.kind, *quota)?.unit(self.unit))
        };
        tollgate_http::Limit::new(&self.name, self.kind, Quota::UNLIMITED)?; // an empty name with numbers is empty, too
        self.quotas.iter().map(told).collect()
    }
}

/// What callers know a quota by: its limit's name, and its numbers if the limit has several.
pub(crate) fn told_as(name: &str, quota: Quota, quotas: usize) -> String {
    if quotas == 1 { name.to_owned() } else { format!("{name} {quota}") }
}

fn is_below(path: &str, parent: &str) -> bool {
    let parent = parent.trim_end_matches('/');
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.name)
            .field("quotas", &self.quotas)
            .field("kind", &self.kind)
            .field("key", &self.key)
            .field("no_key", &self.no_key)
            .field("cost", &self.cost)
            .field("shadow", &self.is_shadow)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_for_what_is_below_it() {
        for path in ["/users", "/users/", "/users/7"] {
            assert!(is_below(path, "/users") && is_below(path, "/users/"), "{path}");
        }
        for path in ["/users2", "/", "/user", "/a/users"] {
            assert!(!is_below(path, "/users"), "{path}");
        }
        assert!(is_below("/anything", "/") && is_below("/", "/"));
    }

    #[test]
    fn several_quotas_have_names_of_their_own() {
        let limit = Limit::new("api", Quota::per_second(10));
        let names = |limit: &Limit| -> Vec<String> {
            limit.told().unwrap().iter().map(|told| told.name().to_owned()).collect()
        };
        assert_eq!(names(&limit), ["api"]);
        assert_eq!(names(&limit.quota(Quota::per_hour(100))), ["api 10/s", "api 100/h"]);
        assert!(Limit::new("", Quota::per_second(10)).quota(Quota::per_hour(1)).told().is_err());
    }
}
