//! What the info string of a code block asks for.

/// What to do with a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Write it to this file.
    File(String),
    /// Check it as a policy of its own; the extension says which format it is in.
    Policy(String),
    /// Run its commands and compare their output.
    Console,
    /// Run its commands, which must succeed.
    Shell,
    /// Compiled and run as a doc test.
    Rust,
    /// Shown only.
    Shown,
}

/// Languages of files.
const LANGUAGES: &[&str] = &[
    "conf",
    "dockerfile",
    "go",
    "html",
    "ini",
    "javascript",
    "json",
    "lua",
    "proto",
    "python",
    "sh",
    "sql",
    "toml",
    "yaml",
];

/// Formats of policies.
const POLICIES: &[&str] = &["toml", "json", "yaml"];

impl Kind {
    /// Reads the info string of a block.
    pub(crate) fn of(info: Option<&str>) -> Result<Self, String> {
        let Some(info) = info else { return Err("an indented code block: fence it".to_owned()) };
        let words: Vec<&str> =
            info.split([' ', ',']).map(str::trim).filter(|word| !word.is_empty()).collect();
        let Some((language, rest)) = words.split_first() else {
            return Err("a code block without a language: use ```text for what is not run".to_owned());
        };
        match (*language, rest) {
            ("text" | "promql", []) | ("sh", ["no_run"]) => Ok(Self::Shown),
            ("console", []) => Ok(Self::Console),
            ("sh", []) => Ok(Self::Shell),
            ("rust", attributes) if attributes.iter().all(|it| is_rust_attribute(it)) => Ok(Self::Rust),
            (language, ["no_run"]) if LANGUAGES.contains(&language) => Ok(Self::Shown),
            (language, ["policy"]) if POLICIES.contains(&language) => Ok(Self::Policy(language.to_owned())),
            (language, [name]) if is_file(name) && LANGUAGES.contains(&language) => {
                Ok(Self::File((*name).to_owned()))
            }
            _ => {
                Err(format!("unknown info string {info:?}: a file needs a name, such as `toml limits.toml`"))
            }
        }
    }

    /// Whether this harness does something with it.
    pub(crate) fn is_run(&self) -> bool {
        !matches!(self, Self::Rust | Self::Shown)
    }
}

fn is_rust_attribute(word: &str) -> bool {
    matches!(word, "no_run" | "should_panic" | "compile_fail")
}

/// Whether this is the path of a file within the session's directory.
fn is_file(name: &str) -> bool {
    let has_extension = name.contains('.') || name.starts_with(|letter: char| letter.is_uppercase()); // Dockerfile
    has_extension && !name.starts_with('/') && !name.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(info: &str) -> Result<Kind, String> {
        Kind::of(Some(info))
    }

    #[test]
    fn each_info_string_asks_for_something() {
        assert_eq!(kind("toml conf/limits.toml"), Ok(Kind::File("conf/limits.toml".to_owned())));
        assert_eq!(kind("python client.py"), Ok(Kind::File("client.py".to_owned())));
        assert_eq!(kind("dockerfile Containerfile"), Ok(Kind::File("Containerfile".to_owned())));
        assert_eq!(kind("toml policy"), Ok(Kind::Policy("toml".to_owned())));
        assert_eq!(kind("console"), Ok(Kind::Console));
        assert_eq!(kind("sh"), Ok(Kind::Shell));
        assert_eq!(kind("sh no_run"), Ok(Kind::Shown));
        assert_eq!(kind("go no_run"), Ok(Kind::Shown));
        assert_eq!(kind("rust,no_run"), Ok(Kind::Rust));
        assert_eq!(kind("text"), Ok(Kind::Shown));
    }

    #[test]
    fn what_a_typo_makes_of_it_is_an_error() {
        for info in
            ["consol", "toml", "toml polcy", "sh norun", "text x", "", "rust,ignore", "toml ../x.toml"]
        {
            assert!(kind(info).is_err(), "{info:?}");
        }
        assert!(Kind::of(None).is_err(), "an indented block");
    }
}
