// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use serde::{Deserialize, Serialize};

/// A stage between a fault and the first packet after it, in order of completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageName {
    /// Ends when the daemon receives the first report, reading or timeout.
    Noticed,
    /// Ends when the policy has identified the failed part.
    Detected,
    /// Ends when the next plan is made and checked. The cost model sets its duration.
    Planned,
    /// Ends when the intent is durable.
    Journalled,
    /// Ends when the last switching command reaches its transceiver.
    Sent,
    /// Ends when the last transceiver has finished switching.
    Switched,
    /// Ends when every transceiver reports good power and the result is durable.
    Qualified,
    /// Ends when the links carry packets.
    Relocked,
    /// Ends when the moved groups restart.
    Restarted,
    /// Ends when the first packet of these groups arrives.
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

    /// Returns the name of the stage in reports.
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
