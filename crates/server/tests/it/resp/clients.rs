//! Clients for Redis, as they are.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use super::serving::{NONE, Serving};

/// What they are told, and nothing else.
const REDIS_PY: &str = "redis==8.1.0";
const NODE: [&str; 2] = ["redis@6.3.1", "ioredis@6.0.0"];

/// Runs a program that must end well; what it said.
fn run(command: &mut Command) -> String {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    said(&name, output.unwrap_or_else(|error| panic!("{name} does not run: {error}")))
}

fn said(name: &str, output: Output) -> String {
    let [out, err] = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success(), "{name} ended with {}:\n{out}\n{err}", output.status);
    assert!(!err.contains("rror"), "{name} said:\n{err}");
    out
}

/// `timeout` sees to it that no client hangs.
fn bounded(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("120").arg(program.as_ref());
    command
}

#[test]
fn redis_cli_asks_in_both_versions_and_by_hand() {
    let serving = Serving::by("[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n");
    let cli = |arguments: &[&str]| run(bounded("redis-cli").args(["-p", &serving.port()]).args(arguments));
    assert_eq!(cli(&["CL.THROTTLE", "user123", "15", "30", "60", "1"]), "0\n16\n15\n-1\n2\n");
    assert_eq!(cli(&["-3", "CL.THROTTLE", "user123", "15", "30", "60"]), "0\n16\n14\n-1\n4\n");
    assert_eq!(cli(&["THROTTLE", "user123", "16", "30", "60"]), "1\n16\n15\n2\n0\n");
    let told = "allowed\n1\nlimit\nper-ip\nrate\n2/min\nremaining\n1\nretry_after_ms\n0\nreset_after_ms\n30000\ndelay_ms\n0\ndegraded\n0\n";
    assert_eq!(cli(&["TG.CHECK", "ip", "10.0.0.7"]), told);
    let told = cli(&["-3", "--json", "TG.CHECK", "ip", "10.0.0.7"]);
    assert!(told.contains("\"allowed\":true") && told.contains("\"remaining\":0"), "{told}");

    let mut piped = bounded("redis-cli");
    piped.args(["-p", &serving.port()]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it runs");
    let typed = b"ping\necho \"a b\"\ncl.throttle typed 0 1 60\nhello 3\ninfo\nquit\n";
    child.stdin.take().expect("piped").write_all(typed).expect("it reads");
    let told = said("redis-cli", child.wait_with_output().expect("it ends"));
    assert!(told.starts_with("PONG\na b\n0\n1\n0\n-1\n60\n"), "{told}");
    assert!(told.contains("redis_mode:standalone"), "{told}");
}

#[test]
fn redis_benchmark_runs_to_its_end() {
    let serving = Serving::by(NONE);
    for pipeline in ["1", "16", "200"] {
        let mut command = bounded("redis-benchmark");
        command.args(["-p", &serving.port(), "-n", "20000", "-c", "10", "-r", "1000", "-q", "-P", pipeline]);
        let told = run(command.args(["CL.THROTTLE", "key:__rand_int__", "15", "30", "60"]));
        assert!(told.contains("requests per second"), "{told}");
    }
    let mut command = bounded("redis-benchmark");
    let told = run(command.args(["-p", &serving.port(), "-n", "5000", "-t", "ping_inline,ping_mbulk"]));
    assert_eq!(told.matches("5000 requests completed").count(), 2, "{told}");
    assert!(!told.contains("WARN"), "{told}");
}

#[test]
fn redis_py_asks() {
    let serving = Serving::by("[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n");
    let told = run(bounded(python()).args(["-c", PYTHON, &serving.port()]));
    assert_eq!(told, "ok\n");
}

const PYTHON: &str = r#"
import sys, redis
port = int(sys.argv[1])
for protocol in (2, 3):
    client = redis.Redis(port=port, protocol=protocol, client_name="test")
    assert client.ping()
    key = b"\xff py %d" % protocol
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60, 1) == [0, 16, 15, -1, 2]
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60, 16) == [1, 16, 15, 2, 2]
    pipeline = client.pipeline(transaction=False)
    for _ in range(1000):
        pipeline.execute_command("CL.THROTTLE", "many %d" % protocol, 99, 1, 60)
    limited = [reply[0] for reply in pipeline.execute()]
    assert limited == [0] * 100 + [1] * 900, limited
    checked = client.execute_command("TG.CHECK", "ip", "py %d" % protocol)
    if protocol == 2:
        checked = dict(zip(checked[::2], checked[1::2]))
    assert checked[b"allowed"] in (1, True) and checked[b"remaining"] == 1, checked
    assert client.client_getname() in ("test", b"test")
    try:
        client.execute_command("CL.THROTTLE", "k", "x", 1, 1)
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert "Couldn't parse as integer: x" in str(error), error
    assert client.info()["redis_version"] == "7.2.0"
    client.close()
print("ok")
"#;

#[test]
fn node_redis_and_ioredis_ask() {
    let serving = Serving::by("[limit.per-ip]\nkey = \"ip\"\nrate = \"2/min\"\n");
    let mut command = bounded("node");
    command.env("NODE_PATH", node().join("node_modules")).args(["-e", JAVASCRIPT, &serving.port()]);
    assert_eq!(run(&mut command), "ok\n");
}

const JAVASCRIPT: &str = r"
const assert = require('assert');
const { createClient } = require('redis');
const { Redis } = require('ioredis');
const port = Number(process.argv[1]);
const plain = value => value instanceof Map ? Object.fromEntries(value) : value;

async function nodeRedis(RESP) {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP, name: 'test' });
  client.on('error', error => { throw error; });
  await client.connect();
  assert.equal(await client.ping(), 'PONG');
  const key = `node ${RESP}`;
  assert.deepEqual(await client.sendCommand(['CL.THROTTLE', key, '15', '30', '60']), [0, 16, 15, -1, 2]);
  const all = await Promise.all(Array.from({ length: 500 }, () => client.sendCommand(['CL.THROTTLE', `${key} many`, '99', '1', '60'])));
  assert.equal(all.filter(reply => reply[0] === 0).length, 100);
  const checked = plain(await client.sendCommand(['TG.CHECK', 'ip', key]));
  if (RESP === 3) assert.equal(checked.allowed, true);
  await assert.rejects(client.sendCommand(['CL.THROTTLE', 'k', '1', '0', '1']), /Zero rates are not supported/);
  await client.close();
}

async function ioRedis() {
  const client = new Redis({ port, host: '127.0.0.1', connectionName: 'test' });
  assert.equal(await client.ping(), 'PONG');
  assert.deepEqual(await client.call('cl.throttle', 'io', 15, 30, 60), [0, 16, 15, -1, 2]);
  const pipeline = client.pipeline();
  for (let call = 0; call < 500; call++) pipeline.call('CL.THROTTLE', 'io many', 99, 1, 60);
  const all = await pipeline.exec();
  assert.equal(all.filter(([error, reply]) => error === null && reply[0] === 0).length, 100);
  await assert.rejects(client.call('CL.THROTTLE', 'k'), /Usage: cl.throttle/);
  await client.quit();
}

(async () => {
  await nodeRedis(2);
  await nodeRedis(3);
  await ioRedis();
  console.log('ok');
})().catch(error => { console.error(error); process.exit(1); });
";

/// Where clients are installed, once for all runs.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A Python that has redis-py.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let place = place("redis-py");
        let python = place.join("bin/python");
        let has_it = || {
            Command::new(&python).args(["-c", "import redis; assert redis.__version__ == '8.1.0'"]).output()
        };
        if !has_it().is_ok_and(|output| output.status.success()) {
            run(bounded("python3").args(["-m", "venv"]).arg(&place));
            run(bounded(&python).args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                REDIS_PY,
            ]));
        }
        python
    })
}

/// Where node finds node-redis and ioredis.
fn node() -> &'static Path {
    static NODE_CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    NODE_CLIENTS.get_or_init(|| {
        let place = place("node-clients");
        let has_all = ["redis", "ioredis"].iter().all(|name| place.join("node_modules").join(name).is_dir());
        if !has_all {
            std::fs::create_dir_all(&place).expect("a directory");
            let mut install = bounded("npm");
            install
                .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                .arg(&place)
                .args(NODE);
            run(&mut install);
        }
        place
    })
}
