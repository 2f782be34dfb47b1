//! Expressions that need no interpreter: a field, and a field compared with a text.

/// `descriptors[0].plan == 'gold'`, or the other way round: the field and the text.
pub(super) fn condition(text: &str) -> Option<(String, String)> {
    let (left, right) = text.split_once("==")?;
    let (left, right) = (left.trim(), right.trim());
    let compare = |field: &str, value: &str| Some((variable(field)?, literal(value)?));
    compare(left, right).or_else(|| compare(right, left))
}

/// `descriptors[0].plan` or `descriptors[0]['plan']`: the field.
pub(super) fn variable(text: &str) -> Option<String> {
    let rest = text.trim().strip_prefix("descriptors")?.trim_start();
    let rest = rest.strip_prefix('[')?.trim_start().strip_prefix('0')?.trim_start();
    let rest = rest.strip_prefix(']')?.trim_start();
    if let Some(name) = rest.strip_prefix('.') {
        let name = name.trim();
        return is_word(name).then(|| name.to_owned());
    }
    literal(rest.strip_prefix('[')?.strip_suffix(']')?.trim()).filter(|name| !name.is_empty())
}

/// Returns how a condition as of before limitador 2 is written now: `req.method == 'POST'`, `req.method != 'POST'`,
/// `'POST' == req.method`, or `req.method == POST`.
pub(super) fn old_condition(text: &str) -> Option<String> {
    ["==", "!="].into_iter().find_map(|operator| {
        let (left, right) = text.split_once(operator)?;
        let (left, right) = (left.trim(), right.trim());
        let (field, value) = match old_variable(left) {
            Some(field) => (field, literal(right).or_else(|| bare(right))?),
            None => (old_variable(right)?, literal(left)?),
        };
        Some(format!("{field} {operator} '{value}'"))
    })
}

/// A text without quotes, as it could be written before limitador 1.
fn bare(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains(['\'', '"', '&', '|', '\\'])).then(|| text.to_owned())
}

/// Returns how a variable as of before limitador 2, such as `req.method`, is written now. Kuadrant wrote fields called
/// `limit.NAME__HASH`, which are none of `limit`.
pub(super) fn old_variable(text: &str) -> Option<String> {
    let name = text.trim();
    let is_path = name.split('.').all(is_word);
    let is_known = match name.split('.').next()? {
        "descriptors" | "true" | "false" | "null" => true,
        "limit" => matches!(name, "limit" | "limit.name" | "limit.id"),
        _ => false,
    };
    (is_path && !is_known).then(|| format!("descriptors[0]['{name}']"))
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A text in quotes in which nothing is escaped.
fn literal(text: &str) -> Option<String> {
    let mut quotes = text.chars();
    let quote = quotes.next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let inner = quotes.as_str().strip_suffix(quote)?;
    (!inner.contains([quote, '\\', '\n', '\r'])).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_compared_with_texts() {
        let pair = |field: &str, value: &str| Some((field.to_owned(), value.to_owned()));
        assert_eq!(condition("descriptors[0].plan == 'gold'"), pair("plan", "gold"));
        assert_eq!(condition("descriptors[0]['req.method']==\"POST\""), pair("req.method", "POST"));
        assert_eq!(condition(" 'a' == descriptors[ 0 ].b "), pair("b", "a"));
        assert_eq!(condition("descriptors[0].a == 'x == y'"), pair("a", "x == y"));
        for other in [
            "descriptors[1].a == 'x'",
            "descriptors[0].a != 'x'",
            "descriptors[0].a == 'x' && true",
            "descriptors[0].a == 'x' || descriptors[0].b == 'y'",
            r"descriptors[0].a == 'x\n'",
            "descriptors[0].a == 1",
            "descriptors[0].a.b == 'x'",
            "descriptors[0].a == descriptors[0].b",
            "descriptors[0].a == r'x'",
            "descriptors[0][''] == 'x'",
            "descriptors[0].a == '''x'''",
            "limit.name == 'x'",
            "",
        ] {
            assert_eq!(condition(other), None, "{other}");
        }
    }

    #[test]
    fn fields_alone() {
        assert_eq!(variable("descriptors[0].user_id").as_deref(), Some("user_id"));
        assert_eq!(variable("descriptors[0]['user.id']").as_deref(), Some("user.id"));
        for other in
            ["descriptors[0]", "descriptors[0].a.b", "descriptors[0].a + 'x'", "descriptors[1].a", "user", ""]
        {
            assert_eq!(variable(other), None, "{other}");
        }
    }

    #[test]
    fn how_it_was_written_before() {
        assert_eq!(
            old_condition("req.method == 'POST'").as_deref(),
            Some("descriptors[0]['req.method'] == 'POST'")
        );
        assert_eq!(old_condition("x == 5").as_deref(), Some("descriptors[0]['x'] == '5'"));
        assert_eq!(
            old_condition("req.method != \"GET\"").as_deref(),
            Some("descriptors[0]['req.method'] != 'GET'")
        );
        assert_eq!(old_condition("'yes' == get_toy").as_deref(), Some("descriptors[0]['get_toy'] == 'yes'"));
        assert_eq!(
            old_condition("limit.get_toys__3fe1a2 == \"1\"").as_deref(),
            Some("descriptors[0]['limit.get_toys__3fe1a2'] == '1'")
        );
        assert_eq!(old_condition("limit.id != null"), None);
        assert_eq!(old_condition("descriptors[0].a == descriptors[0].b"), None);
        assert_eq!(old_condition("descriptors[0].a == 'x'"), None);
        assert_eq!(old_condition("limit.name == 'x'"), None);
        assert_eq!(old_variable("user_id").as_deref(), Some("descriptors[0]['user_id']"));
        assert_eq!(old_variable("descriptors[0].user_id"), None);
        assert_eq!(old_variable("'constant'"), None);
        assert_eq!(old_variable("true"), None);
    }
}
