// SPDX-License-Identifier: Apache-2.0
//! The shipping control plane in a run: light that its transceivers move is links that carry packets, and the plan
//! that it commits says where groups go on.
//!
//! ```text
//!   fault ─▶ ControlSide ─▶ light ─▶ relock ─▶ links
//!                      └──▶ committed ─▶ groups move ─▶ restart ─▶ first packet
//! ```

use std::collections::BTreeMap;

use lightloom_engine::LinkId;
use lightloom_engine::steady::Stage;
use lightloom_fabric::fault::{FaultSet, Part as PlannedPart};
use lightloom_fabric::khop::Path;
use lightloom_fabric::plan::Plan;
use lightloom_planner::khop::{Change, GroupChange, Layout, RingGroup, from_document};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::{Picoseconds, SimTime};

use super::super::{Context, Owner, RunError, RunLog};
use super::ControlPlane;
use super::replan::Replanner;
use crate::scenario::Effect;
use crate::shipped::{ControlSide, DaemonSetup, Happened};
use crate::stages::StageName;
use crate::substrate::{HBD, Members};

/// How long after a fault a bypass of it is waited for.
const RESPONSE_MAX: Picoseconds = Picoseconds::from_millis(10_000);

/// What a timer is for.
#[derive(Clone)]
enum ControlTimer {
    /// The control side does something.
    Wake,
    /// A link that got its light carries packets, unless the light went again.
    Relocked(LinkId),
    /// A change is over.
    Ended(Option<Box<Plan>>),
}

/// The stages of one answer of the daemon, as far as they have come.
#[derive(Default)]
struct Answer {
    faults: Vec<usize>,
    stages: Vec<(StageName, SimTime)>,
}

impl Answer {
    /// A stage ends; where it comes again, the last one counts.
    fn reached(&mut self, stage: StageName, at: SimTime) {
        match self.stages.iter_mut().find(|(name, _)| *name == stage) {
            Some((_, end)) => *end = at,
            None => self.stages.push((stage, at)),
        }
    }
}

/// The shipping control plane.
pub(crate) struct Shipped<'a> {
    /// Who is in which group, and which path each bundle holds.
    inner: Replanner<'a>,
    side: Box<dyn ControlSide>,
    daemon: DaemonSetup,
    acts: Vec<ControlTimer>,
    me: Owner,
    wakes_at: Option<SimTime>,
    /// When a first sign of a fault was at the daemon that it has not answered yet.
    noticed: Option<SimTime>,
    answer: Option<Answer>,
    /// Since when bundles have no light at rest.
    dark_since: BTreeMap<BundleId, SimTime>,
    /// When the last link is locked that has light now.
    locked_at: SimTime,
    false_bypasses: u64,
}

impl<'a> Shipped<'a> {
    pub(crate) fn new(
        inner: Replanner<'a>,
        side: Box<dyn ControlSide>,
        daemon: DaemonSetup,
    ) -> Self {
        Self {
            inner,
            side,
            daemon,
            acts: Vec::new(),
            me: Owner::Control(0),
            wakes_at: None,
            noticed: None,
            answer: None,
            dark_since: BTreeMap::new(),
            locked_at: SimTime::START,
            false_bypasses: 0,
        }
    }

    fn at(&mut self, context: &mut Context<'_>, time: SimTime, act: ControlTimer) {
        self.acts.push(act);
        context.at(time, self.me, self.acts.len() as u64 - 1);
    }

    /// Asks to be woken when the control side does something next.
    fn sleep(&mut self, context: &mut Context<'_>) {
        let Some(due) = self.side.next_due() else { return };
        let due = due.max(context.now());
        if self.wakes_at.is_none_or(|at| due < at) {
            self.wakes_at = Some(due);
            self.at(context, due, ControlTimer::Wake);
        }
    }

    fn take(
        &mut self,
        context: &mut Context<'_>,
        happened: Vec<(SimTime, Happened)>,
    ) -> Result<(), RunError> {
        for (at, what) in happened {
            match what {
                Happened::Light(bundle, path) => self.light(context, bundle, path),
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

    /// The light of a bundle rests elsewhere, or moves.
    fn light(&mut self, context: &mut Context<'_>, bundle: BundleId, path: Option<Path>) {
        let now = context.now();
        self.inner.held.insert(bundle, path);
        if path.is_none() {
            self.dark_since.insert(bundle, now);
        } else {
            self.reached(StageName::Switched, now);
            let since = self.dark_since.remove(&bundle);
            for fault in self.answer.iter().flat_map(|answer| &answer.faults) {
                let log = &mut context.faults[*fault];
                let Some(dark) = since.map(|since| now.since(since)) else { continue };
                log.bundles += 1;
                let [shortest, longest] = log.dark.unwrap_or([dark, dark]);
                log.dark = Some([shortest.min(dark), longest.max(dark)]);
            }
        }
        for link in self.inner.rings.all_links_of(bundle) {
            match (self.inner.selects(link), context.is_lit(link)) {
                (false, true) => context.light(link, false),
                (true, false) => {
                    let usable_at = now + self.inner.fabric.transceiver.relock;
                    self.locked_at = self.locked_at.max(usable_at);
                    self.at(context, usable_at, ControlTimer::Relocked(link));
                }
                _ => {}
            }
        }
    }

    /// The daemon bypasses these parts: which faults that answers.
    fn bypassing(&mut self, context: &mut Context<'_>, at: SimTime, parts: &[PlannedPart]) {
        let mut faults = Vec::new();
        for (fault, event) in context.events.iter().enumerate() {
            let broken = event.parts.iter().flat_map(|part| &part.planned);
            let meets = |part: &PlannedPart| broken.clone().any(|of| self.meets(*of, *part));
            // A transceiver that is only late works: to bypass it is false.
            let works = matches!(event.effect, Effect::Late(_));
            if context.active[fault] && !works && parts.iter().any(meets) {
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

    /// Whether what the daemon found is what broke, or a part of it, or the far end of it.
    fn meets(&self, broken: PlannedPart, found: PlannedPart) -> bool {
        let hbd = &self.inner.fabric.hbd;
        let ends = |part: PlannedPart| match part {
            PlannedPart::Fibre(port) => vec![Some(port), hbd.peer(port)],
            _ => Vec::new(),
        };
        match (broken, found) {
            (PlannedPart::Fibre(_), PlannedPart::Fibre(_)) => {
                ends(broken).iter().any(|end| ends(found).contains(end))
            }
            (PlannedPart::Fibre(_), PlannedPart::Bundle(bundle)) => {
                ends(broken).iter().flatten().any(|end| end.bundle == bundle)
            }
            (PlannedPart::Bundle(bundle), PlannedPart::Fibre(_)) => {
                ends(found).iter().flatten().any(|end| end.bundle == bundle)
            }
            (PlannedPart::Node(node), PlannedPart::Fibre(_)) => {
                ends(found).iter().flatten().any(|end| end.bundle.node == node)
            }
            (PlannedPart::Bundle(one), PlannedPart::Bundle(other)) => one == other,
            (broken, found) => broken.node().is_some() && broken.node() == found.node(),
        }
    }

    /// A change is over. If it was committed, groups go on as its plan says.
    fn ended(
        &mut self,
        context: &mut Context<'_>,
        plan: Option<Box<Plan>>,
    ) -> Result<(), RunError> {
        let mut answer = self.answer.take().unwrap_or_default();
        let Some(plan) = plan else { return Ok(()) };
        let now = context.now();
        let Ok((layout, known)) = from_document(self.inner.fabric, &plan) else { return Ok(()) };
        answer.reached(StageName::Qualified, now);
        answer.reached(StageName::Relocked, self.locked_at.max(now));
        let goes_on = self.locked_at.max(now) + self.daemon.restart;
        answer.reached(StageName::Restarted, goes_on);
        let first = answer.faults.first().copied();
        self.follow(context, first, (layout, known), goes_on);
        let packet = first.and_then(|fault| self.first_packet(context, fault));
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

    /// What a first packet of the groups that a fault hit takes to its first hop.
    fn first_packet(&self, context: &Context<'_>, fault: usize) -> Option<Picoseconds> {
        let groups = context.faults[fault].groups.iter();
        let mut alive = groups.filter(|group| !self.inner.groups[**group].is_lost);
        let light = self.inner.members_of(*alive.next()?).light;
        let network = &context.substrate.network;
        let (from, to) = (*light.first()?, *light.get(1)?);
        let mut hops = network.outgoing(from).iter().map(|link| network.link(*link));
        let spec = hops.find(|hop| hop.to == to && hop.spec.plane == HBD)?.spec;
        let packet = context.engine.settings().transport.packet();
        Some(spec.rate.time_for(packet) + spec.delay)
    }

    /// Moves the groups that the new plan has elsewhere.
    fn follow(
        &mut self,
        context: &mut Context<'_>,
        fault: Option<usize>,
        (layout, known): (Layout, FaultSet),
        goes_on: SimTime,
    ) {
        let before: Vec<Vec<NodeId>> =
            self.inner.layout.groups.iter().map(|group| group.ranks.clone()).collect();
        let members: Vec<Option<Members>> = (0..self.inner.groups.len())
            .map(|group| (!self.inner.groups[group].is_lost).then(|| self.inner.members_of(group)))
            .collect();
        let old = std::mem::replace(&mut self.inner.layout, layout);
        (self.inner.respected, self.inner.known) = (known.clone(), known);
        let groups = self.changes(&old, &members);
        let nodes = (0..self.inner.fabric.hbd.nodes()).map(NodeId);
        let bundles = nodes.map(|node| (BundleId { node, bundle: 0 }, goes_on));
        let change = Change { bundles: Vec::new(), groups };
        self.inner.move_groups(context, fault, &before, &change, &bundles.collect());
        if let Some(fault) = fault {
            let log = &mut context.faults[fault];
            log.restored = log.restored.map(|at| at.max(goes_on));
        }
    }

    /// Which groups of the plan before stand elsewhere now: who shares most with a group is it.
    fn changes(&self, old: &Layout, members: &[Option<Members>]) -> Vec<GroupChange> {
        let of_jobs = |layout: &Layout| -> Vec<RingGroup> {
            layout.groups.iter().filter(|group| group.job.is_some()).cloned().collect()
        };
        let mut free = of_jobs(&self.inner.layout);
        let mut moved = Vec::new();
        for (group, placed) in self.inner.groups.iter().enumerate() {
            if placed.is_lost {
                continue;
            }
            let same = |new: &RingGroup| new.job == Some(placed.job) && new.ranks == placed.nodes;
            match free.iter().position(same) {
                Some(at) => {
                    free.remove(at);
                    if members[group].as_ref() != Some(&self.inner.members_of(group)) {
                        moved.push((placed, Some(placed.nodes.clone())));
                    }
                }
                None => moved.push((placed, None)),
            }
        }
        let mut changes = Vec::new();
        for (placed, to) in moved {
            let Some(group) = old.groups.iter().position(|group| group.ranks == placed.nodes)
            else {
                continue;
            };
            let shared = |new: &RingGroup| {
                new.ranks.iter().filter(|node| placed.nodes.contains(node)).count()
            };
            let like = (0..free.len()).filter(|at| free[*at].job == Some(placed.job));
            let best = like.max_by_key(|at| (shared(&free[*at]), usize::MAX - at));
            let to = to.or_else(|| best.map(|at| free.remove(at).ranks));
            let from = placed.nodes.clone();
            changes.push(match to {
                Some(to) => GroupChange::Moved { group, from, to },
                None => GroupChange::Lost { job: Some(placed.job), group, from },
            });
        }
        changes.extend(
            free.into_iter().map(|new| GroupChange::Formed { job: new.job, to: new.ranks }),
        );
        changes
    }

    fn fault(
        &mut self,
        context: &mut Context<'_>,
        fault: usize,
        begins: bool,
    ) -> Result<(), RunError> {
        let mut out = Vec::new();
        let now = context.now();
        self.side.advance(now, &mut out);
        self.side.fault(now, &context.events[fault], begins, &mut out);
        self.take(context, out)
    }
}

/// Stages by their order, each no earlier than the one before it: what is hidden behind another takes no time.
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
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> Result<(), RunError> {
        self.inner.begin(context, me)?;
        self.me = me;
        self.sleep(context);
        Ok(())
    }

    fn fault_began(&mut self, context: &mut Context<'_>, fault: usize) -> Result<(), RunError> {
        self.fault(context, fault, true)
    }

    fn latent_began(&mut self, context: &mut Context<'_>, fault: usize) -> Result<(), RunError> {
        self.fault(context, fault, true)
    }

    fn fault_ends(&mut self, context: &mut Context<'_>, fault: usize) -> Result<(), RunError> {
        self.fault(context, fault, false)
    }

    fn blinked(
        &mut self,
        context: &mut Context<'_>,
        fault: usize,
        goes: bool,
    ) -> Result<(), RunError> {
        self.fault(context, fault, goes)
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> Result<(), RunError> {
        let act = std::mem::replace(&mut self.acts[act as usize], ControlTimer::Wake);
        match act {
            ControlTimer::Wake => {
                if self.wakes_at.is_some_and(|at| at <= context.now()) {
                    self.wakes_at = None;
                }
                let mut out = Vec::new();
                self.side.advance(context.now(), &mut out);
                self.take(context, out)
            }
            ControlTimer::Relocked(link) => {
                if self.inner.selects(link) && !context.is_lit(link) {
                    context.light(link, true);
                }
                Ok(())
            }
            ControlTimer::Ended(plan) => self.ended(context, plan),
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
        Box::new(self.inner).finish(context, log);
    }
}
