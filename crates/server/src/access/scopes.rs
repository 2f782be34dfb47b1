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
    /// Looking at limits, keys, policy and metrics, and resetting keys.
    Admin,
}

impl Scope {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Check, Self::Hold, Self::Settle, Self::Admin];

    /// As files and messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Hold => "hold",
            Self::Settle => "settle",
            Self::Admin => "admin",
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
        known.ok_or_else(|| format!("there is no scope {text:?}: there are check, hold, settle and admin"))
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

    /// These.
    pub const fn of(scopes: &[Scope]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < scopes.len() {
            bits |= 1 << scopes[at] as u8;
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
