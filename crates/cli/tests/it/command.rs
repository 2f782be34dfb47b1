//! Everything but `tollgate serve`.

use std::process::{Command, Stdio};

use crate::support::{policy, run, testdata, tollgate};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn path(name: &str) -> String {
    testdata(name).to_str().unwrap().to_owned()
}

#[test]
fn good_policies_are_said_to_be_good() {
    let files = [path("policies/good/every-word.toml"), path("policies/limitador/toystore.yaml")];
    let (code, out, err) = run(&["policy", "check", &files[0], &files[1]]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], format!("{}: 3 limits in 2 domains, no problems", files[0]));
    assert!(lines.len() == 2 && lines[1].ends_with("no problems"), "{out}");
    let (code, out, _) = run(&["policy", "check"]);
    assert_eq!((code, out.as_str()), (0, "built-in policy: 4 limits in 1 domain, no problems\n"));
}

#[test]
fn all_problems_of_all_bad_policies_are_told() {
    let (_keep, bad) = policy("[limit.a]\nrat = \"1/s\"\n\n[limit.b]\nrate = \"1/s\"\nmode = \"of\"\n");
    let bad = bad.to_str().unwrap();
    let (code, out, _) = run(&["policy", "check", bad, "no/such.toml", &path("policies/good/first.toml")]);
    assert_eq!(code, 1);
    for expected in [
        format!("{bad}:2:1: unknown field \"rat\" of a limit"),
        "did you mean \"rate\"?".to_owned(),
        format!("{bad}:1:8: this limit has no rate"),
        format!("{bad}:6:8: unknown mode \"of\""),
        format!("{bad}: 3 problems\n"),
        "no/such.toml: cannot be read".to_owned(),
        "first.toml: 1 limit in 1 domain, 1 warning; --strict treats them as errors".to_owned(),
    ] {
        assert!(out.contains(&expected), "{expected} is not in {out}");
    }
}

#[test]
fn problems_are_told_to_programs() {
    let (_keep, bad) = policy("[limit.a]\nrat = \"1/s\"\nrate = \"1/s\"\n");
    let (code, out, _) =
        run(&["policy", "check", "--format=json", bad.to_str().unwrap(), &path("policies/good/first.toml")]);
    assert_eq!(code, 1);
    let told = json(&out);
    let problem = &told[0]["problems"][0];
    assert_eq!((problem["line"].as_u64(), problem["column"].as_u64()), (Some(2), Some(1)), "{told}");
    assert_eq!(problem["help"], "did you mean \"rate\"?");
    assert_eq!((&told[0]["limits"], &told[0]["more"]), (&Value::Null, &Value::from(0)));
    assert_eq!((&told[1]["limits"], &told[1]["domains"]), (&Value::from(1), &Value::from(vec!["default"])));
    assert_eq!(told[1]["problems"], Value::from(Vec::<Value>::new()));
}

#[test]
fn an_explanation_tells_which_limits_apply_and_what_they_would_answer() {
    let (_keep, limits) = policy(
        "[limit.writes]\nmatch.method = \"POST\"\nrate = \"5/min\"\n\n\
         [limit.ip]\nkey = \"ip\"\nrate = [\"10/s burst 20\", \"1000/h\"]\n",
    );
    let limits = limits.to_str().unwrap();
    let (code, out, _) = run(&["policy", "explain", limits, "-d", "ip=10.0.0.7,method=POST", "--cost", "2"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("domain default: 2 of 2 limits apply\n"), "{out}");
    assert!(out.contains("1. writes: 5/min, token-bucket\n"), "{out}");
    assert!(out.contains("would answer: allowed, 3 of 5 left\n"), "{out}");
    assert!(
        out.contains(
            "would answer: 10/s burst 20: allowed, 18 of 20 left; 1000/h: allowed, 998 of 1000 left\n"
        ),
        "{out}"
    );
    assert!(out.ends_with("\ntogether: allowed, decided by writes\n"), "{out}");

    let (code, out, _) =
        run(&["policy", "explain", limits, "-d", "method=POST", "--cost=6", "--format=json"]);
    assert_eq!(code, 0);
    let told = json(&out);
    assert_eq!((&told["allowed"], &told["decided_by"]), (&Value::from(false), &Value::from("writes")));
    assert_eq!(told["limits"][0]["answer"], "never allowed: cost 6 exceeds the limit of 5");
    assert_eq!(
        (&told["limits"][1]["outcome"], &told["limits"][1]["answer"]),
        (&Value::from("does-not-match"), &Value::Null)
    );

    let (_, out, _) = run(&["policy", "explain", limits, "--domain", "defualt"]);
    assert!(out.contains("hint: the domain \"defualt\" has no limits; did you mean \"default\"?"), "{out}");
    assert!(out.ends_with("together: allowed, no limit applies\n"), "{out}");
}

#[test]
fn an_explanation_that_cannot_be_given_says_why() {
    let (code, _, err) = run(&["policy", "explain", "-d", "ip"]);
    assert!(
        code == 2 && err.starts_with("error: --descriptor: expected name=value, found \"ip\"; "),
        "{err}"
    );
    let (code, _, err) = run(&["policy", "explain", "-d", "a=1", "-d", "b=2"]);
    // Answers, item 29.
    let told = "error: --descriptor may be given once, found 2; join the fields: --descriptor a=1,b=2\n";
    assert!(code == 2 && err.starts_with(told), "{err}");
    let (code, out, _) = run(&["policy", "explain", "-d", "user=ann,path=/upload/x,bytes=many"]);
    let told = "cost: the cost in the field \"bytes\" is not a whole number from 0 to 18446744073709551615; on_bad_value is default\n";
    assert!(code == 0 && out.contains(told), "{out}");
    let (code, _, err) = run(&["policy", "explain", "no/such.toml"]);
    assert!(code == 1 && err.starts_with("error: no/such.toml: cannot be read"), "{err}");
    let (code, _, _) = run(&["policy", "explain", "--cost=-1"]);
    assert_eq!(code, 2);
}

/// Answers, item 23: warnings fail a check by `--strict` alone.
#[test]
fn strict_checks_fail_on_warnings() {
    let (_keep, limits) = policy("[limit.a]\nmatch.method = \"GET|POST\"\nrate = \"1/s\"\n");
    let limits = limits.to_str().unwrap();
    let message = "\"GET|POST\" looks like several texts, but is compared as one text\n";
    let (code, out, _) = run(&["policy", "check", limits]);
    assert!(code == 0 && out.starts_with(&format!("{limits}:2:16: warning: {message}")), "{out}");
    assert!(out.ends_with(": 1 limit in 1 domain, 1 warning; --strict treats them as errors\n"), "{out}");
    let (code, out, _) = run(&["policy", "check", "--strict", limits]);
    let problem = format!("{limits}:2:16: {message}");
    assert!(code == 1 && out.starts_with(&problem) && out.ends_with(": 1 problem\n"), "{out}");
    let (code, out, _) = run(&["policy", "check", "--format", "json", limits]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told[0]["limits"]), (0, &Value::from(1)));
    assert_eq!(told[0]["warnings"]["problems"][0]["line"], 2);
    assert_eq!(run(&["policy", "check", "--strict"]).0, 0, "the built-in policy has none");
}

#[test]
fn the_built_in_policy_can_be_started_from() {
    let (code, text, _) = run(&["policy", "default"]);
    assert_eq!(code, 0);
    let (_keep, file) = policy(&text);
    assert_eq!(run(&["policy", "check", file.to_str().unwrap()]).0, 0);
}

#[test]
fn what_was_written_for_others_is_converted_to_what_decides_the_same() {
    let envoy = path("policies/envoy/web.yaml");
    let (code, text, err) = run(&["policy", "convert", &envoy]);
    assert_eq!((code, err.as_str()), (0, ""));
    let (_keep, ours) = policy(&text);
    let limits = |file: &str| json(&run(&["policy", "check", "--format=json", file]).1)[0]["limits"].as_u64();
    assert!(limits(&envoy).is_some_and(|count| count > 0));
    assert_eq!(limits(ours.to_str().unwrap()), limits(&envoy));
    let (_keep, bad) = policy("[limit.a]\nrate = \"1/parsec\"\n");
    let (code, out, err) = run(&["policy", "convert", bad.to_str().unwrap()]);
    assert!(code == 1 && out.is_empty() && err.contains(":2:8: "), "{err}");
    let folder = tempfile::tempdir().unwrap();
    for key in ["x", "y"] {
        let text = format!(
            "domain: a\ndescriptors:\n- {{key: {key}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n"
        );
        std::fs::write(folder.path().join(format!("{key}.yaml")), text).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let (code, _, err) = run(&["policy", "convert", path]);
    assert!(code == 1 && err.contains("the domain \"a\" is already defined in"), "{code} {err}");
    let merged = run(&["policy", "convert", path, "--merge-domains"]);
    assert!(merged.0 == 0 && merged.1.contains("[limit.x]") && merged.1.contains("[limit.y]"), "{merged:?}");
    let (one, two) = (format!("{path}/x.yaml"), format!("{path}/y.yaml"));
    assert_eq!(run(&["policy", "convert", &one, &two]), merged, "whoever names several wants one of them");
    let (code, out, _) = run(&["policy", "check", path, "--merge-domains"]);
    assert_eq!((code, out), (0, format!("{path}: 2 limits in 1 domain, no problems\n")));
    let explain = ["policy", "explain", path, "--merge-domains", "--domain", "a", "-d", "y=1"];
    assert!(run(&explain).1.contains("1/d"), "{:?}", run(&explain));
    assert_eq!(run(&["policy", "convert"]).0, 2);
}

#[test]
fn the_schema_is_json() {
    let (code, out, _) = run(&["policy", "schema"]);
    assert_eq!(code, 0);
    assert!(json(&out)["properties"]["limit"].is_object(), "{out}");
}

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let mut command = tollgate();
    command.args(["settings", "--drain=3s"]).env("TOLLGATE_WORKERS", "3");
    let (code, out, _) = crate::support::ended(&command.output().unwrap());
    assert_eq!(code, 0);
    let line = |key: &str| out.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
    assert!(line("drain").starts_with("drain = \"3s\" ") && line("drain").ends_with(" # --drain"), "{out}");
    assert!(
        line("workers").starts_with("workers = \"3\" ") && line("workers").ends_with(" # TOLLGATE_WORKERS"),
        "{out}"
    );
    assert_eq!(line("http.address"), "http.address = \"127.0.0.1:8080\"");
}

#[test]
fn completions_know_the_flags() {
    for shell in ["bash", "fish", "zsh"] {
        let (code, out, _) = run(&["completions", shell]);
        assert!(code == 0 && out.contains("snapshot-folder"), "{shell}");
    }
    assert_eq!(run(&["completions", "cobol"]).0, 2);
}

#[test]
fn the_help_lists_what_there_is_and_a_mistake_gets_a_suggestion() {
    let (code, out, _) = run(&["serve", "--help"]);
    assert!(
        code == 0 && out.contains("--memory-max-bytes <SIZE>") && out.contains("[default: 1GiB]"),
        "{out}"
    );
    assert_eq!(run(&["--version"]).1, concat!("tollgate ", env!("CARGO_PKG_VERSION"), "\n"));
    let (code, _, err) = run(&["polcy"]);
    assert!(code == 2 && err.contains("'policy'"), "{err}");
    assert_eq!(run(&[]).0, 2);
}

#[test]
fn nobody_need_read_to_the_end() {
    let binary = env!("CARGO_BIN_EXE_tollgate");
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("set -o pipefail; {binary} policy schema | head -c 1 >/dev/null")]);
    let done = shell.stderr(Stdio::piped()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
