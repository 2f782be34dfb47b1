//! What is for those who run it, and from where it can be reached.

use std::fs;

use super::{CHECK, request, start};
use crate::support::{ask, connect, run};

const OF_ADMIN: [(&str, &str); 5] = [
    ("GET", "/metrics"),
    ("GET", "/v1/limits"),
    ("GET", "/v1/keys/top"),
    ("GET", "/v1/policy"),
    ("POST", "/v1/reset"),
];

#[test]
fn what_is_for_administrators_is_not_where_services_ask_nor_the_other_way_round() {
    let service = start(&["--log-level=info"]);
    for (method, path) in OF_ADMIN {
        let (status, body) = ask(service.http, method, path, CHECK);
        assert_eq!(status, 404, "{path}: {body}");
        assert!(body.contains("is not served here, but where admin.address says"), "{path}: {body}");
        assert_eq!(ask(service.admin, method, path, CHECK).0, 200, "{path}");
    }
    for path in ["/v1/check", "/v1/settle", "/json"] {
        let (status, _) = ask(service.admin, "POST", path, CHECK);
        assert_eq!(status, 404, "{path}");
    }
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        let answers = [service.http, service.admin].map(|address| ask(address, "GET", path, "").0);
        assert_eq!(answers, [200, 200], "{path}");
    }
}

#[test]
fn nobody_administers_from_elsewhere_without_proof() {
    let (code, out, err) = run(&["serve", "--admin-address=0.0.0.0:0"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(
        err.contains("admin.address 0.0.0.0:0 is reachable from other machines") && err.contains("keys.file"),
        "{err}"
    );

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let keys = "[token.a]\nsecret = \"0123456789abcdef\"\nscopes = [\"admin\"]\n";
    let open = format!("anonymous = [\"admin\"]\n{keys}");
    fs::write(&path, &open).unwrap();
    let flags = ["--admin-address=0.0.0.0:0".to_owned(), format!("--keys-file={}", path.display())];
    let (code, out, err) = run(&["serve", &flags[0], &flags[1]]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("anonymous has the scope admin, and other machines can reach admin.address"),
        "{err}"
    );

    fs::write(&path, keys).unwrap();
    let service = start(&flags);
    let metrics = |token| {
        let mut stream = connect(service.admin).unwrap();
        std::io::Write::write_all(&mut stream, request("GET", "/metrics", "", token).as_bytes()).unwrap();
        crate::support::answer(&mut stream).0
    };
    assert_eq!((metrics(None), metrics(Some("0123456789abcdef"))), (401, 200));
    fs::write(&path, open).unwrap();
    service.tells("anonymous has the scope admin");
    assert_eq!(metrics(None), 401, "and not taken");
}

#[test]
fn over_the_protocol_of_redis_too() {
    let here = start(&["--log-level=info"]);
    assert!(here.redis("TG.RESET user ann").starts_with(':'));
    let anywhere = start(&["--resp-address=0.0.0.0:0"]);
    assert!(anywhere.redis("TG.CHECK user ann").contains("allowed\r\n:1\r\n"));
    for command in ["TG.RESET user ann", "TG.LIMITS", "INFO"] {
        let answer = anywhere.redis(command);
        assert!(answer.starts_with("-NOPERM ") && answer.contains("needs the scope admin"), "{answer}");
    }
    assert!(
        anywhere.redis("AUTH default anything").starts_with("+OK\r\n"),
        "as where there are no passwords"
    );
}
