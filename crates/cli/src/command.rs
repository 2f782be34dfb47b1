//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::settings::{self, Format, Given};
use crate::{log, output};

/// Returns the definition of the whole command line.
pub(crate) fn command() -> Command {
    Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Rate limiting as a service and at the command line")
        .after_help("Exit status: 0 success, 1 failure or invalid policy, 2 usage error.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(with_settings(Command::new("serve").about("Run the rate-limit server")))
        .subcommand(with_settings(
            Command::new("settings")
                .about("Print the effective settings and where each one was set")
                .arg(format(["toml", "markdown"]).help("toml: the values; markdown: the reference")),
        ))
        .subcommand(policy())
        .subcommand(
            Command::new("completions").about("Print a shell completion script").arg(
                Arg::new("shell")
                    .required(true)
                    .value_parser(value_parser!(Shell))
                    .help("Shell to complete commands in"),
            ),
        )
}

fn policy() -> Command {
    Command::new("policy")
        .about("Check, explain and convert policy files")
        .subcommand_required(true)
        .subcommand(
            Command::new("check")
                .about("Report all errors and warnings in policy files")
                .arg(file("Policy files or folders [default: the built-in policy]").num_args(0..))
                .arg(merge_domains())
                .arg(
                    Arg::new("strict")
                        .long("strict")
                        .action(ArgAction::SetTrue)
                        .help("Treat warnings as errors"),
                )
                .arg(format(["text", "json"])),
        )
        .subcommand(
            Command::new("explain")
                .about("Show which limits apply to a request, and what each decides if nothing has been counted yet")
                .arg(file("Policy file or folder [default: the built-in policy]"))
                .arg(merge_domains())
                .arg(
                    Arg::new("descriptor")
                        .long("descriptor")
                        .short('d')
                        .value_name("NAME=VALUE,…")
                        .action(ArgAction::Append)
                        .default_value("")
                        .hide_default_value(true)
                        .help("Fields of the request: ip=10.0.0.7,path=/orders. Escape , and \\ with \\"),
                )
                .arg(
                    Arg::new("domain")
                        .long("domain")
                        .default_value(tollgate_policy::DEFAULT_DOMAIN)
                        .help("Domain of the limits"),
                )
                .arg(
                    Arg::new("cost")
                        .long("cost")
                        .default_value("1")
                        .value_parser(value_parser!(u64))
                        .help("Cost of the request, for limits without a cost field"),
                )
                .arg(format(["text", "json"])),
        )
        .subcommand(
            Command::new("convert")
                .about("Print files of envoyproxy/ratelimit or limitador as a tollgate policy")
                .arg(file("Files or folders; several are combined").num_args(1..).required(true))
                .arg(merge_domains()),
        )
        .subcommand(Command::new("schema").about("Print the JSON schema of policy files"))
        .subcommand(Command::new("default").about("Print the built-in policy"))
}

fn file(help: &'static str) -> Arg {
    Arg::new("file").value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
}

fn merge_domains() -> Arg {
    Arg::new("merge-domains")
        .long("merge-domains")
        .action(ArgAction::SetTrue)
        .help("Allow several Envoy files of a folder to share a domain")
}

/// Returns the argument `--format`. The first word is the default.
fn format<const N: usize>(words: [&'static str; N]) -> Arg {
    Arg::new("format")
        .long("format")
        .default_value(words[0])
        .value_parser(PossibleValuesParser::new(words))
        .help("Output format")
}

/// Adds a flag for every setting.
fn with_settings(command: Command) -> Command {
    let config = Arg::new(settings::CONFIG)
        .long(settings::CONFIG)
        .value_name("PATH")
        .value_parser(value_parser!(PathBuf))
        .help(format!("Settings file (TOML); also {}", settings::CONFIG_VARIABLE));
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
        "Each setting can also be set by an environment variable (--http-address: TOLLGATE_HTTP_ADDRESS) or in the settings file \
         (http.address). Flags override variables, and variables override the file.",
    )
}

/// Returns the settings that were given to a command.
pub(crate) fn given(matches: &ArgMatches) -> Given {
    let flag =
        |setting: &settings::Setting| Some((setting.key, matches.get_one::<String>(setting.key)?.clone()));
    Given {
        config: matches.get_one::<PathBuf>(settings::CONFIG).cloned(),
        flags: settings::all().iter().filter_map(flag).collect(),
        variables: std::env::vars_os().collect(),
    }
}

/// Prints an error of clap. Of what was typed, which may be a password, it shows only the name of a flag.
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
    match error_format() {
        Format::Text => {
            let _ = error.print(); // fails if stderr is closed
        }
        Format::Json => {
            let text = error.render().to_string();
            log::json_error(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
        }
    }
    ExitCode::from(2)
}

/// The name of a flag such as `--store=…`, if it is one.
fn flag_name(text: &str) -> Option<&str> {
    let name = text.split('=').next()?;
    let letters = name.strip_prefix("--")?;
    let is_name = letters.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (is_name && !letters.is_empty()).then_some(name)
}

/// Returns the format of errors in arguments that clap cannot parse: `log.format` for `serve`, otherwise text.
fn error_format() -> Format {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if arguments.get(1).is_none_or(|command| command != "serve") {
        return Format::Text;
    }
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument.split('=').next() == Some(flag))?;
        let value = arguments[at].split_once('=').map(|(_, value)| value.to_owned());
        value.or_else(|| arguments.get(at + 1).cloned())
    };
    settings::log_format(&Given {
        config: value("--config").map(PathBuf::from),
        flags: value("--log-format").map(|format| ("log.format", format)).into_iter().collect(),
        variables: std::env::vars_os().collect(),
    })
}

/// Prints a shell completion script.
pub(crate) fn completions(matches: &ArgMatches) -> Result<(), Failure> {
    let shell = *matches.get_one::<Shell>("shell").expect("clap asks for it");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "tollgate", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_is_well_formed() {
        super::command().debug_assert();
    }
}
