// SPDX-License-Identifier: Apache-2.0
//! A depth-first search over copies of the shipping controller, through every order of replies and
//! every placement of a limited number of faults, that stops at states visited before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use lightloom_control::controller::{Action, Controller, Event, Note, ReplyTo, Request, Ticket};
use lightloom_control::inventory::Inventory;
use lightloom_control::ledger::Ledger;
use lightloom_control::record::{Asked, Record, TxnResult};
use lightloom_control::state::{DeviceName, Micros, Now, Op, Outcome, Positions, SwitchState, Txn};

use rustc_hash::FxHashSet;

use super::device::Model;
use super::faults::{Deposed, Late};
use super::judge;
use super::key::{Text, key};

/// Maximum number of steps from the first request until everything is at rest.
const STEPS_MAX: u32 = 400;
/// Later than all deadlines of a scenario.
const DEFERRED_WITHIN: Micros = Micros::from_secs(2_000);

/// Faults that a scenario explores in addition to every order of replies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub count: u8,
    /// A device may execute a command at any later moment, after its session was abandoned.
    pub late: bool,
    /// A device may fail for 20 s and return unchanged.
    pub die: bool,
    /// Any set of devices may lose its management for 20 s, which loses all replies.
    pub lose: bool,
    /// Another daemon may take over at any instant, with the next epoch, while the first one
    /// continues, and etcd may not acknowledge a record.
    pub follow: bool,
}

/// A request that is sent at any moment after the client's earlier ones.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub actor: &'static str,
    pub id: &'static str,
    pub request: Request,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub name: &'static str,
    pub inventory: Inventory,
    pub start: SwitchState,
    pub fences: BTreeSet<DeviceName>,
    pub clients: Vec<VecDeque<Wish>>,
    pub faults: Faults,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub now: Now,
    pub controller: Controller,
    pub models: BTreeMap<DeviceName, Model>,
    pub flights: BTreeMap<DeviceName, (Ticket, Op)>,
    pub down: BTreeSet<DeviceName>,
    pub dead: BTreeMap<DeviceName, Micros>,
    pub late: Vec<Late>,
    pub durable: Arc<Vec<Record>>,
    pub soft: Vec<Record>,
    pub clients: Vec<VecDeque<Wish>>,
    pub faults: u8,
    /// Whether a command was executed late, so that a device may be listed at another position.
    pub late_came: bool,
    pub moved: BTreeSet<DeviceName>,
    /// Devices that have not been read since a command with an unknown outcome.
    pub unread: BTreeSet<DeviceName>,
    pub ended: BTreeMap<Txn, TxnResult>,
    pub epoch: u32,
    pub connecting: BTreeSet<DeviceName>,
    /// Records that reached etcd without an acknowledgement, after which the daemon is read-only.
    pub failed: Option<Vec<Record>>,
    pub deposed: Option<Box<Deposed>>,
    steps: u32,
    trail: Trail,
}

#[derive(Clone, Debug, Default)]
struct Trail(Option<Arc<(String, Trail)>>);

#[derive(Default)]
pub(crate) struct Seen {
    keys: FxHashSet<u128>,
    pub states: u64,
    pub crashes: u64,
    pub deepest: u32,
    pub ends: BTreeMap<String, u64>,
    pub violations: Vec<(String, Vec<String>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    None,
    SyncsNothing,
    TrustsAnswers,
    ForgetsRequests,
    SendsWithoutFence,
    JournalTakesAll,
    EpochGoesBack,
    DeviceTakesAll,
    /// A new leader does not wait for late commands of the previous one.
    NoSettleTime,
    /// A record that etcd did not acknowledge is treated as written.
    TakesTimeoutForYes,
}

pub(crate) struct Explorer {
    pub scenario: Scenario,
    pub mutant: Mutant,
    limit: u64,
    work: Vec<State>,
    text: Text,
    pub seen: Seen,
}

impl Explorer {
    pub(crate) fn new(mut scenario: Scenario, mutant: Mutant, limit: u64) -> Self {
        if mutant == Mutant::NoSettleTime {
            let devices = scenario.inventory.devices.values_mut();
            devices.for_each(|device| device.limits.late_within = Micros(0));
        }
        let (work, text, seen) = (Vec::new(), Text::default(), Seen::default());
        Self { scenario, mutant, limit, work, text, seen }
    }

    pub(crate) fn run(&mut self) -> bool {
        let mut start = self.at_rest();
        start.faults = self.scenario.faults.count;
        start.clients = self.scenario.clients.clone();
        self.push(start);
        while let Some(state) = self.work.pop() {
            if self.seen.states > self.limit {
                return false;
            }
            if !self.seen.violations.is_empty() {
                return true;
            }
            self.expand(state);
        }
        true
    }

    fn at_rest(&mut self) -> State {
        let now = Now { mono: Micros::from_secs(1), wall_ms: 1_700_000_000_000, boot: "b".into() };
        let inventory = self.scenario.inventory.clone();
        let model = |(name, device): (&DeviceName, &lightloom_control::inventory::Device)| {
            let fences = self.scenario.fences.contains(name);
            (name.clone(), Model::new(device, fences && self.mutant != Mutant::DeviceTakesAll))
        };
        let models = inventory.devices.iter().map(model).collect();
        let (controller, actions) = Controller::start(inventory, Ledger::default(), &now);
        let apply = lightloom_control::controller::Apply {
            target: self.scenario.start.clone(),
            plan_sha256: "start".into(),
            ..Default::default()
        };
        let wish = Wish { actor: "start", id: "start", request: Request::Apply(apply) };
        let mut state = State {
            now,
            controller,
            models,
            flights: BTreeMap::new(),
            down: BTreeSet::new(),
            dead: BTreeMap::new(),
            late: Vec::new(),
            durable: Arc::default(),
            soft: Vec::new(),
            clients: vec![[wish].into()],
            faults: 0,
            late_came: false,
            moved: BTreeSet::new(),
            unread: BTreeSet::new(),
            ended: BTreeMap::new(),
            epoch: 1,
            connecting: BTreeSet::new(),
            failed: None,
            deposed: None,
            steps: 0,
            trail: Trail::default(),
        };
        let names: Vec<DeviceName> = state.models.keys().cloned().collect();
        let mut actions = actions;
        for name in names {
            actions.extend(state.controller.handle(&state.now, Event::Reachable(name)));
        }
        self.perform(state, actions);
        loop {
            let state = self.work.pop().expect("without faults it goes on");
            self.work.clear();
            let ready = state.flights.is_empty() && !state.controller.transactions().is_busy();
            if ready && state.clients[0].is_empty() {
                self.seen = Seen::default();
                let (trail, ended) = (Trail::default(), BTreeMap::new());
                return State { steps: 0, trail, ended, ..state };
            }
            match state.flights.keys().next().cloned() {
                Some(device) => self.answer(state, &device),
                None => self.ask(state, 0),
            }
        }
    }

    pub(super) fn push(&mut self, mut state: State) {
        state.steps += 1;
        if self.seen.keys.insert(key(&state, &mut self.text)) {
            self.seen.states += 1;
            self.seen.deepest = self.seen.deepest.max(state.steps);
            self.work.push(state);
        }
    }

    pub(super) fn violated(&mut self, state: &State, what: String) {
        let (mut trail, mut at) = (Vec::new(), &state.trail);
        while let Some(said) = &at.0 {
            trail.push(said.0.clone());
            at = &said.1;
        }
        trail.reverse();
        self.seen.violations.push((what, trail));
    }

    pub(super) fn perform(&mut self, mut state: State, actions: Vec<Action>) {
        let follow = self.scenario.faults.follow;
        let mut left = actions.into_iter();
        let mut first = true;
        loop {
            // Nothing durable has changed before the first action.
            if state.faults > 0 && follow && !std::mem::take(&mut first) {
                self.take_over(&state, left.as_slice());
            }
            if state.faults > 0 && !follow && !left.as_slice().is_empty() {
                self.crash(&state);
            }
            let Some(action) = left.next() else { break };
            match action {
                Action::Append(records) => {
                    if let Some(what) = judge::records(&state, &records) {
                        self.violated(&state, what);
                    }
                    if state.faults > 0 && follow {
                        self.leave_unanswered(&state, &records, left.as_slice());
                    }
                    // etcd makes each record durable immediately.
                    let waited_for = (records.iter().any(Record::is_waited_for) || follow)
                        && self.mutant != Mutant::SyncsNothing;
                    state.soft.extend(records);
                    if waited_for {
                        let soft = std::mem::take(&mut state.soft);
                        Arc::make_mut(&mut state.durable).extend(soft);
                    }
                }
                Action::Send(device, ticket, op) => {
                    if let Some(what) = judge::send(&state, &self.scenario.inventory, &device, &op)
                    {
                        self.violated(&state, what);
                    }
                    match op {
                        Op::Switch { .. } => state.moved.insert(device.clone()),
                        _ => state.moved.remove(&device),
                    };
                    if !state.down.contains(&device) && !state.dead.contains_key(&device) {
                        state.flights.insert(device, (ticket, op));
                    }
                }
                Action::Abandon(device, _) => {
                    state.flights.remove(&device);
                    state.down.insert(device);
                }
                Action::Note(Note::Ended(txn, result)) => {
                    state.ended.insert(txn, result);
                }
                Action::Note(Note::Unknown(device, _)) if state.moved.contains(&device) => {
                    state.unread.insert(device);
                }
                Action::Answer(..) | Action::Note(_) => {}
            }
        }
        self.push(state);
    }

    pub(super) fn handle(&mut self, mut state: State, event: Event) {
        if self.mutant == Mutant::TrustsAnswers
            && let Event::Reply { device, outcome: Outcome::Done(Some(read)), .. } = &event
            && let Some(open) = &state.controller.ledger().open
            && !open.fired.is_empty()
            && open.intent.txn > Txn(1)
            && let Some(after) = open.intent.after.get(device)
        {
            let mut read = read.clone();
            read.positions.extend(after.iter());
            read.positions.retain(|_, to| !to.is_dark());
            let Event::Reply { device, ticket, .. } = event else { unreachable!("it is one") };
            let event = Event::Reply { device, ticket, outcome: Outcome::Done(Some(read)) };
            let actions = state.controller.handle(&state.now, event);
            return self.perform(state, actions);
        }
        let actions = state.controller.handle(&state.now, event);
        self.perform(state, actions);
    }

    fn ask(&mut self, mut state: State, client: usize) {
        let Some(wish) = state.clients[client].pop_front() else { return };
        state.say(|| format!("{} asks {}", wish.actor, wish.id));
        let id = match self.mutant {
            Mutant::ForgetsRequests => format!("{}-{}", wish.id, state.steps),
            _ => wish.id.to_owned(),
        };
        let asked = Asked { actor: wish.actor.into(), request: id, digest: wish.id.into() };
        self.handle(state, Event::Request { asked, request: wish.request, reply_to: ReplyTo(1) });
    }

    fn answer(&mut self, mut state: State, device: &DeviceName) {
        let Some((ticket, op)) = state.flights.remove(device) else { return };
        let outcome = match state.connecting.contains(device) {
            true => Outcome::Unknown("not connected".into()),
            false => state.execute(device, &op),
        };
        if matches!(outcome, Outcome::Done(Some(_))) {
            state.unread.remove(device);
        }
        state.say(|| format!("{device} {}: {}", word(&op), said(&outcome)));
        self.handle(state, Event::Reply { device: device.clone(), ticket, outcome });
    }

    fn expand(&mut self, state: State) {
        if state.steps > STEPS_MAX {
            return self.violated(&state, format!("I7: no end within {STEPS_MAX} steps"));
        }
        self.arrives_late(&state);
        if state.faults > 0 && self.scenario.faults.follow {
            self.take_over(&state, &[]);
        }
        self.connects(&state);
        for client in 0..state.clients.len() {
            if !state.clients[client].is_empty() && state.failed.is_none() {
                self.ask(state.clone(), client);
            }
        }
        if state.faults > 0 && self.scenario.faults.die && state.dead.is_empty() {
            self.deaths(&state);
        }
        if state.faults > 0 && self.scenario.faults.lose && state.dead.is_empty() {
            self.losses(&state);
        }
        for device in state.flights.keys().cloned().collect::<Vec<_>>() {
            self.answer(state.clone(), &device);
            if state.faults > 0 && !state.connecting.contains(&device) {
                self.faulty_answers(&state, &device);
            }
        }
        if state.failed.is_some() {
            self.goes_on(state);
        } else if state.flights.is_empty() && state.connecting.is_empty() {
            self.time_goes_on(state);
        }
    }

    /// Advances the time until a device returns, a deadline expires or the scenario ends.
    fn time_goes_on(&mut self, mut state: State) {
        let asks = state.clients.iter().any(|client| !client.is_empty());
        let ledger = state.controller.ledger();
        // A device that returned at another position remains deferred until an operator acts.
        let deferred = !ledger.deferred.is_empty() && state.now.mono < DEFERRED_WITHIN;
        let waits = ledger.pending.is_some() || deferred || ledger.open.is_some();
        // The next poll would detect late effects.
        let known = state.controller.sightings().devices().iter().all(|(device, seen)| {
            let read = seen.observed().map(|read| &read.positions);
            read == Some(&state.models[device].positions) || (read.is_some() && !state.late_came)
        });
        let calm = state.down.is_empty() && state.dead.is_empty();
        if !waits && known && calm && !state.controller.transactions().is_busy() {
            if asks {
                return;
            }
            return self.rest(&state);
        }
        if let Some(device) = state.down.iter().find(|d| !state.dead.contains_key(*d)).cloned() {
            state.down.remove(&device);
            pass(&mut state, Micros::from_millis(50));
            state.say(|| format!("{device} comes back"));
            let epoch = state.epoch;
            state.models.get_mut(&device).expect("it is one").connected(epoch);
            let down = Event::Unreachable(device.clone(), "no answer".into());
            let mut actions = state.controller.handle(&state.now, down);
            actions.extend(state.controller.handle(&state.now, Event::Reachable(device)));
            return self.perform(state, actions);
        }
        for device in
            state.dead.keys().filter(|d| state.down.contains(*d)).cloned().collect::<Vec<_>>()
        {
            let seen = &state.controller.sightings().devices()[&device];
            if seen.is_reachable() {
                let down = Event::Unreachable(device, "no answer".into());
                return self.handle(state, down);
            }
        }
        let revives = state.dead.iter().map(|(device, at)| (*at, device.clone())).min();
        let deadline = state.controller.deadline(&state.now);
        match (revives, deadline) {
            (Some((at, device)), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
                let passed = at - state.now.mono;
                pass(&mut state, passed);
                state.dead.remove(&device);
                state.down.insert(device.clone());
                state.say(|| format!("{device} lives"));
                self.push(state);
            }
            (_, Some(deadline)) => {
                let passed = Micros((deadline - state.now.mono).0.max(1));
                pass(&mut state, passed);
                state.say(|| "time passes".into());
                self.handle(state, Event::Tick);
            }
            (_, None) => self.violated(&state, "I7: nothing will ever happen again".into()),
        }
    }

    fn rest(&mut self, state: &State) {
        let ends: Vec<String> = state.ended.values().map(|result| format!("{result:?}")).collect();
        let late = if state.late_came { ", late" } else { "" };
        *self.seen.ends.entry(format!("{}{late}", ends.join(" "))).or_default() += 1;
        if let Some(what) = judge::rest(state, &self.scenario.start) {
            self.violated(state, what);
        }
    }
}

pub(super) fn pass(state: &mut State, time: Micros) {
    state.now.mono = state.now.mono + time;
    state.now.wall_ms += time.0.div_ceil(1000);
    state.drop_late();
}

pub(super) fn word(op: &Op) -> String {
    match op {
        Op::Observe { .. } => "read".into(),
        Op::Arm { .. } => "arm".into(),
        Op::Disarm { .. } => "disarm".into(),
        Op::Switch { moves, .. } => format!("{moves:?}"),
    }
}

fn said(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(_) => "done",
        Outcome::Refused(_) => "refused",
        Outcome::Failed(_) => "failed",
        Outcome::Unknown(_) => "unknown",
    }
}

pub(crate) fn stand(state: &State) -> BTreeMap<DeviceName, Positions> {
    state.models.iter().map(|(name, model)| (name.clone(), model.positions.clone())).collect()
}

impl State {
    pub(super) fn say(&mut self, what: impl FnOnce() -> String) {
        self.trail = Trail(Some(Arc::new((what(), std::mem::take(&mut self.trail)))));
    }

    pub(super) fn execute(&mut self, device: &DeviceName, op: &Op) -> Outcome {
        self.models.get_mut(device).expect("it is one").execute(self.epoch, op)
    }

    pub(crate) fn unsynced(&self) -> &[Record] {
        &self.soft
    }
}
