// SPDX-License-Identifier: Apache-2.0
//! The controller's view of a device: numbered slots, each of which is at one position.
//!
//! | device | slot | position |
//! | --- | --- | --- |
//! | optical circuit switch | ingress port | egress port |
//! | transceiver with an integrated switch | switch group | path (1.. external, 15 loopback) |
//! | Linux switch | nexthop group | alternative (0 drained, 1.. as configured) |
//!
//! Position 0 is dark (or drained).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;

use lightloom_units::id::{BundleId, NodeId, OcsId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Slot(pub u32);

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u32);

impl Position {
    pub const DARK: Self = Self(0);
    pub const LOOPBACK: Self = Self(15);

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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `None` if the device is a switch.
    pub fn bundle(&self) -> Option<BundleId> {
        self.0.parse().ok()
    }

    pub fn slot(&self, slot: impl fmt::Display) -> String {
        let what = match self.bundle() {
            Some(_) => "group",
            None if self.0.parse::<OcsId>().is_ok() => "port",
            None => "slot",
        };
        format!("{what} {slot}")
    }

    pub fn leads_out(&self, position: Position) -> bool {
        let back = position == Position::LOOPBACK && self.bundle().is_some();
        !position.is_dark() && !back
    }

    pub fn place(&self, position: Position) -> String {
        let module = self.bundle().is_some();
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

/// A missing slot is dark in an [`Observation`] and unspecified in a target.
pub type Positions = BTreeMap<Slot, Position>;

pub type FibreEnd = (DeviceName, Slot, Position);

pub type SwitchState = BTreeMap<DeviceName, Positions>;

pub fn at(positions: &Positions, slot: Slot) -> Position {
    positions.get(&slot).copied().unwrap_or(Position::DARK)
}

/// Maximum number of reads of an idle device between two requests for its neighbours.
pub const NEIGHBOURS_EVERY: u8 = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    pub positions: Positions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Optical power at the output of a slot in 1/1000 dBm, if measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub power_mdbm: BTreeMap<Slot, i32>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tuning: BTreeSet<Slot>,
    /// Neighbours at the far ends, if the device reports them. On an idle device, only every
    /// [`NEIGHBOURS_EVERY`]th read includes them, unless they are requested explicitly.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<Slot, String>,
    /// Slots with a circuit that do not send light according to the device, with the reason.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub shut: Box<[(Slot, Shut)]>,
    /// Nodes whose network interfaces are connected here but have no link.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub unlinked: Box<[NodeId]>,
}

impl Observation {
    pub(crate) fn is_shut(&self, slot: Slot) -> bool {
        self.shut.iter().any(|(shut, _)| *shut == slot)
    }
}

/// Why a lit slot does not send light. Only `Failed` is a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shut {
    /// An operator has shut the port down: its transmitters are off, but its data paths are active.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    pub slot: Slot,
    pub wanted: Position,
    pub observed: Position,
}

/// Transaction number, counted from 1 and never reused.
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
    /// Do not request neighbours, so that the device replies as fast as possible.
    Never,
    #[default]
    Usual,
    Always,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Observe {
        power: Vec<Slot>,
        neighbours: Neighbours,
    },
    /// Check that `want` is possible, prepare the change without moves, and report all positions.
    Arm {
        txn: Txn,
        want: Positions,
    },
    Disarm {
        txn: Txn,
    },
    Switch {
        txn: Txn,
        /// Either all slots go dark, or all move to a free position.
        moves: Vec<Move>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done(Option<Observation>),
    Refused(String),
    Failed(String),
    /// The operation may or may not have been executed, and must not be retried blindly.
    Unknown(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Only one slot at a time can use a position, so removals precede additions.
    Exclusive,
    Independent,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    pub const fn from_millis(count: u64) -> Self {
        Self(count.saturating_mul(1000))
    }
    pub const fn from_secs(count: u64) -> Self {
        Self(count.saturating_mul(1_000_000))
    }
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
    /// Time since boot, including time in suspend. It never decreases within one boot.
    pub mono: Micros,
    pub wall_ms: u64,
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
