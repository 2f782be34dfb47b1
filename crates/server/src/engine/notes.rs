//! Which limits some asks mean, and what they want of each.

use std::ops::Range;

use smallvec::SmallVec;
use tollgate::store::{Mode, Store};
use tollgate_policy::{BadValue, Cost, Descriptor, Match, Policy, Scratch, Unmatched};

use super::ask::{Ask, AskError, Subject};
use super::loaded::Loaded;

/// What is written down while a call is looked at.
#[derive(Default)]
pub(super) struct Notes {
    scratch: Scratch,
    pub(super) wants: Wants,
    keys: Vec<u8>,
    /// For each value that a limit cannot use, the number of its rates.
    pub(super) bad_values: Vec<usize>,
    pub(super) unmatched: Option<NoMatch>,
    /// Whether an ask in quota mode met no limit, which passes.
    pub(super) has_free_quota: bool,
}

/// No limit applies to a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoMatch {
    /// Whether the policy has its domain, and denies such calls.
    pub(super) is_known: bool,
    pub(super) is_denied: bool,
}

/// What is wanted, by how it is decided.
#[derive(Default)]
pub(super) struct Wants {
    /// To be taken all together or not at all.
    pub(super) enforced: Vec<Want>,
    /// To be done whatever becomes of the others.
    pub(super) apart: Vec<Want>,
    /// To be taken each by itself; it is enough if one can be.
    pub(super) quotas: Vec<Want>,
    /// To be told.
    pub(super) shadow: Vec<Want>,
}

/// What an ask wants of one limit.
pub(super) struct Want {
    pub(super) ask: usize,
    /// The number of the rates in the policy; none if the ask names its limit itself.
    pub(super) number: Option<usize>,
    pub(super) key: Range<usize>,
    pub(super) cost: u64,
    pub(super) cost_from: CostFrom,
    pub(super) mode: Mode,
    /// Whether it refuses only together with all others like it.
    pub(super) is_quota: bool,
    /// Whether it asks only if the limit is exceeded.
    pub(super) is_probe: bool,
}

/// Who said what a call costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CostFrom {
    /// The call, by its cost.
    Call,
    /// The call, in the field that the limit reads.
    Field,
    /// Nobody, so it is one.
    Nobody,
}

/// How a descriptor was asked about.
struct Asked {
    /// The place among the asks.
    ask: usize,
    cost: (u64, CostFrom),
    in_quota_mode: bool,
    in_shadow_mode: bool,
    is_probe: bool,
}

impl Notes {
    /// Notes what the asks want.
    pub(super) fn read<S: Store>(
        &mut self,
        loaded: &Loaded<S>,
        mode: impl Fn(usize) -> Mode,
        asks: &[Ask<'_, S>],
    ) -> Result<(), AskError> {
        self.wants.clear();
        self.keys.clear();
        self.bad_values.clear();
        self.unmatched = None;
        let mut descriptors: SmallVec<[Descriptor<'_>; 1]> = SmallVec::with_capacity(asks.len());
        let mut places: SmallVec<[usize; 4]> = SmallVec::new();
        for (place, ask) in asks.iter().enumerate() {
            match &ask.subject {
                &Subject::Policy(domain, fields) => {
                    let mut descriptor = Descriptor::in_domain(domain);
                    for (name, value) in fields {
                        descriptor.push(name, value);
                    }
                    descriptors.push(descriptor);
                    places.push(place);
                }
                Subject::Nothing(_) => {}
                Subject::Limit(opened, key) => {
                    if let Some(why) = &opened.refusal {
                        return Err(AskError::Supplied { why: why.to_string() });
                    }
                    let is_counter = opened.told.rule.is_counter();
                    let (key, mode) = (note_key(&mut self.keys, key), manner(mode(place), is_counter));
                    let (cost, cost_from) = cost_of(ask);
                    let is_quota = ask.in_quota_mode && can_be_denied(mode);
                    let is_probe = ask.is_probe;
                    let want =
                        Want { ask: place, number: None, key, cost, cost_from, mode, is_quota, is_probe };
                    self.wants.note(want, ask.in_shadow_mode);
                }
            }
        }
        let asked = |descriptor: usize| {
            let ask = places[descriptor];
            let Ask { in_quota_mode, in_shadow_mode, is_probe, .. } = asks[ask];
            Asked { ask, cost: cost_of(&asks[ask]), in_quota_mode, in_shadow_mode, is_probe }
        };
        let applies = self.read_policy(loaded, &descriptors, &mode, asked)?;
        self.unmatched = if applies { None } else { self.no_match(loaded.policy(), mode, asks) };
        let is_free = |(place, ask): (usize, &Ask<'_, S>)| {
            ask.in_quota_mode && self.wants.iter().all(|want| want.ask != place)
        };
        self.has_free_quota = asks.iter().enumerate().any(is_free);
        Ok(())
    }

    /// Notes what limits of the policy apply. `asked` says how a descriptor was asked about. Returns whether any does: one in shadow
    /// that cannot use a value does, or it would deny the call.
    fn read_policy<S: Store>(
        &mut self,
        loaded: &Loaded<S>,
        descriptors: &[Descriptor<'_>],
        mode: &impl Fn(usize) -> Mode,
        asked: impl Fn(usize) -> Asked,
    ) -> Result<bool, AskError> {
        let found = loaded.policy().matching_all(descriptors, &mut self.scratch);
        self.bad_values.extend(found.bad_values().map(|bad| bad.limit().rates()[0].number()));
        let denies =
            |bad: &BadValue<'_>| bad.denies() && !bad.is_shadow() && !asked(bad.descriptor()).in_shadow_mode;
        if let Some(bad) = found.bad_values().find(denies) {
            count_bad_values(&self.bad_values, loaded);
            return Err(AskError::bad_value(asked(bad.descriptor()).ask, &bad));
        }
        for found in found.iter() {
            let Asked { ask, cost: asked, in_quota_mode, in_shadow_mode, is_probe } =
                asked(found.descriptor());
            let (limit, mode) = (found.limit(), manner(mode(ask), found.limit().counts_denied()));
            let (cost, cost_from) = match found.cost() {
                Cost::Asked => asked,
                Cost::Said(cost) => (cost, CostFrom::Field),
            };
            let key = note_key(&mut self.keys, found.key());
            let is_quota = (in_quota_mode || limit.is_any_of()) && can_be_denied(mode) && !is_free(&found);
            let number = Some(found.rates().number());
            let is_probe = is_probe && cost_from != CostFrom::Field;
            let want = Want { ask, number, key, cost, cost_from, mode, is_quota, is_probe };
            self.wants.note(want, in_shadow_mode || found.is_shadow());
        }
        Ok(!found.is_empty() || found.bad_values().any(|bad| bad.is_shadow()))
    }

    /// Whether the policy has nothing to say about asks that are all for it to decide.
    fn no_match<S: Store>(
        &self,
        policy: &Policy,
        mode: impl Fn(usize) -> Mode,
        asks: &[Ask<'_, S>],
    ) -> Option<NoMatch> {
        let first = asks.first().filter(|_| self.wants.iter().next().is_none())?;
        let domain = first.subject.domain()?;
        let unmatched = policy.unmatched(domain);
        // To charge and to give back is to say what happened.
        let can_deny = !first.in_shadow_mode && (0..asks.len()).any(|ask| can_be_denied(mode(ask)));
        Some(NoMatch {
            is_known: unmatched.is_some(),
            is_denied: can_deny && unmatched == Some(Unmatched::Deny),
        })
    }

    /// Whose state it is.
    pub(super) fn key(&self, want: &Want) -> &[u8] {
        &self.keys[want.key.clone()]
    }
}

impl Wants {
    fn clear(&mut self) {
        for wants in [&mut self.enforced, &mut self.apart, &mut self.quotas, &mut self.shadow] {
            wants.clear();
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Want> + '_ {
        [&self.enforced, &self.apart, &self.quotas, &self.shadow].into_iter().flatten()
    }

    /// Those there are, if they are all to be decided together.
    #[inline]
    pub(super) fn together(&self) -> Option<(Mode, &[Want])> {
        let Self { enforced, apart, quotas, shadow } = self;
        match (&enforced[..], &apart[..]) {
            _ if !quotas.is_empty() || !shadow.is_empty() => None,
            (all @ [_, ..], []) => Some((Mode::Take, all)),
            ([], [one]) => Some((one.mode, &apart[..])),
            _ => None,
        }
    }

    fn note(&mut self, want: Want, is_shadow: bool) {
        let wants = match want.mode {
            _ if is_shadow => &mut self.shadow,
            Mode::Take if want.is_quota => &mut self.quotas,
            Mode::Take => &mut self.enforced,
            _ => &mut self.apart,
        };
        wants.push(want);
    }
}

/// Counts the bad values of a call.
pub(super) fn count_bad_values<S: Store>(bad_values: &[usize], loaded: &Loaded<S>) {
    for number in bad_values {
        loaded.opened()[*number].told().tally.count_bad_value();
    }
}

/// What an ask costs where no field says it, and who said so.
fn cost_of<S: Store>(ask: &Ask<'_, S>) -> (u64, CostFrom) {
    ask.cost.map_or((1, CostFrom::Nobody), |cost| (cost, CostFrom::Call))
}

/// What a limit does where something is to be taken.
fn manner(mode: Mode, counts_denied: bool) -> Mode {
    if mode == Mode::Take && counts_denied { Mode::Count } else { mode }
}

/// Whether a limit of Envoy's files is unlimited: it is then no quota that is left.
fn is_free(found: &Match<'_>) -> bool {
    found.limit().is_counter() && found.rates().is_unlimited()
}

/// Whether something is asked for that can be refused.
fn can_be_denied(mode: Mode) -> bool {
    matches!(mode, Mode::Take | Mode::Count | Mode::Peek)
}

fn note_key(keys: &mut Vec<u8>, key: &[u8]) -> Range<usize> {
    let start = keys.len();
    keys.extend_from_slice(key);
    start..keys.len()
}
