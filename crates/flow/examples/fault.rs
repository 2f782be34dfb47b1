//! An error's life, from a socket to the user: run it with `cargo run -p tollgate-flow --example fault`.
//!
//! Three layers, each of which says what it knows. The user sees one line with an id; the log has everything, under
//! that id.

use std::io;
use std::time::Duration;

use tollgate_flow::{Again, Fault, OrFault, Scope, Time, catch};

/// The lowest layer speaks of sockets. Its errors are nobody's business but the next layer's.
mod socket {
    use super::io;

    pub(super) fn connect(order: u32) -> io::Result<()> {
        if order.is_multiple_of(2) { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
    }
}

/// The next one speaks of the database. It says what the error means, and adds what it knows.
mod database {
    use super::{Again, Duration, Fault, OrFault, socket};

    pub(super) fn insert(order: u32) -> Result<(), Fault> {
        socket::connect(order)
            .or_fault("the database does not answer")
            .map_err(|fault| fault.with("host", "db-2").try_again(Again::After(Duration::from_secs(30))))
    }

    /// Somebody forgot to say what the error means: `?` alone. That is a bug, and it will be shown as one.
    pub(super) fn count(text: &str) -> Result<u32, Fault> {
        Ok(text.parse::<u32>()?)
    }
}

/// The top layer speaks of orders. The id, the time and the place stay those of the beginning.
fn save(order: u32) -> Result<(), Fault> {
    database::insert(order).or_fault("could not save the order").map_err(|fault| fault.with("order", order))
}

/// Where faults leave the program: logged once, here, and shown in one line.
fn answer(what: &str, result: Result<(), Fault>) {
    match result {
        Ok(()) => println!("\n{what}: done"),
        Err(fault) => println!("\n{what}: {}", fault.report()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    tracing_subscriber::fmt().init();

    answer("an order that is saved", save(7));
    answer("an order that is not", save(8));
    answer("an error that nobody wrapped", database::count("seven").map(drop));

    let job = catch(async { assert!(save(8).is_ok(), "a panic in a job") });
    answer("a job that panics", job.await);

    let time = Time::tokio();
    let scope = Scope::new(time.clone()).within(Duration::from_millis(20));
    let slow = scope.run(time.sleep(Duration::from_secs(60))).await;
    answer("a job that takes too long", slow.or_fault("could not fetch the page"));

    // A failing main prints the same record for programmers:
    println!("\n{:?}", save(8).expect_err("even orders are not saved"));
}
