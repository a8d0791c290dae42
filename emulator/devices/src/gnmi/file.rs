// SPDX-License-Identifier: Apache-2.0
//! What a device list says of a gNMI switch beyond what it says of every switch.

#[cfg(feature = "gnmi")]
use lightloom_gnmi::model::{ColdStartRecovery, VERSION};
use schemars::JsonSchema;
use serde::Deserialize;

#[cfg(feature = "gnmi")]
use super::GnmiSpec;
#[cfg(feature = "gnmi")]
use crate::list::SwitchFile;

/// How a switch speaks gNMI, with the OCP model of optical circuit switches.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnmiFile {
    /// Where, over TCP; port 0 takes a free one.
    pub listen: String,
    /// The direction of its ports [default: sides].
    #[serde(default)]
    pub ports: Directions,
    /// The best it can do for connections in a cold start [default: restore].
    #[serde(default)]
    pub recovery: RecoveryWord,
    /// When it finds out that a port is in use [default: at-once].
    #[serde(default)]
    pub checks: Checks,
    /// Whether a Set without an election id is taken once a master is elected [default: optional].
    #[serde(default)]
    pub arbitration: ArbitrationWord,
    /// The version of the model that it says it has [default: 0.8.0].
    #[serde(default)]
    pub model_version: Option<String>,
}

/// The direction of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Groups `in` (INPUT-ONLY) and `out` (OUTPUT-ONLY).
    #[default]
    Sides,
    /// Groups `a` and `b`, both ANY, each connected to the other.
    Any,
}

/// What becomes of connections in a cold start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryWord {
    /// They are gone.
    Remove,
    /// They are interrupted and made again.
    #[default]
    Restore,
    /// They stay.
    Maintain,
}

/// What becomes of a Set without an election id where a master is elected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ArbitrationWord {
    /// It is taken.
    #[default]
    Optional,
    /// It is denied.
    Required,
}

/// When a switch finds out that a port is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Checks {
    /// When it is asked: the whole Set is refused.
    #[default]
    AtOnce,
    /// When it carries the Set out: the connection is INVALID.
    Late,
}

#[cfg(feature = "gnmi")]
impl GnmiFile {
    /// The switch that this and the rest of its entry describe.
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
