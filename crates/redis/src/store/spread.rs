//! Limits on several servers of a cluster, decided one after the other.

use tollgate::store::StoreError;

use super::RedisStore;
use crate::call::Todo;
use crate::draft::{Draft, Tier};
use crate::permit::{Change, Taken};
use crate::twin::View;

impl RedisStore {
    /// Takes of each group in turn, narrow ones first. When one refuses, those before it get back what they gave, and those
    /// after it are only looked at.
    pub(super) async fn take_spread(
        &self,
        draft: &Draft,
        groups: &[Vec<usize>],
    ) -> Result<Vec<View>, StoreError> {
        let mut seen: Vec<Option<View>> = vec![None; draft.tiers.len()];
        let (mut taken, mut is_refused): (Vec<Taken>, bool) = (Vec::new(), false);
        for group in groups {
            let tiers: Vec<&Tier> = group.iter().map(|index| &draft.tiers[*index]).collect();
            let todo = if is_refused { Todo::Peek } else { Todo::Take };
            let views = match self.run(todo, &tiers, false).await {
                Ok(views) => views,
                Err(error) => {
                    // What cannot be given back stays taken; the first error says more than the second.
                    let _ = self.undo(&taken).await;
                    return Err(if taken.is_empty() { error } else { error.after_effect() });
                }
            };
            if !is_refused && views.iter().all(|view| view.fits) {
                let one = |(tier, view): (&&Tier, &View)| Taken::new((*tier).clone(), view);
                taken.extend(tiers.iter().zip(&views).map(one));
            } else if !is_refused {
                is_refused = true;
                let undone = self.undo(&taken).await;
                taken.clear(); // or another error would give it back again
                undone.map_err(StoreError::after_effect)?;
            }
            for (index, view) in group.iter().zip(views) {
                seen[*index] = Some(view);
            }
        }
        seen.into_iter().collect::<Option<_>>().ok_or_else(super::unexpected)
    }

    async fn undo(&self, taken: &[Taken]) -> Result<(), StoreError> {
        let paid = taken.iter().filter(|taken| taken.tier.cost > 0);
        let changes: Vec<Change<'_>> = paid.map(|taken| Change::GiveBack(taken, taken.tier.cost)).collect();
        self.settle_all(&changes).await
    }
}
