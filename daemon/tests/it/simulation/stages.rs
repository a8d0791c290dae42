// SPDX-License-Identifier: Apache-2.0
//! A change to the next plan in stages, with a crash and a failed device in each stage.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use lightloom_control::desired::{circuits, stated};
use lightloom_control::record::{Intent, OnFailure};
use lightloom_control::replan::{plan_anew, sha256_of};
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::Plan;
use lightloom_planner::joint::{Options, replan};
use lightloom_units::id::{BundleId, NodeId, OcsId};

use super::*;

const JOB: &str = include_str!("../../../../topologies/job-64-circuits.yaml");
const SOON: Micros = Micros::from_secs(2);

static CHANGE: LazyLock<Change> = LazyLock::new(Change::new);

struct Change {
    inventory: Inventory,
    setup: Setup,
    phase: String,
    plans: [Plan; 2],
    ends: [SwitchState; 2],
}

impl Change {
    fn new() -> Self {
        let text = JOB.replace("    timing:", "    failure_domains: 2\n    timing:");
        let fabric =
            lightloom_planner::load("job.yaml", text.as_bytes(), &mut |_| Err(String::new()));
        let fabric = fabric.0.unwrap();
        let mut inventory = Inventory { dark_links_max: 1024, ..Inventory::default() };
        let mut setup = Setup::default();
        for node in (0..fabric.hbd.nodes()).map(NodeId) {
            for bundle in (0..fabric.hbd.k()).map(|bundle| BundleId { node, bundle }) {
                let name = DeviceName::from(bundle.to_string().as_str());
                inventory.devices.insert(name.clone(), Device::new(Sharing::Independent));
                setup.modules.insert(bundle, name);
            }
        }
        for ocs in [0, 1].map(OcsId) {
            let name = DeviceName::from(ocs.to_string().as_str());
            let ports = DevicePorts::IngressThenEgress { ingress: 36 };
            let mut device = Device::new(Sharing::Exclusive);
            device.duplex = Some(ports.output_offset());
            inventory.devices.insert(name.clone(), device);
            setup.switches.insert(ocs, (name, ports));
        }
        let before = plan_anew(&fabric, &FaultSet::none(), Seed(1)).unwrap();
        let parts = ["ocs0/p3", "n9"].map(|part| part.parse::<Part>().unwrap());
        let faults = FaultSet::of(&fabric, parts).unwrap();
        let options = Options { compare: false, ..Options::default() };
        let next = replan(&fabric, &before, &faults, false, options).unwrap().plan;
        let phase = before.phases.iter().find(|phase| !phase.circuits.is_empty()).unwrap();
        let phase = phase.name.clone();
        let lit = |plan: &Plan| {
            let mut lit = stated(plan, &setup.modules);
            let own = plan.phases.iter().find(|own| own.name == phase).unwrap();
            lit.extend(circuits::positions(&setup.switches, &own.circuits));
            lit
        };
        let mut ends = [lit(&before), lit(&next)];
        for (device, at) in ends[0].clone() {
            ends[1].entry(device).or_insert(at);
        }
        setup.installed = Some(fabric);
        Self { inventory, setup, phase, plans: [before, next], ends }
    }

    fn world(&self, recovery: Recovery) -> World {
        let inventory = Inventory { recovery, ..self.inventory.clone() };
        let mut world = World::with(1, inventory, self.setup.clone(), Faults::default());
        world.run_for(Micros::from_millis(10));
        self.apply(&mut world, 0, OnFailure::Rollback);
        world.run_for(SOON);
        assert_eq!(lit(&world), self.ends[0]);
        world
    }

    fn apply(&self, world: &mut World, plan: usize, on_failure: OnFailure) {
        let plan = &self.plans[plan];
        let start = world.control().unwrap().change_start();
        let wanted = start.wanted(plan, Some(&self.phase), Mode::Update).unwrap();
        let apply = Apply {
            target: wanted.target,
            phase: wanted.phase,
            plan_sha256: sha256_of(plan),
            mode: Mode::Update,
            on_failure: Some(on_failure),
            ..Apply::default()
        };
        let id = format!("apply-{}", world.now.mono.0);
        world.ask_plan(Micros::default(), "alice", &id, apply, plan.clone());
    }

    /// The devices of each stage of the change to the second plan.
    fn stages(&self) -> Vec<BTreeSet<DeviceName>> {
        let mut world = self.world(Recovery::FinishForward);
        self.apply(&mut world, 1, OnFailure::Rollback);
        world.run_for(SOON);
        assert_eq!(lit(&world), self.ends[1]);
        let stages = last_intent(&world).stages;
        println!("{} stages", stages.len());
        assert!(stages.len() > 2);
        stages.into_iter().map(|stage| stage.into_keys().collect()).collect()
    }

    /// Changes to the second plan until a device has executed a move of this stage.
    fn begins(&self, world: &mut World, stage: usize) {
        self.apply(world, 1, OnFailure::Rollback);
        while world.control().unwrap().ledger().open.is_none() {
            world.run_for(Micros(20));
        }
        let stage = last_intent(world).stages.swap_remove(stage);
        let has_begun = |world: &World| {
            stage.iter().any(|(device, slots)| {
                let (now, was) = (&world.devices[device].positions, &self.ends[0][device]);
                slots.iter().any(|(slot, to)| at(now, *slot) == *to && at(was, *slot) != *to)
            })
        };
        while !has_begun(world) {
            assert!(world.control().unwrap().ledger().open.is_some());
            world.run_for(Micros(20));
        }
    }
}

fn differing(one: &SwitchState, other: &SwitchState) -> Vec<String> {
    let differs = |(name, at): &(&DeviceName, &Positions)| other.get(*name) != Some(at);
    one.iter()
        .filter(differs)
        .map(|(name, at)| format!("{name}: {at:?}, {:?}", other.get(name)))
        .collect()
}

fn records(world: &World) -> Vec<Record> {
    read_all::<Record>(&world.disk.bytes()).0
}

fn last_intent(world: &World) -> Intent {
    let intents = records(world).into_iter().filter_map(|record| match record {
        Record::Intent(intent) => Some(*intent),
        _ => None,
    });
    intents.last().unwrap()
}

/// The devices of the waves that the last change fired forwards.
fn fired(world: &World) -> Vec<BTreeSet<DeviceName>> {
    let mut waves = Vec::new();
    for record in records(world) {
        match record {
            Record::Intent(_) => waves.clear(),
            Record::Turn { .. } => break,
            Record::Fire { wave, .. } => waves.push(wave.into_keys().collect()),
            _ => {}
        }
    }
    waves
}

#[test]
fn s1_crash_in_any_stage_ends_in_the_old_or_new_plan() {
    let change = &*CHANGE;
    let count = change.stages().len();
    for (recovery, end) in [(Recovery::FinishForward, 1), (Recovery::RollBack, 0)] {
        for stage in 0..count {
            let mut world = change.world(recovery);
            change.begins(&mut world, stage);
            world.crash_at = Some(CrashAt { point: world.counts.points + 1 });
            world.run_for(SOON);
            assert_eq!(world.counts.crashes, 1);
            world.check_at_rest();
            // The first wave may not be on disk, so it may be undone although recovery continues.
            let is_old = stage == 0 && lit(&world) == change.ends[0];
            let left = differing(&lit(&world), &change.ends[end]);
            assert!(is_old || left.is_empty(), "{recovery:?} in stage {stage}: {left:?}");
        }
    }
}

#[test]
fn s5_failed_device_stops_the_change_in_its_stage() {
    let change = &*CHANGE;
    let stages = change.stages();
    for (at, devices) in stages.iter().enumerate() {
        for on_failure in [OnFailure::Rollback, OnFailure::Hold] {
            let mut world = change.world(Recovery::FinishForward);
            let device = devices.first().unwrap().clone();
            world.faults_of.insert(device.clone(), Faults { lie: 1.0, ..Faults::default() });
            change.apply(&mut world, 1, on_failure);
            world.run_for(SOON);
            let later = fired(&world).len();
            let first = stages.iter().position(|stage| stage.contains(&device)).unwrap();
            assert_eq!(later, first + 1, "no stage after {first} began");
            let past = world.control().unwrap().ledger().history.back().unwrap().clone();
            let why = past.ends[&device].detail.clone();
            println!("{device} {on_failure:?}: {why}");
            assert!(why.contains(&format!("stopped in wave {} of", first + 1)), "{at}: {why}");
            world.faults_of.clear();
            if on_failure == OnFailure::Rollback {
                world.run_for(SOON);
                assert_eq!(differing(&lit(&world), &change.ends[0]), [""; 0], "{why}");
                continue;
            }
            assert_eq!(past.result, TxnResult::Partial);
            let txn = past.txn;
            assert!(why.contains(&format!("lightloom ctl rollback {txn}")), "{why}");
            if at % 2 == 0 {
                change.apply(&mut world, 1, OnFailure::Rollback);
            } else {
                let rollback = Rollback { txn, ..Rollback::default() };
                world.ask(Micros::default(), "alice", "back", Request::Rollback(rollback));
            }
            world.run_for(SOON);
            let end = &change.ends[usize::from(at % 2 == 0)];
            assert_eq!(differing(&lit(&world), end), [""; 0], "{why}");
        }
    }
}
