//! A limiter at work: what each algorithm makes of the same traffic, and a queue that keeps its pace.
//!
//! `cargo run --release --example quickstart`

use std::time::Duration;

use tollgate::{Clock, Kind, Limiter, ManualClock, Quota};

fn main() {
    compare_algorithms();
    wait_in_line();
}

/// The same burst of calls through every algorithm, on a clock moved by hand.
fn compare_algorithms() {
    println!("The same calls, one every 50 ms where there is a mark, through eight algorithms of 5/s:");
    println!("# admitted  . refused  ~ admitted with a delay\n");
    println!("{:>24}  |0 s                |1 s                |2 s                |3 s", "");
    for kind in Kind::ALL {
        let clock = ManualClock::new();
        let limiter = Limiter::builder(Quota::per_second(5)).kind(kind).clock(clock.clone()).build();
        let mut line = String::new();
        for call in 0..80 {
            line.push(match call {
                16..36 | 52..80 => mark(&limiter.check()),
                _ => ' ',
            });
            clock.advance(Duration::from_millis(50));
        }
        println!("{kind:>24}  {line}");
    }
    println!();
}

fn mark(decision: &tollgate::Decision) -> char {
    match decision.verdict() {
        tollgate::Verdict::Allow => '#',
        tollgate::Verdict::Delay => '~',
        tollgate::Verdict::Deny => '.',
    }
}

/// Waiting in real time: two at once, then ten a second.
fn wait_in_line() {
    println!("8 threads wait for 10/s with a burst of 2:\n");
    let limiter = Limiter::new(Quota::per_second(10).burst(2));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match limiter.wait().within(Duration::from_secs(2)).block() {
                Ok(turn) => println!(
                    "  {:>4} ms  my turn; {} left",
                    turn.act_time().as_nanos() / 1_000_000,
                    turn.decision().remaining()
                ),
                Err(error) => println!("  refused: {error}"),
            });
        }
    });
    let refused = limiter.check();
    let now = limiter.clock().now().as_nanos() / 1_000_000;
    println!("  {now:>4} ms  one too many: come back in {:?}", refused.retry_after().unwrap_or_default());
}
