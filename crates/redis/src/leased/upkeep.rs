//! Looking after leases that nobody is asking for at the moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate::Tick;
use tollgate::store::StoreError;

use super::account::{Report, Why};
use super::book::Entry;
use super::call::Call;
use super::desk::Desk;
use crate::draft::Tier;
use crate::store::RedisStore;

/// How many states one call is about, so that nobody else has to wait for long.
const TOGETHER: usize = 64;

/// Gives back what nobody asks for, has what is asked for for longer, and forgets the rest.
pub(super) async fn tend(desk: &Arc<Desk>, store: &RedisStore) -> Result<(), StoreError> {
    let now = desk.now();
    if desk.is_resting(now) || !desk.is_open() {
        return Ok(());
    }
    let reports = collect(desk, now, |entry| {
        let account = &entry.account;
        if account.is_idle(now, &desk.leases) {
            Some(Why::Return)
        } else {
            account.is_ending(now, &desk.leases).then_some(Why::More)
        }
    });
    send(desk, store, now, reports).await
}

/// Stops borrowing, and gives back everything.
pub(super) async fn close(desk: &Arc<Desk>, store: &RedisStore) -> Result<(), StoreError> {
    desk.is_closed.store(true, Ordering::Relaxed);
    loop {
        let now = desk.now();
        let reports = collect(desk, now, |_| Some(Why::Return));
        let is_done = reports.is_empty();
        send(desk, store, now, reports).await?;
        if is_done && !wait(desk).await {
            return Ok(());
        }
    }
}

/// Begins a call for each account with something left that `why` gives a reason for. Those with nothing are forgotten once they
/// are idle.
fn collect(desk: &Desk, now: Tick, why: impl Fn(&Entry) -> Option<Why>) -> Vec<(Tier, Report)> {
    let mut reports = Vec::new();
    for shard in desk.book.shards() {
        shard.lock().retain(|entry, tally| {
            entry.account.expire(now, tally);
            if entry.account.is_calling() {
                return true;
            }
            if entry.account.left() == 0 {
                return entry.account.out() > 0 || !entry.account.is_idle(now, &desk.leases);
            }
            let report = why(entry).and_then(|why| desk.begin_for(&mut entry.account, why, now, tally));
            reports.extend(report.map(|report| (entry.tier.clone(), report)));
            true
        });
    }
    reports
}

/// Sends reports, many at a time.
async fn send(
    desk: &Arc<Desk>,
    store: &RedisStore,
    sent: Tick,
    mut reports: Vec<(Tier, Report)>,
) -> Result<(), StoreError> {
    if store.caller().link().is_cluster() {
        reports.sort_by_key(|(tier, _)| tier.tag);
    }
    let mut calls = Vec::new();
    while let Some((first, _)) = reports.last() {
        let tag = first.tag;
        let is_here = |(tier, _): &(Tier, Report)| tier.tag == tag || !store.caller().link().is_cluster();
        let many = reports.iter().rev().take(TOGETHER).take_while(|report| is_here(report)).count();
        calls.push(Call::about(desk, store, sent, reports.split_off(reports.len() - many)));
    }
    let mut result = Ok(());
    for call in calls {
        // One that fails does not keep the others from being tried: they end either way.
        result = result.and(call.run().await.map(drop));
    }
    result
}

/// Waits for a call that is under way; whether there was one.
async fn wait(desk: &Desk) -> bool {
    for shard in desk.book.shards() {
        let ended = shard.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        let mut is_calling = false;
        shard.lock().retain(|entry, _| {
            is_calling |= entry.account.is_calling();
            true
        });
        if is_calling {
            ended.await;
            return true;
        }
    }
    false
}
