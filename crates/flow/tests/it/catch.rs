//! Panics become faults.

use std::future::{Future, pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use tollgate_flow::fault::Panicked;
use tollgate_flow::{Fault, catch};

/// Raises a panic without the hook's noise on standard error.
fn quietly(payload: impl std::any::Any + Send) -> ! {
    resume_unwind(Box::new(payload))
}

fn said(fault: &Fault) -> String {
    assert!(fault.is_unexpected());
    assert!(fault.to_string().starts_with("something unexpected happened; trying again may or may not help"));
    fault.find::<Panicked>().unwrap().to_string()
}

#[tokio::test]
async fn a_panic_becomes_a_fault_and_a_value_stays_one() {
    assert_eq!(catch(async { 7 }).await.unwrap(), 7);
    let line = line!() + 1;
    let fault = catch(async { quietly("no more tea") }).await.map(|(): ()| ()).unwrap_err();
    assert_eq!(said(&fault), "panicked: no more tea");
    assert_eq!(fault.location().line(), line, "the place is where it was caught");
}

#[tokio::test]
async fn a_panic_after_an_await_becomes_a_fault() {
    let job = async {
        tokio::task::yield_now().await;
        quietly(String::from("later"))
    };
    assert_eq!(said(&catch(job).await.map(|(): ()| ()).unwrap_err()), "panicked: later");
}

#[tokio::test]
async fn a_panic_without_text_becomes_a_fault() {
    let fault = catch(async { quietly(7_u8) }).await.map(|(): ()| ()).unwrap_err();
    assert_eq!(said(&fault), "panicked: a value that is not text");
}

#[test]
fn a_panicked_thread_becomes_a_fault() {
    let payload = thread::spawn(|| quietly("boom")).join().map(|(): ()| ()).unwrap_err();
    assert_eq!(said(&Fault::panicked(payload)), "panicked: boom");
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            quietly("the bomb");
        }
    }
}

#[tokio::test]
async fn a_payload_that_panics_when_dropped_is_contained() {
    let fault = catch(async { quietly(Bomb) }).await.map(|(): ()| ()).unwrap_err();
    assert_eq!(said(&fault), "panicked: a value that is not text");
}

#[tokio::test]
async fn a_future_that_panics_again_when_dropped_is_contained() {
    let bomb = Bomb;
    let fault = catch(poll_fn(move |_| -> Poll<()> {
        let _ = &bomb;
        quietly("the first")
    }))
    .await
    .unwrap_err();
    assert_eq!(said(&fault), "panicked: the first");
}

#[test]
fn the_future_is_dropped_at_once_after_its_panic() {
    let held = Arc::new(());
    let inside = Arc::clone(&held);
    let mut caught = pin!(catch(poll_fn(move |_| -> Poll<()> {
        let _ = &inside;
        quietly("x")
    })));
    let mut context = Context::from_waker(Waker::noop());
    assert!(caught.as_mut().poll(&mut context).is_ready());
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(matches!(caught.as_mut().poll(&mut context), Poll::Ready(Err(_))), "no hang, no panic");
}

#[test]
fn dropping_it_midway_drops_the_future() {
    let held = Arc::new(());
    let inside = Arc::clone(&held);
    let mut caught = Box::pin(catch(async move {
        pending::<()>().await;
        drop(inside);
    }));
    assert!(caught.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(caught);
    assert_eq!(Arc::strong_count(&held), 1);
}
