// SPDX-License-Identifier: Apache-2.0
//! Ring replanning: detects faults, computes a new plan, and switches bundles.

use std::collections::BTreeMap;

use lightloom_engine::LinkId;
use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::fault::{FaultSet, Part as PlannedPart};
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Path;
use lightloom_planner::check::check;
use lightloom_planner::khop::{Change, Layout, RingGroup, Survey, replan, to_document};
use lightloom_units::id::{BundleId, GpuId, NodeId};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use rand::RngExt;

use super::super::{Context, Owner, RunError, RunLog, RunResult};
use super::ControlPlane;
use crate::scenario::Effect;
use crate::substrate::{Carrier, Members, RingCables};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delays {
    pub(crate) detection: Picoseconds,
    pub(crate) planning: Picoseconds,
}

#[derive(Clone, Copy)]
enum ReplanTimer {
    Detect(usize),
    Trust(usize),
    Replan(Option<usize>),
    Dark(BundleId),
    Lit(BundleId, Path),
}

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) job: u32,
    pub(super) nodes: Vec<NodeId>,
    pub(super) gpus: u32,
    pub(super) is_lost: bool,
    pub(super) resumes: SimTime,
}

pub(crate) struct Replanner<'a> {
    pub(super) fabric: &'a Fabric,
    pub(super) rings: &'a RingCables,
    without_steps: Fabric,
    seed: Seed,
    delays: Delays,
    pub(super) layout: Layout,
    pub(super) known: FaultSet,
    /// Faults considered by the current plan. A run may end before this includes all known faults.
    pub(super) respected: FaultSet,
    for_good: FaultSet,
    knows: Vec<bool>,
    /// Actual path of each bundle that has ever been switched. `None` while the bundle is dark.
    pub(super) held: BTreeMap<BundleId, Option<Path>>,
    pub(super) groups: Vec<Placed>,
    postponed: Vec<ReplanTimer>,
    /// Seeds the switching times, so that bundles do not affect each other.
    commands: BTreeMap<BundleId, u64>,
    acts: Vec<ReplanTimer>,
    me: Owner,
}

impl<'a> Replanner<'a> {
    pub(crate) fn new(
        rings: &'a RingCables,
        seed: Seed,
        delays: Delays,
        layout: Layout,
        known: FaultSet,
    ) -> Self {
        let fabric = rings.fabric();
        let per_node = fabric.hbd.gpus_per_node();
        let placed = layout.groups.iter().filter_map(|group| {
            let (nodes, gpus) = (group.ranks.clone(), group.gpus(per_node));
            let (is_lost, resumes) = (false, SimTime::START);
            Some(Placed { job: group.job?, nodes, gpus, is_lost, resumes })
        });
        Self {
            without_steps: Fabric {
                jobs: fabric.jobs.iter().map(|job| Job { step: None, ..job.clone() }).collect(),
                ..fabric.clone()
            },
            groups: placed.collect(),
            for_good: known.clone(),
            respected: known.clone(),
            known,
            knows: Vec::new(),
            held: BTreeMap::new(),
            postponed: Vec::new(),
            commands: BTreeMap::new(),
            acts: Vec::new(),
            me: Owner::Control(0),
            fabric,
            rings,
            seed,
            delays,
            layout,
        }
    }

    pub(crate) fn members(&self) -> Vec<Members> {
        (0..self.groups.len()).map(|group| self.members_of(group)).collect()
    }

    pub(crate) fn jobs(&self) -> usize {
        self.layout.jobs.len()
    }

    pub(super) fn members_of(&self, group: usize) -> Members {
        let ring_group = self.group_of(group);
        let hbd = &self.fabric.hbd;
        let gpus = self.fabric.hbd.gpus_per_node();
        let range = ring_group.segment.map_or(0..gpus, |s| s.first..s.first + s.gpus);
        // Without a domain, groups communicate over the network and need no ring.
        let has_domain = hbd.grouping() != Grouping::Anywhere;
        let ways = [self.layout.ring(hbd, &ring_group), self.layout.way_of_light(hbd, &ring_group)];
        let [ring, light] = ways.map(|gpus| {
            gpus.iter().filter(|_| has_domain).map(|gpu| self.rings.vertex(*gpu)).collect()
        });
        let ranks = ring_group
            .ranks
            .iter()
            .flat_map(|node| range.clone().map(|gpu| GpuId { node: *node, gpu: gpu % gpus }));
        Members {
            job: self.groups[group].job,
            gpus: self.groups[group].gpus,
            ring,
            light,
            // In a line, a group within one node is closed by links inside the node.
            is_closed: hbd.ring().is_none() || ring_group.segment.is_none(),
            ranks: ranks.map(|gpu| self.rings.vertex(gpu)).collect(),
        }
    }

    fn group_of(&self, group: usize) -> RingGroup {
        let placed = &self.groups[group];
        // Several groups can share a node: match them by index.
        let groups = self.layout.groups.iter();
        let same = groups.filter(|g| g.job == Some(placed.job) && g.ranks == placed.nodes);
        let before = self.groups[..group].iter();
        let twins = before.filter(|it| it.job == placed.job && it.nodes == placed.nodes);
        let found = same.take(twins.count() + 1).last();
        found.expect("the layout has every placed group").clone()
    }

    fn at(&mut self, context: &mut Context<'_>, time: SimTime, act: ReplanTimer) {
        self.acts.push(act);
        context.at(time, self.me, self.acts.len() as u64 - 1);
    }

    fn detect(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        context.faults[fault].detected = Some(context.now());
        // Stalled groups need a plan even if the fault ended before it was detected.
        self.learn(context, fault, context.active[fault])?;
        self.plan_later(context, Some(fault));
        Ok(())
    }

    fn plan_later(&mut self, context: &mut Context<'_>, fault: Option<usize>) {
        let replanned = context.now() + context.slowed(self.delays.planning);
        self.at(context, replanned, ReplanTimer::Replan(fault));
    }

    fn learn(&mut self, context: &Context<'_>, fault: usize, is_there: bool) -> RunResult {
        self.knows[fault] = is_there;
        let mut known = self.for_good.clone();
        for (event, knows) in context.events.iter().zip(&self.knows) {
            for part in event.planned().into_iter().filter(|_| *knows) {
                known.insert(self.fabric, part)?;
            }
        }
        self.known = known;
        Ok(())
    }

    fn replan(&mut self, context: &mut Context<'_>, fault: Option<usize>) -> RunResult {
        let before: Vec<Vec<NodeId>> =
            self.layout.groups.iter().map(|group| group.ranks.clone()).collect();
        let survey = Survey::new(&self.fabric.hbd, &self.known);
        let mut layout = self.layout.clone();
        let change = replan(self.fabric, &survey, &mut layout);
        for (bundle, from, _) in &change.bundles {
            self.held.entry(*bundle).or_insert(Some(*from));
        }
        self.layout = layout;
        prove(&self.without_steps, &self.known, &self.layout)?;
        self.respected = self.known.clone();
        let lit_at = self.command(context, fault, &change);
        self.move_groups(context, fault, &before, &change, &lit_at);
        if let Some(fault) = fault {
            context.faults[fault].replanned = Some(context.now());
        }
        Ok(())
    }

    fn command(
        &mut self,
        context: &mut Context<'_>,
        fault: Option<usize>,
        change: &Change,
    ) -> BTreeMap<BundleId, SimTime> {
        let transceiver = &self.fabric.transceiver;
        let dark_at = context.now() + transceiver.software_delay;
        let (least, most) = (transceiver.switch_min.get(), transceiver.switch_max.get());
        let mut lit_at = BTreeMap::new();
        for (bundle, _, to) in &change.bundles {
            let turn = self.commands.entry(*bundle).or_default();
            let mut draws = self.seed.stream(
                "switch",
                u64::from(bundle.node.0) << 32 | u64::from(bundle.bundle) << 16 | *turn,
            );
            *turn += 1;
            let dark = Picoseconds(draws.random_range(least..=most));
            self.at(context, dark_at, ReplanTimer::Dark(*bundle));
            let usable_at = dark_at + dark + transceiver.relock;
            self.at(context, usable_at, ReplanTimer::Lit(*bundle, *to));
            lit_at.insert(*bundle, usable_at);
            if let Some(fault) = fault {
                let log = &mut context.faults[fault];
                log.bundles += 1;
                let [shortest, longest] = log.dark.unwrap_or([dark, dark]);
                log.dark = Some([shortest.min(dark), longest.max(dark)]);
            }
        }
        lit_at
    }

    fn go_dark(&mut self, context: &mut Context<'_>, bundle: BundleId) {
        if stuck_by(context, bundle).is_none() {
            self.hold(context, bundle, None);
        }
    }

    fn go_lit(&mut self, context: &mut Context<'_>, bundle: BundleId, path: Path) {
        match stuck_by(context, bundle) {
            None => self.hold(context, bundle, Some(path)),
            Some(fault) => self.find_stuck(context, fault),
        }
    }

    fn find_stuck(&mut self, context: &mut Context<'_>, fault: usize) {
        if context.faults[fault].mattered.is_none() {
            context.faults[fault].mattered = Some(context.now());
            let detected = context.now() + context.slowed(self.delays.detection);
            self.at(context, detected, ReplanTimer::Detect(fault));
        }
    }

    fn held(&self, bundle: BundleId) -> Option<Path> {
        self.held.get(&bundle).copied().unwrap_or_else(|| Some(self.layout.path(bundle)))
    }

    fn hold(&mut self, context: &mut Context<'_>, bundle: BundleId, path: Option<Path>) {
        self.held.insert(bundle, path);
        for link in self.rings.all_links_of(bundle) {
            context.light(link, self.selects(link));
        }
    }

    pub(super) fn selects(&self, link: LinkId) -> bool {
        match self.rings.carrier(link) {
            Carrier::Always => true,
            Carrier::Loopback(bundle) => self.held(bundle) == Some(Path::Loopback),
            Carrier::Fibre(a, b) => [a, b].iter().all(|p| self.held(p.bundle) == Some(p.selects())),
        }
    }

    fn settle_bundles(&mut self, context: &mut Context<'_>, fault: usize) {
        for part in context.events[fault].planned() {
            let bundles: Vec<BundleId> = match part {
                PlannedPart::Node(node) => {
                    (0..self.fabric.hbd.k()).map(|bundle| BundleId { node, bundle }).collect()
                }
                PlannedPart::Bundle(bundle) => vec![bundle],
                PlannedPart::Fibre(_)
                | PlannedPart::Ocs(_)
                | PlannedPart::OcsPort(_)
                | PlannedPart::Uplink(_) => Vec::new(),
            };
            for bundle in bundles {
                let is_dark = self.held(bundle).is_none();
                if !is_dark && stuck_by(context, bundle).is_none() {
                    self.hold(context, bundle, Some(self.layout.path(bundle)));
                }
            }
        }
    }

    fn free_stuck(&mut self, context: &mut Context<'_>, fault: usize) {
        for part in context.events[fault].planned() {
            if let PlannedPart::Bundle(bundle) = part {
                self.hold(context, bundle, Some(self.layout.path(bundle)));
            }
        }
    }
}

impl ControlPlane for Replanner<'_> {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        self.knows = context.events.iter().map(|event| event.from_start).collect();
        for event in context.events.iter().filter(|event| event.from_start) {
            for part in event.planned() {
                self.for_good.remove(self.fabric, part)?;
            }
        }
        for part in self.known.parts(self.fabric) {
            let part = context.substrate.part(&part.to_string());
            context.count_fault(&part.map(|part| part.links).unwrap_or_default());
        }
        let links = (0..context.substrate.network.links().len()).map(LinkId::from_index);
        let links: Vec<LinkId> = links.collect();
        for link in &links {
            if !self.selects(*link) {
                context.select(*link, false);
            }
        }
        let dark: Vec<LinkId> = links.into_iter().filter(|link| !context.carries(*link)).collect();
        context.change(&dark, lightloom_engine::LinkChange::Down);
        Ok(())
    }

    fn fault_began(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        if !context.events[fault].planned().is_empty() {
            let detected = context.now() + context.slowed(self.delays.detection);
            self.at(context, detected, ReplanTimer::Detect(fault));
        }
        Ok(())
    }

    /// Sets a repaired part to its planned state. If the plan has changed, its node is in loopback.
    fn fault_ends(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        match context.events[fault].effect {
            Effect::Stuck => self.free_stuck(context, fault),
            effect if effect.goes_dark() => self.settle_bundles(context, fault),
            _ => {}
        }
        Ok(())
    }

    fn fault_ended(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        if !context.events[fault].planned().is_empty() {
            let known = context.now() + context.slowed(self.delays.detection);
            self.at(context, known, ReplanTimer::Trust(fault));
        }
        Ok(())
    }

    /// Restarts postponed actions, because the control plane first reads the current state.
    fn control_returned(&mut self, context: &mut Context<'_>) -> RunResult {
        for act in std::mem::take(&mut self.postponed) {
            let delay = match act {
                ReplanTimer::Replan(_) => self.delays.planning,
                _ => self.delays.detection,
            };
            let time = context.now() + context.slowed(delay);
            self.at(context, time, act);
        }
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        let act = self.acts[act as usize];
        let is_of_mind =
            matches!(act, ReplanTimer::Detect(_) | ReplanTimer::Trust(_) | ReplanTimer::Replan(_));
        if is_of_mind && context.control_is_gone() {
            self.postponed.push(act);
            return Ok(());
        }
        match act {
            ReplanTimer::Detect(fault) => self.detect(context, fault)?,
            ReplanTimer::Trust(fault) => {
                self.learn(context, fault, false)?;
                self.plan_later(context, None);
            }
            ReplanTimer::Replan(fault) => self.replan(context, fault)?,
            ReplanTimer::Dark(bundle) => self.go_dark(context, bundle),
            ReplanTimer::Lit(bundle, path) => self.go_lit(context, bundle, path),
        }
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut Context<'_>, log: &mut RunLog) {
        log.layout = Some((self.layout, self.respected));
    }
}

fn stuck_by(context: &Context<'_>, bundle: BundleId) -> Option<usize> {
    (0..context.events.len()).find(|fault| {
        let event = &context.events[*fault];
        context.active[*fault]
            && event.effect == Effect::Stuck
            && event.planned().contains(&PlannedPart::Bundle(bundle))
    })
}

fn prove(fabric: &Fabric, faults: &FaultSet, layout: &Layout) -> RunResult {
    let document = to_document(fabric, faults, Seed(0), layout);
    check(fabric, faults, &document).map(|_| ()).map_err(RunError::Unsound)
}
