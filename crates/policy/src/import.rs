//! Files that were written for others: read as they are, into the same drafts.

mod envoy;
mod kubernetes;
mod limitador;
mod names;

use std::sync::Arc;

use crate::draft::{Draft, check};
use crate::problem::{Problem, Problems};
use crate::source::{Place, Source};
use crate::yaml::{self, Content, Reader};
use names::Names;

/// Reads a file in YAML: what it is a file for, its first word tells.
pub(crate) fn read(source: &Arc<Source>) -> Result<Draft, Problems> {
    let Imported { mut draft, mut problems, .. } = parse(source);
    finish(&mut draft, &mut problems);
    problems.or(draft)
}

/// A file as far as it can be understood without the others of its domain.
#[derive(Default)]
pub(crate) struct Imported {
    pub(crate) draft: Draft,
    pub(crate) problems: Problems,
    /// The domain of a file for Envoy, and where it stands.
    pub(crate) domain: Option<(String, Place)>,
}

pub(crate) fn parse(source: &Arc<Source>) -> Imported {
    let (mut all, mut notes) = (Imported::default(), Problems::default());
    let problems = &mut all.problems;
    let expected = "expected a domain and its descriptors, or a list of limits";
    if let Some(root) = yaml::parse(source, problems, &mut notes) {
        let mut reader = Reader { source, problems };
        match root.content {
            _ if kubernetes::refuse(&root, &mut reader) => {}
            Content::Map(_) => (all.draft, all.domain) = envoy::read(&root, reader),
            Content::List(_) => all.draft = limitador::read(&root, reader),
            Content::Scalar(_) => {
                reader.problem(root.mark(), format!("{expected}, found {}", root.found()), None);
            }
        }
    } else if problems.is_empty() {
        problems.add(|| Problem::new(&Place::new(source, 0..0), format!("{expected}, found nothing")));
    }
    all.draft.noted.0.append(notes);
    all
}

/// Completes what was read of a file, or of all files of a domain.
pub(crate) fn finish(draft: &mut Draft, problems: &mut Problems) {
    if draft.limits.first().is_some_and(|limit| !limit.envoy.entries.is_empty()) {
        envoy::finish(&mut draft.limits);
    }
    check(draft, problems);
}
