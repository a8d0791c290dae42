// SPDX-License-Identifier: Apache-2.0
use lightloom_control::change::Mode;
use lightloom_control::controller::{Apply, Request};
use lightloom_control::desired;
use lightloom_control::inventory::Inventory;
use lightloom_control::policy::{OnFault, Setup};
use lightloom_control::record::TxnResult;
use lightloom_control::replan::{next_plan, plan_anew, sha256_of};
use lightloom_control::state::{DeviceName, Micros, Position, Slot};
use lightloom_daemon::config;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::Seed;

use super::World;
use super::device::Faults;

pub(crate) const SLOT: Slot = Slot(0);

/// Creates a ring of `nodes` nodes with two bundles each, a job of `groups` groups of two nodes,
/// and the shipping bypass policy. Modules are cabled as in the fabric.
pub(crate) fn ring(nodes: u32, groups: u32) -> (Inventory, Setup) {
    let text = format!(
        "kind: fabric\nversion: 2\nname: ring\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n\
         jobs:\n  - {{name: pretrain, gpus: {}, tp: 8}}\n",
        8 * groups
    );
    let installed = lightloom_fabric::file::load("ring.yaml", text.as_bytes()).0.unwrap();
    let file = format!(
        "state_dir: /nowhere\npolicies: {{on_fault: bypass, heartbeat: 20s, poll_every: 1s}}\nmodules:\n  \
         - {{nodes: [0, {}], bundles: 2, serial: \"/nowhere/{{node}}-{{bundle}}\"}}\n",
        nodes - 1
    );
    let (config, mistakes) = config::load("daemon.yaml", file.as_bytes());
    let mut config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
    config.inventory.cable(&installed, &config.bundles);
    let mut inventory = config.inventory;
    // Modules have not reported their promised times yet.
    inventory.devices.values_mut().for_each(|device| device.follows = None);
    let setup = Setup {
        installed: Some(installed),
        modules: config.bundles,
        on_fault: OnFault::Bypass,
        heartbeat: Micros::from_secs(20),
        ..Setup::default()
    };
    (inventory, setup)
}

pub(crate) fn plan_around(installed: &Fabric, broken: &[Part]) -> Option<Plan> {
    let faults = FaultSet::of(installed, broken.iter().copied()).ok()?;
    plan_anew(installed, &faults, Seed(1)).ok()
}

pub(crate) fn module(node: u32) -> DeviceName {
    DeviceName::from(format!("n{node}/b{}", node % 2).as_str())
}

/// Creates a ring of four nodes, with n0 and n1 connected for a job and n2 and n3 as spares.
pub(crate) fn two_fibres(seed: u64) -> World {
    two_fibres_where(seed, OnFault::Bypass)
}

/// Like [`two_fibres`], but the daemon does not bypass failed modules.
pub(crate) fn two_fibres_reported(seed: u64) -> World {
    two_fibres_where(seed, OnFault::Report)
}

fn two_fibres_where(seed: u64, on_fault: OnFault) -> World {
    let (mut inventory, mut setup) = ring(4, 1);
    setup.on_fault = on_fault;
    inventory.poll_every = Micros::from_millis(100);
    let plan = plan_around(setup.installed.as_ref().unwrap(), &[]).unwrap();
    let mut world = World::with(seed, inventory, setup, Faults::default());
    world.run_for(Micros::from_millis(10));
    world.apply_plan("lit", plan, None);
    world.run_for(Micros::from_secs(3));
    assert_eq!(world.ended.last().map(|end| end.1), Some(TxnResult::Committed));
    assert_eq!(stand(&world), [1; 4]);
    world
}

pub(crate) fn stand(world: &World) -> [u32; 4] {
    [0, 1, 2, 3].map(|node| world.devices[&module(node)].positions[&SLOT].0)
}

pub(crate) fn paths(paths: &[(u32, u32)]) -> Apply {
    let of = |&(node, path): &(u32, u32)| (module(node), [(SLOT, Position(path))].into());
    Apply { target: paths.iter().map(of).collect(), mode: Mode::Update, ..Apply::default() }
}

impl World {
    pub(crate) fn apply_of(&self, plan: &Plan, confirm_within: Option<Micros>) -> Apply {
        let target = desired::paths(plan, &self.setup.modules).unwrap();
        let (plan_sha256, mode) = (sha256_of(plan), Mode::Update);
        Apply { target, plan_sha256, mode, confirm_within, ..Apply::default() }
    }

    pub(crate) fn apply_plan(&mut self, id: &str, plan: Plan, confirm_within: Option<Micros>) {
        let apply = self.apply_of(&plan, confirm_within);
        self.ask_plan(Micros::default(), "alice", id, apply, plan);
    }

    pub(crate) fn plan_without(&self, part: &str) -> Plan {
        let installed = self.setup.installed.as_ref().unwrap();
        let plan = self.control().unwrap().plan().unwrap();
        next_plan(installed, plan, &[part.parse().unwrap()], &[]).unwrap()
    }

    pub(crate) fn installed(&self) -> &Fabric {
        self.setup.installed.as_ref().unwrap()
    }

    pub(crate) fn ask_paths(&mut self, id: &str, apply: Apply) {
        self.ask(Micros::default(), "alice", id, Request::Apply(apply));
    }
}
