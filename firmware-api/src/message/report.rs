// SPDX-License-Identifier: Apache-2.0

use super::TransactionId;
use crate::path::{GROUPS_MAX, Groups, Outcomes, Paths};
use crate::wire::fields;

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

fields!(Identity {
    versions,
    vendor,
    part,
    serial,
    firmware,
    layout,
    groups,
    external_paths,
    capabilities,
    switch_us,
    settle_us,
    dwell_us,
    commit_max_us,
    power_low
});

/// Capability bits in register B0h:199.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u8);

fields!(Capabilities { 0 });

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

fields!(Power { 0 });

/// Result of an arm request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmReport {
    /// The armed transaction.
    pub transaction: TransactionId,
    /// [`GroupOutcome::Success`](crate::path::GroupOutcome::Success) for each group that can be fired.
    pub outcomes: Outcomes,
}

fields!(ArmReport { transaction, outcomes });

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

fields!(FireReport { transaction, generation, outcomes, active });

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

fields!(StatusReport {
    boots,
    uptime_ms,
    module_state,
    armed,
    fired,
    generation,
    busy,
    active,
    arm_outcomes,
    fire_outcomes,
    data_paths,
    taps,
    received
});

/// The module's link name, and the neighbour of each group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinksReport {
    /// Link name that the host has set since the last restart.
    pub name: LinkName,
    /// Sender of the light on each group's active path.
    pub neighbours: [Neighbour; GROUPS_MAX],
}

fields!(LinksReport { name, neighbours });

/// A name that the host assigns to a module, which sends it over its light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(pub u32);

fields!(LinkName { 0 });

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

fields!(Neighbour { name, path });
