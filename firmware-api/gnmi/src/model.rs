// SPDX-License-Identifier: Apache-2.0
//! The OCP model for optical circuit switches, as proposed in the strawman of 2026-08-28.
//!
//! The published connections module does not compile: the key leaf `name` of the configuration list `port-connection`
//! is `config false`, but RFC 6020, 7.8.2 requires the list's `config` value. Like other OpenConfig lists, this crate
//! treats the key as a reference to `config/name`. docs/hardware.md contains a report.

use std::fmt;
use std::str::FromStr;

/// Supported version of the model.
pub const VERSION: &str = "0.8.0";
/// YANG modules for the switch, its connections and its ports.
pub const MODULES: [&str; 3] =
    ["ocp-ocs-optical-switch", "ocp-ocs-optical-switch-connections", "ocp-ocs-optical-switch-port"];
/// YANG module for the components of ports.
pub const PLATFORM: &str = "openconfig-platform";
/// Publisher of the model.
pub const ORGANIZATION: &str = "Open Compute Project";

/// Status of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionStatus {
    /// The connection is established.
    Connected,
    /// The connection is being established.
    PendingConnection,
    /// The connection is being removed.
    PendingDeletion,
    /// The connection is valid, but has failed.
    Failed,
    /// The connection conflicts with another one.
    Invalid,
}

impl ConnectionStatus {
    /// All statuses.
    pub const ALL: [Self; 5] = [
        Self::Connected,
        Self::PendingConnection,
        Self::PendingDeletion,
        Self::Failed,
        Self::Invalid,
    ];

    /// Returns the word in the model.
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
        known.ok_or_else(|| format!("`{text}` is not a connection status"))
    }
}

/// Effect of a cold start on connections, from the most to the least disruptive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColdStartRecovery {
    /// Connections are removed.
    #[default]
    Remove,
    /// Connections are interrupted and then restored.
    Restore,
    /// Connections keep passing light.
    Maintain,
}

impl ColdStartRecovery {
    /// Returns the word in the model.
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
