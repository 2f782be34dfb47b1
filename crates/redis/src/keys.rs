//! What states are called in Redis.
//!
//! ```text
//! <prefix>tg2:{3fa9}:0c5e1a7b9d2f4e68:0#2bd806c97f0e00af1a1fc3328fa763a9
//!         │    │     │                │ └ the first half of the SHA-256 of the caller's key; or, if keys are clear, `=` and the key as
//!         │    │     │                │   it is, up to 64 bytes
//!         │    │     │                └ which of the rule's quotas
//!         │    │     └ the rule: domain, name, algorithm and all quotas, hashed
//!         │    └ the hash tag: 16 bits of the caller's key, or of what `tag` makes of it
//!         └ the version of this layout, and of what the states look like
//! ```
//!
//! `<prefix>tg2:nodes` is a sorted set of those who share all this.
//!
//! A changed rule has other keys, so it starts afresh. A version of tollgate that keeps states differently has another layout
//! version, so both can run side by side: neither reads what the other wrote. While they do, a caller can get the limit from each
//! of them, which is at most twice the limit; the older one's keys go by themselves.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tollgate::store::Rule;

/// The version of the layout.
pub(crate) const LAYOUT: u32 = 2;
/// Longer keys are hashed in any case: they may be as long as a stranger likes.
const LONGEST_KEY: usize = 64;
/// Bytes of a hash that stand for a key: two keys that have them in common cannot be found in practice.
const HASHED_KEY: usize = 16;

/// Says which part of a caller's key decides where in a cluster its states are.
pub(crate) type TagOf = dyn Fn(&Rule, &[u8]) -> Vec<u8> + Send + Sync;

/// How keys are made.
#[derive(Clone)]
pub(crate) struct Keys {
    head: Arc<[u8]>,
    /// Whether callers' keys are written as they are.
    are_clear: bool,
    tag_of: Option<Arc<TagOf>>,
}

/// Where in a cluster something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag(u16);

impl Keys {
    /// `is_test` tells apart what goes by a clock of its own.
    pub(crate) fn new(prefix: &str, layout: u32, is_test: bool, tag_of: Option<Arc<TagOf>>) -> Self {
        let mark = if is_test { "test" } else { "" };
        Self { head: format!("{prefix}tg{layout}{mark}:{{").into_bytes().into(), are_clear: false, tag_of }
    }

    /// The same with callers' keys as they are.
    pub(crate) fn clear(self) -> Self {
        Self { are_clear: true, ..self }
    }

    /// Where the states of a caller's key are.
    pub(crate) fn tag(&self, rule: &Rule, key: &[u8]) -> Tag {
        match &self.tag_of {
            Some(tag_of) => Tag::of(&tag_of(rule, key)),
            None => Tag::of(key),
        }
    }

    /// What the list of those who share all this is called.
    pub(crate) fn nodes(&self) -> Vec<u8> {
        let head = self.head.strip_suffix(b"{").unwrap_or(&self.head);
        [head, b"nodes"].concat()
    }

    /// What the state of a quota is called for a caller's key.
    pub(crate) fn name(&self, tag: Tag, quota: &QuotaName, key: &[u8]) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.head.len() + TAG + quota.0.len() + 1 + LONGEST_KEY);
        name.extend_from_slice(&self.head);
        name.extend_from_slice(&hex16(tag.0));
        name.extend_from_slice(b"}:");
        name.extend_from_slice(&quota.0);
        if self.are_clear && key.len() <= LONGEST_KEY {
            name.extend_from_slice(b"=");
            name.extend_from_slice(key);
        } else {
            name.extend_from_slice(b"#");
            let hash = Sha256::digest(key);
            let (pairs, _) = hash[..HASHED_KEY].as_chunks();
            for pair in pairs {
                name.extend_from_slice(&hex16(u16::from_be_bytes(*pair)));
            }
        }
        name
    }
}

/// The tag in a name, with what follows it.
const TAG: usize = "3fa9}:".len();

/// What a state is called in this process, wherever it lies: the quota and the caller's key, which is hashed only if it is long. It
/// takes no memory to make.
#[derive(Clone, Copy)]
pub(crate) struct Label {
    bytes: [u8; LONGEST_LABEL],
    length: usize,
}

/// A quota's name is at most 16 digits of the rule and 20 of the number.
const LONGEST_LABEL: usize = 16 + 1 + 20 + 1 + LONGEST_KEY;

impl Label {
    pub(crate) fn of(quota: &QuotaName, key: &[u8]) -> Self {
        let mut label = Self { bytes: [0; LONGEST_LABEL], length: 0 };
        label.push(&quota.0);
        if key.len() <= LONGEST_KEY {
            label.push(b"=");
            label.push(key);
        } else {
            label.push(b"#");
            label.push(&Sha256::digest(key));
        }
        label
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.length + part.len();
        self.bytes[self.length..end].copy_from_slice(part);
        self.length = end;
    }
}

impl fmt::Debug for Label {
    /// Without the caller's key, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Label").finish_non_exhaustive()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&String::from_utf8_lossy(&self.head)).finish()
    }
}

impl Tag {
    /// FNV-1a, folded. Whoever chooses keys so that they collide gets them onto one machine, as anybody can who chooses keys.
    fn of(key: &[u8]) -> Self {
        let hash = key
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        Self((hash >> 16) as u16 ^ hash as u16)
    }
}

/// The part of a name that says which quota of which rule it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaName(Box<[u8]>);

impl QuotaName {
    /// One for each of a rule's quotas.
    pub(crate) fn all(rule: &Rule) -> Vec<Self> {
        let identity = identity(rule);
        (0..rule.quotas().len())
            .map(|number| Self(format!("{identity}:{number}").into_bytes().into()))
            .collect()
    }
}

/// Everything that makes a rule what it is, hashed; the same on every machine.
fn identity(rule: &Rule) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(rule.domain());
    add(rule.name());
    add(rule.kind().name());
    for number in [u128::from(rule.parts()), rule.quotas().len() as u128] {
        hash.update(number.to_le_bytes());
    }
    for quota in rule.quotas() {
        let numbers = [u128::from(quota.count()), quota.period().as_nanos(), quota.burst_size().into()];
        for number in numbers {
            hash.update(number.to_le_bytes());
        }
    }
    // What callers supply never shares a state with what a policy says.
    if rule.is_brought() || rule.is_floating() {
        hash.update([u8::from(rule.is_brought()), u8::from(rule.is_floating())]);
    }
    let first = hash.finalize().iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{first:016x}")
}

fn hex16(number: u16) -> [u8; 4] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [12, 8, 4, 0].map(|shift| DIGITS[usize::from(number >> shift & 15)])
}

#[cfg(test)]
mod tests {
    use tollgate::{Kind, Quota};

    use super::*;

    fn keys() -> Keys {
        Keys::new("app:", LAYOUT, false, None)
    }

    fn name(keys: &Keys, rule: &Rule, number: usize, key: &[u8]) -> Vec<u8> {
        keys.name(keys.tag(rule, key), &QuotaName::all(rule)[number], key)
    }

    #[test]
    fn a_name_says_layout_tag_rule_quota_and_key() {
        let rule = Rule::new("api", "per user", Quota::per_second(1)).with_quota(Quota::per_day(5));
        let text = String::from_utf8(name(&keys().clear(), &rule, 1, b"alice")).unwrap();
        let (head, rest) = text.split_at("app:tg2:{".len());
        assert_eq!((head, &rest[4..6]), ("app:tg2:{", "}:"), "{text}");
        assert!(rest.ends_with(":1=alice") && rest.len() == 4 + 2 + 16 + ":1=alice".len(), "{text}");
        assert_eq!(Label::of(&QuotaName::all(&rule)[1], b"alice").as_bytes(), &rest.as_bytes()[6..]);
    }

    /// Answers, item 24: keys are hashed, whatever they look like, unless they are said to be clear.
    #[test]
    fn every_key_is_hashed_unless_they_are_clear() {
        let rule = Rule::new("api", "per user", Quota::per_second(1));
        let long = [b'x'; 65];
        for key in [&b""[..], b"alice", b"10.0.0.7", &long] {
            let digest: String = Sha256::digest(key)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(name(&keys(), &rule, 0, key).ends_with(format!(":0#{digest}").as_bytes()));
        }
        let clear = |key: &[u8]| name(&keys().clear(), &rule, 0, key);
        assert!(clear(b"alice").ends_with(b":0=alice"));
        assert_eq!(clear(&long), name(&keys(), &rule, 0, &long), "a long one is hashed all the same");
    }

    #[test]
    fn names_differ_where_anything_does() {
        let rule = Rule::new("api", "per user", Quota::per_second(10));
        let others = [
            rule.clone(),
            Rule::new("ap", "iper user", Quota::per_second(10)),
            Rule::new("api", "per user", Quota::per_second(11)),
            Rule::new("api", "per user", Quota::per_second(10).burst(11)),
            Rule::new("api", "per user", Quota::per_minute(10)),
            rule.clone().with_quota(Quota::per_second(10)),
            rule.clone().with_kind(Kind::LeakyQueue),
            rule.clone().with_sub_windows(6),
            rule.clone().with_sub_windows(7),
        ];
        let mut names: Vec<Vec<u8>> = others.iter().map(|rule| name(&keys(), rule, 0, b"k")).collect();
        names.push(name(&keys(), &rule, 0, b"k2"));
        names.push(name(&keys(), &others[5], 1, b"k"));
        names.push(name(&Keys::new("app:", LAYOUT + 1, false, None), &rule, 0, b"k"));
        names.push(name(&Keys::new("app:", LAYOUT, true, None), &rule, 0, b"k"));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    // Guards, item 6: a limit that a caller supplies has other keys than a limit of a policy with the same name.
    #[test]
    fn supplied_limits_have_names_of_their_own() {
        let quota = Quota::per_hour(1);
        let written = Rule::new("http", "per-ip", quota);
        let rules = [written.clone(), written.brought(), Rule::floating("http", "per-ip", quota)];
        let [written, supplied, floating] = rules.map(|rule| name(&keys(), &rule, 0, b"10.0.0.7"));
        assert!(written != supplied && written != floating && supplied != floating);
    }

    #[test]
    fn a_long_key_is_hashed_and_a_short_one_cannot_pass_for_it() {
        let rule = Rule::new("d", "n", Quota::per_second(1));
        let long = vec![b'x'; 100_000];
        let named = name(&keys(), &rule, 0, &long);
        assert!(named.len() < 80);
        assert_ne!(named, name(&keys(), &rule, 0, &long[1..]));
        let digest = Sha256::digest(&long).to_vec();
        assert_ne!(named, name(&keys(), &rule, 0, &digest));
    }

    #[test]
    fn the_tag_follows_the_key_and_nothing_else() {
        let (one, two) =
            (Rule::new("d", "one", Quota::per_second(1)), Rule::new("d", "two", Quota::per_day(1)));
        for key in [&b""[..], b"}", b"{}", b"alice", b"\0\xff"] {
            assert_eq!(keys().tag(&one, key), keys().tag(&two, key));
        }
        assert_ne!(keys().tag(&one, b"alice"), keys().tag(&one, b"bob"));
        let tenant: Arc<TagOf> =
            Arc::new(|_: &Rule, key: &[u8]| key.split(|byte| *byte == b'/').next().unwrap_or(key).to_vec());
        let keys = Keys::new("", LAYOUT, false, Some(tenant));
        assert_eq!(keys.tag(&one, b"acme/alice"), keys.tag(&two, b"acme/bob"));
    }
}
