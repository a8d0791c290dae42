// SPDX-License-Identifier: Apache-2.0
//! What a device is to the controller: numbered slots, each at one position.
//!
//! | device | slot | position |
//! | --- | --- | --- |
//! | optical circuit switch | ingress port | egress port |
//! | transceiver with a switch inside | switch group | path (1.. external, 15 loopback) |
//! | Linux switch | nexthop group | alternative (0 drained, 1.. as configured) |
//!
//! Position 0 is dark (or drained). One vocabulary, so that one controller moves all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;

use lightloom_units::id::{BundleId, NodeId, OcsId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What moves on a device: an ingress port, a switch group, a nexthop group.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Slot(pub u32);

/// Where a slot stands: an egress port, a path, an alternative. 0 is dark.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u32);

impl Position {
    /// No circuit, no path, drained.
    pub const DARK: Self = Self(0);
    /// The path of a transceiver that leads back into its node (docs/firmware-api.md).
    pub const LOOPBACK: Self = Self(15);

    /// Whether no light passes.
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

/// The name an operator gave a device, such as `ocs4` or `n17/b0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(Arc<str>);

impl DeviceName {
    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What moves on it in the glossary's words: `group 0` of a transceiver, `port 3` of an optical switch.
    #[must_use]
    pub fn slot(&self, slot: Slot) -> String {
        let what = match self.0.parse::<BundleId>() {
            Ok(_) => "group",
            Err(_) if self.0.parse::<OcsId>().is_ok() => "port",
            Err(_) => "slot",
        };
        format!("{what} {slot}")
    }

    /// Whether light leaves the device there: neither dark, nor a transceiver's way back into its node.
    #[must_use]
    pub fn leads_out(&self, position: Position) -> bool {
        let back = position == Position::LOOPBACK && self.0.parse::<BundleId>().is_ok();
        !position.is_dark() && !back
    }

    /// Where it stands in the glossary's words: a transceiver's `external-1`, an optical switch's `port 26`.
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

/// Where slots stand, or should stand. A slot that is absent is dark in an [`Observation`] and
/// not spoken of in a target.
pub type Positions = BTreeMap<Slot, Position>;

/// One end of a fibre: where a slot has to stand to look into it.
pub type FibreEnd = (DeviceName, Slot, Position);

/// The positions of several devices.
pub type Fabric = BTreeMap<DeviceName, Positions>;

/// Where `slot` stands; absent means dark.
#[must_use]
pub fn at(positions: &Positions, slot: Slot) -> Position {
    positions.get(&slot).copied().unwrap_or(Position::DARK)
}

/// In so many reads in a row of a device at rest, who is at the far ends is asked at least once.
pub const NEIGHBOURS_EVERY: u8 = 8;

/// What a device said about itself in one read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Lit slots only.
    pub positions: Positions,
    /// Completed switches since power-on, where the device counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Optical power at the output of a slot in 1/1000 dBm, where measured.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub power_mdbm: BTreeMap<Slot, i32>,
    /// Slots whose light has not settled yet. Tuning is not tuned.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tuning: BTreeSet<Slot>,
    /// Who is seen at the far end, where the device can tell; at rest not asked anew with each read, but
    /// within [`NEIGHBOURS_EVERY`], or where a read asks for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<Slot, String>,
    /// Lit slots that send no light by the device's own word, and why.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub shut: Box<[(Slot, Shut)]>,
    /// Nodes whose network interfaces are plugged in here, and none of which has a link.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub unlinked: Box<[NodeId]>,
}

impl Observation {
    /// Whether this slot sends no light by its own word.
    #[must_use]
    pub fn is_shut(&self, slot: Slot) -> bool {
        self.shut.iter().any(|(shut, _)| *shut == slot)
    }
}

/// Why a slot that is lit sends no light, by the device's own word. But for a failure that is no fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shut {
    /// Its transmitters are off, its data paths go on: an operator shut the port down.
    TxDisabled,
    /// Its data paths carry nothing: they were stopped, or start.
    NotActivated,
    /// The switch has given up bringing it into line.
    Failed,
}

impl fmt::Display for Shut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TxDisabled => "its transmitters are off (Tx disabled)",
            Self::NotActivated => "its data paths are not activated",
            Self::Failed => "the switch says that the circuit has failed",
        })
    }
}

/// One slot's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Move {
    /// What moves.
    pub slot: Slot,
    /// Where it stood when the change was worked out.
    pub from: Position,
    /// Where it goes.
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

/// Whether a read asks who is at the far ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Neighbours {
    /// It does not: the read is answered as fast as a device can, where nothing else is wanted of it.
    Never,
    /// Where that is not known, and now and then.
    #[default]
    Usual,
    /// Also where it was known at the last read.
    Always,
}

/// What the controller asks of a device. Each is answered by one [`Outcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Say where every slot stands; measure the power of the slots named.
    Observe {
        /// Slots whose power matters now; the driver may measure more.
        power: Vec<Slot>,
        /// Whether to ask who is at the far ends as well.
        neighbours: Neighbours,
    },
    /// Check that `want` can be done and prepare it; move nothing; say where everything stands.
    Arm {
        /// The transaction that will fire it.
        txn: Txn,
        /// Where slots shall stand.
        want: Positions,
    },
    /// Forget what was armed.
    Disarm {
        /// The transaction that armed it.
        txn: Txn,
    },
    /// Move these slots, all of them, now.
    Switch {
        /// The transaction it belongs to.
        txn: Txn,
        /// What to move. Either all go dark, or all come from where nothing stands in the way.
        moves: Vec<Move>,
    },
}

/// How an [`Op`] ended. Refused, failed and unknown are different things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device says it is done; for `Observe` and `Arm`, what it saw.
    Done(Option<Observation>),
    /// The device said no and changed nothing, by its own word.
    Refused(String),
    /// The device said that it tried and could not: its state must be read.
    Failed(String),
    /// No answer that can be trusted: it may or may not have happened. Never retried blindly.
    Unknown(String),
}

/// How the positions of a device relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// A position is held by one slot at a time: an optical switch. Remove, then add.
    Exclusive,
    /// Each slot has positions of its own: a transceiver, a nexthop group.
    Independent,
}

/// A span or a reading of the monotonic clock, in microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// `count` milliseconds.
    #[must_use]
    pub const fn from_millis(count: u64) -> Self {
        Self(count.saturating_mul(1000))
    }
    /// `count` seconds.
    #[must_use]
    pub const fn from_secs(count: u64) -> Self {
        Self(count.saturating_mul(1_000_000))
    }
    /// As seconds, for people and metrics.
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

/// The three clocks as the edge reads them for each event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Time since boot, suspend included; never goes backward within one boot.
    pub mono: Micros,
    /// Unix time in milliseconds; may jump.
    pub wall_ms: u64,
    /// Which boot `mono` belongs to.
    pub boot: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_positions_have_the_names_of_the_glossary() {
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
