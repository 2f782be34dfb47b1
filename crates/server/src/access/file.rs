//! A keyring in a file.
//!
//! ```toml
//! anonymous = ["check"]                 # whoever proves nothing; nothing unless this says otherwise
//!
//! [token.ci]
//! sha256 = "2bb80d53…"                  # of the token, so that the file is no secret; or: secret = "…"
//! scopes = ["check", "settle"]
//!
//! [certificate.gateway]
//! dns = "gateway.internal"              # or, without it, any certificate that is trusted
//! scopes = ["check"]
//! ```

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Keyring, Scope, Scopes};

/// An error that a keys file could not be read.
#[derive(Debug)]
pub struct KeyringError(String);

impl Keyring {
    /// Reads a keyring from a file.
    ///
    /// # Errors
    /// If it cannot be read or is invalid: each error with its place and what would be right.
    pub fn load(path: &Path) -> Result<Self, KeyringError> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| KeyringError(format!("{name}: {error}")))?;
        Self::parse(&text).map_err(|KeyringError(mistakes)| {
            let mistakes: Vec<String> = mistakes.lines().map(|mistake| format!("{name}:{mistake}")).collect();
            KeyringError(mistakes.join("\n"))
        })
    }

    /// Reads a keyring from text.
    ///
    /// # Errors
    /// If something is wrong with it.
    ///
    /// # Examples
    /// ```
    /// use tollgate_server::{Keyring, Scope};
    ///
    /// let text = "[token.ci]\nsecret = \"a long and random text\"\nscopes = [\"check\"]\n";
    /// assert!(Keyring::parse(text)?.with_token(b"a long and random text").unwrap().has(Scope::Check));
    /// # Ok::<(), tollgate_server::KeyringError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut reader = Reader { text, keyring: Self::new(), mistakes: Vec::new() };
        let mut lines = BTreeSet::new();
        for error in errors {
            // The parser gives no place for a dotted key of too many parts.
            let start = error.span().map_or(0, |span| span.start);
            // What follows a mistake in the same line is mostly nonsense.
            if lines.insert(line_of(text, start)) {
                reader.mistake(start..start, error.message());
            }
        }
        // Of a file that is no TOML, any part may be a secret that is taken for a name.
        if reader.mistakes.is_empty() {
            reader.file(table.get_ref());
        }
        let Reader { keyring, mistakes, .. } = reader;
        if mistakes.is_empty() { Ok(keyring) } else { Err(KeyringError(mistakes.join("\n"))) }
    }
}

/// Reads a file by hand, so that all mistakes are reported, and none with a value: any of them may be a secret.
struct Reader<'t> {
    text: &'t str,
    keyring: Keyring,
    mistakes: Vec<String>,
}

type Value<'t> = Spanned<DeValue<'t>>;

impl Reader<'_> {
    fn file(&mut self, file: &DeTable<'_>) {
        for (key, value) in file {
            match key.get_ref().as_ref() {
                "anonymous" => {
                    let scopes = self.scopes("anonymous", value);
                    self.keyring.anonymous = scopes;
                }
                "token" => self.entries("token", value, Self::token),
                "certificate" => self.entries("certificate", value, Self::certificate),
                other => self.unknown(other, key, "anonymous, token or certificate"),
            }
        }
    }

    /// Reads each table of a table.
    fn entries(
        &mut self,
        kind: &str,
        value: &Value<'_>,
        read: fn(&mut Self, &str, &str, &Value<'_>, &DeTable<'_>),
    ) {
        let Some(entries) = self.table(kind, value) else { return };
        for (name, entry) in entries {
            let at = format!("{kind}.{}", name.get_ref());
            if let Some(table) = self.table(&at, entry) {
                read(self, &at, name.get_ref(), entry, table);
            }
        }
    }

    fn token(&mut self, at: &str, name: &str, entry: &Value<'_>, table: &DeTable<'_>) {
        let (mut digest, mut scopes, mut proofs) = (None, None, 0);
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "sha256" => {
                    proofs += 1;
                    let hex = self.text(&format!("{at}.sha256"), value);
                    digest = hex.and_then(|hex| {
                        self.or_mistake(from_hex(hex), value, at, "sha256 must be 64 hexadecimal digits")
                    });
                }
                "secret" => {
                    proofs += 1;
                    let secret = self.text(&format!("{at}.secret"), value);
                    digest = secret.and_then(|secret| {
                        let digest = (secret.len() >= SHORTEST).then(|| Sha256::digest(secret).into());
                        self.or_mistake(digest, value, at, "secret must have at least 16 characters")
                    });
                }
                "scopes" => scopes = Some(self.scopes(at, value)),
                other => self.unknown(&format!("{at}.{other}"), key, "sha256, secret or scopes"),
            }
        }
        if proofs != 1 {
            self.mistake(entry.span(), &format!("{at}: set either sha256 or secret"));
        }
        let scopes = self.or_mistake(scopes, entry, at, "set scopes, such as scopes = [\"check\"]");
        if let (Some(digest), Some(scopes)) = (digest, scopes) {
            self.keyring = std::mem::take(&mut self.keyring).hashed_token(name.to_owned(), digest, scopes);
        }
    }

    fn certificate(&mut self, at: &str, name: &str, entry: &Value<'_>, table: &DeTable<'_>) {
        let (mut dns, mut scopes) = (None, None);
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "dns" => dns = self.text(&format!("{at}.dns"), value),
                "scopes" => scopes = Some(self.scopes(at, value)),
                other => self.unknown(&format!("{at}.{other}"), key, "dns or scopes"),
            }
        }
        if let Some(scopes) = self.or_mistake(scopes, entry, at, "set scopes, such as scopes = [\"check\"]") {
            self.keyring = std::mem::take(&mut self.keyring).named_certificate(name.to_owned(), dns, scopes);
        }
    }

    fn scopes(&mut self, at: &str, value: &Value<'_>) -> Scopes {
        let Some(list) = value.get_ref().as_array() else {
            self.mistake(value.span(), &format!("{at}: scopes must be a list, such as [\"check\"]"));
            return Scopes::NONE;
        };
        let mut scopes = Vec::new();
        for item in list {
            let scope = item.get_ref().as_str().and_then(|name| Scope::from_str(name).ok());
            let known = format!("a scope must be one of {}", Scope::ALL.map(Scope::name).join(", "));
            scopes.extend(self.or_mistake(scope, item, at, &known));
        }
        Scopes::of(&scopes)
    }

    fn text<'v>(&mut self, at: &str, value: &'v Value<'_>) -> Option<&'v str> {
        self.or_mistake(value.get_ref().as_str(), value, at, "expected text in quotation marks")
    }

    fn table<'v, 't>(&mut self, at: &str, value: &'v Value<'t>) -> Option<&'v DeTable<'t>> {
        self.or_mistake(value.get_ref().as_table(), value, at, "expected a table, such as [token.NAME]")
    }

    fn unknown(&mut self, name: &str, key: &Spanned<impl Sized>, known: &str) {
        self.mistake(key.span(), &format!("unknown key {name:?}; expected {known}"));
    }

    fn or_mistake<T>(&mut self, value: Option<T>, found: &Value<'_>, at: &str, right: &str) -> Option<T> {
        if value.is_none() {
            self.mistake(found.span(), &format!("{at}: {right}"));
        }
        value
    }

    fn mistake(&mut self, span: Range<usize>, message: &str) {
        // A name may contain control characters, which a terminal would obey.
        let message = message.replace(char::is_control, "\u{fffd}");
        self.mistakes.push(format!("{}: {message}", place(self.text, span.start)));
    }
}

/// The line and the column of a byte, both counted from one.
fn place(text: &str, at: usize) -> String {
    let line = text.get(..at).unwrap_or(text).rsplit('\n').next().unwrap_or_default();
    format!("{}:{}", line_of(text, at), line.chars().count() + 1)
}

/// The line of a byte, counted from one.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

/// A shorter one could be guessed.
const SHORTEST: usize = 16;

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8; // two digits are below 256
    }
    Some(bytes)
}

impl fmt::Display for KeyringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for KeyringError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 of "abc", from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_file_says_who_may_do_what() {
        let text = format!(
            "anonymous = [\"check\"]\n[token.a]\nsha256 = \"{ABC}\"\nscopes = [\"settle\"]\n\
             [certificate.g]\ndns = \"Gate.Internal\"\nscopes = [\"check\"]\n[certificate.any]\nscopes = [\"settle\"]\n"
        );
        let keyring = Keyring::parse(&text).unwrap();
        assert_eq!(keyring.with_token(b"abc"), Some(Scopes::of(&[Scope::Settle])));
        assert_eq!(keyring.with_token(b"abd"), None);
        assert_eq!(keyring.with_token(b""), None);
        assert!(keyring.is_open(Scope::Check) && !keyring.is_open(Scope::Settle));
        assert_eq!(keyring.with_certificate(["gate.INTERNAL"]), Scopes::of(&[Scope::Check, Scope::Settle]));
        assert_eq!(keyring.with_certificate(["other.internal"]), Scopes::of(&[Scope::Settle]));
    }

    #[test]
    fn parse_reports_every_mistake_with_its_place() {
        let text = "anonymous = [\"chek\"]\n[token.a]\nscopes = []\n[token.b]\nsha256 = \"00\"\nscopes = []\n\
                    [token.c]\nsecret = \"short\"\nscopes = [\"root\"]\n[token.d]\nsecret = \"0123456789abcdef\"\n\
                    [certificate.e]\nname = 1\nscopes = \"check\"\n[tokens]\n";
        let told = Keyring::parse(text).unwrap_err().to_string();
        for expected in [
            "1:14: anonymous: a scope must be one of check, hold, settle, admin, metrics",
            "2:1: token.a: set either sha256 or secret",
            "5:10: token.b: sha256 must be 64 hexadecimal digits",
            "8:10: token.c: secret must have at least 16 characters",
            "9:11: token.c: a scope must be one of check, hold, settle, admin, metrics",
            "10:1: token.d: set scopes, such as scopes = [\"check\"]",
            "13:1: unknown key \"certificate.e.name\"; expected dns or scopes",
            "14:10: certificate.e: scopes must be a list, such as [\"check\"]",
            "15:2: unknown key \"tokens\"; expected anonymous, token or certificate",
        ] {
            assert!(told.lines().any(|line| line == expected), "{expected}\n\nis not in\n\n{told}");
        }
        assert_eq!(told.lines().count(), 9, "{told}");
    }

    /// Answers, item 29: mistakes of TOML are reported all at once too, each with its line, after the name of the file.
    #[test]
    fn load_reports_every_syntax_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        let name = path.display();
        std::fs::write(
            &path,
            "[token.a]\nsecret = x\nscopes = []\n[token.b]\nsecret = \"0123456789abcdef\"\nscopes = y\n",
        )
        .unwrap();
        let told = Keyring::load(&path).unwrap_err().to_string();
        let starts: Vec<String> = [2, 6].iter().map(|line| format!("{name}:{line}:")).collect();
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.lines().zip(&starts).all(|(line, start)| line.starts_with(start)), "{told}");
        std::fs::write(&path, "[token.a]\nscopes = []\n[tokens]\n").unwrap();
        let told = Keyring::load(&path).unwrap_err().to_string();
        assert!(
            told.lines().count() == 2 && told.lines().all(|line| line.starts_with(&format!("{name}:"))),
            "{told}"
        );
    }

    /// Guards, item 4: whatever is wrong with a file, its secrets are not part of the message.
    #[test]
    fn parse_never_shows_a_secret() {
        const SECRET: &str = "hunter2hunter2hunter2";
        for text in [
            format!("[token.a]\nsecret = \"{SECRET}\nscopes = [\"check\"]\n"),
            format!("[token.a]\nsecret = {SECRET}\n"),
            format!("[token.a]\nsecret = [\"{SECRET}\"]\n"),
            format!("[token.a]\nsecret = '{SECRET}' '{SECRET}'\n"),
            format!("[token]\na = \"{SECRET}\"\n"),
            format!("token = \"{SECRET}\"\n"),
            format!("anonymous = [\"{SECRET}\"]\n"),
            format!("[token.a]\nsha256 = \"{SECRET}\"\nscopes = \"{SECRET}\"\n"),
            format!("[token.a]\nsecret = \"{SECRET}\"\nsecret = \"{SECRET}\"\n"),
        ] {
            let told = format!("{0} {0:?}", Keyring::parse(&text).unwrap_err());
            assert!(!told.contains("hunter2"), "{text}\n{told}");
        }
    }

    #[test]
    fn parse_gives_every_syntax_error_a_place() {
        let nested = "a.".repeat(1_000) + "b = 1\n";
        for (text, place) in [("[token.a]\nsecret = x\n", "2:10: "), (nested.as_str(), "1:1: ")] {
            let message = Keyring::parse(text).unwrap_err().to_string();
            assert!(message.starts_with(place) && message.len() > place.len(), "{message}");
        }
    }

    #[test]
    fn parse_shows_no_control_characters() {
        let text = "[token.\"a\\nb\"]\nsecret = 1\n[certificate.\"\\u001b[2J\"]\ndns = \"g\"\n";
        let message = Keyring::parse(text).unwrap_err().to_string();
        for expected in [
            "2:10: token.a\u{fffd}b.secret: expected text in quotation marks",
            "3:1: certificate.\u{fffd}[2J: set scopes, such as scopes = [\"check\"]",
        ] {
            assert!(message.lines().any(|line| line == expected), "{expected}\n\nis not in\n\n{message}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let keyring = Keyring::new().token("ci", b"abc", Scopes::ALL);
        let shown = format!("{keyring:?}");
        assert!(shown.contains("ci") && !shown.contains("abc") && !shown.contains("186"), "{shown}");
    }
}
