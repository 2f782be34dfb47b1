//! Names as statsd can take them.

/// What stands before an address whose dots are replaced.
const ADDRESS: &str = "remote_address_";

/// Returns the name with the characters replaced that envoyproxy/ratelimit replaces: `:` and `|`, and the dots of an IPv4 address
/// after `remote_address_`. Other dots stay, and divide the name.
pub(super) fn sanitized(name: &str) -> String {
    let mut sanitized = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(found) = rest.find(ADDRESS) {
        let (before, after) = rest.split_at(found + ADDRESS.len());
        let (address, after) = after.split_at(ipv4_len(after));
        sanitized.push_str(before);
        sanitized.push_str(&address.replace('.', "_"));
        rest = after;
    }
    sanitized.push_str(rest);
    sanitized.replace([':', '|'], "_")
}

/// The length of the four numbers with dots between them that the text begins with; zero if it does not.
fn ipv4_len(text: &str) -> usize {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = digits(0);
    if end == 0 {
        return 0;
    }
    for _ in 0..3 {
        if !text[end..].starts_with('.') {
            return 0;
        }
        let more = digits(end + 1);
        if more == 0 {
            return 0;
        }
        end += 1 + more;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 26.2: characters are replaced as upstream replaces them.
    #[test]
    fn characters_that_statsd_cannot_take_are_replaced() {
        for (name, expected) in [
            ("web.path_/a/b", "web.path_/a/b"),
            ("web.path_a:b|c", "web.path_a_b_c"),
            ("web.remote_address_50.0.0.5", "web.remote_address_50_0_0_5"),
            ("web.masked_remote_address_10.0.0.0/8", "web.masked_remote_address_10_0_0_0/8"),
            (
                "web.remote_address_1.2.3.4.remote_address_5.6.7.8",
                "web.remote_address_1_2_3_4.remote_address_5_6_7_8",
            ),
            ("web.remote_address_1.2.3.4.5", "web.remote_address_1_2_3_4.5"),
            ("web.remote_address_2001:db8::1", "web.remote_address_2001_db8__1"),
            ("web.remote_address_1.2.3", "web.remote_address_1.2.3"),
            ("web.remote_address_1.2..3", "web.remote_address_1.2..3"),
            ("web.remote_address_", "web.remote_address_"),
            ("web.host_50.0.0.5", "web.host_50.0.0.5"),
            ("web.host_example.org", "web.host_example.org"),
        ] {
            assert_eq!(sanitized(name), expected);
        }
    }
}
