// SPDX-License-Identifier: Apache-2.0
//! Checks the invariants of docs/reliability.md against the true faults, without the policy.

use std::collections::BTreeSet;

use lightloom_control::controller::DarkFibre;
use lightloom_control::ledger::Ledger;
use lightloom_control::record::{Cause, Intent, Record, TxnResult};
use lightloom_control::state::{DeviceName, FibreEnd, Micros, Op, Positions, Sharing, at};
use lightloom_fabric::fault::Part;
use lightloom_units::id::BundleId;

use super::World;
use super::ring::SLOT;

/// How long after its repair a fault may still be detected.
const LATELY: Micros = Micros::from_secs(30);
/// How long a device may be bypassed after it failed to execute a request.
const SUSPECTED: Micros = Micros::from_secs(3_600);

impl World {
    pub(super) fn judge_darkness(&mut self) {
        let Some(controller) =
            self.controller().filter(|controller| !controller.transactions().is_busy())
        else {
            return;
        };
        let dark = controller.sightings().dark_fibres(controller.ledger());
        dark.iter().for_each(|dark| self.check_darkness(dark));
        self.dark.extend(dark.into_iter().map(|dark| (dark.receiver, dark.sender)));
    }

    fn listed(&self, device: &DeviceName) -> bool {
        self.controller().is_some_and(|c| c.ledger().attention.contains_key(device))
    }

    fn is_cut(&self, end: &FibreEnd) -> bool {
        let lately = |at: &Micros| *at + LATELY > self.now.mono;
        self.cut.contains(end) || self.mended.get(end).is_some_and(lately)
    }

    /// I9: no fibre is considered dark without a fault, unless one end is in attention.
    fn check_darkness(&self, dark: &DarkFibre) {
        let crossed = self.cables[&dark.receiver] != self.inventory.fibres[&dark.receiver];
        let weak = self.devices[&dark.receiver.0].is_weak(dark.receiver.1);
        let gone = self.devices[&dark.sender.0].was_gone(self.now.mono - Micros::from_secs(2));
        let listed = self.listed(&dark.receiver.0) || self.listed(&dark.sender.0);
        if !self.is_cut(&dark.receiver) && !crossed && !weak && !gone && !listed {
            self.violated("I9", &format!("a fibre without a fault is taken for dark: {dark:?}"));
        }
    }

    fn modules_of(&self, part: Part) -> Vec<DeviceName> {
        let is_of = |bundle: BundleId| match part {
            Part::Node(node) => bundle.node == node,
            Part::Bundle(broken) => bundle == broken,
            Part::Fibre(port) => bundle == port.bundle,
            Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => false,
        };
        let modules = self.setup.modules.iter().filter(|(bundle, _)| is_of(**bundle));
        let mut modules: Vec<DeviceName> = modules.map(|(_, device)| device.clone()).collect();
        modules.extend(self.ends_of(part).into_iter().map(|(device, ..)| device));
        modules
    }

    fn ends_of(&self, part: Part) -> Vec<FibreEnd> {
        let is_of = |(device, _, position): &FibreEnd| {
            let Ok(bundle) = device.as_str().parse::<BundleId>() else { return false };
            match part {
                Part::Node(node) => bundle.node == node,
                Part::Bundle(broken) => bundle == broken,
                Part::Fibre(port) => bundle == port.bundle && position.0 == u32::from(port.path),
                Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => false,
            }
        };
        let of_part = self.inventory.fibres.iter().filter(|(near, _)| is_of(near));
        of_part.flat_map(|(near, far)| [near.clone(), far.clone()]).collect()
    }

    /// I9: faults that the policy detects must exist, or must have existed recently.
    pub(super) fn judge_found(&mut self, parts: &[(Part, String)]) {
        let heartbeat = self.setup.heartbeat + Micros::from_secs(5);
        for (part, why) in parts {
            let known = self.is_known(*part);
            let cut = self.ends_of(*part).iter().any(|end| self.is_cut(end));
            let modules = self.modules_of(*part);
            self.count_dead(*part, why);
            let at_fault = |device: &DeviceName| {
                let model = &self.devices[device];
                model.was_gone(self.now.mono - heartbeat)
                    || model.is_weak(SLOT)
                    || self.listed(device)
            };
            if !known && !cut && !modules.iter().any(at_fault) {
                self.violated("I9", &format!("{part} is bypassed without a fault: {why}"));
            }
        }
    }

    fn count_dead(&mut self, part: Part, why: &str) {
        if !matches!(part, Part::Bundle(_)) || !why.starts_with("unresponsive") {
            return;
        }
        let since = self.now.mono - self.setup.heartbeat - Micros::from_secs(5);
        let mut own =
            self.setup.modules.iter().filter(|(bundle, _)| part == Part::Bundle(**bundle));
        let gone = own.any(|(_, device)| self.devices[device].was_gone(since));
        self.counts.dead += 1;
        self.counts.misnamed += u64::from(!gone);
    }

    fn is_known(&self, part: Part) -> bool {
        let ends = self.ends_of(part);
        let same = |name: &Part| *name == part || (!ends.is_empty() && self.ends_of(*name) == ends);
        let known = self.controller().map(|c| c.ledger().failed.keys().cloned()).into_iter();
        let mut known = known.flatten().filter_map(|name| name.parse().ok());
        known.any(|name: Part| same(&name)) || self.said_broken.iter().any(same)
    }

    /// I9 for suspects: the last bypass failed at such a part. It did not execute a request, or
    /// missed the light of a part that did not.
    fn judge_bypass(&mut self, intent: &Intent) {
        let broken = intent.failed.iter().flatten();
        let new = broken.filter(|(name, _)| !self.durable.failed.contains_key(*name));
        let new: Vec<Part> = new.filter_map(|(name, _)| name.parse().ok()).collect();
        let erred = |device: &DeviceName| {
            self.erred.get(device).is_some_and(|at| *at + SUSPECTED > self.now.mono)
                || self.devices[device].was_gone(self.now.mono - SUSPECTED)
        };
        let mut suspects = 0;
        for part in &new {
            let modules = self.modules_of(*part);
            let cut = self.ends_of(*part).iter().any(|end| self.is_cut(end));
            if !self.is_known(*part) && !cut && !modules.iter().any(erred) {
                let why = &intent.failed.iter().flatten().find(|(n, _)| n.parse() == Ok(*part));
                self.violated("I9", &format!("{part} is suspected without a fault: {why:?}"));
            }
            suspects += u64::from(
                !cut && !modules.iter().any(|device| self.devices[device].is_gone(self.now.mono)),
            );
        }
        self.counts.suspects += suspects;
        if self.durable.pending.is_some() {
            self.counts.on_top += 1;
            self.on_top.extend(new);
        }
    }

    /// Checks that bypassed parts stay dark after an undo or a bypass.
    pub(super) fn judge_end(&mut self) {
        let Some(controller) = self.controller() else { return };
        let ledger = controller.ledger();
        let Some(past) = ledger.history.back() else { return };
        let undone = matches!(past.cause, Cause::ConfirmTimeout(_) | Cause::Rollback(_));
        if undone && past.result == TxnResult::Committed {
            for part in &self.on_top {
                if let Some((near, far)) = self.lit_fibre_of(ledger, *part) {
                    let what = format!("{part} was bypassed since: {near:?} and {far:?} are lit");
                    self.violated("undone around faults", &what);
                }
            }
        }
        if past.cause == Cause::Bypass && past.result == TxnResult::Committed {
            // If both ends are bypassed, neither belongs to a ring or moves again.
            let bypassed =
                |(device, ..): &FibreEnd| past.failed_after.contains_key(device.as_str());
            for part in past.failed_after.keys().filter_map(|name| name.parse().ok()) {
                let lit = self.lit_fibre_of(ledger, part);
                if let Some(ends) = lit.filter(|(near, far)| !bypassed(near) || !bypassed(far)) {
                    self.violated("a bypass", &format!("{part} is still lit: {ends:?}"));
                }
            }
        }
        if ledger.pending.is_none() {
            self.on_top.clear();
        }
    }

    fn lit_fibre_of(&self, ledger: &Ledger, part: Part) -> Option<(FibreEnd, FibreEnd)> {
        let looks = |(device, slot, position): &FibreEnd| {
            ledger.owned.get(device).is_some_and(|slots| at(slots, *slot) == *position)
        };
        let mut ends = self.ends_of(part).into_iter().filter(looks);
        ends.find_map(|near| {
            let far = self.inventory.fibres[&near].clone();
            looks(&far).then_some((near, far))
        })
    }

    #[track_caller]
    pub(super) fn violated(&self, invariant: &str, what: &str) -> ! {
        for line in &self.log {
            eprintln!("{line}");
        }
        panic!("{invariant} violated: {what}");
    }

    /// Checks the write-ahead rule, I1 on the wire, I4 and I5. Unknown outcomes must not be retried
    /// blindly.
    pub(super) fn check_send(&self, device: &DeviceName, op: &Op) {
        let Op::Switch { txn, moves } = op else { return };
        let is_lever = self.inventory.devices[device].is_lever;
        if self.unread.contains(device) {
            self.violated("unknown is never retried blindly", &format!("{device} {op:?}"));
        }
        if is_lever {
            return;
        }
        let Some(open) = &self.durable.open else {
            self.violated("I5", &format!("{device} moves without a transaction: {op:?}"));
        };
        if open.intent.txn != *txn || !open.intent.after.contains_key(device) {
            self.violated("write-ahead", &format!("{device} not journalled: {op:?}"));
        }
        let named = &open.intent.after[device];
        if let Some(m) = moves.iter().find(|m| !named.contains_key(&m.slot)) {
            self.violated("I4", &format!("{device} slot {} is not named in the change", m.slot));
        }
        let mut wanted = BTreeSet::new();
        for m in moves.iter().filter(|m| !m.to.is_dark()) {
            if self.inventory.devices[device].sharing == Sharing::Exclusive && !wanted.insert(m.to)
            {
                self.violated("I1", &format!("{device} is asked for {} twice", m.to));
            }
        }
    }

    pub(super) fn check_record(&mut self, record: &Record) {
        match record {
            Record::Intent(intent) => {
                if intent.asked.actor.as_str().is_empty() {
                    self.violated("I8", &format!("{} has no actor", intent.txn));
                }
                let count = self.intents.entry(intent.asked.request.clone()).or_default();
                *count += 1;
                if *count > 1 && !intent.asked.request.starts_with("confirm-timeout") {
                    let what = format!("request {} acted twice", intent.asked.request);
                    self.violated("I6", &what);
                }
                if intent.cause == Cause::Bypass {
                    self.judge_bypass(intent);
                }
            }
            Record::End { result: TxnResult::Committed, .. } => {
                let open = self.durable.open.as_ref().expect("an end has a beginning");
                for (device, goal) in &open.intent.after {
                    let model = &self.devices[device];
                    let wrong = goal.iter().find(|(s, p)| at(&model.positions, **s) != **p);
                    let excused = model.tampered;
                    if let Some((slot, position)) = wrong.filter(|_| !excused) {
                        let what = format!("{device} slot {slot} is not at {position}");
                        self.violated("I3", &what);
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_durable(&self, read: &Ledger) {
        let kept = read.version >= self.durable.version && read.last_txn >= self.durable.last_txn;
        if !kept {
            self.violated("I3", "an acknowledged record is gone after the crash");
        }
        for name in read.plans_needed() {
            if self.plans.contains(name) && read.plan_named(name).is_none() {
                self.violated("I3", &format!("the plan {name} is forgotten"));
            }
        }
        // Later records may also have removed acknowledged ones.
        if read.last_txn == self.durable.last_txn && read.version == self.durable.version {
            if self.durable.reported.keys().any(|part| !read.reported.contains_key(part)) {
                self.violated("I3", "a report of a broken part is forgotten");
            }
            if self.durable.lease.is_some() && read.lease.is_none() {
                self.violated("I3", "a lease is forgotten");
            }
        }
    }

    pub(crate) fn check_at_rest(&self) {
        let Some(controller) = self.controller() else {
            self.violated("rest", "the daemon is not running");
        };
        if controller.transactions().is_busy() {
            self.violated("I7", "a transaction does not come to an end");
        }
        let ledger = controller.ledger();
        for (name, model) in &self.devices {
            let nothing = Positions::new();
            let owned = ledger.owned.get(name).unwrap_or(&nothing);
            if model.sharing == Sharing::Exclusive {
                let held: BTreeSet<_> = owned.values().collect();
                if held.len() != owned.len() {
                    self.violated("I1", &format!("{name}: the ledger holds a position twice"));
                }
            }
            if self.inventory.devices[name].is_lever {
                continue;
            }
            let listed = ledger.attention.contains_key(name)
                || controller.sightings().devices()[name].drift().iter().any(|_| true)
                || !controller.sightings().devices()[name].is_reachable();
            if model.positions != *owned && !listed {
                let what = format!("{name} stands at {:?}, reported {owned:?}", model.positions);
                self.violated("I2", &what);
            }
        }
    }
}
