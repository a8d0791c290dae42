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

impl World {
    /// A new request replaces the job's unsettled request.
    pub(super) fn wishes(&mut self, wish: PhaseWish) {
        self.phases.asked += 1;
        let id = format!("phase-{}", self.phases.asked);
        let wanted = self.now + wish.within;
        self.asked = Some(AskedPhase { wish, wanted, id, is_moving: false });
        if self.daemon.control.is_none() {
            return self.settle(PhaseAnswer::Missed("the daemon does not answer".into()));
        }
        self.at(self.now + COST.handoff, WorldEvent::Asks(self.life));
    }

    pub(super) fn ask_again(&mut self) {
        let Some(asked) = &mut self.asked else { return };
        asked.id = format!("{} again {}", asked.id, self.life);
        self.at(self.now + COST.handoff, WorldEvent::Asks(self.life));
    }

    pub(super) fn asks(&mut self) {
        let Some(asked) = &self.asked else { return };
        if self.daemon.busy_until > self.now {
            return self.at(self.daemon.busy_until, WorldEvent::Asks(self.life));
        }
        let within = Picoseconds(asked.wanted.0.saturating_sub(self.now.0));
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
        let turn = self.daemon.book(self.now, &id, wish);
        self.answer = None;
        self.take(turn);
        match self.answer.take() {
            Some(Answer::Booked { .. }) => self.look_at_phase(),
            Some(Answer::PhaseRefused { reason, .. }) => self.settle(PhaseAnswer::Missed(reason)),
            Some(Answer::Refused { reasons }) => {
                self.settle(PhaseAnswer::Missed(reasons.join("; ")));
            }
            _ => {}
        }
        let deadline = self.daemon.deadline(self.now);
        self.plan_turn(deadline);
    }

    pub(super) fn look_at_phase(&mut self) {
        let Some(asked) = &mut self.asked else { return };
        let answer = match self.daemon.standing(&asked.id) {
            None | Some(Standing::Waiting) => return,
            Some(Standing::Moving(_)) => {
                if !std::mem::replace(&mut asked.is_moving, true) {
                    self.happened.push((self.now, Happened::PhaseMoves));
                }
                return;
            }
            Some(Standing::Lit(_)) => PhaseAnswer::Lit,
            Some(Standing::Kept(_)) => PhaseAnswer::Kept,
            Some(Standing::Missed(why)) => PhaseAnswer::Missed(why.to_string()),
        };
        self.settle(answer);
    }

    fn settle(&mut self, answer: PhaseAnswer) {
        self.asked = None;
        match &answer {
            PhaseAnswer::Lit => self.phases.lit += 1,
            PhaseAnswer::Kept => self.phases.kept += 1,
            PhaseAnswer::Missed(_) => self.phases.missed += 1,
        }
        let heard = self.now.max(self.daemon.busy_until) + COST.handoff;
        self.happened.push((heard, Happened::PhaseSettled(answer)));
    }
}
