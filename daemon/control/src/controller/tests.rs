// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_units::seed::Seed;
use rand::RngExt;

use super::*;
use crate::inventory::Device;
use crate::mover::{Follows, Promise};
use crate::record::Asked;
use crate::sightings::Sighting;
use crate::state::{Position, Sharing, Slot};

fn ring(nodes: u32) -> (Controller, Vec<DeviceName>) {
    let name = |node: u32, bundle: u32| -> DeviceName {
        format!("n{}/b{bundle}", node % nodes).as_str().into()
    };
    let names: Vec<DeviceName> =
        (0..nodes).flat_map(|node| [name(node, 0), name(node, 1)]).collect();
    let follows = Follows { bits_per_second: 921_600, reply_written: false, settle_written: false };
    let device = Device { follows: Some(follows), ..Device::new(Sharing::Independent) };
    let mut inventory = Inventory {
        devices: names.iter().map(|name| (name.clone(), device.clone())).collect(),
        poll_every: Micros::from_millis(40),
        ..Inventory::default()
    };
    let end = |name: DeviceName| (name, Slot(0), Position(1));
    for (a, b) in (0..nodes).map(|node| (end(name(node, 1)), end(name(node + 1, 0)))) {
        inventory.fibres.extend([(a.clone(), b.clone()), (b, a)]);
    }
    let positions = names.iter().map(|name| (name.clone(), [(Slot(0), Position(1))].into()));
    let asked = Asked { actor: "alice".into(), request: "a".into(), digest: "a".into() };
    let record = Record::Adopted { asked, positions: positions.collect(), wall_ms: 0 };
    let now = Now { mono: Micros(0), wall_ms: 0, boot: "1".into() };
    (Controller::start(inventory, Ledger::fold([&record]), &now).0, names)
}

#[test]
fn schedule_matches_a_scan_of_all_devices() {
    let mut overdue = 0;
    for seed in 0..40 {
        let (mut controller, names) = ring(6);
        let mut draws = Seed(seed).stream("agenda", 0);
        let mut now = Now { mono: Micros(0), wall_ms: 0, boot: "1".into() };
        let mut sent = BTreeMap::new();
        for step in 0..600_u64 {
            now.mono = now.mono + Micros(draws.random_range(0..4_000));
            let device = names[draws.random_range(0..names.len())].clone();
            let power = if draws.random_bool(0.7) { -3_000 } else { -40_000 };
            let read = Observation {
                positions: [(Slot(0), Position(1))].into(),
                power_mdbm: [(Slot(0), power)].into(),
                ..Observation::default()
            };
            let answer = Some(Micros(300));
            let (commit, settle, dwell) = (Micros(1_000), Micros(30), Micros(0));
            let promise =
                Promise { commit, settle, dwell, answer, goes: true, refuses_late: false };
            let event = match draws.random_range(0..16) {
                0 => Event::Unreachable(device, Trouble::from("gone")),
                1 => Event::Promised(device, promise),
                2 => Event::Signalled(device, Signal::LightLost(Slot(0), Position(1))),
                3 => Event::Signalled(device, Signal::LightBack(Slot(0))),
                4 => Event::Occupied(device, step % 2 == 0),
                5 | 6 => Event::Tick,
                7 => {
                    controller.read_all(&now);
                    Event::Tick
                }
                8..=10 => Event::Reachable(device),
                _ => {
                    let ticket = sent.remove(&device).unwrap_or(Ticket(0));
                    Event::Reply { device, ticket, outcome: Outcome::Done(Some(read)) }
                }
            };
            for action in controller.handle(&now, event) {
                if let Action::Send(device, ticket, _) = action {
                    sent.insert(device, ticket);
                }
            }
            let Controller { sightings, schedule, .. } = &controller;
            let all = || sightings.devices().iter();
            let at = |(name, seen): (&DeviceName, &Sighting)| {
                sightings.due_at(name, seen, controller.ledger())
            };
            let first = schedule.first_due(sightings, controller.ledger());
            assert_eq!(first, all().filter_map(at).min(), "seed {seed}, step {step}");
            let due = schedule.all_due(now.mono, sightings, controller.ledger());
            let is_due = |one: &(&DeviceName, &Sighting)| at(*one).is_some_and(|at| at <= now.mono);
            let walked: Vec<_> = all().filter(is_due).map(|(name, _)| name.clone()).collect();
            assert_eq!(due, walked, "seed {seed}, step {step}");
            let dark = all().map(|(name, _)| name).filter(|name| sightings.is_dark_end(name));
            assert!(sightings.dark().map(|(name, _)| name).eq(dark));
            let unreachable = all().filter(|(_, seen)| !seen.is_reachable()).map(|(name, _)| name);
            assert!(sightings.unreachable().map(|(name, _)| name).eq(unreachable));
            overdue += all().filter(|(_, seen)| seen.is_overdue()).count();
        }
    }
    assert!(overdue > 100, "the runs include late answers: {overdue}");
}
