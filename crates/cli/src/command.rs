//! What can be typed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;
use crate::settings::{self, Given};

/// All of it.
pub(crate) fn command() -> Command {
    Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Decides who may pass, how fast, and what happens when they may not")
        .after_help("Ends with 0 if all went well, 1 if something failed or a policy has mistakes, 2 if it was called in a wrong way.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(with_settings(Command::new("serve").about("Serves decisions to programs in any language")))
        .subcommand(with_settings(
            Command::new("settings")
                .about("Shows what 'serve' would go by, and where each setting comes from")
                .arg(format(["toml", "markdown"]).help("toml: the values; markdown: what there is to set")),
        ))
        .subcommand(policy())
        .subcommand(
            Command::new("completions")
                .about("Prints a script that completes commands in a shell")
                .arg(Arg::new("shell").required(true).value_parser(value_parser!(Shell))),
        )
}

fn policy() -> Command {
    Command::new("policy")
        .about("Looks at policies: the files that say who is limited, and how")
        .subcommand_required(true)
        .subcommand(
            Command::new("check")
                .about("Tells everything that is wrong with policies, and warns of what looks like a mistake")
                .arg(file("The policies; the built-in one, if there is none").num_args(0..))
                .arg(merge_domains())
                .arg(
                    Arg::new("strict")
                        .long("strict")
                        .action(ArgAction::SetTrue)
                        .help("Exits with 1 if there are warnings, too"),
                )
                .arg(format(["text", "json"])),
        )
        .subcommand(
            Command::new("explain")
                .about("Tells which limits apply to a call, why, and what they would answer on a fresh store")
                .arg(file("The policy; the built-in one, if there is none"))
                .arg(merge_domains())
                .arg(
                    Arg::new("descriptor")
                        .long("descriptor")
                        .short('d')
                        .value_name("NAME=VALUE,…")
                        .action(ArgAction::Append)
                        .default_value("")
                        .hide_default_value(true)
                        .help("Who asks for what: ip=10.0.0.7,path=/orders. A comma in a value is written \\, and a backslash \\\\"),
                )
                .arg(Arg::new("domain").long("domain").default_value(tollgate_policy::DEFAULT_DOMAIN).help("The group of limits"))
                .arg(
                    Arg::new("cost")
                        .long("cost")
                        .default_value("1")
                        .value_parser(value_parser!(u64))
                        .help("What the call costs, unless a limit has a field that says so"),
                )
                .arg(format(["text", "json"])),
        )
        .subcommand(
            Command::new("convert")
                .about("Prints policies of envoyproxy/ratelimit or limitador as one of ours that decides the same")
                .arg(file("The policies, or folders of them; several are put together").num_args(1..).required(true))
                .arg(merge_domains()),
        )
        .subcommand(Command::new("schema").about("Prints the JSON schema of policies, for editors"))
        .subcommand(Command::new("default").about("Prints the built-in policy, to start from"))
}

fn file(help: &'static str) -> Arg {
    Arg::new("file").value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
}

fn merge_domains() -> Arg {
    Arg::new("merge-domains")
        .long("merge-domains")
        .action(ArgAction::SetTrue)
        .help("Lets several files for Envoy in a folder be of one domain")
}

/// The first is the usual one.
fn format<const N: usize>(words: [&'static str; N]) -> Arg {
    Arg::new("format").long("format").default_value(words[0]).value_parser(PossibleValuesParser::new(words))
}

/// Adds a flag for every setting.
fn with_settings(command: Command) -> Command {
    let config = Arg::new(settings::CONFIG)
        .long(settings::CONFIG)
        .value_name("PATH")
        .value_parser(value_parser!(PathBuf))
        .help(format!("A TOML file of settings; also {}", settings::CONFIG_VARIABLE));
    let flag = |setting: &settings::Setting| {
        let said = format!("{} [default: {}]", setting.help, setting.default);
        Arg::new(setting.key)
            .long(setting.flag())
            .value_name(setting.value)
            .help(said)
            .help_heading(setting.group())
            .action(ArgAction::Set)
            .allow_hyphen_values(true)
    };
    let command = command.arg(config).args(settings::all().iter().map(flag));
    command.after_help(
        "Every setting can also be given by a variable (--http-address: TOLLGATE_HTTP_ADDRESS) or in the file (http.address). \
         A flag goes before a variable, a variable before the file.",
    )
}

/// What was given to a command that takes settings.
pub(crate) fn given(matches: &ArgMatches) -> Given {
    let flag =
        |setting: &settings::Setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone()));
    Given {
        config: matches.get_one::<PathBuf>(settings::CONFIG).cloned(),
        flags: settings::all().iter().filter_map(flag).collect(),
        variables: std::env::vars_os().collect(),
    }
}

/// Prints what clap says of a call that it cannot read. Of what was typed, which may be a password, it shows only the name of a flag.
pub(crate) fn misuse(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    let typed = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => ContextKind::InvalidValue,
    };
    // Some suggestions repeat what was typed.
    error.remove(ContextKind::Suggested);
    if let Some(ContextValue::String(text)) = error.get(typed) {
        let shown = match flag_name(text) {
            Some(name) if typed == ContextKind::InvalidArg => name.to_owned(),
            _ if text.is_empty() => String::new(), // clap says that a value is missing
            _ => "…".to_owned(),
        };
        error.insert(typed, ContextValue::String(shown));
    }
    let _ = error.print(); // fails if the standard error is closed
    ExitCode::from(2)
}

/// The name of a flag such as `--store=…`, if it is one.
fn flag_name(text: &str) -> Option<&str> {
    let name = text.split('=').next()?;
    let letters = name.strip_prefix("--")?;
    let is_name = letters.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (is_name && !letters.is_empty()).then_some(name)
}

/// Prints a script for a shell.
pub(crate) fn completions(matches: &ArgMatches) -> Result<(), Failure> {
    let shell = *matches.get_one::<Shell>("shell").expect("clap asks for it");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "tollgate", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_makes_sense() {
        super::command().debug_assert();
    }
}
