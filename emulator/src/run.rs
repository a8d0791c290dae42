// SPDX-License-Identifier: Apache-2.0
//! The event loop of a run: workloads send, parts fail, and the control plane reacts.
//!
//! ```text
//!            ┌────────────────────────── Context ──────────────────────────┐
//!   timers ─▶│ engine (packets) · links (why they are dark)   · fault logs │◀─ notices
//!            └──▲────────────────────▲─────────────────────────────▲───────┘
//!            faults            Workload: groups, jobs,      ControlPlane: replanner,
//!                              steps of tasks, phases       rerouter, circuits
//! ```
//!
//! Workloads and control planes do not call each other. They post their changes as a `Notice`, which
//! all parts receive before time advances.

mod context;
pub(crate) mod control;
mod faults;
mod light;
pub(crate) mod log;
mod series;
mod waiting;
pub(crate) mod workload;

use lightloom_engine::capture::Watch;
use lightloom_engine::collective::CollectiveStartError;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{EngineError, EngineSettings, Event};
use lightloom_planner::check::Violation;
use lightloom_units::{Picoseconds, SimTime};

pub(crate) use context::{Context, Notice, Owner};
pub(crate) use control::ControlPlane;
pub use log::Stop;
pub(crate) use log::{FaultLog, RunLog};
use series::Looker;
pub use series::{FlowSeriesRow, Looks, Series, SeriesRow};
pub use waiting::{Waiting, WaitsFor};
pub(crate) use workload::Workload;
pub(crate) use workload::is_nothing;
pub use workload::{Caller, Exposed, ProgramOrder, ReuseError, RingReuse, WhyResult};

use crate::scenario::FaultEvent;
use crate::substrate::Substrate;

/// One of the two runs of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunPass {
    /// Run with all faults.
    Faults,
    /// Baseline run without faults.
    Calm,
}

/// Receiver of progress reports.
pub trait Progress {
    /// Called when a run starts.
    fn begins(&mut self, _: RunPass) {}

    /// Reports the simulated time and the number of packet-hops. `done` computes the share of completed work.
    fn report(&mut self, now: SimTime, packet_hops: u64, done: &dyn Fn() -> f64);
}

impl Progress for () {
    fn report(&mut self, _: SimTime, _: u64, _: &dyn Fn() -> f64) {}
}

/// Interval, in simulated time, at which the limits are checked.
const SLICE: Picoseconds = Picoseconds::from_micros(20);

/// Whether to simulate identical parts only once. See [`steady`](lightloom_engine::steady).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IslandReuse {
    /// Simulates identical parts only once if the result is still exact.
    #[default]
    Reuse,
    /// Like [`IslandReuse::Reuse`], but also simulates all parts and compares every arrival.
    Proven,
    /// Simulates all parts.
    Whole,
}

pub(crate) type RunResult = Result<(), RunError>;

/// Reasons why a run cannot continue.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum RunError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Network(#[from] lightloom_engine::NetworkError),
    #[error(transparent)]
    Part(#[from] lightloom_fabric::fault::FaultError),
    #[error("`control: lightloomd`: {0}")]
    Control(String),
    #[error("the plan is invalid: {} (this is a bug in the planner, please report it)", .0[0])]
    Unsound(Vec<Violation>),
    #[error(transparent)]
    Collective(#[from] CollectiveStartError),
    #[error(transparent)]
    Reuse(#[from] ReuseError),
    #[error(
        "task `{task}` refers to a rank or ring that does not exist in the machine ({ranks} ranks)"
    )]
    Absent { task: String, ranks: u32 },
    #[error("workload `{workload}`: {error}")]
    Workload { workload: String, error: CollectiveStartError },
}

pub(crate) struct RunOrder<'a> {
    pub(crate) substrate: &'a Substrate,
    pub(crate) events: &'a [FaultEvent],
    pub(crate) workloads: Vec<Box<dyn Workload + 'a>>,
    pub(crate) control: Vec<Box<dyn ControlPlane + 'a>>,
    pub(crate) settings: EngineSettings,
    pub(crate) watch: Watch,
    pub(crate) sharing: IslandReuse,
    pub(crate) remembers: bool,
    pub(crate) series: Option<Looks>,
    pub(crate) time_limit: SimTime,
    pub(crate) packet_limit: u64,
}

pub(crate) struct Run<'a> {
    context: Context<'a>,
    workloads: Vec<Box<dyn Workload + 'a>>,
    control: Vec<Box<dyn ControlPlane + 'a>>,
    time_limit: SimTime,
    packet_limit: u64,
    still: (u64, SimTime),
    looker: Option<Looker>,
    /// Upper bound on timeouts, assuming no backoff and short queues.
    patience: Picoseconds,
    awaited: Option<usize>,
}

pub(crate) fn run(order: RunOrder<'_>, progress: &mut dyn Progress) -> Result<RunLog, RunError> {
    let mut run = Run::new(order)?;
    run.begin()?;
    let stop = run.until_done(progress)?;
    Ok(run.finish(stop))
}

impl<'a> Run<'a> {
    pub(crate) fn new(order: RunOrder<'a>) -> Result<Self, RunError> {
        let RunOrder { substrate, events, workloads, control, settings, watch, sharing, .. } =
            order;
        let network = substrate.network.clone();
        let links = network.links().len();
        let longest = network.links().iter().map(|link| link.spec.delay).max().unwrap_or_default();
        let transport = &settings.transport;
        let patience =
            transport.timeout.unwrap_or(transport.congestion.least_timeout().max(longest * 12));
        let watch = watch.over(substrate.classes().to_vec());
        let engine = match sharing {
            IslandReuse::Whole => IslandEngine::whole(network, settings, watch)?,
            IslandReuse::Reuse => {
                let islands = IslandEngine::new(network, settings, watch)?;
                if order.remembers { islands.remembering() } else { islands }
            }
            IslandReuse::Proven => {
                let sums = network.links().len();
                let islands = IslandEngine::new(network, settings, watch.with_sums(sums))?;
                if order.remembers { islands.remembering() } else { islands }
            }
        };
        Ok(Self {
            context: Context::new(substrate, events, engine),
            workloads,
            control,
            time_limit: order.time_limit,
            packet_limit: order.packet_limit,
            still: (0, SimTime::START),
            looker: order.series.map(|looks| Looker::new(looks, links)),
            awaited: None,
            patience,
        })
    }

    pub(crate) fn begin(&mut self) -> RunResult {
        for (at, plane) in self.control.iter_mut().enumerate() {
            plane.begin(&mut self.context, Owner::Control(at))?;
        }
        self.plan_faults();
        for (at, workload) in self.workloads.iter_mut().enumerate() {
            workload.begin(&mut self.context, Owner::Workload(at))?;
        }
        self.deliver()
    }

    fn until_done(&mut self, progress: &mut dyn Progress) -> Result<Option<Stop>, RunError> {
        let limit = self.time_limit;
        while let Some(next) = self.context.engine.next_due() {
            if next > limit {
                return Ok((!self.is_done()).then_some(Stop::Time { limit }));
            }
            let horizon = (next.max(self.context.engine.now()) + SLICE).min(limit);
            let look = self.looker.as_ref().map_or(horizon, Looker::next);
            let horizon = horizon.min(look);
            while let Some(event) = self.context.engine.next_event(horizon) {
                match event {
                    Event::Timer { token, .. } => self.timer(token)?,
                    Event::BatchDone { batch, at } => {
                        if let Some(Owner::Workload(owner)) = self.context.owner_of(batch) {
                            self.workloads[owner].batch_done(&mut self.context, batch, at)?;
                        }
                    }
                }
                self.deliver()?;
                if self.awaited.is_some_and(|workload| self.is_idle(workload)) {
                    return Ok(None);
                }
            }
            if let Some(looker) = &mut self.looker {
                looker.look(&self.context, self.context.engine.next_due());
            }
            let hops = self.context.engine.hops();
            progress.report(self.context.engine.now(), hops, &|| self.share_done());
            if self.only_polls() {
                break;
            }
            if let Some(stop) = self.deadlock() {
                return Ok(Some(stop));
            }
            if self.is_stranded() {
                break;
            }
            if hops > self.packet_limit {
                return Ok(Some(Stop::Packets { limit: self.packet_limit }));
            }
        }
        Ok(self.workloads.iter().any(|one| one.stands_still()).then_some(Stop::Standstill))
    }

    pub(crate) fn until_idle(&mut self, workload: usize) -> Result<Option<Stop>, RunError> {
        self.awaited = Some(workload);
        self.context.post(Notice::Called);
        self.deliver()?;
        if self.is_idle(workload) { Ok(None) } else { self.until_done(&mut ()) }
    }

    pub(crate) fn is_idle(&self, workload: usize) -> bool {
        self.workloads[workload].is_done()
    }

    pub(crate) fn waiting(&self, workload: usize) -> Vec<Waiting> {
        self.workloads[workload].waiting(&self.context)
    }

    pub(crate) fn context(&self) -> &Context<'a> {
        &self.context
    }

    fn timer(&mut self, token: u64) -> RunResult {
        let (owner, act) = self.context.take_act(token);
        match owner {
            Owner::Faults => self.fault_act(act),
            Owner::Control(at) => self.control[at].timer(&mut self.context, act),
            Owner::Workload(at) => self.workloads[at].timer(&mut self.context, act),
        }
    }

    fn deliver(&mut self) -> RunResult {
        while let Some(notice) = self.context.next_notice() {
            if let Notice::PhaseBegan { step, phase } = notice {
                self.plan_faults_of_phase(step, phase);
            }
            for plane in &mut self.control {
                plane.hear(&mut self.context, &notice)?;
            }
            for workload in &mut self.workloads {
                workload.hear(&mut self.context, &notice)?;
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.workloads.iter().all(|workload| workload.is_done())
    }

    fn only_polls(&self) -> bool {
        self.control.iter().any(|plane| plane.only_polls(&self.context)) && self.is_done()
    }

    fn share_done(&self) -> f64 {
        let shares = self.workloads.iter().map(|workload| workload.progress(&self.context));
        let (done, all) = shares.fold((0.0, 0.0), |(a, b), (done, all)| (a + done, b + all));
        if all > 0.0 { (done / all).min(1.0) } else { 1.0 }
    }

    fn deadlock(&self) -> Option<Stop> {
        // Only switches with priority queues send pauses, and runs with such switches are never split.
        let ports = self.context.engine.engine()?.deadlock()?;
        Some(Stop::Deadlock {
            ports: ports.into_iter().map(|link| self.context.substrate.link_name(link)).collect(),
        })
    }

    fn is_stranded(&mut self) -> bool {
        let context = &self.context;
        let may = self.workloads.iter().all(|one| one.is_done() || one.can_strand());
        if context.is_calm() || context.has_acts() || !may {
            return false;
        }
        let (delivered, now) = (context.engine.packets().delivered, context.engine.now());
        if delivered > self.still.0 {
            self.still = (delivered, now);
        }
        now.since(self.still.1) > self.patience * 200
    }

    fn finish(self, stop: Option<Stop>) -> RunLog {
        let Self { mut context, workloads, control, looker, .. } = self;
        if stop.is_some() {
            context.engine.settle();
        }
        let open = stop.is_some() || !workloads.iter().all(|workload| workload.is_done());
        let waiting =
            workloads.iter().filter(|_| open).flat_map(|one| one.waiting(&context)).collect();
        let ends = workloads.iter().filter_map(|workload| workload.last_end());
        let counts_faults = workloads.iter().any(|workload| workload.waits_for_restoration());
        let faults = context.faults.iter().filter(|_| counts_faults).flat_map(FaultLog::times);
        let last = ends.chain(faults).max().unwrap_or_default();
        let ended = if open { last.max(context.engine.now()) } else { last };
        let mut log = RunLog::new(ended, stop, waiting);
        log.series = looker.map(|looker| looker.finish(&context)).unwrap_or_default();
        for plane in control {
            plane.finish(&mut context, &mut log);
        }
        for workload in workloads {
            workload.finish(&mut context, &mut log);
        }
        context.finish(log)
    }
}
