use std::collections::BTreeSet;
use std::fs;

use super::value::{Count, OneOf};
use super::*;

fn given(flags: &[(&'static str, &str)], variables: &[(&str, &str)], config: Option<PathBuf>) -> Given {
    Given {
        config,
        flags: flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect(),
        variables: variables.iter().map(|(name, text)| (name.into(), text.into())).collect(),
    }
}

fn mistakes(given: &Given) -> String {
    match resolve(given) {
        Err(Failure::Usage(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// What a setting is, and where it comes from.
fn source(resolved: &Resolved, key: &str) -> (String, String) {
    let at = all().iter().position(|setting| setting.key == key).unwrap();
    let (text, origin) = &resolved.sources[at];
    (text.clone(), origin.to_string())
}

#[test]
fn every_default_is_right_and_every_name_stands_for_one_setting() {
    let resolved = resolve(&Given::default()).unwrap();
    assert_eq!(resolved.sources.len(), all().len());
    assert!(resolved.sources.iter().all(|(_, origin)| *origin == Origin::Default));
    let flags: BTreeSet<String> = all().iter().map(Setting::flag).collect();
    let variables: BTreeSet<String> = all().iter().map(Setting::variable).collect();
    assert_eq!((flags.len(), variables.len()), (all().len(), all().len()));
}

#[test]
fn a_flag_goes_before_a_variable_and_a_variable_before_the_file() {
    let (_keep, path) = file("workers = 1\ndrain = \"1s\"\n[log]\nlevel = \"warn\"\n");
    let all = given(
        &[("workers", "3")],
        &[("TOLLGATE_WORKERS", "2"), ("TOLLGATE_DRAIN", "2s")],
        Some(path.clone()),
    );
    let resolved = resolve(&all).unwrap();
    assert_eq!(resolved.settings.workers, Count(3));
    assert_eq!(source(&resolved, "workers"), ("3".into(), "--workers".into()));
    assert_eq!(source(&resolved, "drain"), ("2s".into(), "TOLLGATE_DRAIN".into()));
    assert_eq!(source(&resolved, "log.level"), ("warn".into(), format!("{}:4:9", path.display())));
    assert_eq!(resolved.settings.log.level, OneOf(Level::Warn));
    assert_eq!(source(&resolved, "log.format"), ("text".into(), "default".into()));
}

#[test]
fn a_variable_can_name_the_file_and_a_flag_goes_before_it() {
    let ((_keep, one), (_keep_too, two)) = (file("workers = 1"), file("workers = 2"));
    let named = [(CONFIG_VARIABLE, one.to_str().unwrap())];
    assert_eq!(resolve(&given(&[], &named, None)).unwrap().settings.workers, Count(1));
    assert_eq!(resolve(&given(&[], &named, Some(two))).unwrap().settings.workers, Count(2));
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_place() {
    let (_keep, path) = file(
        "workers = -1\nmax_conections = 5\n\n[log]\nlevel = \"loud\"\nformat = [\"text\"]\n[lgo]\nlevel = 1\n",
    );
    let all = given(
        &[("drain", "20")],
        &[("TOLLGATE_STORE", "disk"), ("TOLLGATE_DRAIN", "soon")],
        Some(path.clone()),
    );
    let (told, path) = (mistakes(&all), path.display().to_string());
    for expected in [
        format!("{path}:1:11: workers: expected a whole number from 0 to 1024, found \"-1\""),
        format!("{path}:2:1: unknown setting \"max_conections\""),
        "= help: did you mean \"max_connections\"?".to_owned(),
        format!("{path}:5:9: log.level: expected error, warn, info, debug or trace, found \"loud\""),
        format!("{path}:6:10: log.format: expected one value, found a list or table"),
        format!("{path}:8:1: unknown setting \"lgo.level\""),
        "= help: did you mean \"log.level\"?".to_owned(),
        "TOLLGATE_STORE: expected memory; or redis://host:6379, ".to_owned(),
        "and rediss for TLS, found an unreadable value (hidden, because it may hold a password)".to_owned(),
        "--drain: expected a time such as 500ms, 30s, 5min or 1h, up to 365 days, found \"20\"".to_owned(),
        "TOLLGATE_DRAIN: expected a time such as 500ms, 30s, 5min or 1h, up to 365 days, found \"soon\""
            .to_owned(),
    ] {
        assert!(told.contains(&expected), "{expected}\n\nis not in\n\n{told}");
    }
    assert_eq!(told.split("\n\n").count(), 8, "{told}");
}

#[test]
fn what_is_not_toml_is_told_line_by_line() {
    let (_keep, path) = file("workers = = 1\ndrain = 5 s\n");
    let told = mistakes(&given(&[], &[], Some(path)));
    assert_eq!(told.matches("t.toml:").count(), 2, "{told}");
    assert!(told.contains("t.toml:1:") && told.contains("t.toml:2:"), "{told}");
    let nowhere = mistakes(&given(&[], &[], Some("no/such/file.toml".into())));
    assert!(nowhere.starts_with("no/such/file.toml: cannot be read: "), "{nowhere}");
}

#[test]
fn numbers_of_a_file_may_be_written_in_every_way_that_toml_knows() {
    let (_keep, path) = file("workers = 0x10\nmax_connections = 5_000\n");
    let resolved = resolve(&given(&[], &[], Some(path))).unwrap();
    assert_eq!((resolved.settings.workers, resolved.settings.max_connections), (Count(16), Count(5_000)));
}

#[test]
fn a_variable_that_is_nearly_ours_is_pointed_out_and_that_of_kubernetes_is_not() {
    let variables = [
        ("TOLLGATE_WORKER", "1"),
        ("TOLLGATE_PORT", "tcp://10.0.0.1:80"),
        ("TOLLGATE_SERVICE_HOST", "10.0.0.1"),
    ];
    let resolved = resolve(&given(&[], &variables, None)).unwrap();
    assert_eq!(resolved.hints, ["unknown variable TOLLGATE_WORKER; did you mean TOLLGATE_WORKERS?"]);
}

/// Answers, item 29: a variable that is far from every setting is named too, and those that Kubernetes sets are not.
#[test]
fn every_unknown_variable_is_named_with_the_nearest_setting() {
    let variables = [
        ("TOLLGATE_LIMITS_FILE", "a"),
        ("TOLLGATE_HTTPADDRESS", "b"),
        ("TOLLGATE_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("TOLLGATE_ADMIN_SERVICE_PORT", "8082"),
        ("TOLLGATE_HTTP_PORT", "9000"),
        ("OTHER_WORKERS", "1"),
    ];
    let hints = resolve(&given(&[], &variables, None)).unwrap().hints;
    assert_eq!(hints.len(), 3, "{hints:?}");
    assert!(
        hints[0].starts_with("unknown variable TOLLGATE_LIMITS_FILE; did you mean TOLLGATE_"),
        "{hints:?}"
    );
    assert_eq!(hints[1], "unknown variable TOLLGATE_HTTPADDRESS; did you mean TOLLGATE_HTTP_ADDRESS?");
    assert!(hints[2].starts_with("unknown variable TOLLGATE_HTTP_PORT; "), "{hints:?}");
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_a_mistake() {
    use std::os::unix::ffi::OsStringExt;
    let variables = vec![("TOLLGATE_POLICY".into(), OsString::from_vec(vec![b'a', 0xff]))];
    let told = mistakes(&Given { variables, ..Given::default() });
    assert_eq!(told, "TOLLGATE_POLICY: expected UTF-8 text");
}

#[test]
fn settings_that_do_not_go_together_are_told_with_both_names() {
    let (certificate, key, authorities) =
        (("tls.certificate", "c"), ("tls.key", "k"), ("tls.client_authorities", "a"));
    let (required, keys) = (("tls.require_client", "true"), ("keys.file", "keys.toml"));
    let admin = |address| ("admin.address", address);
    for (flags, expected) in [
        (&[certificate][..], "tls.certificate needs tls.key"),
        (&[key], "tls.key needs tls.certificate"),
        (&[authorities], "tls.client_authorities needs tls.certificate"),
        (&[certificate, key, required], "tls.require_client needs tls.client_authorities"),
        (&[admin("0.0.0.0:1")], "admin.address 0.0.0.0:1 is reachable from other machines"),
        (
            &[admin("[::]:1"), certificate, key, authorities],
            "admin.address [::]:1 is reachable from other machines",
        ),
    ] {
        let told = mistakes(&given(flags, &[], None));
        assert!(told.starts_with(expected) && !told.contains('\n'), "{told}");
    }
    for flags in [
        &[certificate, key, authorities, required, admin("0.0.0.0:1")][..],
        &[keys, admin("0.0.0.0:1")],
        &[admin("127.9.9.9:1")],
        &[admin("[::1]:1")],
        &[admin("[::ffff:127.0.0.1]:1")],
        &[admin("none"), certificate, key],
    ] {
        assert!(resolve(&given(flags, &[], None)).is_ok(), "{flags:?}");
    }
    let all = [key, required, admin("0.0.0.0:1"), ("http.address", "none"), ("grpc.address", "none")];
    let told = mistakes(&given(&[&all[..], &[("resp.address", "none")]].concat(), &[], None));
    assert_eq!(told.split("\n\n").count(), 3, "{told}");
    assert!(told.ends_with("--http-address, --grpc-address or --resp-address"), "{told}");
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    let first =
        resolve(&given(&[("policy", "a \"b\" #.toml"), ("memory.max_keys", "7")], &[], None)).unwrap();
    let shown = docs::effective(&first);
    assert!(shown.contains("# --memory-max-keys\n"), "{shown}");
    let (_keep, path) = file(&shown);
    let again = resolve(&given(&[], &[], Some(path))).unwrap();
    let values =
        |resolved: &Resolved| resolved.sources.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
    assert_eq!(values(&again), values(&first));
    assert_eq!(again.settings.policy, Some(PathBuf::from("a \"b\" #.toml")));
}

#[test]
fn the_docs_list_what_there_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let docs = fs::read_to_string(path).unwrap_or_default();
    let hint = "it is old: cargo run -- settings --format markdown > docs/settings.md";
    assert!(docs == docs::markdown(), "{hint}");
}
