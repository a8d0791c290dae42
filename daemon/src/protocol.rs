// SPDX-License-Identifier: Apache-2.0
//! The protocols that devices speak: a file each, and a line in [`DriverFile`].
//!
//! Such a file has what a daemon's file says of a device, what that makes of it ([`Protocol::kind`]), and how it is
//! reached. What is said there is a dialect of [`lightloom_drivers`].

pub mod agent;
pub mod gnmi;
mod linux;
pub mod scpi;
pub mod sonic;
pub mod tl1;
#[cfg(feature = "tls")]
pub mod tls;
pub mod transceiver;

use lightloom_control::state::{Micros, Sharing};
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_units::id::NodeId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::linux::LinuxFile;
#[cfg(feature = "edges")]
use crate::driver::Endpoint;
use agent::AgentModuleFile;
use gnmi::GnmiFile;
use scpi::ScpiFile;
use sonic::SonicFile;
use tl1::Tl1File;
use transceiver::SerialFile;

/// How to talk to a device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DriverFile {
    /// A transceiver with a switch inside, over a serial line.
    Ocstrx(SerialFile),
    /// A transceiver with a switch inside, through the agent of its host.
    Agent(AgentModuleFile),
    /// An optical switch that speaks SCPI.
    Scpi(ScpiFile),
    /// An optical switch that speaks TL1.
    Tl1(Tl1File),
    /// A SONiC optical switch, through its database.
    Sonic(SonicFile),
    /// An optical switch with the OCP model, over gNMI.
    Gnmi(GnmiFile),
    /// This machine's kernel: links, addresses, nexthop groups, rates.
    Linux(LinuxFile),
}

impl DriverFile {
    /// What its protocol says of it.
    #[must_use]
    pub fn protocol(&self) -> &dyn Protocol {
        match self {
            Self::Ocstrx(file) => file,
            Self::Agent(file) => file,
            Self::Scpi(file) => file,
            Self::Tl1(file) => file,
            Self::Sonic(file) => file,
            Self::Gnmi(file) => file,
            Self::Linux(file) => file,
        }
    }
}

/// A protocol, as a daemon's file describes one device that speaks it.
pub trait Protocol {
    /// What the device is to a plan.
    fn kind(&self) -> Kind;

    /// The host that it is reached at, where it is reached over a network.
    fn host(&self) -> Option<&str> {
        None
    }

    /// Whether the device refuses commands of a daemon that led before.
    fn refuses_late(&self) -> bool {
        false
    }

    /// Whether what it is reached with is there.
    ///
    /// # Errors
    /// The key of the file, and what is wrong with what it names.
    #[cfg(feature = "edges")]
    fn check(&self) -> Result<(), (&'static str, anyhow::Error)> {
        Ok(())
    }

    /// How it is reached, and what is said there.
    ///
    /// # Errors
    /// A file that says half of it, a secret that cannot be read.
    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &Place<'_>) -> anyhow::Result<Endpoint>;
}

/// What a device is to a plan.
pub enum Kind {
    /// A module of a node.
    Transceiver {
        /// The rate of its line, which limits follow; `None` if it has none of its own.
        bits_per_second: Option<u32>,
    },
    /// A switch of light.
    OpticalSwitch {
        /// How it numbers the ports of a plan, given how many ingress ports it has.
        ports: fn(u32) -> DevicePorts,
        /// What carries out commands after they were taken, where that is another program.
        agent: Option<Agent>,
    },
    /// A switch of packets, which takes traffic off modules.
    LinuxSwitch {
        /// The nodes whose network interfaces are plugged in.
        nodes: Vec<NodeId>,
    },
}

/// A program of the device that carries out commands after they were taken.
pub struct Agent {
    /// The wait between two looks at what it did.
    pub poll: Micros,
    /// How long it may take.
    pub within: Micros,
}

impl Kind {
    fn ingress_then_egress() -> Self {
        let ports = |ingress| DevicePorts::IngressThenEgress { ingress };
        Self::OpticalSwitch { ports, agent: None }
    }

    /// Whether one command keeps others from the device.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        match self {
            Self::OpticalSwitch { .. } => Sharing::Exclusive,
            Self::Transceiver { .. } | Self::LinuxSwitch { .. } => Sharing::Independent,
        }
    }
}

/// What a conversation has to know beyond the device's part of the file.
#[cfg(feature = "edges")]
pub struct Place<'a> {
    /// The device's name.
    pub device: &'a str,
    /// How it numbers the ports of a plan, where the fabric says.
    pub ports: Option<DevicePorts>,
    /// What this daemon is called where it claims a device.
    pub claimant: &'a str,
    /// The time of the daemon's start, in Unix milliseconds.
    pub wall_ms: u64,
    /// The epoch in which it leads, where there are several daemons.
    pub epoch: Option<u64>,
}

/// The host of `host:port`.
fn host(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(host, _)| host)
}

fn yes() -> bool {
    true
}

/// What a file that holds a secret says.
///
/// # Errors
/// A file that cannot be read, or that everybody can read.
#[cfg(feature = "tls")]
pub(crate) fn secret(path: &std::path::Path) -> anyhow::Result<String> {
    use anyhow::Context as _;
    private(path)?;
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Whether a file is kept from others.
///
/// # Errors
/// A file that is not there, or that everybody can read.
#[cfg(feature = "tls")]
pub(crate) fn private(path: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    use anyhow::Context as _;
    let shown = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    let mode = metadata.permissions().mode() & 0o777;
    anyhow::ensure!(
        mode & 0o007 == 0,
        "{shown} can be read by everybody (mode {mode:04o}): chmod o= {shown}"
    );
    Ok(())
}
