//! Telling callers how they stand.

use std::cmp::Reverse;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{DictSerializer, ItemSerializer, KeyRef, ListSerializer};

use crate::limit::{LONGEST_SECONDS, field_value, integer};
use crate::standing::Standing;
use crate::text::Text;

/// In which words limits are told.
///
/// The form of today speaks of every limit. The older ones speak of one only, the tightest, in three numbers: what the limit
/// is, what is left of it, and in how many seconds there is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// `RateLimit: "burst";r=50;t=30` and `RateLimit-Policy: "burst";q=100;w=60`, as in the IETF's drafts 08 to 11.
    #[default]
    Draft11,
    /// `RateLimit: limit=100, remaining=50, reset=30` and `RateLimit-Policy: 100;w=60`.
    Draft7,
    /// `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`, `RateLimit-Reset: 30` and `RateLimit-Policy: 100;w=60`.
    Draft6,
    /// `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 50` and `X-RateLimit-Reset: 30`, in seconds from now.
    XRateLimit,
    /// Not at all. A refusal still has its `Retry-After`, which HTTP itself defines.
    Off,
}

/// Tells callers how they stand with limits, in the fields of an answer.
///
/// Every answer may have the fields, not only refusals. A refusal also gets `Retry-After`: the seconds until all that refused
/// would admit the same call, rounded up, and at least one; it is left out if that will never be. Numbers too large for
/// the fields are capped: counts at fifteen digits, spans at 999999999 seconds.
///
/// Fields that are there already, from a layer further in or from the service itself, stay, and so does a `Retry-After`. Today's form adds to them; the
/// older forms, which can speak of one limit only, then say nothing.
///
/// # Examples
/// ```
/// use http::HeaderMap;
/// use tollgate_core::{Decision, Kind, Quota, Verdict};
/// use tollgate_http::{Form, Limit, Writer};
///
/// let burst = Limit::new("burst", Kind::FixedWindow, Quota::per_minute(100))?;
/// let daily = Limit::new("daily", Kind::FixedWindow, Quota::per_day(1_000))?;
/// let standings = [
///     burst.after(Decision::new(Verdict::Deny, 100, 0, 29_500_000_000, 29_500_000_000)),
///     daily.after(Decision::new(Verdict::Allow, 1_000, 700, 0, 50_000_000_000_000)),
/// ];
/// let mut headers = HeaderMap::new();
/// Writer::new().write(&standings, &mut headers);
/// assert_eq!(headers["ratelimit-policy"], r#""burst";q=100;w=60, "daily";q=1000;w=86400"#);
/// assert_eq!(headers["ratelimit"], r#""burst";r=0;t=30, "daily";r=700;t=50000"#);
/// assert_eq!(headers["retry-after"], "30");
///
/// let mut headers = HeaderMap::new();
/// Writer::new().form(Form::XRateLimit).write(&standings, &mut headers);
/// assert_eq!(headers["x-ratelimit-remaining"], "0");
/// # Ok::<(), tollgate_http::NameError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a writer writes nothing by itself"]
pub struct Writer {
    form: Form,
}

impl Writer {
    /// A writer of today's form.
    pub const fn new() -> Self {
        Self { form: Form::Draft11 }
    }

    /// Writes in that form.
    pub const fn form(self, form: Form) -> Self {
        Self { form }
    }

    /// Whether it says nothing of calls that pass.
    #[inline]
    pub const fn is_silent(&self) -> bool {
        matches!(self.form, Form::Off)
    }

    /// Writes how the limits of one call stand.
    pub fn write(&self, standings: &[Standing<'_>], headers: &mut HeaderMap) {
        match self.form {
            Form::Draft11 => today(standings, headers),
            Form::Draft7 => draft7(standings, headers),
            Form::Draft6 => draft6(standings, headers),
            Form::XRateLimit => x_ratelimit(standings, headers),
            Form::Off => {}
        }
        if let Some(wait) = wait_for_all(standings) {
            headers.entry(RETRY_AFTER).or_insert_with(|| retry_after_value(wait));
        }
    }

    /// Says that this was decided without whoever knows how all callers stand: `X-RateLimit-Degraded: true`, in every form but
    /// [`Form::Off`].
    ///
    /// # Examples
    /// ```
    /// use http::HeaderMap;
    /// use tollgate_http::{Writer, X_RATELIMIT_DEGRADED};
    ///
    /// let mut headers = HeaderMap::new();
    /// Writer::new().mark_degraded(&mut headers);
    /// assert_eq!(headers[X_RATELIMIT_DEGRADED], "true");
    /// ```
    pub fn mark_degraded(&self, headers: &mut HeaderMap) {
        if self.form != Form::Off {
            headers.insert(X_RATELIMIT_DEGRADED, HeaderValue::from_static("true"));
        }
    }
}

/// Marks what was decided by other means than usual, because those were not to be had.
pub const X_RATELIMIT_DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

/// The value of `Retry-After` for a refusal: whole seconds, rounded up, at least one.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_http::retry_after_value;
///
/// assert_eq!(retry_after_value(Duration::from_millis(1_001)), "2");
/// assert_eq!(retry_after_value(Duration::ZERO), "1");
/// ```
pub fn retry_after_value(wait: Duration) -> HeaderValue {
    HeaderValue::from(whole_seconds(wait).max(1))
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// Limit, remaining, reset.
const DRAFT_6: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

fn today(standings: &[Standing<'_>], headers: &mut HeaderMap) {
    let mut all = told(standings);
    let Some(first) = all.next() else {
        return;
    };
    // By far the most frequent case, and the same for every answer.
    let is_alone = all.next().is_none() && first.key().is_none();
    let policies = if is_alone { first.limit().policy_field().clone() } else { policies_of(standings) };
    // In this order, because the processor goes on to the other while it looks for the place of this one.
    headers.append(RATELIMIT_POLICY, policies);
    headers.append(RATELIMIT, left_of(standings));
}

/// `"burst";r=50;t=30, "daily";r=700;t=50000`
fn left_of(standings: &[Standing<'_>]) -> HeaderValue {
    let mut text = Text::new();
    for standing in told(standings) {
        begin_item(&mut text);
        text.push(standing.limit().left_begins().as_bytes());
        text.push_number(standing.available());
        if let Some(window) = standing.effective_window() {
            text.push(b";t=");
            text.push_number(whole_seconds(window));
        }
        push_key(&mut text, standing);
    }
    text.value()
}

/// `"burst";q=100;w=60, "daily";q=1000;w=86400`
fn policies_of(standings: &[Standing<'_>]) -> HeaderValue {
    let mut text = Text::new();
    for standing in told(standings) {
        begin_item(&mut text);
        text.push(standing.limit().policy_field().as_bytes());
        push_key(&mut text, standing);
    }
    text.value()
}

fn begin_item(text: &mut Text) {
    if !text.is_empty() {
        text.push(b", ");
    }
}

/// `;pk=:a2V5:`, if whose share it is shall be told.
#[inline]
fn push_key(text: &mut Text, standing: &Standing<'_>) {
    if let Some(key) = standing.key() {
        text.push(b";pk=");
        text.push(ItemSerializer::new().bare_item(key).finish().as_bytes());
    }
}

fn draft7(standings: &[Standing<'_>], headers: &mut HeaderMap) {
    let Some(Numbers { limit, remaining, reset: Some(reset) }) = numbers(standings) else {
        return;
    };
    if headers.contains_key(RATELIMIT) {
        return;
    }
    let mut fields = DictSerializer::new();
    let numbers = [("limit", limit), ("remaining", remaining), ("reset", reset)];
    for (key, number) in numbers {
        _ = fields.bare_item(KeyRef::constant(key), integer(number));
    }
    let text = fields.finish().unwrap_or_default();
    headers.insert(RATELIMIT, HeaderValue::try_from(text).expect("structured fields are printable ASCII"));
    older_policies(standings, headers);
}

fn draft6(standings: &[Standing<'_>], headers: &mut HeaderMap) {
    let Some(numbers @ Numbers { reset: Some(_), .. }) = numbers(standings) else {
        return;
    };
    if !headers.contains_key(&DRAFT_6[0]) {
        numbers.write(DRAFT_6, headers);
        older_policies(standings, headers);
    }
}

fn x_ratelimit(standings: &[Standing<'_>], headers: &mut HeaderMap) {
    if let Some(numbers) = numbers(standings)
        && !headers.contains_key(&X_RATELIMIT[0])
    {
        numbers.write(X_RATELIMIT, headers);
    }
}

/// What the older forms tell. Those of the drafts must have a reset, so they cannot speak of a limit without one.
struct Numbers {
    limit: u64,
    remaining: u64,
    reset: Option<u64>,
}

fn numbers(standings: &[Standing<'_>]) -> Option<Numbers> {
    let tightest = tightest(standings)?;
    let reset = tightest.effective_window().map(whole_seconds);
    Some(Numbers { limit: tightest.limit().count(), remaining: tightest.available(), reset })
}

impl Numbers {
    fn write(&self, [limit, remaining, reset]: [HeaderName; 3], headers: &mut HeaderMap) {
        headers.insert(limit, number_value(self.limit));
        headers.insert(remaining, number_value(self.remaining));
        if let Some(seconds) = self.reset {
            headers.insert(reset, number_value(seconds));
        }
    }
}

fn number_value(number: u64) -> HeaderValue {
    let mut text = Text::new();
    text.push_number(number);
    text.value()
}

/// `100;w=60, 1000;w=3600`, the tightest first.
///
/// Two policies must not have the same number, since that is what tells them apart. The tightest keeps its number even if it has
/// no window to tell: another's would be taken for its.
fn older_policies(standings: &[Standing<'_>], headers: &mut HeaderMap) {
    let (mut list, mut said) = (ListSerializer::new(), Vec::new());
    for (index, standing) in tightest(standings).into_iter().chain(told(standings)).enumerate() {
        let (count, window) = (integer(standing.limit().count()), standing.limit().window_seconds());
        if said.contains(&count) || (index > 0 && window.is_none()) {
            continue;
        }
        said.push(count);
        if let Some(window) = window {
            _ = list.bare_item(count).parameter(KeyRef::constant("w"), integer(window));
        }
    }
    let policies = field_value(list);
    if !policies.is_empty() {
        headers.insert(RATELIMIT_POLICY, policies);
    }
}

/// Those that there is anything to tell of.
fn told<'a, 'b>(standings: &'a [Standing<'b>]) -> impl Iterator<Item = &'a Standing<'b>> {
    standings.iter().filter(|standing| !standing.limit().is_unlimited())
}

/// The limit that is felt first: what refused for the longest time, else what has least left.
fn tightest<'a, 'b>(standings: &'a [Standing<'b>]) -> Option<&'a Standing<'b>> {
    told(standings).min_by_key(|standing| {
        let refused_for = standing.is_refusal().then(|| standing.retry_after().unwrap_or(Duration::MAX));
        (Reverse(refused_for), standing.available(), Reverse(standing.effective_window()))
    })
}

/// When all that refused would admit the same call: none if nothing refused, or if one of them never will.
fn wait_for_all(standings: &[Standing<'_>]) -> Option<Duration> {
    let refusals = standings.iter().filter(|standing| standing.is_refusal());
    refusals
        .map(Standing::retry_after)
        .try_fold(None, |longest, wait| Some(longest.max(Some(wait?))))
        .flatten()
}

fn whole_seconds(span: Duration) -> u64 {
    let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    seconds.min(LONGEST_SECONDS)
}
