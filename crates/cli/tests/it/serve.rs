//! `tollgate serve`, as a process of its own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{Service, answer, connect, ended, policy, run, testdata, tollgate, until};

const ANN: &str = r#"{"user": "ann"}"#;
/// Two for each user; nothing comes back while a test runs.
const TWO: &str = "[limit.users]\nkey = \"user\"\nrate = \"2/d\"\n";
/// The same, and something else.
const TWO_AND_MORE: &str =
    "# changed\n[limit.users]\nkey = \"user\"\nrate = \"2/d\"\n\n[limit.more]\nkey = \"x\"\nrate = \"1/d\"\n";
const THREE: &str = "[limit.users]\nkey = \"user\"\nrate = \"3/d\"\n";

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn without_any_setting_it_decides_by_the_built_in_policy_over_several_protocols() {
    let service = Service::start(&[]);
    assert_ne!((service.http.port(), service.resp.port()), (0, 0), "{}", service.greeting);
    let login = r#"{"ip": "10.0.0.7", "path": "/login"}"#;
    for _ in 0..4 {
        assert_eq!(service.check(login), 200);
    }
    // All protocols take from the same: the fifth of five.
    let allowed = service.redis("TG.CHECK ip 10.0.0.7 path /login");
    assert!(allowed.contains("$7\r\nallowed\r\n:1\r\n"), "{allowed}");
    assert_eq!(service.check(login), 429);
    service.tells("listening");
}

/// Answers, item 16: calls that no limit applies to are logged once for each domain, and at most a hundred domains are named.
#[test]
fn unmatched_calls_are_logged_once_for_each_domain() {
    let (_keep, path) = policy(TWO);
    let service = Service::start(&["--policy", shown(&path)]);
    let typo: Vec<String> = (0..3).map(|_| "TG.CHECK usr ann".to_owned()).collect();
    let unknown = (0..150).flat_map(|number| vec![format!("TG.CHECK DOMAIN d{number} user ann"); 2]);
    let commands: Vec<String> = typo.into_iter().chain(unknown).collect();
    service.redis(&commands.join("\r\n"));
    service.tells("domain=\"d98\"");
    assert!(service.get("/metrics").contains("tollgate_unmatched_calls_total{domain=\"@unknown\"} 300\n"));
    let log = service.log();
    let unmatched = "no limit applies to a request; check the names of its fields";
    assert_eq!(log.matches(unmatched).count(), 1, "{log}");
    assert_eq!(log.matches("request names an unknown domain").count(), 99, "{log}");
    assert!(log.contains("domain=\"default\"") && !log.contains("domain=\"d99\""), "{log}");
}

#[test]
fn the_commands_that_it_prints_work() {
    let service = Service::start(&[]);
    let (_, tries) = service.greeting.split_once("To try:\n").unwrap();
    let outputs: Vec<String> = tries
        .lines()
        .map(|command| {
            let done = Command::new("sh").args(["-c", command.trim()]).output().unwrap();
            let (code, out, err) = ended(&done);
            assert_eq!(code, 0, "{command}\n{out}{err}");
            out
        })
        .collect();
    assert!(outputs[0].starts_with("HTTP/1.1 200 OK"), "{}", outputs[0]);
    assert!(outputs[1].starts_with("allowed\n1\n"), "{}", outputs[1]);
    assert_eq!(outputs[2], "built-in policy: 4 limits in 1 domain, no problems\n");
}

#[test]
fn a_file_that_is_written_is_loaded_again_and_counters_stay() {
    let (_keep, path) = policy(TWO);
    let service = Service::start(&["--policy", shown(&path)]);
    assert_eq!([service.check(ANN), service.check(ANN), service.check(ANN)], [200, 200, 429]);
    fs::write(&path, TWO_AND_MORE).unwrap();
    until("there is a second limit", || service.get("/v1/limits").contains("\"more\""));
    assert_eq!(service.check(ANN), 429, "the limit that is the same has counted on");
    fs::write(&path, THREE).unwrap();
    until("the other rate is in force", || service.check(ANN) == 200);
    service.tells("policy reloaded");
}

#[test]
fn a_file_that_comes_by_renaming_is_loaded() {
    let (folder, path) = policy(TWO);
    let service = Service::start(&["--policy", shown(&path)]);
    assert_eq!([service.check(ANN), service.check(ANN)], [200, 200]);
    fs::write(folder.path().join("next"), TWO_AND_MORE).unwrap();
    fs::rename(folder.path().join("next"), &path).unwrap();
    until("there is a second limit", || service.get("/v1/limits").contains("\"more\""));
    assert_eq!(service.check(ANN), 429);
}

#[test]
fn a_config_map_that_is_swapped_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, text) in [("..1", TWO), ("..2", TWO_AND_MORE)] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("limits.toml"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/limits.toml", at("limits.toml")).unwrap();
    let service = Service::start(&["--policy", shown(&at("limits.toml"))]);
    assert_eq!([service.check(ANN), service.check(ANN)], [200, 200]);
    symlink("..2", at("..tmp")).unwrap();
    fs::rename(at("..tmp"), at("..data")).unwrap();
    fs::remove_dir_all(at("..1")).unwrap();
    until("there is a second limit", || service.get("/v1/limits").contains("\"more\""));
    assert_eq!(service.check(ANN), 429);
}

#[test]
fn a_file_that_is_added_to_a_folder_of_policies_is_loaded() {
    let (folder, _) = policy(TWO);
    let service = Service::start(&["--policy", shown(folder.path())]);
    assert_eq!([service.check(ANN), service.check(ANN)], [200, 200]);
    fs::write(folder.path().join("more.toml"), "[limit.more]\nkey = \"x\"\nrate = \"1/d\"\n").unwrap();
    until("there is a second limit", || service.get("/v1/limits").contains("\"more\""));
    assert_eq!(service.check(ANN), 429);
}

#[test]
fn sighup_loads_again_and_ends_nothing() {
    let (_keep, path) = policy(TWO);
    let service = Service::start(&["--policy", shown(&path)]);
    service.signal("HUP");
    service.tells("policy unchanged");
    let built_in = Service::start(&[]);
    built_in.signal("HUP");
    built_in.tells("the built-in policy has no file to reload");
    assert_eq!(service.check(ANN), 200);
}

#[test]
fn a_bad_file_keeps_the_old_policy_and_is_told_in_log_metrics_and_api() {
    let (_keep, path) = policy(TWO);
    let service = Service::start(&["--policy", shown(&path)]);
    fs::write(&path, "[limit.users]\nkye = \"user\"\nrate = \"9/d\"\n").unwrap();
    until("the api tells", || service.get("/v1/policy").contains("unknown field"));
    assert!(service.get("/v1/policy").contains("did you mean"), "{}", service.get("/v1/policy"));
    let metrics = service.get("/metrics");
    let failures = metrics.lines().find(|line| {
        line.starts_with("tollgate_config_reloads_total{")
            && line.ends_with(" 1")
            && !line.contains("success")
    });
    assert!(failures.is_some(), "{metrics}");
    service.tells("cannot load the policy, keeping the previous one");
    service.tells("limits.toml:2:1");
    assert_eq!([service.check(ANN), service.check(ANN), service.check(ANN)], [200, 200, 429]);
}

#[test]
fn a_request_in_hand_is_answered_before_it_ends() {
    let service = Service::start(&[]);
    let body = r#"{"descriptor": {"ip": "10.0.0.7"}}"#;
    let mut stream = service.begin_check(body);
    service.signal("TERM");
    until("nobody is let in", || connect(service.http).is_err());
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(answer(&mut stream).0, 200);
    let (code, log) = service.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("SIGTERM") && log.trim_end().ends_with("stopped"), "{log}");
}

#[test]
fn whoever_does_not_end_in_time_is_cut_off() {
    let service = Service::start(&["--drain=50ms"]);
    let _in_hand = service.begin_check("{}");
    service.signal("INT");
    let (code, log) = service.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("connections=1") && log.contains("closed connections that did not finish"), "{log}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let service = Service::start(&["--drain=1h"]);
    let _in_hand = service.begin_check("{}");
    service.signal("TERM");
    service.tells("draining connections");
    service.signal("TERM");
    let (code, log) = service.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("stopped by a second SIGTERM"), "{log}");
}

#[test]
fn counters_outlive_a_restart() {
    let ((_keep, path), folder) = (policy(TWO), tempfile::tempdir().unwrap());
    let saved = folder.path().join("made/for/it");
    let arguments = ["--policy", shown(&path), "--snapshot-folder", shown(&saved)];
    let service = Service::start(&arguments);
    assert_eq!([service.check(ANN), service.check(ANN)], [200, 200]);
    service.signal("TERM");
    let (code, log) = service.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("saved counters keys=1"), "{log}");
    let service = Service::start(&arguments);
    assert_eq!(service.check(ANN), 429, "{}", service.log());
    assert_eq!(service.check(r#"{"user": "bob"}"#), 200);
}

#[test]
fn counters_are_saved_meanwhile_and_a_kill_loses_only_what_came_after() {
    let ((_keep, path), folder) = (policy(TWO), tempfile::tempdir().unwrap());
    let arguments =
        ["--policy", shown(&path), "--snapshot-folder", shown(folder.path()), "--snapshot-every=20ms"];
    let service = Service::start(&arguments);
    assert_eq!([service.check(ANN), service.check(ANN)], [200, 200]);
    let is_saved = |service: &Service| {
        let restored = tollgate::store::MemoryStore::builder().restore(folder.path()).1;
        drop(service.get("/healthz"));
        restored.keys == 1
    };
    until("the key is saved", || is_saved(&service));
    service.signal("KILL");
    assert_eq!(service.end().0, None);
    assert_eq!(Service::start(&arguments).check(ANN), 429);
}

#[test]
fn a_damaged_snapshot_is_told_and_it_goes_on_with_nothing() {
    let ((_keep, path), folder) = (policy(TWO), tempfile::tempdir().unwrap());
    let arguments = ["--policy", shown(&path), "--snapshot-folder", shown(folder.path())];
    let service = Service::start(&arguments);
    assert_eq!([service.check(ANN), service.check(ANN)], [200, 200]);
    service.signal("TERM");
    assert_eq!(service.end().0, Some(0));
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let service = Service::start(&arguments);
    assert_eq!(service.check(ANN), 200);
    service.tells("start at zero");
    service.tells("damaged: checksum");
}

#[test]
fn a_folder_that_cannot_be_saved_in_is_told_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let inside = folder.path().join("file/folder");
    let (code, _, err) = run(&["serve", "--http-address=127.0.0.1:0", "--snapshot-folder", shown(&inside)]);
    assert_eq!(code, 1);
    assert!(err.contains("cannot save counters in ") && err.contains("file/folder"), "{err}");
}

#[test]
fn a_policy_with_mistakes_starts_nothing() {
    let bad = testdata("policies/bad/words.toml");
    let (code, out, err) = run(&["serve", "--policy", shown(&bad)]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("words.toml:") && err.contains("did you mean"), "{err}");
}

#[test]
fn settings_with_mistakes_start_nothing_and_are_told_all_at_once() {
    let mut command = tollgate();
    command.args(["serve", "--workers=many", "--http-address=8080"]).env("TOLLGATE_LOG_LEVEL", "loud");
    let (code, out, err) = ended(&command.output().unwrap());
    assert_eq!((code, out.as_str()), (2, ""));
    for expected in [
        "--workers: expected a whole number from 0 to 1024, found \"many\"",
        "--http-address: expected an address with a port such as 127.0.0.1:8080",
        "TOLLGATE_LOG_LEVEL: expected error, warn, info, debug or trace, found \"loud\"",
    ] {
        assert!(err.contains(expected), "{expected} is not in {err}");
    }
    let (code, _, err) = run(&["serve", "--http-adress=127.0.0.1:0"]);
    assert!(code == 2 && err.contains("'--http-address'"), "{err}");
    let (code, _, err) = run(&["serve", "--http-address=none", "--grpc-address=none", "--resp-address=none"]);
    assert!(code == 2 && err.contains("no listener: "), "{err}");
}

#[test]
fn flags_variables_and_a_file_all_reach_the_service() {
    let (folder, path) = policy(TWO);
    let config = folder.path().join("tollgate.toml");
    let text = "[http]\naddress = \"127.0.0.1:1\"\nbody_bytes = 64\n[log]\nformat = \"json\"\n";
    fs::write(&config, text).unwrap();
    let mut command = tollgate();
    command.args(["serve", "--http-address=localhost:0", "--config", shown(&config)]);
    command.env("TOLLGATE_GRPC_ADDRESS", "none").env("TOLLGATE_ADMIN_ADDRESS", "none");
    command.env("TOLLGATE_POLICY", &path).env("TOLLGATE_RESP_ADDRESS", "none").env("TOLLGATE_WORKER", "2");
    let service = Service::of(&mut command);
    assert_eq!(service.check(r#"{"user": "somebody with a name that makes the body too large"}"#), 413);
    assert_eq!([service.check(ANN), service.check(ANN), service.check(ANN)], [200, 200, 429]);
    assert!(!service.greeting.contains("redis"), "{}", service.greeting);
    service.signal("TERM");
    let (code, log) = service.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("unknown variable TOLLGATE_WORKER; did you mean TOLLGATE_WORKERS?"), "{log}");
    for line in log.lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_logged() {
    let service = Service::start(&["--log-level=error"]);
    assert_eq!(service.check(ANN), 200);
    service.signal("TERM");
    assert_eq!(service.end(), (Some(0), String::new()));
}
