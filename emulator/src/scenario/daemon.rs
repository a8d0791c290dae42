// SPDX-License-Identifier: Apache-2.0

use lightloom_units::Picoseconds;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Protocol between the daemon and an optical switch.
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

/// Configuration and environment of the production daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaemonSetup {
    /// Polling interval per transceiver.
    pub poll_every: Picoseconds,
    /// Time without a response after which a transceiver is treated as failed.
    pub heartbeat: Picoseconds,
    /// Rate of the serial devices.
    pub bits_per_second: u32,
    /// Whether serial transmission takes time. On ptys it takes none.
    pub line_time: bool,
    /// Whether transceivers report loss of light (firmware protocol 1.2) or are only polled (1.1).
    pub events: bool,
    /// Number of consecutive good power readings required for a path.
    pub power_samples: u32,
    /// Maximum settling time of the optical power. `None` means the value of the transceiver specification.
    pub settle_within: Option<Picoseconds>,
    /// Maximum response time of a transceiver. `None` means the value of the transceiver specification.
    pub reply_within: Option<Picoseconds>,
    /// Duration of an fsync of the journal.
    pub flush: Picoseconds,
    /// Time from the end of a bypass until a moved group sends its first packet.
    pub restart: Picoseconds,
    /// Protocol of the optical switches.
    pub switches: SwitchLanguage,
    /// Time from a fault or repair in the packet network until its flows are rerouted.
    pub reroute: Picoseconds,
}

impl Default for DaemonSetup {
    /// Values of `topologies/daemon.yaml`. The flush, restart and rerouting times are assumptions.
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
