// SPDX-License-Identifier: Apache-2.0
//! Connects the shipped control plane to a run: devices light the links, committed plans place the
//! groups, and jobs wait for the phases that they requested.

mod circuits;
mod rings;

use lightloom_engine::LinkId;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fault::Part as PlannedPart;
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::Plan;
use lightloom_planner::khop::from_document;
use lightloom_units::id::BundleId;
use lightloom_units::{Picoseconds, SimTime};

use super::super::{Context, Notice, Owner, RunLog, RunResult};
use super::ControlPlane;
use super::circuits::CircuitOrder;
use super::replan::Replanner;
use crate::scenario::Effect;
use crate::shipped::{ControlSide, DaemonSetup, Happened, PhaseAnswer, PhaseWish};
use crate::stages::StageName;
use crate::substrate::OpticalCircuits;
use circuits::ShippedCircuits;
use rings::ShippedRings;

const RESPONSE_MAX: Picoseconds = Picoseconds::from_millis(10_000);

#[derive(Clone)]
enum ControlTimer {
    Wake,
    Relocked(LinkId),
    Trained(CrossConnect),
    Ended(Option<Box<Plan>>),
    Settled(PhaseAnswer),
}

#[derive(Default)]
struct Answer {
    faults: Vec<usize>,
    stages: Vec<(StageName, SimTime)>,
}

impl Answer {
    fn reached(&mut self, stage: StageName, at: SimTime) {
        match self.stages.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, end)) => *end = at,
            None => self.stages.push((stage, at)),
        }
    }
}

pub(crate) struct Shipped<'a> {
    rings: Option<ShippedRings<'a>>,
    circuits: Option<ShippedCircuits<'a>>,
    side: Box<dyn ControlSide>,
    daemon: DaemonSetup,
    scale: u64,
    acts: Vec<ControlTimer>,
    me: Owner,
    wakes_at: Option<SimTime>,
    /// Time of the first symptom of a fault that the daemon has not handled.
    noticed: Option<SimTime>,
    answer: Option<Answer>,
    false_bypasses: u64,
}

impl<'a> Shipped<'a> {
    /// The clock of `side` runs `scale` times as fast as the run's clock.
    pub(crate) fn new(
        rings: Option<Replanner<'a>>,
        circuits: Option<(&'a OpticalCircuits, CircuitOrder<'a>)>,
        side: Box<dyn ControlSide>,
        daemon: DaemonSetup,
        scale: u64,
    ) -> Self {
        Self {
            rings: rings.map(ShippedRings::new),
            circuits: circuits.map(|(circuits, order)| ShippedCircuits::new(circuits, order)),
            side,
            daemon,
            scale,
            acts: Vec::new(),
            me: Owner::Control(0),
            wakes_at: None,
            noticed: None,
            answer: None,
            false_bypasses: 0,
        }
    }

    fn to_side(&self, time: SimTime) -> SimTime {
        SimTime(time.0 * self.scale)
    }

    fn at(&mut self, context: &mut Context<'_>, time: SimTime, act: ControlTimer) {
        self.acts.push(act);
        context.at(time, self.me, self.acts.len() as u64 - 1);
    }

    fn sleep(&mut self, context: &mut Context<'_>) {
        let Some(due) = self.side.next_due() else { return };
        let due = SimTime(due.0.div_ceil(self.scale)).max(context.now());
        if self.wakes_at.is_none_or(|at| due < at) {
            self.wakes_at = Some(due);
            self.at(context, due, ControlTimer::Wake);
        }
    }

    fn take(&mut self, context: &mut Context<'_>, happened: Vec<(SimTime, Happened)>) -> RunResult {
        for (at, what) in happened {
            let at = SimTime(at.0 / self.scale);
            match what {
                Happened::Light(bundle, path) => self.light(context, bundle, path),
                Happened::Passes(ocs, pairs) => {
                    let circuits = self.circuits.as_mut();
                    let training = circuits.map(|circuits| circuits.passes(context, ocs, &pairs));
                    self.train(context, training.unwrap_or_default());
                }
                Happened::PhaseMoves => {
                    if let Some(circuits) = &mut self.circuits {
                        circuits.moves(context);
                    }
                }
                Happened::PhaseSettled(answer) => {
                    self.at(context, at.max(context.now()), ControlTimer::Settled(answer));
                }
                Happened::Noticed => drop(self.noticed.get_or_insert(at)),
                Happened::Bypassing(parts) => self.bypassing(context, at, &parts),
                Happened::Planned => self.reached(StageName::Planned, at),
                Happened::Journalled => self.reached(StageName::Journalled, at),
                Happened::Sent => self.reached(StageName::Sent, at),
                Happened::Ended(plan) if at > context.now() => {
                    self.at(context, at, ControlTimer::Ended(plan));
                }
                Happened::Ended(plan) => self.ended(context, plan)?,
            }
        }
        self.sleep(context);
        Ok(())
    }

    fn reached(&mut self, stage: StageName, at: SimTime) {
        if let Some(answer) = &mut self.answer {
            answer.reached(stage, at);
        }
    }

    fn train(&mut self, context: &mut Context<'_>, training: Vec<(SimTime, CrossConnect)>) {
        for (until, circuit) in training {
            self.at(context, until, ControlTimer::Trained(circuit));
        }
    }

    fn light(&mut self, context: &mut Context<'_>, bundle: BundleId, path: Option<Path>) {
        let Some(rings) = &mut self.rings else { return };
        let (dark, locking) = rings.light(context, bundle, path);
        if path.is_some() {
            self.reached(StageName::Switched, context.now());
            for fault in self.answer.iter().flat_map(|answer| &answer.faults) {
                let log = &mut context.faults[*fault];
                let Some(dark) = dark else { continue };
                log.bundles += 1;
                let [shortest, longest] = log.dark.unwrap_or([dark, dark]);
                log.dark = Some([shortest.min(dark), longest.max(dark)]);
            }
        }
        for (usable_at, link) in locking {
            self.at(context, usable_at, ControlTimer::Relocked(link));
        }
    }

    fn bypassing(&mut self, context: &mut Context<'_>, at: SimTime, parts: &[PlannedPart]) {
        let mut faults = Vec::new();
        for (fault, event) in context.events.iter().enumerate() {
            let mut broken = event.parts.iter().flat_map(|part| &part.planned);
            // A late transceiver still works, so this bypass is a false positive.
            let works = matches!(event.effect, Effect::Late(_));
            let Some(rings) = self.rings.as_ref().filter(|_| context.active[fault] && !works)
            else {
                continue;
            };
            if broken.any(|broken| parts.iter().any(|part| rings.meets(*broken, *part))) {
                faults.push(fault);
            }
        }
        if faults.is_empty() {
            self.false_bypasses += 1;
        }
        let mut answer = Answer { faults, stages: Vec::new() };
        if let Some(noticed) = self.noticed.take() {
            answer.reached(StageName::Noticed, noticed.min(at));
        }
        answer.reached(StageName::Detected, at);
        for fault in &answer.faults {
            context.faults[*fault].detected.get_or_insert(at);
            context.faults[*fault].mattered.get_or_insert(at);
        }
        self.answer = Some(answer);
    }

    fn ended(&mut self, context: &mut Context<'_>, plan: Option<Box<Plan>>) -> RunResult {
        let mut answer = self.answer.take().unwrap_or_default();
        let (Some(plan), Some(rings)) = (plan, &mut self.rings) else { return Ok(()) };
        if let Some(circuits) = &mut self.circuits {
            circuits.replanned(&plan);
        }
        let now = context.now();
        let Ok((layout, known)) = from_document(rings.inner.fabric, &plan) else { return Ok(()) };
        answer.reached(StageName::Qualified, now);
        answer.reached(StageName::Relocked, rings.locked_at.max(now));
        let goes_on = rings.locked_at.max(now) + self.daemon.restart.0;
        answer.reached(StageName::Restarted, goes_on);
        let first = answer.faults.first().copied();
        rings.follow(context, first, layout, known, goes_on);
        let packet = first.and_then(|fault| rings.first_packet(context, fault));
        if let Some(packet) = packet {
            answer.reached(StageName::FirstPacket, goes_on + packet);
        }
        for fault in &answer.faults {
            let restored = first.and_then(|first| context.faults[first].restored);
            let log = &mut context.faults[*fault];
            log.restored = restored;
            let planned = answer.stages.iter().find(|(name, _)| *name == StageName::Planned);
            log.replanned = planned.map(|(_, at)| *at);
            log.timeline = in_order(&answer.stages, log.mattered);
        }
        Ok(())
    }

    fn fault(&mut self, context: &mut Context<'_>, fault: usize, begins: bool) -> RunResult {
        let mut out = Vec::new();
        let now = self.to_side(context.now());
        self.side.advance(now, &mut out);
        self.side.fault(now, &context.events[fault], begins, &mut out);
        let circuits = self.circuits.as_mut();
        let training = circuits.map(|circuits| circuits.fault(context, fault, begins));
        self.train(context, training.unwrap_or_default());
        self.take(context, out)
    }

    fn ask(&mut self, context: &mut Context<'_>, wish: PhaseWish) -> RunResult {
        let mut out = Vec::new();
        let now = self.to_side(context.now());
        self.side.advance(now, &mut out);
        let within = Picoseconds(wish.within.0 * self.scale);
        self.side.ask(now, PhaseWish { within, ..wish }, &mut out);
        self.take(context, out)
    }
}

/// Stages never overlap: a stage that ended before the previous one has zero duration.
fn in_order(stages: &[(StageName, SimTime)], began: Option<SimTime>) -> Vec<(StageName, SimTime)> {
    let mut stages = stages.to_vec();
    stages.sort_by_key(|(name, _)| *name);
    let mut last = began.unwrap_or_default();
    for (_, end) in &mut stages {
        *end = (*end).max(last);
        last = *end;
    }
    stages
}

impl ControlPlane for Shipped<'_> {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        if let Some(rings) = &mut self.rings {
            rings.inner.begin(context, me)?;
        }
        if let Some(circuits) = &mut self.circuits {
            circuits.begin(context);
        }
        let mut out = Vec::new();
        for event in context.events.iter().filter(|event| event.from_start) {
            self.side.fault(SimTime::START, event, true, &mut out);
        }
        self.take(context, out)
    }

    fn fault_began(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        self.fault(context, fault, true)
    }

    fn latent_began(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        self.fault(context, fault, true)
    }

    fn fault_ends(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        self.fault(context, fault, false)
    }

    fn blinked(&mut self, context: &mut Context<'_>, fault: usize, goes: bool) -> RunResult {
        self.fault(context, fault, goes)
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        let act = std::mem::replace(&mut self.acts[act as usize], ControlTimer::Wake);
        match act {
            ControlTimer::Wake => {
                if self.wakes_at.is_some_and(|at| at <= context.now()) {
                    self.wakes_at = None;
                }
                let mut out = Vec::new();
                let now = self.to_side(context.now());
                self.side.advance(now, &mut out);
                self.take(context, out)
            }
            ControlTimer::Relocked(link) => {
                if let Some(rings) = &self.rings {
                    rings.locked(context, link);
                }
                Ok(())
            }
            ControlTimer::Trained(circuit) => {
                if let Some(circuits) = &mut self.circuits {
                    circuits.trained(context, &circuit);
                }
                Ok(())
            }
            ControlTimer::Settled(answer) => {
                if let Some(circuits) = &mut self.circuits {
                    circuits.settled(context, &answer);
                }
                Ok(())
            }
            ControlTimer::Ended(plan) => self.ended(context, plan),
        }
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        let Notice::PhaseBegan { phase, .. } = notice else { return Ok(()) };
        let circuits = self.circuits.as_mut();
        match circuits.and_then(|circuits| circuits.wish(context, *phase)) {
            Some(wish) => self.ask(context, wish),
            None => Ok(()),
        }
    }

    fn only_polls(&self, context: &Context<'_>) -> bool {
        let now = context.now();
        let waits = context.faults.iter().zip(context.events).any(|(log, event)| {
            let begins = event.at().is_some_and(|at| at >= now);
            let answered = log.restored.is_some_and(|at| at <= now) || event.planned().is_empty();
            let is_new = log.at.is_some_and(|at| now < at + RESPONSE_MAX);
            begins || (!answered && is_new)
        });
        !waits && !context.control_is_gone() && !self.side.is_busy()
    }

    fn finish(self: Box<Self>, context: &mut Context<'_>, log: &mut RunLog) {
        let mut result = self.side.result();
        result.false_bypasses = self.false_bypasses;
        log.daemon = Some(Box::new(result));
        let Self { rings, circuits, .. } = *self;
        if let Some(rings) = rings {
            Box::new(rings.inner).finish(context, log);
        }
        if let Some(circuits) = circuits {
            circuits.finish(log);
        }
    }
}
