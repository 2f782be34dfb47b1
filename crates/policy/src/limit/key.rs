//! Whose state it is.

use super::{Limit, Part};
use crate::descriptor::Field;
use crate::entries::write_entry;
use crate::matcher::Asked;
use crate::network;
use crate::pattern::Pattern;

impl Limit {
    /// Writes the key. One value is written as it is; several are joined with commas, those in them being escaped, so that
    /// different values never make the same key. `computed` is what came out of its expressions.
    pub(crate) fn write_key(&self, asked: &Asked<'_>, computed: &[String], key: &mut Vec<u8>) {
        if self.shared.is_empty() {
            let mut computed = computed.iter();
            for (at, part) in self.key.iter().enumerate() {
                if at > 0 {
                    key.push(b',');
                }
                let (value, ipv6_prefix) = match part {
                    Part::Field(field, ipv6_prefix) => (asked.value(*field), *ipv6_prefix),
                    Part::Computed => (computed.next().map(String::as_bytes), None),
                };
                write_value(value.unwrap_or_default(), ipv6_prefix, self.key.len() == 1, key);
            }
            return;
        }
        for (at, (shared, entry)) in self.shared.iter().zip(asked.entries).enumerate() {
            if at > 0 {
                key.push(b',');
            }
            write_counted(shared.as_ref(), entry, self.shared.len() == 1, key);
        }
    }
}

/// Writes an entry, or the stars that count it together with others.
fn write_counted(shared: Option<&Pattern>, entry: &Field<'_>, is_alone: bool, key: &mut Vec<u8>) {
    let start = key.len();
    write_entry(entry, key);
    if let Some(stars) = shared.filter(|stars| stars.matches(&key[start..])) {
        key.truncate(start);
        key.extend_from_slice(stars.as_str().as_bytes());
    }
    if !is_alone && memchr::memchr2(b',', b'\\', &key[start..]).is_some() {
        let plain = key.split_off(start);
        escape(&plain, key);
    }
}

/// Writes a value, or as much of an IPv6 address as is counted. No address has a comma or a backslash in it.
fn write_value(value: &[u8], ipv6_prefix: Option<u8>, is_alone: bool, key: &mut Vec<u8>) {
    match ipv6_prefix.and_then(|bits| network::counted(value, bits)) {
        Some(net) => key.extend_from_slice(network::show(&net).as_bytes()),
        None if is_alone => key.extend_from_slice(value),
        None => escape(value, key),
    }
}

fn escape(value: &[u8], key: &mut Vec<u8>) {
    let mut rest = value;
    while let Some(at) = memchr::memchr2(b',', b'\\', rest) {
        key.extend_from_slice(&rest[..at]);
        key.extend_from_slice(&[b'\\', rest[at]]);
        rest = &rest[at + 1..];
    }
    key.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::DraftLimit;
    use crate::entries::Entry;
    use crate::key_part::KeyPart;
    use crate::matcher::FieldId;
    use proptest::prelude::*;
    use tollgate_core::Quota;

    fn key(values: &[Vec<u8>]) -> Vec<u8> {
        let mut draft = DraftLimit::new("a", Quota::per_second(1));
        draft.key = (0..values.len()).map(|index| KeyPart::field(index.to_string())).collect();
        let limit = Limit::new(draft, 0, |name| FieldId(name.parse().unwrap()));
        let fields =
            values.iter().enumerate().map(|(index, value)| (FieldId(index as u32), value.as_slice()));
        let (fields, mut key) = (fields.collect::<Vec<_>>(), Vec::new());
        limit.write_key(&Asked { fields: &fields, entries: &[] }, &[], &mut key);
        key
    }

    fn key_of_entries(entries: &[Entry], fields: &[Field<'_>]) -> String {
        let mut draft = DraftLimit::new("a", Quota::per_second(1));
        draft.envoy.entries = entries.to_vec();
        let mut key = Vec::new();
        Limit::new(draft, 0, |_| FieldId(0)).write_key(
            &Asked { fields: &[], entries: fields },
            &[],
            &mut key,
        );
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn entries_are_counted_as_they_are_or_by_their_stars() {
        let mut shared = Entry::new("user_a*");
        shared.shared = true;
        let (path, user) = (("path", &b"/a,b"[..]), ("user", &b"ann"[..]));
        assert_eq!(key_of_entries(&[Entry::new("path")], &[path]), "path_/a,b");
        assert_eq!(
            key_of_entries(&[Entry::new("path"), Entry::new("user")], &[path, user]),
            "path_/a\\,b,user_ann"
        );
        assert_eq!(
            key_of_entries(&[Entry::new("path"), shared.clone()], &[path, user]),
            "path_/a\\,b,user_a*"
        );
        // Found by its key alone, not by its stars.
        assert_eq!(key_of_entries(&[shared], &[("user_a*", b"x")]), "user_a*");
        let mut bounded = Entry::new("u*r");
        bounded.shared = true;
        assert_eq!(key_of_entries(&[bounded], &[("u*r", b"x")]), "u*r_x");
    }

    #[test]
    fn keys_are_readable() {
        assert_eq!(key(&[]), b"");
        assert_eq!(key(&[b"a,b".to_vec()]), b"a,b");
        assert_eq!(key(&[b"acme".to_vec(), b"/x".to_vec()]), b"acme,/x");
        assert_eq!(key(&[b"a,b".to_vec(), b"\\".to_vec()]), b"a\\,b,\\\\");
    }

    proptest! {
        #[test]
        fn different_values_never_make_one_key(
            left in prop::collection::vec("[a,\\\\]{0,3}", 3),
            right in prop::collection::vec("[a,\\\\]{0,3}", 3),
        ) {
            let bytes = |values: &Vec<String>| values.iter().map(|value| value.clone().into_bytes()).collect::<Vec<_>>();
            prop_assert_eq!(key(&bytes(&left)) == key(&bytes(&right)), left == right);
        }
    }
}
