//! Objects of Kubernetes that are given in place of the file in them.

use crate::yaml::{Content, Node, Reader};

/// Reports an object of Kubernetes. Returns whether the file is one.
pub(super) fn refuse(root: &Node, reader: &mut Reader<'_>) -> bool {
    let (Some(_), Some(kind)) = (text(root, "apiVersion"), text(root, "kind")) else { return false };
    let help = match kind {
        "ConfigMap" => {
            "write the text under data into a file of its own, or mount the ConfigMap and name the mounted file"
        }
        "Limitador" => "write the list under spec.limits into a file of its own",
        _ => {
            "give the file that limitador or envoyproxy/ratelimit reads: Kuadrant's operator writes it into a ConfigMap"
        }
    };
    let message = format!("this is a Kubernetes object of kind {kind:?}, not a policy");
    reader.problem(root.mark(), message, help.to_owned());
    true
}

/// The text of an entry of a map.
fn text<'n>(map: &'n Node, name: &str) -> Option<&'n str> {
    let Content::Map(pairs) = &map.content else { return None };
    let is_it = |key: &Node| key.scalar().is_some_and(|key| key.text == name);
    let (_, value) = pairs.iter().find(|(key, _)| is_it(key))?;
    value.scalar().map(|scalar| scalar.text.as_str())
}
