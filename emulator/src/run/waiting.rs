// SPDX-License-Identifier: Apache-2.0

use std::fmt;

use lightloom_units::id::GroupId;
use lightloom_units::{Bytes, SimTime};
use serde::{Deserialize, Serialize};

pub(super) const MOST_LISTED: usize = 10;

/// Unfinished work and its dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// A workload, one of its flows, a group with its collective, or a phase.
    pub what: String,
    /// Time of the last progress. `None` while the work progresses or has no data in flight.
    #[serde(rename = "since_ps")]
    pub since: Option<SimTime>,
    /// What the work waits for.
    pub waits_for: WaitsFor,
}

/// Dependency of unfinished work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// The end of another workload.
    Workload(String),
    /// The end of a collective, given by its index in the scenario.
    Collective(usize),
    /// Another group of the same job.
    Group(GroupId),
    /// Transceivers that are switching.
    Transceivers,
    /// A dark link.
    DarkLink {
        /// The link.
        link: String,
        /// Whether the control plane is down and cannot bypass the link.
        control_is_gone: bool,
    },
    /// Light on a group's ring.
    Light,
    /// Enough nodes to re-form the group.
    Nodes,
    /// A route between its hosts.
    Way,
    /// A message of an abandoned flow.
    GivenUp {
        /// Source and destination of the flow.
        flow: String,
    },
    /// A message of a flow.
    Message {
        /// Source and destination of the flow.
        flow: String,
    },
    /// A paused port.
    Paused {
        /// Link that the port sends on.
        port: String,
    },
    /// Other flows at the same port.
    Turn {
        /// Link that the port sends on.
        port: String,
    },
    /// Acknowledgements of data that was sent.
    Acknowledgements {
        /// Number of bytes delivered.
        delivered: Bytes,
        /// Size of the message.
        size: Bytes,
    },
    /// Work that has not started.
    Start,
    /// Packets in flight.
    Packets,
    /// Bytes without a route.
    Held(Bytes),
    /// Number of entries omitted from the list.
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
                write!(f, "waits for {link}, which is dark; the control plane is down")
            }
            Self::DarkLink { link, .. } => {
                write!(f, "waits for {link}, which is dark and has not been bypassed")
            }
            Self::Light => f.write_str("waits for light on its ring"),
            Self::Nodes => f.write_str(
                "waits for working nodes: a group has too few, and no spare node is available",
            ),
            Self::Way => f.write_str("has no route between its hosts"),
            Self::GivenUp { flow } => {
                write!(f, "waits for a message of {flow}, which was abandoned")
            }
            Self::Message { flow } => write!(f, "waits for a message of {flow}"),
            Self::Paused { port } => write!(f, "waits for {port}, which is paused"),
            Self::Turn { port } => write!(f, "is queued behind other flows at {port}"),
            Self::Acknowledgements { delivered, size } => {
                write!(f, "waits for acknowledgements: {delivered} of {size} have arrived")
            }
            Self::Start => f.write_str("has not started"),
            Self::Packets => f.write_str("is in flight"),
            Self::Held(bytes) => write!(f, "is unfinished; {bytes} have no route"),
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
