// SPDX-License-Identifier: Apache-2.0

use lightloom_units::{Picoseconds, Text};
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

/// The production daemon with its serial devices, disk and transceivers in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "DaemonFile")]
pub struct DaemonSetup {
    /// Polling interval of each transceiver.
    pub poll_every: Text<Picoseconds>,
    /// Time without a response after which a transceiver is treated as failed.
    pub heartbeat: Text<Picoseconds>,
    /// Rate of the serial devices, 9,600 to 50,000,000.
    #[schemars(range(min = 9600, max = 50_000_000))]
    pub bits_per_second: u32,
    /// Whether serial transmission takes time; with `false` it takes none, as on the ptys of `lightloom device serve`.
    pub line_time: bool,
    /// Whether transceivers report loss of light (firmware protocol 1.2); with `false` they are only polled (1.1).
    pub events: bool,
    /// Number of consecutive good power readings required for a path, 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub power_samples: u32,
    /// Maximum settling time of the optical power; defaults to the transceiver specification.
    pub settle_within: Option<Text<Picoseconds>>,
    /// Maximum response time of a transceiver; defaults to the transceiver specification.
    pub reply_within: Option<Text<Picoseconds>>,
    /// Duration of an fsync of the journal; the default is an assumption.
    pub flush: Text<Picoseconds>,
    /// Time from the end of a bypass until a moved group restarts; the default is an assumption.
    pub restart: Text<Picoseconds>,
    /// Time from a fault or repair in the packet network until its own routing reroutes flows; the default is assumed.
    pub reroute_delay: Text<Picoseconds>,
    /// Protocol of the fabric's optical switches.
    pub switches: SwitchLanguage,
}

impl Default for DaemonSetup {
    /// Values of `topologies/daemon.yaml`. The flush, restart and rerouting times are assumptions.
    fn default() -> Self {
        Self {
            poll_every: Text(Picoseconds::from_millis(1_000)),
            heartbeat: Text(Picoseconds::from_millis(5_000)),
            bits_per_second: 921_600,
            line_time: true,
            events: true,
            power_samples: 3,
            settle_within: None,
            reply_within: None,
            flush: Text(Picoseconds::from_micros(500)),
            restart: Text(Picoseconds::ZERO),
            reroute_delay: Text(Picoseconds::from_millis(1)),
            switches: SwitchLanguage::default(),
        }
    }
}
