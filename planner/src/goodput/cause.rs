// SPDX-License-Identifier: Apache-2.0
//! What GPU-hours are lost for.

use std::fmt;

use super::StageName;

/// What GPU-hours are lost for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// An outage, in this stage of the control plane's answer.
    Stage(StageName),
    /// The rest of an outage: what no stage covers.
    Outage,
    /// Work that was done, lost and done again.
    DoneAgain,
    /// Reading a checkpoint.
    CheckpointLoad,
    /// Writing checkpoints.
    CheckpointWrite,
    /// Reading copies in the memory of other nodes.
    MemoryLoad,
    /// Taking these copies.
    MemoryWrite,
    /// Moving to a spare node.
    Migration,
    /// Going on without a replica.
    Reform,
    /// Going on with a replica that was left out.
    Rejoin,
    /// What exchange and circuits took longer in the step of the failure; less than nothing where they took less.
    Disturbed,
    /// Steps that take longer while something is out.
    SlowerSteps,
    /// Nodes that work, of replicas that their job goes on without.
    LeftOut,
    /// A job that has too few nodes to go on.
    WaitingForNodes,
    /// Nodes under repair.
    UnderRepair,
    /// Nodes that work and have no job.
    IdleSpares,
    /// GPUs that work and are in no full group.
    InNoGroup,
}

impl Cause {
    /// How it is written in documents.
    #[must_use]
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

    /// The cause of this key, of those that a run has.
    #[must_use]
    pub fn of_run(key: &str, stage: Option<StageName>) -> Option<Self> {
        match (key, stage) {
            ("outage", Some(stage)) => Some(Self::Stage(stage)),
            ("outage", None) => Some(Self::Outage),
            ("done_again", _) => Some(Self::DoneAgain),
            ("disturbed_step", _) => Some(Self::Disturbed),
            _ => None,
        }
    }

    /// The stage of an outage.
    #[must_use]
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
            Self::Outage => "outage: until the job went on",
            Self::DoneAgain => "work done again",
            Self::CheckpointLoad => "checkpoints read",
            Self::CheckpointWrite => "checkpoints written",
            Self::MemoryLoad => "copies in memory read",
            Self::MemoryWrite => "copies in memory taken",
            Self::Migration => "moving to a spare node",
            Self::Reform => "going on with fewer replicas",
            Self::Rejoin => "taking up replicas again",
            Self::LeftOut => "replicas left out",
            Self::Disturbed => "the step of the failure",
            Self::SlowerSteps => "slower steps until the repair",
            Self::WaitingForNodes => "waiting for nodes",
            Self::UnderRepair => "nodes under repair",
            Self::IdleSpares => "idle spares",
            Self::InNoGroup => "in no full group",
        };
        f.pad(words)
    }
}
