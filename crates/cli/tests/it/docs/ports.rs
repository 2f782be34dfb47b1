//! Pages name the usual ports. Each session has free ones in their place, so that pages run at the same time.

use std::collections::BTreeMap;

use tollgate_testkit::free_port;

/// The ports of `tollgate serve`: HTTP, gRPC, the admin listener and RESP.
pub(crate) const LISTENERS: [(&str, u16); 4] =
    [("http", 8080), ("grpc", 8081), ("admin", 8082), ("resp", 6380)];

/// The port of Redis.
pub(crate) const REDIS: u16 = 6379;

/// Ports whose numbers are also amounts, such as 10000 requests: these are ports only after an address or a word for a port.
const AMBIGUOUS: [u16; 2] = [9000, 10_000];

/// Whether pages use this number for a port.
fn is_documented(number: u16) -> bool {
    matches!(number, 6070 | 6379..=6390 | 8080..=8099 | 8443 | 9000..=9009 | 9901 | 10_000 | 26_379..=26_381)
}

/// The ports of a session.
#[derive(Debug)]
pub(crate) struct Ports {
    /// For each port on the page, the one in use.
    used: BTreeMap<u16, u16>,
}

impl Ports {
    /// Finds a free port for each port that a page names, and for those of the servers.
    pub(crate) fn of(page: &str) -> Self {
        let always = LISTENERS.iter().map(|(_, port)| *port).chain([REDIS]);
        let named = numbers(page).filter(|found| is_documented(found.value)).map(|found| found.value);
        let mut used = BTreeMap::new();
        for port in always.chain(named) {
            used.entry(port).or_insert_with(free_port);
        }
        Self { used }
    }

    /// The port in use for one on the page.
    pub(crate) fn in_use(&self, port: u16) -> u16 {
        self.used[&port]
    }

    /// Text of the page with the ports in use.
    pub(crate) fn to_session(&self, text: &str) -> String {
        replace(text, |found| {
            let is_port = !AMBIGUOUS.contains(&found.value) || is_port(found.before, found.after);
            if is_port { self.used.get(&found.value).copied() } else { None }
        })
    }

    /// Output of the session with the ports of the page.
    pub(crate) fn to_page(&self, text: &str) -> String {
        replace(text, |found| self.used.iter().find(|(_, used)| **used == found.value).map(|(port, _)| *port))
    }

    /// The ports in use that a text of the session names.
    pub(crate) fn named_in(&self, text: &str) -> Vec<u16> {
        numbers(text)
            .map(|found| found.value)
            .filter(|number| self.used.values().any(|used| used == number))
            .collect()
    }
}

/// A number in a text.
struct Number<'a> {
    start: usize,
    end: usize,
    value: u16,
    before: &'a str,
    after: &'a str,
}

/// The numbers that stand alone: not within a word, another number or a version.
fn numbers(text: &str) -> impl Iterator<Item = Number<'_>> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let starts = text.char_indices().filter(move |(at, letter)| {
        let before = text[..*at].chars().next_back();
        letter.is_ascii_digit() && !before.is_some_and(|before| is_word(before) || before == '.')
    });
    starts.filter_map(move |(start, _)| {
        let length =
            text[start..].find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len() - start);
        let (before, after) = (&text[..start], &text[start + length..]);
        let mut next = after.chars();
        let is_alone = match next.next() {
            Some('.') => !next.next().is_some_and(|letter| letter.is_ascii_digit()),
            Some(letter) => !is_word(letter),
            None => true,
        };
        let value = text[start..start + length].parse().ok().filter(|_| is_alone)?;
        Some(Number { start, end: start + length, value, before, after })
    })
}

/// Whether a number after this text, and before that, is a port.
fn is_port(before: &str, after: &str) -> bool {
    if let Some(host) = before.strip_suffix(':') {
        let is_quoted = host.ends_with('"') && after.starts_with('"');
        if is_quoted || host.ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == ']') {
            return true;
        }
    }
    let words = before.trim_end_matches([' ', '=', ':', '"', '\'', '(', ',']).to_ascii_lowercase();
    ["port", "port_value", "listen", "server", "-p", "127.0.0.1", "localhost"]
        .iter()
        .any(|word| words.ends_with(word))
}

fn replace(text: &str, port: impl Fn(&Number<'_>) -> Option<u16>) -> String {
    let (mut replaced, mut end) = (String::new(), 0);
    for found in numbers(text) {
        if let Some(port) = port(&found) {
            replaced += &text[end..found.start];
            replaced += &port.to_string();
            end = found.end;
        }
    }
    replaced + &text[end..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> Ports {
        Ports { used: [(6380, 20_001), (8080, 20_002), (9000, 20_003), (10_000, 20_004)].into() }
    }

    #[test]
    fn ports_of_the_page_are_replaced_and_put_back() {
        let page =
            "curl http://127.0.0.1:8080/x; redis-cli -p 6380 8080; listen(9000) :10000x localhost:10000";
        let session =
            "curl http://127.0.0.1:20002/x; redis-cli -p 20001 20002; listen(20003) :10000x localhost:20004";
        assert_eq!(ports().to_session(page), session);
        assert_eq!(ports().to_page(session), page);
    }

    #[test]
    fn amounts_are_not_ports() {
        for text in [
            "rate = 10000",
            "10000/h",
            "burst: 9000",
            "{\"cost\":9000}",
            "18080",
            "a8080",
            "1.8080",
            "8080.5",
            "8080ms",
        ] {
            assert_eq!(ports().to_session(text), text);
        }
    }

    #[test]
    fn ports_stand_after_an_address_or_a_word() {
        let texts = [
            "port_value: 9000",
            "--port 9000",
            "(\"127.0.0.1\", 9000)",
            "\":9000\"",
            "web:9000",
            "PORT=9000",
            "http.server 9000",
            "\"port\":9000",
        ];
        for text in texts {
            assert_eq!(ports().to_session(text), text.replace("9000", "20003"));
        }
    }

    #[test]
    fn only_ports_of_the_page_are_found() {
        let ports = Ports::of("127.0.0.1:8090 and 1234");
        assert_eq!(ports.used.keys().copied().collect::<Vec<_>>(), [6379, 6380, 8080, 8081, 8082, 8090]);
        assert_eq!(ports.named_in(&format!("x {}", ports.in_use(8090))), [ports.in_use(8090)]);
    }
}
