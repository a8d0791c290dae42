// SPDX-License-Identifier: Apache-2.0
//! The stages of `replan` must be the waves of the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lightloom_control::change::{Known, Mode, PhaseOrder, Wave, difference, waves_in_stages};
use lightloom_control::controller::Apply;
use lightloom_control::desired::{circuits, position, stated};
use lightloom_control::inventory::{Device, Inventory};
use lightloom_control::policy::{ChangeStart, Setup};
use lightloom_control::replan::plan_anew;
use lightloom_control::state::{DeviceName, Observation, Position, Sharing, SwitchState, at};
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::{ChangeStage, PhasePlan, Plan, Stage};
use lightloom_planner::Options;
use lightloom_planner::check::check_stages;
use lightloom_planner::joint::{self, replan};
use lightloom_units::id::{BundleId, NodeId, OcsId};
use lightloom_units::seed::Seed;

use crate::lost_management::world::{SLOT, World, module};

const JOB: &str = include_str!("../../../../topologies/job-64-circuits.yaml");

#[test]
fn bundles_of_a_stage_are_one_wave() {
    let world = World::new(64, 240, 16);
    let (fabric, before) = (world.setup.installed.as_ref().unwrap(), world.control.plan().unwrap());
    let faults = FaultSet::of(fabric, [Part::Node(NodeId(world.node_in_use()))]).unwrap();
    let options = Options { compare: false, ..Options::default() };
    let next = replan(fabric, before, &faults, false, options).unwrap().plan;
    let stages = joint::stages(fabric, &faults, before, &next).unwrap();
    let target = world.control.change_start().wanted(&next, None, Mode::Safe).unwrap().target;
    let apply = Apply { target, ..Apply::default() };
    let waves = world.control.controller().preview(&apply).unwrap().waves;
    let planned = stages.iter().map(|stage| {
        let bundles = stage.bundles.iter();
        let at =
            bundles.map(|set| (module(set.bundle.node.0, set.bundle.bundle), position(set.path)));
        at.collect::<BTreeMap<DeviceName, Position>>()
    });
    let fired = waves.iter().map(|wave| {
        let at = wave.iter().map(|(device, step)| (device.clone(), step.end()[&SLOT]));
        at.collect::<BTreeMap<DeviceName, Position>>()
    });
    assert_eq!(fired.collect::<Vec<_>>(), planned.collect::<Vec<_>>());
    assert_eq!(waves.len(), 1);
}

struct Job {
    setup: Setup,
    inventory: Inventory,
    before: Plan,
    lit: SwitchState,
}

impl Job {
    /// A job on rings and optical switches, with the circuits of its first phase.
    fn new() -> Self {
        let text = JOB.replace("    timing:", "    failure_domains: 2\n    timing:");
        let (fabric, _) =
            lightloom_planner::load("job.yaml", text.as_bytes(), &mut |_| Err(String::new()));
        let fabric = fabric.unwrap();
        let (mut inventory, mut setup) =
            (Inventory { dark_links_max: 1024, ..Inventory::default() }, Setup::default());
        for node in (0..fabric.hbd.nodes()).map(NodeId) {
            for bundle in 0..fabric.hbd.k() {
                let name = module(node.0, bundle);
                inventory.devices.insert(name.clone(), Device::new(Sharing::Independent));
                setup.modules.insert(BundleId { node, bundle }, name);
            }
        }
        for ocs in (0..fabric.dcn.circuits().unwrap().switches()).map(OcsId::from_index) {
            let (name, ports) = (
                DeviceName::from(ocs.to_string().as_str()),
                DevicePorts::IngressThenEgress { ingress: 36 },
            );
            let duplex = Some(ports.output_offset());
            inventory
                .devices
                .insert(name.clone(), Device { duplex, ..Device::new(Sharing::Exclusive) });
            setup.switches.insert(ocs, (name, ports));
        }
        let before = plan_anew(&fabric, &FaultSet::none(), Seed(1)).unwrap();
        let mut lit = stated(&before, &setup.modules);
        lit.extend(circuits::positions(&setup.switches, &phase(&before).circuits));
        setup.installed = Some(fabric);
        Self { setup, inventory, before, lit }
    }

    fn around(&self, parts: &[&str]) -> (FaultSet, Plan) {
        let fabric = self.setup.installed.as_ref().unwrap();
        let faults = FaultSet::of(fabric, parts.iter().map(|part| part.parse().unwrap())).unwrap();
        let options = Options { compare: false, ..Options::default() };
        let next = replan(fabric, &self.before, &faults, false, options).unwrap().plan;
        (faults, next)
    }

    /// The waves in which the daemon applies `next` while `lit` is set.
    fn waves(&self, next: &Plan, lit: &SwitchState) -> (PhaseOrder, Vec<Wave>) {
        let start = ChangeStart {
            setup: Arc::new(self.setup.clone()),
            plan: Some(Arc::new(self.before.clone())),
            owned: lit.clone(),
            read: lit.clone(),
        };
        let wanted = start.wanted(next, Some(&phase(&self.before).name), Mode::Update).unwrap();
        let read: BTreeMap<&DeviceName, Observation> = lit
            .iter()
            .map(|(device, at)| {
                (device, Observation { positions: at.clone(), ..Observation::default() })
            })
            .collect();
        let none = BTreeSet::new();
        let changes = difference(&wanted.target, Mode::Update, |device| {
            let sharing = self.inventory.devices[device].sharing;
            Some(Known {
                sharing,
                owned: &lit[device],
                probed: &none,
                observed: read.get(device),
                trouble: None,
            })
        });
        let changes = changes.unwrap();
        let (change, stages) = wanted.phase.unwrap().order(&changes);
        (change.order, waves_in_stages(&changes, &stages, &self.inventory))
    }

    fn circuits(&self, next: &Plan, lit: &SwitchState) -> BTreeSet<CrossConnect> {
        let all = self.before.phases.iter().chain(&next.phases).flat_map(|phase| &phase.circuits);
        let stands = |circuit: &&CrossConnect| {
            let mut ends =
                circuits::positions(&self.setup.switches, std::slice::from_ref(*circuit))
                    .into_iter();
            ends.all(|(device, slots)| {
                slots.iter().all(|(slot, to)| at(&lit[&device], *slot) == *to)
            })
        };
        all.filter(stands).copied().collect()
    }
}

fn phase(plan: &Plan) -> &PhasePlan {
    plan.phases.iter().find(|phase| !phase.circuits.is_empty()).unwrap()
}

fn set(lit: &mut SwitchState, wave: &Wave, removed_only: bool) {
    for (device, step) in wave {
        let slots = lit.get_mut(device).unwrap();
        for m in step.remove.iter().chain(step.add.iter().filter(|_| !removed_only)) {
            slots.insert(m.slot, m.to);
        }
        let held: Vec<_> = slots.values().filter(|to| !to.is_dark()).collect();
        let ports: BTreeSet<_> = held.iter().collect();
        assert_eq!(held.len(), ports.len(), "{device}: two circuits at one port");
    }
}

/// Executes the daemon's waves, and checks the states in between with the planner's checker.
#[test]
fn waves_of_a_change_with_switches_pass_the_checker() {
    let job = Job::new();
    let fabric = job.setup.installed.as_ref().unwrap();
    let only = |plan: &Plan, circuits: &BTreeSet<CrossConnect>| {
        let circuits = circuits.iter().copied().collect();
        Plan { phases: vec![PhasePlan { circuits, ..phase(plan).clone() }], ..plan.clone() }
    };
    let mut staged = 0;
    for parts in [&["n3"][..], &["ocs0/p3", "n9"], &["ocs1/p7", "ocs0/p20"]] {
        let (faults, next) = job.around(parts);
        let (order, waves) = job.waves(&next, &job.lit);
        let planned = joint::stages(
            fabric,
            &faults,
            &only(&job.before, &job.circuits(&next, &job.lit)),
            &next,
        );
        let name = &phase(&next).name;
        let planned: Vec<ChangeStage> = planned
            .unwrap()
            .into_iter()
            .filter(|stage| stage.phases.is_empty() || stage.phases.contains(name))
            .collect();
        let (mut lit, mut executed, mut restarted) = (job.lit.clone(), Vec::new(), Vec::new());
        for wave in &waves {
            let switches = wave.keys().filter(|name| name.as_str().starts_with("ocs")).count();
            assert!(switches == 0 || switches == wave.len(), "{parts:?}: {wave:?}");
            let was = job.circuits(&next, &lit);
            let mut dark = lit.clone();
            set(&mut dark, wave, true);
            set(&mut lit, wave, false);
            let now = job.circuits(&next, &lit);
            restarted.push(lit.clone());
            let circuits = Stage {
                remove: was.difference(&job.circuits(&next, &dark)).copied().collect(),
                add: now.difference(&was).copied().collect(),
            };
            executed.push(circuits);
        }
        // Circuits at a failed port are dark, so the planner does not count them.
        let dead = |one: &CrossConnect| {
            [one.a_port, one.b_port]
                .iter()
                .any(|port| parts.contains(&format!("{}/p{port}", one.ocs).as_str()))
        };
        executed.iter_mut().for_each(|stage| stage.remove.retain(|one| !dead(one)));
        executed.retain(|stage| *stage != Stage::default());
        let switching: Vec<Stage> = planned
            .iter()
            .map(|stage| stage.circuits.clone())
            .filter(|stage| *stage != Stage::default())
            .collect();
        assert_eq!(executed, switching, "{parts:?}");
        let (one, other) = (
            only(&job.before, &job.circuits(&next, &job.lit)),
            only(&next, &phase(&next).circuits.iter().copied().collect()),
        );
        check_stages(fabric, &faults, &one, &other, &planned).unwrap();
        assert!(planned.iter().all(|stage| stage.capacity > 0.0), "{parts:?}");
        assert_eq!(job.circuits(&next, &lit), phase(&next).circuits.iter().copied().collect());
        println!("{parts:?}: {order:?}, {} waves", waves.len());
        assert!(matches!(order, PhaseOrder::Stages { .. }), "{parts:?}: {order:?}");
        // A change that stopped after any wave continues in the stages that are left.
        for (at, stopped) in restarted.iter().enumerate().take(waves.len() - 1) {
            let (order, rest) = job.waves(&next, stopped);
            assert!(matches!(order, PhaseOrder::Stages { .. }), "{parts:?} after {at}: {order:?}");
            let mut end = stopped.clone();
            rest.iter().for_each(|wave| set(&mut end, wave, false));
            assert_eq!(job.circuits(&next, &end), job.circuits(&next, &lit));
        }
        staged += waves.len() - 1;
    }
    assert!(staged > 3, "{staged} stages of switches");
}
