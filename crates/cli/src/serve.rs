//! Serving decisions until it is told to stop.

mod doors;
mod example;
mod files;
mod greeting;
mod guard;
mod memory;
mod redis;
mod signals;

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tollgate_flow::{OrFault, Time};
use tollgate_policy::Policy;
use tollgate_server::{
    DecisionLog, Engine, EngineOptions, LoggedCalls, NEAR_LIMIT_RATIO, Origin, PolicyPath, Reloader, Running,
    Server, Snapshots,
};

use crate::failure::Failure;
use crate::settings::{Compat, Decisions, Log, LoggedKeys, Resolved, Settings, Store};
use crate::{log, output, policy};
use guard::Guard;
use signals::{Signals, Told};

/// Serves by these settings.
pub(crate) fn run(resolved: &Resolved) -> Result<(), Failure> {
    let settings = &resolved.settings;
    let _written = log::start(&settings.log).or_fault("cannot start")?;
    resolved.hints.iter().for_each(|hint| tracing::warn!("{hint}"));
    let policy = policy::read(policy_path(settings)).map_err(Failure::failed)?;
    match &settings.store {
        Store::Memory => {
            let (store, snapshots) = memory::open(settings)?;
            let options = memory::options(&store, &settings.memory);
            serve(store, options, snapshots, policy, settings)
        }
        Store::Redis(address) => {
            let shared = redis::open(address, settings)?;
            let options = memory::options_without_store(&settings.memory);
            let Some(leased) = shared.leased(settings) else {
                return serve(
                    redis::guarded(shared.store.clone(), settings),
                    options,
                    None,
                    policy,
                    settings,
                );
            };
            let served = serve(redis::guarded(leased.clone(), settings), options, None, policy, settings);
            shared.give_back(&leased);
            served
        }
    }
}

fn serve<S: tollgate::store::Store>(
    store: S,
    options: EngineOptions,
    snapshots: Option<Snapshots>,
    (policy, origin): (Policy, Origin),
    settings: &Settings,
) -> Result<(), Failure> {
    let mut options = options.decision_log(decision_log(&settings.log));
    if settings.metrics.compat.is_some_and(|compat| compat.0 == Compat::Envoy) {
        options = options.envoy_statistics(NEAR_LIMIT_RATIO);
    }
    let engine = Engine::with_options(store, policy, origin, options);
    let guard = Guard::new(settings)?;
    let mut server = server(&engine, &guard, settings);
    let doors = doors::open(&mut server, &guard, settings)?;
    let runtime = Builder::new_current_thread().enable_all().build().or_fault("cannot start")?;
    let _inside = runtime.enter();
    // Before it is told where it listens: whoever reads that may send one at once.
    let mut signals = Signals::new().or_fault("cannot listen to signals")?;
    let reloaders = reloaders(&engine, &guard, settings).or_fault("cannot start")?;
    let running = server.start().or_fault("cannot start")?;
    output::print(&greeting::greeting(&engine, &doors, settings))?;
    let signal = runtime.block_on(until_stopped(&mut signals, &reloaders));
    drop(reloaders);
    running.leave();
    if let Some(delay) = settings.drain_delay {
        tracing::info!(
            signal,
            ?delay,
            "told to stop: /readyz answers 503, and the listeners close after the delay"
        );
        runtime.block_on(wait_before_closing(delay, &mut signals));
    }
    let connections = running.connections();
    tracing::info!(
        signal,
        connections,
        "told to stop: nobody is let in any more, and what was begun is finished"
    );
    runtime.block_on(close(running, snapshots, settings.drain, &mut signals))
}

fn decision_log(log: &Log) -> DecisionLog {
    let calls = match log.decisions.0 {
        Decisions::Off => LoggedCalls::Off,
        Decisions::Denied => LoggedCalls::Denied,
        Decisions::All => LoggedCalls::All,
    };
    let decisions = DecisionLog::new(calls).one_in(log.decisions_one_in.0);
    match log.keys.0 {
        LoggedKeys::Hashed => decisions,
        LoggedKeys::Clear => decisions.with_clear_keys(),
    }
}

fn server<S: tollgate::store::Store>(engine: &Engine<S>, guard: &Guard, settings: &Settings) -> Server<S> {
    let server = Server::new(engine.clone()).keys(guard.keys());
    match settings.workers.get() {
        0 => server,
        workers => server.workers(workers),
    }
}

/// Where the policy is; none is the built-in one.
fn policy_path(settings: &Settings) -> Option<PolicyPath> {
    settings.policy.as_ref().map(|path| PolicyPath::from(path).merging_domains(settings.merge_domains))
}

/// What follows the files that are read: the policy, certificates, keys.
fn reloaders<S: tollgate::store::Store>(
    engine: &Engine<S>,
    guard: &Guard,
    settings: &Settings,
) -> io::Result<Vec<Reloader>> {
    let mut all = guard.reloaders(settings)?;
    if let Some(path) = policy_path(settings) {
        all.push(Reloader::start(engine.clone(), path)?);
    }
    Ok(all)
}

/// Which signal it was.
async fn until_stopped(signals: &mut Signals, reloaders: &[Reloader]) -> &'static str {
    loop {
        match signals.next().await {
            Told::Stop(signal) => return signal,
            Told::Reload if reloaders.is_empty() => {
                tracing::info!("SIGHUP: the policy is built in, there is no file to load again");
            }
            Told::Reload => reloaders.iter().for_each(Reloader::reload),
        }
    }
}

/// Waits so long, or until it is told to stop once more.
async fn wait_before_closing(delay: Duration, signals: &mut Signals) {
    let again = async { while signals.next().await == Told::Reload {} };
    tokio::select! {
        () = Time::tokio().sleep(delay) => {}
        () = again => {}
    }
}

/// Finishes everything, unless it is told a second time.
async fn close(
    running: Running,
    snapshots: Option<Snapshots>,
    patience: Duration,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || _ = tell.send(finish(running, snapshots, patience)));
    let again = async {
        loop {
            if let Told::Stop(signal) = signals.next().await {
                return signal;
            }
        }
    };
    tokio::select! {
        finished = told => finished.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))),
        signal = again => Err(io::Error::other(format!("{signal}, the second: not all was finished"))),
    }
    .map_err(|error| Failure::Failed(format!("did not end well: {error}")))
}

fn finish(running: Running, snapshots: Option<Snapshots>, patience: Duration) -> io::Result<()> {
    let left = running.drain(patience)?;
    if left > 0 {
        tracing::warn!(connections = left, "these did not end in time and were cut off");
    }
    if let Some(keys) = snapshots.map(Snapshots::finish).transpose()? {
        tracing::info!(keys, "the counters have been saved");
    }
    tracing::info!("stopped");
    Ok(())
}
