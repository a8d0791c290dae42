// SPDX-License-Identifier: Apache-2.0
//! Compares the status with an oracle that knows the devices and does not share code with it. Also
//! runs the commands that the status suggests.
//!
//! The shipping control core and model devices run in virtual time through an operator's random
//! week of plans, adoptions, failed changes, manual moves and power failures.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::change::Mode;
use lightloom_control::controller::{Adopt, Answer, Apply, Request, Rollback};
use lightloom_control::desired;
use lightloom_control::policy::OnFault;
use lightloom_control::state::{DeviceName, Micros, Position, Txn};
use lightloom_daemon::view::{self, Knowledge};
use lightloom_daemon_api::alarm::{Alarm, alarms};
use lightloom_daemon_api::status::Status;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_testkit::cases;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use crate::world::World;
use crate::world::device::Faults;
use crate::world::ring::{SLOT, plan_around, ring};

const NODES: u32 = 8;
const SETTLED: Micros = Micros::from_secs(15);
/// Longer than any test, so that power stays off until the test restores it.
const LONG: Micros = Micros::from_secs(1_000_000);

struct Week {
    world: World,
    rng: Stream,
    plan: Plan,
    gone: BTreeSet<DeviceName>,
    requests: u32,
    trail: Vec<String>,
}

impl Week {
    fn begin(seed: u64) -> Self {
        let mut rng = Seed(seed).stream("operator", 0);
        let (mut inventory, mut setup) = ring(NODES, 3);
        inventory.poll_every = Micros::from_secs(1);
        setup.on_fault = if rng.random_bool(0.7) { OnFault::Report } else { OnFault::Bypass };
        let plan = plan_around(setup.installed.as_ref().unwrap(), &[]).unwrap();
        let mut world = World::with(seed, inventory, setup, Faults::default());
        let at_power_on = if rng.random_bool(0.5) { vec![15] } else { vec![1, 2, 15] };
        for model in world.devices.values_mut() {
            let to = at_power_on[rng.random_range(0..at_power_on.len())];
            model.positions.insert(SLOT, Position(to));
        }
        world.run_for(SETTLED);
        let (gone, trail) = (BTreeSet::new(), Vec::new());
        Self { world, rng, plan, gone, requests: 0, trail }
    }

    fn planned(seed: u64) -> Self {
        let mut week = Self::begin(seed);
        week.adopt(week.all(), false);
        week.apply_plan(None);
        assert_eq!(text(&week.status().1), "");
        week
    }

    fn id(&mut self) -> String {
        self.requests += 1;
        format!("r{}", self.requests)
    }

    fn device(&mut self) -> DeviceName {
        let at = self.rng.random_range(0..self.world.devices.len());
        self.world.devices.keys().nth(at).unwrap().clone()
    }

    fn ask(&mut self, request: Request) -> Answer {
        let id = self.id();
        self.world.ask(Micros::default(), "alice", &id, request);
        self.world.run_for(SETTLED);
        let answered = self.world.answers.iter().rev().find(|(asked, _)| asked.request == id);
        answered.expect("an answer").1.clone()
    }

    fn adopt(&mut self, devices: Vec<DeviceName>, against_plan: bool) -> Answer {
        let leave_out_unreachable = devices.len() == self.world.devices.len();
        self.ask(Request::Adopt(Adopt { devices, leave_out_unreachable, against_plan }))
    }

    fn all(&self) -> Vec<DeviceName> {
        self.world.devices.keys().cloned().collect()
    }

    fn apply_plan(&mut self, confirm_within: Option<Micros>) {
        let (id, plan) = (self.id(), self.plan.clone());
        self.world.apply_plan(&id, plan, confirm_within);
        self.world.run_for(SETTLED);
    }

    fn single_circuits(&mut self, faults: Option<Faults>) {
        let mut target = BTreeMap::new();
        for _ in 0..self.rng.random_range(1..4) {
            let (device, to) = (self.device(), [1, 2, 15][self.rng.random_range(0..3)]);
            target.insert(device, [(SLOT, Position(to))].into());
        }
        if let Some(faults) = faults {
            let fails = target.keys().next().unwrap();
            self.world.faults_of.insert(fails.clone(), faults);
        }
        self.ask(Request::Apply(Apply { target, mode: Mode::Update, ..Apply::default() }));
        self.world.faults_of.clear();
        self.world.run_for(SETTLED);
    }

    fn happens(&mut self) {
        let device = self.device();
        let draw = self.rng.random_range(0..14);
        self.trail.push(format!("{draw} {device}"));
        match draw {
            0 | 1 => self.moved_by_hand(&device),
            2 => self.loses_power(&device),
            3 => {
                let until = self.world.now.mono + Micros::from_secs(3);
                self.world.devices.get_mut(&device).unwrap().reboot(until, false);
                self.gone.remove(&device);
            }
            4 => self.power_is_back(),
            5 => drop(self.adopt(vec![device], true)),
            6 => drop(self.adopt(vec![device], false)),
            7 => drop(self.adopt(self.all(), self.requests.is_multiple_of(2))),
            8 | 9 => self.apply_plan(None),
            10 => self.apply_plan(Some(Micros::from_secs(100_000))),
            11 => self.single_circuits(None),
            12 => {
                let (lie, refuse, fail) = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
                    [self.rng.random_range(0..3)];
                self.single_circuits(Some(Faults { lie, refuse, fail, ..Faults::default() }));
            }
            _ => {
                let last = self.world.controller().unwrap().ledger().last_txn;
                self.ask(Request::Rollback(Rollback { txn: last, ..Rollback::default() }));
            }
        }
        self.world.run_for(SETTLED);
    }

    fn moved_by_hand(&mut self, device: &DeviceName) {
        let to = [0, 1, 2, 15][self.rng.random_range(0..4)];
        self.put(device, to);
    }

    fn put(&mut self, device: &DeviceName, to: u32) {
        let model = self.world.devices.get_mut(device).unwrap();
        model.tampered = true;
        match to {
            0 => drop(model.positions.remove(&SLOT)),
            to => drop(model.positions.insert(SLOT, Position(to))),
        }
    }

    fn loses_power(&mut self, device: &DeviceName) {
        let until = self.world.now.mono + LONG;
        self.world.devices.get_mut(device).unwrap().reboot(until, true);
        self.gone.insert(device.clone());
    }

    fn power_is_back(&mut self) {
        let now = self.world.now.mono;
        for device in std::mem::take(&mut self.gone) {
            self.world.devices.get_mut(&device).unwrap().reboot(now, true);
        }
        self.world.run_for(SETTLED);
    }

    fn knowledge<'a>(&'a self, identities: &'a BTreeMap<DeviceName, String>) -> Knowledge<'a> {
        Knowledge {
            control: self.world.control().unwrap(),
            now: self.world.now.clone(),
            identities,
            fabric: Some("ring.yaml".into()),
            is_damaged: false,
        }
    }

    fn status(&self) -> (Status, Vec<Alarm>) {
        let status = view::of_fabric(&self.knowledge(&BTreeMap::new()));
        let alarms = alarms(&status, |ms| format!("{ms} {ms}"));
        (status, alarms)
    }

    fn read(&self, device: &str) -> Option<u32> {
        let name = DeviceName::from(device);
        let model = &self.world.devices[&name];
        let at = model.positions.get(&SLOT).map_or(0, |position| position.0);
        (!self.gone.contains(&name)).then_some(at)
    }

    fn oracle(&self) -> Oracle {
        let control = self.world.control().unwrap();
        let ledger = control.ledger();
        let plan = control.plan().map(|plan| serde_json::to_value(plan).unwrap());
        let mut stated = BTreeMap::new();
        for one in plan.iter().flat_map(|plan| plan["transceivers"].as_array().unwrap()) {
            let to = match one["path"].as_str().unwrap() {
                "loopback" => 15,
                path => path.trim_start_matches("external-").parse().unwrap(),
            };
            stated.insert(one["bundle"].as_str().unwrap().to_owned(), to);
        }
        let differs = |name: &String| {
            let owned = ledger.owned.get(&DeviceName::from(name.as_str()));
            let owned = owned.and_then(|slots| slots.get(&SLOT)).map_or(0, |position| position.0);
            let wanted = stated.get(name).copied().unwrap_or(owned);
            // The default path of a module is loopback.
            let rests = |read| wanted == 0 && read == 15 && ledger.version > 0;
            self.read(name).is_some_and(|read| read != wanted && !rests(read))
        };
        let names = self.world.devices.keys().map(ToString::to_string);
        Oracle {
            differing: names.filter(differs).collect(),
            is_planned: plan.is_some(),
            is_waiting: ledger.open.is_some() || ledger.pending.is_some(),
            has_faults: !control.facts().failed_parts().is_empty(),
            stated,
        }
    }

    fn up(&self, oracle: &Oracle) -> (usize, usize) {
        let Some(plan) = self.world.control().unwrap().plan() else { return (0, 0) };
        let plan = serde_json::to_value(plan).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let mut nodes: Vec<String> = Vec::new();
        for group in plan["groups"].as_array().into_iter().flatten() {
            nodes.extend(group["nodes"].as_array().unwrap().iter().map(text));
        }
        let looks = |port: &serde_json::Value| {
            let port = text(port);
            let (bundle, path) = port.split_once('.').unwrap();
            self.read(bundle) == Some(path.parse().unwrap())
        };
        let circuits = plan["circuits"].as_array().into_iter().flatten();
        let circuits = circuits.map(|circuit| looks(&circuit["a"]) && looks(&circuit["b"]));
        let loopbacks = oracle.stated.iter().filter(|(name, to)| {
            **to == 15 && nodes.iter().any(|node| name.split('/').next() == Some(node.as_str()))
        });
        let loopbacks = loopbacks.map(|(name, _)| self.read(name) == Some(15));
        let all: Vec<bool> = circuits.chain(loopbacks).collect();
        (all.iter().filter(|up| **up).count(), all.len())
    }
}

struct Oracle {
    stated: BTreeMap<String, u32>,
    differing: BTreeSet<String>,
    is_planned: bool,
    is_waiting: bool,
    has_faults: bool,
}

impl Oracle {
    fn is_well(&self, week: &Week) -> bool {
        self.differing.is_empty()
            && week.gone.is_empty()
            && self.is_planned
            && !self.is_waiting
            && !self.has_faults
    }
}

fn named(status: &Status) -> BTreeSet<String> {
    let state = |device: &&lightloom_daemon_api::device::DeviceStatus| !device.drift.is_empty();
    let mut named: BTreeSet<String> =
        status.devices.iter().filter(state).map(|device| device.name.clone()).collect();
    if let Some(dark) = &status.dark_circuits {
        let part = |end: &String| end.split(['.', ' ']).next().unwrap().to_owned();
        named.extend(dark.ends.iter().chain(&dark.elsewhere).map(part));
    }
    named
}

fn text(alarms: &[Alarm]) -> String {
    alarms.iter().map(|alarm| format!("{alarm}\n")).collect()
}

fn mistakes(week: &Week) -> Vec<String> {
    let ((status, alarms), oracle) = (week.status(), week.oracle());
    let mut wrong = Vec::new();
    if alarms.is_empty() && !oracle.is_well(week) {
        wrong.push("wrong ALL IS WELL".to_owned());
    }
    let own = |alarm: &&Alarm| !alarm.what.starts_with("NO BYPASS LEFT");
    if oracle.is_well(week) && alarms.iter().any(|alarm| own(&alarm)) {
        wrong.push("an alarm without cause".to_owned());
    }
    let said = named(&status);
    let shown: BTreeSet<String> = said.iter().chain(status.attention.keys()).cloned().collect();
    let missing: Vec<&String> = oracle.differing.difference(&shown).collect();
    if !missing.is_empty() && !oracle.is_waiting && !oracle.has_faults {
        wrong.push(format!("{missing:?} not named"));
    }
    let invented: Vec<&String> = said.difference(&oracle.differing).collect();
    if !invented.is_empty() {
        wrong.push(format!("{invented:?} are not elsewhere"));
    }
    if oracle.is_planned && status.circuits_up() != week.up(&oracle) {
        wrong.push(format!("{:?} up, not {:?}", status.circuits_up(), week.up(&oracle)));
    }
    let mute = alarms.iter().find(|alarm| !alarm.next.contains("lightloom"));
    wrong.extend(mute.map(|alarm| format!("no command in {}", alarm.what)));
    wrong.iter().map(|wrong| format!("{wrong}, {:?}\n{}", week.trail, text(&alarms))).collect()
}

#[test]
fn status_matches_the_oracle() {
    let (mut well, mut differing, mut wrong) = (0, 0, Vec::new());
    for seed in 0..cases(12, 1_000) {
        let mut week = Week::begin(seed);
        for _ in 0..8 {
            week.happens();
            well += u32::from(week.status().1.is_empty());
            differing += week.oracle().differing.len();
            wrong.extend(mistakes(&week).into_iter().map(|wrong| format!("seed {seed}: {wrong}")));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(6)].join("\n"));
    assert!(well > 10 && differing > 50, "well {well}, differing {differing}");
}

/// Each node of the group needs a loopback, without which the job's ring is open.
#[test]
fn open_ring_is_never_reported_as_healthy() {
    let mut week = Week::planned(7);
    let closes = week.status().0.loopbacks[0].bundle.clone();
    let device = DeviceName::from(closes.as_str());
    week.put(&device, 0);
    week.world.run_for(SETTLED);
    let asked = week.adopt(vec![device.clone()], false);
    assert!(matches!(&asked, Answer::Refused { reasons } if reasons[1].contains("--against-plan")));
    let adopted = week.adopt(vec![device.clone()], true);
    assert!(matches!(adopted, Answer::Adopted { .. }), "{adopted:?}");
    let shown = text(&week.status().1);
    let not = format!(" planned circuits are up at both ends; dark: {closes} (loopback)\n");
    assert!(shown.starts_with("DARK CIRCUITS: ") && shown.contains(&not), "{shown}");
    // The device restarts at its planned position, so there is no drift.
    week.put(&device, 15);
    week.world.run_for(SETTLED);
    assert_eq!(text(&week.status().1), "");
}

#[test]
fn two_unreachable_devices_do_not_affect_others_in_status() {
    let mut week = Week::begin(3);
    for device in week.all().iter().take(2) {
        week.loses_power(device);
    }
    week.world.run_for(SETTLED);
    let shown = text(&week.status().1);
    for said in ["NOT ADOPTED, 14 devices", "NO PLAN is applied", "MANAGEMENT LOST, 2 devices"] {
        assert!(shown.contains(said) && !shown.contains("DRIFTED"), "{said}: {shown}");
    }
    let adopted = week.adopt(week.all(), false);
    assert_eq!(adopted, Answer::Adopted { devices: 14, slots: 14, unreachable: 2 });
}

fn commands(alarm: &Alarm) -> Vec<String> {
    let mut rest = alarm.next.as_str();
    let mut commands = Vec::new();
    while let Some(at) = rest.find("lightloom ctl ") {
        rest = &rest[at + "lightloom ctl ".len()..];
        let end = rest.find([';', ',', '\n']).unwrap_or(rest.len());
        commands.push(rest[..end].trim().to_owned());
        rest = &rest[end..];
    }
    commands
}

impl Week {
    fn types(&mut self, command: &str) -> Option<Answer> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let has = |flag: &str| words.contains(&flag);
        let control = self.world.control().unwrap();
        match words[0] {
            "adopt" => {
                let devices = match words[1] {
                    "all" => self.all(),
                    _ => words[1..]
                        .iter()
                        .filter(|word| !word.starts_with('-'))
                        .map(|d| DeviceName::from(*d))
                        .collect(),
                };
                Some(self.adopt(devices, has("--against-plan")))
            }
            "apply" if has("--dry-run") => None,
            "apply" if has("--restore") => {
                let home = control.controller().way_home();
                Some(match home {
                    Err(reasons) => Answer::Refused { reasons },
                    Ok(home) => self
                        .cut_or(&home, has("--cut-light"))
                        .unwrap_or_else(|| self.ask(Request::Apply(home))),
                })
            }
            "apply" if has("--again") => {
                let (plan_sha256, plan) = control.facts().applied_last().expect("a plan");
                let mode = if has("update") { Mode::Update } else { Mode::Safe };
                let target = desired::paths(&plan, &control.setup().modules).unwrap();
                let apply = Apply { target, plan_sha256, mode, ..Apply::default() };
                if let Some(cuts) = self.cut_or(&apply, has("--cut-light")) {
                    return Some(cuts);
                }
                let (id, plan) = (self.id(), (*plan).clone());
                self.world.ask_plan(Micros::default(), "alice", &id, apply, plan);
                self.world.run_for(SETTLED);
                Some(self.world.answers.last().unwrap().1.clone())
            }
            "apply" => {
                self.apply_plan(None);
                Some(self.world.answers.last().unwrap().1.clone())
            }
            "rollback" => {
                let txn = Txn(words[1].parse().unwrap());
                Some(self.ask(Request::Rollback(Rollback { txn, ..Rollback::default() })))
            }
            "confirm" => Some(self.ask(Request::Confirm(Txn(words[1].parse().unwrap())))),
            "resume" => Some(self.ask(Request::Resume)),
            "fault" => {
                let parts = words[1..].iter().filter(|word| !word.starts_with('-'));
                let parts: Vec<Part> = parts.map(|part| part.parse().unwrap()).collect();
                let id = self.id();
                match has("--repaired") {
                    true => self.world.say("alice", &id, Vec::new(), parts),
                    false => self.world.say("alice", &id, parts, Vec::new()),
                }
                self.world.run_for(SETTLED);
                Some(self.world.answers.last().unwrap().1.clone())
            }
            _ => None,
        }
    }

    fn cut_or(&self, apply: &Apply, may_cut: bool) -> Option<Answer> {
        let identities = BTreeMap::new();
        let known = self.knowledge(&identities);
        let preview = match known.control.controller().preview(apply) {
            Ok(preview) => preview,
            Err(reasons) => return Some(Answer::Refused { reasons }),
        };
        let diff = view::diff(&known, &preview, apply, None, String::new());
        let cuts = diff.moves.iter().any(|moved| moved.cuts_light) && !may_cut;
        cuts.then(|| Answer::Refused { reasons: vec!["this cuts light".into()] })
    }
}

fn leads_nowhere(week: &mut Week) -> Option<String> {
    let mut typed: Vec<String> = Vec::new();
    loop {
        let (_, alarms) = week.status();
        if alarms.is_empty() {
            return None;
        }
        let shown = format!("{:?}, typed {typed:#?}\n{}", week.trail, text(&alarms));
        if typed.len() == 12 {
            return Some(format!("it does not lead back: {shown}"));
        }
        let looks = ["drift", "status", "journal", "watch", "wait", "commission"];
        let acts = |command: &String| !looks.contains(&command.split(' ').next().unwrap());
        let Some(command) = alarms.iter().flat_map(commands).find(acts) else {
            return Some(format!("no command: {shown}"));
        };
        typed.push(command.clone());
        let answer = week.types(&command);
        if matches!(answer, Some(Answer::Refused { .. } | Answer::Conflict { .. })) {
            return Some(format!("`{command}` was refused, {answer:?}: {shown}"));
        }
    }
}

#[test]
fn suggested_commands_restore_a_healthy_status() {
    let mut wrong = Vec::new();
    for seed in 0..cases(12, 1_000) {
        let mut week = Week::begin(1_000 + seed);
        for _ in 0..6 {
            week.happens();
        }
        week.power_is_back();
        wrong.extend(leads_nowhere(&mut week).map(|wrong| format!("seed {seed}: {wrong}")));
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(6)].join("\n"));
}
