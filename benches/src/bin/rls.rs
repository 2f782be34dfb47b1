//! Our rate limit service for Envoy beside a bare gRPC service that always says OK, in the same runtime shape: one thread with a
//! runtime of its own, in a process of its own. Both are asked directly, over TLS, and by a real Envoy.
//!
//! Asked directly, the service has one core and the load the other. Behind Envoy, which does most of the work there, Envoy has the
//! one, and the other is for the load, for the service and for what is behind Envoy.

#[path = "rls/bare.rs"]
mod bare;
#[path = "rls/certificate.rs"]
mod certificate;
#[path = "rls/child.rs"]
mod child;
#[path = "rls/front.rs"]
mod front;
#[path = "rls/grpc.rs"]
mod grpc;
#[path = "rls/load.rs"]
mod load;
#[path = "rls/servers.rs"]
mod servers;

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use certificate::Certificate;
use child::Child;
use front::Front;
use load::{Caller, Callers, Connect, Seen};
use servers::Kind;
use tollgate_benches::{Bench, Better, Case, Contender, Goal, Options, alternate, percentile, pin_to_core};

/// The core of what is measured, and the one of those who ask.
const MEASURED_CORE: usize = 0;
const LOAD_CORE: usize = 1;

fn main() -> ExitCode {
    if let Some(served) = child::serve_if_told() {
        return served;
    }
    let options = match Options::from_env() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("rls: {message}");
            return ExitCode::from(2);
        }
    };
    let mut bench = Bench::new("rls", options);
    let (rounds, span) = if options.is_quick() { (3, 500) } else { (25, 1_000) };
    for way in Way::ALL {
        for descriptors in [1, 3] {
            for case in cases(way, descriptors, rounds, Duration::from_millis(span)) {
                bench.add(case);
            }
        }
    }
    bench.finish()
}

/// How a service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// 50 calls at a time over four connections.
    Direct,
    /// The same, and nobody on the way can read it.
    Tls,
    /// By an Envoy with one worker, on behalf of 50 callers.
    Envoy,
}

impl Way {
    const ALL: [Self; 3] = [Self::Direct, Self::Tls, Self::Envoy];

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "rls",
            Self::Tls => "rls-tls",
            Self::Envoy => "rls-envoy",
        }
    }

    /// Which part of the bare one's speed ours must have at least.
    fn least(self) -> f64 {
        match self {
            Self::Direct | Self::Tls => 0.85,
            Self::Envoy => 0.97,
        }
    }
}

fn cases(way: Way, descriptors: usize, rounds: usize, span: Duration) -> [Case; 3] {
    let name = |what: &str| format!("{}-50c-{descriptors}d-{what}", way.name());
    let at_most = |ratio: f64| Goal::ratio_at_most("tollgate", "bare-tonic", ratio);
    let mut speed = Case::new(name("speed"), "k req/s", Better::Higher).goal(Goal::ratio_at_least(
        "tollgate",
        "bare-tonic",
        way.least(),
    ));
    let mut cost = Case::new(name("cpu"), "us", Better::Lower).goal(at_most(1.25));
    let mut tail = Case::new(name("p99"), "us", Better::Lower).goal(at_most(1.2));
    let contenders = match way {
        Way::Direct => direct(None, descriptors, span),
        Way::Tls => direct(Some(Certificate::new()), descriptors, span),
        Way::Envoy => behind_envoy(descriptors, span),
    };
    alternate(rounds, &contenders, |name, measured| {
        speed.sample(name, measured.thousands_per_second);
        cost.sample(name, measured.cpu_us);
        tail.sample(name, measured.p99_us);
    });
    [speed, cost, tail]
}

type Contenders = Vec<Contender<'static, Measured>>;

fn direct(certificate: Option<Certificate>, descriptors: usize, span: Duration) -> Contenders {
    let certificate = Rc::new(certificate);
    let contender = |kind: Kind| -> Contender<'static, Measured> {
        let service = Child::start(kind, MEASURED_CORE, (*certificate).as_ref());
        let certificate = Rc::clone(&certificate);
        let run = move || {
            let connect = grpc::connect(service.port(), (*certificate).as_ref(), descriptors);
            measured(&service, connect, span)
        };
        (kind.name(), Box::new(run))
    };
    Kind::CONTENDERS.map(contender).into()
}

fn behind_envoy(descriptors: usize, span: Duration) -> Contenders {
    let services = Kind::CONTENDERS.map(|kind| Child::start(kind, LOAD_CORE, None));
    let front = Rc::new(Front::start(services.each_ref().map(Child::port)));
    let contender = |(kind, service, door): (Kind, Child, u16)| -> Contender<'static, Measured> {
        let front = Rc::clone(&front);
        let run = move || {
            let _open = &front;
            measured(&service, front::connect(door, descriptors), span)
        };
        (kind.name(), Box::new(run))
    };
    let each = Kind::CONTENDERS.into_iter().zip(services).zip(front.doors());
    each.map(|((kind, service), door)| contender((kind, service, door))).collect()
}

struct Measured {
    thousands_per_second: f64,
    /// Of the service, for each request.
    cpu_us: f64,
    p99_us: f64,
}

fn measured<C: Caller>(service: &Child, connect: impl Connect<C>, span: Duration) -> Measured {
    pin_to_core(LOAD_CORE);
    let mut callers = Callers::new(connect);
    callers.run(span / 4); // warm
    let before = service.cpu();
    let Seen { mut latencies_us, wall } = callers.run(span);
    let cpu = service.cpu().saturating_sub(before);
    latencies_us.sort_by(f64::total_cmp);
    let calls = latencies_us.len() as f64;
    Measured {
        thousands_per_second: calls / wall.as_secs_f64() / 1e3,
        cpu_us: cpu.as_secs_f64() * 1e6 / calls,
        p99_us: percentile(&latencies_us, 0.99),
    }
}
