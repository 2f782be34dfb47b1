//! Our rate limit service for Envoy beside a bare gRPC service that always says OK, in the same runtime shape: one thread with a
//! runtime of its own, in a process of its own on one core; the load comes from another.

#[path = "rls/load.rs"]
mod load;
#[path = "rls/servers.rs"]
mod servers;

use std::process::ExitCode;
use std::time::Duration;

use load::{Client, Seen};
use servers::{Child, Kind};
use tollgate_benches::{Bench, Better, Case, Contender, Goal, Options, alternate, percentile, pin_to_core};

/// For children: which server to be.
const SERVE: &str = "--serve";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, kind] = &arguments[..]
        && flag == SERVE
    {
        return servers::serve(Kind::parse(kind));
    }
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("rls: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("rls", options);
    let (rounds, span) = if options.is_quick() { (3, 1) } else { (9, 3) };
    for descriptors in [1, 3] {
        for case in direct(descriptors, rounds, Duration::from_secs(span)) {
            bench.add(case);
        }
    }
    bench.finish()
}

/// 50 calls at a time over four connections.
fn direct(descriptors: usize, rounds: usize, span: Duration) -> [Case; 3] {
    let name = |what: &str| format!("rls-50c-{descriptors}d-{what}");
    let mut speed = Case::new(name("speed"), "k req/s", Better::Higher).goal(Goal::ratio_at_least(
        "tollgate",
        "bare-tonic",
        0.85,
    ));
    let mut cost =
        Case::new(name("cpu"), "us", Better::Lower).goal(Goal::ratio_at_most("tollgate", "bare-tonic", 1.25));
    let mut tail =
        Case::new(name("p99"), "us", Better::Lower).goal(Goal::ratio_at_most("tollgate", "bare-tonic", 1.2));
    let contenders: Vec<Contender<'static, Measured>> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let child = Child::start(kind);
            let run: Box<dyn Fn() -> Measured> = Box::new(move || measured(&child, descriptors, span));
            (kind.name(), run)
        })
        .collect();
    alternate(rounds, &contenders, |name, measured| {
        speed.sample(name, measured.thousands_per_second);
        cost.sample(name, measured.cpu_us);
        tail.sample(name, measured.p99_us);
    });
    [speed, cost, tail]
}

struct Measured {
    thousands_per_second: f64,
    /// Of the server, for each request.
    cpu_us: f64,
    p99_us: f64,
}

fn measured(child: &Child, descriptors: usize, span: Duration) -> Measured {
    pin_to_core(1);
    let client = Client::new(child.port(), descriptors);
    client.run(span / 4); // warm
    let before = child.cpu();
    let Seen { mut latencies_us, wall } = client.run(span);
    let cpu = child.cpu().saturating_sub(before);
    latencies_us.sort_by(f64::total_cmp);
    let calls = latencies_us.len() as f64;
    Measured {
        thousands_per_second: calls / wall.as_secs_f64() / 1e3,
        cpu_us: cpu.as_secs_f64() * 1e6 / calls,
        p99_us: percentile(&latencies_us, 0.99),
    }
}
