// SPDX-License-Identifier: Apache-2.0
//! Device protocols. Each protocol has a module and a variant of [`DriverFile`].

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

/// Protocol and address of a device.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DriverFile {
    /// A transceiver with an integrated switch, over a serial line.
    Ocstrx(SerialFile),
    /// A transceiver with an integrated switch, through the agent on its host.
    Agent(AgentModuleFile),
    /// An optical switch with SCPI.
    Scpi(ScpiFile),
    /// An optical switch with TL1.
    Tl1(Tl1File),
    /// A SONiC optical switch, controlled through its database.
    Sonic(SonicFile),
    /// An optical switch with the OCP model, over gNMI.
    Gnmi(GnmiFile),
    /// The local Linux kernel, with links, addresses, nexthop groups and rates.
    Linux(LinuxFile),
}

impl DriverFile {
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

pub trait Protocol {
    fn kind(&self) -> Kind;

    fn host(&self) -> Option<&str> {
        None
    }

    fn refuses_late(&self) -> bool {
        false
    }

    #[cfg(feature = "edges")]
    fn check(&self) -> Result<(), (&'static str, anyhow::Error)> {
        Ok(())
    }

    #[cfg(feature = "edges")]
    fn endpoint(&self, place: &Place<'_>) -> anyhow::Result<Endpoint>;
}

pub enum Kind {
    Transceiver { bits_per_second: Option<u32> },
    OpticalSwitch { ports: fn(u32) -> DevicePorts, agent: Option<Agent> },
    LinuxSwitch { nodes: Vec<NodeId> },
}

pub struct Agent {
    pub poll: Micros,
    pub within: Micros,
}

impl Kind {
    fn ingress_then_egress() -> Self {
        Self::OpticalSwitch {
            ports: |ingress| DevicePorts::IngressThenEgress { ingress },
            agent: None,
        }
    }

    pub fn sharing(&self) -> Sharing {
        match self {
            Self::OpticalSwitch { .. } => Sharing::Exclusive,
            Self::Transceiver { .. } | Self::LinuxSwitch { .. } => Sharing::Independent,
        }
    }
}

#[cfg(feature = "edges")]
pub struct Place<'a> {
    pub device: &'a str,
    pub ports: Option<DevicePorts>,
    pub claimant: &'a str,
    pub wall_ms: u64,
    pub epoch: Option<u64>,
}

fn host(address: &str) -> Option<&str> {
    address.rsplit_once(':').map(|(host, _)| host)
}

fn yes() -> bool {
    true
}

/// Reads a password or key. Fails if all users can read the file.
#[cfg(feature = "tls")]
pub fn secret(path: &std::path::Path) -> anyhow::Result<String> {
    use anyhow::Context as _;
    private(path)?;
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(feature = "tls")]
pub(crate) fn private(path: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    use anyhow::Context as _;
    let shown = path.display();
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    let mode = metadata.permissions().mode() & 0o777;
    anyhow::ensure!(
        mode & 0o007 == 0,
        "{shown} is readable by all users (mode {mode:04o}); help: chmod o= {shown}"
    );
    Ok(())
}
