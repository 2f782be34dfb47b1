//! The full record of a fault: for the log, and for programmers.

use std::error::Error;
use std::fmt::{self, Display};

use tracing::field::DisplayValue;

use super::error::causes;
use super::utc::Utc;
use super::words::{OneLine, Value};
use super::{Fault, Record};

impl Fault {
    /// Writes the full record to the log, and gives the line for the user.
    ///
    /// Call it where the fault leaves the program's hands: in `main`, in the handler of a request, where the outcomes
    /// of jobs are read. Nothing else logs a fault, and a second call, also of a fault that came of the same one, does
    /// not log again: so an id that a user was shown is in the log once.
    ///
    /// The record is one `tracing` event of the target `tollgate::fault`: an error if the fault is
    /// [unexpected](Self::is_unexpected), else a warning. Its message is what the layers said; its fields, each on one
    /// line, are `id`, `when` (RFC 3339, UTC), `place`, `location`, `again`, and if there are any, `context` (as
    /// `key=value`), `causes` and `trace`, innermost first.
    ///
    /// The first report of a process takes some tens of milliseconds, because the names of functions are read from the
    /// program's debug information; later ones some hundred microseconds.
    pub fn report(&self) -> String {
        if self.record.origin.is_first_report() {
            self.record.log();
        }
        self.to_string()
    }
}

/// One event; the macro wants its level as a constant.
macro_rules! event {
    ($level:ident, $record:expr) => {
        tracing::event!(
            target: "tollgate::fault",
            tracing::Level::$level,
            id = %$record.id,
            when = %Utc($record.when),
            place = %$record.origin.place(),
            location = %$record.origin.location,
            again = %$record.again,
            context = field(" ", $record.pairs()),
            causes = field(": ", $record.reasons()),
            trace = field(" < ", $record.origin.frames()),
            "{}",
            $record.said()
        )
    };
}

impl Record {
    /// What the layers said, the highest first.
    pub(super) fn said(&self) -> String {
        let unexpected = self.is_unexpected.then_some("something unexpected happened");
        let layers = self.layers.iter().rev().map(|layer| layer.message.as_ref());
        joined(": ", layers.chain(unexpected).map(OneLine))
    }

    fn log(&self) {
        if self.is_unexpected { event!(ERROR, self) } else { event!(WARN, self) }
    }

    fn pairs(&self) -> impl Iterator<Item = String> {
        self.context.iter().map(|(key, value)| format!("{}={}", OneLine(key), Value(value)))
    }

    /// What the causes say, the outermost first. Some errors repeat the words of their source; once is enough.
    fn reasons(&self) -> Vec<String> {
        let first = self.cause.as_deref().map(|cause| cause as &(dyn Error + 'static));
        let texts = first.into_iter().flat_map(causes).map(|cause| OneLine(&cause.to_string()).to_string());
        let mut reasons: Vec<_> = texts.collect();
        reasons.dedup();
        reasons
    }
}

/// The full record, over several lines: what the log has, for people to read.
impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.record;
        write!(f, "{}; {} (fault {})", record.said(), record.again, record.id)?;
        write!(f, "\n  when     {}", Utc(record.when))?;
        write!(f, "\n  where    {} (place {})", record.origin.location, record.origin.place())?;
        for layer in record.layers.iter().filter(|layer| layer.location != record.origin.location) {
            write!(f, "\n  then     {}: {}", layer.location, OneLine(&layer.message))?;
        }
        write_all(f, "\n  context  ", record.pairs())?;
        write_all(f, "\n  because  ", record.reasons())?;
        write_all(f, "\n  in       ", record.origin.frames())
    }
}

fn write_all(f: &mut fmt::Formatter<'_>, head: &str, items: impl IntoIterator<Item: Display>) -> fmt::Result {
    items.into_iter().try_for_each(|item| write!(f, "{head}{item}"))
}

/// A field of an event; none if there is nothing to say.
fn field(between: &str, items: impl IntoIterator<Item: Display>) -> Option<DisplayValue<String>> {
    Some(joined(between, items)).filter(|text| !text.is_empty()).map(tracing::field::display)
}

fn joined(between: &str, items: impl IntoIterator<Item: Display>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(between)
}
