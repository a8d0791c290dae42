// SPDX-License-Identifier: Apache-2.0
//! Tori without switches: a grid of hosts, each connected to the next one in every dimension.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::engine::{LinkId, LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// A torus.
// A dimension of size two has one cable between its hosts, and a dimension of size one has none.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TorusFile")]
pub struct Torus {
    /// Hosts in each dimension.
    #[schemars(length(min = 1, max = 6), inner(range(min = 1, max = 4096)))]
    pub sides: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    pub sides: Vec<u32>,
    /// The first dimension varies fastest.
    pub hosts: Vec<VertexId>,
    /// Each cable with its dimension and the index of the host where it starts.
    pub cables: Vec<(usize, usize, LinkId)>,
}

impl Torus {
    pub fn build_into(&self, builder: &mut NetworkBuilder, link: LinkSpec) -> Grid {
        let count: u32 = self.sides.iter().product();
        let hosts = (0..count).map(|_| builder.add(VertexRole::ForwardingHost)).collect();
        let mut grid = Grid { sides: self.sides.clone(), hosts, cables: Vec::new() };
        for dimension in 0..self.sides.len() {
            let side = self.sides[dimension];
            for place in 0..grid.hosts.len() {
                let last = grid.coordinate(place, dimension) + 1 == side;
                if side == 1 || (side == 2 && last) {
                    continue;
                }
                let next = grid.hosts[grid.next(place, dimension)];
                let cable = builder.connect(grid.hosts[place], next, link);
                grid.cables.push((dimension, place, cable));
            }
        }
        grid
    }
}

impl Grid {
    fn stride(&self, dimension: usize) -> usize {
        self.sides[..dimension].iter().map(|side| *side as usize).product()
    }
    pub fn coordinate(&self, place: usize, dimension: usize) -> u32 {
        (place / self.stride(dimension) % self.sides[dimension] as usize) as u32
    }
    pub fn next(&self, place: usize, dimension: usize) -> usize {
        let (side, stride) = (self.sides[dimension] as usize, self.stride(dimension));
        let here = place / stride % side;
        place - here * stride + (here + 1) % side * stride
    }
    pub fn rings(&self, dimension: usize) -> Vec<Vec<usize>> {
        let first = (0..self.hosts.len()).filter(|place| self.coordinate(*place, dimension) == 0);
        let rings = first.map(|place| {
            let around = std::iter::successors(Some(place), |at| Some(self.next(*at, dimension)));
            around.take(self.sides[dimension] as usize).collect()
        });
        rings.collect()
    }
}

/// Cubes of chips.
// Cubes of 4 × 4 × 4 chips combined into a torus by optical switches (Jouppi et al.: "TPU v4", ISCA 2023, section
// 2.2). In each dimension, sixteen cables leave a face of a cube, each to its own switch, which all cubes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CubesFile")]
pub struct CubeTorus {
    /// Cubes in each of three dimensions.
    #[schemars(inner(range(min = 1, max = 16)))]
    pub cubes: [u32; 3],
}

const CUBE: u32 = 4;

impl CubeTorus {
    const SWITCHES: u32 = 3 * CUBE * CUBE;

    pub fn build_into(
        &self,
        builder: &mut NetworkBuilder,
        link: LinkSpec,
    ) -> (Grid, Vec<Vec<LinkId>>) {
        let sides = self.cubes.iter().map(|cubes| cubes * CUBE).collect();
        let grid = Torus { sides }.build_into(builder, link);
        let mut switches = vec![Vec::new(); Self::SWITCHES as usize];
        for &(dimension, place, cable) in &grid.cables {
            if grid.coordinate(place, dimension) % CUBE == CUBE - 1 {
                let on_face: Vec<u32> = (0..3)
                    .filter(|other| *other != dimension)
                    .map(|other| grid.coordinate(place, other) % CUBE)
                    .collect();
                let switch = dimension as u32 * CUBE * CUBE + on_face[0] + on_face[1] * CUBE;
                switches[switch as usize].push(cable);
            }
        }
        (grid, switches)
    }
}
