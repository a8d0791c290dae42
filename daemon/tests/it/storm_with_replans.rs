// SPDX-License-Identifier: Apache-2.0
//! A storm over a ring of transceivers, under the shipping policy with replans. Nodes and modules
//! fail and return, fibres are cut and repaired, clients apply, confirm and roll back, and the
//! daemon is killed. The judge uses the true faults and does not depend on the policy.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use lightloom_control::change::Mode;
use lightloom_control::controller::{
    Action, Answer, Apply, Event, Note, ReplyTo, Request, Rollback, Ticket,
};
use lightloom_control::desired::{paths, position};
use lightloom_control::ledger::Ledger;
use lightloom_control::policy::{Control, OnFault, Setup};
use lightloom_control::record::{Asked, Cause, Record, TxnResult};
use lightloom_control::replan::{plan_anew, sha256_of};
use lightloom_control::state::{
    DeviceName, FibreEnd, Micros, Now, Observation, Op, Outcome, Positions, Slot, at,
};
use lightloom_daemon::config;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_testkit::cases;
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

const NODES: u32 = 32;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Done(u32, DeviceName, u64, u8),
    Up(u32, DeviceName),
    Down(u32, DeviceName),
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    committed: u32,
    undone: u32,
    bypasses: u32,
    on_top: u32,
    faults: u32,
    repairs: u32,
    crashes: u32,
    reports: u32,
}

struct Ring {
    now: Now,
    setup: Setup,
    inventory: lightloom_control::inventory::Inventory,
    control: Control,
    records: Vec<Record>,
    life: u32,
    seq: u64,
    queue: BinaryHeap<Reverse<(Micros, u64, Happening)>>,
    outcomes: BTreeMap<u64, Outcome>,
    stands: BTreeMap<DeviceName, Positions>,
    dead: BTreeMap<DeviceName, Micros>,
    cut: BTreeSet<FibreEnd>,
    said_down: BTreeSet<DeviceName>,
    lately: Vec<(Part, Micros)>,
    broken: BTreeSet<Part>,
    counts: Counts,
}

fn installed() -> Fabric {
    let text = format!(
        "kind: fabric\nversion: 2\nname: ring\nhbd: {{khop: {{nodes: {NODES}, gpus_per_node: 4, k: 2}}}}\n\
         jobs:\n  - {{name: pretrain, gpus: 96, tp: 16}}\n"
    );
    lightloom_fabric::file::load("ring.yaml", text.as_bytes()).0.unwrap()
}

impl Ring {
    fn new() -> Self {
        let installed = installed();
        let file = format!(
            "state_dir: /nowhere\npolicies: {{on_fault: bypass, heartbeat: 20s, poll_every: 1s}}\nmodules:\n  \
             - {{nodes: [0, {}], bundles: 2, serial: \"/nowhere/{{node}}-{{bundle}}\"}}\n",
            NODES - 1
        );
        let (config, mistakes) = config::load("daemon.yaml", file.as_bytes());
        let mut config = config.unwrap_or_else(|| panic!("{mistakes:?}"));
        config.inventory.cable(&installed, &config.bundles);
        let setup = Setup {
            installed: Some(installed),
            modules: config.bundles.clone(),
            on_fault: OnFault::Bypass,
            heartbeat: Micros::from_secs(20),
            ..Setup::default()
        };
        let now = Now { mono: Micros::from_secs(9), wall_ms: 1_700_000_000_000, boot: "b".into() };
        let inventory = config.inventory;
        let (control, _) =
            Control::start(inventory.clone(), setup.clone(), Ledger::default(), &now);
        let stands = inventory.devices.keys().map(|name| (name.clone(), Positions::new()));
        let mut ring = Self {
            stands: stands.collect(),
            now,
            setup,
            inventory,
            control,
            records: Vec::new(),
            life: 0,
            seq: 0,
            queue: BinaryHeap::new(),
            outcomes: BTreeMap::new(),
            dead: BTreeMap::new(),
            cut: BTreeSet::new(),
            said_down: BTreeSet::new(),
            lately: Vec::new(),
            broken: BTreeSet::new(),
            counts: Counts::default(),
        };
        ring.start();
        ring
    }

    fn start(&mut self) {
        self.life += 1;
        self.said_down.clear();
        let (control, actions) = Control::start(
            self.inventory.clone(),
            self.setup.clone(),
            Ledger::fold(&self.records),
            &self.now,
        );
        self.control = control;
        self.perform(actions);
        for device in self.stands.keys().cloned().collect::<Vec<_>>() {
            self.later(Micros(500), Happening::Up(self.life, device));
        }
    }

    fn later(&mut self, after: Micros, happening: Happening) {
        self.seq += 1;
        self.queue.push(Reverse((self.now.mono + after, self.seq, happening)));
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Append(records) => self.records.extend(records),
                Action::Send(device, ticket, op) => self.send(device, ticket, &op),
                Action::Abandon(device, _) => {
                    self.later(Micros(100), Happening::Down(self.life, device));
                }
                Action::Answer(_, answer) => {
                    let accepted = matches!(answer, Answer::Accepted { .. });
                    self.counts.reports += u32::from(accepted);
                }
                Action::Note(Note::Ended(_, result)) => self.ended(result),
                Action::Note(_) => {}
            }
        }
    }

    fn is_missed(&self, node: NodeId) -> bool {
        let own = self.dead.keys().filter(|device| {
            device.as_str().parse::<BundleId>().is_ok_and(|bundle| bundle.node == node)
        });
        let mut ends =
            own.map(|device| (device.clone(), Slot(0), at(&self.stands[device], Slot(0))));
        ends.any(|end| {
            let far = self.inventory.fibres.get(&end);
            far.is_some_and(|(far, slot, to)| {
                !self.dead.contains_key(far) && at(&self.stands[far], *slot) == *to
            })
        })
    }

    fn lit_by(&self, device: &DeviceName, slot: Slot) -> bool {
        let end = (device.clone(), slot, at(&self.stands[device], slot));
        let Some(far) = self.inventory.fibres.get(&end) else { return true };
        !self.cut.contains(&end)
            && !self.dead.contains_key(&far.0)
            && at(&self.stands[&far.0], far.1) == far.2
    }

    fn send(&mut self, device: DeviceName, ticket: Ticket, op: &Op) {
        if self.dead.contains_key(&device) {
            return;
        }
        if let Op::Switch { moves, .. } = op {
            let stands = self.stands.get_mut(&device).unwrap();
            stands.extend(moves.iter().map(|m| (m.slot, m.to)));
            stands.retain(|_, to| !to.is_dark());
        }
        let outcome = match op {
            Op::Observe { .. } | Op::Arm { .. } => {
                let positions = self.stands[&device].clone();
                let power =
                    |slot: &Slot| if self.lit_by(&device, *slot) { -2_000 } else { -40_000 };
                let power_mdbm = positions.keys().map(|slot| (*slot, power(slot))).collect();
                Outcome::Done(Some(Observation { positions, power_mdbm, ..Observation::default() }))
            }
            Op::Disarm { .. } | Op::Switch { .. } => Outcome::Done(None),
        };
        self.outcomes.insert(ticket.0, outcome);
        self.later(Micros(900), Happening::Done(self.life, device, ticket.0, 0));
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Done(life, device, ticket, _) if life == self.life => {
                let Some(outcome) = self.outcomes.remove(&ticket) else { return };
                if !self.dead.contains_key(&device) {
                    self.handle(Event::Reply { device, ticket: Ticket(ticket), outcome });
                }
            }
            Happening::Up(life, device) if life == self.life => {
                match self.dead.contains_key(&device) {
                    true => {
                        self.later(Micros::from_secs(1), Happening::Up(life, device.clone()));
                        if self.said_down.insert(device.clone()) {
                            self.handle(Event::Unreachable(device, "no answer to a hello".into()));
                        }
                    }
                    false => {
                        self.said_down.remove(&device);
                        self.handle(Event::Reachable(device));
                    }
                }
            }
            Happening::Down(life, device) if life == self.life => {
                self.said_down.insert(device.clone());
                self.handle(Event::Unreachable(device.clone(), "no answer in time".into()));
                self.later(Micros::from_millis(500), Happening::Up(life, device));
            }
            _ => {}
        }
    }

    fn handle(&mut self, event: Event) {
        let actions = self.control.handle(&self.now, event);
        self.perform(actions);
    }

    fn run_for(&mut self, time: Micros) {
        let end = self.now.mono + time;
        loop {
            let next = self.queue.peek().map(|Reverse((at, ..))| *at);
            let deadline = self.control.deadline(&self.now);
            let Some(at) = next.into_iter().chain(deadline).min().filter(|at| *at <= end) else {
                break;
            };
            self.advance(at);
            if next == Some(at)
                && let Some(Reverse((_, _, happening))) = self.queue.pop()
            {
                self.happen(happening);
            }
            let actions = self.control.tick(&self.now);
            self.perform(actions);
        }
        self.advance(end);
    }

    fn advance(&mut self, to: Micros) {
        let passed = to.max(self.now.mono) - self.now.mono;
        self.now.mono = self.now.mono + passed;
        self.now.wall_ms += passed.0.div_ceil(1000);
    }

    fn breaks(&mut self, part: Part, broken: bool) {
        match broken {
            true => self.broken.insert(part),
            false => self.broken.remove(&part),
        };
        self.counts.faults += u32::from(broken);
        self.lately.push((part, self.now.mono));
        self.dead.clear();
        self.cut.clear();
        for part in self.broken.clone() {
            match part {
                Part::Node(node) => {
                    for bundle in [0, 1] {
                        self.dead.insert(module(BundleId { node, bundle }), self.now.mono);
                    }
                }
                Part::Bundle(bundle) => {
                    self.dead.insert(module(bundle), self.now.mono);
                }
                Part::Fibre(port) => {
                    let end = (module(port.bundle), Slot(0), port_position(port.path));
                    let far = self.inventory.fibres[&end].clone();
                    self.cut.extend([end, far]);
                }
                Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => {
                    unreachable!("a ring has none")
                }
            }
        }
    }

    fn ended(&mut self, result: TxnResult) {
        match result {
            TxnResult::Committed => self.counts.committed += 1,
            _ => self.counts.undone += 1,
        }
        let ledger = self.control.ledger();
        let Some(past) = ledger.history.back() else { return };
        if past.cause != Cause::Bypass || result != TxnResult::Committed {
            return;
        }
        self.counts.bypasses += 1;
        self.counts.on_top += u32::from(ledger.pending.is_some());
        let lately = self.lately.iter().map(|(part, _)| *part).chain(self.broken.iter().copied());
        let real = FaultSet::of(self.setup.installed.as_ref().unwrap(), lately).unwrap();
        for part in &self.control.plan().unwrap().faults {
            let known = match part {
                Part::Node(node) => real.nodes.contains(node),
                Part::Bundle(bundle) => {
                    real.bundles.contains(bundle) || real.nodes.contains(&bundle.node)
                }
                Part::Fibre(port) => {
                    let end = (module(port.bundle), Slot(0), port_position(port.path));
                    let far = &self.inventory.fibres[&end];
                    let of = |name: &DeviceName| {
                        let bundle: BundleId = name.as_str().parse().unwrap();
                        real.bundles.contains(&bundle) || real.nodes.contains(&bundle.node)
                    };
                    let named = real.parts(self.setup.installed.as_ref().unwrap());
                    named.contains(part) || of(&end.0) || of(&far.0)
                }
                Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => false,
            };
            assert!(known, "{part} never broke and is bypassed: {:?}", past.failed_after);
        }
    }

    fn ask(&mut self, name: &str, request: Request, plan: Option<Plan>) {
        self.seq += 1;
        let request_id = format!("{name}-{}", self.seq);
        let asked = Asked { actor: name.into(), digest: request_id.clone(), request: request_id };
        let (plan, reply_to) = (plan.map(Box::new), ReplyTo(self.seq));
        let actions = self.control.ask(&self.now, asked, request, plan, reply_to);
        self.perform(actions);
    }

    fn apply(&mut self, plan: Plan, confirm_within: Option<Micros>) {
        let target = paths(&plan, &self.setup.modules).unwrap();
        let (plan_sha256, mode) = (sha256_of(&plan), Mode::Update);
        let apply = Apply { target, plan_sha256, mode, confirm_within, ..Apply::default() };
        self.ask("alice", Request::Apply(apply), Some(plan));
    }

    fn check_at_rest(&self, seed: u64) {
        assert!(!self.control.transactions().is_busy(), "seed {seed}: a change does not end");
        let plan = self.control.plan().unwrap_or_else(|| panic!("seed {seed}: no plan is known"));
        for transceiver in &plan.transceivers {
            let device = module(transceiver.bundle);
            if self.dead.contains_key(&device) {
                // An unreachable module that no other module faces is not considered failed.
                let is_missed = self.is_missed(transceiver.bundle.node);
                assert!(
                    !is_missed || plan.faults.iter().any(|part| covers(part, transceiver.bundle)),
                    "seed {seed}: {device} is dead and not bypassed: {:?}",
                    self.control.not_bypassed(&self.now)
                );
                continue;
            }
            let stands = at(&self.stands[&device], Slot(0));
            assert_eq!(stands, position(transceiver.path), "seed {seed}: {device}");
            assert!(self.lit_by(&device, Slot(0)), "seed {seed}: {device} has no light");
        }
    }
}

fn module(bundle: BundleId) -> DeviceName {
    DeviceName::from(bundle.to_string().as_str())
}

fn port_position(path: u8) -> lightloom_control::state::Position {
    lightloom_control::state::Position(u32::from(path))
}

fn covers(part: &Part, bundle: BundleId) -> bool {
    match part {
        Part::Node(node) => bundle.node == *node,
        Part::Bundle(broken) => bundle == *broken,
        Part::Fibre(_) | Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => false,
    }
}

fn pick(ring: &Ring, rng: &mut Stream) -> Part {
    let node = NodeId(rng.random_range(0..NODES));
    let bundle = BundleId { node, bundle: rng.random_range(0..2) };
    match rng.random_range(0..3) {
        0 => Part::Node(node),
        1 => Part::Bundle(bundle),
        _ => {
            let end = |end: &&FibreEnd| end.0 == module(bundle);
            let ends: Vec<&FibreEnd> = ring.inventory.fibres.keys().filter(end).collect();
            match ends.first() {
                None => Part::Bundle(bundle),
                Some(end) => format!("{}.{}", end.0, end.2).parse().unwrap(),
            }
        }
    }
}

fn repair(ring: &mut Ring) {
    let broken = ring.control.facts().failed_parts();
    let parts: Vec<Part> = broken.keys().map(|name| name.parse().unwrap()).collect();
    if parts.is_empty() {
        return;
    }
    ring.seq += 1;
    let id = format!("repair-{}", ring.seq);
    let asked = Asked { actor: "carol".into(), digest: id.clone(), request: id };
    let actions = ring.control.fault(&ring.now, asked, &[], &parts, ReplyTo(ring.seq));
    ring.counts.repairs += 1;
    ring.perform(actions);
}

fn storm(seed: u64, hours: u64) -> Counts {
    let mut rng = Seed(seed).stream("replans", 0);
    let mut ring = Ring::new();
    let whole = plan_anew(&installed(), &FaultSet::none(), Seed(seed)).unwrap();
    ring.run_for(Micros::from_secs(3));
    ring.apply(whole, None);
    ring.run_for(Micros::from_secs(10));
    ring.check_at_rest(seed);
    for _ in 0..hours * 2 {
        if rng.random_bool(0.5) {
            let faults = ring.control.plan().unwrap().faults.clone();
            let faults = FaultSet::of(&installed(), faults).unwrap();
            let plan = plan_anew(&installed(), &faults, Seed(rng.random())).unwrap();
            ring.apply(plan, rng.random_bool(0.7).then(|| Micros::from_secs(90)));
            ring.run_for(Micros::from_millis(rng.random_range(0..3_000)));
        }
        let part = pick(&ring, &mut rng);
        if ring.broken.is_empty() {
            ring.breaks(part, true);
        }
        ring.run_for(Micros::from_millis(rng.random_range(0..4_000)));
        if rng.random_bool(0.3) {
            ring.counts.crashes += 1;
            ring.start();
        }
        ring.run_for(Micros::from_secs(30));
        let pending = ring.control.ledger().pending.as_ref().map(|p| p.txn);
        match (pending, rng.random_range(0..3)) {
            (Some(txn), 0) => ring.ask("alice", Request::Confirm(txn), None),
            (Some(txn), 1) => {
                let rollback = Rollback { txn, ..Rollback::default() };
                ring.ask("bob", Request::Rollback(rollback), None);
            }
            _ => {}
        }
        ring.run_for(Micros::from_secs(300));
        ring.check_at_rest(seed);
        for part in ring.broken.clone() {
            ring.breaks(part, false);
        }
        ring.run_for(Micros::from_secs(60));
        repair(&mut ring);
        ring.run_for(Micros::from_secs(1_400));
        ring.check_at_rest(seed);
        ring.lately.clear();
    }
    ring.counts
}

#[test]
fn s16_storm_over_a_ring_with_replans() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("LIGHTLOOM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LIGHTLOOM_STORM_SEEDS").unwrap_or(cases(1, 4)),
    };
    let hours = cases(2, 8);
    for seed in seeds {
        println!("S16 replans, seed {seed}, {hours} simulated hours: {:?}", storm(seed, hours));
    }
}
