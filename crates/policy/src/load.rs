//! Policies in files: the one place here that reads any.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::draft::Draft;
use crate::format::Format;
use crate::import::{self, Imported};
use crate::native;
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
    /// Reads a policy file of any [`Format`](crate::Format), or the files of a directory, but not those whose names start with a dot.
    /// Either all of them are right, or none is read.
    ///
    /// If the directory has files whose names end with `.toml`, these are read, and those that end with `.yaml` or `.yml`. If it has
    /// none, all files in it and in the directories below are read as YAML, as Envoy's own service reads its files.
    ///
    /// # Errors
    /// Everything that is wrong with it, or why it cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Problems> {
        Reading::default().all([path])
    }

    /// [Reads](Self::load) all of these. Files for Envoy may be of one domain then: each has some of its descriptors, and none has
    /// one that another has.
    ///
    /// # Errors
    /// Everything that is wrong with them, or why they cannot be read.
    pub fn load_merged<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, Problems> {
        Reading { merges: true, ..Reading::default() }.all(paths)
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reading {
    /// Whether several files for Envoy may be of one domain.
    merges: bool,
    parts: Vec<Part>,
    /// Which part each domain of Envoy's is, and the file that it began in.
    domains: HashMap<String, (usize, PathBuf)>,
    problems: Problems,
}

/// What belongs together: a file, or all files for Envoy of a domain.
struct Part {
    draft: Draft,
    /// Whether others may have more of it.
    is_open: bool,
}

impl Reading {
    fn all<P: AsRef<Path>>(mut self, paths: impl IntoIterator<Item = P>) -> Result<Draft, Problems> {
        for path in paths {
            let path = path.as_ref();
            for file in files(path)? {
                let is_yaml = path.is_dir() && !has_extension(&file, &["toml"]);
                match read(&file) {
                    Ok(source) if is_yaml || Format::of(&source) == Format::Yaml => self.yaml(&source, file),
                    Ok(source) => self.native(&source),
                    Err(more) => self.problems.append(more),
                }
            }
        }
        self.finish()
    }

    fn native(&mut self, source: &Arc<Source>) {
        match native::read(source) {
            Ok(draft) => self.parts.push(Part { draft, is_open: false }),
            Err(more) => self.problems.append(more),
        }
    }

    fn yaml(&mut self, source: &Arc<Source>, path: PathBuf) {
        let Imported { mut draft, problems, domain } = import::parse(source);
        if draft.limits.is_empty() && problems.is_empty() {
            let help = "add limits, or remove the file".to_owned();
            let place = Place::new(source, 0..0);
            draft.noted.0.add(|| Problem::new(&place, "the file has no limit").help(help));
        }
        self.problems.append(problems);
        match domain {
            Some((domain, place)) => self.of_domain(draft, domain, &place, path),
            None => self.parts.push(Part { draft, is_open: true }),
        }
    }

    /// Adds an imported file of a domain. Two Envoy files may share a domain only with `--merge-domains`.
    fn of_domain(&mut self, draft: Draft, domain: String, place: &Place, path: PathBuf) {
        let (domain, (part, first)) = match self.domains.entry(domain) {
            Entry::Occupied(known) => (known.key().clone(), known.get().clone()),
            Entry::Vacant(new) => {
                new.insert((self.parts.len(), path));
                return self.parts.push(Part { draft, is_open: true });
            }
        };
        if self.merges {
            return self.merge(part, draft);
        }
        let message = format!("the domain {domain:?} is already defined in {}", first.display());
        let help = "put all limits of the domain into one file, or allow several files: --merge-domains (for serve: --merge-domains true)".to_owned();
        self.problems.add(|| Problem::new(place, message).help(help));
    }

    /// Adds what another file has of a domain. Each descriptor is in one of the files, with everything below it.
    fn merge(&mut self, part: usize, mut draft: Draft) {
        let Self { parts, problems, .. } = self;
        let all = &mut parts[part].draft;
        let mut known: HashMap<&str, &Place> = HashMap::new();
        for limit in &all.limits {
            known.entry(&limit.envoy.entries[0].text).or_insert(&limit.place);
        }
        let mut told = HashSet::new();
        draft.limits.retain(|limit| {
            let descriptor = limit.envoy.entries[0].text.as_str();
            let Some(first) = known.get(descriptor) else { return true };
            if told.insert(descriptor.to_owned()) {
                let message = format!("the descriptor {descriptor:?} is already defined at {first}");
                problems.add(|| Problem::new(&limit.place, message));
            }
            false // what is there twice, was only read for its mistakes
        });
        all.append(draft);
    }

    fn finish(mut self) -> Result<Draft, Problems> {
        let mut all = Draft::default();
        for mut part in self.parts {
            if part.is_open {
                import::finish(&mut part.draft, &mut self.problems);
            }
            all.append(part.draft);
        }
        self.problems.or(all)
    }
}

/// The policy files of a directory, in the order of their names; or the one that is none.
fn files(path: &Path) -> Result<Vec<PathBuf>, Problems> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = visible(path)?;
    if files.iter().any(|file| has_extension(file, &["toml"]) && !file.is_dir()) {
        files.retain(|file| has_extension(file, &["toml", "yaml", "yml"]) && !file.is_dir());
    } else {
        files = with_below(files)?;
    }
    files.sort();
    if files.is_empty() {
        let message = "no policy in this folder; expected files such as web.toml or web.yaml";
        return Err(Problem::in_file(path.display().to_string(), message).into());
    }
    Ok(files)
}

/// What is in a directory, but for what is hidden.
fn visible(directory: &Path) -> Result<Vec<PathBuf>, Problems> {
    let failed = |error: std::io::Error| {
        Problems::from(Problem::in_file(directory.display().to_string(), format!("cannot be read: {error}")))
    };
    let all =
        std::fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(failed)?;
    let is_visible =
        |path: &PathBuf| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
    Ok(all.into_iter().map(|entry| entry.path()).filter(is_visible).collect())
}

/// The files among these, with those in the directories below. Links to directories are not followed.
fn with_below(mut paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, Problems> {
    let mut files = Vec::new();
    while let Some(path) = paths.pop() {
        if !path.is_dir() {
            files.push(path);
        } else if !path.is_symlink() {
            paths.append(&mut visible(&path)?);
        }
    }
    Ok(files)
}

fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    let extension = file.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    extension.is_some_and(|extension| extensions.contains(&extension.as_str()))
}

fn read(path: &Path) -> Result<Arc<Source>, Problems> {
    let shown = path.display().to_string();
    let failed =
        |error: std::io::Error| Problems::from(Problem::in_file(&*shown, format!("cannot be read: {error}")));
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST_FILE {
        let most = LARGEST_FILE / (1024 * 1024);
        let message = format!("larger than {most} MiB");
        return Err(Problem::in_file(shown, message).into());
    }
    decode(&shown, bytes)
}

fn decode(path: &str, bytes: Vec<u8>) -> Result<Arc<Source>, Problems> {
    String::from_utf8(bytes).map(|text| Source::new(path, text)).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let source = Source::new(path, String::from_utf8_lossy(error.as_bytes()));
        let message = format!("byte 0x{:02x} is not valid UTF-8", error.as_bytes()[at]);
        // Up to here the two texts are the same; the replacement character is three bytes long.
        Problem::new(&Place::new(&source, at..at + 3), message).into()
    })
}
