// SPDX-License-Identifier: Apache-2.0
//! The stages of `replan` on rings must be the waves of the daemon.

use std::collections::BTreeMap;

use lightloom_control::change::Mode;
use lightloom_control::controller::Apply;
use lightloom_control::desired::position;
use lightloom_control::state::{DeviceName, Position};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_planner::Options;
use lightloom_planner::joint::{self, replan};
use lightloom_units::id::NodeId;

use crate::lost_management::world::{SLOT, World, module};

#[test]
fn bundles_of_a_stage_are_one_wave() {
    let world = World::new(64, 240, 16);
    let (fabric, before) = (world.setup.installed.as_ref().unwrap(), world.control.plan().unwrap());
    let faults = FaultSet::of(fabric, [Part::Node(NodeId(world.node_in_use()))]).unwrap();
    let options = Options { compare: false, ..Options::default() };
    let next = replan(fabric, before, &faults, false, options).unwrap().plan;
    let stages = joint::stages(fabric, &faults, before, &next).unwrap();
    let target = world.control.wanted(&next, None, Mode::Safe).unwrap().target;
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
