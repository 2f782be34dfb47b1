//! One call of the script.

use std::sync::Arc;

use redis::{Cmd, Value};
use tollgate::store::StoreError;
use tollgate::{Clock, ManualClock};

use crate::error;
use crate::link::Link;
use crate::script::{Needs, Script, Scripts};
use crate::twin::View;

/// What the script is to do, in its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Todo {
    Take,
    Peek,
    Count,
    Charge,
    Refund,
    Settle,
    Reset,
}

impl Todo {
    fn word(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Peek => "peek",
            Self::Count => "count",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Settle => "settle",
            Self::Reset => "reset",
        }
    }
}

/// One state, and what is asked of it.
pub(crate) struct Line<'a> {
    key: &'a [u8],
    code: u8,
    /// The numbers, as the script reads them.
    packed: Vec<u8>,
}

impl<'a> Line<'a> {
    pub(crate) fn new(key: &'a [u8], code: u8, numbers: &[f64]) -> Self {
        Self { key, code, packed: numbers.iter().flat_map(|number| number.to_le_bytes()).collect() }
    }
}

/// Runs the script on a server.
#[derive(Clone)]
pub(crate) struct Caller {
    link: Link,
    scripts: Arc<Scripts>,
    clock: Option<ManualClock>,
}

impl Caller {
    pub(crate) fn new(link: Link, clock: Option<ManualClock>) -> Self {
        Self { link, scripts: Arc::new(Scripts::new(clock.is_some())), clock }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Runs the script on states that share a slot. What the script told comes back as it is.
    ///
    /// # Cancel safety
    /// What was asked may be done although nobody hears of it.
    pub(crate) async fn run(&self, todo: Todo, lines: &[Line<'_>]) -> Result<Value, StoreError> {
        let is_change = !matches!(todo, Todo::Take | Todo::Peek);
        let script = self.scripts.of(Needs::of(is_change, lines.iter().map(|line| line.code)));
        let answer = self.link.send(&self.command(&script, false, todo, lines)).await?;
        match answer {
            // Not run: this server has not seen it, or has forgotten it. With its text it is run, and kept.
            Err(failed) if error::is_unknown_script(&failed) => {
                self.link.send(&self.command(&script, true, todo, lines)).await?
            }
            answer => answer,
        }
        .map_err(error::of_call)
    }

    fn command(&self, script: &Script, with_text: bool, todo: Todo, lines: &[Line<'_>]) -> Cmd {
        let mut command = Cmd::new();
        if with_text {
            command.arg("EVAL").arg(&script.text);
        } else {
            command.arg("EVALSHA").arg(&script.hash);
        }
        command.arg(lines.len());
        for line in lines {
            command.arg(line.key);
        }
        command.arg(todo.word());
        for line in lines {
            command.arg(&line.packed);
        }
        if let Some(clock) = &self.clock {
            command.arg(clock.now().as_nanos() / 1_000);
        }
        command
    }
}

/// What the script told about each of `tiers` states.
pub(crate) fn views(answer: &Value, tiers: usize) -> Result<Vec<View>, StoreError> {
    const WIDTH: usize = 6;
    let Value::BulkString(bytes) = answer else { return Err(unexpected()) };
    let (chunks, []) = bytes.as_chunks::<8>() else { return Err(unexpected()) };
    let numbers: Vec<f64> = chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect();
    let Some((now, told)) = numbers.split_first() else { return Err(unexpected()) };
    let (views, []) = told.as_chunks::<WIDTH>() else { return Err(unexpected()) };
    if views.len() != tiers {
        return Err(unexpected());
    }
    let view = |[fits, a, b, c, born, fallen]: &[f64; WIDTH]| View {
        now: *now as i64,
        fits: *fits > 0.0,
        told: [*a, *b, *c],
        born: *born,
        fallen: *fallen,
    };
    Ok(views.iter().map(view).collect())
}

pub(crate) fn unexpected() -> StoreError {
    StoreError::permanent(
        "redis gave an answer that the script never gives: is there something between us that changes it?",
    )
}
