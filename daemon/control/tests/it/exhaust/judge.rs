// SPDX-License-Identifier: Apache-2.0
//! Checks the invariants of docs/reliability.md, using only devices and records.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::inventory::Inventory;
use lightloom_control::ledger::Ledger;
use lightloom_control::record::{Record, TxnResult};
use lightloom_control::state::{
    DeviceName, Op, Position, Positions, Sharing, Slot, SwitchState, at,
};

use super::device::IN_USE;
use super::explorer::{State, stand};

pub(crate) fn send(
    state: &State,
    inventory: &Inventory,
    device: &DeviceName,
    op: &Op,
) -> Option<String> {
    let Op::Switch { txn, moves } = op else { return None };
    if state.unread.contains(device) {
        return Some(format!("unknown is never retried blindly: {device} {op:?}"));
    }
    if inventory.devices[device].is_lever {
        return None;
    }
    let ledger = Ledger::fold(&*state.durable);
    let Some(open) = ledger.open.as_ref().filter(|open| open.intent.txn == *txn) else {
        return Some(format!("I5: {device} moves without a durable transaction: {op:?}"));
    };
    let named = open.intent.after.get(device);
    if moves.iter().any(|m| named.is_none_or(|named| !named.contains_key(&m.slot))) {
        return Some(format!("I4: {device} moves what no durable change names: {op:?}"));
    }
    let lit = moves.iter().map(|m| m.to).filter(|to| !to.is_dark());
    let distinct: BTreeSet<Position> = lit.clone().collect();
    let exclusive = inventory.devices[device].sharing == Sharing::Exclusive;
    (exclusive && distinct.len() < lit.count()).then(|| format!("I1: {device} {op:?}"))
}

pub(crate) fn records(state: &State, records: &[Record]) -> Option<String> {
    let written = state.durable.iter().chain(records);
    let intents = written.filter_map(|record| match record {
        Record::Intent(intent) => Some(intent),
        _ => None,
    });
    let mut digests = BTreeMap::<(&str, &str), u32>::new();
    for intent in intents {
        let asked = &intent.asked;
        if asked.actor.as_str().is_empty() {
            return Some(format!("I8: {} has no actor", intent.txn));
        }
        if !asked.actor.is_policy() {
            *digests.entry((asked.actor.as_str(), &asked.digest)).or_default() += 1;
        }
    }
    if let Some((asked, _)) = digests.iter().find(|(_, count)| **count > 1) {
        return Some(format!("I6: {asked:?} acted twice"));
    }
    let committed = records
        .iter()
        .any(|record| matches!(record, Record::End { result: TxnResult::Committed, .. }));
    if !committed || state.late_came {
        return None;
    }
    let soft: Vec<Record> = state.durable.iter().chain(state.unsynced()).cloned().collect();
    let ledger = Ledger::fold(&soft);
    let open = ledger.open.as_ref()?;
    let wrong = open.intent.after.iter().find(|(device, goal)| {
        let positions = &state.models[*device].positions;
        goal.iter().any(|(slot, to)| at(positions, *slot) != *to)
    });
    wrong.map(|(device, goal)| {
        format!("I3: {} is committed, and {device} is not at {goal:?}", open.intent.txn)
    })
}

pub(crate) fn rest(state: &State, start: &SwitchState) -> Option<String> {
    let (ledger, nothing) = (state.controller.ledger(), Positions::new());
    let inventory = state.controller.sightings().inventory();
    for (device, model) in &state.models {
        if inventory.devices[device].is_lever {
            let drained = at(&model.positions, Slot(0)) != IN_USE;
            if drained && ledger.held.is_empty() && ledger.attention.is_empty() {
                return Some(format!("{device} is drained at rest and nobody holds it"));
            }
            continue;
        }
        let owned = ledger.owned.get(device).unwrap_or(&nothing);
        let held: BTreeSet<_> = owned.values().collect();
        if model.is_exclusive() && held.len() < owned.len() {
            return Some(format!("I1: the ledger holds a position of {device} twice"));
        }
        let listed = ledger.attention.contains_key(device)
            || !state.controller.sightings().devices()[device].drift().is_empty();
        if model.positions != *owned && !listed {
            let stands = &model.positions;
            return Some(format!("I2: {device} stands at {stands:?}, reported {owned:?}"));
        }
    }
    let back = [TxnResult::RolledBack, TxnResult::Aborted];
    let nothing_happened = state.ended.values().all(|result| back.contains(result));
    let elsewhere = start.iter().any(|(device, slots)| state.models[device].positions != *slots);
    if nothing_happened && elsewhere && !state.late_came {
        return Some(format!("{:?}, and devices are at {:?}", state.ended, stand(state)));
    }
    None
}
