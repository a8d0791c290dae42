// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::id::OcsId;

use super::{Config, codes};
use crate::protocol::Kind;
use lightloom_control::desired::circuits::Switches;
use lightloom_control::state::DeviceName;

impl Config {
    pub fn numbered_switches(&self) -> Switches {
        let numbered = self
            .switches
            .iter()
            .filter_map(|(ocs, device)| Some((*ocs, (device.clone(), *self.ports.get(device)?))));
        numbered.collect()
    }

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
            if network.is_one_way() {
                let bank = &network.bank(ocs).name;
                let message = format!(
                    "{ocs} in bank `{bank}` has one-way circuits, but the daemon sets both directions of a port"
                );
                check
                    .error(codes::NOT_INSTALLED, &path, message)
                    .help("remove the device, and set its circuits from `lightloom export --to sonic-ocs`");
                continue;
            }
            let ingress = network.bank(ocs).ports_per_switch;
            let ports = match device.driver.protocol().kind() {
                Kind::OpticalSwitch { ports, .. } => ports(ingress),
                Kind::Transceiver { .. } | Kind::LinuxSwitch { .. } => {
                    let message = format!(
                        "{ocs} is an optical switch, but has a driver for other \
                        devices"
                    );
                    check
                        .error(codes::NOT_INSTALLED, &format!("/devices/{index}/driver"), message)
                        .help("use the driver scpi, tl1, sonic or gnmi");
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

pub(super) fn switches_of(name: &str, network: &ReconfigurableFatTree) -> String {
    format!(
        "the fabric `{name}` is a reconfigurable fat-tree with the switches ocs0 to ocs{}",
        network.switches().saturating_sub(1)
    )
}
