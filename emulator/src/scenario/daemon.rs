// SPDX-License-Identifier: Apache-2.0
//! How the shipping daemon of `control: lightloomd` is configured.

use lightloom_units::Picoseconds;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The language that the daemon and an optical switch speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SwitchLanguage {
    /// SCPI over TCP.
    #[default]
    Scpi,
    /// TL1 over TCP.
    Tl1,
    /// The OCP model over gNMI.
    Gnmi,
}

/// How the shipping daemon is configured, and what it runs on: `control: lightloomd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonSetup {
    /// How often it reads each transceiver.
    pub poll_every: Picoseconds,
    /// How long a transceiver may be silent before it counts as dead.
    pub heartbeat: Picoseconds,
    /// The rate of the serial lines.
    pub bits_per_second: u32,
    /// Whether bytes take their time on these lines; on ptys they take none.
    pub line_time: bool,
    /// Whether transceivers report lost light (firmware protocol 1.2) or are only polled (1.1).
    pub events: bool,
    /// Good power readings in a row before a path counts as established.
    pub power_samples: u32,
    /// How long light may take to settle. `None` if it follows what the transceivers promise.
    pub settle_within: Option<Picoseconds>,
    /// How long a transceiver may take to answer. `None` if it follows what the transceivers promise.
    pub reply_within: Option<Picoseconds>,
    /// How long the disk takes to make a journal record durable.
    pub flush: Picoseconds,
    /// From the end of a bypass to the first packet that a moved group tries to send.
    pub restart: Picoseconds,
    /// What optical switches speak.
    pub switches: SwitchLanguage,
    /// From a fault or a repair of the packet network until its flows have other ways.
    pub reroute: Picoseconds,
}

impl Default for DaemonSetup {
    /// As `topologies/daemon.yaml` has it. Flush, restart and rerouting are assumptions.
    fn default() -> Self {
        Self {
            poll_every: Picoseconds::from_millis(1_000),
            heartbeat: Picoseconds::from_millis(5_000),
            bits_per_second: 921_600,
            line_time: true,
            events: true,
            power_samples: 3,
            settle_within: None,
            reply_within: None,
            flush: Picoseconds::from_micros(500),
            restart: Picoseconds::ZERO,
            switches: SwitchLanguage::default(),
            reroute: Picoseconds::from_millis(1),
        }
    }
}
