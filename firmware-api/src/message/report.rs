// SPDX-License-Identifier: Apache-2.0

use super::TransactionId;
use crate::path::{GROUPS_MAX, GroupOutcome, Groups, Outcomes, Path, Paths};
use crate::wire::{Reader, Writer};

/// Identity and capabilities of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Oldest and newest supported protocol version.
    pub versions: (u8, u8),
    /// Vendor name from CMIS page 00h, padded with spaces.
    pub vendor: [u8; 16],
    /// Part number from CMIS page 00h.
    pub part: [u8; 16],
    /// Serial number from CMIS page 00h.
    pub serial: [u8; 16],
    /// Running firmware: major and minor version.
    pub firmware: (u8, u8),
    /// Layout of page B0h: major and minor version, one nibble each.
    pub layout: u8,
    /// Number of switch groups.
    pub groups: u8,
    /// Number of external paths per group.
    pub external_paths: u8,
    /// Capability bits in B0h:199.
    pub capabilities: Capabilities,
    /// Typical time in µs from a fire request until the light is on its new path.
    pub switch_us: u16,
    /// Time in µs from the arrival of light until power readings are reliable.
    pub settle_us: u16,
    /// Minimum time in µs between two switching operations of a group.
    pub dwell_us: u16,
    /// Maximum time in µs from a fire request to its outcome.
    pub commit_max_us: u32,
    /// Tap power below which a path is treated as dark.
    pub power_low: Power,
}

impl Identity {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u8(self.versions.0).u8(self.versions.1);
        writer.slice(&self.vendor).slice(&self.part).slice(&self.serial);
        writer.u8(self.firmware.0).u8(self.firmware.1).u8(self.layout);
        writer.u8(self.groups).u8(self.external_paths).u8(self.capabilities.0);
        writer.u16(self.switch_us).u16(self.settle_us).u16(self.dwell_us);
        writer.u32(self.commit_max_us).u16(self.power_low.0);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            versions: (reader.u8()?, reader.u8()?),
            vendor: reader.array()?,
            part: reader.array()?,
            serial: reader.array()?,
            firmware: (reader.u8()?, reader.u8()?),
            layout: reader.u8()?,
            groups: reader.u8().filter(|&groups| usize::from(groups) <= GROUPS_MAX)?,
            external_paths: reader.u8()?,
            capabilities: Capabilities(reader.u8()?),
            switch_us: reader.u16()?,
            settle_us: reader.u16()?,
            dwell_us: reader.u16()?,
            commit_max_us: reader.u32()?,
            power_low: Power(reader.u16()?),
        })
    }
}

/// Capability bits in register B0h:199.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u8);

impl Capabilities {
    /// Groups support the dark path.
    pub const DARK: Self = Self(1);
    /// Groups support the loopback path.
    pub const LOOPBACK: Self = Self(2);
    /// Supports [`DataPathPolicy::Hot`](crate::path::DataPathPolicy::Hot).
    pub const HOT: Self = Self(4);
    /// Supports fast fires through lower memory 64 to 67, without a page change.
    pub const FAST_FIRE: Self = Self(8);
    /// Every external path has a power tap.
    pub const TAPS: Self = Self(16);
    /// Sends its link name over its light, and reports the received name.
    pub const NEIGHBOURS: Self = Self(32);
    /// Sends events if enabled. Since 1.2.
    pub const EVENTS: Self = Self(64);
    /// Arms and fires in one request. Since 1.2.
    pub const GO: Self = Self(128);

    /// Returns whether all of `others` are present.
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Removes `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Adds `others`.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Optical power in 0.1 µW, as in CMIS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Power(pub u16);

/// Result of an arm request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmReport {
    /// The armed transaction.
    pub transaction: TransactionId,
    /// [`GroupOutcome::Success`] for each group that can be fired.
    pub outcomes: Outcomes,
}

impl ArmReport {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.transaction.0).codes(&self.outcomes, GroupOutcome::code);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            transaction: TransactionId(reader.u32()?),
            outcomes: reader.codes(GroupOutcome::from_code)?,
        })
    }
}

/// Result of a fire request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FireReport {
    /// The fired transaction.
    pub transaction: TransactionId,
    /// Number of completed switching operations since power-on, including this one.
    pub generation: u32,
    /// Outcome of each requested group.
    pub outcomes: Outcomes,
    /// Current paths according to the module's sensor.
    pub active: Paths,
}

impl FireReport {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.transaction.0).u32(self.generation);
        writer.codes(&self.outcomes, GroupOutcome::code).codes(&self.active, Path::code);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            transaction: TransactionId(reader.u32()?),
            generation: reader.u32()?,
            outcomes: reader.codes(GroupOutcome::from_code)?,
            active: reader.codes(Path::from_code)?,
        })
    }
}

/// The module's state, which a host checks after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusReport {
    /// Number of restarts since manufacture, modulo 2¹⁶. A restart discards armed transactions.
    pub boots: u16,
    /// Milliseconds since the last restart.
    pub uptime_ms: u32,
    /// CMIS module state: 1 low power, 2 power-up, 3 ready, 4 power-down, 5 fault.
    pub module_state: u8,
    /// Armed transaction, or [`TransactionId::NONE`].
    pub armed: TransactionId,
    /// Last fired transaction, or [`TransactionId::NONE`].
    pub fired: TransactionId,
    /// Number of completed switching operations since power-on.
    pub generation: u32,
    /// Groups that are switching.
    pub busy: Groups,
    /// Path of each group.
    pub active: Paths,
    /// Outcomes of the last arm request.
    pub arm_outcomes: Outcomes,
    /// Outcomes of the last fire request.
    pub fire_outcomes: Outcomes,
    /// CMIS data-path state of each lane.
    pub data_paths: [u8; 8],
    /// Received power on each external path.
    pub taps: [Power; 8],
    /// Received power of each lane.
    pub received: [Power; 8],
}

impl StatusReport {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u16(self.boots).u32(self.uptime_ms).u8(self.module_state);
        writer.u32(self.armed.0).u32(self.fired.0).u32(self.generation).u8(self.busy.0);
        writer.codes(&self.active, Path::code);
        writer.codes(&self.arm_outcomes, GroupOutcome::code);
        writer.codes(&self.fire_outcomes, GroupOutcome::code);
        writer.slice(&self.data_paths);
        for power in self.taps.iter().chain(&self.received) {
            writer.u16(power.0);
        }
    }

    fn decode_powers(reader: &mut Reader<'_>) -> Option<[Power; 8]> {
        let mut powers = [Power::default(); 8];
        for power in &mut powers {
            *power = Power(reader.u16()?);
        }
        Some(powers)
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            boots: reader.u16()?,
            uptime_ms: reader.u32()?,
            module_state: reader.u8()?,
            armed: TransactionId(reader.u32()?),
            fired: TransactionId(reader.u32()?),
            generation: reader.u32()?,
            busy: Groups(reader.u8()?),
            active: reader.codes(Path::from_code)?,
            arm_outcomes: reader.codes(GroupOutcome::from_code)?,
            fire_outcomes: reader.codes(GroupOutcome::from_code)?,
            data_paths: reader.array()?,
            taps: Self::decode_powers(reader)?,
            received: Self::decode_powers(reader)?,
        })
    }
}

/// The module's link name, and the neighbour of each group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinksReport {
    /// Link name that the host has set since the last restart.
    pub name: LinkName,
    /// Sender of the light on each group's active path.
    pub neighbours: [Neighbour; GROUPS_MAX],
}

impl LinksReport {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.name.0);
        for neighbour in &self.neighbours {
            writer.u32(neighbour.name.0).u8(neighbour.path);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let name = LinkName(reader.u32()?);
        let mut neighbours = [Neighbour::default(); GROUPS_MAX];
        for neighbour in &mut neighbours {
            *neighbour = Neighbour { name: LinkName(reader.u32()?), path: reader.u8()? };
        }
        Some(Self { name, neighbours })
    }
}

/// A name that the host assigns to a module, which sends it over its light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(pub u32);

impl LinkName {
    /// Represents no name, or no readable signal.
    pub const NONE: Self = Self(0);
}

/// The sender of received light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Link name of the sender, or [`LinkName::NONE`] without a readable signal.
    pub name: LinkName,
    /// External path that the sender uses.
    pub path: u8,
}
