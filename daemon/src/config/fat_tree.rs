// SPDX-License-Identifier: Apache-2.0
//! The devices of a daemon file as the switches of a network of circuits.

use lightloom_fabric::document::Check;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::id::{BundleId, OcsId};

use super::{Config, codes};
use crate::protocol::Kind;
use lightloom_control::desired::circuits::Switches;
use lightloom_control::policy::OnFault;
use lightloom_control::state::DeviceName;

impl Config {
    /// The device of each switch whose ports are numbered, once the network is known.
    #[must_use]
    pub fn numbered_switches(&self) -> Switches {
        let numbered = self
            .switches
            .iter()
            .filter_map(|(ocs, device)| Some((*ocs, (device.clone(), *self.ports.get(device)?))));
        numbered.collect()
    }

    /// Takes in how each switch numbers the ports of a plan, and reports devices that no plan of this
    /// network would ever speak of.
    pub(super) fn wire(
        &mut self,
        name: &str,
        network: &ReconfigurableFatTree,
        check: &mut Check<'_>,
    ) {
        let help = switches_of(name, network);
        for index in 0..self.file.modules.len() {
            let path = format!("/modules/{index}");
            let message = "a reconfigurable fat-tree has no transceivers with a switch inside";
            check.error(codes::NOT_INSTALLED, &path, message).help(&help);
        }
        for (index, device) in self.file.devices.iter().enumerate() {
            if device.name.parse::<BundleId>().is_ok() {
                let path = format!("/devices/{index}/name");
                let message = format!("{} is not in the fabric", device.name);
                check.error(codes::NOT_INSTALLED, &path, message).help(&help);
            }
        }
        self.number_switches(name, network, check);
        if self.file.policies.on_fault == OnFault::Bypass {
            let message = "a reconfigurable fat-tree has no rings, so no fault is ever bypassed";
            check
                .error(codes::NOT_INSTALLED, "/policies/on_fault", message)
                .help("write `on_fault: report`, or leave it out");
        }
    }

    /// Takes in how each optical switch numbers the ports of a plan.
    pub(super) fn number_switches(
        &mut self,
        name: &str,
        network: &ReconfigurableFatTree,
        check: &mut Check<'_>,
    ) {
        let (switches, help) = (network.switches(), switches_of(name, network));
        for (index, device) in self.file.devices.iter().enumerate() {
            let path = format!("/devices/{index}/name");
            let Ok(ocs) = device.name.parse::<OcsId>() else { continue };
            if ocs.index() >= switches {
                check
                    .error(codes::NOT_INSTALLED, &path, format!("{ocs} is not in the fabric"))
                    .help(&help);
                continue;
            }
            let ingress = network.bank(ocs).ports_per_switch;
            let ports = match device.driver.protocol().kind() {
                Kind::OpticalSwitch { ports, .. } => ports(ingress),
                Kind::Transceiver { .. } | Kind::LinuxSwitch { .. } => {
                    let message = format!("{ocs} is an optical switch, and its driver is not");
                    check
                        .error(codes::NOT_INSTALLED, &format!("/devices/{index}/driver"), message)
                        .help("write the driver scpi, tl1, sonic or gnmi");
                    continue;
                }
            };
            let device = DeviceName::from(device.name.as_str());
            if let Some(known) = self.inventory.devices.get_mut(&device) {
                known.duplex = Some(ports.output_offset());
            }
            self.ports.insert(device, ports);
        }
    }
}

fn switches_of(name: &str, network: &ReconfigurableFatTree) -> String {
    format!(
        "the fabric `{name}` is a reconfigurable fat-tree with the switches ocs0 to ocs{}",
        network.switches().saturating_sub(1)
    )
}
