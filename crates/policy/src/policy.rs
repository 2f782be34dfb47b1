//! A compiled policy.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::choice::{Mode, Unmatched};
use crate::descriptor::Descriptor;
use crate::draft::{Draft, check};
use crate::format;
use crate::limit::{Limit, Rates};
use crate::matcher::{Asked, FieldId, Known, Node, Search, Tree, know};
use crate::matches::{Matches, Scratch};
use crate::problem::Problems;
use crate::source::Source;
use crate::warnings;

/// A compiled set of limits: tells which of them apply to whom.
///
/// How long that takes depends on the descriptor and on the limits that apply, not on how many there are. A policy never
/// changes; to reload, make another and swap them. It can be shared between threads.
///
/// # Examples
/// ```
/// use tollgate_policy::{Descriptor, Policy, Scratch};
///
/// let policy = Policy::parse("web.toml", r#"
///     [limit.login]
///     match.path = "/login*"
///     key = ["ip", "user"]
///     rate = ["1/s", "20/h"]
///
///     [limit.per-ip]
///     key = "ip"
///     rate = "10/s burst 20"
/// "#)?;
/// let mut scratch = Scratch::new();
/// let descriptor = Descriptor::new().with("ip", "10.0.0.7").with("user", "ann").with("path", "/login");
/// let matches = policy.matching(&descriptor, &mut scratch);
/// let names: Vec<&str> = matches.iter().map(|found| found.limit().name()).collect();
/// assert_eq!(names, ["login", "per-ip"]);
/// assert_eq!(matches.get(0).unwrap().key(), b"10.0.0.7,ann");
/// # Ok::<(), tollgate_policy::Problems>(())
/// ```
#[derive(Debug)]
pub struct Policy {
    /// By rank: in the order of the files.
    limits: Vec<Limit>,
    domains: HashMap<Box<str>, Domain, RandomState>,
    /// What looked like a mistake where it was read.
    noted: Problems,
    is_limitador: bool,
}

/// The limits of one domain.
#[derive(Debug, Default)]
struct Domain {
    fields: HashMap<Box<str>, FieldId, RandomState>,
    root: Node,
    /// Limits with entries.
    tree: Tree,
    unmatched: Unmatched,
}

impl Domain {
    fn field(&mut self, name: &str) -> FieldId {
        let next = FieldId(self.fields.len() as u32); // a file of a few megabytes has no four billion names
        *self.fields.entry(name.into()).or_insert(next)
    }

    /// Adds what limits look at of a descriptor.
    fn know<'d>(&self, descriptor: &'d Descriptor<'_>, known: &mut Known<'d>) {
        let start = known.len();
        for (name, value) in descriptor.fields() {
            if let Some(field) = self.fields.get(*name) {
                know(known, start, *field, value);
            }
        }
    }
}

impl Policy {
    /// Reads a policy file of any [`Format`](crate::Format) and compiles it. The path is never opened.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn parse(path: impl Into<String>, text: impl Into<String>) -> Result<Self, Problems> {
        Self::compile(format::read(&Source::new(path, text))?)
    }

    /// Compiles limits, whatever they were read from.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn compile(draft: Draft) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        check(&draft, &mut problems);
        problems.or(()).map(|()| Self::of(draft))
    }

    fn of(draft: Draft) -> Self {
        let mut domains: HashMap<Box<str>, Domain, RandomState> = HashMap::default();
        let (mut limits, mut numbers) = (Vec::with_capacity(draft.limits.len()), 0);
        for limit in draft.limits {
            let domain = domains.entry(limit.domain.as_str().into()).or_default();
            let limit = Limit::new(limit, numbers, |name| domain.field(name));
            numbers += limit.rates().len();
            limits.push(limit);
        }
        for said in &draft.domains {
            if let Some(domain) = domains.get_mut(said.name.as_str()) {
                domain.unmatched = said.unmatched;
            }
        }
        resolve_replaces(&mut limits);
        let mut ranks: HashMap<&str, (Vec<u32>, Vec<u32>)> = HashMap::new();
        for (rank, limit) in (0..).zip(&limits) {
            let (plain, with_entries) = ranks.entry(limit.domain()).or_default();
            if !limit.entries().is_empty() {
                // What is off, is still where the way of some descriptors ends.
                with_entries.push(rank);
            } else if limit.mode() != Mode::Off {
                plain.push(rank);
            }
        }
        for (name, (plain, with_entries)) in ranks {
            let domain = domains.entry(name.into()).or_default();
            domain.root = Node::new(&limits, plain);
            domain.tree = Tree::new(with_entries.iter().map(|&rank| (limits[rank as usize].entries(), rank)));
        }
        let is_limitador = !limits.is_empty() && limits.iter().all(Limit::is_once);
        Self { limits, domains, noted: draft.noted.0, is_limitador }
    }

    /// The limits that apply, in the order of the files.
    pub fn matching<'a>(&'a self, descriptor: &Descriptor<'_>, scratch: &'a mut Scratch) -> Matches<'a> {
        self.matching_all(std::slice::from_ref(descriptor), scratch)
    }

    /// The limits that apply to a call with several descriptors. Each is matched on its own, but what a limit replaces does not
    /// apply to any of them; limits that look [once](Limit::is_once) look at the first.
    ///
    /// # Examples
    /// ```
    /// use tollgate_policy::{Descriptor, Policy, Scratch};
    ///
    /// let policy = Policy::parse("web.toml", r#"
    ///     [limit.per-ip]
    ///     envoy.entries = "ip"
    ///     rate = "10/s"
    ///
    ///     [limit.staff]
    ///     envoy = { entries = "user_*@example.com", replaces = "per-ip" }
    ///     rate = "unlimited"
    /// "#)?;
    /// let (ip, user) = (Descriptor::new().with("ip", "10.0.0.7"), Descriptor::new().with("user", "ann@example.com"));
    /// let mut scratch = Scratch::new();
    /// assert_eq!(policy.matching(&ip, &mut scratch).get(0).unwrap().limit().name(), "per-ip");
    /// let both = policy.matching_all(&[ip, user], &mut scratch);
    /// let found: Vec<_> = both.iter().map(|found| (found.descriptor(), found.limit().name())).collect();
    /// assert_eq!(found, [(1, "staff")]);
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn matching_all<'a>(
        &'a self,
        descriptors: &[Descriptor<'_>],
        scratch: &'a mut Scratch,
    ) -> Matches<'a> {
        scratch.clear();
        let (mut known, mut domains) = (Known::new(), SmallVec::<[_; 4]>::new());
        for descriptor in descriptors {
            let domain = self.domains.get(descriptor.domain());
            domain.inspect(|domain| domain.know(descriptor, &mut known));
            domains.push((domain, known.len()));
        }
        let (mut all, mut start) = (SmallVec::<[Asked<'_>; 4]>::new(), 0);
        for (at, (domain, end)) in domains.into_iter().enumerate() {
            let asked = Asked { fields: &known[start..end], entries: descriptors[at].fields() };
            if let Some(domain) = domain {
                self.search(domain, asked, scratch);
                scratch.meet(&self.limits, descriptors, at);
            }
            all.push(asked);
            start = end;
        }
        scratch.fill(&self.limits, &all);
        Matches::new(&self.limits, scratch)
    }

    fn search(&self, domain: &Domain, asked: Asked<'_>, scratch: &mut Scratch) {
        let mut search = Search { asked, limits: &self.limits, found: &mut scratch.ranks, examined: 0 };
        search.visit(&domain.root);
        scratch.examined += search.examined;
        if !domain.tree.is_empty() {
            let (rank, tried) = domain.tree.find(asked.entries, &mut scratch.text);
            let is_on = |rank: &u32| self.limits[*rank as usize].mode() != Mode::Off;
            scratch.examined += tried + usize::from(rank.is_some());
            scratch.ranks.extend(rank.filter(is_on));
        }
    }

    /// Whether there is such a domain.
    pub fn has_domain(&self, name: &str) -> bool {
        self.domains.contains_key(name)
    }

    /// Returns the decision for a call in a domain that none of its limits applies to, or `None` if there is no such domain.
    pub fn unmatched(&self, domain: &str) -> Option<Unmatched> {
        self.domains.get(domain).map(|domain| domain.unmatched)
    }

    /// Returns `true` if all limits are as in limitador's files: they count a call [once](Limit::is_once).
    pub fn is_limitador(&self) -> bool {
        self.is_limitador
    }

    /// All limits of all domains, in the order of the files.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// Returns warnings: settings that are valid but look like mistakes, each with its place and a remedy. Examples are a text that
    /// looks like a network, a limit that no call reaches, and a key that leaves calls without a limit. This compares limits with each
    /// other, so it takes longer than to compile them.
    ///
    /// # Examples
    /// ```
    /// use tollgate_policy::Policy;
    ///
    /// let policy = Policy::parse("web.toml", "[limit.writes]\nmatch.method = \"PUT|POST\"\nrate = \"1/s\"")?;
    /// let warnings = policy.warnings();
    /// let warning = warnings.iter().next().unwrap();
    /// assert_eq!((warning.line, warning.column), (2, 16));
    /// assert_eq!(warning.message, "\"PUT|POST\" looks like several texts, but is compared as one text");
    /// # Ok::<(), tollgate_policy::Problems>(())
    /// ```
    pub fn warnings(&self) -> Problems {
        let mut all = self.noted.clone();
        warnings::add(self, &mut all);
        all.in_order()
    }

    /// The rates of every limit, those of its overrides included, in the order of their numbers: what a store has to hold
    /// states for.
    pub fn rates(&self) -> impl Iterator<Item = (&Limit, &Rates)> {
        self.limits.iter().flat_map(|limit| limit.rates().iter().map(move |rates| (limit, rates)))
    }

    /// The names of the domains, sorted.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        let sorted: BTreeSet<&str> = self.domains.keys().map(|name| &**name).collect();
        sorted.into_iter()
    }

    /// What limits look at of a descriptor.
    pub(crate) fn known<'d>(&self, descriptor: &'d Descriptor<'_>) -> Known<'d> {
        let mut known = Known::new();
        self.domains.get(descriptor.domain()).inspect(|domain| domain.know(descriptor, &mut known));
        known
    }

    /// The texts that the entries of a descriptor lead by; see [`Entry`](crate::Entry).
    pub(crate) fn way(&self, descriptor: &Descriptor<'_>) -> Vec<&str> {
        let domain = self.domains.get(descriptor.domain());
        domain.map(|domain| domain.tree.way(descriptor.fields())).unwrap_or_default()
    }

    /// Whether limits of a domain have expressions.
    pub(crate) fn has_expressions(&self, domain: &str) -> bool {
        let has = |limit: &Limit| {
            !limit.draft().when.is_empty() || limit.draft().key_expressions().next().is_some()
        };
        self.limits.iter().any(|limit| limit.domain() == domain && has(limit))
    }

    /// Whether limits of a domain ask for entries.
    pub(crate) fn has_entries(&self, domain: &str) -> bool {
        self.domains.get(domain).is_some_and(|domain| !domain.tree.is_empty())
    }

    /// The names of the fields that limits of a domain look at, in no order; none if there is no such domain.
    pub fn fields(&self, domain: &str) -> Option<Vec<&str>> {
        self.domains.get(domain).map(|domain| domain.fields.keys().map(|name| &**name).collect())
    }
}

/// From names and labels to ranks.
fn resolve_replaces(limits: &mut [Limit]) {
    let mut ranks: HashMap<(String, String), Vec<u32>> = HashMap::new();
    for (rank, limit) in (0..).zip(&*limits) {
        let draft = limit.draft();
        let label = draft.envoy.label.as_ref().filter(|label| **label != draft.name);
        for called in std::iter::once(&draft.name).chain(label) {
            ranks.entry((draft.domain.clone(), called.clone())).or_default().push(rank);
        }
    }
    for limit in limits.iter_mut().filter(|limit| !limit.draft().envoy.replaces.is_empty()) {
        let others =
            limit.draft().envoy.replaces.iter().map(|other| (limit.domain().to_owned(), other.name.clone()));
        let others = others.filter_map(|other| ranks.get(&other)).flatten().copied().collect();
        limit.set_replaces(others);
    }
}
