//! The log: lines on stderr, as text or JSON.
//!
//! Decisions and audit entries are lines of JSON whatever the format of the log. They come from where requests are served, so a
//! thread of their own writes them: a reader that is slow or gone delays no request.

mod queue;

use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::settings::{Decisions, Format, Level, Log};
use queue::LineQueue;
pub(crate) use queue::Written;

/// The targets of decisions and of audit entries, as `tollgate-server` has them.
const DECISIONS: &str = "tollgate::decision";
const AUDIT: &str = "tollgate::audit";

/// Writes what is logged from now on. What is returned, dropped, waits until the lines of JSON are written.
pub(crate) fn start(log: &Log) -> io::Result<Written> {
    let level = level(log.level.0);
    // What the libraries beneath have to say is rarely of interest.
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("tollgate", level);
    let targets = targets.with_target(DECISIONS, LevelFilter::OFF).with_target(AUDIT, LevelFilter::OFF);
    let shown = |is_shown: bool| if is_shown { LevelFilter::INFO } else { LevelFilter::OFF };
    let records = Targets::new()
        .with_target(DECISIONS, shown(log.decisions.0 != Decisions::Off))
        .with_target(AUDIT, shown(log.audit));
    let (queue, written) = LineQueue::start(io::stderr())?;
    let json = fmt::layer().json().flatten_event(true).with_ansi(false).with_writer(queue);
    tracing_subscriber::registry()
        .with(lines(log.format.0).with_filter(targets))
        .with(json.with_filter(records))
        .init();
    panic::set_hook(Box::new(tell_panic));
    Ok(written)
}

/// Writes an error as a JSON line in the format of the log, whether or not the log has started.
pub(crate) fn json_error(message: &str) {
    let line = fmt::layer().json().flatten_event(true).with_ansi(false).with_writer(io::stderr);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(line), || {
        tracing::error!("{message}");
    });
}

fn level(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

fn lines(format: Format) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(io::stderr);
    match format {
        Format::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
        Format::Text => {
            let has_colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            lines.with_target(false).with_ansi(has_colours).boxed()
        }
    }
}

/// Logs a panic. The code that catches it reports the consequence.
fn tell_panic(info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let said = said.unwrap_or("a value that is not text");
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    let location = info.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(thread, location, "panicked: {said}");
}
