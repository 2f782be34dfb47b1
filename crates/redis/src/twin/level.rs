//! Buckets and windows whose state is a height above a floor; see `lua/level.lua`.

use tollgate::{Kind, Quota};

use super::{MOST, NEVER, Standing, Twin, View, clipped, common_divisor, until, whole};

/// What a rounded rate is at least, so that less than a millionth is cut off.
const LEAST_RATE: u128 = 1 << 20;

impl Twin {
    /// A token is worth as many units as it takes for a microsecond to give a whole number of them.
    pub(super) fn bucket(self, quota: Quota) -> Self {
        let queue = |twin: Self| Self { extra: if twin.rate == 0 { 0 } else { twin.depth }, ..twin };
        let twin = Self { limit: quota.burst_size(), ..self }.line(quota);
        if twin.kind == Kind::LeakyQueue { queue(twin) } else { twin }
    }

    fn line(self, quota: Quota) -> Self {
        let (count, burst) = (quota.count(), quota.burst_size());
        if count == 0 {
            return Self { rate: 0, unit: 1, depth: burst.min(MOST), ..self };
        }
        // count / period, per microsecond, in lowest terms
        let (given, period) = (u128::from(count) * 1_000, quota.period().as_nanos());
        let divisor = divisor(given, period);
        let (rate, unit) = (given / divisor, period / divisor);
        let depth = unit.checked_mul(u128::from(burst.max(1))).filter(|depth| *depth <= MOST.into());
        match (depth, u64::try_from(rate)) {
            (Some(depth), Ok(rate)) if rate <= MOST => {
                // They fit, as the depth does.
                let (unit, depth) = (unit as u64, if burst == 0 { 0 } else { depth as u64 });
                Self { rate, depth, unit, ..self }
            }
            _ if self.kind == Kind::TokenBucket => self.rounded(rate, unit, burst.min(MOST)),
            _ => self.shallow(rate, unit, burst),
        }
    }

    /// A leaky bucket keeps its spacing to the tick, and rather holds less.
    fn shallow(self, rate: u128, unit: u128, burst: u64) -> Self {
        let most = u128::from(MOST);
        if unit > most {
            return Self { rate: 0, unit: 1, depth: burst.min(MOST), ..self }; // once in 142 years is never
        }
        // Above 2^52 a microsecond nobody notices, and all others fit.
        let (rate, unit) = (rate.min(most) as u64, unit as u64);
        let limit = burst.min(MOST / unit);
        Self { limit, rate, depth: limit * unit, unit, ..self }
    }

    /// A token of 2^f units, f as large as the depth allows, and steps of time in which a whole number of units is given. A clock
    /// that goes in steps may see one more pass than there was time for, so what that gives is taken off the depth.
    fn rounded(self, rate: u128, unit: u128, burst: u64) -> Self {
        let shift = (MOST / burst.max(1)).ilog2();
        let step = ((LEAST_RATE * unit) >> shift).div_ceil(rate).clamp(1, MOST.into());
        // Both are at most 2^52.
        let (period, rate) = (step as u64, scaled(rate * step, shift, unit).min(MOST.into()) as u64);
        let depth = (burst << shift).saturating_sub(if period > 1 { rate } else { 0 });
        Self { limit: depth >> shift, rate, depth, unit: 1 << shift, period, ..self }
    }

    pub(super) fn level_standing(&self, view: &View, cost: u64) -> Standing {
        let owed = whole(view.told[0]) + i128::from(self.size(cost));
        Standing { remaining: self.level_remaining(view, owed), reset: self.paid(view, owed) }
    }

    fn level_remaining(&self, view: &View, owed: i128) -> u64 {
        let (depth, unit) = (i128::from(self.depth), i128::from(self.unit));
        match self.kind {
            Kind::LeakyQueue if self.rate > 0 => {
                clipped(i128::from(self.limit) - owed.div_euclid(unit) - i128::from(owed % unit > 0))
            }
            Kind::LeakyBucket | Kind::LeakyQueue if owed == 0 => self.limit,
            Kind::LeakyBucket | Kind::LeakyQueue => 0,
            Kind::PacedWindow => clipped(self.released(view) - owed),
            Kind::FixedWindow => clipped(depth - owed),
            _ => clipped((depth - owed).max(0) / unit),
        }
    }

    /// How much of a paced window may be used by now.
    fn released(&self, view: &View) -> i128 {
        let passed = i128::from(view.now) - self.begin(self.tick(view.now));
        if self.depth == 0 { 0 } else { passed * i128::from(self.depth) / i128::from(self.period) + 1 }
    }

    /// Microseconds until what is owed is paid off.
    fn paid(&self, view: &View, owed: i128) -> u64 {
        match (owed, self.rate) {
            (0, _) => 0,
            (_, 0) => NEVER,
            (owed, rate) => self.after(view, ceiling(owed, rate.into())),
        }
    }

    /// Microseconds until so many of the algorithm's ticks have passed.
    fn after(&self, view: &View, ticks: i128) -> u64 {
        until(self.begin(self.tick(view.now) + ticks), view.now)
    }

    /// Microseconds until an admitted caller may act.
    pub(super) fn delay(&self, view: &View) -> u64 {
        if self.kind == Kind::LeakyQueue { self.paid(view, whole(view.told[0])) } else { 0 }
    }

    pub(super) fn level_wait(&self, view: &View, cost: u64, patient: bool) -> u64 {
        let (owed, size) = (whole(view.told[0]), i128::from(self.size(cost)));
        let excess = match self.kind {
            Kind::FixedWindow => return self.after(view, (owed + size - 1) / i128::from(self.depth.max(1))),
            Kind::PacedWindow => return self.paced_wait(view, owed, size),
            Kind::TokenBucket => owed + size - i128::from(self.depth),
            _ => owed - if patient { i128::from(self.extra) } else { 0 },
        };
        self.paid(view, excess.max(0))
    }

    /// The first window with room for it, and the moment in it at which so much is released.
    fn paced_wait(&self, view: &View, owed: i128, size: i128) -> u64 {
        let depth = i128::from(self.depth.max(1));
        let window = (owed + size - 1) / depth;
        let total = (owed.max(window * depth) + size) - window * depth;
        let begin = |window: i128| self.begin(self.tick(view.now) + window);
        // Above one a microsecond the last of a window fall due only when it is over: they go into the next.
        let due = self.due(total).map(|due| begin(window) + due);
        match due.or_else(|| self.due(size).map(|due| begin(window + 1) + due)) {
            Some(moment) => until(moment, view.now),
            None => NEVER,
        }
    }

    /// How much of a window must have passed before `total` of it may be used; `None` if it is over by then.
    fn due(&self, total: i128) -> Option<i128> {
        let due = ceiling((total - 1) * i128::from(self.period), self.depth.max(1).into());
        (due < self.period.into()).then_some(due)
    }
}

/// `number / by`, rounded up; neither is negative.
fn ceiling(number: i128, by: i128) -> i128 {
    number / by + i128::from(number % by > 0)
}

fn divisor(a: u128, b: u128) -> u128 {
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) => common_divisor(a, b).into(),
        _ if b == 0 => a,
        _ => divisor(b, a % b),
    }
}

/// `number · 2^shift / by`, rounded down, and no more than fits.
fn scaled(number: u128, shift: u32, by: u128) -> u128 {
    match number.checked_mul(1 << shift) {
        Some(product) => product / by,
        None => (number / by).saturating_mul(1 << shift),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate::store::Rule;

    use super::*;

    fn twin(quota: Quota) -> Twin {
        Twin::of(&Rule::new("d", "n", quota), quota).unwrap()
    }

    #[test]
    fn usual_quotas_are_whole_numbers() {
        let thirds = twin(Quota::per_second(3).burst(2));
        assert_eq!((thirds.rate, thirds.unit, thirds.depth, thirds.period), (3, 1_000_000, 2_000_000, 1));
        let odd = twin(Quota::per_hour(999_983)); // coprime to 3.6e9 microseconds
        assert_eq!((odd.rate, odd.unit, odd.period), (999_983, 3_600_000_000, 1));
        assert_eq!(odd.depth, 999_983 * 3_600_000_000);
        let flood = twin(Quota::per_second(2_500_000_000)); // 2500 a microsecond
        assert_eq!((flood.rate, flood.unit, flood.period), (2_500, 1, 1));
        let nanos = twin(Quota::per(5, Duration::from_nanos(7))); // 5000 / 7 a microsecond
        assert_eq!((nanos.rate, nanos.unit, nanos.depth), (5_000, 7, 35));
    }

    #[test]
    #[allow(clippy::cast_precision_loss, reason = "rates are compared to some digits")]
    fn what_does_not_fit_is_rounded_down_and_never_up() {
        let quotas = [
            Quota::per_day(999_999_999),
            Quota::per_day(1).burst(10_000_000_000),
            Quota::per_second(u64::MAX),
            Quota::per_second(u64::MAX).burst(u64::MAX),
            Quota::per(u64::MAX, Duration::from_nanos(1)),
            Quota::per(1, Duration::from_nanos(u64::MAX)).burst(u64::MAX),
            Quota::per(u64::MAX, Duration::from_nanos(u64::MAX - 1)),
        ];
        for quota in quotas {
            let twin = twin(quota);
            assert!(twin.depth <= MOST && twin.rate <= MOST && twin.period <= MOST, "{quota}: {twin:?}");
            // tokens a nanosecond: rate / (unit · period · 1000) against count / period
            let exact = quota.count() as f64 / quota.period().as_nanos() as f64;
            let given = twin.rate as f64 / twin.unit as f64 / twin.period as f64 / 1e3;
            assert!(given <= exact * (1.0 + 1e-12), "{quota}: {given} of {exact}");
        }
        let day = twin(Quota::per_day(999_999_999));
        let exact = 999_999_999_f64 / 86_400e6;
        let given = day.rate as f64 / day.unit as f64 / day.period as f64;
        assert!(given > exact * (1.0 - 1e-6), "{given} of {exact}");
        // 2^22 units are a token, so a microsecond gives 48 545.18: 22 of them give 2^20 and more.
        assert_eq!((day.unit, day.period, day.rate, day.limit), (1 << 22, 22, 1_067_994, 999_999_998));
    }

    #[test]
    fn a_leaky_bucket_holds_less_rather_than_leaking_unevenly() {
        let rule = Rule::new("d", "n", Quota::per_day(999_999_999)).with_kind(Kind::LeakyQueue);
        let leaky = Twin::of(&rule, rule.quotas()[0]).unwrap();
        // 999 999 999 and a day of 86 400 000 000 microseconds have the divisor 27.
        assert_eq!((leaky.rate, leaky.unit, leaky.period), (37_037_037, 3_200_000_000, 1));
        assert_eq!((leaky.limit, leaky.depth), (1_407_374, 1_407_374 * 3_200_000_000));
        let slow =
            Rule::new("d", "n", Quota::per(1, Duration::from_nanos(u64::MAX))).with_kind(Kind::LeakyBucket);
        assert_eq!(Twin::of(&slow, slow.quotas()[0]).unwrap().rate, 0);
    }

    #[test]
    fn no_rate_and_no_burst_are_what_they_say() {
        let zero = twin(Quota::per_second(0).burst(5));
        assert_eq!((zero.rate, zero.unit, zero.depth), (0, 1, 5));
        assert_eq!(twin(Quota::per_second(5).burst(0)).depth, 0);
    }
}
