// SPDX-License-Identifier: Apache-2.0
//! Runs a scenario twice: with its faults and, as the baseline, without them.

use std::sync::Arc;

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{Difference, IslandEngine};
use lightloom_engine::transport::Balance;
use lightloom_fabric::fat_tree::SwitchTiming;
use lightloom_planner::khop::Layout;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_training::network::Network;
use lightloom_units::Picoseconds;

use crate::judge;
use crate::outcome::Outcome;
use crate::run::control::{CircuitChanges, CircuitOrder, Delays, Replanner, Rerouter, Shipped};
use crate::run::workload::{
    Circuits, JobGroups, Jobs, Leaves, PhaseProgram, Phases, TrainOrder, Trainings,
};
use crate::run::{
    ControlPlane, IslandReuse, Looks, Progress, RunError, RunLog, RunOrder, RunPass, Series,
    Workload, run as run_order,
};
use crate::scenario::{
    CircuitPlan, Effect, Expectation, FaultEvent, On, PACKETS_MAX, RunStart, Scenario, StartError,
    Traffic, TrainError, TrainStep, When, plan,
};
use crate::shipped::{MakeControl, no_daemon};
use crate::substrate::{Members, OpticalCircuits, RingCables, Substrate};

/// Settings of a run that are not part of the scenario.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Number of threads. Does not affect the result.
    pub threads: usize,
    /// Observations to record.
    pub watch: Watch,
    /// Whether to simulate identical parts only once. Does not affect the result.
    pub sharing: IslandReuse,
    /// Sampling of the time series. `None` disables it.
    pub series: Option<Looks>,
}

/// A finished run with its result. The engine is kept for inspection.
pub struct Finished {
    /// Result of the comparison.
    pub outcome: Outcome,
    /// Engine after the run with faults.
    pub engine: IslandEngine<Watch>,
    /// Substrate of the run.
    pub substrate: Arc<Substrate>,
    /// Port and flow activity over time, if requested.
    pub series: Series,
}

/// Reasons why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum EmulateError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(
        "simulating identical parts once changed the result: {0} (this is a bug in the engine, please report it)"
    )]
    NotTheSame(#[from] Difference),
    #[error("the jobs do not finish their steps even in the fault-free run")]
    NeverEnds,
    #[error("nothing to verify: {0}, so all parts are simulated anyway")]
    NothingSpared(&'static str),
    #[error("an expectation refers to {group}, but the plan has {groups} groups")]
    NoSuchGroup { group: lightloom_units::id::GroupId, groups: usize },
    #[error(
        "at scale {scale}, phase `{phase}` lasts {time}, less than 20 round trips; help: \
         use a scale of at most {scale_max}"
    )]
    TooSmall { scale: u64, phase: String, time: Picoseconds, scale_max: u64 },
}

/// Plans the fabric of `scenario` and runs the scenario with and without its faults.
pub fn emulate(
    scenario: &Scenario,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Outcome, EmulateError> {
    let start = plan(scenario)?;
    let settings =
        RunSettings { threads, watch: Watch::default(), sharing: IslandReuse::Reuse, series: None };
    emulate_from(scenario, &start, settings, progress).map(|finished| finished.outcome)
}

/// Runs `scenario` with and without its faults, under a modelled control plane.
pub fn emulate_from(
    scenario: &Scenario,
    start: &RunStart,
    settings: RunSettings,
    progress: &mut dyn Progress,
) -> Result<Finished, EmulateError> {
    emulate_with(scenario, start, settings, &no_daemon, progress)
}

/// Runs `scenario` with and without its faults. `maker` creates control planes that are executed rather than modelled.
pub fn emulate_with(
    scenario: &Scenario,
    start: &RunStart,
    settings: RunSettings,
    maker: &MakeControl,
    progress: &mut dyn Progress,
) -> Result<Finished, EmulateError> {
    require_groups(scenario, start)?;
    let sharing = sharing(scenario, start, &settings)?;
    let scale = scale_of(scenario, start)?;
    let RunSettings { threads, watch, series, .. } = settings;
    let making = Making { maker, threads, ..Making::new(scenario, start, scale, sharing)? };
    let events = making.events(&start.events);
    progress.begins(RunPass::Faults);
    let mut log = making.run(&events, watch, series, progress)?;
    if sharing == IslandReuse::Proven && log.engine().prove()?.is_none() {
        return Err(EmulateError::NothingSpared("identical parts became coupled during the run"));
    }
    let mut old = events.clone();
    old.retain(|event| event.from_start && event.planned().is_empty());
    let baseline = match old.len() == events.len() {
        true => None,
        false => {
            progress.begins(RunPass::Calm);
            Some(making.run(&old, Watch::default(), None, progress)?)
        }
    };
    let ran = judge::JudgedRun {
        baseline: baseline.as_ref().unwrap_or(&log),
        traffic: &making.traffic,
        log: &log,
        scenario,
        start,
        scale,
        threads,
    };
    let outcome = judge::outcome(&ran);
    let (substrate, series) = (start.substrate.clone(), std::mem::take(&mut log.series));
    Ok(Finished { outcome, engine: log.into_engine(), substrate, series })
}

pub(crate) fn run_alone(
    scenario: &Scenario,
    start: &RunStart,
    events: &[FaultEvent],
    maker: &MakeControl,
) -> Result<RunLog, EmulateError> {
    let making = Making { maker, ..Making::new(scenario, start, 1, IslandReuse::Reuse)? };
    Ok(making.run(events, Watch::default(), None, &mut ())?)
}

pub(crate) struct Making<'a> {
    scenario: &'a Scenario,
    start: &'a RunStart,
    traffic: Vec<Traffic>,
    demands: Vec<Demand>,
    members: Vec<Members>,
    trains: Vec<TrainOrder<'a>>,
    scale: u64,
    threads: usize,
    sharing: IslandReuse,
    maker: &'a MakeControl,
}

impl<'a> Making<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        start: &'a RunStart,
        scale: u64,
        sharing: IslandReuse,
    ) -> Result<Self, EmulateError> {
        let phases = start.circuits.iter().flat_map(|circuits| &circuits.phases);
        let demands = phases.map(|phase| phase.demand.clone().at_whole_rate(scale)).collect();
        let traffic = start.traffic(scenario);
        let (members, trains) = trains(scenario, start)?;
        let maker = &no_daemon;
        Ok(Self {
            scenario,
            start,
            traffic,
            demands,
            members,
            trains,
            scale,
            threads: 1,
            sharing,
            maker,
        })
    }

    fn shorter(&self, time: Picoseconds) -> Picoseconds {
        Picoseconds(time.0 / self.scale)
    }

    fn events(&self, events: &[FaultEvent]) -> Vec<FaultEvent> {
        let mut events = events.to_vec();
        for FaultEvent { when, lasts, .. } in &mut events {
            match when {
                When::At(at) => at.0 /= self.scale,
                When::InPhase { after, .. } => *after = self.shorter(*after),
            }
            *lasts = lasts.map(|lasts| self.shorter(lasts));
        }
        events
    }

    fn run(
        &self,
        events: &[FaultEvent],
        watch: Watch,
        series: Option<Looks>,
        progress: &mut dyn Progress,
    ) -> Result<RunLog, RunError> {
        run_order(self.order(events, watch, series)?, progress)
    }

    pub(crate) fn order<'b>(
        &'b self,
        events: &'b [FaultEvent],
        watch: Watch,
        series: Option<Looks>,
    ) -> Result<RunOrder<'b>, RunError> {
        let Self { scenario, start, .. } = self;
        let mut control: Vec<Box<dyn ControlPlane>> = Vec::new();
        let mut workloads: Vec<Box<dyn Workload>> = Vec::new();
        let has_phases = scenario.phases.is_some();
        if !self.traffic.is_empty() || !self.trains.is_empty() || has_phases || scenario.is_called {
            control.push(Box::new(Rerouter::new(scenario.control.reroute_delay)));
        }
        let planned = start.substrate.rings.as_ref().zip(start.layout.as_ref());
        let mut rings_control = None;
        if let Some((rings, layout)) = planned {
            let replanner = replanner(scenario, start, rings, layout);
            if !scenario.collectives.is_empty() {
                let (members, jobs) = (replanner.members(), replanner.jobs());
                let per_set = rings.fabric().dcn.nodes_per_tor() as usize;
                workloads.push(Box::new(JobGroups::new(
                    &scenario.collectives,
                    members,
                    jobs,
                    per_set,
                    scenario.awaited_collectives(),
                )));
            }
            rings_control = Some(replanner);
        }
        control.extend(self.light_control(rings_control, events)?);
        if !self.trains.is_empty() {
            let circuits = self.circuits_of_jobs();
            workloads.push(Box::new(Trainings::new(&self.trains, &self.members, circuits)));
        }
        if !self.traffic.is_empty() {
            workloads.push(Box::new(Jobs::new(&self.traffic, scenario.seed)));
        }
        workloads.extend(self.phases().map(|phases| Box::new(phases) as Box<dyn Workload>));
        let settings = lightloom_engine::EngineSettings {
            transport: scenario.transport,
            seed: scenario.seed,
            host_delay: scenario.host_delay,
            threads: self.threads,
            ..scenario.switches.settings()
        };
        Ok(RunOrder {
            substrate: &start.substrate,
            sharing: self.sharing,
            remembers: !self.trains.is_empty(),
            time_limit: scenario.time_limit,
            packet_limit: scenario.packet_limit,
            events,
            workloads,
            control,
            settings,
            watch,
            series,
        })
    }

    fn light_control<'b>(
        &'b self,
        rings: Option<Replanner<'b>>,
        events: &[FaultEvent],
    ) -> Result<Vec<Box<dyn ControlPlane + 'b>>, RunError> {
        let circuits = self.circuit_order();
        let daemon = self.scenario.control.lightloomd;
        let daemon = daemon.filter(|_| !events.is_empty() || circuits.is_some());
        let (Some(daemon), Some((plan, _)), On::Fabric(fabric)) =
            (daemon, self.start.plan.as_deref(), &self.scenario.on)
        else {
            let mut planes: Vec<Box<dyn ControlPlane + 'b>> = Vec::new();
            planes.extend(rings.map(|rings| Box::new(rings) as Box<dyn ControlPlane>));
            let changes = circuits.map(|(circuits, order)| CircuitChanges::new(circuits, order));
            planes.extend(changes.map(|changes| Box::new(changes) as Box<dyn ControlPlane>));
            return Ok(planes);
        };
        let side = (self.maker)(fabric, plan, &daemon, self.scenario.seed);
        let side = side.map_err(RunError::Control)?;
        Ok(vec![Box::new(Shipped::new(rings, circuits, side, daemon, self.scale))])
    }

    fn circuit_order(&self) -> Option<(&OpticalCircuits, CircuitOrder<'_>)> {
        let circuits = self.start.substrate.circuits.as_ref()?;
        let CircuitPlan { plan, phases, floor, .. } = self.start.circuits.as_ref()?;
        let timing = circuits.network().spec().timing;
        let timing = SwitchTiming {
            control: self.shorter(timing.control),
            switching: self.shorter(timing.switching),
            bring_up: self.shorter(timing.bring_up),
        };
        let order = CircuitOrder {
            demands: &self.demands,
            slacks: phases.iter().map(|phase| self.shorter(phase.slack)).collect(),
            in_flight: self.scenario.phases.map(|run| run.in_flight).unwrap_or_default(),
            floor: *floor,
            plan,
            timing,
        };
        Some((circuits, order))
    }

    fn phases(&self) -> Option<Phases<'_>> {
        let CircuitPlan { plan, phases, .. } = self.start.circuits.as_ref()?;
        let leaves = Leaves::of(&self.start.substrate, &plan.ranks);
        let phases = PhaseProgram {
            demands: &self.demands,
            routes: plan.phases.iter().map(|phase| phase.routes.as_slice()).collect(),
            slacks: phases.iter().map(|phase| self.shorter(phase.slack)).collect(),
            names: phases.iter().map(|phase| phase.name.clone()).collect(),
            steps: self.scenario.phases?.steps,
            after: self.scenario.phases_after.clone(),
        };
        Some(Phases::new(leaves, phases))
    }

    fn circuits_of_jobs(&self) -> Option<Circuits<'_>> {
        let plan = self.start.circuits.as_ref()?;
        let leaves = Leaves::of(&self.start.substrate, &plan.plan.ranks);
        leaves.have_lanes().then(|| Circuits::new(leaves, plan))
    }
}

fn replanner<'a>(
    scenario: &Scenario,
    start: &RunStart,
    rings: &'a RingCables,
    layout: &Layout,
) -> Replanner<'a> {
    let delays = Delays {
        detection: scenario.control.detection_delay,
        planning: scenario.control.planning_delay,
    };
    Replanner::new(rings, scenario.seed, delays, layout.clone(), start.faults.clone())
}

fn trains<'a>(
    scenario: &'a Scenario,
    start: &RunStart,
) -> Result<(Vec<Members>, Vec<TrainOrder<'a>>), EmulateError> {
    let (On::Fabric(fabric), Some((plan, _)), false) =
        (&scenario.on, start.plan.as_deref(), scenario.train.is_empty())
    else {
        return Ok((Vec::new(), Vec::new()));
    };
    let rings = start.substrate.rings.as_ref().ok_or(TrainError::NoGpus)?;
    let layout = start.layout.as_ref().ok_or(TrainError::NoGpus)?;
    let members = replanner(scenario, start, rings, layout).members();
    let mut orders = Vec::new();
    for train in &scenario.train {
        let step = TrainStep::of(train, fabric, plan)?;
        let cables = Network::cables_of(fabric);
        let seats = start.seats(&step, &members);
        orders.push(TrainOrder::new(train, step, cables, seats));
    }
    Ok((members, orders))
}

/// About 20 round trips between hosts under different leaves.
const SHORTEST_PHASE: Picoseconds = Picoseconds::from_micros(80);

fn scale_of(scenario: &Scenario, start: &RunStart) -> Result<u64, EmulateError> {
    let (Some(run), Some(circuits)) = (scenario.phases, &start.circuits) else { return Ok(1) };
    let of_phases = circuits.phases.iter().map(|phase| {
        let between_gpus = phase.demand.exchanges().map(|all| all.map(|(_, bytes)| bytes.0).sum());
        u128::from(between_gpus.unwrap_or_else(|| phase.demand.total().0))
    });
    let bytes = of_phases.sum::<u128>() * u128::from(run.steps);
    let wanted = bytes / u128::from(scenario.transport.payload.0) / u128::from(PACKETS_MAX);
    let planned = circuits.plan.phases.iter();
    let shortest = planned.min_by_key(|phase| phase.duration_ps).expect("a plan has phases");
    let scale_max = (shortest.duration_ps.0 / SHORTEST_PHASE.0).max(1);
    match run.scale {
        None => Ok(u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, scale_max)),
        Some(scale) if scale <= scale_max => Ok(scale.max(1)),
        Some(scale) => Err(EmulateError::TooSmall {
            scale,
            phase: shortest.name.clone(),
            time: Picoseconds(shortest.duration_ps.0 / scale),
            scale_max,
        }),
    }
}

fn require_groups(scenario: &Scenario, start: &RunStart) -> Result<(), EmulateError> {
    let groups = start.groups();
    let missing = scenario.expectations.iter().find_map(|expectation| match expectation {
        Expectation::Unaffected(group) if group.index() >= groups => Some(*group),
        _ => None,
    });
    missing.map_or(Ok(()), |group| Err(EmulateError::NoSuchGroup { group, groups }))
}

fn whole_because(
    scenario: &Scenario,
    start: &RunStart,
    settings: &RunSettings,
) -> Option<&'static str> {
    let mut effects = start.events.iter().map(|event| &event.effect);
    if scenario.collectives.iter().any(|one| one.is_between_groups) {
        Some("inter-group collectives share links")
    } else if !scenario.traffic.is_empty() {
        Some("host-to-host traffic shares links")
    } else if scenario.phases.is_some() {
        Some("pairs of a phase share links")
    } else if effects.clone().any(Effect::is_drawn) {
        Some("each link has random bit errors, packet loss and jitter")
    } else if effects.any(|effect| matches!(effect, Effect::PauseStorm(_))) {
        Some("PFC pauses propagate")
    } else if settings.series.is_some() {
        Some("ports are sampled for a time series")
    } else if settings.watch.keeps_packets() {
        Some("individual packets are captured")
    } else if scenario.transport.balance != Balance::PerFlow {
        Some("each flow is sprayed over several random paths")
    } else {
        None
    }
}

fn sharing(
    scenario: &Scenario,
    start: &RunStart,
    settings: &RunSettings,
) -> Result<IslandReuse, EmulateError> {
    match (whole_because(scenario, start, settings), settings.sharing) {
        (Some(reason), IslandReuse::Proven) => Err(EmulateError::NothingSpared(reason)),
        (Some(_), _) => Ok(IslandReuse::Whole),
        (None, sharing) => Ok(sharing),
    }
}
