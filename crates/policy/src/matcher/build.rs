//! Filing limits into the tree.

use std::collections::HashMap;

use super::FieldId;
use super::longest::{End, Longest};
use super::node::{Branch, Entry, Node};
use crate::condition::{Condition, Test};
use crate::limit::Limit;
use crate::network::Bits;
use crate::pattern::Pattern;

/// So many limits are looked at rather than looked up.
const FEW: usize = 4;

/// With more alternatives than this, a condition is looked up even so.
const MANY_ALTERNATIVES: usize = 8;

/// The tree is no deeper than this.
const DEEPEST: usize = 16;

/// How often a limit may be filed, if more than one of its conditions has alternatives.
const MOST_COPIES: usize = 1024;

/// How much of a pattern's literal beginning or end is looked up.
const LONGEST_LITERAL: usize = 128;

/// Where a limit can be found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Anchor {
    Exact(Box<[u8]>),
    Network(Box<[u8]>),
    Prefix(Box<[u8]>),
    Suffix(Box<[u8]>),
    Any,
    Absent,
}

impl Anchor {
    /// The less it promises, the higher.
    fn weakness(&self) -> u8 {
        match self {
            Self::Exact(_) => 0,
            Self::Network(_) => 1,
            Self::Prefix(_) => 2,
            Self::Suffix(_) => 3,
            Self::Any => 4,
            Self::Absent => 5,
        }
    }
}

/// A limit that is being filed.
#[derive(Clone)]
struct Filing {
    rank: u32,
    /// Conditions by which it may still be filed.
    open: Vec<u32>,
    /// Conditions that only looking can decide.
    check: Vec<u32>,
    copies: usize,
}

impl Node {
    /// The tree of the limits with the given ranks.
    pub(crate) fn new(limits: &[Limit], ranks: impl IntoIterator<Item = u32>) -> Self {
        let filing = |rank: u32| {
            let open = (0..limits[rank as usize].clauses().len() as u32).collect();
            Filing { rank, open, check: Vec::new(), copies: 1 }
        };
        build(limits, ranks.into_iter().map(filing).collect(), 0)
    }
}

fn build(limits: &[Limit], filings: Vec<Filing>, depth: usize) -> Node {
    let is_light = |filing: &Filing| {
        let mut conditions = filing.open.iter().map(|&clause| &clause_of(limits, filing, clause).1);
        conditions.all(|condition| alternatives(condition) <= MANY_ALTERNATIVES)
    };
    if depth == DEEPEST || (filings.len() <= FEW && filings.iter().all(is_light)) {
        return Node { entries: filings.into_iter().map(entry).collect(), ..Node::default() };
    }
    let crowds = crowds(limits, &filings);
    let mut node = Node::default();
    let mut groups: HashMap<(FieldId, Anchor), Vec<Filing>> = HashMap::new();
    for filing in filings {
        let Some(clause) = choose(limits, &filing, &crowds) else {
            node.entries.push(entry(filing));
            continue;
        };
        let (field, condition) = clause_of(limits, &filing, clause);
        let anchors = anchors(condition);
        let copies = filing.copies.saturating_mul(anchors.len());
        for (anchor, is_settled) in anchors {
            let mut below = Filing { copies, ..filing.clone() };
            below.open.retain(|open| *open != clause);
            below.check.extend((!is_settled).then_some(clause));
            groups.entry((*field, anchor)).or_default().push(below);
        }
    }
    file(limits, groups, depth, &mut node);
    node
}

/// Builds the nodes below.
fn file(limits: &[Limit], groups: HashMap<(FieldId, Anchor), Vec<Filing>>, depth: usize, node: &mut Node) {
    #[derive(Default)]
    struct Texts {
        prefixes: Vec<(Box<[u8]>, Node)>,
        suffixes: Vec<(Box<[u8]>, Node)>,
        networks: Vec<(Box<[u8]>, Node)>,
    }
    let mut texts: HashMap<FieldId, Texts> = HashMap::new();
    for ((field, anchor), filings) in groups {
        let below = build(limits, filings, depth + 1);
        if anchor == Anchor::Absent {
            node.absent.push((field, below));
            continue;
        }
        let branch: &mut Branch = node.branches.entry(field).or_default();
        let texts = texts.entry(field).or_default();
        match anchor {
            Anchor::Exact(value) => drop(branch.exact.insert(value, below)),
            Anchor::Prefix(text) => texts.prefixes.push((text, below)),
            Anchor::Suffix(text) => texts.suffixes.push((text, below)),
            Anchor::Network(bits) => texts.networks.push((bits, below)),
            Anchor::Any | Anchor::Absent => branch.any = Some(Box::new(below)),
        }
    }
    let longest = |end, texts: Vec<_>| (!texts.is_empty()).then(|| Longest::new(end, texts));
    for (field, texts) in texts {
        let branch = node.branches.entry(field).or_default();
        branch.prefixes = longest(End::Front, texts.prefixes);
        branch.suffixes = longest(End::Back, texts.suffixes);
        branch.networks = longest(End::Front, texts.networks);
    }
}

fn entry(filing: Filing) -> Entry {
    Entry { rank: filing.rank, open: [filing.open, filing.check].concat().into() }
}

fn clause_of<'l>(limits: &'l [Limit], filing: &Filing, clause: u32) -> &'l (FieldId, Condition) {
    &limits[filing.rank as usize].clauses()[clause as usize]
}

/// How many limits could be filed in each place.
fn crowds(limits: &[Limit], filings: &[Filing]) -> HashMap<(FieldId, Anchor), usize> {
    let mut crowds = HashMap::new();
    for filing in filings {
        for &clause in &filing.open {
            let (field, condition) = clause_of(limits, filing, clause);
            for (anchor, _) in anchors(condition) {
                *crowds.entry((*field, anchor)).or_default() += 1;
            }
        }
    }
    crowds
}

/// The condition that a limit shares with the fewest others.
fn choose(limits: &[Limit], filing: &Filing, crowds: &HashMap<(FieldId, Anchor), usize>) -> Option<u32> {
    let mut best: Option<((usize, u8), u32)> = None;
    for &clause in &filing.open {
        let (field, condition) = clause_of(limits, filing, clause);
        let anchors = anchors(condition);
        if filing.copies > 1 && filing.copies.saturating_mul(anchors.len()) > MOST_COPIES {
            continue;
        }
        let crowd = |anchor: Anchor| {
            let weakness = anchor.weakness();
            (crowds.get(&(*field, anchor)).copied().unwrap_or(0), weakness)
        };
        let worst = anchors.into_keys().map(crowd).max().unwrap_or_default();
        if best.is_none_or(|(least, _)| worst < least) {
            best = Some((worst, clause));
        }
    }
    best.map(|(_, clause)| clause)
}

fn alternatives(condition: &Condition) -> usize {
    if let Condition::AnyOf(tests) = condition { tests.len() } else { 1 }
}

/// Where a limit with the condition has to be filed, and whether the condition holds for all that is found there.
fn anchors(condition: &Condition) -> HashMap<Anchor, bool> {
    let Condition::AnyOf(tests) = condition else {
        return HashMap::from([(Anchor::Absent, true)]);
    };
    let mut anchors = HashMap::with_capacity(tests.len());
    for test in tests {
        let (anchor, is_settled) = match test {
            Test::Is(text) => (Anchor::Exact(text.as_bytes().into()), true),
            Test::In(net) => (Anchor::Network(Bits::of_network(net)), true),
            Test::Like(pattern) => of_pattern(pattern),
        };
        *anchors.entry(anchor).or_default() |= is_settled;
    }
    anchors
}

fn of_pattern(pattern: &Pattern) -> (Anchor, bool) {
    if !pattern.as_str().contains('*') {
        return (Anchor::Exact(pattern.as_str().as_bytes().into()), true);
    }
    let (prefix, suffix) = (pattern.prefix().as_bytes(), pattern.suffix().as_bytes());
    if prefix.is_empty() && suffix.is_empty() {
        (Anchor::Any, !pattern.has_middle())
    } else if prefix.is_empty() {
        let shown = &suffix[suffix.len().saturating_sub(LONGEST_LITERAL)..];
        (Anchor::Suffix(shown.into()), !pattern.has_middle() && shown.len() == suffix.len())
    } else {
        let shown = &prefix[..prefix.len().min(LONGEST_LITERAL)];
        (
            Anchor::Prefix(shown.into()),
            !pattern.has_middle() && suffix.is_empty() && shown.len() == prefix.len(),
        )
    }
}
