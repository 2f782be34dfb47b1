//! What depends on the moment, or on chance, is made the same in every run; everything else is compared as it is.
//!
//! - A span of half an hour or more is rounded to hours: `~2400h`. A run takes less, and the policy has whole hours only.
//! - A span of ten years or more is the rest of a window that the wall clock lies in: `#`. So is the rest of a window that a caller of Envoy's
//!   service brought along, which is never longer than a year.
//! - The names of permits become `permit0…01`, `permit0…02` and so on; `permit0…0` in a request is the last of them.
//! - Dates, our version, the id of a connection, and durations and what the system says of the process in metrics are `#`; so is `content-length` where the body has something masked.

use std::env::consts;

const HOUR: f64 = 3600.0;
const TEN_YEARS: f64 = 10.0 * 365.0 * 24.0 * HOUR;

/// A span in so many parts of a second.
pub(super) fn span(number: &str, parts: f64) -> String {
    let seconds = number.parse::<f64>().expect("a number") / parts;
    if seconds < HOUR / 2.0 {
        number.to_owned()
    } else if seconds < TEN_YEARS {
        format!("~{}h", (seconds / HOUR).round())
    } else {
        "#".to_owned()
    }
}

fn seconds(number: &str) -> String {
    span(number, 1.0)
}

/// Masks our version and the platform, with which answers would otherwise change.
fn version(line: &str) -> String {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let marks = ["\"hash\":\"", "hash=\"", "tollgate_version:", "version=\""].map(|mark| (mark, VERSION));
    let platform = [("os=\"", consts::OS), ("arch=\"", consts::ARCH)];
    marks.iter().chain(&platform).fold(line.to_owned(), |line, (mark, value)| {
        line.replace(&format!("{mark}{value}"), &format!("{mark}#"))
    })
}

/// Masks every number that follows one of some marks.
fn after(text: &str, marks: &[&str], mask: impl Fn(&str) -> String) -> String {
    let mut text = text.to_owned();
    for mark in marks {
        let mut done = 0;
        while let Some(found) = text[done..].find(mark) {
            let start = done + found + mark.len();
            let end = text[start..]
                .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
                .map_or(text.len(), |end| start + end);
            let masked = if start == end { String::new() } else { mask(&text[start..end]) };
            text.replace_range(start..end, &masked);
            done = start + masked.len();
        }
    }
    text
}

/// Masks an answer in HTTP, line by line.
pub(super) fn http(mut lines: Vec<String>) -> Vec<String> {
    let (mut length, mut is_metrics) = (None, false);
    for at in 0..lines.len() {
        let line = &lines[at];
        is_metrics |= line.starts_with("< content-type: application/openmetrics-text");
        if line.starts_with("< content-length: ") {
            length = Some(at);
            continue;
        }
        let masked = match line.split_once(' ') {
            Some(("<<", _)) if is_metrics => metrics(line),
            Some(("<<", _)) => json(line),
            _ => field(line),
        };
        if let Some(length) = length.take_if(|_| line.starts_with("<< ") && masked != *line) {
            lines[length] = "< content-length: #".into();
        }
        lines[at] = masked;
    }
    if !is_metrics {
        return lines;
    }
    // A line for each of theirs.
    let head_and_body = lines.iter().map(|line| line.replace("\\n", "\\n\n<< "));
    head_and_body
        .collect::<Vec<_>>()
        .join("\n")
        .lines()
        .filter(|line| *line != "<< ")
        .map(str::to_owned)
        .collect()
}

fn field(line: &str) -> String {
    match line.split_once(": ") {
        Some(("< date", _)) => "< date: #".to_owned(),
        Some(("< ratelimit", _)) => after(line, &[";t="], seconds),
        Some(("< retry-after", _)) => after(line, &["< retry-after: "], seconds),
        _ => line.to_owned(),
    }
}

fn json(line: &str) -> String {
    const OPENAPI: &str = include_str!("../../../../server/src/http/openapi.json");
    if line.len() > OPENAPI.len() && line[3..] == super::record::escape(OPENAPI.as_bytes()) {
        return "<< (crates/server/src/http/openapi.json)".to_owned();
    }
    let line = after(line, &["\"retry_after\":", "\"reset_after\":", "\"delay\":"], seconds);
    let line = line.split("\"since\":\"").enumerate().map(|(part, text)| match text.split_once('"') {
        Some((_, rest)) if part > 0 => format!("\"since\":\"#\"{rest}"),
        _ => text.to_owned(),
    });
    rls_json(&version(&line.collect::<String>()))
}

/// The answer of `/json`, where a limit without a name is one that the caller brought along.
fn rls_json(line: &str) -> String {
    let statuses: Vec<&str> = line.split("{\"code\":").collect();
    let is_brought = |text: &str| {
        text.contains("\"currentLimit\"") && !text.contains("\"name\"") && !text.contains("UNKNOWN")
    };
    let any = statuses[1..].iter().any(|status| is_brought(status));
    let masked =
        statuses.iter().enumerate().map(|(at, status)| {
            let is_brought = at > 0 && is_brought(status);
            after(status, &["\"durationUntilReset\":\""], |span| {
                if is_brought { "#".to_owned() } else { seconds(span) }
            })
        });
    let line = masked.collect::<Vec<_>>().join("{\"code\":");
    let reset = "\"key\":\"RateLimit-Reset\",\"value\":\"";
    after(&line, &[reset], |span| if any { "#".to_owned() } else { seconds(span) })
}

/// Metrics that depend on the moment or the machine.
const CHANGING: [&str; 3] =
    ["tollgate_store_bytes", "tollgate_config_last_reload_success_timestamp_seconds", "process_"];

/// Durations, and how much memory is used.
fn metrics(body: &str) -> String {
    let mask = |line: &str| match line.rsplit_once(' ') {
        Some((name, _))
            if name.starts_with("tollgate_decision_duration_seconds") && !name.contains("_count") =>
        {
            format!("{name} #")
        }
        Some((name, _)) if CHANGING.iter().any(|prefix| name.starts_with(prefix)) => format!("{name} #"),
        _ => line.to_owned(),
    };
    version(body).split("\\n").map(mask).collect::<Vec<_>>().join("\\n")
}

/// Masks a reply of Redis, and makes one line of it.
pub(super) fn resp(mut lines: Vec<String>) -> String {
    let is_integer = |line: &String| line.starts_with("< :");
    let milliseconds = |number: &str| span(number, 1000.0);
    // No clock's windows, however long it is.
    let hours = |number: &str| match number.parse::<f64>() {
        Ok(seconds) if seconds >= HOUR / 2.0 => format!("~{}h", (seconds / HOUR).round()),
        _ => number.to_owned(),
    };
    for at in 0..lines.len() {
        lines[at] = version(&lines[at]);
        let behind = |count: usize| lines.get(at + count).is_some_and(is_integer);
        match lines[at].as_str() {
            // As `CL.THROTTLE` and `THROTTLE` answer: two spans at the end.
            "< *5" if (1..=5).all(behind) => {
                for span in [4, 5] {
                    lines[at + span] = after(&lines[at + span], &["< :"], hours);
                }
            }
            "< retry_after_ms" | "< reset_after_ms" | "< delay_ms" if behind(1) => {
                lines[at + 1] = after(&lines[at + 1], &["< :"], milliseconds);
            }
            "< id" if behind(1) => lines[at + 1] = "< :#".into(),
            // The seconds since 1970, and the microseconds.
            "< *2" if lines.get(at + 1).is_some_and(|line| line == "< $10") => {
                lines[at + 2] = "< #".into();
                lines[at + 3] = "< $#".into();
                lines[at + 4] = "< #".into();
            }
            _ => {}
        }
    }
    let sign = lines.last().and_then(|line| line.split(' ').next()).unwrap_or("<").to_owned();
    let bare = lines.iter().map(|line| line.split_once(' ').map_or("", |(_, text)| text));
    format!("{sign} {}", bare.collect::<Vec<_>>().join("\\r\\n"))
}

/// The names of permits, in the order in which they were told.
#[derive(Debug, Default)]
pub(super) struct Permits(Vec<String>);

/// The length of a name, and of what stands for it.
const ID: usize = 32;

impl Permits {
    /// What stands for the name told last in a request.
    pub(super) const LAST: &str = "permit00000000000000000000000000";

    /// A request with a real name. While none was told, it is sent as it is.
    pub(super) fn fill(&self, request: &[u8]) -> Vec<u8> {
        let mut filled = request.to_vec();
        let place = filled.windows(ID).position(|name| name == Self::LAST.as_bytes());
        if let (Some(at), Some(id)) = (place, self.0.last()) {
            filled[at..at + ID].copy_from_slice(id.as_bytes());
        }
        filled
    }

    /// An answer without them.
    pub(super) fn mask(&mut self, mut answer: Vec<u8>) -> Vec<u8> {
        let mut at = 0;
        while at < answer.len() {
            let length =
                answer[at..].iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
            if length == ID {
                let id = String::from_utf8_lossy(&answer[at..at + ID]).into_owned();
                let known = self.0.iter().position(|known| *known == id).unwrap_or(self.0.len());
                if known == self.0.len() {
                    self.0.push(id);
                }
                answer[at..at + ID].copy_from_slice(format!("permit{:026}", known + 1).as_bytes());
            }
            at += length + 1;
        }
        answer
    }
}
