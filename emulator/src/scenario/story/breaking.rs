//! What breaks and what is repaired: links go down, worsen and come back, whatever the control plane knows.

use lightloom_engine::steady::Stage;
use lightloom_engine::{BitErrors, LinkChange, LinkId};
use lightloom_fabric::fault::Part;
use lightloom_units::Picoseconds;
use lightloom_units::id::BundleId;

use super::healing::{Act, Healing};
use super::{Lane, Story};
use crate::scenario::{DCN, Effect, ScenarioError, Target};

/// What is broken now.
pub(super) struct Broken {
    /// By fault: whether it has struck and is not repaired.
    pub(super) active: Vec<bool>,
    /// By fault: whether its links are put out now.
    out: Vec<bool>,
    struck: bool,
}

impl Broken {
    /// Nothing, of so many faults to come.
    pub(super) fn none_of(strikes: usize) -> Self {
        Self { active: vec![false; strikes], out: vec![false; strikes], struck: false }
    }

    /// Whether nothing has ever struck.
    pub(super) fn is_calm(&self) -> bool {
        !self.struck
    }
}

impl Story<'_> {
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
            for (time, change) in strike.blinks() {
                self.at(time, Act::Blink(index, change));
            }
        }
    }

    /// What has struck before the run: the first plan knows of it.
    fn begin_broken(&mut self, fault: usize) {
        self.broken.active[fault] = true;
        self.control.knows[fault] = true;
        self.broken.out[fault] = true;
    }

    pub(super) fn strike(&mut self, fault: usize) {
        let strike = &self.strikes[fault];
        self.broken.struck = true;
        self.broken.active[fault] = true;
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
        self.broken.out[fault] = true;
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
        let hit = |lane: &Lane| {
            !lane.lost && links.iter().any(|link| lane.links.binary_search(link).is_ok())
        };
        let hit: Vec<usize> = (0..self.lanes.len()).filter(|l| hit(&self.lanes[*l])).collect();
        self.healings[fault].lanes.extend(&hit);
        hit
    }

    pub(super) fn blink(&mut self, fault: usize, change: LinkChange) {
        let links = self.links_of_fault(fault);
        match change {
            LinkChange::Down if !self.broken.out[fault] => {
                self.broken.out[fault] = true;
                self.put_out(&links);
            }
            LinkChange::Up if self.broken.out[fault] => {
                self.broken.out[fault] = false;
                self.let_go(&links);
            }
            _ => {}
        }
    }

    /// A repaired part comes back as the plan has it: as it was left if no plan was made since, and
    /// otherwise with its node in loopback.
    pub(super) fn repair(&mut self, fault: usize) {
        let now = self.engine.now();
        self.broken.active[fault] = false;
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
                Part::Fibre(_) | Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => Vec::new(),
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
    pub(super) fn wake(&mut self, index: usize) -> Result<(), ScenarioError> {
        let lane = &self.lanes[index];
        if lane.stopped || lane.lost || !lane.links.iter().all(|link| self.passes(*link)) {
            return Ok(());
        }
        let (now, job) = (self.engine.now(), lane.job as usize);
        self.lanes[index].comes_back(now);
        self.advance_lane(index)?;
        self.advance_between(job)
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

    /// The fault that keeps a bundle from obeying, if there is one.
    pub(super) fn stuck_by(&self, bundle: BundleId) -> Option<usize> {
        let target = Target::Part(Part::Bundle(bundle));
        let is_it = |fault: &usize| {
            let strike = &self.strikes[*fault];
            self.broken.active[*fault]
                && strike.effect == Effect::Stuck
                && strike.targets.contains(&target)
        };
        (0..self.strikes.len()).find(is_it)
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
