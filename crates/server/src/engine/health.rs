//! Whether the store answers.

use std::time::Duration;

use tokio::sync::Mutex;
use tollgate::Tick;
use tollgate::store::Store;
use tollgate_flow::Time;

/// How long an answer is shared between probes.
const FRESH: Duration = Duration::from_secs(1);

/// When the store was last asked, and whether it answered. Probes that come meanwhile wait for the same answer, so that however
/// many there are, they cost the store one request a second.
#[derive(Debug, Default)]
pub(super) struct StoreHealth(Mutex<Option<(Tick, bool)>>);

impl StoreHealth {
    pub(super) async fn answers<S: Store>(&self, store: &S, time: &Time) -> bool {
        let mut last = self.0.lock().await;
        if let Some((asked, answers)) = *last
            && time.now().since(asked) < FRESH
        {
            return answers;
        }
        let answers = store.usage().await.is_ok();
        *last = Some((time.now(), answers));
        answers
    }
}
