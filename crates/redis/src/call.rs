//! One call of the script.

use std::sync::Arc;

use redis::{Cmd, Value};
use tollgate::store::StoreError;
use tollgate::{Clock, ManualClock};

use crate::error;
use crate::link::Link;
use crate::script::{Frame, Needs, Script, Scripts};
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
    Lease,
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
            Self::Lease => "lease",
        }
    }

    fn frame(self) -> Frame {
        match self {
            Self::Take | Self::Peek => Frame::Decide,
            Self::Count | Self::Charge | Self::Refund | Self::Settle | Self::Reset => Frame::Change,
            Self::Lease => Frame::Lease,
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

    /// The clock that is given to the script, if it is not to go by the server's.
    pub(crate) fn clock(&self) -> Option<&ManualClock> {
        self.clock.as_ref()
    }

    /// Runs the script on states that share a slot. What the script told comes back as it is.
    ///
    /// # Cancel safety
    /// What was asked may be done although nobody hears of it.
    pub(crate) async fn run(&self, todo: Todo, lines: &[Line<'_>]) -> Result<Value, StoreError> {
        let script = self.scripts.of(Needs::of(todo.frame(), lines.iter().map(|line| line.code)));
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
        let bytes: usize = lines.iter().map(|line| line.key.len() + line.packed.len()).sum();
        let mut command = Cmd::with_capacity(2 * lines.len() + 5, bytes + 64);
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
            let micros = u64::try_from(clock.unix().as_micros()).unwrap_or(u64::MAX);
            command.arg(micros);
        }
        command
    }
}

/// What the script told about each of `tiers` states.
pub(crate) fn views(answer: &Value, tiers: usize) -> Result<Vec<View>, StoreError> {
    let (now, told) = told::<6>(answer, tiers)?;
    Ok(told.into_iter().map(|numbers| view(now, numbers)).collect())
}

/// The same of a call that borrows: also how many units each state lent, and whether it had lent some before.
pub(crate) fn lent(answer: &Value, tiers: usize) -> Result<Vec<(View, f64, bool)>, StoreError> {
    let (now, told) = told::<8>(answer, tiers)?;
    let one = |[fits, a, b, c, born, fallen, lent, had]: [f64; 8]| {
        (view(now, [fits, a, b, c, born, fallen]), lent, had > 0.0)
    };
    Ok(told.into_iter().map(one).collect())
}

/// The server's clock, and so many numbers for each of `tiers` states.
fn told<const WIDTH: usize>(answer: &Value, tiers: usize) -> Result<(f64, Vec<[f64; WIDTH]>), StoreError> {
    let Value::BulkString(bytes) = answer else { return Err(unexpected()) };
    let (chunks, []) = bytes.as_chunks::<8>() else { return Err(unexpected()) };
    let numbers: Vec<f64> = chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect();
    let Some((now, told)) = numbers.split_first() else { return Err(unexpected()) };
    match told.as_chunks::<WIDTH>() {
        (told, []) if told.len() == tiers => Ok((*now, told.to_vec())),
        _ => Err(unexpected()),
    }
}

fn view(now: f64, [fits, a, b, c, born, fallen]: [f64; 6]) -> View {
    View { now: now as i64, fits: fits > 0.0, told: [a, b, c], born, fallen }
}

pub(crate) fn unexpected() -> StoreError {
    StoreError::permanent("unexpected reply of Redis to a script; does a proxy change it?")
}
