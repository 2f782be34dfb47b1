//! Policies in files: the one place here that reads any.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::draft::Draft;
use crate::format::{self, Format};
use crate::policy::Policy;
use crate::problem::{Problem, Problems};
use crate::source::{Place, Source};

/// The largest policy file. A hundred thousand limits fit.
pub const LARGEST_FILE: u64 = 16 * 1024 * 1024;

impl Policy {
    /// Reads a policy file, or all of a directory, and compiles it.
    ///
    /// # Errors
    /// Everything that is wrong with it, or why it cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Problems> {
        Self::compile(Draft::load(path)?)
    }
}

impl Draft {
    /// Reads a policy file of any [`Format`](crate::Format). Of a directory all files are read whose names end with `.toml`, `.yaml` or `.yml`,
    /// but not those that start with a dot, nor those in directories below; either all of them are right, or none is read.
    ///
    /// # Errors
    /// Everything that is wrong with it, or why it cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Problems> {
        let path = path.as_ref();
        if !path.is_dir() {
            return format::read(&read(path)?);
        }
        let (mut draft, mut problems) = (Self::default(), Problems::default());
        let mut domains: HashMap<String, PathBuf> = HashMap::new();
        for file in files(path)? {
            match read(&file).and_then(|source| format::read(&source).map(|draft| (source, draft))) {
                Ok((source, read)) => {
                    check_domain(&source, &read, &file, &mut domains, &mut problems);
                    draft.append(read);
                }
                Err(more) => problems.append(more),
            }
        }
        problems.or(draft)
    }
}

/// The policy files of a directory, in the order of their names.
fn files(path: &Path) -> Result<Vec<PathBuf>, Problems> {
    let failed = |error: std::io::Error| {
        Problems::from(Problem::in_file(path.display().to_string(), format!("cannot be read: {error}")))
    };
    let is_policy = |file: &PathBuf| {
        let is_hidden = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let extension = file.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        !is_hidden && matches!(extension.as_deref(), Some("toml" | "yaml" | "yml")) && !file.is_dir()
    };
    let all = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
    let mut files: Vec<PathBuf> = all.into_iter().map(|entry| entry.path()).filter(is_policy).collect();
    files.sort();
    if files.is_empty() {
        let message = "there is no policy in this directory; expected files such as web.toml or web.yaml";
        return Err(Problem::in_file(path.display().to_string(), message).into());
    }
    Ok(files)
}

/// Two files for Envoy cannot be of one domain: which of them was meant?
fn check_domain(
    source: &Arc<Source>,
    draft: &Draft,
    file: &Path,
    domains: &mut HashMap<String, PathBuf>,
    problems: &mut Problems,
) {
    let Some(limit) = draft.limits.iter().find(|limit| !limit.entries.is_empty()) else { return };
    if Format::of(source) != Format::Yaml {
        return;
    }
    if let Some(first) = domains.insert(limit.domain.clone(), file.to_owned()) {
        let message = format!("the domain {:?} is already in {}", limit.domain, first.display());
        let at = source.text().find("domain").unwrap_or_default();
        let help = "put all of a domain into one file".to_owned();
        problems.add(|| Problem::new(&Place::new(source, at..at + "domain".len()), message).help(help));
    }
}

fn read(path: &Path) -> Result<Arc<Source>, Problems> {
    let shown = path.display().to_string();
    let failed =
        |error: std::io::Error| Problems::from(Problem::in_file(&*shown, format!("cannot be read: {error}")));
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST_FILE {
        let most = LARGEST_FILE / (1024 * 1024);
        let message = format!("is larger than {most} MiB, the most that a policy may have");
        return Err(Problem::in_file(shown, message).into());
    }
    decode(&shown, bytes)
}

fn decode(path: &str, bytes: Vec<u8>) -> Result<Arc<Source>, Problems> {
    String::from_utf8(bytes).map(|text| Source::new(path, text)).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let source = Source::new(path, String::from_utf8_lossy(error.as_bytes()));
        let message =
            format!("this byte (0x{:02x}) is not UTF-8, which policies are written in", error.as_bytes()[at]);
        // Up to here the two texts are the same; the replacement character is three bytes long.
        Problem::new(&Place::new(&source, at..at + 3), message).into()
    })
}
