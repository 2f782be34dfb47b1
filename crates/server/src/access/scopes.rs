//! What somebody may do.

use std::fmt;
use std::str::FromStr;

/// A kind of thing that callers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Asking whether something is allowed.
    Check,
    /// Holding what was allowed, to be settled later.
    Hold,
    /// Saying what something cost.
    Settle,
    /// Looking at limits, keys and policy, and resetting keys; includes [`Metrics`](Self::Metrics).
    Admin,
    /// Reading metrics, and nothing else.
    Metrics,
}

impl Scope {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::Check, Self::Hold, Self::Settle, Self::Admin, Self::Metrics];

    /// As files and messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Hold => "hold",
            Self::Settle => "settle",
            Self::Admin => "admin",
            Self::Metrics => "metrics",
        }
    }

    /// Its bit, and the bits of the scopes that it includes.
    const fn bits(self) -> u8 {
        match self {
            Self::Admin => 1 << Self::Admin as u8 | 1 << Self::Metrics as u8,
            other => 1 << other as u8,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|scope| scope.name() == text);
        known.ok_or_else(|| {
            format!("unknown scope {text:?}; expected one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Several of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self::of(&Scope::ALL);

    /// These, and those that they include.
    pub const fn of(scopes: &[Scope]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < scopes.len() {
            bits |= scopes[at].bits();
            at += 1;
        }
        Self(bits)
    }

    /// Whether this is among them.
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    /// Those of these that are among the others.
    #[must_use]
    pub const fn within(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// These and the others.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Scope::ALL.into_iter().filter(|scope| self.has(*scope))).finish()
    }
}
