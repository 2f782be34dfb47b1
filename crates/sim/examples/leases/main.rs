//! Draws what leases cost, by their size: `cargo xtask plots`.

#![allow(clippy::cast_precision_loss, reason = "pixels are not that precise")]

mod chart;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use chart::{Chart, Series};
use tollgate_core::{Kind, Quota};
use tollgate_sim::bound::Bound;
use tollgate_sim::fleet::{Fleet, Run};

const QUOTA: Quota = Quota::per_second(10_000);
const NODES: u32 = 100;
const ONE_WAY: Duration = Duration::from_millis(10);
const SPAN: Duration = Duration::from_secs(10);
const SIZES: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
/// How many come in a second, what that is called, and its colour.
const LOADS: [(u64, &str, &str); 2] =
    [(30_000, "three times the limit", "#b3261e"), (9_000, "nine tenths of the limit", "#1f6f8b")];

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("leases: say into which file");
        return ExitCode::from(2);
    };
    let runs = LOADS.map(|(demand, ..)| SIZES.map(|lease| run(demand, lease)));
    let drawn = chart::picture(&[admitted(&runs), out(&runs), calls(&runs)]);
    if let Err(error) = std::fs::write(&path, drawn) {
        eprintln!("leases: {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(demand: u64, lease: u64) -> Run {
    let fleet = Fleet { quota: QUOTA, nodes: NODES, lease, one_way: ONE_WAY, demand, seed: 1 };
    let run = fleet.run(SPAN);
    let kept = Bound::of(Kind::TokenBucket, QUOTA).check(&run.admitted);
    assert!(kept.is_ok(), "leases of {lease}: {kept:?}");
    let (Run { asked, calls, out, possible, .. }, admitted) = (&run, run.admitted.len());
    println!("leases of {lease}: {admitted} of {possible} admitted, {out} out, {calls} calls for {asked}");
    run
}

type Runs = [[Run; SIZES.len()]; LOADS.len()];

/// One line for each load.
fn lines(runs: &Runs, value: impl Fn(&Run) -> f64) -> Vec<Series> {
    let line = |(runs, (_, name, color)): (&[Run; SIZES.len()], (u64, &'static str, &'static str))| {
        let points = SIZES.iter().zip(runs).map(|(size, run)| (*size as f64, value(run))).collect();
        Series { name: format!("demand {name}"), color, is_bound: false, points }
    };
    runs.iter().zip(LOADS).map(line).collect()
}

fn admitted(runs: &Runs) -> Chart {
    let mut series = lines(runs, |run| 100.0 * run.admitted.len() as f64 / run.possible as f64);
    let most = SIZES.map(|size| (size as f64, 100.0)).to_vec();
    series.push(Series { name: "the limit".to_owned(), color: "#444444", is_bound: true, points: most });
    Chart {
        title: "Admitted requests, in % of the limit",
        ticks: vec![90.0, 92.0, 94.0, 96.0, 98.0, 100.0],
        is_log: false,
        legend: 95.0,
        series,
    }
}

fn out(runs: &Runs) -> Chart {
    let mut series = lines(runs, |run| run.out.max(1) as f64);
    let bound = SIZES.map(|size| (size as f64, (size * u64::from(NODES)) as f64)).to_vec();
    let name = "bound: processes × lease".to_owned();
    series.push(Series { name, color: "#444444", is_bound: true, points: bound });
    Chart {
        title: "Maximum number of leased tokens",
        ticks: vec![1.0, 10.0, 100.0, 1e3, 1e4, 1e5],
        is_log: true,
        legend: 60.0,
        series,
    }
}

fn calls(runs: &Runs) -> Chart {
    Chart {
        title: "Calls to Redis per request",
        ticks: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
        is_log: false,
        legend: 0.75,
        series: lines(runs, |run| run.calls as f64 / run.asked as f64),
    }
}
