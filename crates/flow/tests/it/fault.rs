//! Faults as their users meet them: made, wrapped, shown, logged.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime};
use std::{fmt, thread};

use tollgate::{Limiter, ManualClock, Quota, WaitError};
use tollgate_flow::fault::{FaultError, Place};
use tollgate_flow::{Again, Elapsed, Fault, FaultId, OrFault};

fn refused() -> io::Error {
    ErrorKind::ConnectionRefused.into()
}

fn question_mark() -> Result<(), Fault> {
    Err(refused())?;
    Ok(())
}

fn id() -> FaultId {
    "7KQ2-M4XW-9BTD".parse().unwrap()
}

/// An error with a source, as libraries make them.
#[derive(Debug)]
struct Layered(Box<dyn Error + Send + Sync>);

impl fmt::Display for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the driver failed")
    }
}

impl Error for Layered {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

mod showing {
    use super::*;

    #[test]
    fn the_line_has_message_advice_and_id() {
        let fault = Fault::new("could not save the order").try_again(Again::Never).known_as(id());
        assert_eq!(
            fault.to_string(),
            "could not save the order; trying again will not help (fault 7KQ2-M4XW-9BTD)"
        );
    }

    #[test]
    fn what_was_not_wrapped_is_unexpected_and_its_words_are_not_shown() {
        let fault = question_mark().unwrap_err().known_as(id());
        assert!(fault.is_unexpected());
        assert_eq!(
            fault.to_string(),
            "something unexpected happened; trying again later can help (fault 7KQ2-M4XW-9BTD)"
        );
    }

    #[test]
    fn what_was_wrapped_too_late_is_still_shown_as_unexpected() {
        let fault = question_mark().or_fault("could not save the order").unwrap_err();
        assert!(fault.is_unexpected());
        assert!(fault.to_string().starts_with("could not save the order: something unexpected happened; "));
    }

    #[test]
    fn display_never_prints_trace_context_or_causes() {
        let fault =
            Err::<(), _>(refused()).or_fault("could not save").unwrap_err().with("password", "hunter2");
        let line = fault.to_string();
        assert!(
            !line.contains("hunter2") && !line.contains("refused") && !line.contains("fault.rs"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
        assert_eq!(format!("{fault:#}"), line);
    }

    #[test]
    fn a_message_that_quotes_line_breaks_stays_one_line() {
        let fault = Fault::new("no such user: x\nall is well").with("user", "x\ny");
        assert_eq!(fault.to_string().lines().count(), 1);
        assert!(format!("{fault:?}").contains(r#"user="x\ny""#));
    }

    #[test]
    fn debug_prints_the_full_record() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
        let fault = Err::<(), _>(Layered(refused().into()))
            .or_fault("the database does not answer")
            .map_err(|fault| fault.at(moment).known_as(id()).with("order", 7).with("note", "two words"))
            .or_fault("could not save the order")
            .unwrap_err();
        let text = format!("{fault:?}");
        let mut lines = text.lines();
        assert_eq!(
            lines.next().unwrap(),
            "could not save the order: the database does not answer; trying again later can help (fault 7KQ2-M4XW-9BTD)"
        );
        assert_eq!(lines.next().unwrap(), "  when     2009-02-13T23:31:30.123Z");
        let place = fault.place();
        assert_eq!(lines.next().unwrap(), format!("  where    {} (place {place})", fault.location()));
        let then = lines.next().unwrap();
        assert!(then.starts_with("  then     ") && then.ends_with(": could not save the order"), "{then}");
        assert_eq!(lines.next().unwrap(), "  context  order=7");
        assert_eq!(lines.next().unwrap(), r#"  context  note="two words""#);
        assert_eq!(lines.next().unwrap(), "  because  the driver failed");
        assert_eq!(lines.next().unwrap(), "  because  connection refused");
        let spot = fault.location().to_string().replace("crates/flow/", "");
        assert!(lines.next().unwrap().ends_with(&spot), "{text}");
    }

    #[test]
    fn a_fault_is_one_pointer_and_goes_anywhere() {
        fn anywhere<T: Send + Sync + 'static>() -> usize {
            size_of::<T>()
        }
        assert_eq!(anywhere::<Fault>(), size_of::<usize>());
        assert_eq!(anywhere::<Option<Fault>>(), size_of::<usize>());
    }
}

mod wrapping {
    use super::*;

    #[test]
    fn layers_keep_id_time_place_and_context() {
        let inner = Fault::new("the disk is full").with("disk", "sda").try_again(Again::Later);
        let (id, when, place, location) = (inner.id(), inner.when(), inner.place(), inner.location());
        let outer = Err::<(), _>(inner).or_fault("could not save").or_fault("could not serve").unwrap_err();
        let outer = outer.with("request", 9);
        assert_eq!((outer.id(), outer.when(), outer.place()), (id, when, place));
        assert_eq!(outer.location(), location);
        assert_eq!(outer.again(), Again::Later);
        assert_eq!(outer.context().collect::<Vec<_>>(), [("disk", "sda"), ("request", "9")]);
        assert!(outer.to_string().starts_with("could not serve: could not save: the disk is full; "));
    }

    #[test]
    fn the_location_is_that_of_the_caller() {
        let line = line!() + 1;
        let made = Fault::new("x");
        assert_eq!((made.location().file(), made.location().line()), (file!(), line));
        let wrapped = Err::<(), _>(refused()).or_fault("x").unwrap_err();
        assert_eq!(wrapped.location().line(), line + 2);
        let asked = (|| -> Result<(), Fault> { Ok(Err(refused())?) })().unwrap_err();
        assert_eq!(asked.location().line(), line + 4);
    }

    #[test]
    fn a_known_kind_of_error_says_whether_to_try_again() {
        let fault = Err::<(), _>(Layered(refused().into())).or_fault("x").unwrap_err();
        assert_eq!(fault.again(), Again::Later);
        let fault = Err::<(), _>("1x".parse::<u8>().unwrap_err()).or_fault("x").unwrap_err();
        assert_eq!(fault.again(), Again::Unknown);
    }

    #[test]
    fn a_fault_survives_a_box() {
        let fault = Fault::new("the disk is full").with("disk", "sda").known_as(id());
        let boxed: Box<dyn Error + Send + Sync> = fault.into();
        let back = Fault::unexpected(boxed);
        assert_eq!(back.id(), id());
        assert!(!back.is_unexpected());
        assert_eq!(back.context().count(), 1);
        let asked = (|| -> Result<(), Fault> { Err(back.into_error())? })().unwrap_err();
        assert_eq!(asked.id(), id());
    }

    #[test]
    fn a_fault_survives_inside_an_error_of_somebody_else() {
        for outside in [|e: FaultError| Layered(e.into()).into(), |e: FaultError| io::Error::other(e).into()]
        {
            let outside: fn(FaultError) -> Box<dyn Error + Send + Sync> = outside;
            let inner = Fault::new("the disk is full").with("disk", "sda").try_again(Again::Never);
            let (id, when, place) = (inner.id(), inner.when(), inner.place());
            let back = Fault::unexpected(outside(inner.into_error()));
            assert_eq!((back.id(), back.when(), back.place()), (id, when, place));
            assert_eq!(back.again(), Again::Never);
            assert_eq!(back.context().collect::<Vec<_>>(), [("disk", "sda")]);
            assert!(back.to_string().starts_with("the disk is full; trying again will not help"));
            assert!(back.find::<FaultError>().is_some(), "the whole error is the cause");
        }
    }

    #[test]
    fn sources_are_the_whole_chain() {
        let fault = Fault::new("could not save").because(Layered(refused().into()));
        let error: Box<dyn Error> = fault.into();
        let driver = error.source().unwrap();
        assert_eq!(driver.to_string(), "the driver failed");
        assert_eq!(driver.source().unwrap().to_string(), "connection refused");
        assert!(driver.source().unwrap().source().is_none());
    }

    #[test]
    fn find_looks_through_all_causes() {
        let fault = Fault::new("x").because(Layered(io::Error::other(Elapsed).into()));
        assert!(fault.find::<Elapsed>().is_some());
        assert!(fault.find::<io::Error>().is_some());
        assert!(fault.find::<fmt::Error>().is_none());
        assert!(Fault::new("x").find::<Elapsed>().is_none());
    }

    #[test]
    fn errors_made_for_people_speak_for_themselves() {
        let elapsed = Fault::from(Elapsed);
        assert!(!elapsed.is_unexpected());
        assert!(elapsed.to_string().starts_with("timed out; trying again later can help"));
        let full = Fault::from(WaitError::Full { waiting: 9 });
        assert!(full.to_string().starts_with("queue is full: 9 waiting; trying again later"));
        let limiter = Limiter::builder(Quota::per_minute(1)).clock(ManualClock::new()).build();
        limiter.reserve_n(1).unwrap();
        let refused = Fault::from(limiter.reserve_within(1, Duration::ZERO).unwrap_err());
        assert!(
            refused.to_string().starts_with("a limit is reached; trying again in 60 s can help"),
            "{refused}"
        );
        assert!(!refused.is_unexpected());
    }

    #[test]
    fn the_time_is_now_and_can_be_said() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        assert_eq!(Fault::new("x").at(moment).when(), moment);
        let year_2020 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
        assert!(Fault::new("x").when() > year_2020);
    }

    #[test]
    fn every_fault_has_an_id_of_its_own() {
        let ids: std::collections::HashSet<_> = (0..8)
            .flat_map(|_| {
                thread::spawn(|| (0..500).map(|_| Fault::untraced("x").id()).collect::<Vec<_>>())
                    .join()
                    .unwrap()
            })
            .collect();
        assert_eq!(ids.len(), 4_000);
    }
}

mod places {
    use super::*;

    #[inline(never)]
    fn fails(depth: u32) -> Place {
        if depth == 0 {
            return Fault::new("x").place();
        }
        std::hint::black_box(fails(depth - 1))
    }

    #[inline(never)]
    fn one_way() -> Place {
        std::hint::black_box(fails(0))
    }

    #[inline(never)]
    fn another_way() -> Place {
        std::hint::black_box(fails(0))
    }

    #[test]
    fn the_same_place_has_the_same_hash_each_time_and_on_each_thread() {
        let places: Vec<_> =
            (0..3).map(|_| one_way()).chain((0..3).map(|_| thread::spawn(one_way).join().unwrap())).collect();
        assert_eq!(&places[..3], &[places[0]; 3]);
        assert_eq!(&places[3..], &[places[3]; 3]);
    }

    #[test]
    fn another_way_to_the_same_line_is_another_place() {
        assert_ne!(one_way(), another_way());
    }

    #[test]
    fn another_line_is_another_place() {
        let (one, other) = (Fault::new("x").place(), Fault::new("x").place());
        assert_ne!(one, other);
        let (one, other) = (Fault::untraced("x").place(), Fault::untraced("x").place());
        assert_ne!(one, other);
    }

    #[test]
    fn the_depth_of_a_recursion_does_not_matter() {
        let [shallow, deep] = [3, 30].map(fails);
        assert_eq!(shallow, deep);
    }

    #[test]
    fn without_a_trace_the_line_alone_decides() {
        #[inline(never)]
        fn fails() -> Fault {
            Fault::untraced("x")
        }
        let (one, other) = (fails(), thread::spawn(fails).join().unwrap());
        assert_eq!(one.place(), other.place());
        assert!(!format!("{one:?}").contains("\n  in "));
    }

    #[test]
    fn a_function_pointer_hides_the_line_but_not_the_place() {
        let late: fn() -> Result<(), Elapsed> = || Err(Elapsed);
        let one = late().map_err(Fault::from).unwrap_err();
        let other = std::hint::black_box(|| late().map_err(Fault::from).unwrap_err())();
        assert_ne!(one.place(), other.place());
        assert!(format!("{one:?}").contains("/tests/it/fault.rs:"), "{one:?}");
    }

    #[test]
    fn errors_that_speak_for_themselves_come_without_a_trace() {
        for fault in [Err(Elapsed).or_fault("x").map(|(): ()| ()).unwrap_err(), Elapsed.into()] {
            assert!(!format!("{fault:?}").contains("\n  in "));
        }
    }

    #[tokio::test]
    async fn a_task_has_the_same_place_whoever_polls_it() {
        async fn fails() -> Place {
            tokio::task::yield_now().await;
            Fault::new("x").place()
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let on_worker = runtime.spawn(fails()).await.unwrap();
        let on_this = tokio::spawn(fails()).await.unwrap();
        runtime.shutdown_background();
        assert_eq!(on_worker, on_this);
    }
}

mod reporting {
    use super::*;
    use crate::log::logged;

    #[test]
    fn the_log_has_the_full_record_on_one_line() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(951_782_400);
        let fault =
            Err::<(), _>(Layered(refused().into())).or_fault("the database does not answer").unwrap_err();
        let fault = fault.at(moment).with("order", 7).with("note", "a b").known_as(id());
        let log = logged(|| {
            assert_eq!(fault.report(), fault.to_string());
        });
        assert_eq!(log.lines().count(), 1, "{log}");
        for part in [
            " WARN tollgate::fault: the database does not answer id=7KQ2-M4XW-9BTD when=2000-02-29T00:00:00.000Z",
            &format!(" place={} location={} ", fault.place(), fault.location()),
            " again=trying again later can help ",
            r#" context=order=7 note="a b" "#,
            " causes=the driver failed: connection refused ",
            "the_log_has_the_full_record_on_one_line",
        ] {
            assert!(log.contains(part), "{part:?} is not in {log}");
        }
    }

    #[test]
    fn an_unexpected_fault_is_logged_as_an_error() {
        let fault = question_mark().unwrap_err();
        let log = logged(|| {
            fault.report();
        });
        assert!(log.starts_with("ERROR tollgate::fault: something unexpected happened id="), "{log}");
        assert!(!log.contains("context="), "there is none: {log}");
        assert!(log.contains("causes=connection refused") && log.contains("question_mark"), "{log}");
    }

    #[test]
    fn a_fault_is_logged_once_however_often_it_is_reported() {
        let log = logged(|| {
            let fault = Fault::new("x");
            fault.report();
            let wrapped = Err::<(), _>(fault).or_fault("y").unwrap_err();
            wrapped.report();
            let back = Fault::unexpected(Layered(wrapped.into()));
            back.report();
        });
        assert_eq!(log.lines().count(), 1, "{log}");
    }

    #[test]
    fn nothing_is_logged_unless_it_is_reported() {
        let log = logged(|| drop(question_mark().unwrap_err().to_string()));
        assert_eq!(log, "");
    }
}
