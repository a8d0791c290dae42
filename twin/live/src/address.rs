// SPDX-License-Identifier: Apache-2.0
//! Names and addresses in the twin, as seen by programs in a node.
//!
//! | network | host name | address |
//! | --- | --- | --- |
//! | data-centre network | `n3` | 10.64.0.0/16 plus the node number plus 1 |
//! | fibres, by bundle | `n3-b0` | 10.65.0.0/16 for `b0`, 10.66.0.0/16 for `b1`, and so on |
//! | light, along a group | `n3-light` | 10.81.0.0/16 |

use std::net::Ipv4Addr;

pub const NODES_MAX: u32 = 65_000;
pub const BUNDLES_MAX: u8 = 16;

pub const DCN: &str = "eth0";

/// A bridge without ports that holds this node's address on light, which the other nodes in the group use.
pub const LIGHT: &str = "light";

pub fn dcn(node: u32) -> Ipv4Addr {
    numbered(64, node)
}

pub fn port(node: u32, bundle: u8) -> Ipv4Addr {
    numbered(65 + bundle, node)
}

/// The address of a node over light, routed through the nodes in between.
pub fn light(node: u32) -> Ipv4Addr {
    port(node, BUNDLES_MAX)
}

pub fn bundle(port: Ipv4Addr) -> u8 {
    port.octets()[1].saturating_sub(65)
}

fn numbered(second: u8, node: u32) -> Ipv4Addr {
    let [_, _, high, low] = (node + 1).to_be_bytes();
    Ipv4Addr::new(10, second, high, low)
}

pub fn hardware(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x6c, a, b, c, d]
}

pub fn hosts(nodes: u32, bundles: u8) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for node in 0..nodes {
        text.push_str(&format!("{} n{node}\n{} n{node}-{LIGHT}\n", dcn(node), light(node)));
        for bundle in 0..bundles {
            text.push_str(&format!("{} n{node}-b{bundle}\n", port(node, bundle)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_port_has_unique_ip_and_hardware_addresses() {
        let ports = (0..700).flat_map(|node| (0..4).map(move |bundle| port(node, bundle)));
        let nodes = (0..700).flat_map(|node| [dcn(node), light(node)]);
        let all: Vec<_> = ports.chain(nodes).collect();
        let addresses: BTreeSet<_> = all.iter().collect();
        let hardware: BTreeSet<_> = all.iter().map(|address| hardware(*address)).collect();
        assert_eq!((addresses.len(), hardware.len()), (4200, 4200));
        assert_eq!(port(255, 0), Ipv4Addr::new(10, 65, 1, 0));
        assert_eq!(bundle(port(255, 3)), 3);
    }

    #[test]
    fn hosts_file_names_every_network() {
        let text = hosts(2, 2);
        assert!(
            text.contains("10.64.0.2 n1\n10.81.0.2 n1-light\n10.65.0.2 n1-b0\n10.66.0.2 n1-b1\n"),
            "{text}"
        );
    }
}
