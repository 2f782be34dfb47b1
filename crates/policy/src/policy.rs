//! A compiled policy.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;

use crate::choice::Mode;
use crate::descriptor::Descriptor;
use crate::draft::{Draft, check};
use crate::limit::{Limit, Rates};
use crate::matcher::{Asked, FieldId, Node, Search};
use crate::matches::{Matches, Scratch};
use crate::native;
use crate::problem::Problems;
use crate::source::Source;

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
///     [limit.per-ip]
///     key = "ip"
///     rate = "10/s burst 20"
///
///     [limit.login]
///     match.path = "/login*"
///     key = ["ip", "user"]
///     rate = ["1/s", "20/h"]
///     priority = 1
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
    /// By rank: the first is the most important.
    limits: Vec<Limit>,
    domains: HashMap<Box<str>, Domain, RandomState>,
}

/// The limits of one domain.
#[derive(Debug, Default)]
struct Domain {
    fields: HashMap<Box<str>, FieldId, RandomState>,
    root: Node,
}

impl Domain {
    fn field(&mut self, name: &str) -> FieldId {
        let next = FieldId(self.fields.len() as u32); // a file of a few megabytes has no four billion names
        *self.fields.entry(name.into()).or_insert(next)
    }
}

impl Policy {
    /// Reads a policy file and compiles it. The path is only shown in problems.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn parse(path: impl Into<String>, text: impl Into<String>) -> Result<Self, Problems> {
        Self::compile(native::read(&Source::new(path, text))?)
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

    fn of(mut draft: Draft) -> Self {
        draft.limits.sort_by_key(|limit| std::cmp::Reverse(limit.priority));
        let mut domains: HashMap<Box<str>, Domain, RandomState> = HashMap::default();
        let (mut limits, mut numbers) = (Vec::with_capacity(draft.limits.len()), 0);
        for limit in draft.limits {
            let domain = domains.entry(limit.domain.as_str().into()).or_default();
            let limit = Limit::new(limit, numbers, |name| domain.field(name));
            numbers += limit.rates().len();
            limits.push(limit);
        }
        resolve_replaces(&mut limits);
        let mut ranks: HashMap<&str, Vec<u32>> = HashMap::new();
        for (rank, limit) in (0..).zip(&limits).filter(|(_, limit)| limit.mode() != Mode::Off) {
            ranks.entry(limit.domain()).or_default().push(rank);
        }
        for (name, ranks) in ranks {
            domains.entry(name.into()).or_default().root = Node::new(&limits, ranks);
        }
        Self { limits, domains }
    }

    /// The limits that apply, the most important first.
    pub fn matching<'a>(&'a self, descriptor: &Descriptor<'_>, scratch: &'a mut Scratch) -> Matches<'a> {
        scratch.clear();
        if let Some(domain) = self.domains.get(descriptor.domain()) {
            let asked = asked(domain, descriptor);
            let mut search =
                Search { asked: &asked, limits: &self.limits, found: &mut scratch.ranks, examined: 0 };
            search.visit(&domain.root);
            let examined = search.examined;
            scratch.fill(&self.limits, &asked, examined);
        }
        Matches::new(&self.limits, scratch)
    }

    /// All limits of all domains, the most important first.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
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

    pub(crate) fn asked<'d>(&self, descriptor: &Descriptor<'d>) -> Asked<'d> {
        match self.domains.get(descriptor.domain()) {
            Some(domain) => asked(domain, descriptor),
            None => Asked::new([]),
        }
    }

    /// The names of the fields that limits of a domain look at, in no order; none if there is no such domain.
    pub fn fields(&self, domain: &str) -> Option<Vec<&str>> {
        self.domains.get(domain).map(|domain| domain.fields.keys().map(|name| &**name).collect())
    }
}

fn asked<'d>(domain: &Domain, descriptor: &Descriptor<'d>) -> Asked<'d> {
    let fields = descriptor.fields().iter();
    Asked::new(fields.filter_map(|(name, value)| Some((*domain.fields.get(*name)?, *value))))
}

/// From names to ranks.
fn resolve_replaces(limits: &mut [Limit]) {
    let key = |limit: &Limit| (limit.domain().to_owned(), limit.name().to_owned());
    let ranks: HashMap<(String, String), u32> =
        (0..).zip(&*limits).map(|(rank, limit)| (key(limit), rank)).collect();
    for limit in limits.iter_mut().filter(|limit| !limit.draft().replaces.is_empty()) {
        let others =
            limit.draft().replaces.iter().map(|other| (limit.domain().to_owned(), other.name.clone()));
        let others = others.filter_map(|other| ranks.get(&other).copied()).collect();
        limit.set_replaces(others);
    }
}
