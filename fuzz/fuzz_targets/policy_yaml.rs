//! Whatever a file for Envoy or limitador contains, it is answered; and what can be read decides as what it is converted to.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_policy::{Descriptor, Policy, Scratch, Source, convert, read};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let source = Source::new("p.yaml", text);
    let Ok(draft) = read(&source) else { return };
    if draft.limits.is_empty() {
        return;
    }
    let domains: Vec<String> = draft.limits.iter().map(|limit| limit.domain.clone()).collect();
    let original = Policy::compile(draft.clone()).expect("what was read is right");
    let converted = convert(draft).expect("what is right can be converted");
    let converted = Policy::parse("p.toml", converted).expect("what was converted can be read");
    for domain in domains.iter().take(4) {
        for entries in [&[("a", "x")][..], &[("path", "/x"), ("user", "y")]] {
            let mut descriptor = Descriptor::in_domain(domain);
            entries.iter().for_each(|(key, value)| descriptor.push(key, value.as_bytes()));
            assert_eq!(found(&original, &descriptor), found(&converted, &descriptor));
        }
    }
});

fn found(policy: &Policy, descriptor: &Descriptor<'_>) -> Vec<(Vec<u8>, Vec<tollgate_core::Quota>)> {
    let mut scratch = Scratch::new();
    let matches = policy.matching(descriptor, &mut scratch);
    matches.iter().map(|found| (found.key().to_vec(), found.rates().quotas().to_vec())).collect()
}
