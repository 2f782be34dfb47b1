//! A limit that was opened.

use std::fmt;
use std::sync::Arc;

use tollgate::store::{Rule, StoreError};

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
    /// Why no store can keep it.
    problem: Option<StoreError>,
}

/// One of its quotas.
pub(crate) struct OpenQuota {
    pub(crate) name: QuotaName,
    /// `None` if it is unlimited.
    pub(crate) twin: Option<Twin>,
}

impl RedisLimit {
    pub(crate) fn new(rule: &Rule) -> Self {
        let kept = rule.kept();
        let names = QuotaName::all(&kept).into_iter().zip(kept.quotas());
        let quotas = names.map(|(name, quota)| OpenQuota { name, twin: Twin::of(&kept, *quota) }).collect();
        let problem = rule.check().err();
        Self { opened: Arc::new(Opened { rule: rule.clone(), quotas, problem }) }
    }

    /// Why it cannot be decided about, if so.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.opened.problem.as_ref().map_or(Ok(()), |error| Err(StoreError::permanent(error.to_string())))
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
