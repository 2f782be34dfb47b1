//! The policy, as it is in its file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tollgate::store::Store;
use tollgate_policy::{Draft, Policy, Problem, Problems};

use super::Kept;
use crate::audit;
use crate::engine::{Engine, Origin};

/// Where a policy is, and how its files are read.
///
/// # Examples
/// ```no_run
/// use tollgate_server::{PolicyPath, read_policy};
///
/// let (policy, origin) = read_policy("limits.toml")?;
/// let (merged, origin) = read_policy(PolicyPath::from("/etc/ratelimit").merging_domains(true))?;
/// # Ok::<(), tollgate_policy::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyPath {
    path: PathBuf,
    merges: bool,
}

impl PolicyPath {
    /// Whether several files for Envoy may be of one domain, as [`Draft::load_merged`] reads them.
    #[must_use]
    pub fn merging_domains(self, merges: bool) -> Self {
        Self { merges, ..self }
    }

    fn draft(&self) -> Result<Draft, Problems> {
        if self.merges { Draft::load_merged([&self.path]) } else { Draft::load(&self.path) }
    }
}

impl<P: AsRef<Path>> From<P> for PolicyPath {
    fn from(path: P) -> Self {
        Self { path: path.as_ref().to_owned(), merges: false }
    }
}

/// Reads the policy at a path, and what tells it from others: its name, and a hash of what it says.
///
/// The hash is that of the limits in our own notation, so that neither comments nor the order of words nor the format of the
/// file make a difference.
///
/// # Errors
/// Everything that is wrong with it, or why it cannot be read.
pub fn read_policy(path: impl Into<PolicyPath>) -> Result<(Policy, Origin), Problems> {
    let path = path.into();
    let draft = path.draft()?;
    let origin = Origin { name: path.path.display().to_string(), hash: hash(&contents(&draft)) };
    Ok((Policy::compile(draft)?, origin))
}

/// All that a draft says. As a file it only has what is said of all of its domains.
fn contents(draft: &Draft) -> String {
    let domains = draft.domains.iter().map(|said| format!("{} {}\n", said.name, said.unmatched));
    let domains: BTreeSet<String> = domains.collect();
    draft.to_string() + &String::from_iter(domains)
}

/// FNV-1a: the same in every process and version, so that servers can be compared. It keeps no secret.
fn hash(text: &str) -> String {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

/// The policy of an engine.
pub(super) struct PolicyFile<S: Store> {
    engine: Engine<S>,
    path: PolicyPath,
}

impl<S: Store> Kept for PolicyFile<S> {
    const NAME: &'static str = "policy";

    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path.path.clone()]
    }

    fn read_again(&mut self, was_asked: bool) {
        match read_policy(self.path.clone()) {
            Err(problems) => {
                self.refuse(&problems);
                self.audit(was_asked, audit::Reload::Refused, None);
            }
            Ok((_, origin)) if self.is_same(&origin) => {
                if was_asked {
                    tracing::info!(policy = origin.name, "policy unchanged");
                    self.audit(was_asked, audit::Reload::Unchanged, None);
                }
            }
            Ok((policy, origin)) => {
                let changes = format!("hash {}", origin.hash);
                self.load(policy, origin);
                self.audit(was_asked, audit::Reload::Loaded, Some(&changes));
            }
        }
    }
}

impl<S: Store> PolicyFile<S> {
    pub(super) fn new(engine: Engine<S>, path: PolicyPath) -> Self {
        Self { engine, path }
    }

    fn is_same(&self, origin: &Origin) -> bool {
        let status = self.engine.status();
        status.problem.is_none() && status.origin == *origin
    }

    fn load(&self, policy: Policy, origin: Origin) {
        let limits = policy.limits().len();
        tracing::info!(policy = origin.name, limits, hash = origin.hash, "policy reloaded");
        self.engine.load(policy, origin);
    }

    fn refuse(&self, problems: &Problems) {
        let (policy, count) = (self.path.path.display(), problems.count());
        tracing::error!(%policy, problems = count, "cannot load the policy, keeping the previous one");
        problems.iter().for_each(log);
        self.engine.load_failed(problems.to_string());
    }
}

/// Logs one problem of the policy.
fn log(problem: &Problem) {
    let Problem { path, line, column, message, help, .. } = problem;
    tracing::error!(at = %format_args!("{path}:{line}:{column}"), help, "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "[limit.all]\nrate = \"2/h\"\n";
    const NINE: &str = "[limit.all]\nrate = \"9/h\"\n";

    #[test]
    fn the_hash_is_that_of_what_is_said() {
        assert_eq!(hash(""), "cbf29ce484222325"); // the offset basis of FNV-1a
        assert_eq!(hash("a"), "af63dc4c8601ec8c"); // from the test suite of its authors
        let folder = tempfile::tempdir().unwrap();
        let at = |text: &str| {
            let path = folder.path().join("a.toml");
            std::fs::write(&path, text).unwrap();
            read_policy(&path).unwrap().1.hash
        };
        assert_eq!(at(TWO), at("# so it is\n[limit]\nall.rate = \"2 per h\""));
        assert_ne!(at(TWO), at(NINE));
    }

    /// Answers, item 16: a policy in which only one of several domains denies unmatched calls is another policy.
    #[test]
    fn the_hash_has_what_is_said_of_each_domain() {
        let folder = tempfile::tempdir().unwrap();
        let hash = |first: &str| {
            for (name, top) in [("mail", ""), ("web", first)] {
                let text = format!("domain = \"{name}\"\n{top}{TWO}");
                std::fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
            }
            read_policy(folder.path()).unwrap().1.hash
        };
        assert_ne!(hash(""), hash("unmatched = \"deny\"\n"));
    }
}
