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
    let (mut draft, mut problems) = parse(source);
    finish(&mut draft, &mut problems);
    problems.or(draft)
}

/// Reads a file as far as it can be understood without the others of its domain; and what is wrong with it.
pub(crate) fn parse(source: &Arc<Source>) -> (Draft, Problems) {
    let (mut draft, mut problems) = (Draft::default(), Problems::default());
    let expected = "expected a domain and its descriptors, or a list of limits";
    if let Some(root) = yaml::parse(source, &mut problems) {
        let mut reader = Reader { source, problems: &mut problems };
        draft = match root.content {
            _ if kubernetes::refuse(&root, &mut reader) => draft,
            Content::Map(_) => envoy::read(&root, reader),
            Content::List(_) => limitador::read(&root, reader),
            Content::Scalar(_) => {
                reader.problem(root.mark(), format!("{expected}, found {}", root.found()), None);
                draft
            }
        };
    } else if problems.is_empty() {
        problems.add(|| Problem::new(&Place::new(source, 0..0), format!("{expected}, found nothing")));
    }
    (draft, problems)
}

/// Completes what was read of a file, or of all files of a domain.
pub(crate) fn finish(draft: &mut Draft, problems: &mut Problems) {
    if domain_of(draft).is_some() {
        envoy::finish(&mut draft.limits);
    }
    check(draft, problems);
}

/// The domain of a file for Envoy, which has no more than one.
pub(crate) fn domain_of(draft: &Draft) -> Option<&str> {
    let first = draft.limits.first().filter(|limit| !limit.envoy.entries.is_empty());
    first.map(|limit| limit.domain.as_str())
}
