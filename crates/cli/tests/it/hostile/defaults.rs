//! The same with the default settings, where that takes seconds.

use std::thread;
use std::time::Duration;

use super::way::Way;
use super::{Client, Due, clients, start};
use crate::support::certificates::Files;

/// The default of `first_request_timeout`.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// Guards, item 1.
#[test]
fn by_default_every_listener_closes_silent_clients_after_ten_seconds() {
    let due = |_, _| Due::After(FIRST_REQUEST);
    let limit = FIRST_REQUEST + Duration::from_secs(5);
    let silent = Client { is_bare: true, limit, ..Client::new("silent", clients::stay_silent, due) };
    let half = Client { limit, ..Client::new("half a preface", clients::send_half_a_preface, due) };
    let files = Files::new();
    let services = [(start(None, &[]), None), (start(Some(&files), &[]), Some(files.caller(None)))];
    let problems: Vec<String> = thread::scope(|scope| {
        let mut running = Vec::new();
        for (service, caller) in &services {
            for (client, way) in
                [silent, half].into_iter().flat_map(|client| Way::ALL.map(|way| (client, way)))
            {
                let place = way.place(service, caller.clone());
                running.push(scope.spawn(move || {
                    let ended = client.run(place, way, 0);
                    let is_met = due(way, 0).is_met(&ended);
                    (!is_met)
                        .then(|| format!("{} {way:?}: {:?} after {:?}", client.name, ended.over, ended.after))
                }));
            }
        }
        running.into_iter().filter_map(|problem| problem.join().unwrap()).collect()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
