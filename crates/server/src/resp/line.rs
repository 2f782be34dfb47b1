//! Commands as people type them: words with spaces between them, in quotes where they need to be.

use super::request::Span;

/// A quote does not end, or something follows right behind one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unbalanced;

/// Splits a line into words, as Redis does: in double quotes `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH` stand for a byte, and a
/// backslash takes away the meaning of what follows; in single quotes only `\'` does.
pub(super) fn split(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), Unbalanced> {
    words.clear();
    let mut rest = trim_start(line);
    while !rest.is_empty() {
        let start = words.len();
        rest = word(rest, words)?;
        spans.push(Span { start, end: words.len() });
        rest = trim_start(rest);
    }
    Ok(())
}

fn trim_start(mut rest: &[u8]) -> &[u8] {
    while let [space, behind @ ..] = rest
        && is_space(*space)
    {
        rest = behind;
    }
    rest
}

/// Reads one word; what comes behind it.
fn word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] | [b' ' | b'\t' | b'\r' | b'\n', ..] => return Ok(rest),
            [b'"', quoted @ ..] => return double(quoted, word),
            [b'\'', quoted @ ..] => return single(quoted, word),
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        }
    }
}

fn double<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'"', behind @ ..] => return ended(behind),
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(nibble(*high) << 4 | nibble(*low));
                behind
            }
            [b'\\', escaped, behind @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        }
    }
}

fn single<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Unbalanced> {
    loop {
        rest = match rest {
            [] => return Err(Unbalanced),
            [b'\'', behind @ ..] => return ended(behind),
            [b'\\', b'\'', behind @ ..] => {
                word.push(b'\'');
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        }
    }
}

/// A quote has ended, and so must the word.
fn ended(behind: &[u8]) -> Result<&[u8], Unbalanced> {
    if behind.first().is_none_or(|byte| is_space(*byte)) { Ok(behind) } else { Err(Unbalanced) }
}

/// What may stand between words. The last two do not end a word without quotes, as in Redis.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, Unbalanced> {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut bytes, &mut spans)?;
        Ok(spans.iter().map(|span| bytes[span.start..span.end].to_vec()).collect())
    }

    #[test]
    fn words_are_split_at_spaces_and_kept_together_by_quotes() {
        for (line, expected) in [
            (&b"  ping\r"[..], &[&b"ping"[..]][..]),
            (b"a b\tc", &[b"a", b"b", b"c"]),
            (b"\x0b\x0c a\x0bb\x0c \"c\"\x0b'd'\x0ce", &[b"a\x0bb\x0c", b"c", b"d", b"e"]),
            (b"\"a b\" ''", &[b"a b", b""]),
            (b"x\"a b\"", &[b"xa b"]),
            (br#""\n\r\t\b\a\\\"\q""#, &[b"\n\r\t\x08\x07\\\"q"]),
            (br#""\x41\xfF\xg0\x4""#, &[b"A\xffxg0x4"]),
            (br"'it\'s \n'", &[br"it's \n"]),
            (b"k\xff\0", &[b"k\xff\0"]),
        ] {
            assert_eq!(words(line), Ok(expected.iter().map(|word| word.to_vec()).collect()), "{line:?}");
        }
    }

    #[test]
    fn quotes_must_end_and_end_the_word() {
        for line in [&b"\"a"[..], b"'a", b"\"a\\\"", b"\"a\"b", b"'a''b'", b"\"a\\", b"a \""] {
            assert_eq!(words(line), Err(Unbalanced), "{line:?}");
        }
    }
}
