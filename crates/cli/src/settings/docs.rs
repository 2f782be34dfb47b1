//! The settings reference, and the effective settings.

use std::fmt::Write as _;

use toml_writer::{ToTomlValue as _, TomlStringBuilder};

use super::table::{Setting, all};
use super::{CONFIG_VARIABLE, Origin, Resolved};

/// Returns `docs/settings.md`.
pub(super) fn markdown() -> String {
    let mut text = format!(
        "# Settings of `tollgate serve`\n\n\
         <!-- Made by: cargo run -- settings --format markdown > docs/settings.md -->\n\n\
         Each setting can be set by a flag, by an environment variable, or in a TOML file that `--config PATH` or\n\
         `{CONFIG_VARIABLE}` names. Flags override variables, and variables override the file. `tollgate settings` prints the\n\
         values and their sources. In the file, write `http.address` as `address` in the table `[http]`. Relative paths\n\
         are relative to the working directory of the command.\n\n\
         If a setting is invalid, tollgate reports all errors and exits with status 2. Other failures exit with status 1; a\n\
         clean stop exits with 0. Unknown `TOLLGATE_*` variables produce a warning, except those that Kubernetes sets.\n"
    );
    let mut group = "";
    for setting in all() {
        if setting.group() != group {
            group = setting.group();
            let _ = write!(
                text,
                "\n## {group}\n\n| in the file | flag, variable | default | meaning |\n| --- | --- | --- | --- |\n"
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

/// Returns the effective settings as a settings file without passwords.
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
