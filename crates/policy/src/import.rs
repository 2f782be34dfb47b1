//! Files that were written for others: read as they are, into the same drafts.

mod envoy;
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
    let mut problems = Problems::default();
    let root = yaml::parse(source, &mut problems);
    let mut draft = Draft::default();
    let expected = "expected a domain and its descriptors, or a list of limits";
    if let Some(root) = root {
        let mut reader = Reader { source, problems: &mut problems };
        draft = match root.content {
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
    check(&draft, &mut problems);
    problems.or(draft)
}
