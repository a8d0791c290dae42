// SPDX-License-Identifier: Apache-2.0

use super::TransactionId;
use crate::path::{GROUPS_MAX, GroupOutcome, Groups, Outcomes, Path, Paths};
use crate::wire::{Reader, Writer};

/// Identity and capabilities of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Oldest and newest supported protocol versions.
    pub versions: (u8, u8),
    /// Vendor name from CMIS page 00h, padded with spaces.
    pub vendor: [u8; 16],
    /// Part number from CMIS page 00h.
    pub part: [u8; 16],
    /// Serial number from CMIS page 00h.
    pub serial: [u8; 16],
    /// Major and minor version of the running firmware.
    pub firmware: (u8, u8),
    /// Layout version of page B0h, with the major and minor number in one nibble each.
    pub layout: u8,
    /// Number of independently switching groups.
    pub groups: u8,
    /// External paths per group.
    pub external_paths: u8,
    /// Capability bits in B0h:199.
    pub capabilities: Capabilities,
    /// Typical time from fire until the light is on its new path, in µs.
    pub switch_us: u16,
    /// Time from then until power readings are reliable, in µs.
    pub settle_us: u16,
    /// Minimum time between two changes of one group, in µs.
    pub dwell_us: u16,
    /// Maximum time from fire to an outcome, in µs.
    pub commit_max_us: u32,
    /// Tap power below which a path counts as dark.
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
    /// Groups can be dark.
    pub const DARK: Self = Self(1);
    /// Groups can loop back.
    pub const LOOPBACK: Self = Self(2);
    /// The module permits [`DataPathPolicy::Hot`](crate::path::DataPathPolicy::Hot).
    pub const HOT: Self = Self(4);
    /// A fire needs no page change, because it can use lower memory 64 to 67.
    pub const FAST_FIRE: Self = Self(8);
    /// Every external path has a power tap.
    pub const TAPS: Self = Self(16);
    /// The module sends its link name over its light and reports the name that it receives.
    pub const NEIGHBOURS: Self = Self(32);
    /// The module sends events to hosts that enable them. Since 1.2.
    pub const EVENTS: Self = Self(64);
    /// The module can arm and fire in one request. Since 1.2.
    pub const GO: Self = Self(128);

    /// Returns whether all capabilities in `others` are present.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the capabilities without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns the union of both.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Optical power in tenths of a microwatt, the unit of every CMIS power monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Power(pub u16);

/// Outcome of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmReport {
    /// The transaction that is now armed.
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

/// Outcome of a fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FireReport {
    /// Transaction.
    pub transaction: TransactionId,
    /// Number of completed switches since power-on, including this one.
    pub generation: u32,
    /// Outcome of each requested group.
    pub outcomes: Outcomes,
    /// Path of each group according to the module's own sensor.
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

/// All state that a host checks after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusReport {
    /// Number of restarts since manufacture, modulo 2¹⁶. If it changes, armed transactions were lost.
    pub boots: u16,
    /// Milliseconds since the last restart.
    pub uptime_ms: u32,
    /// CMIS module state code (1 low power, 2 power-up, 3 ready, 4 power-down, 5 fault).
    pub module_state: u8,
    /// Armed transaction, or [`TransactionId::NONE`].
    pub armed: TransactionId,
    /// Last fired transaction, or [`TransactionId::NONE`].
    pub fired: TransactionId,
    /// Number of completed switches since power-on.
    pub generation: u32,
    /// Groups whose light is moving.
    pub busy: Groups,
    /// Path of each group.
    pub active: Paths,
    /// Outcomes of the last arm.
    pub arm_outcomes: Outcomes,
    /// Outcomes of the last fire.
    pub fire_outcomes: Outcomes,
    /// CMIS data-path state code of each lane.
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

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let powers = |reader: &mut Reader<'_>| {
            let mut powers = [Power::default(); 8];
            for power in &mut powers {
                *power = Power(reader.u16()?);
            }
            Some(powers)
        };
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
            taps: powers(reader)?,
            received: powers(reader)?,
        })
    }
}

/// A module's own link name, and the neighbour on each group's selected path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinksReport {
    /// Own name, as written by the host since the last restart.
    pub name: LinkName,
    /// Neighbour of each group.
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

/// The name that the host assigned to a module, which the module sends over its light. Zero means no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(pub u32);

impl LinkName {
    /// No name, or no readable signal.
    pub const NONE: Self = Self(0);
}

/// The sender of the received light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name, or [`LinkName::NONE`] without a readable signal.
    pub name: LinkName,
    /// External path on which the module sends.
    pub path: u8,
}
