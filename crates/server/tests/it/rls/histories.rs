//! The same history through the service as through the library: the same decisions.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::store::{Hit, MemoryStore, Mode, Rule, Store};
use tollgate::{Decision, Kind, ManualClock, Quota};
use tollgate_server::rls::proto::{Code, RateLimitDescriptor};

use super::rig::{EVENING, Rig, costing, descriptor, request, rig, told};

/// One limit of each kind that a bucket or a window is, by a field of its own.
const LIMITS: [(&str, Kind, &str); 4] = [
    ("bucket", Kind::TokenBucket, "5/10s burst 4"),
    ("fixed", Kind::FixedWindow, "4/10s"),
    ("paced", Kind::PacedWindow, "6/10s"),
    ("log", Kind::SlidingLog, "3/7s"),
];

#[derive(Clone, Debug)]
struct Asked {
    limit: usize,
    key: u8,
    hits: u64,
    is_negative: bool,
}

fn history() -> impl Strategy<Value = Vec<(u64, Vec<Asked>)>> {
    let asked = (0..LIMITS.len(), 0..2u8, 0..5u64, prop::bool::weighted(0.2))
        .prop_map(|(limit, key, hits, is_negative)| Asked { limit, key, hits, is_negative });
    prop::collection::vec((0..4_000u64, prop::collection::vec(asked, 1..4)), 1..40)
}

fn policy_text() -> String {
    let limit = |(name, kind, rate): &(&str, Kind, &str)| {
        format!("[limit.{name}]\nkey = \"{name}\"\nrate = \"{rate}\"\nalgorithm = \"{kind}\"\n")
    };
    format!("domain = \"d\"\n{}", LIMITS.iter().map(limit).collect::<String>())
}

/// The library, asked as the service should ask it: what is given back first, then what is looked at, then what is taken
/// together if nothing of all that refuses.
struct Library {
    store: MemoryStore<ManualClock>,
    clock: ManualClock,
}

impl Library {
    fn new() -> Self {
        let clock = ManualClock::starting_at(EVENING);
        Self { store: MemoryStore::builder().clock(clock.clone()).build(), clock }
    }

    fn rule(limit: usize) -> Rule {
        let (name, kind, rate) = LIMITS[limit];
        Rule::new("d", name, rate.parse::<Quota>().unwrap()).with_kind(kind)
    }

    fn decide(&self, mode: Mode, asked: &[&Asked], cost: impl Fn(&Asked) -> u64) -> Vec<Decision> {
        let limits: Vec<_> = asked.iter().map(|asked| self.store.open(&Self::rule(asked.limit))).collect();
        let keys: Vec<[u8; 1]> = asked.iter().map(|asked| [b'a' + asked.key]).collect();
        let hits: Vec<_> = (limits.iter().zip(&keys).zip(asked))
            .map(|((limit, key), asked)| Hit::new(limit, key).costing(cost(asked)))
            .collect();
        let answer = self.store.decide(mode, &hits).into_inner().unwrap();
        answer.each().iter().map(|said| said.decision).collect()
    }

    /// Whether each is admitted, in order, and whether all is.
    fn ask(&self, call: &[Asked]) -> (bool, Vec<bool>) {
        // In runs, as neighbours of one kind are decided in one go.
        let mut admitted = vec![true; call.len()];
        let indices = |test: &dyn Fn(&Asked) -> bool| -> Vec<usize> {
            (0..call.len()).filter(|&at| test(&call[at])).collect()
        };
        let is_look = |asked: &Asked| !asked.is_negative && asked.hits == 0;
        let mut at = 0;
        while at < call.len() {
            let kind = |asked: &Asked| (asked.is_negative, is_look(asked));
            let apart = |asked: &Asked| asked.is_negative || is_look(asked);
            if !apart(&call[at]) {
                at += 1;
                continue;
            }
            // Those that are taken do not come between neighbours.
            let run: Vec<usize> = (at..call.len())
                .filter(|&other| apart(&call[other]))
                .take_while(|&other| kind(&call[other]) == kind(&call[at]))
                .collect();
            let asked: Vec<&Asked> = run.iter().map(|&place| &call[place]).collect();
            let mode = if call[at].is_negative { Mode::Refund } else { Mode::Peek };
            let decisions = self.decide(mode, &asked, |asked| if asked.is_negative { asked.hits } else { 1 });
            for (&place, decision) in run.iter().zip(decisions) {
                admitted[place] = decision.is_admitted();
            }
            at = run.last().unwrap() + 1;
        }
        let takes = indices(&|asked: &Asked| !asked.is_negative && asked.hits > 0);
        let asked: Vec<&Asked> = takes.iter().map(|&place| &call[place]).collect();
        let mode = if admitted.iter().all(|admitted| *admitted) { Mode::Take } else { Mode::Peek };
        for (&place, decision) in takes.iter().zip(self.decide(mode, &asked, |asked| asked.hits)) {
            admitted[place] = decision.is_admitted();
        }
        (admitted.iter().all(|admitted| *admitted), admitted)
    }
}

fn descriptors(call: &[Asked]) -> Vec<RateLimitDescriptor> {
    let one = |asked: &Asked| {
        let key = char::from(b'a' + asked.key).to_string();
        let is_negative_hits = asked.is_negative;
        let descriptor = costing(asked.hits, descriptor(&[(LIMITS[asked.limit].0, &key)]));
        RateLimitDescriptor { is_negative_hits, ..descriptor }
    };
    call.iter().map(one).collect()
}

async fn agrees(rig: &Rig<MemoryStore<ManualClock>>, history: &[(u64, Vec<Asked>)]) {
    let library = Library::new();
    for (step, (pause, call)) in history.iter().enumerate() {
        rig.clock.advance(Duration::from_millis(*pause));
        library.clock.advance(Duration::from_millis(*pause));
        let response = rig.ask(request("d", &descriptors(call))).await.unwrap();
        let (all, each) = library.ask(call);
        let codes: Vec<bool> = response.statuses.iter().map(|status| told(status).0 == Code::Ok).collect();
        assert_eq!((response.overall_code() == Code::Ok, codes), (all, each), "step {step}: {call:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_service_decides_as_the_library_does(history in history()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { agrees(&rig(&policy_text()), &history).await });
    }
}
