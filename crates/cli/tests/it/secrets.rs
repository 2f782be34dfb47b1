//! Passwords and tokens are never shown, whatever is wrong with them or near them.

use std::fs;
use std::process::Stdio;

use tempfile::tempdir;
use tollgate_testkit::Redis;

use crate::support::{Service, ask, ended, policy, run, tollgate, until};

const SECRET: &str = "hunter2";

/// What the command prints when it is given these arguments and this `TOLLGATE_STORE`.
fn printed(arguments: &[&str], store: Option<&str>) -> (i32, String) {
    let mut command = tollgate();
    command.args(arguments).envs(store.map(|store| ("TOLLGATE_STORE", store)));
    let (code, out, err) = ended(&command.stdout(Stdio::piped()).output().expect("it runs"));
    (code, out + &err)
}

/// Guards, item 4: an address of a store that cannot be read may hold a password anywhere.
#[test]
fn a_mistyped_store_is_not_shown() {
    for bad in [
        "redis://:hunter2@",
        "redis:/:hunter2@host",
        "redis//:hunter2#host:6379",
        "redis://:hunter2:6379",
        "hunter2",
        "http://:hunter2@host",
        "redis+hunter2://host",
    ] {
        let (code, text) = printed(&["serve"], Some(bad));
        assert!(code == 2 && text.contains("TOLLGATE_STORE: expected memory; or redis://"), "{bad}: {text}");
        assert!(!text.contains(SECRET), "{bad}: {text}");
        let (code, text) = printed(&["serve", "--store", bad], None);
        assert!(code == 2 && !text.contains(SECRET), "{bad}: {text}");
    }
    let (code, text) = printed(&["settings"], Some("redis://ann:hunter2@127.0.0.1:1"));
    assert!(code == 0 && text.contains("store = \"redis://…@127.0.0.1:1\""), "{text}");
}

/// Guards, item 4: clap quotes arguments that it does not know.
#[test]
fn a_mistyped_flag_does_not_show_its_value() {
    for arguments in [
        &["serve", "--stroe=redis://:hunter2@host"][..],
        &["serve", "--stroe", "redis://:hunter2@host"],
        &["serve", "redis://:hunter2@host"],
        &["redis://:hunter2@host"],
        &["serve", "--store", "redis:", "//:hunter2@host"],
        &["serve", "--workers", "1", "--workers", "redis://:hunter2@host"],
        &["serve", "hunter2"],
        &["serve", "--stroe=hunter2"],
        &["serve", "--stroe", "hunter2"],
        &["serve", "--hunter2"],
        &["serve", "-phunter2"],
        &["serve", "-p", "hunter2"],
        &["serve", "--", "hunter2"],
        &["serve", "--store", "redis:", "hunter2"],
        &["hunter2"],
        &["hunter2", "serve"],
        &["settings", "--format=hunter2"],
        &["policy", "hunter2"],
        &["policy", "--hunter2"],
        &["policy", "schema", "hunter2"],
        &["policy", "check", "--strict=hunter2"],
        &["policy", "explain", "--cost=hunter2"],
        &["completions", "hunter2"],
        &["completions", "bash", "hunter2"],
    ] {
        let (code, text) = printed(arguments, None);
        assert!(code == 2 && !text.contains(SECRET), "{arguments:?}: {text}");
    }
    for (arguments, shown) in [
        (&["serve", "--stroe=memory"][..], &["'--stroe'", "'--store'"][..]),
        (&["polcy"], &["unrecognized subcommand", "'policy'"]),
        (&["policy"], &["Usage: tollgate policy"]),
        (&["serve", "--store"], &["a value is required for '--store <STORE>'"]),
        (&["settings", "--format=markdwon"], &["--format", "'markdown'"]),
        (&["policy", "explain", "--cost=much"], &["--cost", "invalid digit"]),
    ] {
        let (code, text) = printed(arguments, None);
        let is_shown = |word: &&str| text.contains(*word);
        assert!(code == 2 && shown.iter().all(is_shown), "{arguments:?} shows {shown:?}: {text}");
    }
}

/// Guards, item 4: a flag stands in the list of processes.
#[test]
fn a_password_in_a_flag_is_refused() {
    let (code, text) = printed(&["serve", "--store=redis://:hunter2@127.0.0.1:1"], None);
    assert!(code == 2 && !text.contains(SECRET), "{text}");
    assert!(text.contains("--store-password-file") && text.contains("TOLLGATE_STORE"), "{text}");
}

/// Guards, item 4: a file of settings may hold a password in any line.
#[test]
fn the_lines_of_a_settings_file_are_not_shown() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("t.toml");
    for text in [
        "store = \"redis://:hunter2@host\n",
        "store = redis://:hunter2@host\n",
        "stroe = \"redis://:hunter2@host\"\n",
        "store = \"hunter2\"\n",
        "store = [\"redis://:hunter2@host\"]\n",
        "store = \"redis://:hunter2@host\" drain = 5\n",
    ] {
        fs::write(&path, text).expect("it is written");
        let (code, shown, err) = run(&["serve", "--config", path.to_str().expect("UTF-8")]);
        assert!(code == 2 && err.contains("t.toml:1:"), "{text}: {err}");
        assert!(!(shown + &err).contains(SECRET), "{text}: {err}");
    }
}

/// Guards, item 4: tokens in a file of keys.
#[test]
fn the_lines_of_a_key_file_are_not_shown() {
    let folder = tempdir().expect("a folder");
    let path = folder.path().join("keys.toml");
    fs::write(&path, "[token.ci]\nsecret = \"hunter2hunter2hunter2\nscopes = [\"check\"]\n")
        .expect("it is written");
    let (code, shown, err) = run(&["serve", "--keys-file", path.to_str().expect("UTF-8")]);
    assert!(code == 1 && err.contains("keys.toml:2:"), "{err}");
    assert!(!(shown + &err).contains(SECRET), "{err}");
}

/// Guards, item 4.
#[test]
fn the_password_of_redis_can_stand_in_a_file() {
    let redis = Redis::start_with(&["--requirepass", "p@ss:word/"]);
    let (folder, (_keep, limits)) = (tempdir().expect("a folder"), policy("[limit.all]\nrate = \"9/h\"\n"));
    let path = folder.path().join("password");
    fs::write(&path, "p@ss:word/\n").expect("it is written");
    let file = format!("--store-password-file={}", path.display());
    let store = format!("--store=redis://127.0.0.1:{}", redis.port());
    let service = Service::start(&["--policy", limits.to_str().expect("UTF-8"), &store, &file]);
    until("the store decides", || {
        ask(service.http, "POST", "/v1/check", r#"{"descriptor":{}}"#).1.contains(r#""basis":"store""#)
    });
    assert!(!service.log().contains("p@ss"), "{}", service.log());

    fs::write(&path, "\n").expect("it is written");
    for (arguments, expected) in [
        (&[&*store, &file][..], "the file is empty; expected a password"),
        (
            &[&store, "--store-password-file=hunter2"],
            "--store-password-file: the file cannot be read: No such file",
        ),
        (
            &[&store, "--redis-sentinel-password-file=hunter2"],
            "--redis-sentinel-password-file: the file cannot be read: No such file",
        ),
        (&[&file], "store_password_file needs a Redis store"),
    ] {
        let (code, _, err) = run(&[&["serve"], arguments].concat());
        assert!(code == 2 && err.contains(expected) && !err.contains(SECRET), "{arguments:?}: {err}");
    }
}
