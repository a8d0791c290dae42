//! How faults are healed: the control plane learns of them and makes the next plan, bundles go dark and are lit.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowId, LinkChange};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Path;
use lightloom_planner::check::check;
use lightloom_planner::khop::{Change, Layout, Survey, replan, to_document};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use rand::RngExt;

use super::super::{Effect, ScenarioError};
use super::Story;
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
    pub(super) fn new(at: SimTime) -> Self {
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
    pub(super) knows: Vec<bool>,
    /// Faults that have it down now.
    pub(super) gone: u32,
    /// What it would have done while it was gone.
    postponed: Vec<Act>,
}

impl Control {
    /// `for_good` is what is broken and stays so.
    pub(super) fn new(known: FaultSet, for_good: FaultSet, strikes: usize) -> Self {
        Self { for_good, known, knows: vec![false; strikes], gone: 0, postponed: Vec::new() }
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
            Effect::Slower(times) if self.broken.active[index] => Some(u64::from(times)),
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

    /// What was postponed is done over: the control plane looks around first.
    pub(super) fn control_returns(&mut self) {
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
        self.learn(fault, self.broken.active[fault])?;
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
                    known.insert(self.fabric, part)?;
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

    /// A bundle was commanded and did not obey: it is read back, and found.
    fn find_stuck(&mut self, fault: usize) {
        if self.healings[fault].felt.is_none() {
            self.healings[fault].felt = Some(self.engine.now());
            let detected = self.engine.now() + self.detection_delay();
            self.at(detected, Act::Detect(fault));
        }
    }
}

/// Holds a layout against the independent checker.
fn prove(fabric: &Fabric, faults: &FaultSet, layout: &Layout) -> Result<(), ScenarioError> {
    let document = to_document(fabric, faults, Seed(0), layout);
    check(fabric, faults, &document).map(|_| ()).map_err(ScenarioError::Unsound)
}
