// SPDX-License-Identifier: Apache-2.0
//! Every order of answers and every placement of up to so many faults: a depth-first search over copies of the
//! shipping controller. A state that was seen before is not followed again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use lightloom_control::controller::{Action, Controller, Event, Note, ReplyTo, Request, Ticket};
use lightloom_control::inventory::Inventory;
use lightloom_control::ledger::Ledger;
use lightloom_control::record::{Asked, Record, TxnResult};
use lightloom_control::state::{DeviceName, Fabric, Micros, Now, Op, Outcome, Positions, Txn};

use super::device::Model;
use super::judge;

/// The longest path from the first request to rest.
const STEPS_MAX: u32 = 400;
/// How long a device that dies stays dead.
const DEAD_FOR: Micros = Micros::from_secs(20);
/// Long after everything that a scenario waits for.
const DEFERRED_WITHIN: Micros = Micros::from_secs(2_000);

/// What can go wrong, beside every order of answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// How many at most.
    pub count: u8,
    /// A command is carried out at any later moment, after its session was given up.
    pub late: bool,
    /// A device dies for [`DEAD_FOR`] and comes back as it was.
    pub die: bool,
    /// Management is lost for [`DEAD_FOR`], of any devices at once: what was on its way arrives or does not, no answer
    /// does, and the devices stay as they are.
    pub lose: bool,
}

/// A request that comes at any moment, each behind those before it of the same client.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub actor: &'static str,
    pub id: &'static str,
    pub request: Request,
}

/// A small world with its devices at rest, and what clients ask of it.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub name: &'static str,
    pub inventory: Inventory,
    /// Where the devices are brought first, without faults.
    pub start: Fabric,
    pub clients: Vec<VecDeque<Wish>>,
    pub faults: Faults,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub now: Now,
    pub controller: Controller,
    pub models: BTreeMap<DeviceName, Model>,
    flights: BTreeMap<DeviceName, (Ticket, Op)>,
    down: BTreeSet<DeviceName>,
    dead: BTreeMap<DeviceName, Micros>,
    late: Vec<(DeviceName, Op)>,
    pub durable: Vec<Record>,
    soft: Vec<Record>,
    clients: Vec<VecDeque<Wish>>,
    faults: u8,
    /// A command was carried out late: then a device may stand elsewhere, listed.
    pub late_came: bool,
    /// Devices whose last command has an unknown outcome and that were not read since.
    pub unread: BTreeSet<DeviceName>,
    pub ended: BTreeMap<Txn, TxnResult>,
    steps: u32,
    trail: VecDeque<String>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    keys: BTreeSet<u128>,
    pub states: u64,
    pub crashes: u64,
    pub deepest: u32,
    /// How often each list of results was the end.
    pub ends: BTreeMap<String, u64>,
    pub violations: Vec<(String, Vec<String>)>,
}

/// What the edge does wrong, to see that the judge finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    None,
    /// Records are written and never made durable.
    SyncsNothing,
    /// A device's answer to a command counts as a read.
    TrustsAnswers,
    /// A request id that was asked before is taken for a new one.
    ForgetsRequests,
}

pub(crate) struct Explorer {
    scenario: Scenario,
    mutant: Mutant,
    limit: u64,
    work: Vec<State>,
    pub seen: Seen,
}

impl Explorer {
    pub(crate) fn new(scenario: Scenario, mutant: Mutant, limit: u64) -> Self {
        Self { scenario, mutant, limit, work: Vec::new(), seen: Seen::default() }
    }

    /// All of it; `false` if there were more states than the limit.
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

    /// The devices where the scenario begins, and the controller that brought them there.
    fn at_rest(&mut self) -> State {
        let now = Now { mono: Micros::from_secs(1), wall_ms: 1_700_000_000_000, boot: "b".into() };
        let inventory = self.scenario.inventory.clone();
        let model = |(name, device): (&DeviceName, &lightloom_control::inventory::Device)| {
            (name.clone(), Model::new(device))
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
            durable: Vec::new(),
            soft: Vec::new(),
            clients: vec![[wish].into()],
            faults: 0,
            late_came: false,
            unread: BTreeSet::new(),
            ended: BTreeMap::new(),
            steps: 0,
            trail: VecDeque::new(),
        };
        let names: Vec<DeviceName> = state.models.keys().cloned().collect();
        let mut actions = actions;
        for name in names {
            actions.extend(state.controller.handle(&state.now, Event::Up(name)));
        }
        self.perform(state, actions);
        // One order of answers, without faults.
        loop {
            let state = self.work.pop().expect("without faults it goes on");
            self.work.clear();
            let ready = state.flights.is_empty() && !state.controller.is_busy();
            if ready && state.clients[0].is_empty() {
                self.seen = Seen::default();
                return State { steps: 0, trail: VecDeque::new(), ended: BTreeMap::new(), ..state };
            }
            match state.flights.keys().next().cloned() {
                Some(device) => self.answer(state, &device),
                None => self.ask(state, 0),
            }
        }
    }

    fn push(&mut self, mut state: State) {
        state.steps += 1;
        if self.seen.keys.insert(key(&state)) {
            self.seen.states += 1;
            self.seen.deepest = self.seen.deepest.max(state.steps);
            self.work.push(state);
        }
    }

    fn violated(&mut self, state: &State, what: String) {
        self.seen.violations.push((what, state.trail.iter().cloned().collect()));
    }

    /// Does the actions in order; where a fault is left the daemon may die before each of them.
    fn perform(&mut self, mut state: State, actions: Vec<Action>) {
        for action in actions {
            if state.faults > 0 {
                self.crash(&state);
            }
            match action {
                Action::Append(records) => {
                    if let Some(what) = judge::records(&state, &records) {
                        self.violated(&state, what);
                    }
                    let waited_for = records.iter().any(Record::is_waited_for)
                        && self.mutant != Mutant::SyncsNothing;
                    state.soft.extend(records);
                    if waited_for {
                        let soft = std::mem::take(&mut state.soft);
                        state.durable.extend(soft);
                    }
                }
                Action::Send(device, ticket, op) => {
                    if let Some(what) = judge::send(&state, &self.scenario.inventory, &device, &op)
                    {
                        self.violated(&state, what);
                    }
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
                Action::Note(Note::Unknown(device, _)) => {
                    state.unread.insert(device);
                }
                Action::Answer(..) | Action::Note(_) => {}
            }
        }
        self.push(state);
    }

    /// The daemon dies: what was not synced is kept or lost, each command on its way is carried out or not.
    fn crash(&mut self, before: &State) {
        let moving = before.flights.iter().filter(|(_, (_, op))| matches!(op, Op::Switch { .. }));
        let moving: Vec<(DeviceName, Op)> =
            moving.map(|(d, (_, op))| (d.clone(), op.clone())).collect();
        let ways = if self.scenario.faults.late { 3_usize } else { 2 };
        let count = ways.pow(u32::try_from(moving.len()).unwrap_or(0));
        for kept in [false, true] {
            if kept && before.soft.is_empty() {
                continue;
            }
            for fates in 0..count {
                let mut state = before.clone();
                state.faults -= 1;
                let mut left = fates;
                for (device, op) in &moving {
                    match left % ways {
                        0 => {}
                        1 => drop(state.models.get_mut(device).expect("it is one").execute(op)),
                        _ => state.late.push((device.clone(), op.clone())),
                    }
                    left /= ways;
                }
                let soft = std::mem::take(&mut state.soft);
                state.durable.extend(soft.into_iter().filter(|_| kept));
                state.trail.push_back(format!("CRASH, unsynced kept {kept}, fates {fates}"));
                self.restart(state);
            }
        }
    }

    fn restart(&mut self, mut state: State) {
        self.seen.crashes += 1;
        state.flights.clear();
        state.down.clear();
        state.unread.clear();
        pass(&mut state, Micros::from_millis(200));
        let ledger = Ledger::fold(&state.durable);
        state.ended =
            ledger.history.iter().filter(|p| p.txn > Txn(1)).map(|p| (p.txn, p.result)).collect();
        let inventory = self.scenario.inventory.clone();
        let (controller, mut actions) = Controller::start(inventory, ledger, &state.now);
        state.controller = controller;
        for name in state.models.keys().cloned().collect::<Vec<_>>() {
            let event = match state.dead.contains_key(&name) {
                true => Event::Down(name, "no answer to a hello".into()),
                false => Event::Up(name),
            };
            actions.extend(state.controller.handle(&state.now, event));
        }
        self.perform(state, actions);
    }

    fn handle(&mut self, mut state: State, event: Event) {
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

    /// A client asks now.
    fn ask(&mut self, mut state: State, client: usize) {
        let Some(wish) = state.clients[client].pop_front() else { return };
        state.trail.push_back(format!("{} asks {}", wish.actor, wish.id));
        let id = match self.mutant {
            Mutant::ForgetsRequests => format!("{}-{}", wish.id, state.steps),
            _ => wish.id.to_owned(),
        };
        let asked = Asked { actor: wish.actor.into(), request: id, digest: wish.id.into() };
        self.handle(state, Event::Request { asked, request: wish.request, reply_to: ReplyTo(1) });
    }

    /// A device does what it was asked, and says so.
    fn answer(&mut self, mut state: State, device: &DeviceName) {
        let Some((ticket, op)) = state.flights.remove(device) else { return };
        let outcome = state.models.get_mut(device).expect("it is one").execute(&op);
        if matches!(op, Op::Observe { .. } | Op::Arm { .. }) {
            state.unread.remove(device);
        }
        state.trail.push_back(format!("{device} {}: {}", word(&op), said(&outcome)));
        self.handle(state, Event::Reply { device: device.clone(), ticket, outcome });
    }

    fn expand(&mut self, state: State) {
        if state.steps > STEPS_MAX {
            return self.violated(&state, format!("I7: no end within {STEPS_MAX} steps"));
        }
        for at in 0..state.late.len() {
            let mut later = state.clone();
            let (device, op) = later.late.remove(at);
            later.late_came = true;
            drop(later.models.get_mut(&device).expect("it is one").execute(&op));
            later.trail.push_back(format!("LATE {device} {}", word(&op)));
            self.push(later);
        }
        for client in 0..state.clients.len() {
            if !state.clients[client].is_empty() {
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
            if state.faults > 0 {
                self.faulty_answers(&state, &device);
            }
        }
        if state.flights.is_empty() {
            self.time_goes_on(state);
        }
    }

    fn deaths(&mut self, state: &State) {
        for device in state.models.keys() {
            let mut dead = state.clone();
            dead.faults -= 1;
            dead.flights.remove(device);
            dead.dead.insert(device.clone(), dead.now.mono + DEAD_FOR);
            dead.trail.push_back(format!("{device} DIES"));
            self.push(dead);
        }
    }

    /// Management of each set of devices is lost; what they were asked is done, or was lost before it arrived.
    fn losses(&mut self, state: &State) {
        let names: Vec<DeviceName> = state.models.keys().cloned().collect();
        for set in 1_u32..1 << names.len() {
            for arrives in [false, true] {
                let mut lost = state.clone();
                lost.faults -= 1;
                let of_set = names.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
                for (_, device) in of_set {
                    if let Some((_, op)) = lost.flights.remove(device).filter(|_| arrives) {
                        drop(lost.models.get_mut(device).expect("it is one").execute(&op));
                    }
                    lost.dead.insert(device.clone(), lost.now.mono + DEAD_FOR);
                }
                let fate = if arrives { "arrives" } else { "is lost" };
                lost.trail.push_back(format!("MANAGEMENT of {set:b} LOST, what was asked {fate}"));
                self.push(lost);
            }
        }
    }

    fn faulty_answers(&mut self, state: &State, device: &DeviceName) {
        let Some((ticket, op)) = state.flights.get(device).cloned() else { return };
        let moves = matches!(op, Op::Switch { .. });
        let base = |what: &str| {
            let mut state = state.clone();
            state.faults -= 1;
            state.flights.remove(device);
            state.trail.push_back(format!("FAULT {device} {}: {what}", word(&op)));
            state
        };
        let reply = |outcome| Event::Reply { device: device.clone(), ticket, outcome };
        self.push(base("request lost"));
        if matches!(op, Op::Arm { .. } | Op::Switch { .. }) {
            self.handle(base("refused"), reply(Outcome::Refused("no".into())));
        }
        if moves {
            let mut lost = base("answer lost");
            drop(lost.models.get_mut(device).expect("it is one").execute(&op));
            self.push(lost);
            self.handle(base("lie"), reply(Outcome::Done(None)));
            if self.scenario.faults.late {
                let mut late = base("late");
                late.late.push((device.clone(), op.clone()));
                self.push(late);
            }
        }
    }

    /// Nobody is about to answer: a device comes back, or the time of the next deadline has come, or it is over.
    fn time_goes_on(&mut self, mut state: State) {
        let asks = state.clients.iter().any(|client| !client.is_empty());
        let ledger = state.controller.ledger();
        // What came back elsewhere than it was left waits for an operator.
        let deferred = !ledger.owed.is_empty() && state.now.mono < DEFERRED_WITHIN;
        let waits = ledger.pending.is_some() || deferred || ledger.open.is_some();
        // What came late is seen by the next poll.
        let known = state.controller.devices().iter().all(|(device, seen)| {
            let read = seen.observed.as_ref().map(|read| &read.positions);
            read == Some(&state.models[device].positions) || (read.is_some() && !state.late_came)
        });
        let calm = state.down.is_empty() && state.dead.is_empty();
        if !waits && known && calm && !state.controller.is_busy() {
            if asks {
                return;
            }
            return self.rest(&state);
        }
        if let Some(device) = state.down.iter().find(|d| !state.dead.contains_key(*d)).cloned() {
            state.down.remove(&device);
            pass(&mut state, Micros::from_millis(50));
            state.trail.push_back(format!("{device} comes back"));
            let down = Event::Down(device.clone(), "no answer".into());
            let mut actions = state.controller.handle(&state.now, down);
            actions.extend(state.controller.handle(&state.now, Event::Up(device)));
            return self.perform(state, actions);
        }
        for device in
            state.dead.keys().filter(|d| state.down.contains(*d)).cloned().collect::<Vec<_>>()
        {
            // A device task says so once.
            let seen = &state.controller.devices()[&device];
            if seen.up {
                let down = Event::Down(device, "no answer".into());
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
                state.trail.push_back(format!("{device} lives"));
                self.push(state);
            }
            (_, Some(deadline)) => {
                let passed = Micros((deadline - state.now.mono).0.max(1));
                pass(&mut state, passed);
                state.trail.push_back("time passes".into());
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

fn pass(state: &mut State, time: Micros) {
    state.now.mono = state.now.mono + time;
    state.now.wall_ms += time.0.div_ceil(1000);
}

fn word(op: &Op) -> String {
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

/// What distinguishes a state: all of it but the names of operations and the way to it.
fn key(state: &State) -> u128 {
    let State { now, controller, models, flights, down, dead, late, soft, clients, faults, .. } =
        state;
    let rest = (late, soft, clients.iter().map(VecDeque::len).collect::<Vec<_>>(), faults);
    let flags = (state.durable.len(), state.late_came, &state.unread, &state.ended);
    let mut hashed = Hashed::default();
    let all =
        format_args!("{controller:?}{models:?}{flights:?}{down:?}{dead:?}{rest:?}{flags:?}{now:?}");
    std::fmt::Write::write_fmt(&mut hashed, all).expect("hashing cannot fail");
    let [one, other] = hashed.hashers.map(|hasher| hasher.finish());
    (u128::from(one) << 64) | u128::from(other)
}

/// Hashes what is written to it, and takes all tickets for one: which of two devices was asked first says nothing.
struct Hashed {
    hashers: [std::hash::DefaultHasher; 2],
    /// Pieces of `Ticket(` that were just written.
    of_ticket: u8,
}

impl Default for Hashed {
    fn default() -> Self {
        let hashers = [1_u8, 2].map(|seed| {
            let mut hasher = std::hash::DefaultHasher::new();
            seed.hash(&mut hasher);
            hasher
        });
        Self { hashers, of_ticket: 0 }
    }
}

impl std::fmt::Write for Hashed {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        let number = self.of_ticket == 2 && piece.bytes().all(|byte| byte.is_ascii_digit());
        self.of_ticket = match piece {
            "Ticket" => 1,
            "(" if self.of_ticket == 1 => 2,
            _ => 0,
        };
        if !number {
            self.hashers.iter_mut().for_each(|hasher| hasher.write(piece.as_bytes()));
        }
        Ok(())
    }
}

/// Where a device stands, for a message.
pub(crate) fn stand(state: &State) -> BTreeMap<DeviceName, Positions> {
    state.models.iter().map(|(name, model)| (name.clone(), model.positions.clone())).collect()
}

impl State {
    /// Written and not promised yet.
    pub(crate) fn unsynced(&self) -> &[Record] {
        &self.soft
    }
}
