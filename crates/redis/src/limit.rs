//! A limit that was opened.

use std::fmt;
use std::sync::Arc;

use tollgate::store::Rule;

use crate::keys::QuotaName;
use crate::twin::Twin;

/// A limit that a [`RedisStore`](crate::RedisStore) opened. Opening one asks nobody: a state begins when it is first hit.
#[derive(Clone)]
pub struct RedisLimit {
    opened: Arc<Opened>,
}

struct Opened {
    rule: Rule,
    quotas: Box<[OpenQuota]>,
}

/// One of its quotas.
pub(crate) struct OpenQuota {
    pub(crate) name: QuotaName,
    /// `None` if it is unlimited.
    pub(crate) twin: Option<Twin>,
}

impl RedisLimit {
    pub(crate) fn new(rule: &Rule) -> Self {
        let names = QuotaName::all(rule).into_iter().zip(rule.quotas());
        let quotas = names.map(|(name, quota)| OpenQuota { name, twin: Twin::of(rule, *quota) }).collect();
        Self { opened: Arc::new(Opened { rule: rule.clone(), quotas }) }
    }

    pub(crate) fn quotas(&self) -> &[OpenQuota] {
        &self.opened.quotas
    }
}

impl AsRef<Rule> for RedisLimit {
    fn as_ref(&self) -> &Rule {
        &self.opened.rule
    }
}

impl fmt::Debug for RedisLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisLimit").field(&self.opened.rule).finish()
    }
}
