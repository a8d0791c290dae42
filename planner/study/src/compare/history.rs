// SPDX-License-Identifier: Apache-2.0
//! Replays one history of faults against one design, for plots over time.

use lightloom_fabric::trace::{Health, Timeline, TraceTime};

use crate::architecture::{Architecture, CannotHold, Cluster};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub from: TraceTime,
    pub nodes_faulty: u32,
    pub gpus_wasted: u32,
}

/// Simultaneous changes share a moment, so moments are in order and never empty.
pub fn history(
    architecture: &dyn Architecture,
    cluster: Cluster,
    tp: u32,
    timeline: &Timeline,
) -> Result<Vec<Moment>, CannotHold> {
    let mut state = architecture.usable(cluster, tp)?;
    let mut nodes_faulty = 0;
    let mut moments: Vec<Moment> = Vec::with_capacity(timeline.changes().len() + 1);
    let instants: Vec<_> = timeline.changes().chunk_by(|a, b| a.at == b.at).collect();
    if instants.first().is_none_or(|changes| changes[0].at > TraceTime::START) {
        let gpus_wasted = cluster.gpus() - state.usable_gpus();
        moments.push(Moment { from: TraceTime::START, nodes_faulty, gpus_wasted });
    }
    for changes in instants {
        for change in changes {
            match change.health {
                Health::Faulty => {
                    state.fail(change.node);
                    nodes_faulty += 1;
                }
                Health::Healthy => {
                    state.repair(change.node);
                    nodes_faulty -= 1;
                }
            }
        }
        let healthy = cluster.gpus() - nodes_faulty * cluster.gpus_per_node;
        let gpus_wasted = healthy - state.usable_gpus();
        moments.push(Moment { from: changes[0].at, nodes_faulty, gpus_wasted });
    }
    Ok(moments)
}
