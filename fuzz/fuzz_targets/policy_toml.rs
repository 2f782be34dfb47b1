//! Whatever a file of ours contains, it is answered: by limits, or by mistakes that each have a place in it. What was read and
//! written again is the same, and every limit can be asked and explained.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_policy::{Descriptor, Draft, Policy, Problems, Scratch, Source, read};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let draft = match read(&Source::new("p.toml", text)) {
        Ok(draft) => draft,
        Err(problems) => return are_told(&problems, text),
    };
    let policy = match Policy::compile(draft.clone()) {
        Ok(policy) => policy,
        Err(problems) => return are_told(&problems, text),
    };
    assert_eq!(again(&draft), draft, "what was written is what was read");
    let domains: Vec<&str> = policy.domains().collect();
    for domain in domains.into_iter().take(4) {
        for fields in [&[][..], &[("ip", "10.0.0.7"), ("user", "a"), ("path", "/x/y")]] {
            let mut descriptor = Descriptor::in_domain(domain);
            fields.iter().for_each(|(name, value)| descriptor.push(name, value.as_bytes()));
            let found = policy.matching(&descriptor, &mut Scratch::new()).iter().count();
            assert!(found <= policy.limits().len());
            assert!(!policy.explain(&descriptor).to_string().is_empty());
        }
    }
});

/// Read from what it is written as.
fn again(draft: &Draft) -> Draft {
    read(&Source::new("p.toml", draft.to_string())).expect("what was read can be written and read again")
}

/// Every mistake says where it is and what is wrong.
fn are_told(problems: &Problems, text: &str) {
    let lines = text.split('\n').count();
    assert!(problems.count() > 0);
    for problem in problems.iter() {
        assert!(!problem.message.is_empty() && problem.line <= lines, "{problem}");
    }
    let told = problems.to_string();
    assert!(!told.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')), "{told:?}");
}
