// SPDX-License-Identifier: Apache-2.0
//! A ring of modules under the shipping control core, in virtual time. Only this world knows the
//! true light, and the judge does not use the policies.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::change::Mode;
use lightloom_control::controller::{
    Action, Answer, Apply, Event, Note, ReplyTo, Request, Signal, Ticket,
};
use lightloom_control::desired;
use lightloom_control::inventory::{Device, Inventory};
use lightloom_control::ledger::Ledger;
use lightloom_control::management::{Domain, DomainKind, Trouble};
use lightloom_control::mover::{Follows, Promise, RECONNECT};
use lightloom_control::policy::{Control, OnFault, Setup};
use lightloom_control::record::{Asked, Record};
use lightloom_control::replan::{plan_anew, sha256_of};
use lightloom_control::state::{
    DeviceName, FibreEnd, Micros, Neighbours, Now, Observation, Op, Outcome, Position, Sharing,
    Slot, Txn,
};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::Port;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::Seed;

pub(crate) const SLOT: Slot = Slot(0);
const ANSWERS_AFTER: Micros = Micros(400);
const REPORTS_AFTER: Micros = Micros(600);
const HELLO_WITHIN: Micros = Micros::from_secs(3);
const BACKOFF_MAX: Micros = Micros::from_secs(10);

enum Happens {
    Answer(DeviceName, Ticket, Op),
    Refused(DeviceName, Ticket),
    Hello(DeviceName),
    /// A hello timed out. Ignored if the line has sent another hello since.
    NoHello(DeviceName, u64),
    Report(DeviceName, bool),
    Dropped(DeviceName),
}

#[derive(Clone, Copy)]
struct Line {
    up: bool,
    backoff: Micros,
    tries: u64,
    said_down: bool,
}

#[derive(Debug)]
pub(crate) struct Healing {
    pub(crate) healed: BTreeSet<String>,
    pub(crate) left: BTreeSet<String>,
}

pub(crate) struct World {
    pub(crate) now: Now,
    pub(crate) setup: Setup,
    pub(crate) inventory: Inventory,
    pub(crate) control: Control,
    pub(crate) records: Vec<Record>,
    life: u64,
    is_running: bool,
    started: Micros,
    sequence: u64,
    queue: BTreeMap<(Micros, u64), (u64, Happens)>,
    lines: BTreeMap<DeviceName, Line>,
    pub(crate) stands: BTreeMap<DeviceName, Position>,
    sees_light: BTreeMap<DeviceName, bool>,
    pub(crate) dead: BTreeSet<NodeId>,
    dead_modules: BTreeSet<DeviceName>,
    pub(crate) cut: BTreeSet<FibreEnd>,
    pub(crate) unplugged: BTreeSet<NodeId>,
    pub(crate) lost: BTreeSet<DeviceName>,
    /// Lost devices whose serial lines the daemon's host cannot open.
    pub(crate) unopened: BTreeSet<DeviceName>,
    /// Makes the world deliberately wrong: a device without management does not send light.
    pub(crate) unreachable_is_dark: bool,
    unanswered: BTreeMap<DeviceName, Micros>,
    moved_in: BTreeMap<DeviceName, Txn>,
    pub(crate) wrongly_cut: Vec<String>,
    pub(crate) answers_after: Micros,
    /// Whether every module of a working node was responding when the last bypass was planned.
    may_move: bool,
    pub(crate) moved: u32,
    pub(crate) moves: u64,
    pub(crate) bypassed: Vec<(Micros, Vec<Part>)>,
    pub(crate) retry_in: Option<Micros>,
    pub(crate) healed: Vec<Healing>,
}

fn fabric(nodes: u32, gpus: u32, tp: u32, absent: &[&str]) -> Fabric {
    let absent = absent.join(", ");
    let text = format!(
        "kind: fabric\nversion: 2\nname: ring\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n\
         start: {{absent: [{absent}]}}\njobs:\n  - {{name: pretrain, gpus: {gpus}, tp: {tp}}}\n"
    );
    lightloom_fabric::file::load("ring.yaml", text.as_bytes()).0.unwrap()
}

pub(crate) fn module(node: u32, bundle: u8) -> DeviceName {
    BundleId { node: NodeId(node), bundle }.to_string().as_str().into()
}

pub(crate) fn switch_of(node: u32, switches: u32) -> DeviceName {
    format!("tor{}", node % switches).as_str().into()
}

fn node_of(device: &DeviceName) -> Option<NodeId> {
    device.as_str().parse::<BundleId>().ok().map(|bundle| bundle.node)
}

fn what_is_there(fabric: &Fabric, switches: u32) -> (Inventory, Setup) {
    let mut inventory = Inventory { poll_every: Micros::from_secs(1), ..Inventory::default() };
    let mut modules = BTreeMap::new();
    for node in fabric.installed() {
        for bundle in 0..fabric.hbd.k() {
            let bundle = BundleId { node, bundle };
            let name = module(node.0, bundle.bundle);
            let mut device = Device::new(Sharing::Independent);
            device.domains.insert(SLOT, node.to_string());
            let follows =
                Follows { bits_per_second: 921_600, reply_written: false, settle_written: false };
            device.follows = Some(follows);
            inventory.devices.insert(name.clone(), device);
            modules.insert(bundle, name);
        }
    }
    for node in (0..fabric.hbd.nodes()).filter(|_| switches > 0) {
        let switch = switch_of(node, switches);
        let device = Device { is_lever: true, ..Device::new(Sharing::Independent) };
        inventory.devices.insert(switch.clone(), device);
        inventory.hosts.entry(NodeId(node)).or_default().insert(switch);
    }
    let end = |port: Port| (modules[&port.bundle].clone(), SLOT, Position(u32::from(port.path)));
    let is_installed = |port: Port| modules.contains_key(&port.bundle);
    let fibres = fabric.hbd.fibres().map(|fibre| fabric.hbd.ports(fibre));
    for (a, b) in fibres.filter(|(a, b)| is_installed(*a) && is_installed(*b)) {
        inventory.fibres.extend([(end(a), end(b)), (end(b), end(a))]);
    }
    let setup = Setup {
        installed: Some(fabric.clone()),
        modules,
        on_fault: OnFault::Bypass,
        heartbeat: Micros::from_secs(5),
        ..Setup::default()
    };
    (inventory, setup)
}

impl World {
    /// Creates a ring of nodes with four GPUs each, with `gpus` of them in lit groups of `tp`.
    pub(crate) fn new(nodes: u32, gpus: u32, tp: u32) -> Self {
        Self::plugged_into(0, nodes, gpus, tp)
    }

    pub(crate) fn plugged_into(switches: u32, nodes: u32, gpus: u32, tp: u32) -> Self {
        Self::of(&fabric(nodes, gpus, tp, &[]), switches, tp)
    }

    /// Creates a ring as [`new`](Self::new) does, in which some nodes are not installed.
    pub(crate) fn with_absent(nodes: u32, gpus: u32, tp: u32, absent: &[&str]) -> Self {
        Self::of(&fabric(nodes, gpus, tp, absent), 0, tp)
    }

    fn of(fabric: &Fabric, switches: u32, tp: u32) -> Self {
        let (inventory, setup) = what_is_there(fabric, switches);
        let now =
            Now { mono: Micros::from_secs(1_000), wall_ms: 1_800_000_000_000, boot: "b".into() };
        let (control, _) =
            Control::start(inventory.clone(), setup.clone(), Ledger::default(), &now);
        let line = Line { up: false, backoff: RECONNECT, tries: 0, said_down: false };
        let names = || inventory.devices.keys().cloned();
        let modules = || setup.modules.values().cloned();
        let mut world = Self {
            lines: names().map(|name| (name, line)).collect(),
            stands: modules().map(|name| (name, Position::LOOPBACK)).collect(),
            sees_light: modules().map(|name| (name, true)).collect(),
            now,
            setup,
            inventory,
            control,
            records: Vec::new(),
            life: 0,
            is_running: false,
            started: Micros(0),
            sequence: 0,
            queue: BTreeMap::new(),
            dead: BTreeSet::new(),
            dead_modules: BTreeSet::new(),
            cut: BTreeSet::new(),
            unplugged: BTreeSet::new(),
            lost: BTreeSet::new(),
            unopened: BTreeSet::new(),
            unreachable_is_dark: false,
            unanswered: BTreeMap::new(),
            moved_in: BTreeMap::new(),
            wrongly_cut: Vec::new(),
            answers_after: ANSWERS_AFTER,
            may_move: false,
            moved: 0,
            moves: 0,
            bypassed: Vec::new(),
            retry_in: None,
            healed: Vec::new(),
        };
        world.start();
        world.run_for(Micros::from_millis(100));
        let all: Vec<DeviceName> = world.stands.keys().cloned().collect();
        world.ask("adopt", Request::Adopt(all.into()), None);
        let plan = plan_anew(fabric, &fabric.start, Seed(1)).unwrap();
        let target = desired::paths(&plan, &world.setup.modules).unwrap();
        let plan_sha256 = sha256_of(&plan);
        let apply = Apply { target, plan_sha256, mode: Mode::Update, ..Apply::default() };
        world.ask("apply", Request::Apply(apply), Some(Box::new(plan)));
        world.run_for(Micros::from_secs(3));
        assert!(
            !world.control.controller().transactions().is_busy() && world.control.plan().is_some()
        );
        assert!((world.lit_circuits() > 0) == (tp > 4) && world.wrongly_cut.is_empty());
        world.moves = 0;
        world
    }

    pub(crate) fn ask(&mut self, id: &str, request: Request, plan: Option<Box<Plan>>) {
        let asked = Asked { actor: "alice".into(), request: id.into(), digest: id.into() };
        let actions = self.control.ask(&self.now, asked, request, plan, ReplyTo(7));
        let refused = actions.iter().find_map(|action| match action {
            Action::Answer(_, Answer::Refused { reasons }) => Some(reasons.clone()),
            _ => None,
        });
        assert_eq!(refused, None, "{id}");
        self.perform(actions);
    }

    pub(crate) fn repaired(&mut self, part: Part) {
        self.report(&[], &[part]);
    }

    pub(crate) fn report(&mut self, failed: &[Part], repaired: &[Part]) {
        let id = format!("report-{failed:?}-{repaired:?}-{}", self.now.mono.0);
        let asked = Asked { actor: "alice".into(), request: id.clone(), digest: id };
        let failed: Vec<_> = failed.iter().map(|part| (*part, "by hand".to_owned())).collect();
        let actions = self.control.fault(&self.now, asked, &failed, repaired, ReplyTo(7));
        self.perform(actions);
    }

    pub(crate) fn behind(&mut self, kind: DomainKind, name: &str, devices: &[DeviceName]) {
        for device in devices {
            let domain = Domain { kind, name: name.into() };
            self.inventory.management.insert(device.clone(), domain);
        }
    }

    pub(crate) fn start(&mut self) {
        self.life += 1;
        (self.is_running, self.started) = (true, self.now.mono);
        let line = Line { up: false, backoff: RECONNECT, tries: 0, said_down: false };
        self.lines.values_mut().for_each(|of| *of = line);
        let (control, actions) = Control::start(
            self.inventory.clone(),
            self.setup.clone(),
            Ledger::fold(&self.records),
            &self.now,
        );
        self.control = control;
        self.perform(actions);
        for (index, name) in (1..).zip(self.lines.keys().cloned().collect::<Vec<_>>()) {
            self.later(Micros(20 * index), Happens::Hello(name));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.life += 1;
        self.is_running = false;
    }

    fn later(&mut self, after: Micros, happens: Happens) {
        self.sequence += 1;
        let at = self.now.mono + after;
        self.queue.insert((at, self.sequence), (self.life, happens));
    }

    // ---- the true state -----------------------------------------------------------------------

    pub(crate) fn is_reached(&self, device: &DeviceName) -> bool {
        !self.lost.contains(device) && !self.is_dead(device)
    }

    fn is_dead(&self, device: &DeviceName) -> bool {
        node_of(device).is_some_and(|node| self.dead.contains(&node))
            || self.dead_modules.contains(device)
    }

    fn is_lit(&self, device: &DeviceName) -> bool {
        let end = (device.clone(), SLOT, self.stands[device]);
        match self.inventory.fibres.get(&end) {
            None => true,
            Some(far) => {
                let is_dark = self.is_dead(&far.0)
                    || (self.unreachable_is_dark && self.lost.contains(&far.0));
                !self.cut.contains(&end) && !is_dark && self.stands[&far.0] == far.2
            }
        }
    }

    pub(crate) fn lit_with(&self, device: &DeviceName) -> Option<DeviceName> {
        let far = self.inventory.fibres.get(&(device.clone(), SLOT, self.stands[device]))?;
        let both = self.is_lit(device) && self.is_lit(&far.0) && !self.is_dead(device);
        both.then(|| far.0.clone())
    }

    pub(crate) fn looked_into_by(&self, device: &DeviceName) -> Option<DeviceName> {
        let far = self.inventory.fibres.get(&(device.clone(), SLOT, self.stands[device]))?;
        (self.stands[&far.0] == far.2).then(|| far.0.clone())
    }

    pub(crate) fn is_settled(&self) -> bool {
        let settled = |(name, line): (&DeviceName, &Line)| line.up == self.is_reached(name);
        self.is_running
            && self.started + Micros::from_secs(1) < self.now.mono
            && self.lines.iter().all(settled)
    }

    pub(crate) fn may_wait_for(&self, mut devices: impl Iterator<Item = DeviceName>) -> bool {
        let lately = |at: &Micros| *at + Micros::from_secs(3) > self.now.mono;
        devices.any(|device| self.unanswered.get(&device).is_some_and(lately))
    }

    pub(crate) fn lit_circuits(&self) -> usize {
        self.stands.keys().filter(|device| self.lit_with(device).is_some()).count() / 2
    }

    pub(crate) fn node_in_use(&self) -> u32 {
        let groups = &self.control.plan().unwrap().groups;
        groups.iter().find(|group| group.job.is_some()).unwrap().nodes[0].0
    }

    /// Returns whether the device has a request for its status only, without a reply so far.
    pub(crate) fn is_asked_for_status(&self, device: &DeviceName) -> bool {
        self.queue.values().any(|(_, happens)| match happens {
            Happens::Answer(to, _, Op::Observe { neighbours, .. }) => {
                to == device && *neighbours == Neighbours::Never
            }
            _ => false,
        })
    }

    pub(crate) fn is_bypassed(&self, node: u32) -> bool {
        let bundles = [0, 1].map(|bundle| BundleId { node: NodeId(node), bundle });
        bundles.iter().all(|bundle| self.control.facts().is_bypassed(Part::Bundle(*bundle)))
    }

    pub(crate) fn light_changed(&mut self) {
        let names: Vec<DeviceName> = self.stands.keys().cloned().collect();
        for name in names {
            let lit = self.is_lit(&name);
            if self.sees_light.insert(name.clone(), lit) != Some(lit) && self.is_reached(&name) {
                self.later(REPORTS_AFTER, Happens::Report(name, lit));
            }
        }
    }

    pub(crate) fn die(&mut self, node: u32) {
        self.dead.insert(NodeId(node));
        self.light_changed();
    }

    pub(crate) fn die_alone(&mut self, device: DeviceName) {
        self.dead_modules.insert(device);
        self.light_changed();
    }

    // ---- the daemon --------------------------------------------------------------------------

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Append(records) => self.records.extend(records),
                Action::Send(device, ticket, op) => match self.lines[&device].up {
                    false => self.later(Micros(10), Happens::Refused(device, ticket)),
                    true => self.later(self.answers_after, Happens::Answer(device, ticket, op)),
                },
                Action::Abandon(device, _) => self.later(Micros(50), Happens::Dropped(device)),
                Action::Note(Note::Bypassing(parts, retry_in)) => {
                    self.retry_in = Some(retry_in);
                    // Groups of the stopped job may move while all other modules respond.
                    let answers = |device: &DeviceName| {
                        self.is_reached(device)
                            && self.lines.get(device).is_some_and(|line| line.up)
                    };
                    let is_dead = |device: &DeviceName| {
                        node_of(device).is_none_or(|node| self.dead.contains(&node))
                    };
                    self.may_move =
                        self.stands.keys().all(|device| is_dead(device) || answers(device));
                    let parts = parts.into_iter().map(|(part, _)| part).collect();
                    self.bypassed.push((self.now.mono, parts));
                }
                Action::Note(Note::Healing { healed, left }) => {
                    self.may_move = true;
                    self.healed.push(Healing { healed, left });
                }
                Action::Answer(..) | Action::Note(_) => {}
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let actions = self.control.handle(&self.now, event);
        self.perform(actions);
    }

    fn links(&self, switch: &DeviceName) -> Outcome {
        let hosts = self.inventory.hosts.iter();
        let plugged = hosts.filter(|(_, switches)| switches.contains(switch)).map(|(node, _)| node);
        let off = |node: &&NodeId| self.dead.contains(node) || self.unplugged.contains(node);
        let unlinked = plugged.filter(off).copied().collect();
        Outcome::Done(Some(Observation { unlinked, ..Observation::default() }))
    }

    fn executed(&mut self, device: &DeviceName, op: &Op) -> Outcome {
        if node_of(device).is_none() {
            return self.links(device);
        }
        let Op::Switch { moves, txn } = op else {
            let power = if self.is_lit(device) { -3_000 } else { -40_000 };
            return Outcome::Done(Some(Observation {
                positions: [(SLOT, self.stands[device])].into(),
                power_mdbm: [(SLOT, power)].into(),
                ..Observation::default()
            }));
        };
        for one in moves {
            if self.stands[device] == one.to {
                continue;
            }
            // A failed change may cut its own circuits, which do not carry traffic yet.
            let takes_back = self.moved_in.insert(device.clone(), *txn) == Some(*txn);
            if let Some(far) = self.lit_with(device).filter(|_| !takes_back) {
                match self.may_move {
                    true => self.moved += 1,
                    false => {
                        let text = format!("{device} to {far} at {}", self.now.mono.0);
                        self.wrongly_cut.push(text);
                    }
                }
            }
            self.stands.insert(device.clone(), one.to);
            self.moves += 1;
        }
        self.light_changed();
        Outcome::Done(None)
    }

    fn happen(&mut self, happens: Happens) {
        match happens {
            Happens::Answer(device, ticket, op) => {
                if self.is_reached(&device) && self.lines[&device].up {
                    let outcome = self.executed(&device, &op);
                    self.handle(Event::Reply { device, ticket, outcome });
                } else {
                    self.unanswered.insert(device, self.now.mono);
                }
            }
            Happens::Refused(device, ticket) => {
                let outcome = Outcome::Unknown("not connected".into());
                self.handle(Event::Reply { device, ticket, outcome });
            }
            Happens::Hello(device) => self.hello(device),
            Happens::NoHello(device, tries) => {
                if self.lines[&device].tries == tries && !self.lines[&device].up {
                    self.dropped(device, "no answer to hello in time".into());
                }
            }
            Happens::Report(device, lit) => {
                if self.is_reached(&device) && self.lines[&device].up {
                    let signal = match lit {
                        true => Signal::LightBack(SLOT),
                        false => Signal::LightLost(SLOT, self.stands[&device]),
                    };
                    self.handle(Event::Signalled(device, signal));
                }
            }
            Happens::Dropped(device) => self.dropped(device, "no answer in time".into()),
        }
    }

    fn hello(&mut self, device: DeviceName) {
        let reached = self.is_reached(&device);
        let Some(line) = self.lines.get_mut(&device) else { return };
        line.tries += 1;
        if self.unopened.contains(&device) {
            let why = Trouble::Local("another process of this machine holds the line".into());
            return self.dropped(device, why);
        }
        if !reached {
            let tries = line.tries;
            return self.later(HELLO_WITHIN, Happens::NoHello(device, tries));
        }
        (line.up, line.backoff, line.said_down) = (true, RECONNECT, false);
        let answer = Some(Micros(300));
        let promise = Promise {
            commit: Micros(1_000),
            settle: Micros(30),
            dwell: Micros(0),
            answer,
            goes: true,
            refuses_late: false,
        };
        self.handle(Event::Promised(device.clone(), promise));
        self.handle(Event::Reachable(device));
    }

    fn dropped(&mut self, device: DeviceName, why: Trouble) {
        let Some(line) = self.lines.get_mut(&device) else { return };
        let was_up = std::mem::take(&mut line.up);
        let (wait, says) = (line.backoff, was_up || !line.said_down);
        line.backoff = Micros(2 * line.backoff.0).min(BACKOFF_MAX);
        line.said_down = !was_up;
        self.later(wait, Happens::Hello(device.clone()));
        if says {
            self.handle(Event::Unreachable(device, why));
        }
    }

    pub(crate) fn run_for(&mut self, time: Micros) {
        let end = self.now.mono + time;
        loop {
            let next = self.queue.first_key_value().map(|((at, _), _)| *at);
            let deadline = self.is_running.then(|| self.control.deadline(&self.now)).flatten();
            let due = next.into_iter().chain(deadline).min().filter(|at| *at <= end);
            let Some(at) = due else { break };
            self.advance(at);
            if next == Some(at)
                && let Some((_, (life, happens))) = self.queue.pop_first()
                && life == self.life
            {
                self.happen(happens);
            }
            if self.is_running {
                let actions = self.control.tick(&self.now);
                self.perform(actions);
            }
        }
        self.advance(end);
    }

    fn advance(&mut self, to: Micros) {
        let passed = to.max(self.now.mono) - self.now.mono;
        self.now.mono = self.now.mono + passed;
        self.now.wall_ms += passed.0.div_ceil(1000);
    }
}
