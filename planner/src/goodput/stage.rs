// SPDX-License-Identifier: Apache-2.0
//! The stages of the answer to a fault.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A stage between a fault and the first packet after it, in the order in which they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageName {
    /// Until a first report, reading or silence is at the daemon.
    Noticed,
    /// Until the policy has named what is broken.
    Detected,
    /// Until the next plan is made and checked: by the cost model.
    Planned,
    /// Until the intent is durable.
    Journalled,
    /// Until the last command that moves light is at its transceiver.
    Sent,
    /// Until the light of the last transceiver rests.
    Switched,
    /// Until every transceiver is read back, its power is good, and the end is durable.
    Qualified,
    /// Until the links carry packets.
    Relocked,
    /// Until the groups that were moved begin again.
    Restarted,
    /// Until a first packet of them has arrived.
    FirstPacket,
}

impl StageName {
    /// All of them, in order.
    pub const ALL: [Self; 10] = [
        Self::Noticed,
        Self::Detected,
        Self::Planned,
        Self::Journalled,
        Self::Sent,
        Self::Switched,
        Self::Qualified,
        Self::Relocked,
        Self::Restarted,
        Self::FirstPacket,
    ];

    /// How it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Detected => "detected",
            Self::Planned => "planned",
            Self::Journalled => "journalled",
            Self::Sent => "sent",
            Self::Switched => "switched",
            Self::Qualified => "qualified",
            Self::Relocked => "relocked",
            Self::Restarted => "restarted",
            Self::FirstPacket => "first packet",
        }
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
