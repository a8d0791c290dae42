// SPDX-License-Identifier: Apache-2.0

use lightloom_gnmi::model::{ColdStartRecovery, VERSION};
use schemars::JsonSchema;
use serde::Deserialize;

use super::GnmiSpec;
use crate::list::SwitchFile;

/// gNMI settings of a switch with the OCP model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiFile {
    /// TCP address; port 0 selects a free one.
    pub listen: String,
    /// Directions of the ports [default: sides].
    #[serde(default)]
    pub ports: Directions,
    /// Best supported recovery of connections after a cold start [default: restore].
    #[serde(default)]
    pub recovery: RecoveryWord,
    /// When the switch detects that a port is in use [default: at-once].
    #[serde(default)]
    pub checks: Checks,
    /// Whether a Set requires an election id once a master is elected [default: optional].
    #[serde(default)]
    pub arbitration: ArbitrationWord,
    /// Reported version of the model [default: 0.8.0].
    #[serde(default)]
    pub model_version: Option<String>,
}

/// Directions of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Groups `in` (INPUT-ONLY) and `out` (OUTPUT-ONLY).
    #[default]
    Sides,
    /// Groups `a` and `b`, both ANY, which can be connected to each other.
    Any,
}

/// Connections after a cold start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryWord {
    /// Removed.
    Remove,
    /// Interrupted and restored.
    #[default]
    Restore,
    /// Maintained without interruption.
    Maintain,
}

/// Treatment of a Set without an election id once a master is elected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArbitrationWord {
    /// Accepted.
    #[default]
    Optional,
    /// Rejected.
    Required,
}

/// When a switch detects that a port is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Checks {
    /// During validation: the whole Set is rejected.
    #[default]
    AtOnce,
    /// During execution: the connection becomes INVALID.
    Late,
}

impl GnmiFile {
    pub(crate) fn spec(&self, of: &SwitchFile) -> GnmiSpec {
        let usual = GnmiSpec::default();
        GnmiSpec {
            ingress: of.ingress,
            egress: of.egress,
            switching: of.switching.map_or(usual.switching, |span| span.0),
            command: of.command.map_or(usual.command, |span| span.0),
            boot: of.boot.map_or(usual.boot, |span| span.0),
            has_power_monitors: of.power_monitors.unwrap_or(true),
            any_direction: self.ports == Directions::Any,
            recovery: match self.recovery {
                RecoveryWord::Remove => ColdStartRecovery::Remove,
                RecoveryWord::Restore => ColdStartRecovery::Restore,
                RecoveryWord::Maintain => ColdStartRecovery::Maintain,
            },
            checks_late: self.checks == Checks::Late,
            model_version: self.model_version.clone().unwrap_or_else(|| VERSION.into()),
            needs_election: self.arbitration == ArbitrationWord::Required,
            login: of.user.clone().zip(of.password.clone()),
            epoch_seconds: usual.epoch_seconds,
        }
    }
}
