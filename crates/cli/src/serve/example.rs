//! A call that one of the limits applies to, to show what happens.

use std::borrow::Cow;

use tollgate_policy::{DEFAULT_DOMAIN, Descriptor, KeyPart, Limit, Policy, Scratch};

/// The client address of examples. It is easier to type than one reserved for documentation.
const SOMEBODY: &str = "10.0.0.7";

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Example {
    domain: String,
    fields: Vec<(String, &'static str)>,
}

impl Example {
    /// One that a limit of the policy applies to, if that is easily found; else one that none does.
    pub(super) fn of(policy: &Policy) -> Self {
        let first = Self { domain: DEFAULT_DOMAIN.to_owned(), fields: vec![("ip".to_owned(), SOMEBODY)] };
        let others = policy.limits().iter().map(Self::for_limit);
        let mut all = std::iter::once(first.clone()).chain(others);
        all.find(|example| example.applies(policy)).unwrap_or(first)
    }

    /// One that the limit applies to, unless it asks for more than fields that are there. What an entry says is as good as a key.
    fn for_limit(limit: &Limit) -> Self {
        let texts = limit.entries().iter().map(|entry| entry.text.as_str());
        let fields = limit.key().iter().filter_map(KeyPart::field_name);
        let names = fields.chain(texts).map(|text| text.replace('*', "x"));
        Self { domain: limit.domain().to_owned(), fields: names.map(|name| (name, SOMEBODY)).collect() }
    }

    fn applies(&self, policy: &Policy) -> bool {
        let mut descriptor = Descriptor::in_domain(&self.domain);
        for (name, value) in &self.fields {
            descriptor.push(name, value.as_bytes());
        }
        policy.matching(&descriptor, &mut Scratch::new()).get(0).is_some()
    }

    /// As the body of a check, in quotes for a shell.
    pub(super) fn json(&self) -> String {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let fields: Vec<String> =
            self.fields.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect();
        let domain = self.other_domain().map(|domain| format!("\"domain\": {}, ", text(domain)));
        let domain = domain.unwrap_or_default();
        quoted(&format!("{{{domain}\"descriptor\": {{{}}}}}", fields.join(", "))).into_owned()
    }

    /// As the arguments of `TG.CHECK`.
    pub(super) fn words(&self) -> String {
        let domain = self.other_domain().map(|domain| ["DOMAIN", domain]);
        let fields = self.fields.iter().flat_map(|(name, value)| [name.as_str(), value]);
        let words: Vec<Cow<'_, str>> = domain.into_iter().flatten().chain(fields).map(quoted).collect();
        words.join(" ")
    }

    fn other_domain(&self) -> Option<&str> {
        Some(&*self.domain).filter(|domain| *domain != DEFAULT_DOMAIN)
    }
}

/// As one word for a shell.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(path: &str, text: &str) -> Example {
        Example::of(&Policy::parse(path, text).unwrap())
    }

    #[test]
    fn a_limit_applies_to_the_example() {
        let ip = example("a.toml", "[limit.a]\nkey = \"ip\"\nrate = \"1/s\"\n");
        assert_eq!(
            (ip.json().as_str(), ip.words().as_str()),
            (r#"'{"descriptor": {"ip": "10.0.0.7"}}'"#, "ip 10.0.0.7")
        );
        let user = example(
            "a.toml",
            "[limit.a]\nmatch.x = \"y\"\nkey = \"ip\"\nrate = \"1/s\"\n[limit.b]\ndomain = \"it's\"\nkey = \"user\"\nrate = \"1/s\"\n",
        );
        assert_eq!(user.words(), r"DOMAIN 'it'\''s' user 10.0.0.7");
        assert_eq!(user.json(), r#"'{"domain": "it'\''s", "descriptor": {"user": "10.0.0.7"}}'"#);
        let envoy = "domain: web\ndescriptors:\n- key: path\n  value: /a*\n  descriptors:\n  - {key: b, value: c, rate_limit: {unit: day, requests_per_unit: 1}}\n";
        assert_eq!(example("a.yaml", envoy).words(), "DOMAIN web path_/ax 10.0.0.7 b_c 10.0.0.7");
    }

    #[test]
    fn where_none_is_found_it_is_the_usual_one() {
        let none = example("a.toml", "[limit.a]\nmatch.x = \"y\"\nrate = \"1/s\"\n");
        assert_eq!(none.words(), "ip 10.0.0.7");
    }
}
