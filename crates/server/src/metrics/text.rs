//! The two text formats of Prometheus.

use std::fmt::Write;

/// A text format of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextFormat {
    /// `OpenMetrics` 1.0.0.
    #[default]
    OpenMetrics,
    /// The text format of Prometheus, 0.0.4.
    Plain,
}

impl TextFormat {
    /// The value of the field `content-type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The format that a client prefers by its `accept` fields: `OpenMetrics`, unless it prefers plain text.
    ///
    /// # Examples
    /// ```
    /// use tollgate_server::TextFormat;
    ///
    /// let preferred = |accept: &str| TextFormat::preferred([accept.as_bytes()]);
    /// assert_eq!(preferred("text/plain"), TextFormat::Plain);
    /// assert_eq!(preferred("text/plain;q=0.4, application/openmetrics-text;q=0.5"), TextFormat::OpenMetrics);
    /// assert_eq!(preferred("*/*"), TextFormat::OpenMetrics);
    /// ```
    pub fn preferred<'a>(accept: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let fields: Vec<&str> =
            accept.into_iter().filter_map(|field| std::str::from_utf8(field).ok()).collect();
        let ranges: Vec<(String, f32)> =
            fields.iter().flat_map(|field| field.split(',')).map(range).collect();
        let weight = |names: [&str; 3]| {
            let named = |name: &&str| ranges.iter().find(|(range, _)| range == name);
            names.iter().find_map(named).map_or(0.0, |(_, weight)| *weight)
        };
        let plain = weight(["text/plain", "text/*", "*/*"]);
        let open = weight(["application/openmetrics-text", "application/*", "*/*"]);
        if plain > open { Self::Plain } else { Self::OpenMetrics }
    }

    /// Turns a text in the format `OpenMetrics` into this one.
    pub(super) fn of_open_metrics(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Plain => plain(&text),
        }
    }
}

/// A media range and its weight, as RFC 9110 has it, section 12.5.1.
fn range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
}

/// In the older format a family is called like its samples, and there is neither the type `info` nor a mark at the end.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                let _ = writeln!(plain, "# HELP {name}{suffix} {help}"); // a string takes everything
            }
            let _ = writeln!(plain, "# TYPE {name}{suffix} {kind}");
        } else if line != "# EOF" {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_families_like_their_samples() {
        let open = "# HELP calls All calls.\n# TYPE calls counter\ncalls_total 1\n\
                    # HELP build What runs.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP keys Keys.\n# TYPE keys gauge\nkeys 2\n# EOF\n";
        assert_eq!(
            plain(open),
            "# HELP calls_total All calls.\n# TYPE calls_total counter\ncalls_total 1\n\
             # HELP build_info What runs.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
             # HELP keys Keys.\n# TYPE keys gauge\nkeys 2\n"
        );
    }

    #[test]
    fn preferred_weighs_what_a_client_accepts() {
        let preferred = |accept: &str| TextFormat::preferred([accept.as_bytes()]);
        for plain in
            ["text/plain", "TEXT/plain; version=0.0.4", "application/openmetrics-text;q=0.1,text/*;q=0.2"]
        {
            assert_eq!(preferred(plain), TextFormat::Plain, "{plain}");
        }
        for open in [
            "",
            "*/*",
            "text/html",
            "text/plain;q=0",
            "text/plain;q=odd",
            "application/json, text/plain;q=0.3, */*",
        ] {
            assert_eq!(preferred(open), TextFormat::OpenMetrics, "{open}");
        }
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(preferred(prometheus), TextFormat::OpenMetrics);
    }
}
