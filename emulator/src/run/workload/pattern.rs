// SPDX-License-Identifier: Apache-2.0

use lightloom_collective::{AllReduceWay, CollectiveError, Method, Schedule};
use lightloom_engine::collective::{
    BagWait, CollectiveStartError, Placement, StartedCollective, start_ordered,
};
use lightloom_engine::topology::Grid;
use lightloom_engine::{Engine, FlowSpec, Probe, Route, VertexId};
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;
use rand::RngExt;

use crate::scenario::{Pattern, Traffic};
use crate::substrate::Substrate;

impl Traffic {
    /// `round` is the index of the repetition.
    ///
    /// # Panics
    /// Panics for computations and exchanges over circuits.
    pub(super) fn start<P: Probe>(
        &self,
        engine: &mut Engine<P>,
        seed: Seed,
        substrate: &Substrate,
    ) -> Result<StartedCollective, CollectiveStartError> {
        if let Some(schedule) = self.schedule(substrate)? {
            let placement = Placement::new(self.hosts_of(substrate), substrate.route.clone())
                .at(engine.now())
                .in_priority(self.priority);
            return placement.start(&schedule, engine);
        }
        let flows = self.flows(engine, seed, &substrate.route).into_iter();
        let flows = flows.map(|flow| flow.over(substrate.route.clone())).collect();
        start_ordered(engine, flows, &self.waits())
    }

    fn schedule(&self, substrate: &Substrate) -> Result<Option<Schedule>, CollectiveError> {
        let Pattern::Collective(method) = self.run else { return Ok(None) };
        let schedule = method.schedule(self.hosts.len(), self.bytes, self.directions, || {
            substrate.grid.as_ref().map_or_else(Vec::new, rings_of)
        });
        schedule.map(Some)
    }

    fn hosts_of(&self, substrate: &Substrate) -> Vec<VertexId> {
        match (&self.run, &substrate.grid) {
            (Pattern::Collective(Method::AllReduce(AllReduceWay::Torus)), Some(grid)) => {
                grid.hosts.clone()
            }
            _ => self.hosts.clone(),
        }
    }

    fn waits(&self) -> Vec<BagWait> {
        let Pattern::Flows(rows) = &self.run else { return Vec::new() };
        let mut waits = Vec::new();
        for (flow, row) in rows.iter().enumerate() {
            waits.extend(row.after.iter().map(|other| BagWait {
                flow,
                awaited: other.flow,
                acknowledged: other.acknowledged,
            }));
        }
        waits
    }

    fn flow(&self, source: VertexId, destination: VertexId, now: SimTime) -> FlowSpec {
        let flow = FlowSpec::new(source, destination, self.bytes).at(now);
        FlowSpec { priority: self.priority, ..flow }
    }

    fn flows<P: Probe>(&self, engine: &Engine<P>, seed: Seed, route: &Route) -> Vec<FlowSpec> {
        let now = engine.now();
        match &self.run {
            Pattern::Permutation { by } => {
                let to = by.map_or_else(|| cycle(self.hosts.len(), seed), |by| self.further(by));
                let pairs = self.hosts.iter().zip(to);
                pairs.map(|(host, to)| self.flow(*host, self.hosts[to], now)).collect()
            }
            Pattern::Incast { into } => {
                let others = self.hosts.iter().filter(|host| *host != into);
                others.map(|host| self.flow(*host, *into, now)).collect()
            }
            Pattern::Flows(rows) => rows
                .iter()
                .map(|row| FlowSpec {
                    priority: row.priority.unwrap_or(self.priority),
                    ..FlowSpec::new(row.source, row.destination, row.bytes).at(now + row.start)
                })
                .collect(),
            Pattern::Random { sizes, load, lasts } => {
                let network = engine.network();
                let cables =
                    network.outgoing(self.hosts[0]).iter().map(|at| network.link(*at).spec);
                let usable = cables.filter(|spec| match route {
                    Route::Within(plane) => spec.plane == *plane,
                    _ => true,
                });
                // Most flows use an interface, which is slower than the cables within a server.
                let rate = usable.map(|spec| spec.rate).min().expect("hosts have cables");
                let mut flows = sizes.flows(seed, &self.hosts, *load, rate, now, *lasts);
                flows.iter_mut().for_each(|flow| flow.priority = self.priority);
                flows
            }
            _ => unreachable!("collectives and computations are handled elsewhere"),
        }
    }

    fn further(&self, by: u32) -> Vec<usize> {
        let count = self.hosts.len();
        (0..count).map(|place| (place + by as usize) % count).collect()
    }
}

/// Random cycle through all positions (Sattolo: "An algorithm to generate a random cyclic
/// permutation", Information Processing Letters 22, 1986).
fn cycle(count: usize, seed: Seed) -> Vec<usize> {
    let mut draws = seed.stream("permutation", 0);
    let mut to: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other: f64 = draws.random();
        to.swap(last, (other * last as f64) as usize);
    }
    to
}

fn rings_of(grid: &Grid) -> Vec<Vec<Vec<usize>>> {
    let long = (0..grid.sides.len()).filter(|dimension| grid.sides[*dimension] > 1);
    long.map(|dimension| grid.rings(dimension)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_visits_every_host_once() {
        for count in [2, 3, 8, 100] {
            let to = cycle(count, Seed(count as u64));
            let mut at = 0;
            for _ in 1..count {
                at = to[at];
                assert_ne!(at, 0, "the cycle does not visit all hosts");
            }
            assert_eq!(to[at], 0);
        }
    }
}
