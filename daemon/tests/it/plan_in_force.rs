// SPDX-License-Identifier: Apache-2.0
//! The plan in force is a function of the records. After random plans, circuits, rollbacks, expired
//! confirmations, bypasses, restored drift and restarts, the daemon must match a model that copies
//! the whole state after each change.

use std::collections::{BTreeSet, VecDeque};

use lightloom_control::change::Mode;
use lightloom_control::controller::{Action, Apply, Controller, Event, ReplyTo, Request, Rollback};
use lightloom_control::inventory::{Device, Inventory, OnDrift};
use lightloom_control::ledger::{Ledger, Past};
use lightloom_control::record::{Asked, Cause, Record, TxnResult};
use lightloom_control::state::{
    DeviceName, Micros, Now, Observation, Op, Outcome, Position, Sharing, Slot, SwitchState, Txn,
};
use proptest::prelude::*;

const DEVICES: [&str; 5] = ["n0/b0", "n1/b0", "n2/b0", "n3/b0", "ocs0"];
/// Devices of each plan, as indices into `DEVICES`.
const PLANS: [&[usize]; 3] = [&[0, 1], &[0, 1, 2], &[1, 2, 4]];

#[derive(Clone, Debug)]
enum Step {
    Plan { plan: usize, position: u32, confirm: bool },
    Circuits { device: usize, position: u32, confirm: bool },
    Rollback { back: usize, avoids: bool },
    Expire,
    Confirm,
    Bypass { leave_out: usize, position: u32 },
    Drift { device: usize },
    Restart { shortened: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let (device, position) = (0..DEVICES.len(), 1..4u32);
    prop_oneof![
        3 => (0..PLANS.len(), position.clone(), prop::bool::weighted(0.3))
            .prop_map(|(plan, position, confirm)| Step::Plan { plan, position, confirm }),
        4 => (device.clone(), position.clone(), prop::bool::weighted(0.3))
            .prop_map(|(device, position, confirm)| Step::Circuits { device, position, confirm }),
        3 => (0..4usize, any::<bool>()).prop_map(|(back, avoids)| Step::Rollback { back, avoids }),
        1 => Just(Step::Expire),
        1 => Just(Step::Confirm),
        2 => (0..3usize, position).prop_map(|(leave_out, position)| Step::Bypass { leave_out, position }),
        1 => device.prop_map(|device| Step::Drift { device }),
        2 => any::<bool>().prop_map(|shortened| Step::Restart { shortened }),
    ]
}

struct Bench {
    controller: Controller,
    now: Now,
    records: Vec<Record>,
    lit: SwitchState,
    events: VecDeque<Event>,
    requests: u32,
}

impl Bench {
    fn inventory() -> Inventory {
        let device = |name: &&str| ((*name).into(), Device::new(Sharing::Independent));
        let devices = DEVICES.iter().map(device).collect();
        Inventory { devices, on_drift: OnDrift::Restore, ..Inventory::default() }
    }

    fn new() -> Self {
        let now = Now { mono: Micros::from_secs(9), wall_ms: 9_000, boot: "b".into() };
        let (controller, actions) = Controller::start(Self::inventory(), Ledger::default(), &now);
        let (records, lit, events) = (Vec::new(), SwitchState::new(), VecDeque::new());
        let mut bench = Self { controller, now, records, lit, events, requests: 0 };
        bench.started(actions);
        bench
    }

    fn started(&mut self, actions: Vec<Action>) {
        self.perform(actions);
        self.events.extend(DEVICES.map(|name| Event::Reachable(name.into())));
        self.settle();
    }

    fn restart(&mut self, shortened: bool) {
        let ledger = Ledger::fold(&self.records);
        assert_eq!(&ledger, self.controller.ledger(), "the records say all of it");
        if shortened {
            let ledger = serde_json::to_vec(&ledger).unwrap();
            let ledger = serde_json::from_slice(&ledger).unwrap();
            self.records = vec![Record::Snapshot { after: String::new(), ledger }];
        }
        let ledger = Ledger::fold(&self.records);
        let (controller, actions) = Controller::start(Self::inventory(), ledger, &self.now);
        self.controller = controller;
        self.events.clear();
        self.started(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Append(records) => self.records.extend(records),
                Action::Send(device, ticket, op) => {
                    let outcome = self.execute(&device, &op);
                    self.events.push_back(Event::Reply { device, ticket, outcome });
                }
                Action::Abandon(..) | Action::Answer(..) | Action::Note(_) => {}
            }
        }
    }

    fn execute(&mut self, device: &DeviceName, op: &Op) -> Outcome {
        let stands = self.lit.entry(device.clone()).or_default();
        if let Op::Switch { moves, .. } = op {
            for moved in moves {
                match moved.to.is_dark() {
                    true => stands.remove(&moved.slot),
                    false => stands.insert(moved.slot, moved.to),
                };
            }
            return Outcome::Done(None);
        }
        Outcome::Done(Some(Observation { positions: stands.clone(), ..Observation::default() }))
    }

    fn settle(&mut self) {
        loop {
            while let Some(event) = self.events.pop_front() {
                let actions = self.controller.handle(&self.now, event);
                self.perform(actions);
            }
            if !self.controller.transactions().is_busy() {
                return;
            }
            self.tick();
        }
    }

    fn tick(&mut self) {
        let deadline = self.controller.deadline(&self.now).unwrap();
        self.pass(deadline - self.now.mono);
        self.events.push_back(Event::Tick);
    }

    fn pass(&mut self, time: Micros) {
        self.now.mono = self.now.mono + time;
        self.now.wall_ms += time.0.div_ceil(1000);
    }

    fn ask(&mut self, actor: &str, request: Request) {
        self.requests += 1;
        let id = format!("r{}", self.requests);
        let asked = Asked { actor: actor.into(), request: id.clone(), digest: id };
        self.events.push_back(Event::Request { asked, request, reply_to: ReplyTo(0) });
        self.settle();
    }

    fn apply(&mut self, names: &[usize], position: u32, plan: &str, confirm: bool) {
        let lit = |name: &usize| (DEVICES[*name].into(), [(Slot(0), Position(position))].into());
        let apply = Apply {
            target: names.iter().map(lit).collect(),
            plan_sha256: plan.into(),
            mode: Mode::Overwrite,
            confirm_within: confirm.then(|| Micros::from_secs(60)),
            ..Apply::default()
        };
        self.ask("alice", Request::Apply(apply));
    }

    fn run(&mut self, step: &Step, count: usize) {
        match *step {
            Step::Plan { plan, position, confirm } => {
                self.apply(PLANS[plan], position, &format!("plan-{plan}"), confirm);
            }
            Step::Circuits { device, position, confirm } => {
                self.apply(&[device], position, "", confirm);
            }
            Step::Rollback { back, avoids } => self.roll_back(back, avoids, count),
            Step::Expire => {
                if self.controller.ledger().pending.is_some() {
                    self.pass(Micros::from_secs(61));
                    self.events.push_back(Event::Tick);
                    self.settle();
                }
            }
            Step::Confirm => {
                if let Some(txn) = self.controller.ledger().pending.as_ref().map(|p| p.txn) {
                    self.ask("alice", Request::Confirm(txn));
                }
            }
            Step::Bypass { leave_out, position } => self.bypass(leave_out, position, count),
            Step::Drift { device } => {
                let stands = self.lit.entry(DEVICES[device].into()).or_default();
                stands.insert(Slot(0), Position(9));
                // The daemon detects drift within two polls and restores it if the policy permits.
                for _ in 0..2 * DEVICES.len() {
                    self.tick();
                    self.settle();
                }
            }
            Step::Restart { shortened } => self.restart(shortened),
        }
    }

    fn roll_back(&mut self, back: usize, avoids: bool, count: usize) {
        let history = &self.controller.ledger().history;
        let open = history.iter().rev().filter(|past| past.undone_by.is_none());
        let Some(txn) = open.map(|past| past.txn).nth(back) else { return };
        let led = self.controller.transactions().way_back(txn, Cause::Rollback(txn)).unwrap();
        let led = Apply { plan_sha256: format!("led-{count}"), ..led };
        let known = |past: &&Past| past.txn == txn && !past.plan_before.is_empty();
        let avoids = avoids && history.iter().any(|past| known(&past));
        let avoiding = avoids.then(|| Box::new(led));
        self.ask("bob", Request::Rollback(Rollback { txn, avoiding, ..Rollback::default() }));
    }

    fn bypass(&mut self, leave_out: usize, position: u32, count: usize) {
        let ledger = self.controller.ledger();
        let modules = ledger.plan_devices.iter().filter(|name| name.as_str().starts_with('n'));
        let mut target: SwitchState =
            modules.map(|name| (name.clone(), [(Slot(0), Position(position))].into())).collect();
        if ledger.plan_sha256.is_empty() || target.len() < 2 {
            return;
        }
        let silent = target.keys().nth(leave_out % target.len()).cloned().unwrap();
        target.remove(&silent);
        let apply = Apply {
            target,
            plan_sha256: format!("around-{count}"),
            mode: Mode::Update,
            cause: Some(Cause::Bypass),
            ..Apply::default()
        };
        self.ask("policy:fault", Request::Apply(apply));
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct InForce {
    plan: String,
    devices: BTreeSet<DeviceName>,
    applied: String,
}

#[derive(Default)]
struct Model(Vec<(Txn, InForce)>);

impl Model {
    fn before(&self, txn: Txn) -> InForce {
        let mut before = self.0.iter().rev().filter(|(then, _)| *then < txn);
        before.next().map(|(_, after)| after.clone()).unwrap_or_default()
    }

    fn now(&self) -> InForce {
        self.0.last().map(|(_, after)| after.clone()).unwrap_or_default()
    }

    fn take(&mut self, past: &Past) {
        let mut now = self.now();
        let (plan, named) = (past.plan_sha256.clone(), past.ends.keys().cloned());
        match past.cause {
            Cause::Apply if !plan.is_empty() => {
                now = InForce { plan: plan.clone(), devices: named.collect(), applied: plan };
            }
            Cause::Apply if past.ends.keys().any(|name| now.devices.contains(name)) => {
                now = InForce::default();
            }
            Cause::Bypass => now.plan = plan,
            Cause::Rollback(txn) | Cause::ConfirmTimeout(txn) => {
                now = self.before(txn);
                if plan.starts_with("led-") {
                    now.plan = plan;
                }
            }
            _ => {}
        }
        self.0.push((past.txn, now));
    }
}

fn follows_the_model(steps: &[Step]) -> usize {
    let (mut bench, mut model, mut seen) = (Bench::new(), Model::default(), Txn(0));
    let mut causes = BTreeSet::new();
    for (count, step) in steps.iter().enumerate() {
        bench.run(step, count);
        let ledger = bench.controller.ledger();
        for past in ledger.history.iter().filter(|past| past.txn > seen) {
            assert_eq!(past.result, TxnResult::Committed, "{past:?}");
            model.take(past);
            causes.insert(format!("{:?}", past.cause).split('(').next().map(str::to_owned));
        }
        seen = ledger.history.back().map_or(seen, |past| past.txn);
        let found = InForce {
            plan: ledger.plan_sha256.clone(),
            devices: ledger.plan_devices.clone(),
            applied: ledger.applied_sha256.clone(),
        };
        assert_eq!(found, model.now(), "after {step:?}, {:?}", ledger.history.back());
    }
    causes.len()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn plan_in_force_matches_a_naive_model(steps in prop::collection::vec(step(), 1..40)) {
        follows_the_model(&steps);
    }
}

#[test]
fn model_steps_cover_every_cause() {
    let circuits = |device| Step::Circuits { device, position: 2, confirm: false };
    let steps = [
        Step::Plan { plan: 0, position: 1, confirm: false },
        Step::Bypass { leave_out: 0, position: 2 },
        Step::Drift { device: 1 },
        Step::Circuits { device: 4, position: 1, confirm: true },
        Step::Expire,
        circuits(4),
        Step::Rollback { back: 0, avoids: false },
        Step::Restart { shortened: true },
        circuits(4),
    ];
    assert_eq!(follows_the_model(&steps), 5);
}

#[test]
fn circuits_outside_a_plan_leave_it_in_force() {
    let circuits = |confirm| Step::Circuits { device: 4, position: 2, confirm };
    let plan = Step::Plan { plan: 0, position: 1, confirm: false };
    for (confirm, undo) in
        [(false, Step::Rollback { back: 0, avoids: false }), (true, Step::Expire)]
    {
        let mut bench = Bench::new();
        let steps = [plan.clone(), circuits(confirm), undo, circuits(false)];
        for (count, step) in steps.iter().enumerate() {
            bench.run(step, count);
        }
        assert_eq!(bench.controller.ledger().history.len(), 4);
        assert_eq!(bench.controller.ledger().plan_sha256, "plan-0", "{steps:?}");
    }
}
