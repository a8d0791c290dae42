// SPDX-License-Identifier: Apache-2.0
//! Explores the shipping controller exhaustively in small worlds, with every order of replies,
//! requests at any moment, and every placement of a limited number of faults. docs/exploration.md
//! describes the evidence and the assumptions.
//!
//! Run `cargo test -p lightloom-control --test it exhaust:: -- --nocapture`, with `--ignored` for
//! the larger worlds of the nightly build.

mod device;
mod explorer;
mod faults;
mod judge;
mod key;

use std::collections::{BTreeSet, VecDeque};

use explorer::{Explorer, Faults, Mutant, Scenario, Wish};
use lightloom_control::controller::{Apply, Request, Rollback};
use lightloom_control::inventory::{Device, Inventory, Recovery};
use lightloom_control::record::Cause;
use lightloom_control::state::{DeviceName, Micros, Position, Sharing, Slot, SwitchState, Txn};
use lightloom_testkit::cases;

const DRAIN: &str = "leaf0";

fn module(number: u32) -> DeviceName {
    format!("n{number}/b0").as_str().into()
}

/// Returns an inventory of modules and of switches with two circuits each, and if `drained` with a
/// drain control for the first module. Devices are not polled during a scenario.
fn inventory(modules: u32, switches: u32, drained: bool) -> Inventory {
    let mut inventory = Inventory {
        dark_links_max: 64,
        poll_every: Micros::from_secs(100_000),
        ..Inventory::default()
    };
    for number in 0..modules {
        let mut device = Device::new(Sharing::Independent);
        if drained && number == 0 {
            device.levers.insert(Slot(0), (DRAIN.into(), Slot(0)));
        }
        inventory.devices.insert(module(number), device);
    }
    for number in 0..switches {
        let name = format!("ocs{number}");
        inventory.devices.insert(name.as_str().into(), Device::new(Sharing::Exclusive));
    }
    if drained {
        let device = Device { is_lever: true, ..Device::new(Sharing::Independent) };
        inventory.devices.insert(DRAIN.into(), device);
    }
    inventory
}

fn at_path(inventory: &Inventory, path: u32) -> SwitchState {
    let devices = inventory.devices.iter().filter(|(_, device)| !device.is_lever);
    let slots = devices.map(|(name, device)| {
        let [a, b] = if path % 2 == 1 { [11, 12] } else { [12, 11] };
        let positions = match device.sharing {
            Sharing::Exclusive => [(Slot(1), Position(a)), (Slot(2), Position(b))].into(),
            Sharing::Independent => [(Slot(0), Position(path))].into(),
        };
        (name.clone(), positions)
    });
    slots.collect()
}

fn wish(actor: &'static str, id: &'static str, request: Request) -> Wish {
    Wish { actor, id, request }
}

fn to(inventory: &Inventory, path: u32, plan: &str) -> Apply {
    Apply { target: at_path(inventory, path), plan_sha256: plan.into(), ..Apply::default() }
}

fn scenario(
    name: &'static str,
    inventory: Inventory,
    clients: Vec<VecDeque<Wish>>,
    faults: Faults,
) -> Scenario {
    let (start, fences) = (at_path(&inventory, 1), BTreeSet::new());
    Scenario { name, start, fences, inventory, clients, faults }
}

fn change(modules: u32, switches: u32, recovery: Recovery, faults: Faults) -> Scenario {
    let inventory = Inventory { recovery, ..inventory(modules, switches, false) };
    let apply = Request::Apply(to(&inventory, 2, "new"));
    scenario("one change", inventory, vec![[wish("alice", "change", apply)].into()], faults)
}

fn drained(modules: u32, recovery: Recovery, faults: Faults) -> Scenario {
    let inventory = Inventory { recovery, ..inventory(modules, 0, true) };
    let apply = Request::Apply(to(&inventory, 2, "new"));
    scenario(
        "a change behind a drain",
        inventory,
        vec![[wish("alice", "change", apply)].into()],
        faults,
    )
}

/// A change expires without a confirmation and is undone, on failed devices later.
fn expires(modules: u32, switches: u32, faults: Faults) -> Scenario {
    let inventory = inventory(modules, switches, false);
    let apply = Apply { confirm_within: Some(Micros::from_secs(5)), ..to(&inventory, 2, "new") };
    let asks = wish("alice", "change", Request::Apply(apply));
    scenario("a change that expires", inventory, vec![[asks].into()], faults)
}

/// One module is bypassed while a change awaits its confirmation.
fn bypassed(faults: Faults) -> Scenario {
    let inventory = inventory(2, 0, false);
    let apply = Apply { confirm_within: Some(Micros::from_secs(5)), ..to(&inventory, 2, "new") };
    let around = Apply {
        target: [(module(0), [(Slot(0), Position(15))].into())].into(),
        plan_sha256: "around".into(),
        mode: lightloom_control::change::Mode::Update,
        cause: Some(Cause::Bypass),
        ..Apply::default()
    };
    let alice = [
        wish("alice", "change", Request::Apply(apply)),
        wish("alice", "confirm", Request::Confirm(Txn(2))),
    ];
    let bypass = wish("policy:fault", "bypass", Request::Apply(around));
    scenario("a bypass on top", inventory, vec![alice.into(), [bypass].into()], faults)
}

/// A policy bypasses two modules.
fn bypass_of_two(recovery: Recovery, faults: Faults) -> Scenario {
    let inventory = Inventory { recovery, ..inventory(2, 0, false) };
    let around = Apply {
        target: [0, 1].map(|at| (module(at), [(Slot(0), Position(15))].into())).into(),
        plan_sha256: "around".into(),
        mode: lightloom_control::change::Mode::Update,
        cause: Some(Cause::Bypass),
        ..Apply::default()
    };
    let bypass = wish("policy:fault", "bypass", Request::Apply(around));
    scenario("a bypass of two", inventory, vec![[bypass].into()], faults)
}

fn two_clients(faults: Faults) -> Scenario {
    let inventory = inventory(1, 1, false);
    let change = Request::Apply(to(&inventory, 2, "alice"));
    let undo = Request::Rollback(Rollback { txn: Txn(2), ..Rollback::default() });
    let alice = [
        wish("alice", "change", change.clone()),
        wish("alice", "undo", undo),
        wish("alice", "change", change),
    ];
    let other = Apply { version: Some(1), ..to(&inventory, 3, "bob") };
    let bob = wish("bob", "other", Request::Apply(other));
    scenario("two clients", inventory, vec![alice.into(), [bob].into()], faults)
}

fn asked_twice(modules: u32, switches: u32, recovery: Recovery, faults: Faults) -> Scenario {
    let mut scenario = change(modules, switches, recovery, faults);
    let again = scenario.clients[0].clone();
    scenario.clients[0].extend(again);
    scenario
}

/// Runs the scenario with several daemons, for devices with epochs or with a settle time.
fn led(fenced: bool, mut scenario: Scenario) -> Scenario {
    for (name, device) in &mut scenario.inventory.devices {
        match fenced {
            true => drop(scenario.fences.insert(name.clone())),
            false => device.limits.late_within = Micros::from_secs(2),
        }
    }
    scenario
}

fn explore(scenario: Scenario, limit: u64) -> u64 {
    let (name, faults, recovery) = (scenario.name, scenario.faults, scenario.inventory.recovery);
    let devices = scenario.inventory.devices.len();
    let mut explorer = Explorer::new(scenario, Mutant::None, limit);
    let all = explorer.run();
    let seen = &explorer.seen;
    println!(
        "{name}, {devices} devices, {faults:?}, {recovery:?}: {} states, {} crashes, at most {} steps, ends {:?}{}",
        seen.states,
        seen.crashes,
        seen.deepest,
        seen.ends,
        if all { "" } else { ", NOT ALL" }
    );
    if let Some((what, trail)) = seen.violations.first() {
        panic!("{name}: {what}\n{}", trail.join("\n"));
    }
    assert!(seen.states > 10 && !seen.ends.is_empty(), "nothing was explored");
    assert!(all, "more than {limit} states");
    seen.states
}

const NONE: Faults = Faults { count: 0, late: false, die: false, lose: false, follow: false };

fn faults(count: u8) -> Faults {
    Faults { count, ..NONE }
}

fn dying(count: u8) -> Faults {
    Faults { count, die: true, ..NONE }
}

fn late(count: u8) -> Faults {
    Faults { count, late: true, ..NONE }
}

fn losing(count: u8) -> Faults {
    Faults { count, lose: true, ..NONE }
}

/// Another daemon takes over this many times at any instant, and etcd may not respond.
fn followed(count: u8) -> Faults {
    Faults { count, follow: true, ..NONE }
}

#[test]
fn change_ends_as_reported_across_failovers() {
    for fenced in [true, false] {
        for recovery in [Recovery::FinishForward, Recovery::RollBack] {
            explore(led(fenced, asked_twice(2, 0, recovery, followed(1))), 2_000_000);
            explore(led(fenced, asked_twice(1, 1, recovery, followed(1))), 2_000_000);
            explore(led(fenced, drained(2, recovery, followed(1))), 2_000_000);
        }
        explore(led(fenced, expires(2, 0, followed(1))), 2_000_000);
    }
}

#[test]
fn bypass_ends_as_reported_across_failovers() {
    for fenced in [true, false].into_iter().take(cases(1, 2)) {
        explore(led(fenced, bypassed(followed(1))), 2_000_000);
    }
}

#[test]
fn request_acts_once_across_failovers() {
    explore(led(false, two_clients(followed(1))), 2_000_000);
}

#[test]
fn judge_detects_broken_leadership_rules() {
    let modules = |fenced| led(fenced, asked_twice(2, 0, Recovery::RollBack, followed(1)));
    let switch = led(false, asked_twice(1, 1, Recovery::RollBack, followed(1)));
    let broken = [
        (Mutant::SendsWithoutFence, switch, "I2"),
        (Mutant::JournalTakesAll, modules(true), "E1"),
        (Mutant::EpochGoesBack, modules(true), "I2"),
        (Mutant::DeviceTakesAll, modules(true), "I2"),
        (Mutant::NoSettleTime, modules(false), "I2"),
        (Mutant::TakesTimeoutForYes, modules(true), "I5"),
    ];
    for (mutant, scenario, invariant) in broken {
        assert_found(mutant, scenario, invariant);
    }
}

#[test]
fn change_ends_as_reported_when_management_is_lost() {
    for recovery in [Recovery::FinishForward, Recovery::RollBack] {
        explore(change(2, 0, recovery, losing(1)), 2_000_000);
        explore(change(1, 1, recovery, losing(1)), 2_000_000);
    }
    explore(expires(2, 0, losing(1)), 2_000_000);
}

#[test]
fn change_of_two_devices_ends_as_reported_under_two_faults() {
    for recovery in [Recovery::FinishForward, Recovery::RollBack] {
        explore(change(2, 0, recovery, faults(cases(2, 3))), 2_000_000);
        explore(change(1, 1, recovery, faults(2)), 2_000_000);
        explore(change(3, 0, recovery, faults(1)), 2_000_000);
        explore(change(1, 1, recovery, late(1)), 2_000_000);
    }
}

#[test]
fn interrupted_bypass_ends_as_reported() {
    for recovery in [Recovery::FinishForward, Recovery::RollBack] {
        for faults in [faults(2), dying(1), losing(1)] {
            explore(bypass_of_two(recovery, faults), 2_000_000);
        }
    }
}

#[test]
fn change_behind_a_drain_restores_traffic_under_faults() {
    for recovery in [Recovery::FinishForward, Recovery::RollBack] {
        explore(drained(2, recovery, faults(2)), 2_000_000);
    }
}

/// The module, which is unreachable during the undo, is already at its position.
#[test]
fn undo_restores_traffic_on_unreachable_parts() {
    explore(drained(1, Recovery::FinishForward, losing(2)), 2_000_000);
}

#[test]
fn expired_change_is_undone_despite_a_failed_device() {
    explore(expires(2, 0, dying(1)), 2_000_000);
    explore(expires(1, 1, dying(1)), 2_000_000);
}

#[test]
fn bypass_during_an_unconfirmed_change_ends_as_reported() {
    explore(bypassed(dying(1)), 2_000_000);
}

#[test]
fn request_acts_once_in_every_race_of_two_clients() {
    explore(two_clients(faults(1)), 2_000_000);
}

#[test]
fn judge_detects_callers_that_break_rules() {
    let broken = [
        (Mutant::SyncsNothing, change(2, 0, Recovery::FinishForward, faults(1)), "I5"),
        (Mutant::TrustsAnswers, change(2, 0, Recovery::FinishForward, faults(1)), "I3"),
        (Mutant::ForgetsRequests, two_clients(NONE), "I6"),
    ];
    for (mutant, scenario, invariant) in broken {
        assert_found(mutant, scenario, invariant);
    }
}

fn assert_found(mutant: Mutant, scenario: Scenario, invariant: &str) {
    let mut explorer = Explorer::new(scenario, mutant, 1_000_000);
    explorer.run();
    let found = explorer.seen.violations.first().map(|(what, _)| what.as_str());
    println!("{mutant:?}: {found:?} after {} states", explorer.seen.states);
    assert!(found.is_some_and(|what| what.starts_with(invariant)), "{mutant:?}: {found:?}");
}

#[test]
#[ignore = "takes minutes"]
fn nightly_explores_larger_worlds_with_more_faults() {
    let mut states = 0;
    for recovery in [Recovery::FinishForward, Recovery::RollBack] {
        states += explore(change(3, 0, recovery, faults(2)), 50_000_000);
        states += explore(change(2, 1, recovery, faults(2)), 50_000_000);
        states += explore(change(2, 0, recovery, faults(3)), 50_000_000);
        states += explore(change(1, 1, recovery, late(2)), 50_000_000);
        states += explore(drained(2, recovery, faults(2)), 50_000_000);
    }
    states += explore(expires(2, 1, dying(2)), 50_000_000);
    states += explore(change(2, 1, Recovery::FinishForward, losing(2)), 50_000_000);
    states += explore(expires(2, 1, losing(1)), 50_000_000);
    println!("{states} states in all");
}

#[test]
#[ignore = "takes minutes"]
fn nightly_explores_client_races_and_stacked_bypasses_with_two_faults() {
    explore(two_clients(faults(2)), 50_000_000);
    explore(bypassed(dying(2)), 50_000_000);
}

/// Explores takeovers with a second fault of any kind, for both kinds of devices.
fn taken_over(
    faults: Faults,
    scenario: impl Fn(Recovery, Faults) -> Scenario,
    recoveries: &[Recovery],
) {
    for (fenced, recovery) in [true, false].iter().flat_map(|f| recoveries.iter().map(|r| (*f, *r)))
    {
        explore(led(fenced, scenario(recovery, faults)), 50_000_000);
    }
}

fn followed_and_lost(count: u8) -> Faults {
    Faults { lose: true, ..followed(count) }
}

const BOTH: [Recovery; 2] = [Recovery::FinishForward, Recovery::RollBack];

#[test]
#[ignore = "takes minutes"]
fn nightly_failover_during_a_change_with_a_second_fault() {
    let lost = followed_and_lost(2);
    taken_over(lost, |recovery, faults| asked_twice(2, 0, recovery, faults), &BOTH);
    taken_over(lost, |recovery, faults| asked_twice(1, 1, recovery, faults), &BOTH);
}

#[test]
#[ignore = "takes minutes"]
fn nightly_failover_during_a_three_device_change_with_a_second_fault() {
    for fenced in [true, false] {
        for recovery in BOTH {
            explore(led(fenced, asked_twice(2, 1, recovery, followed(2))), 50_000_000);
        }
    }
}

#[test]
#[ignore = "takes minutes"]
fn nightly_failover_behind_a_drain_with_a_second_fault() {
    taken_over(followed_and_lost(2), |recovery, faults| drained(2, recovery, faults), &BOTH);
    explore(drained(2, Recovery::RollBack, losing(2)), 50_000_000);
}

#[test]
#[ignore = "takes minutes"]
fn nightly_failover_during_an_expiring_change_with_a_second_fault() {
    taken_over(followed_and_lost(2), |_, faults| expires(1, 1, faults), &BOTH[..1]);
}

#[test]
#[ignore = "takes minutes"]
fn nightly_failover_between_two_clients_with_a_second_fault() {
    taken_over(followed(2), |_, faults| two_clients(faults), &BOTH[..1]);
}

#[test]
#[ignore = "takes minutes"]
fn nightly_failover_during_a_stacked_bypass_with_a_second_fault() {
    taken_over(followed(2), |_, faults| bypassed(faults), &BOTH[..1]);
}

#[test]
#[ignore = "takes an hour"]
fn long_bypass_during_an_unconfirmed_change_with_three_faults() {
    explore(bypassed(dying(3)), 50_000_000);
}

#[test]
#[ignore = "takes an hour"]
fn long_lost_management_during_a_stacked_bypass_and_client_race() {
    explore(bypassed(losing(2)), 50_000_000);
    let lost = followed_and_lost(2);
    taken_over(lost, |_, faults| two_clients(faults), &BOTH[..1]);
    taken_over(lost, |_, faults| bypassed(faults), &BOTH[..1]);
}
