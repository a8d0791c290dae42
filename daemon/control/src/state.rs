// SPDX-License-Identifier: Apache-2.0
//! A device from the controller's view: numbered slots, each at one position.
//!
//! | device | slot | position |
//! | --- | --- | --- |
//! | optical circuit switch | ingress port | egress port |
//! | transceiver with a switch inside | switch group | path (1.. external, 15 loopback) |
//! | Linux switch | nexthop group | alternative (0 drained, 1.. as configured) |
//!
//! Position 0 is dark (or drained). The common vocabulary lets one controller move all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;

use lightloom_units::id::{BundleId, NodeId, OcsId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A movable unit of a device: an ingress port, a switch group, a nexthop group.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Slot(pub u32);

/// The position of a slot: an egress port, a path, an alternative. 0 is dark.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u32);

impl Position {
    pub const DARK: Self = Self(0);
    /// The path of a transceiver that leads back into its node (docs/firmware-api.md).
    pub const LOOPBACK: Self = Self(15);

    #[must_use]
    pub fn is_dark(self) -> bool {
        self == Self::DARK
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_dark() { f.write_str("dark") } else { write!(f, "{}", self.0) }
    }
}

/// An operator's name for a device, such as `ocs4` or `n17/b0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Formats a slot, such as `group 0` of a transceiver or `port 3` of an optical switch.
    #[must_use]
    pub fn slot(&self, slot: Slot) -> String {
        let what = match self.0.parse::<BundleId>() {
            Ok(_) => "group",
            Err(_) if self.0.parse::<OcsId>().is_ok() => "port",
            Err(_) => "slot",
        };
        format!("{what} {slot}")
    }

    /// Returns whether a position leads out of the device: not if it is dark or a transceiver's
    /// loopback.
    #[must_use]
    pub fn leads_out(&self, position: Position) -> bool {
        let back = position == Position::LOOPBACK && self.0.parse::<BundleId>().is_ok();
        !position.is_dark() && !back
    }

    /// Formats a position, such as a transceiver's `external-1` or an optical switch's `port 26`.
    #[must_use]
    pub fn place(&self, position: Position) -> String {
        let module = self.0.parse::<BundleId>().is_ok();
        match position {
            Position::DARK => "dark".into(),
            Position::LOOPBACK if module => "loopback".into(),
            Position(path) if module => format!("external-{path}"),
            Position(port) if self.0.parse::<OcsId>().is_ok() => format!("port {port}"),
            Position(other) => format!("position {other}"),
        }
    }
}

impl From<&str> for DeviceName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for DeviceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DeviceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.into()))
    }
}

/// An absent slot is dark in an [`Observation`] and undetermined in a target.
pub type Positions = BTreeMap<Slot, Position>;

/// An end of a fibre, given as the position of the slot that selects it.
pub type FibreEnd = (DeviceName, Slot, Position);

pub type Fabric = BTreeMap<DeviceName, Positions>;

#[must_use]
pub fn at(positions: &Positions, slot: Slot) -> Position {
    positions.get(&slot).copied().unwrap_or(Position::DARK)
}

/// At least one of this many reads of a device at rest requests its neighbours.
pub const NEIGHBOURS_EVERY: u8 = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    pub positions: Positions,
    /// Completed switches since power-on, if the device counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Optical power at the output of a slot in 1/1000 dBm, if measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub power_mdbm: BTreeMap<Slot, i32>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tuning: BTreeSet<Slot>,
    /// The neighbours at the far ends, if the device can name them. At rest, only every
    /// [`NEIGHBOURS_EVERY`]th read includes them, unless a read requests them explicitly.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<Slot, String>,
    /// Lit slots that send no light according to the device, with the reason.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub shut: Box<[(Slot, Shut)]>,
    /// Nodes whose network interfaces are plugged in here and have no link.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub unlinked: Box<[NodeId]>,
}

impl Observation {
    #[must_use]
    pub fn is_shut(&self, slot: Slot) -> bool {
        self.shut.iter().any(|(shut, _)| *shut == slot)
    }
}

/// Why a lit slot sends no light, according to the device. Only `Failed` is a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shut {
    /// Its transmitters are off and its data paths active: an operator shut the port down.
    TxDisabled,
    NotActivated,
    Failed,
}

impl fmt::Display for Shut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TxDisabled => "its transmitters are off (Tx disabled)",
            Self::NotActivated => "its data paths are not activated",
            Self::Failed => "the switch reports that the circuit has failed",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Move {
    pub slot: Slot,
    pub from: Position,
    pub to: Position,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.slot, self.from, self.to)
    }
}

/// The number of a transaction, from 1, never used twice.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Txn(pub u32);

impl fmt::Display for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Neighbours {
    /// Do not request them, so that the device answers as fast as possible.
    Never,
    /// Request them if they are unknown, and periodically.
    #[default]
    Usual,
    Always,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Report the position of every slot, and measure the power of the named ones.
    Observe {
        power: Vec<Slot>,
        neighbours: Neighbours,
    },
    /// Check that `want` is possible, prepare it without moves, and report all positions.
    Arm {
        txn: Txn,
        want: Positions,
    },
    Disarm {
        txn: Txn,
    },
    Switch {
        txn: Txn,
        /// The moves. Either all go dark, or all reach a free position.
        moves: Vec<Move>,
    },
}

/// The outcome of an [`Op`]. Refused, failed and unknown are different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device reports success; for `Observe` and `Arm` with its reading.
    Done(Option<Observation>),
    Refused(String),
    /// The device reports a failed attempt; its state must be read.
    Failed(String),
    /// The answer is missing or not trustworthy, so the operation may or may not have happened.
    /// Never retried blindly.
    Unknown(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Only one slot at a time holds a position, as on an optical switch. Removals precede
    /// additions.
    Exclusive,
    Independent,
}

/// A duration or a reading of the monotonic clock, in microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    #[must_use]
    pub const fn from_millis(count: u64) -> Self {
        Self(count.saturating_mul(1000))
    }
    #[must_use]
    pub const fn from_secs(count: u64) -> Self {
        Self(count.saturating_mul(1_000_000))
    }
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add for Micros {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Micros {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Time since boot, suspend included; never goes backward within one boot.
    pub mono: Micros,
    /// Unix time in milliseconds; may jump.
    pub wall_ms: u64,
    /// Identifies the boot that `mono` counts from.
    pub boot: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_positions_have_glossary_names() {
        let named = |device: &str, slot, position| {
            let device = DeviceName::from(device);
            format!("{} at {}", device.slot(Slot(slot)), device.place(Position(position)))
        };
        assert_eq!(named("n1/b0", 0, 2), "group 0 at external-2");
        assert_eq!(named("n1/b0", 0, 15), "group 0 at loopback");
        assert_eq!(named("ocs0", 15, 26), "port 15 at port 26");
        assert_eq!(named("leaf5", 3, 1), "slot 3 at position 1");
        assert_eq!(named("ocs0", 3, 0), "port 3 at dark");
    }
}
