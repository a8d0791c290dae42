// SPDX-License-Identifier: Apache-2.0
//! Converts a plan's circuits to a device's cross-connects. Only this code maps the plan's port
//! numbers to those of optical switches.
//!
//! A plan numbers the duplex ports of a switch from 0, and a circuit connects two of them in both directions. Devices
//! have one-way cross-connects from an input to an output, so each circuit needs two.
//!
//! | device | light enters port `n` at | and leaves port `n` at |
//! | --- | --- | --- |
//! | SONiC | `n + 1`, A side | `n + 1`, B side |
//! | SCPI, TL1 (Polatis numbering, N × N) | ingress port `n + 1` | egress port `N + n + 1` |

use super::CrossConnect;

/// How a device numbers the inputs and outputs of a plan's duplex ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DevicePorts {
    /// Both sides of a port have the same number, from 1, as in SONiC's `1A` and `1B`.
    Sides,
    /// Ingress ports from 1, followed by as many egress ports, as in SCPI and TL1.
    IngressThenEgress {
        /// Number of ingress ports.
        ingress: u32,
    },
}

/// A one-way cross-connect in the device's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OneWay {
    /// Input number.
    pub input: u32,
    /// Output number.
    pub output: u32,
}

impl DevicePorts {
    /// Returns the input number of a plan's `port`.
    pub fn input(self, port: u32) -> u32 {
        port + 1
    }

    /// Returns the output number of a plan's `port`.
    pub fn output(self, port: u32) -> u32 {
        self.input(port) + self.output_offset()
    }

    /// Returns the offset from a port's input number to its output number.
    pub fn output_offset(self) -> u32 {
        match self {
            Self::Sides => 0,
            Self::IngressThenEgress { ingress } => ingress,
        }
    }

    /// Returns the two one-way cross-connects of a circuit, first `a` to `b` and then `b` to `a`.
    pub fn ways(self, circuit: &CrossConnect) -> [OneWay; 2] {
        let way = |from, to| OneWay { input: self.input(from), output: self.output(to) };
        [way(circuit.a_port, circuit.b_port), way(circuit.b_port, circuit.a_port)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_units::id::{LeafId, OcsId};

    #[test]
    fn circuit_has_two_directions_in_the_numbering_of_each_device() {
        let circuit =
            CrossConnect { ocs: OcsId(0), a_port: 0, b_port: 6, a: LeafId(0), b: LeafId(3) };
        let ways = |ports: DevicePorts| ports.ways(&circuit).map(|way| (way.input, way.output));
        assert_eq!(ways(DevicePorts::Sides), [(1, 7), (7, 1)]);
        assert_eq!(ways(DevicePorts::IngressThenEgress { ingress: 32 }), [(1, 39), (7, 33)]);
        let last = CrossConnect { a_port: 318, b_port: 319, ..circuit };
        let ports = DevicePorts::IngressThenEgress { ingress: 320 };
        assert_eq!(ports.ways(&last)[0], OneWay { input: 319, output: 640 });
        assert_eq!(ports.ways(&last)[1], OneWay { input: 320, output: 639 });
    }
}
