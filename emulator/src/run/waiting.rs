// SPDX-License-Identifier: Apache-2.0
//! What was not done when a run was stopped: what it is, since when it has come no further, and what it waits for.

use std::fmt;

use lightloom_units::id::GroupId;
use lightloom_units::{Bytes, SimTime};
use serde::{Deserialize, Serialize};

/// Most that are listed one by one of each kind.
pub(super) const MOST_LISTED: usize = 10;

/// Something that was not done when a run was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// A workload, a flow of one, a group with its collective, or a phase.
    pub what: String,
    /// Since when it has come no further. `None` if it moves, has not begun, or nothing of it is in flight.
    #[serde(rename = "since_ps")]
    pub since: Option<SimTime>,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// What something waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// Other workloads are to be done first: this one.
    Workload(String),
    /// A collective of the groups is to be done first: the one at this place of the scenario's list.
    Collective(usize),
    /// Another group of its job.
    Group(GroupId),
    /// Transceivers that were commanded to switch.
    Transceivers,
    /// A link that is dark.
    DarkLink {
        /// Which.
        link: String,
        /// Whether it is not bypassed because the control plane is gone.
        control_is_gone: bool,
    },
    /// Light on the ring of a group.
    Light,
    /// Nodes that a group can be made of again.
    Nodes,
    /// A way between its hosts.
    Way,
    /// A message of a flow that was given up.
    GivenUp {
        /// The flow, from its source to its destination.
        flow: String,
    },
    /// A message of a flow.
    Message {
        /// The flow, from its source to its destination.
        flow: String,
    },
    /// An interface that is paused.
    Paused {
        /// The link that it sends to.
        port: String,
    },
    /// Its turn at an interface.
    Turn {
        /// The link that it sends to.
        port: String,
    },
    /// Acknowledgements of what it has sent.
    Acknowledgements {
        /// What has arrived.
        delivered: Bytes,
        /// Of how much.
        size: Bytes,
    },
    /// Its start, or that of something it consists of.
    Start,
    /// It is under way.
    Packets,
    /// Bytes that have no way.
    Held(Bytes),
    /// These are not listed one by one.
    More(usize),
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(name) => write!(f, "waits for `{name}`"),
            Self::Collective(place) => {
                write!(f, "waits for collective {} of the groups", place + 1)
            }
            Self::Group(group) => write!(f, "waits for {group}"),
            Self::Transceivers => f.write_str("waits for its transceivers"),
            Self::DarkLink { link, control_is_gone: true } => {
                write!(
                    f,
                    "waits for {link}, which is dark; no plan is made, the control plane is gone"
                )
            }
            Self::DarkLink { link, .. } => {
                write!(f, "waits for {link}, which is dark; no plan has replaced it")
            }
            Self::Light => f.write_str("waits for light on its ring"),
            Self::Nodes => f.write_str(
                "waits for working nodes: a group has too few, and none is idle where it could be",
            ),
            Self::Way => f.write_str("finds no way between its hosts"),
            Self::GivenUp { flow } => {
                write!(f, "waits for a message of {flow}, which was given up")
            }
            Self::Message { flow } => write!(f, "waits for a message of {flow}"),
            Self::Paused { port } => write!(f, "waits for {port}, which is paused"),
            Self::Turn { port } => write!(f, "waits for its turn at {port}"),
            Self::Acknowledgements { delivered, size } => {
                write!(f, "waits for acknowledgements: {delivered} of {size} have arrived")
            }
            Self::Start => f.write_str("has not begun"),
            Self::Packets => f.write_str("is under way"),
            Self::Held(bytes) => write!(f, "has not ended; {bytes} have no way"),
            Self::More(count) => write!(f, "{count} more, not listed one by one"),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.waits_for)?;
        match self.since {
            Some(since) => write!(f, ", since {since}"),
            None => Ok(()),
        }
    }
}
