//! Giving back: what was taken, and what has come back so far.

use tollgate_core::{Algorithm, Claim, GiveBack, Tick};

use super::{Common, Shard, algorithm_of};

/// How many accounts of returns a shard keeps.
pub(super) const ACCOUNTS: usize = 64;

/// Something taken from a key, with what is needed to give it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt {
    pub(crate) claim: Claim,
    pub(crate) plan: u32,
    /// What the key's account said when it was taken.
    pub(super) account: Account,
    pub(super) generation: u64,
}

/// How much has come back so far. Many keys share an account, which errs on the safe side: what came back for one counts
/// for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// How far states fell, all together.
    pub(super) fallen: u64,
    /// How often a state that still counted was forgotten.
    pub(super) forgotten: u64,
}

impl<A: Algorithm> Shard<A> {
    /// Gives back part of what was taken, as far as that is certain not to be handed out twice.
    pub(crate) fn give_back(
        &mut self,
        common: &Common<A>,
        print: u64,
        receipt: Receipt,
        amount: u64,
        now: Tick,
    ) {
        let number = self.up_to_date(print);
        let Some(place) = self.segments[number].find(print) else { return };
        let Some(claim) = self.worth(common, print, receipt, self.segments[number].plan(place)) else {
            return;
        };
        let is_untouched = receipt.account == account(self.accounts.as_deref(), print);
        let segment = &mut self.segments[number];
        let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
        let state = segment.state_mut(place);
        let back = GiveBack { claim, amount, ahead: self.aside.ahead };
        let Some(change) = algorithm.give_back(state, back, now) else { return };
        let is_undone = is_untouched && amount >= claim.cost && algorithm.is_last(state, &claim);
        let fall = algorithm.fall(state, &change);
        algorithm.apply(state, change);
        self.may_be_idle_sooner(common, number, place, now);
        if !is_undone {
            self.fell(common, print, fall);
        }
    }

    /// Gives back `amount` of which there is no receipt; whether anything came back.
    pub(crate) fn refund(&mut self, common: &Common<A>, print: u64, amount: u64, now: Tick) -> bool {
        let number = self.up_to_date(print);
        let Some(place) = self.segments[number].find(print) else { return false };
        let segment = &mut self.segments[number];
        let algorithm = algorithm_of(&self.algorithm, common, segment.plan(place));
        let state = segment.state_mut(place);
        let Some(change) = algorithm.refund(state, amount, now) else { return false };
        let fall = algorithm.fall(state, &change);
        algorithm.apply(state, change);
        self.may_be_idle_sooner(common, number, place, now);
        self.fell(common, print, fall);
        true
    }

    /// What a claim is worth by now.
    pub(crate) fn worth(&self, common: &Common<A>, print: u64, receipt: Receipt, plan: u32) -> Option<Claim> {
        let account = account(self.accounts.as_deref(), print);
        let still_counts =
            receipt.generation == self.generation && receipt.account.forgotten == account.forgotten;
        let algorithm = algorithm_of(&self.algorithm, common, plan);
        still_counts
            .then(|| algorithm.lowered(receipt.claim, account.fallen - receipt.account.fallen))
            .flatten()
    }

    pub(super) fn account_mut(&mut self, common: &Common<A>, print: u64) -> &mut Account {
        let accounts = self.accounts.get_or_insert_with(|| {
            common.room.grown(size_of::<[Account; ACCOUNTS]>());
            Box::new([Account::default(); ACCOUNTS])
        });
        &mut accounts[account_of(print)]
    }

    /// Adds how far a state fell. Where that is more than can be counted, nothing that was taken before comes back any more.
    pub(crate) fn fell(&mut self, common: &Common<A>, print: u64, by: u64) {
        if by > 0 {
            let account = self.account_mut(common, print);
            *account = match account.fallen.checked_add(by) {
                Some(fallen) => Account { fallen, ..*account },
                None => Account { fallen: 0, forgotten: account.forgotten + 1 },
            };
        }
    }
}

fn account_of(print: u64) -> usize {
    print as usize % ACCOUNTS
}

#[inline]
pub(super) fn account(accounts: Option<&[Account; ACCOUNTS]>, print: u64) -> Account {
    accounts.map_or(Account::default(), |accounts| accounts[account_of(print)])
}
