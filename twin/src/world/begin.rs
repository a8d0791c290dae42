// SPDX-License-Identifier: Apache-2.0
//! The initial state of a run: all transceivers have been read and adopted, and the plan is in force.

use lightloom_control::change::Mode;
use lightloom_control::controller::{Answer, Apply, Request};
use lightloom_control::state::DeviceName;
use lightloom_control::{desired, replan};
use lightloom_fabric::plan::Plan;
use lightloom_units::{Picoseconds, SimTime};

use super::World;

const SET_UP_MAX: Picoseconds = Picoseconds::from_millis(60_000);
const SET_UP_STEP: Picoseconds = Picoseconds::from_millis(5);

pub(super) fn set_up(world: &mut World, plan: &Plan) -> Result<(), String> {
    let until = world.now + SET_UP_MAX;
    wait(world, until, &|world: &World| {
        world.daemon.control.as_ref().is_some_and(|control| {
            let mut devices = control.sightings().devices().values();
            devices.all(|seen| seen.is_read())
        })
    })
    .map_err(|()| "not every transceiver answers".to_owned())?;
    let names: Vec<DeviceName> = world.by_name.keys().cloned().collect();
    match ask(world, Request::Adopt(names.into()), None) {
        Some(Answer::Adopted { .. }) => {}
        other => return Err(format!("the transceivers are not adopted: {other:?}")),
    }
    // A step starts with the circuits of the previous step's last phase.
    let last = plan.phases.iter().rev().find(|phase| !phase.circuits.is_empty());
    let wanted = world.daemon.wanted(plan, last.map(|phase| phase.name.as_str()))?;
    let desired::Wanted { target, phase } = wanted;
    let plan_sha256 = replan::sha256_of(plan);
    let apply = Apply { target, phase, plan_sha256, mode: Mode::Update, ..Apply::default() };
    match ask(world, Request::Apply(apply), Some(plan.clone())) {
        Some(Answer::Accepted { .. } | Answer::Done) => {}
        other => return Err(format!("the plan is not accepted: {other:?}")),
    }
    wait(world, until, &|world: &World| !world.daemon.is_busy())
        .map_err(|()| "the plan is not on every transceiver".to_owned())?;
    let in_force = world.daemon.control.as_ref().and_then(|control| control.plan());
    if in_force.map(replan::sha256_of) != Some(replan::sha256_of(plan)) {
        return Err("the plan was not committed".to_owned());
    }
    Ok(())
}

fn wait(world: &mut World, until: SimTime, is_so: &dyn Fn(&World) -> bool) -> Result<(), ()> {
    while !is_so(world) {
        if world.now >= until {
            return Err(());
        }
        world.run_to(world.now + SET_UP_STEP);
    }
    Ok(())
}

fn ask(world: &mut World, request: Request, plan: Option<Plan>) -> Option<Answer> {
    let turn = world.daemon.ask(world.now, request, plan);
    world.answer = None;
    world.take(turn);
    world.answer.take()
}
