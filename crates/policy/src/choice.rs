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

/// What a limit answers when its store cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IfStoreFails {
    /// Each process goes on by itself, with what it remembers.
    #[default]
    Local,
    /// Everything passes.
    Allow,
    /// Nothing passes.
    Deny,
}

impl IfStoreFails {
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

impl fmt::Display for IfStoreFails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
