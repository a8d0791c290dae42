//! Faults strike and are healed: links go down, the control plane learns of it and makes the next
//! plan, bundles go dark and are lit.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::id::{BundleId, NodeId};
use lightloom_fabric::khop::Path;
use lightloom_fabric::units::{Picoseconds, SimTime};
use lightloom_planner::khop::{Change, Survey, replan};
use rand::RngExt;

use super::super::{DCN, Effect, ScenarioError, Target, prove};
use super::Story;
use crate::engine::{BitErrors, FlowId, LinkChange, LinkId};
use crate::steady::Stage;
use crate::traffic::jobs::Turn;

/// How one fault was healed.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Healing {
    pub(in crate::scenario) at: SimTime,
    /// When it began to matter: a stuck bundle does when it is commanded first.
    pub(in crate::scenario) felt: Option<SimTime>,
    pub(in crate::scenario) detected: Option<SimTime>,
    pub(in crate::scenario) replanned: Option<SimTime>,
    pub(in crate::scenario) restored: Option<SimTime>,
    pub(in crate::scenario) bundles: usize,
    pub(in crate::scenario) dark: Option<[Picoseconds; 2]>,
    /// Lanes whose links it hit, or that were moved for it.
    pub(in crate::scenario) lanes: BTreeSet<usize>,
    pub(in crate::scenario) gpus_lost: u64,
    /// Flows of workloads that were on its links.
    pub(in crate::scenario) flows_hit: Vec<FlowId>,
    /// Those that were given up for it.
    pub(in crate::scenario) flows_given_up: Vec<FlowId>,
}

impl Healing {
    fn new(at: SimTime) -> Self {
        Self {
            at,
            felt: None,
            detected: None,
            replanned: None,
            restored: None,
            bundles: 0,
            dark: None,
            lanes: BTreeSet::new(),
            gpus_lost: 0,
            flows_hit: Vec::new(),
            flows_given_up: Vec::new(),
        }
    }

    /// From when it mattered until it was healed.
    pub(in crate::scenario) fn took(&self) -> Option<Picoseconds> {
        Some(self.restored?.since(self.felt?))
    }

    /// When something was noted about it.
    pub(super) fn times(&self) -> impl Iterator<Item = SimTime> + use<> {
        let struck = self.felt.map(|_| self.at);
        [struck, self.felt, self.detected, self.replanned, self.restored].into_iter().flatten()
    }
}

/// What the control queue will do.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Strike(usize),
    /// A flapping part comes back, or goes again.
    Blink(usize, LinkChange),
    Repair(usize),
    Detect(usize),
    /// The control plane learns that a part works again.
    Trust(usize),
    /// For a fault, or for a repair.
    Replan(Option<usize>),
    Dark(BundleId),
    Lit(BundleId, Path),
    Resume(usize),
    /// A lane that was hit looks whether it can go on.
    Wake(usize),
    /// A workload has asked for this.
    Turn(Turn),
    /// Flows of workloads without hope are given up.
    GiveUp,
    Done,
}

/// What the control plane knows and how it is.
pub(super) struct Control {
    /// What it holds for broken.
    pub(super) known: FaultSet,
    for_good: FaultSet,
    /// By fault: whether it knows of it.
    knows: Vec<bool>,
    /// By fault: whether it has struck and is not repaired.
    pub(super) active: Vec<bool>,
    /// By fault: whether its links are put out now.
    out: Vec<bool>,
    /// Faults that have it down now.
    gone: u32,
    /// What it would have done while it was gone.
    postponed: Vec<Act>,
    struck: bool,
}

impl Control {
    /// `for_good` is what is broken and stays so.
    pub(super) fn new(known: FaultSet, for_good: FaultSet, strikes: usize) -> Self {
        let none = vec![false; strikes];
        Self {
            for_good,
            known,
            knows: none.clone(),
            active: none.clone(),
            out: none,
            gone: 0,
            postponed: Vec::new(),
            struck: false,
        }
    }

    /// Whether nothing has ever struck.
    pub(super) fn is_calm(&self) -> bool {
        !self.struck
    }

    /// Whether the control plane is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.gone > 0
    }
}

impl Story<'_> {
    pub(super) fn at(&mut self, time: SimTime, act: Act) {
        self.acts.push(act);
        self.engine.set_timer(time, self.acts.len() as u64 - 1);
    }

    pub(super) fn plan_strikes(&mut self) {
        for (index, strike) in self.strikes.iter().enumerate() {
            self.healings.push(Healing::new(strike.at));
            if strike.from_start {
                self.begin_broken(index);
            } else {
                self.at(strike.at, Act::Strike(index));
            }
            if let Some(time) = strike.repaired_at {
                self.at(time, Act::Repair(index));
            }
            if let Effect::Flapping { down, up, times } = strike.effect {
                for turn in 0..u64::from(times) {
                    let begin = strike.at + Picoseconds((down + up).get() * turn);
                    if turn > 0 {
                        self.at(begin, Act::Blink(index, LinkChange::Down));
                    }
                    self.at(begin + down, Act::Blink(index, LinkChange::Up));
                }
            }
        }
    }

    /// What has struck before the run: the first plan knows of it.
    fn begin_broken(&mut self, fault: usize) {
        self.control.active[fault] = true;
        self.control.knows[fault] = true;
        self.control.out[fault] = true;
    }

    pub(super) fn perform(&mut self, token: u64) -> Result<(), ScenarioError> {
        let index = usize::try_from(token).expect("tokens are indices");
        let act = std::mem::replace(&mut self.acts[index], Act::Done);
        let of_control =
            matches!(act, Act::Detect(_) | Act::Trust(_) | Act::Replan(_) | Act::GiveUp);
        if of_control && self.control.is_gone() {
            self.control.postponed.push(act);
            return Ok(());
        }
        match act {
            Act::Strike(fault) => self.strike(fault),
            Act::Blink(fault, change) => self.blink(fault, change),
            Act::Repair(fault) => self.repair(fault),
            Act::Wake(lane) => self.wake(lane)?,
            Act::Detect(fault) => self.detect(fault)?,
            Act::Trust(fault) => self.trust(fault)?,
            Act::Replan(fault) => self.replan(fault)?,
            Act::Dark(bundle) => self.go_dark(bundle),
            Act::Lit(bundle, path) => self.go_lit(bundle, path),
            Act::Resume(lane) => self.resume(lane)?,
            Act::Turn(turn) => self.turn(turn)?,
            Act::GiveUp => self.give_up(),
            Act::Done => {}
        }
        Ok(())
    }

    /// How many times as long the control plane takes now.
    fn slowness(&self) -> u64 {
        let slower = |(index, strike): (usize, &super::Strike)| match strike.effect {
            Effect::Slower(times) if self.control.active[index] => Some(u64::from(times)),
            _ => None,
        };
        self.strikes.iter().enumerate().filter_map(slower).product()
    }

    pub(super) fn detection_delay(&self) -> Picoseconds {
        Picoseconds(self.scenario.control.detection_delay.get() * self.slowness())
    }

    fn planning_delay(&self) -> Picoseconds {
        Picoseconds(self.scenario.control.planning_delay.get() * self.slowness())
    }

    /// Links, both directions, that a fault hits.
    fn links_of_fault(&self, fault: usize) -> Vec<LinkId> {
        let targets = &self.strikes[fault].targets;
        let mut links: Vec<LinkId> =
            targets.iter().flat_map(|target| self.links_of(*target)).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    fn strike(&mut self, fault: usize) {
        let strike = &self.strikes[fault];
        self.control.struck = true;
        self.control.active[fault] = true;
        if strike.is_of_control() && strike.effect == Effect::Down {
            self.control.gone += 1;
        }
        let now = self.engine.now();
        match strike.effect {
            Effect::Stuck => return,
            Effect::Slower(_) => {}
            Effect::PauseStorm(priority) => self.storm(fault, 1 << priority),
            Effect::Down | Effect::Flapping { .. } => self.take_out(fault),
            Effect::Rate(rate) => self.impair(fault, LinkChange::Rate(rate)),
            Effect::BitErrors(share) => {
                self.impair(fault, LinkChange::BitErrors(BitErrors::from_share(share)))
            }
        }
        self.healings[fault].felt = Some(now);
        self.healings[fault].gpus_lost = self.gpus_out_of_service(fault);
        if !self.strikes[fault].parts(self.fabric).is_empty() {
            let detected = now + self.detection_delay();
            self.at(detected, Act::Detect(fault));
        }
    }

    /// GPUs of the nodes that a fault takes out of service.
    fn gpus_out_of_service(&self, fault: usize) -> u64 {
        let parts = self.strikes[fault].parts(self.fabric);
        let nodes = parts.iter().filter(|part| matches!(part, Part::Node(_))).count() as u64;
        nodes * u64::from(self.fabric.hbd.gpus_per_node())
    }

    fn take_out(&mut self, fault: usize) {
        let links = self.links_of_fault(fault);
        let now = self.engine.now();
        for lane in self.hit_lanes(fault, &links) {
            self.lanes[lane].goes_down(now, self.program_length);
        }
        self.control.out[fault] = true;
        self.put_out(&links);
        self.plan_to_give_up();
    }

    fn impair(&mut self, fault: usize, change: LinkChange) {
        let links = self.links_of_fault(fault);
        self.hit_lanes(fault, &links);
        self.change(&links, change);
    }

    /// The interfaces that a fault hits keep asking for pauses of these priorities, or let go.
    fn storm(&mut self, fault: usize, priorities: u8) {
        let mut links = self.links_of_fault(fault);
        let network = self.engine.network();
        links.retain(|link| {
            let ends = network.link(*link);
            ends.spec.plane == DCN && self.installed.gpu(ends.to).is_some()
        });
        self.hit_lanes(fault, &links);
        self.change(&links, LinkChange::Paused(priorities));
    }

    /// Notes what a fault hits by its links, and returns the lanes among that.
    fn hit_lanes(&mut self, fault: usize, links: &[LinkId]) -> Vec<usize> {
        self.note_flows(fault, links);
        let hit = |lane: &super::Lane| {
            !lane.lost && links.iter().any(|link| lane.links.binary_search(link).is_ok())
        };
        let hit: Vec<usize> = (0..self.lanes.len()).filter(|l| hit(&self.lanes[*l])).collect();
        self.healings[fault].lanes.extend(&hit);
        hit
    }

    fn blink(&mut self, fault: usize, change: LinkChange) {
        let links = self.links_of_fault(fault);
        match change {
            LinkChange::Down if !self.control.out[fault] => {
                self.control.out[fault] = true;
                self.put_out(&links);
            }
            LinkChange::Up if self.control.out[fault] => {
                self.control.out[fault] = false;
                self.let_go(&links);
            }
            _ => {}
        }
    }

    /// A repaired part comes back as the plan has it: as it was left if no plan was made since, and
    /// otherwise with its node in loopback.
    fn repair(&mut self, fault: usize) {
        let now = self.engine.now();
        self.control.active[fault] = false;
        let strike = &self.strikes[fault];
        match strike.effect {
            Effect::Stuck => self.free_stuck(fault),
            Effect::Slower(_) => self.healings[fault].restored = Some(now),
            Effect::PauseStorm(_) => {
                self.storm(fault, 0);
                self.healings[fault].restored = Some(now);
            }
            Effect::Rate(_) | Effect::BitErrors(_) => {
                let links = self.links_of_fault(fault);
                self.change(&links, LinkChange::Healthy);
                self.healings[fault].restored = Some(now);
            }
            Effect::Down | Effect::Flapping { .. } => {
                self.settle_bundles(fault);
                self.blink(fault, LinkChange::Up);
            }
        }
        if strike.is_of_control() {
            self.healings[fault].restored = Some(now);
            if strike.effect == Effect::Down {
                self.control_returns();
            }
        } else if strike.parts(self.fabric).is_empty() {
            self.healings[fault].restored = Some(now);
        } else {
            let known = now + self.detection_delay();
            self.at(known, Act::Trust(fault));
        }
        self.wake_lanes(fault);
        self.plan_to_give_up();
    }

    /// While a node was broken its bundles could not be told what the plans want of them.
    fn settle_bundles(&mut self, fault: usize) {
        for part in self.strikes[fault].parts(self.fabric) {
            let bundles: Vec<BundleId> = match part {
                Part::Node(node) => {
                    (0..self.fabric.hbd.k()).map(|bundle| BundleId { node, bundle }).collect()
                }
                Part::Bundle(bundle) => vec![bundle],
                Part::Fibre(_) => Vec::new(),
            };
            for bundle in bundles {
                let is_dark = self.held(bundle).is_none();
                if !is_dark && self.stuck_by(bundle).is_none() {
                    self.hold(bundle, Some(self.layout.path(bundle)));
                }
            }
        }
    }

    /// Lanes that were hit look, once the links are up, whether they can go on as they are.
    fn wake_lanes(&mut self, fault: usize) {
        let soon = self.engine.now() + Picoseconds(1);
        for lane in self.healings[fault].lanes.clone() {
            self.at(soon, Act::Wake(lane));
        }
    }

    /// A lane that nobody moved goes on when everything it needs is lit again.
    fn wake(&mut self, index: usize) -> Result<(), ScenarioError> {
        let lane = &self.lanes[index];
        if lane.stopped || lane.lost || !lane.links.iter().all(|link| self.passes(*link)) {
            return Ok(());
        }
        let (now, job) = (self.engine.now(), lane.job as usize);
        self.lanes[index].comes_back(now);
        self.advance_lane(index)?;
        self.advance_between(job)
    }

    /// What was postponed is done over: the control plane looks around first.
    fn control_returns(&mut self) {
        self.control.gone -= 1;
        if self.control.is_gone() {
            return;
        }
        let now = self.engine.now();
        for act in std::mem::take(&mut self.control.postponed) {
            let delay = match act {
                Act::Replan(_) => self.planning_delay(),
                _ => self.detection_delay(),
            };
            self.at(now + delay, act);
        }
    }

    fn detect(&mut self, fault: usize) -> Result<(), ScenarioError> {
        self.healings[fault].detected = Some(self.engine.now());
        // Gone before anybody noticed: still, the groups that stall must be seen to.
        self.learn(fault, self.control.active[fault])?;
        let replanned = self.engine.now() + self.planning_delay();
        self.at(replanned, Act::Replan(Some(fault)));
        Ok(())
    }

    fn trust(&mut self, fault: usize) -> Result<(), ScenarioError> {
        self.learn(fault, false)?;
        let replanned = self.engine.now() + self.planning_delay();
        self.at(replanned, Act::Replan(None));
        Ok(())
    }

    /// Notes whether a fault is there, as far as the control plane knows.
    fn learn(&mut self, fault: usize, is_there: bool) -> Result<(), ScenarioError> {
        self.control.knows[fault] = is_there;
        let mut known = self.control.for_good.clone();
        for (index, strike) in self.strikes.iter().enumerate() {
            if self.control.knows[index] {
                for part in strike.parts(self.fabric) {
                    known.insert(&self.fabric.hbd, part)?;
                }
            }
        }
        self.control.known = known;
        Ok(())
    }

    fn replan(&mut self, fault: Option<usize>) -> Result<(), ScenarioError> {
        let before: Vec<Vec<NodeId>> =
            self.layout.groups.iter().map(|group| group.ranks.clone()).collect();
        let survey = Survey::new(&self.fabric.hbd, &self.control.known);
        let mut layout = self.layout.clone();
        let change = replan(self.fabric, &survey, &mut layout);
        for (bundle, from, _) in &change.bundles {
            self.light.held.entry(*bundle).or_insert(Some(*from));
        }
        self.layout = layout;
        prove(self.fabric, &self.control.known, &self.layout)?;
        let lit_at = self.command(fault, &change);
        self.move_lanes(fault, &before, &change, &lit_at)?;
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
        if self.stuck_by(bundle).is_none() {
            self.hold(bundle, None);
        }
    }

    fn go_lit(&mut self, bundle: BundleId, path: Path) {
        match self.stuck_by(bundle) {
            None => self.hold(bundle, Some(path)),
            Some(fault) => self.find_stuck(fault),
        }
    }

    fn hold(&mut self, bundle: BundleId, path: Option<Path>) {
        self.light.held.insert(bundle, path);
        let links = self.links_of(Target::Part(Part::Bundle(bundle)));
        self.refresh(&links);
    }

    /// The fault that keeps a bundle from obeying, if there is one.
    fn stuck_by(&self, bundle: BundleId) -> Option<usize> {
        let target = Target::Part(Part::Bundle(bundle));
        let is_it = |fault: &usize| {
            let strike = &self.strikes[*fault];
            self.control.active[*fault]
                && strike.effect == Effect::Stuck
                && strike.targets.contains(&target)
        };
        (0..self.strikes.len()).find(is_it)
    }

    /// A bundle was commanded and did not obey: it is read back, and found.
    fn find_stuck(&mut self, fault: usize) {
        if self.healings[fault].felt.is_none() {
            self.healings[fault].felt = Some(self.engine.now());
            let detected = self.engine.now() + self.detection_delay();
            self.at(detected, Act::Detect(fault));
        }
    }

    /// A bundle obeys again: it takes the path that the plan has for it now.
    fn free_stuck(&mut self, fault: usize) {
        for target in self.strikes[fault].targets.clone() {
            if let Target::Part(Part::Bundle(bundle)) = target {
                self.hold(bundle, Some(self.layout.path(bundle)));
            }
        }
    }
}
