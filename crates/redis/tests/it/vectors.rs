//! The golden vectors of core, replayed by the scripts in a real server.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::store::{Hit, Mode, Rule, Store};
use tollgate::{Decision, Kind, ManualClock, Tick};
use tollgate_redis::{RedisLimit, RedisPermit, RedisStore};
use tollgate_sim::vectors::{self, Said, Step, Vector, What};
use tollgate_testkit::Redis;

fn kept(kind: Kind) -> Vec<Vector> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/vectors");
    let file = File::open(folder.join(format!("{kind}.jsonl"))).expect("cargo xtask vectors makes them");
    vectors::read(BufReader::new(file)).expect("stories, one to a line")
}

/// A limit that lives through a story.
struct Teller {
    store: RedisStore,
    clock: ManualClock,
    limit: RedisLimit,
    key: Vec<u8>,
    /// One for each take that took something, until it is given back.
    permits: Vec<Option<(RedisPermit, u64)>>,
}

impl Teller {
    fn new(store: &RedisStore, clock: &ManualClock, kind: Kind, number: usize, story: &Vector) -> Self {
        let rule = Rule::new("vectors", "story", story.quota());
        let rule = if story.parts > 0 { rule.with_sub_windows(story.parts) } else { rule.with_kind(kind) };
        let (store, clock, permits) = (store.clone(), clock.clone(), Vec::new());
        Self { limit: store.open(&rule), store, clock, key: number.to_string().into_bytes(), permits }
    }

    fn hit(&self, cost: u64) -> [Hit<'_, RedisLimit>; 1] {
        [Hit::new(&self.limit, &self.key).costing(cost)]
    }

    async fn decide(&self, mode: Mode, cost: u64) -> Decision {
        self.store.decide(mode, &self.hit(cost)).await.expect("decided").decision()
    }

    async fn tell(&mut self, step: &Step) -> Said {
        self.clock.set(Tick::ZERO + Duration::from_micros(step.at_us));
        let decision = match step.what {
            What::Take => {
                let (answer, permit) = self.store.acquire(&self.hit(step.cost)).await.expect("decided");
                let permit = permit.filter(|_| step.cost > 0);
                self.permits.extend(permit.map(|permit| Some((permit, step.cost))));
                answer.decision()
            }
            What::Peek => self.decide(Mode::Peek, step.cost).await,
            What::Charge => self.decide(Mode::Charge, step.cost).await,
            What::Refund => self.decide(Mode::Refund, step.cost).await,
            What::GiveBack(of) => {
                let (mut permit, cost) = self.permits[of].take().expect("each is given back once");
                self.store.settle(&mut permit, &[cost - step.cost]).await.expect("settled");
                self.decide(Mode::Peek, 0).await
            }
        };
        decision.into()
    }
}

#[tokio::test]
async fn the_scripts_tell_every_story_as_core_does() {
    let (redis, clock) = (Redis::start(), ManualClock::new());
    let store = RedisStore::builder(&redis.url()).clock(clock.clone()).build().expect("a good address");
    let mut steps = 0;
    for kind in Kind::ALL {
        for (number, story) in kept(kind).iter().enumerate() {
            let mut teller = Teller::new(&store, &clock, kind, number, story);
            for (index, step) in story.steps.iter().enumerate() {
                let said = teller.tell(step).await;
                assert_eq!(said, step.answer, "{kind}, line {}, step {index}: {step:?}", number + 1);
                steps += 1;
            }
        }
    }
    assert_eq!(steps, 8 * 16 * 30);
}
