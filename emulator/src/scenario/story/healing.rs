//! Faults strike, and are healed: links go down, the next plan is made, bundles go dark and are lit.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::Part;
use lightloom_fabric::id::{BundleId, NodeId};
use lightloom_fabric::khop::Path;
use lightloom_fabric::units::{Picoseconds, SimTime};
use lightloom_planner::khop::{Change, GroupChange, RingGroup, Survey, replan};
use rand::RngExt;

use super::super::{ScenarioError, prove};
use super::{Act, Story};
use crate::engine::{LinkChange, LinkId};

/// How one fault was healed.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Healing {
    pub(in crate::scenario) part: Part,
    pub(in crate::scenario) at: SimTime,
    pub(in crate::scenario) detected: Option<SimTime>,
    pub(in crate::scenario) replanned: Option<SimTime>,
    pub(in crate::scenario) restored: Option<SimTime>,
    pub(in crate::scenario) bundles: usize,
    pub(in crate::scenario) dark: Option<[Picoseconds; 2]>,
    /// Lanes it stopped.
    pub(in crate::scenario) lanes: BTreeSet<usize>,
    pub(in crate::scenario) gpus_lost: u64,
}

impl Story<'_> {
    pub(super) fn darken_unlit(&mut self) {
        let dark = self.installed.dark_links(self.fabric, &self.layout);
        self.change(dark, LinkChange::Down);
        for part in self.faults.parts(&self.fabric.hbd) {
            self.change(self.links_of_part(part), LinkChange::Down);
        }
    }

    fn change(&mut self, links: Vec<LinkId>, change: LinkChange) {
        let now = self.engine.now();
        for link in links {
            self.engine.change_link(now, link, change);
        }
    }

    fn links_of_part(&self, part: Part) -> Vec<LinkId> {
        let paths = [Path::External1, Path::External2, Path::Loopback];
        match part {
            Part::Node(node) => self.installed.links_of_node(self.fabric, node),
            Part::Bundle(bundle) => paths
                .iter()
                .flat_map(|path| self.installed.links_of(self.fabric, bundle, *path))
                .collect(),
            Part::Fibre(port) => self.installed.links_of(self.fabric, port.bundle, port.selects()),
        }
    }

    /// The path that a bundle holds in hardware; nothing while it is dark.
    fn held(&self, bundle: BundleId) -> Option<Path> {
        self.held.get(&bundle).copied().unwrap_or_else(|| Some(self.layout.path(bundle)))
    }

    fn at(&mut self, time: SimTime, act: Act) {
        self.acts.push(act);
        self.engine.set_timer(time, self.acts.len() as u64 - 1);
    }

    pub(super) fn plan_faults(&mut self) {
        for (index, fault) in self.scenario.faults.iter().enumerate() {
            self.healings.push(Healing {
                part: fault.part,
                at: fault.at,
                detected: None,
                replanned: None,
                restored: None,
                bundles: 0,
                dark: None,
                lanes: BTreeSet::new(),
                gpus_lost: 0,
            });
            self.at(fault.at, Act::Strike(index));
            if let Some(time) = fault.repaired_at {
                self.at(time, Act::Repair(index));
            }
        }
    }

    pub(super) fn perform(&mut self, token: u64) -> Result<(), ScenarioError> {
        let index = usize::try_from(token).expect("tokens are indices");
        let now = self.engine.now();
        match std::mem::replace(&mut self.acts[index], Act::Replan(None)) {
            Act::Strike(fault) => self.strike(fault)?,
            Act::Repair(fault) => self.repair(fault)?,
            Act::Detect(fault) => {
                self.healings[fault].detected = Some(now);
                self.at(now + self.scenario.control.planning_delay, Act::Replan(Some(fault)));
            }
            Act::Replan(fault) => self.replan(fault)?,
            Act::Dark(bundle) => self.go_dark(bundle),
            Act::Lit(bundle, path) => self.go_lit(bundle, path),
            Act::Resume(lane) => self.resume(lane)?,
        }
        Ok(())
    }

    fn strike(&mut self, fault: usize) -> Result<(), ScenarioError> {
        let part = self.scenario.faults[fault].part;
        self.faults.insert(&self.fabric.hbd, part)?;
        self.change(self.links_of_part(part), LinkChange::Down);
        if matches!(part, Part::Node(_)) {
            self.healings[fault].gpus_lost = u64::from(self.fabric.hbd.gpus_per_node());
        }
        let detected = self.engine.now() + self.scenario.control.detection_delay;
        self.at(detected, Act::Detect(fault));
        Ok(())
    }

    /// A repaired part comes back as it was left: nobody has switched it if no plan was made since,
    /// and otherwise the plan has put its node into loopback.
    fn repair(&mut self, fault: usize) -> Result<(), ScenarioError> {
        let part = self.scenario.faults[fault].part;
        self.faults.remove(&self.fabric.hbd, part)?;
        let lit = match part {
            Part::Node(node) => self.lit_links_of(node),
            Part::Bundle(bundle) => self.lit_links_of(bundle.node),
            Part::Fibre(port) if self.is_lit(port.bundle, port.selects()) => {
                self.links_of_part(part)
            }
            Part::Fibre(_) => Vec::new(),
        };
        self.change(lit, LinkChange::Up);
        let known = self.engine.now()
            + self.scenario.control.detection_delay
            + self.scenario.control.planning_delay;
        self.at(known, Act::Replan(None));
        Ok(())
    }

    /// Links of a working node that carry light: its interfaces and copper edges, and each bundle's
    /// present path where the far end answers.
    fn lit_links_of(&self, node: NodeId) -> Vec<LinkId> {
        let bundles = (0..self.fabric.hbd.k()).map(|bundle| BundleId { node, bundle });
        let paths = [Path::External1, Path::External2, Path::Loopback];
        let switched: BTreeSet<LinkId> = bundles
            .clone()
            .flat_map(|bundle| paths.map(|path| (bundle, path)))
            .flat_map(|(bundle, path)| self.installed.links_of(self.fabric, bundle, path))
            .collect();
        let mut lit = self.installed.links_of_node(self.fabric, node);
        lit.retain(|link| !switched.contains(link));
        for bundle in bundles {
            let held = self.held(bundle).filter(|path| self.is_lit(bundle, *path));
            lit.extend(
                held.into_iter()
                    .flat_map(|path| self.installed.links_of(self.fabric, bundle, path)),
            );
        }
        lit
    }

    /// Whether every node of a group works and every bundle of it is lit as planned.
    pub(super) fn is_ready(&self, group: &RingGroup) -> bool {
        let struck = self.healings.iter().any(|healing| healing.at <= self.engine.now());
        let bundles = group.nodes.iter().flat_map(|node| {
            (0..self.fabric.hbd.k()).map(|bundle| BundleId { node: *node, bundle })
        });
        let lit = |bundle: BundleId| self.is_lit(bundle, self.layout.path(bundle));
        !struck
            || group.nodes.iter().all(|node| !self.faults.nodes.contains(node))
                && (group.segment.is_some() || bundles.into_iter().all(lit))
    }

    fn replan(&mut self, fault: Option<usize>) -> Result<(), ScenarioError> {
        let before: Vec<Vec<NodeId>> =
            self.layout.groups.iter().map(|group| group.ranks.clone()).collect();
        let survey = Survey::new(&self.fabric.hbd, &self.faults);
        let mut layout = self.layout.clone();
        let change = replan(self.fabric, &survey, &mut layout);
        for (bundle, from, _) in &change.bundles {
            self.held.entry(*bundle).or_insert(Some(*from));
        }
        self.layout = layout;
        prove(self.fabric, &self.faults, &self.layout)?;
        let lit_at = self.command(fault, &change);
        self.move_lanes(fault, &before, &change, lit_at);
        if let Some(fault) = fault {
            self.healings[fault].replanned = Some(self.engine.now());
        }
        Ok(())
    }

    /// Sends the new paths out: each bundle is dark for a time of its own. Returns when each is lit.
    fn command(&mut self, fault: Option<usize>, change: &Change) -> BTreeMap<BundleId, SimTime> {
        let transceiver = &self.fabric.transceiver;
        let dark_at = self.engine.now() + transceiver.software_delay;
        let (least, most) = (transceiver.switch_min.get(), transceiver.switch_max.get());
        let mut lit_at = BTreeMap::new();
        for (bundle, _, to) in &change.bundles {
            let mut draws = self.scenario.seed.stream("switch", self.switches);
            self.switches += 1;
            let dark = Picoseconds(draws.random_range(least..=most));
            self.at(dark_at, Act::Dark(*bundle));
            self.at(dark_at + dark, Act::Lit(*bundle, *to));
            lit_at.insert(*bundle, dark_at + dark);
            if let Some(fault) = fault {
                let healing = &mut self.healings[fault];
                healing.bundles += 1;
                let [shortest, longest] = healing.dark.unwrap_or([dark, dark]);
                healing.dark = Some([shortest.min(dark), longest.max(dark)]);
            }
        }
        lit_at
    }

    fn go_dark(&mut self, bundle: BundleId) {
        if let Some(path) = self.held(bundle) {
            self.change(self.installed.links_of(self.fabric, bundle, path), LinkChange::Down);
        }
        self.held.insert(bundle, None);
    }

    fn go_lit(&mut self, bundle: BundleId, path: Path) {
        self.held.insert(bundle, Some(path));
        if self.is_lit(bundle, path) {
            self.change(self.installed.links_of(self.fabric, bundle, path), LinkChange::Up);
        }
    }

    /// Whether light passes when `bundle` holds `path`: both ends work and select the fibre.
    fn is_lit(&self, bundle: BundleId, path: Path) -> bool {
        let survey = Survey::new(&self.fabric.hbd, &self.faults);
        let number = match path {
            Path::Loopback => return survey.bundle_works(bundle),
            Path::External1 => 1,
            Path::External2 => 2,
        };
        let port = lightloom_fabric::khop::Port { bundle, path: number };
        self.held(bundle) == Some(path)
            && survey
                .working_peer(port)
                .is_some_and(|far| self.held(far.bundle) == Some(far.selects()))
    }

    /// Stops the lanes whose groups changed and plans when they go on.
    fn move_lanes(
        &mut self,
        fault: Option<usize>,
        before: &[Vec<NodeId>],
        change: &Change,
        lit_at: BTreeMap<BundleId, SimTime>,
    ) {
        let software = self.engine.now() + self.fabric.transceiver.software_delay;
        let mut restored = lit_at.values().copied().max().unwrap_or(self.engine.now());
        for group in &change.groups {
            let (old, new) = match group {
                GroupChange::Bypassed { group, out, into } => {
                    let replaced = |node: &NodeId| match out.iter().position(|gone| gone == node) {
                        Some(place) => into[place],
                        None => *node,
                    };
                    (&before[*group], Some(before[*group].iter().map(replaced).collect()))
                }
                GroupChange::Moved { group, to, .. } => (&before[*group], Some(to.clone())),
                GroupChange::Lost { job: Some(_), group, .. } => (&before[*group], None),
                GroupChange::Lost { job: None, .. } | GroupChange::Formed { .. } => continue,
            };
            let Some(index) = self.lanes.iter().position(|lane| !lane.lost && lane.ranks == *old)
            else {
                continue;
            };
            self.stop(index);
            let lane = &mut self.lanes[index];
            if let Some(fault) = fault {
                self.healings[fault].lanes.insert(index);
                if new.is_none() {
                    let working =
                        u64::from(lane.gpus).saturating_sub(self.healings[fault].gpus_lost);
                    self.healings[fault].gpus_lost += working;
                }
            }
            let Some(ranks) = new else {
                lane.lost = true;
                continue;
            };
            let mine = |bundle: &&BundleId| ranks.contains(&bundle.node);
            let lit = lit_at.keys().filter(mine).map(|bundle| lit_at[bundle]).max();
            lane.ranks = ranks;
            let resumes = lit.unwrap_or(software);
            restored = restored.max(resumes);
            // Links that come up do so at that instant; routes over them exist right after it.
            self.at(resumes + Picoseconds(1), Act::Resume(index));
        }
        let all_live =
            change.groups.iter().all(|g| !matches!(g, GroupChange::Lost { job: Some(_), .. }));
        if let Some(fault) = fault.filter(|_| all_live) {
            self.healings[fault].restored = Some(restored);
        }
    }

    /// Gives up what a lane and its job are doing.
    fn stop(&mut self, index: usize) {
        self.lanes[index].stopped = true;
        let running = self.lanes[index].running.take();
        let job = self.lanes[index].job as usize;
        let between = self.between[job].running.take();
        for given_up in running.into_iter().chain(between) {
            for part in given_up.parts {
                self.owner.remove(&part.batch);
                part.cancel(&mut self.engine);
            }
        }
    }

    fn resume(&mut self, index: usize) -> Result<(), ScenarioError> {
        self.lanes[index].stopped = false;
        self.advance_lane(index)?;
        self.advance_between(self.lanes[index].job as usize)
    }
}
