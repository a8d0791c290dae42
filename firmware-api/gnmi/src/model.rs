// SPDX-License-Identifier: Apache-2.0
//! The OCP model of optical circuit switches: modules, version, names of nodes and of states.
//!
//! Published as a strawman (revision 2026-08-28). As published the connections module does not compile: the key
//! leaf `name` of the configuration list `port-connection` is marked `config false` (RFC 6020, 7.8.2 asks for the
//! same `config` as its list). Here it is read as every other OpenConfig list has it: a reference to `config/name`
//! that can be written as the key of a path. docs/hardware.md has this as a report for the authors.

use std::fmt;
use std::str::FromStr;

/// The version that this was written for.
pub const VERSION: &str = "0.8.0";
/// The modules of the model; the first has the switch, the second its connections, the third its ports.
pub const MODULES: [&str; 3] =
    ["ocp-ocs-optical-switch", "ocp-ocs-optical-switch-connections", "ocp-ocs-optical-switch-port"];
/// The module of the components that the ports are.
pub const PLATFORM: &str = "openconfig-platform";
/// Who publishes the model.
pub const ORGANIZATION: &str = "Open Compute Project";

/// How a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionStatus {
    /// Established.
    Connected,
    /// Being established.
    PendingConnection,
    /// Being removed.
    PendingDeletion,
    /// Valid, and broken.
    Failed,
    /// In conflict with another.
    Invalid,
}

impl ConnectionStatus {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Connected,
        Self::PendingConnection,
        Self::PendingDeletion,
        Self::Failed,
        Self::Invalid,
    ];

    /// As the model spells it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Connected => "CONNECTED",
            Self::PendingConnection => "PENDING_CONNECTION",
            Self::PendingDeletion => "PENDING_DELETION",
            Self::Failed => "FAILED",
            Self::Invalid => "INVALID",
        }
    }
}

impl fmt::Display for ConnectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for ConnectionStatus {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|status| status.word() == text);
        known.ok_or_else(|| format!("`{text}` is not a status of a connection"))
    }
}

/// What becomes of connections in a cold start, least harm last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColdStartRecovery {
    /// They are gone.
    #[default]
    Remove,
    /// They are interrupted and made again.
    Restore,
    /// They stay, and light goes on.
    Maintain,
}

impl ColdStartRecovery {
    /// As the model spells it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Remove => "REMOVE",
            Self::Restore => "RESTORE",
            Self::Maintain => "MAINTAIN",
        }
    }
}

impl FromStr for ColdStartRecovery {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Remove, Self::Restore, Self::Maintain];
        let known = known.into_iter().find(|recovery| recovery.word() == text);
        known.ok_or_else(|| format!("`{text}` is not one of REMOVE, RESTORE, MAINTAIN"))
    }
}
