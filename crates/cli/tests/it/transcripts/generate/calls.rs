//! Calls of Envoy's rate limit service, as protobuf and as JSON.

use std::fmt::Write;

use super::Dice;

pub(super) struct Call {
    pub(super) domain: String,
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) hits: u64,
}

#[derive(Default)]
pub(super) struct Descriptor {
    pub(super) entries: Vec<(String, String)>,
    /// Requests and unit of a limit that the caller brings along.
    pub(super) limit: Option<(u64, u64)>,
    pub(super) hits: Option<u64>,
    pub(super) is_negative: bool,
}

impl Call {
    pub(super) fn new(domain: &str, entries: &[(&str, &str)]) -> Self {
        Self { domain: domain.to_owned(), descriptors: vec![Descriptor::new(entries)], hits: 0 }
    }

    /// The `number`th random call. A limit that it brings along has a key of its own: its window may end at any moment.
    pub(super) fn random(dice: &mut Dice, number: usize) -> Self {
        let domain = if dice.percent(4) {
            "nowhere"
        } else if dice.percent(15) {
            "default"
        } else {
            "edge"
        };
        let hits = if dice.percent(15) { dice.roll(4) } else { 0 };
        let count = if dice.percent(25) { 2 + dice.roll(2) } else { 1 };
        let descriptors =
            (0..count).map(|place| Descriptor::random(dice, domain, &format!("{number}-{place}")));
        Self { domain: domain.to_owned(), descriptors: descriptors.collect(), hits }
    }

    pub(super) fn proto(&self) -> Vec<u8> {
        let descriptors = self.descriptors.iter().flat_map(|descriptor| bytes(2, &descriptor.proto()));
        let hits = if self.hits > 0 { number(3, self.hits) } else { Vec::new() };
        bytes(1, self.domain.as_bytes()).into_iter().chain(descriptors).chain(hits).collect()
    }

    pub(super) fn json(&self) -> String {
        let descriptors: Vec<String> = self.descriptors.iter().map(Descriptor::json).collect();
        let hits = if self.hits > 0 { format!(",\"hitsAddend\":{}", self.hits) } else { String::new() };
        format!("{{\"domain\":{:?},\"descriptors\":[{}]{hits}}}", self.domain, descriptors.join(","))
    }
}

impl Descriptor {
    pub(super) fn new(entries: &[(&str, &str)]) -> Self {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Self { entries, ..Self::default() }
    }

    fn random(dice: &mut Dice, domain: &str, own: &str) -> Self {
        let (small, address) = (dice.roll(9).to_string(), format!("10.0.0.{}", 1 + dice.roll(9)));
        let (mail, log) = (format!("{small}@example.com"), format!("log-{small}"));
        let entries: &[(&str, &str)] = match (domain, dice.roll(9)) {
            ("default", 0..4) => &[("user", &small)],
            ("default", _) => &[("ip", &small), ("log", &log)],
            (_, 0..2) => &[("remote_address", &address)],
            (_, 2) => &[("path", "/login"), ("remote_address", &address)],
            (_, 3) => &[("user", &mail), ("remote_address", &address)],
            (_, 4) => &[("user", &mail)],
            (_, 5) => &[("window", &small)],
            (_, 6) => &[("tried", &small)],
            (_, 7) => &[("sized", &small), ("bytes", "7")],
            _ => &[("nothing", &small)],
        };
        let mut descriptor = Self::new(entries);
        if dice.percent(12) {
            descriptor.entries[0].1 = own.into();
            descriptor.limit = Some((dice.roll(4), 1 + dice.roll(6)));
        }
        descriptor.hits = dice.percent(25).then(|| dice.roll(5));
        descriptor.is_negative = dice.percent(6);
        descriptor
    }

    pub(super) fn proto(&self) -> Vec<u8> {
        let entry = |(key, value): &(String, String)| {
            bytes(1, &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())].concat())
        };
        let mut message: Vec<u8> = self.entries.iter().flat_map(entry).collect();
        if let Some((requests, unit)) = self.limit {
            message.extend(bytes(2, &[number(1, requests), number(2, unit)].concat()));
        }
        if let Some(hits) = self.hits {
            message.extend(bytes(3, &number(1, hits)));
        }
        if self.is_negative {
            message.extend(number(4, 1));
        }
        message
    }

    fn json(&self) -> String {
        let entry = |(key, value): &(String, String)| format!("{{\"key\":{key:?},\"value\":{value:?}}}");
        let entries: Vec<String> = self.entries.iter().map(entry).collect();
        let mut json = format!("{{\"entries\":[{}]", entries.join(","));
        if let Some((requests, unit)) = self.limit {
            let unit = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"][unit as usize];
            let _ = write!(json, ",\"limit\":{{\"requestsPerUnit\":{requests},\"unit\":{unit:?}}}");
        }
        if let Some(hits) = self.hits {
            let _ = write!(json, ",\"hitsAddend\":\"{hits}\"");
        }
        json + if self.is_negative { ",\"isNegativeHits\":true}" } else { "}" }
    }
}

/// Who asks, and the fields that are to prove it; the tokens are those of `keys.toml`.
pub(super) fn callers() -> Vec<(&'static str, String)> {
    let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
    vec![
        ("nobody", String::new()),
        ("guess", bearer("guessed-but-not-well")),
        ("asker", bearer("asks-and-does-no-more")),
        ("biller", bearer("asks-and-settles-too")),
        ("operator", bearer("looks-and-resets-only")),
        ("everything", bearer("may-do-all-there-is-to-do")),
        ("lower", "authorization: bearer asks-and-does-no-more\r\n".to_owned()),
        ("basic", "authorization: Basic YTpi\r\n".to_owned()),
        ("empty", "authorization: \r\n".to_owned()),
        ("no-token", "authorization: Bearer\r\n".to_owned()),
        ("short", "authorization: x\r\n".to_owned()),
        ("twice", bearer("guessed-but-not-well") + &bearer("asks-and-does-no-more")),
    ]
}

/// A field of protobuf that is a number.
pub(super) fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field of protobuf that has a length.
pub(super) fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2)[..], &varint(value.len() as u64), value].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
