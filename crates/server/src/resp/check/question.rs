//! The arguments of `TG.CHECK` and `TG.RESET`.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::store::Mode;
use tollgate_policy::{DEFAULT_DOMAIN, Field};

use super::super::reply::Quoted;
use super::super::request::Arguments;
use super::super::session::{MAX_KEY_BYTES, number};
use crate::engine::{LONGEST_HOLD, parse_hold};

/// The most fields of a descriptor.
pub const MAX_FIELDS: usize = 24;

/// Who asks for what, and what is to be done about it.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) domain: &'a str,
    pub(super) cost: Option<u64>,
    pub(super) act: Act,
    pub(super) fields: SmallVec<[Field<'a>; 8]>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Decide(Mode),
    /// Takes, to be settled within that time.
    Hold(Duration),
}

/// An error in the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake<'a> {
    Nothing(&'static str),
    NoValue { option: &'static str },
    Number { option: &'static str, text: &'a [u8] },
    Hold { text: &'a [u8] },
    TwoActs { first: &'a [u8], option: &'a [u8] },
    Text { what: &'static str, text: &'a [u8] },
    Odd { field: &'a [u8] },
    TooMany(usize),
    TooLong { field: &'a str, length: usize },
    Twice { field: &'a str },
    Late { option: &'a str },
}

impl<'a> Question<'a> {
    /// Options come first, in any order; `FIELDS` ends them, where a field has the name of an option.
    pub(super) fn read(command: &'static str, arguments: Arguments<'a>) -> Result<Self, Mistake<'a>> {
        if arguments.len() == 1 {
            return Err(Mistake::Nothing(command));
        }
        let (mut domain, mut cost, mut act, mut place) = (DEFAULT_DOMAIN, None, None, 1);
        let mut first: &[u8] = b"";
        while let Some(word) = arguments.get(place) {
            let value = |option| arguments.get(place + 1).ok_or(Mistake::NoValue { option });
            let (done, used) = match &Word::of(word) {
                Word::Domain => {
                    domain = text("domain", value("DOMAIN")?)?;
                    (None, 2)
                }
                Word::Cost => {
                    let text = value("COST")?;
                    cost = Some(number(text).ok_or(Mistake::Number { option: "COST", text })?);
                    (None, 2)
                }
                Word::Hold => (Some(Act::Hold(hold(value("HOLD")?)?)), 2),
                Word::Mode(mode) => (Some(Act::Decide(*mode)), 1),
                Word::Fields => {
                    place += 1;
                    break;
                }
                Word::Other => {
                    no_option_among(arguments.from(place))?;
                    break;
                }
            };
            if done.is_some() {
                if act.is_some() {
                    return Err(Mistake::TwoActs { first, option: word });
                }
                first = word;
            }
            act = act.or(done);
            place += used;
        }
        let fields = fields(arguments.from(place))?;
        Ok(Self { domain, cost, act: act.unwrap_or(Act::Decide(Mode::Take)), fields })
    }
}

/// Returns an error if an option follows the fields: it would be read as a field and have no effect.
fn no_option_among(pairs: Arguments<'_>) -> Result<(), Mistake<'_>> {
    let is_option = |name: &&[u8]| !matches!(Word::of(name), Word::Other);
    match pairs.iter().step_by(2).find(is_option) {
        Some(option) => Err(Mistake::Late { option: text("field name", option)? }),
        None => Ok(()),
    }
}

/// The words that are options: in capitals, since fields are seldom called so. In small letters they are fields wherever they
/// stand, so that the same fields mean the same in any order.
enum Word {
    Domain,
    Cost,
    Hold,
    Mode(Mode),
    Fields,
    Other,
}

impl Word {
    fn of(word: &[u8]) -> Self {
        match word {
            b"COST" => Self::Cost,
            b"HOLD" => Self::Hold,
            b"PEEK" => Self::Mode(Mode::Peek),
            b"COUNT" => Self::Mode(Mode::Count),
            b"CHARGE" => Self::Mode(Mode::Charge),
            b"REFUND" => Self::Mode(Mode::Refund),
            b"DOMAIN" => Self::Domain,
            b"FIELDS" => Self::Fields,
            _ => Self::Other,
        }
    }
}

fn fields(pairs: Arguments<'_>) -> Result<SmallVec<[Field<'_>; 8]>, Mistake<'_>> {
    if pairs.len() > MAX_FIELDS * 2 {
        return Err(Mistake::TooMany(pairs.len().div_ceil(2)));
    }
    let mut fields: SmallVec<[Field<'_>; 8]> = SmallVec::new();
    let mut all = pairs.iter();
    while let Some(name) = all.next() {
        let value = all.next().ok_or(Mistake::Odd { field: name })?;
        let name = text("field name", name)?;
        let length = name.len().max(value.len());
        if length > MAX_KEY_BYTES {
            return Err(Mistake::TooLong { field: name, length });
        }
        if fields.iter().any(|(known, _)| *known == name) {
            return Err(Mistake::Twice { field: name });
        }
        fields.push((name, value));
    }
    Ok(fields)
}

/// An actual cost.
pub(super) fn actual_cost(text: &[u8]) -> Result<u64, Mistake<'_>> {
    number(text).ok_or(Mistake::Number { option: "actual cost", text })
}

/// Actual costs by the names of their fields.
pub(super) fn actual_costs(pairs: Arguments<'_>) -> Result<SmallVec<[(&str, u64); 4]>, Mistake<'_>> {
    fields(pairs)?.into_iter().map(|(name, cost)| Ok((name, actual_cost(cost)?))).collect()
}

fn text<'a>(what: &'static str, text: &'a [u8]) -> Result<&'a str, Mistake<'a>> {
    std::str::from_utf8(text).map_err(|_| Mistake::Text { what, text })
}

/// Reads the duration of a hold: whole seconds, or a duration with its unit.
fn hold(text: &[u8]) -> Result<Duration, Mistake<'_>> {
    let seconds = number(text).filter(|seconds| (1..=LONGEST_HOLD.as_secs()).contains(seconds));
    let with_unit =
        || std::str::from_utf8(text).ok().filter(|text| text.starts_with(|c: char| c.is_ascii_digit()));
    let span = seconds.map(Duration::from_secs).or_else(|| parse_hold(with_unit()?));
    span.ok_or(Mistake::Hold { text })
}

impl fmt::Display for Mistake<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR ")?;
        match self {
            Self::Nothing(command) => write!(f, "wrong number of arguments for '{command}' command"),
            Self::NoValue { option } => write!(f, "{option} needs a value"),
            Self::Number { option, text } => {
                write!(f, "{option} must be a whole number from 0 to {}, not '{}'", u64::MAX, Quoted(text))
            }
            Self::Hold { text } => {
                let most = LONGEST_HOLD.as_secs();
                let text = Quoted(text);
                write!(
                    f,
                    "HOLD must be a duration such as 30s or 500ms, or whole seconds from 1 to {most}, not '{text}'"
                )
            }
            Self::TwoActs { first, option } if first == option => {
                write!(f, "duplicate option {}", Quoted(option))
            }
            Self::TwoActs { first, option } => {
                write!(f, "{} cannot be combined with {}", Quoted(option), Quoted(first))
            }
            Self::Text { what, text } => write!(f, "the {what} must be UTF-8, not '{}'", Quoted(text)),
            Self::Odd { field } => write!(f, "field '{}' has no value", Quoted(field)),
            Self::TooMany(count) => {
                write!(f, "too many fields: {count}, the maximum is {MAX_FIELDS}")
            }
            Self::TooLong { field, length } => {
                let field = Quoted(field.as_bytes());
                write!(f, "field '{field}' is too long: {length} bytes, the maximum is {MAX_KEY_BYTES}")
            }
            Self::Late { option } => {
                write!(f, "{option} must come before the fields; if it is a field, write FIELDS first")
            }
            Self::Twice { field } => write!(f, "duplicate field '{}'", Quoted(field.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::request::{Parsed, Parser};
    use super::*;

    fn read(line: &[u8], then: impl FnOnce(Result<Question<'_>, Mistake<'_>>)) {
        let mut parser = Parser::default();
        assert_eq!(parser.parse(line), Ok(Parsed::Command(line.len())));
        then(Question::read("tg.check", parser.arguments(line)));
    }

    #[test]
    fn an_option_behind_fields_is_no_field_unless_it_is_said_to_be() {
        for line in [&b"tg.check ip 1 COST 100\n"[..], b"tg.check ip 1 DOMAIN web\n", b"tg.check ip 1 PEEK\n"]
        {
            read(line, |question| {
                let mistake = question.expect_err("it would have no effect").to_string();
                assert!(
                    mistake.ends_with("must come before the fields; if it is a field, write FIELDS first")
                );
            });
        }
        for line in [&b"tg.check ip 1 cost 100\n"[..], b"tg.check FIELDS ip 1 COST 100\n"] {
            read(line, |question| assert_eq!(question.expect("a question").fields.len(), 2));
        }
    }

    #[test]
    fn options_come_before_fields() {
        read(b"tg.check ip 10.0.0.7 path \"/a b\"\n", |question| {
            let question = question.expect("a question");
            assert_eq!(
                (question.domain, question.cost, question.act),
                ("default", None, Act::Decide(Mode::Take))
            );
            assert_eq!(question.fields[..], [("ip", &b"10.0.0.7"[..]), ("path", b"/a b")]);
        });
        read(b"tg.check COST 18446744073709551615 DOMAIN web HOLD 60 ip \"\\xff\"\n", |question| {
            let question = question.expect("a question");
            assert_eq!((question.domain, question.cost), ("web", Some(u64::MAX)));
            assert_eq!(question.act, Act::Hold(Duration::from_secs(60)));
            assert_eq!(question.fields[..], [("ip", &b"\xff"[..])]);
        });
        for (word, span) in
            [("30s", 30_000), ("500ms", 500), ("1.5min", 90_000), ("24h", 86_400_000), ("7", 7_000)]
        {
            read(format!("tg.check HOLD {word} a b\n").as_bytes(), |question| {
                assert_eq!(question.expect("a question").act, Act::Hold(Duration::from_millis(span)));
            });
        }
        read(b"tg.check PEEK FIELDS COST 5 domain x\n", |question| {
            let question = question.expect("a question");
            assert_eq!((question.cost, question.act), (None, Act::Decide(Mode::Peek)));
            assert_eq!(question.fields[..], [("COST", &b"5"[..]), ("domain", b"x")]);
        });
        read(b"tg.check domain web cost 5 ip 1\n", |question| {
            let question = question.expect("a question");
            assert_eq!((question.domain, question.cost, question.fields.len()), ("default", None, 3));
        });
        for (word, mode) in [("COUNT", Mode::Count), ("CHARGE", Mode::Charge), ("REFUND", Mode::Refund)] {
            read(format!("tg.check {word} a b\n").as_bytes(), |question| {
                assert_eq!(question.expect("a question").act, Act::Decide(mode));
            });
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let long = format!("tg.check f {}\n", "x".repeat(MAX_KEY_BYTES + 1));
        let many = format!("tg.check {}\n", "f v ".repeat(25));
        for (line, told) in [
            ("tg.check\n", "wrong number of arguments for 'tg.check' command"),
            ("tg.check COST\n", "COST needs a value"),
            (
                "tg.check COST -1 a b\n",
                "COST must be a whole number from 0 to 18446744073709551615, not '-1'",
            ),
            (
                "tg.check COST 18446744073709551616\n",
                "COST must be a whole number from 0 to 18446744073709551615, not '18446744073709551616'",
            ),
            ("tg.check COST '' a b\n", "COST must be a whole number from 0 to 18446744073709551615, not ''"),
            (
                "tg.check HOLD 0 a b\n",
                "HOLD must be a duration such as 30s or 500ms, or whole seconds from 1 to 86400, not '0'",
            ),
            (
                "tg.check HOLD 86401 a b\n",
                "HOLD must be a duration such as 30s or 500ms, or whole seconds from 1 to 86400, not '86401'",
            ),
            (
                "tg.check HOLD 25h a b\n",
                "HOLD must be a duration such as 30s or 500ms, or whole seconds from 1 to 86400, not '25h'",
            ),
            (
                "tg.check HOLD s a b\n",
                "HOLD must be a duration such as 30s or 500ms, or whole seconds from 1 to 86400, not 's'",
            ),
            ("tg.check PEEK HOLD 5 a b\n", "HOLD cannot be combined with PEEK"),
            ("tg.check CHARGE CHARGE a b\n", "duplicate option CHARGE"),
            ("tg.check ip\n", "field 'ip' has no value"),
            ("tg.check \"\\xff\" x\n", "the field name must be UTF-8, not '\u{fffd}'"),
            ("tg.check DOMAIN \"\\xff\" a b\n", "the domain must be UTF-8, not '\u{fffd}'"),
            ("tg.check a 1 b 2 a 3\n", "duplicate field 'a'"),
            (&many, "too many fields: 25, the maximum is 24"),
            (&long, "field 'f' is too long: 1025 bytes, the maximum is 1024"),
        ] {
            read(line.as_bytes(), |question| {
                assert_eq!(question.expect_err(told).to_string(), format!("ERR {told}"));
            });
        }
    }
}
