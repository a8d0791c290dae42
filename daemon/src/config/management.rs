// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use lightloom_fabric::document::Check;
use lightloom_units::id::NodeId;

use super::{Config, codes};
use lightloom_control::management::{Domain, DomainKind};
use lightloom_control::state::DeviceName;

impl Config {
    pub(super) fn manage(&mut self, check: &mut Check<'_>) {
        let hosts = self.drivers.iter().filter_map(|(name, (driver, _))| {
            let host = driver.protocol().host()?;
            Some((name.clone(), Domain { kind: DomainKind::Server, name: host.into() }))
        });
        let hosts: Vec<_> = hosts.collect();
        for (name, domain) in hosts {
            self.inventory.management.insert(name, domain);
        }
        let mut names = BTreeSet::new();
        for (index, written) in self.file.management.clone().into_iter().enumerate() {
            if !names.insert((written.kind, written.name.clone())) {
                let path = format!("/management/{index}/name");
                let message = format!("`{}` is already defined", written.name);
                check
                    .error(codes::SAME_NAME, &path, message)
                    .help("list all its lines in a single entry");
            }
            let domain = Domain { kind: written.kind, name: written.name.as_str().into() };
            for (number, line) in written.lines.iter().enumerate() {
                let devices = self.lines_of(line);
                if devices.is_empty() {
                    let path = format!("/management/{index}/lines/{number}");
                    let message = format!(
                        "`{line}` is neither a device nor a node with modules in this file"
                    );
                    let help = match self.inventory.devices.keys().next() {
                        Some(first) => format!(
                            "use a device name, such as `{first}`, or a node name, such as `n0`"
                        ),
                        None => "define devices under `devices:` or `modules:` first".to_owned(),
                    };
                    check.error(codes::NO_LINE, &path, message).help(&help);
                }
                for device in devices {
                    self.inventory.management.insert(device, domain.clone());
                }
            }
        }
    }

    fn lines_of(&self, line: &str) -> Vec<DeviceName> {
        let device = DeviceName::from(line);
        if self.inventory.devices.contains_key(&device) {
            return vec![device];
        }
        let Ok(node) = line.parse::<NodeId>() else { return Vec::new() };
        let of_node = self.bundles.iter().filter(|(bundle, _)| bundle.node == node);
        of_node.map(|(_, device)| device.clone()).collect()
    }
}
