//! What a file was written for.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::choice::Unmatched;
use crate::draft::Draft;
use crate::import;
use crate::native;
use crate::policy::Policy;
use crate::problem::{Problem, Problems};
use crate::source::Source;

/// What a file was written for: the name of its file tells, or else how it starts.
///
/// Files in YAML are either those of Envoy's rate limit service (envoyproxy/ratelimit), which are maps, or those of limitador,
/// which are lists; they are read as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Ours: TOML.
    Native,
    /// Envoy's or limitador's: YAML.
    Yaml,
}

impl Format {
    /// What a source was written for.
    pub fn of(source: &Source) -> Self {
        let extension = Path::new(source.path()).extension().and_then(|extension| extension.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("toml") => Self::Native,
            Some("yaml" | "yml" | "json") => Self::Yaml, // JSON is YAML too
            _ => Self::by_content(source.text()),
        }
    }

    /// The first line that says something: a list, or a word and a colon, is YAML.
    fn by_content(text: &str) -> Self {
        let text = text.trim_start_matches('\u{feff}');
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let is_yaml = |line: &str| {
            let word = line.split(':').next().filter(|_| line.contains(':')).unwrap_or_default();
            line == "-"
                || line.starts_with("- ")
                || line.starts_with("---")
                || (!word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        };
        if lines.take(1).any(is_yaml) { Self::Yaml } else { Self::Native }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "TOML",
            Self::Yaml => "YAML",
        })
    }
}

/// Reads a policy file of any [`Format`].
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(source: &Arc<Source>) -> Result<Draft, Problems> {
    match Format::of(source) {
        Format::Native => native::read(source),
        Format::Yaml => import::read(source),
    }
}

/// Turns limits, whatever they were read from, into a file of ours that decides the same.
///
/// In a file of ours no two limits have one name, whatever their domains. So of limits that do, all but the first get another, and
/// with it states of their own.
///
/// # Errors
/// Everything that is wrong with the limits; or that there are none; or that one file cannot say what they say of `unmatched`.
///
/// # Examples
/// ```
/// use tollgate_policy::{Source, convert, read};
///
/// let envoy = "domain: web\ndescriptors:\n- key: path\n  value: /login\n  rate_limit: {unit: minute, requests_per_unit: 5}\n";
/// assert_eq!(convert(read(&Source::new("web.yaml", envoy))?)?, "\
/// [limit.\"path_/login\"]
/// domain = \"web\"
/// algorithm = \"fixed-window\"
/// count_denied = true
/// rate = \"5/min\"
/// envoy.entries = \"path_/login\"
/// ");
/// # Ok::<(), tollgate_policy::Problems>(())
/// ```
pub fn convert(draft: Draft) -> Result<String, Problems> {
    if draft.limits.is_empty() {
        return Err(Problem::in_file("", "there is no limit to convert").into());
    }
    let policy = Policy::compile(draft.clone())?;
    let denying: Vec<&str> =
        policy.domains().filter(|domain| policy.unmatched(domain) == Some(Unmatched::Deny)).collect();
    if let Some(domain) = denying.first().filter(|_| denying.len() < policy.domains().count()) {
        let message =
            format!("domains differ in unmatched: {domain:?} has unmatched = \"deny\", others do not");
        let help = "unmatched applies to all domains of a file: convert each domain separately".to_owned();
        return Err(Problem::in_file("", message).help(help).into());
    }
    Ok(draft.with_unique_names().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_what_a_file_is_and_else_its_first_line() {
        let format = |path: &str, text: &str| Format::of(&Source::new(path, text));
        assert_eq!(format("a.toml", "domain: x"), Format::Native);
        assert_eq!(format("a.YAML", "[limit.a]"), Format::Yaml);
        assert_eq!(format("a.yml", ""), Format::Yaml);
        assert_eq!(format("a.json", "[]"), Format::Yaml);
        for yaml in [
            "domain: x\n",
            "# hello\n\n- namespace: x\n",
            "---\nx",
            "\u{feff}domain:\n",
            "descriptors:\n - x",
        ] {
            assert_eq!(format("policy", yaml), Format::Yaml, "{yaml}");
        }
        for native in ["", "[limit.a]\n", "domain = \"a:b\"\n", "# x: y\n[limit.a]", "limit.\"a:b\".rate = 1"]
        {
            assert_eq!(format("policy", native), Format::Native, "{native}");
        }
    }
}
