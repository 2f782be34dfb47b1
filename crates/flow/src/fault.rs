//! What people are told when something goes wrong.

mod again;
mod catch;
mod error;
mod id;
mod place;
mod record;
mod utc;
mod words;

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::SystemTime;

use tollgate::{Clock, MonotonicClock};

pub use again::Again;
pub use catch::{Catch, Panicked, catch};
pub use error::{FaultError, OrFault};
use error::{causes, said_by, speaks_for_itself};
pub use id::{FaultId, NoFaultId};
use place::Origin;
pub use place::Place;

/// What went wrong, for people: what, when, where, with which context, and whether trying again can help.
///
/// Three kinds of people read it, and each gets what they need:
///
/// - The user sees one line, by `Display`: the message, whether trying again can help, and an [id](FaultId).
/// - Whoever looks up that id in the log finds the full record: see [`report`](Self::report).
/// - The programmer sees the same record by `Debug`, which is also what a failing `main` prints.
///
/// Make one with [`new`](Self::new), or from an error with [`or_fault`](OrFault::or_fault). Layers above add a message
/// of their own with `or_fault`, and context with [`with`](Self::with); the id, the time and the place stay those of
/// the beginning.
///
/// # Unexpected faults
/// `?` turns any [`std::error::Error`] into an *unexpected* fault. That somebody forgot to say what the error means is
/// a bug, and it is shown as one: "something unexpected happened", with an id, and never the error's own words, which
/// were not written for users. Those are in the record. The errors of this crate and of `tollgate` which are made for
/// people ([`Ended`](crate::Ended), [`Elapsed`](crate::Elapsed), [`WaitError`](tollgate::WaitError),
/// [`Refused`](tollgate::Refused), [`GateRefused`](tollgate::GateRefused)) are not unexpected: they speak for
/// themselves.
///
/// # Where
/// A fault knows the source line that made it, and the backtrace. [`place`](Self::place) is a short hash of both, to
/// group like faults; it says what it is made of.
///
/// # Performance
/// One pointer wide. Making a fault captures the backtrace, whatever `RUST_BACKTRACE` says: some ten microseconds for
/// thirty frames. The names of functions are looked up when the record is written or the place is asked for, which
/// takes some ten times that; the first time in a process, tens of milliseconds. For what happens often and is tried
/// again, [`untraced`](Self::untraced) makes a fault without a backtrace, in a fraction of a microsecond; the errors
/// that speak for themselves become such faults too.
///
/// # Examples
/// ```
/// use tollgate_flow::{Again, Fault, OrFault};
///
/// fn connect() -> Result<(), std::io::Error> {
///     Err(std::io::ErrorKind::ConnectionRefused.into())
/// }
///
/// fn save(order: u32) -> Result<(), Fault> {
///     connect().or_fault("the database does not answer").map_err(|fault| fault.with("order", order))
/// }
///
/// let fault = save(7).or_fault("could not save the order").unwrap_err();
/// assert_eq!(
///     fault.report(), // and the full record is in the log
///     format!("could not save the order: the database does not answer; trying again later can help (fault {})", fault.id())
/// );
///
/// fn careless() -> Result<(), Fault> {
///     Ok(connect()?)
/// }
/// assert!(careless().unwrap_err().to_string().starts_with("something unexpected happened"));
/// ```
pub struct Fault {
    record: Box<Record>,
}

const _: () = assert!(size_of::<Result<(), Fault>>() == size_of::<usize>(), "results stay small");

/// Everything a fault knows.
struct Record {
    id: FaultId,
    when: SystemTime,
    origin: Arc<Origin>,
    is_unexpected: bool,
    /// What each layer said, the lowest first. An unexpected fault that no layer wrapped has none.
    layers: Vec<Layer>,
    again: Again,
    context: Vec<(&'static str, String)>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

/// What one layer said, and where.
#[derive(Clone)]
struct Layer {
    message: Cow<'static, str>,
    location: &'static Location<'static>,
}

impl Fault {
    /// A fault that says `message`, one line for the user: what could not be done, without a full stop.
    #[track_caller]
    pub fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self::made(Origin::traced(Location::caller())).saying(message.into(), Location::caller())
    }

    /// As [`new`](Self::new), but without a backtrace, for what happens often. The source line is still known.
    #[track_caller]
    pub fn untraced(message: impl Into<Cow<'static, str>>) -> Self {
        Self::made(Origin::untraced(Location::caller())).saying(message.into(), Location::caller())
    }

    /// What `?` makes of an error: an unexpected fault, unless the error speaks for itself.
    ///
    /// A fault that was turned into an error comes back as it was. One that is somewhere among the error's causes comes
    /// back too, with its id, time, place, messages and context; the whole error is then its cause.
    #[track_caller]
    pub fn unexpected(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::unexpected_at(error.into(), Location::caller())
    }

    /// An unexpected fault, from what a panic left behind: the `Err` of [`catch_unwind`](std::panic::catch_unwind) or
    /// of a thread's join. Its cause is a [`Panicked`].
    ///
    /// Its place is where the panic was caught. Where it was raised only the panic hook learns; the one of the standard
    /// library prints it to standard error.
    #[track_caller]
    pub fn panicked(payload: Box<dyn Any + Send>) -> Self {
        Self::panicked_at(payload, Location::caller())
    }

    /// Says that it happened at `when`, and not at the moment the fault was made.
    #[must_use]
    pub fn at(mut self, when: SystemTime) -> Self {
        self.record.when = when;
        self
    }

    /// Gives it an id that it has elsewhere: in a reply, in a journal, in a test.
    #[must_use]
    pub fn known_as(mut self, id: FaultId) -> Self {
        self.record.id = id;
        self
    }

    /// Adds a piece of context, for the record: the user does not see it, everybody who reads the log does. So no
    /// secrets.
    ///
    /// A key may be given more than once; each layer adds what it knows.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.record.context.push((key, value.to_string()));
        self
    }

    /// Says whether trying again can help.
    #[must_use]
    pub fn try_again(mut self, again: Again) -> Self {
        self.record.again = again;
        self
    }

    /// Says what caused it. What the user reads stays as it is.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.record.cause = Some(cause.into());
        self
    }

    /// The id, which the user sees and the log has.
    pub fn id(&self) -> FaultId {
        self.record.id
    }

    /// When it happened, UTC.
    pub fn when(&self) -> SystemTime {
        self.record.when
    }

    /// A short hash of where it was made: the same for like faults. Looks up the names of functions, once; see
    /// [Performance](Self#performance).
    pub fn place(&self) -> Place {
        self.record.origin.place()
    }

    /// The source line that made it.
    pub fn location(&self) -> &'static Location<'static> {
        self.record.origin.location
    }

    /// Whether trying again can help.
    pub fn again(&self) -> Again {
        self.record.again
    }

    /// Whether it comes from an error that nobody said anything about, or from a panic; also after layers above wrapped
    /// it.
    pub fn is_unexpected(&self) -> bool {
        self.record.is_unexpected
    }

    /// The context, in the order in which it was added.
    pub fn context(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.record.context.iter().map(|(key, value)| (*key, value.as_str()))
    }

    /// The error that caused it, if there was one; its own causes follow from [`source`](Error::source).
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.record.cause.as_deref()
    }

    /// The first among its causes that is an `E`.
    pub fn find<E: Error + 'static>(&self) -> Option<&E> {
        causes(self.cause()?).find_map(|cause| cause.downcast_ref())
    }

    /// As an error, for those who ask for one: `source` gives its causes, and [`unexpected`](Self::unexpected), or
    /// `?`, gives the fault back.
    pub fn into_error(self) -> FaultError {
        FaultError::new(self)
    }

    fn made(origin: Origin) -> Self {
        let record = Record {
            id: FaultId::random(&mut fastrand::Rng::new()),
            when: SystemTime::UNIX_EPOCH + MonotonicClock::new().unix(),
            origin: Arc::new(origin),
            is_unexpected: false,
            layers: Vec::new(),
            again: Again::Unknown,
            context: Vec::new(),
            cause: None,
        };
        Self { record: Box::new(record) }
    }

    fn saying(mut self, message: Cow<'static, str>, location: &'static Location<'static>) -> Self {
        self.record.layers.push(Layer { message, location });
        self
    }

    fn unexpected_at(error: Box<dyn Error + Send + Sync>, location: &'static Location<'static>) -> Self {
        let error = match Self::returned(error) {
            Ok(fault) => return fault,
            Err(error) => error,
        };
        if speaks_for_itself(&*error) {
            let message = said_by(&*error);
            return Self::caused_by(error, location).saying(message, location);
        }
        let mut fault = Self::caused_by(error, location);
        fault.record.is_unexpected = true;
        fault
    }

    fn panicked_at(payload: Box<dyn Any + Send>, location: &'static Location<'static>) -> Self {
        Self::unexpected_at(Box::new(Panicked::new(payload)), location)
    }

    /// An error that a layer has words for.
    fn wrapped_at(
        error: Box<dyn Error + Send + Sync>,
        message: Cow<'static, str>,
        location: &'static Location<'static>,
    ) -> Self {
        let fault = Self::returned(error).unwrap_or_else(|error| Self::caused_by(error, location));
        fault.saying(message, location)
    }

    fn caused_by(error: Box<dyn Error + Send + Sync>, location: &'static Location<'static>) -> Self {
        let origin = if speaks_for_itself(&*error) { Origin::untraced } else { Origin::traced };
        Self::made(origin(location)).try_again(Again::of(&*error)).because(error)
    }

    /// The fault that `error` is, or that is among its causes.
    fn returned(error: Box<dyn Error + Send + Sync>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let error = match error.downcast::<FaultError>() {
            Ok(error) => return Ok(error.into_fault()),
            Err(error) => error,
        };
        let inner = causes(&*error).find_map(|cause| cause.downcast_ref::<FaultError>());
        match inner.map(|inner| inner.fault().record.heir()) {
            Some(heir) => Ok(Self { record: Box::new(Record { cause: Some(error), ..heir }) }),
            None => Err(error),
        }
    }
}

impl Record {
    /// A copy, all but for the cause.
    fn heir(&self) -> Self {
        Self {
            id: self.id,
            when: self.when,
            origin: Arc::clone(&self.origin),
            is_unexpected: self.is_unexpected,
            layers: self.layers.clone(),
            again: self.again,
            context: self.context.clone(),
            cause: None,
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Fault {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::unexpected_at(Box::new(error), Location::caller())
    }
}

/// The line for the user: what every layer said, the highest first; whether trying again can help; the id. One line
/// whatever the messages contain, and never the trace, the context or the causes.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} (fault {})", self.record.said(), self.record.again, self.record.id)
    }
}
