// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::trace::{FaultTrace, NodesError, TraceTime};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;

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
        let timeline = self.trace.on_nodes(fabric.hbd.nodes(), per_node, seed, 0)?;
        Ok(timeline.faulty_at(TraceTime::from_days(self.day)))
    }
}
