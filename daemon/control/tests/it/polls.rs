// SPDX-License-Identifier: Apache-2.0
//! Devices that were read together must not be polled together afterwards.

use std::collections::BTreeMap;

use lightloom_control::controller::{Action, Controller, Event};
use lightloom_control::inventory::{Device, Inventory};
use lightloom_control::ledger::Ledger;
use lightloom_control::state::{DeviceName, Micros, Now, Observation, Outcome, Sharing};

const POLL_EVERY: Micros = Micros::from_secs(1);

/// Returns the times of each device's reads, if all connect together and reply after 100 µs.
fn reads(devices: u32, seconds: u64) -> BTreeMap<DeviceName, Vec<u64>> {
    let names = (0..devices).map(|number| DeviceName::from(format!("n{number}/b0").as_str()));
    let names: Vec<DeviceName> = names.collect();
    let inventory = Inventory {
        devices: names
            .iter()
            .map(|name| (name.clone(), Device::new(Sharing::Independent)))
            .collect(),
        poll_every: POLL_EVERY,
        ..Inventory::default()
    };
    let at = |mono: u64| Now { mono: Micros(mono), wall_ms: mono / 1_000, boot: "1".into() };
    let (mut controller, mut actions) = Controller::start(inventory, Ledger::default(), &at(0));
    for name in &names {
        actions.extend(controller.handle(&at(0), Event::Reachable(name.clone())));
    }
    let mut asked: BTreeMap<DeviceName, Vec<u64>> = BTreeMap::new();
    let mut time = 0;
    while time < seconds * 1_000_000 {
        let sent: Vec<_> = std::mem::take(&mut actions)
            .into_iter()
            .filter_map(|action| match action {
                Action::Send(device, ticket, _) => Some((device, ticket)),
                _ => None,
            })
            .collect();
        for (device, _) in &sent {
            asked.entry(device.clone()).or_default().push(time);
        }
        time = match sent.is_empty() {
            false => time + 100,
            true => controller.deadline(&at(time)).unwrap().0.max(time + 1),
        };
        for (device, ticket) in sent {
            let outcome = Outcome::Done(Some(Observation::default()));
            let reply = Event::Reply { device, ticket, outcome };
            actions.extend(controller.handle(&at(time), reply));
        }
        actions.extend(controller.handle(&at(time), Event::Tick));
    }
    asked
}

#[test]
fn spreads_polls_of_devices_read_simultaneously() {
    let asked = reads(1_000, 5);
    assert_eq!(asked.len(), 1_000);
    let mut within: BTreeMap<u64, u32> = BTreeMap::new();
    for times in asked.values() {
        // The first read belongs to the start of the connection.
        for time in &times[1..] {
            *within.entry(time / 10_000).or_default() += 1;
        }
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max().unwrap() <= POLL_EVERY.0 + 200, "none is read less often");
        assert!(times.len() <= 7, "nor much more often: {} reads in 5 s", times.len());
    }
    let most = within.values().max().unwrap();
    assert!(*most <= 40, "{most} of 1,000 devices within 10 ms; evenly it would be 10");
}

#[test]
fn waits_the_configured_interval_between_polls_of_few_devices() {
    for times in reads(8, 5).values() {
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= POLL_EVERY.0));
    }
}
