// SPDX-License-Identifier: Apache-2.0
//! The causes of lost GPU-hours.

use std::fmt;

use super::StageName;

/// Why GPU-hours were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A stage of the control plane's response to an outage.
    Stage(StageName),
    /// The part of an outage that is not covered by a stage.
    Outage,
    /// Lost work that had to be repeated.
    DoneAgain,
    /// Reading a checkpoint.
    CheckpointLoad,
    /// Writing checkpoints.
    CheckpointWrite,
    /// Reading in-memory copies from other nodes.
    MemoryLoad,
    /// Taking in-memory copies.
    MemoryWrite,
    /// Moving to a spare node.
    Migration,
    /// Reconfiguring the job to continue without a replica.
    Reform,
    /// Reintegrating a replica.
    Rejoin,
    /// Extra communication and switching time in the step during the failure. Can be negative.
    Disturbed,
    /// Slower steps until a failed part is repaired.
    SlowerSteps,
    /// Working nodes of excluded replicas.
    LeftOut,
    /// Waiting for nodes.
    WaitingForNodes,
    /// Nodes under repair.
    UnderRepair,
    /// Working nodes without a job.
    IdleSpares,
    /// Working GPUs that do not fill a group.
    InNoGroup,
}

impl Cause {
    /// Returns the cause's key in documents.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Stage(_) | Self::Outage => "outage",
            Self::DoneAgain => "done_again",
            Self::CheckpointLoad => "checkpoint_load",
            Self::CheckpointWrite => "checkpoint_write",
            Self::MemoryLoad => "memory_load",
            Self::MemoryWrite => "memory_write",
            Self::Migration => "migration",
            Self::Reform => "reform",
            Self::Rejoin => "rejoin",
            Self::LeftOut => "replicas_left_out",
            Self::Disturbed => "disturbed_step",
            Self::SlowerSteps => "slower_steps",
            Self::WaitingForNodes => "waiting_for_nodes",
            Self::UnderRepair => "under_repair",
            Self::IdleSpares => "idle_spares",
            Self::InNoGroup => "in_no_group",
        }
    }

    /// Looks up a cause by its key in the results of a run. `None` for causes that runs do not report.
    pub fn of_run(key: &str, stage: Option<StageName>) -> Option<Self> {
        match (key, stage) {
            ("outage", Some(stage)) => Some(Self::Stage(stage)),
            ("outage", None) => Some(Self::Outage),
            ("done_again", _) => Some(Self::DoneAgain),
            ("disturbed_step", _) => Some(Self::Disturbed),
            _ => None,
        }
    }

    /// Returns the stage of an outage response. `None` for other causes.
    pub const fn stage(self) -> Option<StageName> {
        match self {
            Self::Stage(stage) => Some(stage),
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Stage(stage) => return f.pad(&format!("outage: {stage}")),
            Self::Outage => "outage: time until the job resumed",
            Self::DoneAgain => "work done again",
            Self::CheckpointLoad => "checkpoints read",
            Self::CheckpointWrite => "checkpoints written",
            Self::MemoryLoad => "in-memory copies read",
            Self::MemoryWrite => "in-memory copies taken",
            Self::Migration => "moving to a spare node",
            Self::Reform => "continuing with fewer replicas",
            Self::Rejoin => "taking back replicas",
            Self::LeftOut => "replicas left out",
            Self::Disturbed => "step in which the failure occurred",
            Self::SlowerSteps => "slower steps until the repair",
            Self::WaitingForNodes => "waiting for nodes",
            Self::UnderRepair => "nodes under repair",
            Self::IdleSpares => "idle spares",
            Self::InNoGroup => "in no full group",
        };
        f.pad(words)
    }
}
