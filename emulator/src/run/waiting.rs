// SPDX-License-Identifier: Apache-2.0
//! Lists unfinished work in a stopped run, when it last made progress, and what it depends on.

use std::fmt;

use lightloom_units::id::GroupId;
use lightloom_units::{Bytes, SimTime};
use serde::{Deserialize, Serialize};

/// Maximum number of entries listed for each kind.
pub(super) const MOST_LISTED: usize = 10;

/// Unfinished work when a run was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// A workload, one of its flows, a group with its collective, or a phase.
    pub what: String,
    /// Time since which it has made no progress. `None` if it is progressing, has not begun, or has
    /// nothing in flight.
    #[serde(rename = "since_ps")]
    pub since: Option<SimTime>,
    /// Work or link that it waits for.
    pub waits_for: WaitsFor,
}

/// What unfinished work waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// The work waits until this workload has finished.
    Workload(String),
    /// It waits until the groups have finished the collective with this index in the scenario.
    Collective(usize),
    /// Another group of the same job.
    Group(GroupId),
    /// Transceivers that were commanded to switch.
    Transceivers,
    /// A dark link.
    DarkLink {
        /// The link.
        link: String,
        /// Whether it is not bypassed because the control plane is down.
        control_is_gone: bool,
    },
    /// Light on a group's ring.
    Light,
    /// Nodes that allow the group to be re-formed.
    Nodes,
    /// A path between its hosts.
    Way,
    /// A message of an abandoned flow.
    GivenUp {
        /// The flow, from its source to its destination.
        flow: String,
    },
    /// A message of a flow.
    Message {
        /// The flow, from its source to its destination.
        flow: String,
    },
    /// A paused interface.
    Paused {
        /// The link behind the interface.
        port: String,
    },
    /// A flow waits for its turn at an interface.
    Turn {
        /// The link behind the interface.
        port: String,
    },
    /// Acknowledgements of sent data.
    Acknowledgements {
        /// The bytes that have arrived.
        delivered: Bytes,
        /// The size of the message.
        size: Bytes,
    },
    /// The start of the work or of one of its parts.
    Start,
    /// Packets under way.
    Packets,
    /// Bytes without a path.
    Held(Bytes),
    /// This number of entries was left out of the list.
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
                    "waits for {link}, which is dark; the control plane is down and makes no plan"
                )
            }
            Self::DarkLink { link, .. } => {
                write!(f, "waits for {link}, which is dark; no plan has replaced it")
            }
            Self::Light => f.write_str("waits for light on its ring"),
            Self::Nodes => f.write_str(
                "waits for working nodes: a group has too few, and no idle node can join it",
            ),
            Self::Way => f.write_str("has no route between its hosts"),
            Self::GivenUp { flow } => {
                write!(f, "waits for a message of {flow}, which the run gave up")
            }
            Self::Message { flow } => write!(f, "waits for a message of {flow}"),
            Self::Paused { port } => write!(f, "waits for {port}, which is paused"),
            Self::Turn { port } => write!(f, "waits for its turn at {port}"),
            Self::Acknowledgements { delivered, size } => {
                write!(f, "waits for acknowledgements: {delivered} of {size} have arrived")
            }
            Self::Start => f.write_str("has not begun"),
            Self::Packets => f.write_str("is under way"),
            Self::Held(bytes) => write!(f, "has not ended; {bytes} have no route"),
            Self::More(count) => write!(f, "{count} more are not listed"),
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
