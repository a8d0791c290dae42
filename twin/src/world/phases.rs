// SPDX-License-Identifier: Apache-2.0
//! A job's phase requests, which resemble those sent to `POST /v1/phases`, and their results.

use lightloom_control::controller::Answer;
use lightloom_control::policy::phases::{Standing, Wish};
use lightloom_emulator::shipped::{Happened, PhaseAnswer, PhaseWish};
use lightloom_units::{Picoseconds, SimTime};

use super::{World, WorldEvent};
use crate::cost::COST;
use crate::setup::micros;

const LASTS_MAX: Picoseconds = Picoseconds::from_millis(86_400_000);

pub(super) struct AskedPhase {
    wish: PhaseWish,
    wanted: SimTime,
    id: String,
    is_moving: bool,
}

/// A new request replaces the job's unsettled request.
pub(super) fn wishes(world: &mut World, wish: PhaseWish) {
    world.phases.asked += 1;
    let id = format!("phase-{}", world.phases.asked);
    let wanted = world.now + wish.within;
    world.asked = Some(AskedPhase { wish, wanted, id, is_moving: false });
    if world.daemon.control.is_none() {
        return settle(world, PhaseAnswer::Missed("the daemon does not answer".into()));
    }
    world.at(world.now + COST.handoff, WorldEvent::Asks(world.life));
}

pub(super) fn ask_again(world: &mut World) {
    let Some(asked) = &mut world.asked else { return };
    asked.id = format!("{} again {}", asked.id, world.life);
    world.at(world.now + COST.handoff, WorldEvent::Asks(world.life));
}

pub(super) fn asks(world: &mut World) {
    let Some(asked) = &world.asked else { return };
    if world.daemon.busy_until > world.now {
        return world.at(world.daemon.busy_until, WorldEvent::Asks(world.life));
    }
    let within = Picoseconds(asked.wanted.0.saturating_sub(world.now.0));
    let lasts = asked.wish.lasts.min(LASTS_MAX);
    let (within, least) = (micros(within), micros(lasts));
    let wish = Wish {
        job: "run".into(),
        phase: asked.wish.phase.clone(),
        within,
        least: least.max(lightloom_control::state::Micros::from_millis(1)),
        lease: lightloom_control::state::Micros::from_secs(24 * 3600),
        revision: None,
    };
    let id = asked.id.clone();
    let turn = world.daemon.book(world.now, &id, wish);
    world.answer = None;
    world.take(turn);
    match world.answer.take() {
        Some(Answer::Booked { .. }) => look_at_phase(world),
        Some(Answer::PhaseRefused { reason, .. }) => settle(world, PhaseAnswer::Missed(reason)),
        Some(Answer::Refused { reasons }) => {
            settle(world, PhaseAnswer::Missed(reasons.join("; ")));
        }
        _ => {}
    }
    let deadline = world.daemon.deadline(world.now);
    world.plan_turn(deadline);
}

pub(super) fn look_at_phase(world: &mut World) {
    let Some(asked) = &mut world.asked else { return };
    let answer = match world.daemon.standing(&asked.id) {
        None | Some(Standing::Waiting) => return,
        Some(Standing::Moving(_)) => {
            if !std::mem::replace(&mut asked.is_moving, true) {
                world.happened.push((world.now, Happened::PhaseMoves));
            }
            return;
        }
        Some(Standing::Lit(_)) => PhaseAnswer::Lit,
        Some(Standing::Kept(_)) => PhaseAnswer::Kept,
        Some(Standing::Missed(why)) => PhaseAnswer::Missed(why.to_string()),
    };
    settle(world, answer);
}

fn settle(world: &mut World, answer: PhaseAnswer) {
    world.asked = None;
    match &answer {
        PhaseAnswer::Lit => world.phases.lit += 1,
        PhaseAnswer::Kept => world.phases.kept += 1,
        PhaseAnswer::Missed(_) => world.phases.missed += 1,
    }
    let heard = world.now.max(world.daemon.busy_until) + COST.handoff;
    world.happened.push((heard, Happened::PhaseSettled(answer)));
}
