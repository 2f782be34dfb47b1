//! The settings of `serve`: flags, then variables, then a file.
//!
//! `table` lists the settings, each once. The flags, the names of variables and keys, the help, what is read, and
//! `docs/settings.md` all come from there.

mod docs;
mod file;
mod like;
mod store;
mod table;
mod together;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::ArgMatches;

use crate::failure::Failure;
use crate::{command, output};
use like::{Like, Likeness};
use store::has_password;
pub(crate) use store::{Address, Store};
pub(crate) use table::*;
pub(crate) use together::is_exposed;
use tollgate_policy::nearest;
pub(crate) use value::{Count, FieldName};

/// The flag of the settings file; the only setting that the file cannot have.
pub(crate) const CONFIG: &str = "config";
pub(crate) const CONFIG_VARIABLE: &str = "TOLLGATE_CONFIG";

/// The setting that others follow from. It is the first in the table.
const LIKE: &str = "like";

/// The prefix of all variables.
const PREFIX: &str = "TOLLGATE_";

/// The flags, variables and file of a command. It has no Debug, since it may hold a password.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) config: Option<PathBuf>,
    /// By key.
    pub(crate) flags: BTreeMap<&'static str, String>,
    pub(crate) variables: Vec<(OsString, OsString)>,
}

/// The effective settings.
pub(crate) struct Resolved {
    pub(crate) settings: Settings,
    /// The value of each setting and its origin, in the order of the table.
    pub(crate) sources: Vec<(String, Origin)>,
    /// Warnings.
    pub(crate) hints: Vec<String>,
}

impl fmt::Debug for Resolved {
    /// Without the given texts, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolved").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    /// As `tollgate.toml:3:1`.
    File(String),
    Variable(String),
    Flag(String),
    /// A default of the server that this one is started like.
    Like,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => f.write_str(place),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Like => f.write_str("default of envoyproxy/ratelimit"),
        }
    }
}

/// Reads flags, variables and the file.
///
/// # Errors
/// All errors at once, also those of values that are overridden.
pub(crate) fn resolve(given: &Given) -> Result<Resolved, Failure> {
    let resolving = read(given);
    let hints = hints(given).into_iter().chain(like::hint(resolving.like(), &given.variables)).collect();
    resolving.finish(hints)
}

/// Returns `log.format`, also if other settings are invalid.
pub(crate) fn log_format(given: &Given) -> Format {
    read(given).settings.log.format.0
}

fn read(given: &Given) -> Resolving {
    let mut resolving = Resolving::default();
    let file = resolving.file(given);
    let mut likeness = Likeness::default();
    for setting in all() {
        resolving.setting(&setting, given, &file, &likeness);
        if setting.key == LIKE {
            likeness = resolving.like().map(|like| Likeness::of(like, &given.variables)).unwrap_or_default();
        }
    }
    resolving
}

#[derive(Default)]
struct Resolving {
    settings: Settings,
    chosen: BTreeMap<&'static str, (String, Origin)>,
    mistakes: Vec<String>,
}

impl Resolving {
    fn file(&mut self, given: &Given) -> file::Values {
        let named = given.config.clone().or_else(|| self.variable(given, CONFIG_VARIABLE).map(PathBuf::from));
        let Some(path) = named else { return file::Values::default() };
        let (values, problems) = file::read(&path);
        self.mistakes.extend(problems.iter().map(ToString::to_string));
        values
    }

    fn variable(&mut self, given: &Given, name: &str) -> Option<String> {
        let (_, value) = given.variables.iter().find(|(known, _)| known == name)?;
        let text = value.to_str().map(str::to_owned);
        if text.is_none() {
            self.mistakes.push(format!("{name}: expected UTF-8 text"));
        }
        text
    }

    /// The server that this one is started like.
    fn like(&self) -> Option<Like> {
        self.settings.like.map(|like| like.0)
    }

    /// Reads a setting from all that may say it, the last of which counts.
    fn setting(&mut self, setting: &Setting, given: &Given, file: &file::Values, likeness: &Likeness) {
        self.choose(setting, setting.default.to_owned(), Origin::Default);
        if let Some(text) = likeness.defaults.get(setting.key) {
            self.choose(setting, (*text).to_owned(), Origin::Like);
        }
        if let Some((text, place)) = file.get(setting.key) {
            self.read_from_file(setting, text, place);
        }
        if let Some(said) = likeness.said.get(setting.key) {
            self.choose(setting, said.text.clone(), Origin::Variable(said.variables.clone()));
        }
        if let Some(text) = self.variable(given, &setting.variable()) {
            self.choose(setting, text, Origin::Variable(setting.variable()));
        }
        if let Some(text) = given.flags.get(setting.key) {
            self.choose(setting, text.clone(), Origin::Flag(setting.flag()));
        }
    }

    fn choose(&mut self, setting: &Setting, text: String, origin: Origin) {
        if setting.key == "store" && matches!(origin, Origin::Flag(_)) && has_password(&text) {
            let instead =
                "a password in a flag is visible to other users: use --store-password-file or TOLLGATE_STORE";
            return self.mistakes.push(format!("{origin}: {instead}"));
        }
        match setting.set(&mut self.settings, &text) {
            Ok(()) => _ = self.chosen.insert(setting.key, (text, origin)),
            Err(message) => self.mistakes.push(format!("{origin}: {message}")),
        }
    }

    fn read_from_file(&mut self, setting: &Setting, text: &str, place: &tollgate_policy::Place) {
        match setting.set(&mut self.settings, text) {
            Ok(()) => {
                self.chosen.insert(setting.key, (text.to_owned(), Origin::File(place.to_string())));
            }
            Err(message) => {
                let message = format!("{}: {message}", setting.key);
                self.mistakes
                    .push(tollgate_policy::Problem::new(place, message).without_excerpt().to_string());
            }
        }
    }

    fn finish(self, hints: Vec<String>) -> Result<Resolved, Failure> {
        let Self { settings, mut chosen, mut mistakes } = self;
        if mistakes.is_empty() {
            mistakes = together::mistakes(&settings);
        }
        if !mistakes.is_empty() {
            return Err(Failure::Usage(mistakes.join("\n\n")));
        }
        let sources = all().iter().filter_map(|setting| chosen.remove(setting.key)).collect();
        Ok(Resolved { settings, sources, hints })
    }
}

/// Returns a warning for each unknown variable with our prefix, with the nearest known one.
fn hints(given: &Given) -> Vec<String> {
    let settings = all();
    let known: Vec<String> =
        settings.iter().map(Setting::variable).chain([CONFIG_VARIABLE.to_owned()]).collect();
    let unknown = given.variables.iter().filter_map(|(name, value)| {
        let name = name.to_str()?;
        let is_unknown = !is_of_kubernetes(name.strip_prefix(PREFIX)?, &value.to_string_lossy())
            && !known.iter().any(|known| known == name);
        is_unknown.then_some(name)
    });
    let hint = |name: &str| {
        let nearest = nearest(name, known.iter().map(String::as_str)).unwrap_or(CONFIG_VARIABLE);
        format!("unknown variable {name}; did you mean {nearest}?")
    };
    unknown.map(hint).collect()
}

/// Returns whether `end` and `value` are of a variable that Kubernetes sets for a service whose name begins with `tollgate`. Such
/// ends are `SERVICE_HOST`, `SERVICE_PORT_HTTP`, `PORT_8080_TCP_ADDR`, `ADMIN_SERVICE_HOST`, and `PORT` with a URL as its value.
fn is_of_kubernetes(end: &str, value: &str) -> bool {
    let words: Vec<&str> = end.split('_').collect();
    let is_number = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    words.windows(2).any(|pair| {
        matches!(pair, ["SERVICE", "HOST" | "PORT"]) || (pair[0] == "PORT" && is_number(&pair[1]))
    }) || (words.last() == Some(&"PORT") && value.contains("://"))
}

/// Prints the effective settings or the reference.
pub(crate) fn show(matches: &ArgMatches) -> Result<(), Failure> {
    if matches.get_one::<String>("format").is_some_and(|format| format == "markdown") {
        return output::print(&docs::markdown());
    }
    let resolved = resolve(&command::given(matches))?;
    resolved.hints.iter().for_each(|hint| eprintln!("warning: {hint}"));
    output::print(&docs::effective(&resolved))
}

#[cfg(test)]
mod tests;
