// SPDX-License-Identifier: Apache-2.0
//! From a circuit of a plan to the cross-connects of a device: the one place where port numbers of
//! plans become port numbers of optical switches.
//!
//! A plan numbers the ports of a switch from 0, and a port is duplex: its leaf sends into it and
//! receives from it. A circuit joins two such ports and carries both directions. Devices know ways
//! of light, each from where light enters to where it leaves, so a circuit is two of them:
//!
//! | device | light enters port `n` at | and leaves port `n` at |
//! | --- | --- | --- |
//! | SONiC | `n + 1`, A side | `n + 1`, B side |
//! | SCPI, TL1 (Polatis numbering, N × N) | ingress port `n + 1` | egress port `N + n + 1` |

use super::CrossConnect;

/// How a device numbers where light enters and leaves the duplex ports of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DevicePorts {
    /// One number for both sides of a port, from 1: SONiC's `1A` and `1B`.
    Sides,
    /// Ingress ports from 1, then as many egress ports: SCPI and TL1.
    IngressThenEgress {
        /// Ingress ports of the switch.
        ingress: u32,
    },
}

/// One way of light through a switch, in the device's own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OneWay {
    /// Where light enters.
    pub input: u32,
    /// Where it leaves.
    pub output: u32,
}

impl DevicePorts {
    /// Where light enters `port` of a plan.
    #[must_use]
    pub fn input(self, port: u32) -> u32 {
        port + 1
    }

    /// Where light leaves `port` of a plan.
    #[must_use]
    pub fn output(self, port: u32) -> u32 {
        self.input(port) + self.output_offset()
    }

    /// How far the number where light leaves a port is above the number where it enters.
    #[must_use]
    pub fn output_offset(self) -> u32 {
        match self {
            Self::Sides => 0,
            Self::IngressThenEgress { ingress } => ingress,
        }
    }

    /// Both ways of light of a circuit: from `a` to `b`, then from `b` to `a`.
    #[must_use]
    pub fn ways(self, circuit: &CrossConnect) -> [OneWay; 2] {
        let way = |from, to| OneWay { input: self.input(from), output: self.output(to) };
        [way(circuit.a_port, circuit.b_port), way(circuit.b_port, circuit.a_port)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_units::id::{LeafId, OcsId};

    /// Vectors written by hand: ports 0 and 6 of the plan on each kind of device.
    #[test]
    fn a_circuit_is_two_ways_of_light_in_the_numbers_of_each_device() {
        let circuit =
            CrossConnect { ocs: OcsId(0), a_port: 0, b_port: 6, a: LeafId(0), b: LeafId(3) };
        let ways = |ports: DevicePorts| ports.ways(&circuit).map(|way| (way.input, way.output));
        // SONiC: 1A-7B and 7A-1B.
        assert_eq!(ways(DevicePorts::Sides), [(1, 7), (7, 1)]);
        // A switch of 32 by 32: ingress 1 to 32, egress 33 to 64.
        assert_eq!(ways(DevicePorts::IngressThenEgress { ingress: 32 }), [(1, 39), (7, 33)]);
        // The last port of a switch of 320 by 320.
        let last = CrossConnect { a_port: 318, b_port: 319, ..circuit };
        let ports = DevicePorts::IngressThenEgress { ingress: 320 };
        assert_eq!(ports.ways(&last)[0], OneWay { input: 319, output: 640 });
        assert_eq!(ports.ways(&last)[1], OneWay { input: 320, output: 639 });
    }
}
