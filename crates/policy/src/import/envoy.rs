//! Files of Envoy's rate limit service (envoyproxy/ratelimit).
//!
//! Every descriptor of a file becomes a limit with the [entries](Entry) on the way to it. One without a limit of its own becomes
//! one that is off if nothing is below it; else those below say that it is there.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use tollgate_core::{Kind, Quota};

use super::Names;
use crate::choice::Mode;
use crate::descriptor::DEFAULT_DOMAIN;
use crate::draft::{Draft, DraftLimit, Reference, name_problem};
use crate::entries::Entry;
use crate::source::Place;
use crate::suggest::did_you_mean;
use crate::unit::Unit;
use crate::yaml::{Fields, Node, Reader};

const FILE: [&str; 2] = ["domain", "descriptors"];
const DESCRIPTOR: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const RATE_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];

/// Reads a file, and its domain with the place where that stands. The limits have no names yet.
pub(super) fn read(root: &Node, reader: Reader<'_>) -> (Draft, Option<(String, Place)>) {
    let mut envoy = Envoy { reader, domain: DEFAULT_DOMAIN.to_owned(), place: None, limits: Vec::new() };
    envoy.file(root);
    let Envoy { domain, place, limits, .. } = envoy;
    (Draft::new(limits), place.map(|place| (domain, place)))
}

/// Gives names to all limits of a domain, and drops what they replace that is not there: in these files that is no mistake.
pub(super) fn finish(limits: &mut [DraftLimit]) {
    let labels: HashSet<String> = limits.iter().filter_map(|limit| limit.envoy.label.clone()).collect();
    for limit in &mut *limits {
        limit.envoy.replaces.retain(|other| labels.contains(&other.name));
    }
    name(limits, labels);
}

struct Envoy<'s> {
    reader: Reader<'s>,
    domain: String,
    /// Where the domain stands, if it can be one.
    place: Option<Place>,
    limits: Vec<DraftLimit>,
}

impl Envoy<'_> {
    fn file(&mut self, root: &Node) {
        let Some(fields) = self.reader.fields(root, "a file", &FILE, belongs) else { return };
        match fields.get("domain") {
            Some(domain) => self.domain(domain),
            None => self.reader.problem(
                fields.mark.clone(),
                "this file has no domain",
                "it starts with for example domain: web".to_owned(),
            ),
        }
        self.descriptors(&fields, &[]);
    }

    fn domain(&mut self, node: &Node) {
        let Some(domain) = self.reader.text(node, "the name of a domain") else { return };
        if let Some(message) = name_problem("domain", &domain) {
            self.reader.problem(node.mark(), message, None);
        } else {
            (self.domain, self.place) = (domain, Some(self.reader.place(node.mark())));
        }
    }

    fn descriptors(&mut self, fields: &Fields<'_>, above: &[Entry]) {
        let Some(list) = fields.get("descriptors") else { return };
        let mut seen: HashMap<String, usize> = HashMap::new();
        for node in self.reader.list(list, "a list of descriptors") {
            self.descriptor(node, above, &mut seen);
        }
    }

    fn descriptor(&mut self, node: &Rc<Node>, above: &[Entry], seen: &mut HashMap<String, usize>) {
        let Some(fields) = self.reader.fields(node, "a descriptor", &DESCRIPTOR, belongs) else { return };
        let Some(entry) = self.entry(&fields) else { return };
        let mark = fields.get("key").map_or_else(|| node.mark(), Node::mark);
        let first = seen.insert(entry.text.clone(), mark.start);
        if let Some(first) = first {
            let line = self.reader.problems.line(self.reader.source, first);
            let message = format!("the descriptor {:?} is already defined in line {line}", entry.text);
            self.reader.problem(mark.clone(), message, None);
        }
        let (entries, known) = ([above, &[entry]].concat(), self.limits.len());
        let mut limit = self.limit(&fields, &entries);
        limit.place = self.reader.place(mark);
        self.descriptors(&fields, &entries);
        if limit.mode != Mode::Off || self.limits.len() == known {
            self.limits.insert(known, limit);
        }
        if first.is_some() {
            self.limits.truncate(known); // what is there twice, was only read for its mistakes
        }
    }

    /// The key and the value as one text.
    fn entry(&mut self, fields: &Fields<'_>) -> Option<Entry> {
        let Some(key) = fields.get("key") else {
            let help = "it needs for example key: remote_address".to_owned();
            self.reader.problem(fields.mark.clone(), "this descriptor has no key", help);
            return None;
        };
        let text = self.reader.text(key, "a key")?;
        if text.is_empty() {
            self.reader.problem(key.mark(), "the key of a descriptor cannot be empty", None);
            return None;
        }
        let value = match fields.get("value") {
            Some(value) => self.reader.text(value, "a value")?,
            None => String::new(),
        };
        let mut entry = Entry::new(if value.is_empty() { text } else { format!("{text}_{value}") });
        entry.in_metrics = self.reader.truth(fields.get("value_to_metric"));
        entry.shared = self.reader.truth(fields.get("share_threshold"));
        if let Some(node) = fields.get("share_threshold").filter(|_| entry.shared && !entry.has_stars()) {
            let help = "share_threshold shares one counter between the values of a *".to_owned();
            self.reader.problem(node.mark(), "share_threshold needs a value with a *", help);
            entry.shared = false;
        }
        Some(entry)
    }

    /// The limit of a descriptor; one that is off, if it has none.
    fn limit(&mut self, fields: &Fields<'_>, entries: &[Entry]) -> DraftLimit {
        let mut limit = DraftLimit::new("", Quota::UNLIMITED);
        limit.domain.clone_from(&self.domain);
        limit.envoy.entries = entries.to_vec();
        limit.kind = Kind::FixedWindow;
        limit.count_denied = true;
        limit.envoy.any_of = self.reader.truth(fields.get("quota_mode"));
        limit.envoy.detailed_metric = self.reader.truth(fields.get("detailed_metric"));
        limit.envoy.metadata = fields.get("metadata").map(|node| self.reader.json(node));
        let is_shadow = self.reader.truth(fields.get("shadow_mode"));
        match fields.get("rate_limit") {
            None => limit.mode = Mode::Off,
            Some(node) => {
                limit.mode = if is_shadow { Mode::Shadow } else { Mode::Enforce };
                self.rate_limit(node, &mut limit);
            }
        }
        limit
    }

    fn rate_limit(&mut self, node: &Node, limit: &mut DraftLimit) {
        let Some(fields) = self.reader.fields(node, "a rate_limit", &RATE_LIMIT, belongs) else { return };
        let is_unlimited = self.reader.truth(fields.get("unlimited"));
        let count = fields.get("requests_per_unit");
        let count = count.map_or(Some(0), |node| self.reader.whole_number(node, 0, u64::from(u32::MAX)));
        match fields.get("unit") {
            Some(node) if is_unlimited => {
                self.reader.problem(
                    node.mark(),
                    "unlimited and unit cannot be combined",
                    "remove one of them".to_owned(),
                );
            }
            Some(node) => {
                if let Some((unit, count)) = self.unit(node).zip(count) {
                    limit.rates = vec![Quota::per(count, unit.period())];
                }
            }
            None if is_unlimited => {}
            None => {
                let help = format!("add unit: with one of {}, or unlimited: true", units().join(", "));
                self.reader.problem(fields.mark.clone(), "this rate_limit has no unit", help);
            }
        }
        let label = fields.get("name").and_then(|node| self.reader.text(node, "a name"));
        limit.envoy.label = label.filter(|label| !label.is_empty());
        limit.envoy.replaces = self.replaces(&fields, limit.envoy.label.as_deref());
    }

    fn unit(&mut self, node: &Node) -> Option<Unit> {
        let listed = units().join(", ");
        let text = self.reader.text(node, &format!("a unit, one of {listed}"))?.to_lowercase();
        let unit = Unit::ALL.into_iter().find(|unit| unit.name() == text);
        if unit.is_none() {
            let message = format!("unknown unit {text:?}; expected one of {listed}");
            self.reader.problem(node.mark(), message, did_you_mean(&text, units()));
        }
        unit
    }

    fn replaces(&mut self, fields: &Fields<'_>, own: Option<&str>) -> Vec<Reference> {
        let Some(list) = fields.get("replaces") else { return Vec::new() };
        let mut references = Vec::new();
        for node in self.reader.list(list, "a list of names, such as [{name: other}]") {
            let Some(fields) = self.reader.fields(node, "what is replaced", &["name"], belongs) else {
                continue;
            };
            let name = fields.get("name").and_then(|node| self.reader.text(node, "the name of a limit"));
            let mark = fields.get("name").map_or_else(|| node.mark(), Node::mark);
            match name.filter(|name| !name.is_empty()) {
                None => self.reader.problem(mark, "the name of a replaced limit cannot be empty", None),
                Some(name) if own == Some(&name) => {
                    self.reader.problem(mark, format!("the limit {name:?} cannot replace itself"), None);
                }
                Some(name) => references.push(Reference { name, place: self.reader.place(mark) }),
            }
        }
        references
    }
}

/// Where a word belongs that stands in the wrong place.
fn belongs(word: &str) -> Option<String> {
    let places =
        [("the file", &FILE[..]), ("a descriptor", &DESCRIPTOR[..]), ("rate_limit", &RATE_LIMIT[..])];
    let place = places.iter().find(|(_, words)| words.contains(&word))?;
    Some(format!("it belongs to {}", place.0))
}

fn units() -> [&'static str; 7] {
    Unit::ALL.map(Unit::name)
}

/// A limit is called by its label if no other is, else by its entries.
fn name(limits: &mut [DraftLimit], labels: HashSet<String>) {
    let (mut names, mut used) = (Names::without(labels), HashSet::new());
    for limit in limits {
        let label = limit.envoy.label.clone();
        let is_first = label.clone().is_some_and(|label| used.insert(label));
        let by_label = label.and_then(|label| names.label(&label, is_first));
        limit.name = by_label.unwrap_or_else(|| {
            names.parts(&limit.envoy.entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>())
        });
    }
}
