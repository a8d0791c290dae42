// SPDX-License-Identifier: Apache-2.0
//! Determines the initial state of a run: failed parts, plan, future faults and network.

use std::sync::Arc;

use lightloom_engine::{NetworkError, VertexId};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fault::{FaultError, FaultSet, Part as PlannedPart};
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::plan::Plan;
use lightloom_fabric::trace::NodesError;
use lightloom_planner::check::{Verdict, Violation, check};
use lightloom_planner::joint;
use lightloom_planner::khop::{DocumentError, Layout, from_document};
use lightloom_planner::rfabric::phases::Phase;
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;

use super::replay::Outage;
use super::{Effect, FaultEvent, On, Scenario, Traffic, TrainStep, When};
use crate::substrate::{self, Members, NetworkPart, Substrate};

/// Initial state of a run.
#[derive(Clone, Debug)]
pub struct RunStart {
    /// Network of the run.
    pub substrate: Arc<Substrate>,
    /// Parts that have failed before the run starts.
    pub faults: FaultSet,
    /// Faults drawn with the seed. Faults of a replay that are active from the start come last.
    pub events: Vec<FaultEvent>,
    /// Plan and the checker's verdict. `None` for networks that the scenario defines.
    pub plan: Option<Arc<(Plan, Verdict)>>,
    pub(crate) layout: Option<Layout>,
    /// Planned circuits and their traffic. `None` if no job has phases over circuits.
    pub circuits: Option<CircuitPlan>,
}

/// Plan for a fabric's initial state, with its inputs.
#[derive(Clone, Debug)]
pub struct FirstPlan {
    fabric: Arc<Fabric>,
    faults: FaultSet,
    seed: Seed,
    in_force: Option<Arc<Plan>>,
    proven: Arc<(Plan, Verdict)>,
}

impl FirstPlan {
    fn of(
        &self,
        scenario: &Scenario,
        fabric: &Arc<Fabric>,
        faults: &FaultSet,
    ) -> Option<&Arc<(Plan, Verdict)>> {
        let is_same_plan = match (&self.in_force, &scenario.plan) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (None, None) => self.seed == scenario.seed,
            _ => false,
        };
        let is_same = is_same_plan && Arc::ptr_eq(&self.fabric, fabric) && self.faults == *faults;
        is_same.then_some(&self.proven)
    }
}

/// Circuits for the phases of a step.
#[derive(Clone, Debug)]
pub struct CircuitPlan {
    /// Plan with only these phases.
    pub plan: Plan,
    /// Phases with traffic, in plan order.
    pub phases: Vec<Phase>,
    /// Minimum share of the next phase's rate that every stage of a change must carry.
    pub floor: f64,
}

/// Reasons why a run cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum StartError {
    #[error(transparent)]
    Part(#[from] FaultError),
    #[error(transparent)]
    Plan(#[from] joint::PlanError),
    #[error("the active plan does not match the current fabric: {}{}", .0[0], others(.0))]
    Misfit(Vec<Violation>),
    #[error("the plan is invalid: {} (this is a bug in the planner, please report it)", .0[0])]
    Unsound(Vec<Violation>),
    #[error("the plan cannot be read back: {0} (this is a bug in the planner, please report it)")]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("the fault trace does not match this {what}: {error}")]
    Trace { what: &'static str, error: NodesError },
    #[error(
        "this fabric has no domain, so there are no rings for `collectives`; `traffic` runs on any fabric with packet \
         switches or circuits"
    )]
    NoRings,
    #[error(
        "no group of any job can be formed; help: add a job to the fabric, or reduce the faults"
    )]
    NothingRuns,
    #[error("the daemon does not set one-way circuits; help: use `control: {{assumed: {{…}}}}`")]
    OneWay,
}

fn others(violations: &[Violation]) -> String {
    match violations.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    }
}

impl RunStart {
    pub(crate) fn first(&self, scenario: &Scenario) -> Option<FirstPlan> {
        let On::Fabric(fabric) = &scenario.on else { return None };
        Some(FirstPlan {
            fabric: fabric.clone(),
            faults: self.faults.clone(),
            seed: scenario.seed,
            in_force: scenario.plan.clone(),
            proven: self.plan.clone()?,
        })
    }

    /// Returns the number of groups in the plan.
    pub fn groups(&self) -> usize {
        let groups = self.layout.iter().flat_map(|layout| &layout.groups);
        groups.filter(|group| group.job.is_some()).count()
    }

    pub(crate) fn traffic(&self, scenario: &Scenario) -> Vec<Traffic> {
        let mut traffic = scenario.traffic.clone();
        if let Some(rings) = &self.substrate.rings {
            let failed = self.faults.failed_nodes(&rings.fabric().hbd);
            traffic.iter_mut().for_each(|one| {
                one.hosts
                    .retain(|host| rings.gpu(*host).is_none_or(|gpu| !failed.contains(&gpu.node)))
            });
        }
        traffic
    }
}

impl RunStart {
    pub(crate) fn seats(&self, step: &TrainStep, groups: &[Members]) -> Vec<Members> {
        let (Some((plan, _)), Some(gpus)) = (self.plan.as_deref(), &self.substrate.rings) else {
            return Vec::new();
        };
        let mapping = &step.owned.mapping;
        let lanes = mapping.data * mapping.context;
        let rings = step.gpus() / u64::from(mapping.tensor);
        let mut seats = vec![None; rings as usize];
        for rank in plan.ranks.iter().filter(|rank| rank.job == Some(step.job)) {
            let ring = rank.pp * lanes + rank.dp * mapping.context + rank.cp;
            let vertex = gpus.vertex(rank.gpu);
            let of = groups.iter().find(|group| group.ranks.contains(&vertex));
            if let Some(seat) = seats.get_mut(ring as usize).filter(|seat| seat.is_none()) {
                *seat = of.cloned();
            }
        }
        seats.into_iter().flatten().collect()
    }
}

/// Draws the faults of `scenario`, and plans the initial state of the fabric.
///
/// # Errors
/// Fails if a part does not exist, the trace does not match, or no group can be formed.
pub fn plan(scenario: &Scenario) -> Result<RunStart, StartError> {
    match &scenario.on {
        On::Network(substrate) => {
            let mut events = drawn(scenario, substrate, &|_| true);
            events.extend(outages(scenario, substrate)?);
            // Results list only new faults, by index, so old ones come last.
            events.sort_by_key(|event| event.from_start);
            Ok(RunStart {
                substrate: substrate.clone(),
                faults: FaultSet::none(),
                plan: None,
                layout: None,
                circuits: None,
                events,
            })
        }
        On::Fabric(fabric) => plan_fabric(scenario, fabric),
    }
}

fn plan_fabric(scenario: &Scenario, fabric: &Arc<Fabric>) -> Result<RunStart, StartError> {
    let is_one_way = fabric.dcn.circuits().is_some_and(|network| network.is_one_way());
    if is_one_way && scenario.control.lightloomd.is_some() {
        return Err(StartError::OneWay);
    }
    let in_force = scenario.plan.as_deref();
    let planned_around = in_force.iter().flat_map(|plan| &plan.faults);
    let mut broken = fabric.start.clone();
    for part in scenario.broken.iter().chain(planned_around) {
        broken.insert(fabric, *part)?;
    }
    if let Some(day) = &scenario.broken_by {
        let nodes = day.nodes_out(fabric, scenario.seed);
        for node in nodes.map_err(|error| StartError::Trace { what: "fabric", error })? {
            broken.insert(fabric, PlannedPart::Node(node))?;
        }
    }
    let mut faults = broken.clone();
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let replay = scenario.replay.as_ref();
    let outages = replay.map(|r| r.outages(fabric.hbd.nodes(), per_node, scenario.seed));
    let outages =
        outages.transpose().map_err(|error| StartError::Trace { what: "fabric", error })?;
    let outages = outages.unwrap_or_default();
    for outage in outages.iter().filter(|outage| outage.from_start) {
        faults.insert(fabric, PlannedPart::Node(outage.node))?;
    }
    let known = scenario.first.as_ref().and_then(|first| first.of(scenario, fabric, &faults));
    let proven = match (known, in_force) {
        (Some(proven), _) => proven.clone(),
        (None, Some(plan)) => {
            let verdict = check(fabric, &faults, plan).map_err(StartError::Misfit)?;
            Arc::new((plan.clone(), verdict))
        }
        (None, None) => {
            let options = joint::Options { seed: scenario.seed, ..Default::default() };
            let plan = joint::plan(fabric, &faults, options)?;
            let verdict = check(fabric, &faults, &plan).map_err(StartError::Unsound)?;
            Arc::new((plan, verdict))
        }
    };
    let document = &proven.0;
    let layout = layout_of(scenario, fabric, document)?;
    let circuits = circuits_of(scenario, fabric, document)?;
    // Plans made by the daemon after a failure can use different circuits.
    let replans = scenario.control.lightloomd.is_some() && fabric.hbd.ring().is_some();
    let lit: Vec<CrossConnect> =
        match fabric.dcn.circuits().filter(|_| replans && circuits.is_some()) {
            Some(network) => network.possible_circuits().collect(),
            None => circuits
                .iter()
                .flat_map(|circuits| &circuits.plan.phases)
                .flat_map(|phase| phase.circuits.iter().copied())
                .collect(),
        };
    let substrate = Arc::new(substrate::of_fabric(fabric, &scenario.switches, &lit, &broken)?);
    let failed = broken.failed_nodes(&fabric.hbd);
    let mut events = drawn(scenario, &substrate, &|part| {
        let node = part.planned.iter().find_map(|planned| planned.node());
        node.is_none_or(|node| !failed.contains(&node))
    });
    events.extend(outages.into_iter().map(|outage| {
        event(outage, substrate.part(&outage.node.to_string()).into_iter().collect())
    }));
    events.sort_by_key(|event| event.from_start);
    Ok(RunStart { substrate, faults, events, plan: Some(proven), layout, circuits })
}

fn layout_of(
    scenario: &Scenario,
    fabric: &Fabric,
    document: &Plan,
) -> Result<Option<Layout>, StartError> {
    if fabric.hbd.ring().is_none() {
        let (exchanges, trains) = (!scenario.collectives.is_empty(), !scenario.train.is_empty());
        if exchanges && fabric.hbd.grouping() == Grouping::Anywhere {
            return Err(StartError::NoRings);
        }
        if !exchanges && !trains {
            return Ok(None);
        }
    }
    let (layout, _) = from_document(fabric, document)?;
    let runs = layout.groups.iter().any(|group| group.job.is_some());
    if !runs && !scenario.collectives.is_empty() {
        return Err(StartError::NothingRuns);
    }
    Ok(Some(layout))
}

fn circuits_of(
    scenario: &Scenario,
    fabric: &Fabric,
    document: &Plan,
) -> Result<Option<CircuitPlan>, StartError> {
    let uses = scenario.phases.is_some() || !scenario.train.is_empty();
    let has_step = document.metrics.step_time_ps.is_some();
    let is_optical = fabric.dcn.circuits().is_some();
    let has_lanes = is_optical || fabric.dcn.direct().is_some();
    if !uses || !has_step || !(has_lanes || scenario.phases.is_some()) {
        return Ok(None);
    }
    let phases = joint::phases_between_gpus(fabric, &document.ranks)?;
    // Without optical switches, only GPU-to-GPU phases are sent. If there are optical switches,
    // phases without traffic between leaves have no circuits.
    let sends = phases.iter().filter(|phase| match is_optical {
        true => phase.demand.total() > lightloom_units::Bytes::ZERO,
        false => phase.demand.exchanges().is_some(),
    });
    let sends: Vec<&str> = sends.map(|phase| phase.name.as_str()).collect();
    let mut plan = document.clone();
    plan.phases.retain(|phase| sends.contains(&phase.name.as_str()));
    let phases = phases.iter().filter(|phase| sends.contains(&phase.name.as_str()));
    let phases: Vec<Phase> = phases.cloned().collect();
    Ok((!phases.is_empty()).then_some(CircuitPlan { plan, phases, floor: fabric.floor }))
}

fn drawn(
    scenario: &Scenario,
    substrate: &Substrate,
    works: &dyn Fn(&NetworkPart) -> bool,
) -> Vec<FaultEvent> {
    let faults = scenario.faults.iter().enumerate();
    faults
        .filter_map(|(at, fault)| fault.draw(scenario.seed, at as u64, substrate, works))
        .collect()
}

fn outages(scenario: &Scenario, substrate: &Substrate) -> Result<Vec<FaultEvent>, StartError> {
    let Some(replay) = &scenario.replay else { return Ok(Vec::new()) };
    let servers: Vec<&[VertexId]> = substrate.hosts.chunks(substrate.hosts_per_server).collect();
    let nodes = u32::try_from(servers.len()).expect("the number of hosts is limited");
    let gpus = substrate.hosts_per_server as u32 * replay.gpus_per_host;
    let outages = replay
        .outages(nodes, gpus, scenario.seed)
        .map_err(|error| StartError::Trace { what: "network", error })?;
    let events = outages.into_iter().map(|outage| {
        let names = servers[outage.node.index()].iter().map(|host| substrate.name(*host));
        event(outage, names.filter_map(|name| substrate.part(name).ok()).collect())
    });
    Ok(events.collect())
}

fn event(outage: Outage, parts: Vec<NetworkPart>) -> FaultEvent {
    let Outage { at, repaired_at, from_start, .. } = outage;
    let lasts = repaired_at.map(|repaired: SimTime| repaired.since(at));
    FaultEvent { parts, effect: Effect::Down, when: When::At(at), lasts, from_start }
}
