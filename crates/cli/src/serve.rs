//! `tollgate serve`: serves decisions until a signal stops it.

mod doors;
mod example;
mod files;
mod greeting;
mod guard;
mod memory;
mod redis;
mod signals;

use std::fmt::Display;
use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tollgate_flow::Time;
use tollgate_policy::Policy;
use tollgate_server::{
    DecisionLog, Engine, EngineOptions, LoggedCalls, Origin, PolicyPath, Reloader, Running, Server, Snapshots,
};

use crate::failure::Failure;
use crate::settings::{Compat, Decisions, Log, LoggedKeys, Resolved, Settings, Store};
use crate::{log, output, policy};
use guard::Guard;
use signals::{Signals, Told};

/// Serves with these settings until a signal stops it.
pub(crate) fn run(resolved: &Resolved) -> Result<(), Failure> {
    let settings = &resolved.settings;
    let _written = log::start(&settings.log).map_err(cannot_start("the log thread"))?;
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
        options = options.envoy_statistics(settings.metrics.near_limit_ratio.0);
    }
    let engine = Engine::with_options(store, policy, origin, options);
    let guard = Guard::new(settings)?;
    let mut server = server(&engine, &guard, settings);
    let doors = doors::open(&mut server, &guard, settings)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(cannot_start("the runtime"))?;
    let _inside = runtime.enter();
    // Before the greeting: its reader may send a signal at once.
    let mut signals = Signals::new()
        .map_err(|error| Failure::Failed(format!("cannot install signal handlers: {error}")))?;
    let reloaders = reloaders(&engine, &guard, settings).map_err(cannot_start("watching files"))?;
    let running = server.start().map_err(cannot_start("the workers"))?;
    output::print(&greeting::greeting(&engine, &doors, settings))?;
    let signal = runtime.block_on(until_stopped(&mut signals, &reloaders));
    drop(reloaders);
    running.leave();
    if let Some(delay) = settings.drain_delay {
        tracing::info!(signal, ?delay, "received signal, serving until the delay ends; /readyz answers 503");
        runtime.block_on(wait_before_closing(delay, &mut signals));
    }
    let connections = running.connections();
    tracing::info!(signal, connections, "received signal, draining connections");
    runtime.block_on(close(running, snapshots, settings.drain, &mut signals))
}

/// Returns a function that turns an error into a failure that names what cannot start.
fn cannot_start<E: Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Failed(format!("cannot start {what}: {error}"))
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

/// Returns the path of the policy, or `None` for the built-in policy.
fn policy_path(settings: &Settings) -> Option<PolicyPath> {
    settings.policy.as_ref().map(|path| PolicyPath::from(path).merging_domains(settings.merge_domains))
}

/// Starts watching the files of the policy, certificates and keys.
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

/// Waits for a signal to stop and returns its name.
async fn until_stopped(signals: &mut Signals, reloaders: &[Reloader]) -> &'static str {
    loop {
        match signals.next().await {
            Told::Stop(signal) => return signal,
            Told::Reload if reloaders.is_empty() => {
                tracing::info!("SIGHUP ignored: the built-in policy has no file to reload");
            }
            Told::Reload => reloaders.iter().for_each(Reloader::reload),
        }
    }
}

/// Waits for `delay`, or until a second signal to stop.
async fn wait_before_closing(delay: Duration, signals: &mut Signals) {
    let again = async { while signals.next().await == Told::Reload {} };
    tokio::select! {
        () = Time::tokio().sleep(delay) => {}
        () = again => {}
    }
}

/// Drains connections and saves counters, unless a second signal to stop arrives.
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
        finished = told => finished.unwrap_or_else(|_| Err("cannot stop cleanly: a thread panicked".to_owned())),
        signal = again => Err(format!("stopped by a second {signal} before all connections finished")),
    }
    .map_err(Failure::Failed)
}

fn finish(running: Running, snapshots: Option<Snapshots>, patience: Duration) -> Result<(), String> {
    let left = running.drain(patience).map_err(|error| format!("cannot stop cleanly: {error}"))?;
    if left > 0 {
        tracing::warn!(connections = left, "closed connections that did not finish within drain");
    }
    let saved = snapshots.map(Snapshots::finish).transpose();
    if let Some(keys) = saved.map_err(|error| format!("cannot save counters: {error}"))? {
        tracing::info!(keys, "saved counters");
    }
    tracing::info!("stopped");
    Ok(())
}
