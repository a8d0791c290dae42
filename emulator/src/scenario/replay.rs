// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::trace::{FaultTrace, Health, NodesError, Timeline, TraceTime};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

/// A day of a fault trace. Faults that are active at its start exist from the start of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceDay {
    /// Trace.
    pub trace: Arc<FaultTrace>,
    /// Day, counted from the start of the trace.
    pub day: f64,
}

impl TraceDay {
    pub(super) fn nodes_out(&self, fabric: &Fabric, seed: Seed) -> Result<Vec<NodeId>, NodesError> {
        let per_node = u32::from(fabric.hbd.gpus_per_node());
        let timeline = Timeline::on_nodes(&self.trace, fabric.hbd.nodes(), per_node, seed, 0)?;
        Ok(timeline.faulty_at(TraceTime::from_days(self.day)))
    }
}

/// Several days of a fault trace in compressed time.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// Trace.
    pub trace: Arc<FaultTrace>,
    /// First day. Faults that are active at its start exist from the start of the run.
    pub from_day: f64,
    /// Last day.
    pub to_day: f64,
    /// Simulated time per day.
    pub day_takes: Picoseconds,
    /// GPUs per host of an inline network.
    pub gpus_per_host: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) node: NodeId,
    pub(crate) at: SimTime,
    pub(crate) repaired_at: Option<SimTime>,
    pub(crate) from_start: bool,
}

impl Replay {
    pub(crate) fn outages(
        &self,
        nodes: u32,
        gpus_per_node: u32,
        seed: Seed,
    ) -> Result<Vec<Outage>, NodesError> {
        let timeline = Timeline::on_nodes(&self.trace, nodes, gpus_per_node, seed, 0)?;
        let (from, to) = (TraceTime::from_days(self.from_day), TraceTime::from_days(self.to_day));
        let (at, repaired_at) = (SimTime::START, None);
        let broken = timeline.faulty_at(from).into_iter();
        let mut outages: Vec<Outage> =
            broken.map(|node| Outage { node, at, repaired_at, from_start: true }).collect();
        let inside = timeline.changes().iter().filter(|change| change.at > from && change.at < to);
        for change in inside {
            let days = change.at.ms_since(from) as f64 / 86_400_000.0;
            let at = SimTime((days * self.day_takes.get() as f64) as u64);
            match change.health {
                Health::Faulty => {
                    let node = change.node;
                    outages.push(Outage { node, at, repaired_at, from_start: false });
                }
                Health::Healthy => {
                    let open = outages.iter_mut().rev().find(|outage| outage.node == change.node);
                    open.expect("a repaired node must have failed before").repaired_at = Some(at);
                }
            }
        }
        Ok(outages)
    }
}
