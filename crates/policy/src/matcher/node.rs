//! The tree, and the way through it.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::longest::Longest;
use super::{FieldId, Search};
use crate::network::{Bits, address};

/// Limits of which certain conditions hold.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Those that are looked at one by one.
    pub(super) entries: Vec<Entry>,
    pub(super) absent: Vec<(FieldId, Node)>,
    pub(super) branches: HashMap<FieldId, Branch, RandomState>,
}

/// A limit, and those of its conditions that are not yet known to hold.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) rank: u32,
    pub(super) open: Box<[u32]>,
}

/// Limits that ask something of a field.
#[derive(Debug, Default)]
pub(super) struct Branch {
    pub(super) exact: HashMap<Box<[u8]>, Node, RandomState>,
    pub(super) prefixes: Option<Longest<Node>>,
    pub(super) suffixes: Option<Longest<Node>>,
    pub(super) networks: Option<Longest<Node>>,
    pub(super) any: Option<Box<Node>>,
}

impl Search<'_> {
    /// Adds every limit beneath the node that applies; a limit may be added more than once.
    pub(crate) fn visit(&mut self, node: &Node) {
        for entry in &node.entries {
            self.look_at(entry);
        }
        for (field, below) in &node.absent {
            if self.asked.value(*field).is_none() {
                self.visit(below);
            }
        }
        if node.branches.is_empty() {
            return;
        }
        for (field, value) in self.asked.fields {
            if let Some(branch) = node.branches.get(field) {
                self.enter(branch, value);
            }
        }
    }

    fn look_at(&mut self, entry: &Entry) {
        self.examined += 1;
        let clauses = self.limits[entry.rank as usize].clauses();
        let holds = |&clause: &u32| {
            let (field, condition) = &clauses[clause as usize];
            condition.holds(self.asked.value(*field))
        };
        if entry.open.iter().all(holds) {
            self.found.push(entry.rank);
        }
    }

    fn enter(&mut self, branch: &Branch, value: &[u8]) {
        if let Some(below) = branch.exact.get(value) {
            self.visit(below);
        }
        if let Some(prefixes) = &branch.prefixes {
            prefixes.each(value, |below| self.visit(below));
        }
        if let Some(suffixes) = &branch.suffixes {
            suffixes.each(value, |below| self.visit(below));
        }
        if let Some((networks, address)) = branch.networks.as_ref().zip(address(value)) {
            networks.each(Bits::of(address).as_bytes(), |below| self.visit(below));
        }
        if let Some(below) = &branch.any {
            self.visit(below);
        }
    }
}
