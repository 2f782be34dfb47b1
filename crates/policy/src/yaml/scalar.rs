//! What a plain word of YAML means. The files that we read are written for YAML 1.1, where `yes` is true.

/// A text, a number, a truth, or nothing: which of them depends on what is asked for.
#[derive(Debug)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// Whether it stands there without quotes, so that it may be something other than text.
    is_plain: bool,
}

const TRUE: [&str; 4] = ["true", "yes", "on", "y"];
const FALSE: [&str; 4] = ["false", "no", "off", "n"];

impl Scalar {
    pub(crate) fn new(text: String, is_plain: bool) -> Self {
        Self { text, is_plain }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.is_plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }

    pub(crate) fn is_merge(&self) -> bool {
        self.is_plain && self.text == "<<"
    }

    pub(crate) fn truth(&self) -> Option<bool> {
        let is_one_of = |words: [&str; 4]| words.iter().any(|word| self.is_written(word));
        match (is_one_of(TRUE), is_one_of(FALSE)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// Lower case, upper case, or with a capital.
    fn is_written(&self, word: &str) -> bool {
        let is_even = |rest: &str| {
            let mut letters = rest.chars();
            letters.clone().all(|c| c.is_ascii_lowercase()) || letters.all(|c| c.is_ascii_uppercase())
        };
        let (first, rest) = self.text.split_at_checked(1).unwrap_or_default();
        let is_shouted = first.chars().all(char::is_uppercase) || rest.chars().all(char::is_lowercase);
        self.is_plain && self.text.eq_ignore_ascii_case(word) && is_even(rest) && is_shouted
    }

    /// A whole number, as far as there are numbers: whatever is larger counts as the largest.
    pub(crate) fn whole_number(&self) -> Option<i128> {
        if !self.is_plain {
            return None;
        }
        let text = self.text.replace('_', "");
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text.strip_prefix('+').unwrap_or(&text)),
        };
        let (radix, digits) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
            [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
            [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
            [b'0', _, ..] => (8, &digits[1..]),
            _ => (10, digits),
        };
        let are_digits = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        are_digits.then(|| sign * i128::from_str_radix(digits, radix).unwrap_or(i128::from(u64::MAX) + 1))
    }

    /// A number with a fraction, or none at all, such as `.inf`.
    pub(crate) fn fraction(&self) -> Option<f64> {
        if !self.is_plain || self.whole_number().is_some() {
            return None;
        }
        let unsigned = self.text.trim_start_matches(['+', '-']);
        if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
            return Some(f64::NAN);
        }
        let looks_like_one = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && unsigned.chars().any(|c| c.is_ascii_digit())
            && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
        self.text.parse().ok().filter(|_| looks_like_one)
    }

    /// What it is, in words.
    pub(crate) fn found(&self) -> String {
        if self.is_null() {
            "nothing".to_owned()
        } else if let Some(truth) = self.truth() {
            truth.to_string()
        } else if self.whole_number().is_some() || self.fraction().is_some() {
            format!("the number {}", self.text)
        } else if self.text.chars().count() > 40 {
            "a long text".to_owned()
        } else {
            format!("the text {:?}", self.text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Scalar {
        Scalar::new(text.to_owned(), true)
    }

    #[test]
    fn truths() {
        for (text, expected) in [
            ("true", Some(true)),
            ("Yes", Some(true)),
            ("ON", Some(true)),
            ("y", Some(true)),
            ("no", Some(false)),
            ("False", Some(false)),
            ("tRue", None),
            ("TRue", None),
            ("1", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(plain(text).truth(), expected, "{text}");
        }
        assert_eq!(Scalar::new("true".to_owned(), false).truth(), None);
    }

    #[test]
    fn numbers() {
        for (text, whole, is_fraction) in [
            ("10", Some(10), false),
            ("-3", Some(-3), false),
            ("1_000", Some(1000), false),
            ("0x1F", Some(31), false),
            ("0o17", Some(15), false),
            ("017", Some(15), false),
            ("0b11", Some(3), false),
            ("0", Some(0), false),
            ("99999999999999999999999999999999999999999", Some(1 << 64), false),
            ("1.5", None, true),
            ("1e3", None, true),
            (".inf", None, true),
            ("1.2.3", None, false),
            ("10.0.0.7", None, false),
            ("e", None, false),
            ("0x", None, false),
            ("", None, false),
            ("-", None, false),
        ] {
            assert_eq!(
                (plain(text).whole_number(), plain(text).fraction().is_some()),
                (whole, is_fraction),
                "{text}"
            );
        }
        assert_eq!(Scalar::new("10".to_owned(), false).whole_number(), None);
    }

    #[test]
    fn nothing() {
        assert!(plain("").is_null() && plain("~").is_null() && plain("null").is_null());
        assert!(!plain("nil").is_null() && !Scalar::new(String::new(), false).is_null());
        assert_eq!(plain("~").found(), "nothing");
        assert_eq!(plain("x").found(), "the text \"x\"");
        assert_eq!(plain("1.5").found(), "the number 1.5");
        assert_eq!(plain("off").found(), "false");
    }
}
