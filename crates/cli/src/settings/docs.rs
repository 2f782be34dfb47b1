//! The settings, for people to read.

use std::fmt::Write as _;

use toml_writer::{ToTomlValue as _, TomlStringBuilder};

use super::table::{Setting, all};
use super::{CONFIG_VARIABLE, Origin, Resolved};

/// The list in the docs.
pub(super) fn markdown() -> String {
    let mut text = format!(
        "# Settings of `tollgate serve`\n\n\
         <!-- Made by: cargo run -- settings --format markdown > docs/settings.md -->\n\n\
         Every setting can be given by a flag, by a variable, or in a TOML file that `--config PATH` or `{CONFIG_VARIABLE}` names.\n\
         A flag goes before a variable, a variable before the file. `tollgate settings` shows what comes of it, and where from.\n\
         In the file, `http.address` is `address` in the table `[http]`. Paths are relative to where the command runs.\n\n\
         Whatever is wrong with them is told at once, and nothing starts: the command ends with 2. It ends with 1 if something\n\
         else fails, and with 0 if it was told to stop and did. A variable that begins as they do and is none is named in a\n\
         warning, with the nearest that is one; those that Kubernetes sets for a service of this name are not.\n"
    );
    let mut group = "";
    for setting in all() {
        if setting.group() != group {
            group = setting.group();
            let _ = write!(
                text,
                "\n## {group}\n\n| in the file | flag, variable | default | what |\n| --- | --- | --- | --- |\n"
            );
        }
        let Setting { key, default, help, expected, .. } = &setting;
        let (flag, variable) = (setting.flag(), setting.variable());
        let _ = writeln!(
            text,
            "| `{key}` | `--{flag}`<br>`{variable}` | `{default}` | {help}.<br>Expects {expected}. |"
        );
    }
    text
}

/// What is in force, as a file of settings that says the same, but for passwords.
pub(super) fn effective(resolved: &Resolved) -> String {
    let mut text = String::new();
    for (setting, (value, origin)) in all().iter().zip(&resolved.sources) {
        let value = (setting.shown)(value);
        let line =
            format!("{} = {}", setting.key, TomlStringBuilder::new(&value).as_default().to_toml_value());
        let _ = match origin {
            Origin::Default => writeln!(text, "{line}"),
            origin => writeln!(text, "{line:<50} # {origin}"),
        };
    }
    text
}
