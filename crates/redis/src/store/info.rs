//! What `INFO` says.

use redis::Value;

/// The sum of a field over all servers that answered; `None` if nobody mentions it.
pub(super) fn sum(info: &Value, field: &str) -> Option<u64> {
    let of_all = |values: &mut dyn Iterator<Item = &Value>| {
        values.filter_map(|value| sum(value, field)).reduce(u64::saturating_add)
    };
    match info {
        Value::BulkString(bytes) => in_text(&String::from_utf8_lossy(bytes), field),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => in_text(text, field),
        Value::Array(values) => of_all(&mut values.iter()),
        Value::Map(pairs) => of_all(&mut pairs.iter().map(|(_, value)| value)),
        _ => None,
    }
}

fn in_text(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_up_over_servers() {
        let one = Value::BulkString(b"# Memory\r\nused_memory_peak:9\r\nused_memory:5\r\n".to_vec());
        let two = Value::BulkString(b"used_memory:7\r\n".to_vec());
        assert_eq!(sum(&one, "used_memory"), Some(5));
        let name = || Value::SimpleString("host:1".to_owned());
        assert_eq!(sum(&Value::Map(vec![(name(), one), (name(), two)]), "used_memory"), Some(12));
        assert_eq!(sum(&Value::Nil, "used_memory"), None);
    }
}
