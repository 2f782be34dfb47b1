//! Words that a policy chooses between.

use std::fmt;

use serde::Serialize;

/// Whether a limit decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It counts, and what it would have refused is told, but it refuses nothing.
    Shadow,
    /// As if it were not there.
    Off,
}

impl Mode {
    /// Every mode there is.
    pub const ALL: [Self; 3] = [Self::Enforce, Self::Shadow, Self::Off];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a limit decides while its store is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStoreFailure {
    /// Each process decides by itself, by its own counts.
    #[default]
    Local,
    /// Every call is allowed.
    Allow,
    /// Every call is denied.
    Deny,
}

/// How a limit treats a bad value: a cost that is not a whole number, or an expression that fails although its fields are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadValue {
    /// The value counts as absent: the call costs what it would without the cost field, and a limit whose expression fails does
    /// not apply.
    #[default]
    Default,
    /// The call is denied.
    Deny,
}

/// The decision for a call that no limit of its domain applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// The call is allowed.
    #[default]
    Allow,
    /// The call is denied.
    Deny,
}

impl OnStoreFailure {
    /// Every choice there is.
    pub const ALL: [Self; 3] = [Self::Local, Self::Allow, Self::Deny];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl OnBadValue {
    /// Every choice there is.
    pub const ALL: [Self; 2] = [Self::Default, Self::Deny];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Deny => "deny",
        }
    }
}

impl Unmatched {
    /// Every choice there is.
    pub const ALL: [Self; 2] = [Self::Allow, Self::Deny];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for OnStoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for OnBadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
