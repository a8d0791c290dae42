//! Where a run begins: what is broken, what will break, and the plan for it.

use lightloom_engine::VertexId;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::{Verdict, check};
use lightloom_planner::khop::{self, Layout, Method, to_document};
use lightloom_units::id::NodeId;

use super::{Scenario, ScenarioError, Strike};
use crate::traffic::Workload;

/// Where a run begins: what is broken, what will break, and the plan for it.
#[derive(Clone, Debug)]
pub struct Start {
    /// Broken from the start.
    pub faults: FaultSet,
    /// What the seed lets happen; what a replay has broken from the start comes last.
    pub strikes: Vec<Strike>,
    /// The plan, as the fabric reads it.
    pub plan: Plan,
    /// What the checker found.
    pub verdict: Verdict,
    pub(super) layout: Layout,
}

impl Start {
    /// Groups of jobs in the plan.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.layout.groups.iter().filter(|group| group.job.is_some()).count()
    }

    /// What runs beside the rings, on the nodes that work.
    pub(super) fn workloads(&self, fabric: &Fabric, scenario: &Scenario) -> Vec<Workload> {
        // GPUs are the first vertices of the network, in order.
        let node = |host: &VertexId| NodeId(host.0 / u32::from(fabric.hbd.gpus_per_node()));
        let works = |host: &VertexId| !self.faults.nodes.contains(&node(host));
        let mut workloads = scenario.workloads.clone();
        workloads.iter_mut().for_each(|workload| workload.hosts.retain(works));
        workloads
    }
}

/// Draws the faults of `scenario` and plans `fabric` as it is at the start; the plan is proven.
///
/// # Errors
/// If a part does not exist, the trace does not fit, or no group can be formed.
pub fn plan(fabric: &Fabric, scenario: &Scenario) -> Result<Start, ScenarioError> {
    let mut faults = FaultSet::of(fabric, scenario.broken.iter().copied())?;
    if let Some(day) = &scenario.broken_by {
        for node in day.nodes_out(fabric, scenario.seed)? {
            faults.insert(fabric, Part::Node(node))?;
        }
    }
    let from_start = scenario.replay.as_ref().map(|replay| replay.strikes(fabric, scenario));
    let from_start = from_start.transpose()?.unwrap_or_default();
    let mut strikes = drawn(fabric, scenario, &faults)?;
    let (old, new): (Vec<Strike>, Vec<Strike>) =
        from_start.into_iter().partition(|strike| strike.from_start);
    strikes.extend(new);
    for strike in old {
        for part in strike.parts(fabric) {
            faults.insert(fabric, part)?;
        }
        strikes.push(strike);
    }
    let layout = khop::plan(fabric, &faults, Method::Scan)?;
    let plan = to_document(fabric, &faults, scenario.seed, &layout);
    let verdict = check(fabric, &faults, &plan).map_err(ScenarioError::Unsound)?;
    if layout.groups.iter().all(|group| group.job.is_none()) {
        return Err(ScenarioError::NothingRuns);
    }
    Ok(Start { faults, strikes, plan, verdict, layout })
}

/// What the seed makes of the declared faults.
fn drawn(
    fabric: &Fabric,
    scenario: &Scenario,
    faults: &FaultSet,
) -> Result<Vec<Strike>, ScenarioError> {
    let working: Vec<NodeId> =
        (0..fabric.hbd.nodes()).map(NodeId).filter(|node| !faults.nodes.contains(node)).collect();
    let mut strikes = Vec::new();
    for (index, fault) in scenario.faults.iter().enumerate() {
        for target in &fault.targets {
            target.require(fabric)?;
        }
        strikes.extend(fault.draw(scenario.seed, index as u64, &working));
    }
    Ok(strikes)
}
