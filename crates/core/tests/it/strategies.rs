//! Numbers and quotas for property tests.

use core::time::Duration;

use proptest::prelude::*;
use tollgate_core::Quota;

/// Numbers of every size, the largest and the smallest more often than chance would have them.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    let any_size = (0..64_u32, any::<u64>()).prop_map(|(shift, number)| number >> shift);
    prop_oneof![4 => any_size, 1 => 0..4_u64, 1 => (u64::MAX - 4)..=u64::MAX]
}

pub(crate) fn quota() -> impl Strategy<Value = Quota> {
    let counted = (number(), number(), number())
        .prop_map(|(count, period, burst)| Quota::per(count, Duration::from_nanos(period)).burst(burst));
    let usual = (1..20_u64, 1..20_u64).prop_map(|(count, burst)| Quota::per_second(count).burst(burst));
    prop_oneof![2 => counted, 3 => usual, 1 => Just(Quota::UNLIMITED)]
}
