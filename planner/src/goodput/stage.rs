// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use serde::{Deserialize, Serialize};

/// A stage between a fault and the first packet after it, in order of completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageName {
    /// Until the daemon receives a first report, reading or timeout.
    Noticed,
    /// Until the policy has identified the failed part.
    Detected,
    /// Until the next plan has been made and checked. The cost model sets this time.
    Planned,
    /// Until the intent is durable.
    Journalled,
    /// Until the last switching command has reached its transceiver.
    Sent,
    /// Until the last transceiver has finished switching.
    Switched,
    /// Until every transceiver reports good power and the result is durable.
    Qualified,
    /// Until the links carry packets.
    Relocked,
    /// Until the moved groups restart.
    Restarted,
    /// Until the first packet of these groups arrives.
    FirstPacket,
}

impl StageName {
    /// All stages, in order.
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

    /// Returns the name in reports.
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
