// SPDX-License-Identifier: Apache-2.0
//! The daemon in the twin: the shipped control core and journal on one processor, which blocks during a flush.

use lightloom_control::controller::{Action, Answer, Event, Note, ReplyTo, Request};
use lightloom_control::desired::{self, Wanted};
use lightloom_control::inventory::Inventory;
use lightloom_control::journal::Journal;
use lightloom_control::ledger::Ledger;
use lightloom_control::policy::phases::{Standing, Wish};
use lightloom_control::policy::{Control, Setup};
use lightloom_control::record::{Asked, Cause, Record, TxnResult};
use lightloom_control::state::{Micros, Now, Outcome, SwitchState};
use lightloom_emulator::shipped::Happened;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::Stream;
use lightloom_units::{Picoseconds, SimTime};

use crate::cost;
use crate::disk::EmulatedDisk;
use crate::judge::Judge;

pub(crate) use lightloom_control::controller::Ticket;
use lightloom_control::state::{DeviceName, Op};

pub(crate) enum TaskCommand {
    Run(DeviceName, Ticket, Op),
    Abandon(DeviceName, Ticket),
}

#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) commands: Vec<(SimTime, TaskCommand)>,
    pub(crate) happened: Vec<(SimTime, Happened)>,
    pub(crate) answer: Option<Answer>,
}

pub(crate) struct TwinDaemon {
    inventory: Inventory,
    setup: Setup,
    pub(crate) control: Option<Control>,
    journal: Option<Journal<Record, EmulatedDisk>>,
    disk: EmulatedDisk,
    pub(crate) busy_until: SimTime,
    pub(crate) flush: Picoseconds,
    draws: Stream,
    nodes: u32,
    pub(crate) judge: Judge,
    pub(crate) bypasses: u64,
    pub(crate) committed: u64,
    pub(crate) not_committed: u64,
    pub(crate) starts: u64,
}

impl TwinDaemon {
    pub(crate) fn new(
        inventory: Inventory,
        setup: Setup,
        flush: Picoseconds,
        draws: Stream,
        nodes: u32,
    ) -> Self {
        Self {
            inventory,
            setup,
            control: None,
            journal: None,
            disk: EmulatedDisk::default(),
            busy_until: SimTime::START,
            flush,
            draws,
            nodes,
            judge: Judge::default(),
            bypasses: 0,
            committed: 0,
            not_committed: 0,
            starts: 0,
        }
    }

    pub(crate) fn start(&mut self, now: SimTime) -> Result<Turn, String> {
        let journal = Journal::<Record, _>::open(self.disk.clone());
        let (journal, opened) = journal.map_err(|error| format!("its journal: {error}"))?;
        if let Some(damage) = opened.damage {
            return Err(format!("its journal is damaged: {damage}"));
        }
        let ledger = Ledger::fold(&opened.records);
        self.judge.restarted(&ledger, now);
        self.journal = Some(journal);
        self.starts += 1;
        let (control, actions) =
            Control::start(self.inventory.clone(), self.setup.clone(), ledger, &clocks(now));
        self.control = Some(control);
        let mut turn = Turn::default();
        self.perform(now, actions, &mut turn);
        Ok(turn)
    }

    pub(crate) fn kill(&mut self) {
        (self.control, self.journal) = (None, None);
        self.disk.lose();
    }

    pub(crate) fn wanted(&self, plan: &Plan, phase: Option<&str>) -> Result<Wanted, String> {
        let Setup { modules, switches, .. } = &self.setup;
        let wanted = desired::wanted(plan, phase, modules, switches, &SwitchState::new());
        wanted.map_err(|reasons| reasons.join("; "))
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.transactions().is_busy())
    }

    pub(crate) fn deadline(&self, now: SimTime) -> Option<SimTime> {
        let deadline = self.control.as_ref()?.deadline(&clocks(now))?;
        Some(SimTime(deadline.0.saturating_mul(1_000_000)).max(self.busy_until))
    }

    pub(crate) fn plan_sha256(&self) -> String {
        let control = self.control.as_ref();
        control.map(|control| control.ledger().plan_sha256.clone()).unwrap_or_default()
    }

    pub(crate) fn records(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::length)
    }

    pub(crate) fn turn(&mut self, now: SimTime, events: Vec<Event>) -> Turn {
        let mut turn = Turn::default();
        let Some(control) = &mut self.control else { return turn };
        let devices = control.sightings().devices().len();
        let inputs = events.len().max(1) as u64;
        let works = Picoseconds(cost::of_input(devices).get() * inputs);
        let mut at = now.max(self.busy_until) + works + cost::late(&mut self.draws);
        for event in events {
            if let Event::Reply { device, outcome: Outcome::Unknown(_), .. } = &event {
                self.judge.is_unknown(device);
            }
            let Some(control) = &mut self.control else { break };
            let actions = control.handle(&clocks(at), event);
            at = self.perform(at, actions, &mut turn);
        }
        if let Some(control) = &mut self.control {
            let actions = control.tick(&clocks(at));
            at = self.perform(at, actions, &mut turn);
        }
        self.busy_until = at;
        turn
    }

    pub(crate) fn ask(&mut self, now: SimTime, request: Request, plan: Option<Plan>) -> Turn {
        let mut turn = Turn::default();
        let id = format!("setup-{}", self.records());
        let Some(control) = &mut self.control else { return turn };
        let asked = Asked { actor: "operator".into(), digest: id.clone(), request: id };
        let control_at = now.max(self.busy_until);
        let actions =
            control.ask(&clocks(control_at), asked, request, plan.map(Box::new), ReplyTo(1));
        self.busy_until = self.perform(control_at, actions, &mut turn);
        turn
    }

    pub(crate) fn book(&mut self, now: SimTime, id: &str, wish: Wish) -> Turn {
        let mut turn = Turn::default();
        let Some(control) = &mut self.control else { return turn };
        let asked = Asked { actor: "job".into(), digest: id.to_owned(), request: id.to_owned() };
        let devices = control.sightings().devices().len();
        let at = now.max(self.busy_until) + cost::of_input(devices) + cost::late(&mut self.draws);
        let actions = control.book(&clocks(at), asked, wish, ReplyTo(1));
        self.busy_until = self.perform(at, actions, &mut turn);
        turn
    }

    pub(crate) fn standing(&self, id: &str) -> Option<&Standing> {
        let booking = self.control.as_ref()?.phases().of_request(id)?;
        Some(&booking.standing)
    }

    fn perform(&mut self, mut at: SimTime, actions: Vec<Action>, turn: &mut Turn) -> SimTime {
        let bypassed = actions.iter().find_map(|action| match action {
            Action::Note(Note::Bypassing(parts, _)) => {
                Some(parts.iter().map(|(part, _)| *part).collect::<Vec<Part>>())
            }
            _ => None,
        });
        if let Some(parts) = &bypassed {
            self.bypasses += 1;
            turn.happened.push((at, Happened::Bypassing(parts.clone())));
            at = at + cost::of_plan(self.nodes);
            turn.happened.push((at, Happened::Planned));
        }
        for action in actions {
            match action {
                Action::Append(records) => {
                    let waited = records.iter().any(Record::is_waited_for);
                    if let Some(journal) = &mut self.journal {
                        let written = match waited {
                            true => journal.append(&records).map(|_| ()),
                            false => journal.write(&records),
                        };
                        if let Err(error) = written {
                            self.judge.note(format!("the journal failed: {error}"));
                        }
                    }
                    self.judge.written(&records, at);
                    if waited {
                        at = at + self.flush;
                        let begun =
                            records.iter().any(|record| matches!(record, Record::Intent(_)));
                        turn.happened.extend(begun.then_some((at, Happened::Journalled)));
                    }
                }
                Action::Send(device, ticket, op) => {
                    self.judge.sends(&device, &op, at);
                    turn.commands.push((at, TaskCommand::Run(device, ticket, op)));
                }
                Action::Abandon(device, ticket) => {
                    self.judge.is_unknown(&device);
                    turn.commands.push((at, TaskCommand::Abandon(device, ticket)));
                }
                Action::Answer(ReplyTo(1), answer) => turn.answer = Some(answer),
                Action::Answer(..) => {}
                Action::Note(Note::Ended(_, result)) => {
                    at = at + cost::of_end(self.nodes);
                    self.ended(at, result, turn);
                }
                Action::Note(_) => {}
            }
        }
        at
    }

    fn ended(&mut self, at: SimTime, result: TxnResult, turn: &mut Turn) {
        let is_committed = result == TxnResult::Committed;
        let control = self.control.as_ref();
        let past = control.and_then(|control| control.ledger().history.back());
        if past.is_some_and(|past| past.cause == Cause::Phase) {
            return;
        }
        self.committed += u64::from(is_committed);
        self.not_committed += u64::from(!is_committed);
        let plan = self.control.as_ref().and_then(|control| control.plan()).cloned();
        turn.happened.push((at, Happened::Ended(plan.filter(|_| is_committed).map(Box::new))));
    }
}

pub(crate) fn clocks(now: SimTime) -> Now {
    Now { mono: mono(now), wall_ms: now.0 / 1_000_000_000, boot: "twin".into() }
}

pub(crate) fn mono(now: SimTime) -> Micros {
    Micros(now.0.div_ceil(1_000_000))
}
