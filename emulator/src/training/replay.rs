// SPDX-License-Identifier: Apache-2.0
//! Runs a task graph on a machine without other traffic or faults.
//!
//! [`RingReuse::IdleRings`] is exact, because each ring has separate cables and a collective that would
//! start on a busy ring is rejected. Times over the data-centre network are never reused.

use std::sync::Arc;

use lightloom_collective::Directions;
use lightloom_engine::EngineSettings;
use lightloom_engine::capture::Watch;
use lightloom_engine::steady::Stage;
use lightloom_training::described::Described;
use lightloom_training::graph::TaskGraph;
use lightloom_training::machine::Machine;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime};

pub use crate::run::{ReuseError, RingReuse};

use crate::run::workload::Jobs;
use crate::run::{IslandReuse, Progress, RunError, RunOrder, RunPass, run};
use crate::scenario::{Pattern, Traffic};
use crate::substrate;

/// Times of all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// Start and end time of each task.
    pub spans: Vec<(SimTime, SimTime)>,
    /// End time of the last task.
    pub end: SimTime,
    /// Packets sent, counted once per link.
    pub packet_hops: u64,
    /// Number of collectives whose duration was reused.
    pub reused: u64,
}

/// Runs `graph` on `machine`.
///
/// # Errors
/// Fails if the graph refers to something that the machine lacks, or if reuse would not be exact.
///
/// # Panics
/// Panics if ranks that communicate are not connected.
pub fn replay(
    graph: &TaskGraph,
    machine: &Machine,
    reuse: RingReuse,
    progress: &mut dyn Progress,
) -> Result<TaskTimes, RunError> {
    let substrate = substrate::of_machine(machine)?;
    let (ranks, tensor) = (machine.ranks, machine.rings.first().map_or(1, Vec::len) as u32);
    let described = Described { graph: graph.clone(), ranks, tensor, note: None };
    if let Some(task) = described.first_absent() {
        return Err(RunError::Absent { task: task.name.clone(), ranks });
    }
    let traffic = [Traffic {
        name: "step".to_owned(),
        run: Pattern::Recorded(Arc::new(described)),
        hosts: substrate.hosts.clone(),
        bytes: Bytes::ZERO,
        directions: Directions::One,
        priority: 0,
        delay: Picoseconds::ZERO,
        after: Vec::new(),
        repeat: 1,
    }];
    let order = RunOrder {
        substrate: &substrate,
        events: &[],
        workloads: vec![Box::new(Jobs::new(&traffic, Seed(0)).reusing(reuse))],
        control: Vec::new(),
        settings: EngineSettings::default(),
        watch: Watch::default(),
        sharing: IslandReuse::Whole,
        remembers: false,
        series: None,
        time_limit: SimTime(u64::MAX),
        packet_limit: u64::MAX,
    };
    progress.begins(RunPass::Faults);
    let mut log = run(order, progress)?;
    assert!(log.waiting.is_empty(), "tasks wait forever: {:?}", log.waiting);
    let (end, rings) = (log.ended, log.rings);
    let packet_hops = log.engine().packets().hops + rings.hops;
    let spans = log.jobs.pop().and_then(|mut job| job.steps.pop()).map(|step| step.spans);
    let spans = spans.unwrap_or_default();
    Ok(TaskTimes { spans, end, packet_hops, reused: rings.reused })
}
