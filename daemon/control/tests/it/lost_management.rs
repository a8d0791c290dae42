// SPDX-License-Identifier: Apache-2.0
//! Lost management alone must never cause a change, but failures with witnesses are bypassed.
//!
//! For more storms, run `LIGHTLOOM_STORMS=1000 cargo test -p lightloom-control --test it
//! lost_management:: -- --nocapture`.

mod every;
mod storm;
pub(crate) mod world;

use lightloom_control::controller::{Action, Answer, ReplyTo, Request};
use lightloom_control::policy::OnFault;
use lightloom_control::record::Asked;
use lightloom_control::state::Micros;
use lightloom_fabric::fault::Part;
use lightloom_units::id::{BundleId, NodeId};
use storm::{Counts, storm};
use world::{SLOT, World, module, switch_of};

const fn seconds(count: u64) -> Micros {
    Micros::from_secs(count)
}

fn lose(world: &mut World, nodes: std::ops::Range<u32>) {
    world.lost.extend(nodes.flat_map(|node| [module(node, 0), module(node, 1)]));
}

fn dies(world: &mut World, node: u32) -> Micros {
    let died = world.now.mono;
    world.die(node);
    while !world.is_bypassed(node) {
        world.run_for(Micros(200));
        assert!(world.now.mono < died + seconds(20), "n{node} is not bypassed");
    }
    world.now.mono - died
}

#[test]
fn losing_management_of_four_nodes_keeps_their_light() {
    let mut world = World::new(32, 128, 16);
    let lit = world.lit_circuits();
    assert_eq!(lit, 24);
    lose(&mut world, 4..8);
    world.run_for(seconds(60));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    assert!(world.bypassed.is_empty());
    // A restart does not change this.
    world.kill();
    world.start();
    world.run_for(seconds(60));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    world.lost.clear();
    world.run_for(seconds(30));
    assert!(world.control.facts().failed_parts().is_empty());
    let took = dies(&mut world, 5);
    println!("a death afterwards: {} us", took.0);
    assert!(took <= Micros::from_millis(50) && world.wrongly_cut.is_empty());
}

/// A module may take longer than 30 ms. Earlier versions gave up a ring after 20 ms.
#[test]
fn groups_move_after_every_module_has_replied_slowly() {
    for answers_after in [Micros(400), Micros::from_millis(30)] {
        let mut world = World::new(32, 96, 16);
        for node in [4, 15] {
            dies(&mut world, node);
            world.run_for(seconds(5));
        }
        world.answers_after = answers_after;
        world.run_for(seconds(5));
        dies(&mut world, 6);
        world.run_for(seconds(5));
        let used = world.control.plan().unwrap().metrics.gpus_used;
        assert_eq!(used, 96, "answers after {answers_after:?}: {:?}", world.bypassed);
        assert!(world.moved > 0 && world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
    }
}

#[test]
fn losing_all_lines_keeps_the_plan_and_later_faults_are_bypassed() {
    let mut world = World::new(32, 96, 16);
    let lit = world.lit_circuits();
    lose(&mut world, 0..32);
    world.run_for(seconds(60));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    world.lost.clear();
    world.run_for(seconds(30));
    assert!(world.bypassed.is_empty() && world.control.facts().failed_parts().is_empty());
    assert!(world.control.not_bypassed(&world.now).is_empty());
    let took = dies(&mut world, 9);
    assert!(took <= Micros::from_millis(50) && world.wrongly_cut.is_empty(), "{took:?}");
}

#[test]
fn start_before_the_terminal_server_moves_nothing() {
    let mut world = World::new(32, 96, 16);
    let lit = world.lit_circuits();
    world.kill();
    lose(&mut world, 0..32);
    world.start();
    world.run_for(seconds(60));
    for node in 0..32 {
        world.lost.remove(&module(node, 0));
        world.run_for(Micros::from_millis(300));
        world.lost.remove(&module(node, 1));
        world.run_for(Micros::from_millis(700));
    }
    world.run_for(seconds(30));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    let took = dies(&mut world, 9);
    assert!(took <= Micros::from_millis(50) && world.wrongly_cut.is_empty(), "{took:?}");
}

#[test]
fn bypass_of_any_failed_node_cuts_no_lit_circuit() {
    for node in 0..32 {
        let mut world = World::new(32, 96, 16);
        let took = dies(&mut world, node);
        world.run_for(seconds(5));
        println!("n{node}: {} us, {:?} {:?}", took.0, world.bypassed, world.wrongly_cut);
        assert!(took <= Micros::from_millis(50), "n{node}: {took:?}");
    }
}

#[test]
fn second_fault_elsewhere_is_bypassed_as_fast_as_the_first() {
    let mut took = Vec::new();
    for after_us in [0, 300, 1_500, 2_000, 3_500, 5_000, 8_000, 40_000, 400_000, 990_000, 1_500_000]
    {
        let mut world = World::new(64, 192, 16);
        world.die(32);
        world.run_for(Micros(after_us));
        took.push(dies(&mut world, 45));
        world.run_for(seconds(3));
        assert!(world.is_bypassed(32) && world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
    }
    println!("a second death: {took:?}");
    assert!(took.iter().all(|took| *took <= Micros::from_millis(50)), "{took:?}");
}

#[test]
fn fault_around_a_restart_is_bypassed_as_soon_as_visible() {
    let mut most = Micros(0);
    for node in [9, 16, 21] {
        for (dies_us, killed_us) in [
            (0, 50),
            (0, 500),
            (0, 1_000),
            (0, 2_000),
            (0, 2_600),
            (0, 3_000),
            (0, 3_300),
            (0, 3_700),
            (0, 4_500),
            (0, 6_000),
            (5_000, 0),
        ] {
            let mut world = World::new(64, 192, 16);
            if killed_us < dies_us {
                world.kill();
                world.run_for(Micros(dies_us));
                world.die(node);
            } else {
                world.die(node);
                world.run_for(Micros(killed_us));
                world.kill();
            }
            world.run_for(Micros::from_millis(10));
            world.start();
            let started = world.now.mono;
            while !world.is_bypassed(node) || world.control.controller().transactions().is_busy() {
                world.run_for(Micros(200));
                assert!(world.now.mono < started + seconds(20), "n{node} {dies_us} {killed_us}");
            }
            let took = world.now.mono - started;
            println!(
                "n{node} died at {dies_us}, killed at {killed_us}: {} us after the start",
                took.0
            );
            most = most.max(took);
            world.run_for(seconds(3));
            assert!(world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
        }
    }
    assert!(most <= Micros::from_millis(50), "{most:?}");
}

#[test]
fn fault_after_a_restart_does_not_wait_for_earlier_requests() {
    let mut most = Micros(0);
    for node in [9, 16, 21] {
        for dies_us in (0..4_000).step_by(200).chain([6_000, 12_000, 40_000]) {
            let mut world = World::new(64, 192, 16);
            world.kill();
            world.run_for(Micros::from_millis(10));
            world.start();
            world.run_for(Micros(dies_us));
            let took = dies(&mut world, node);
            most = most.max(took);
            world.run_for(seconds(3));
            assert!(took <= Micros::from_millis(50), "n{node} {dies_us}: {took:?}");
            assert!(world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
        }
    }
    println!("at most {} us", most.0);
}

/// A single module fails. The far end and the node's other modules still reply.
#[test]
fn single_failed_module_is_bypassed_without_a_hello() {
    let mut most = Micros(0);
    for node in 0..32 {
        let mut world = World::new(32, 96, 16);
        let device = module(node, 1);
        if world.lit_with(&device).is_none() {
            continue;
        }
        world.run_for(Micros(u64::from(node) * 37_000));
        let died = world.now.mono;
        world.die_alone(device);
        let bundle = BundleId { node: NodeId(node), bundle: 1 };
        while !world.control.facts().is_bypassed(Part::Bundle(bundle)) {
            world.run_for(Micros(200));
            assert!(world.now.mono < died + seconds(20), "{bundle} is not bypassed");
        }
        most = most.max(world.now.mono - died);
        world.run_for(seconds(5));
        assert!(world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
        assert_eq!(world.bypassed.len(), 1, "{:?}", world.bypassed);
    }
    println!("at most {} us", most.0);
    assert!(most > Micros(0) && most <= Micros::from_millis(30), "{most:?}");
}

/// A fibre is cut, and a module at one of its ends is unreachable for a while after its report.
#[test]
fn lost_answers_do_not_blame_a_module_that_reported_its_fibre() {
    for node in 0..32 {
        let mut world = World::new(32, 96, 16);
        let device = module(node, 1);
        let Some(far) = world.lit_with(&device) else { continue };
        for device in [&device, &far] {
            let end = (device.clone(), SLOT, world.stands[device]);
            world.cut.insert(end);
        }
        world.light_changed();
        world.run_for(Micros(700));
        world.lost.insert(device);
        world.run_for(Micros::from_millis(20));
        world.lost.clear();
        world.run_for(seconds(1));
        let named = world.bypassed.iter().flat_map(|(_, parts)| parts);
        let modules = named.filter(|part| matches!(part, Part::Bundle(_))).count();
        assert_eq!(modules, 0, "{:?}", world.bypassed);
        assert!(world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
    }
}

/// A second daemon holds half of the serial lines, or their device files are missing. The status
/// reports that this host cannot query the devices, and no part is reported as failed.
#[test]
fn unavailable_serial_lines_report_no_failed_part() {
    let mut world = World::new(32, 96, 16);
    let lit = world.lit_circuits();
    world.kill();
    lose(&mut world, 0..16);
    world.unopened.clone_from(&world.lost);
    world.start();
    world.run_for(seconds(60));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    assert!(world.bypassed.is_empty() && world.control.facts().failed_parts().is_empty());
    let lost = world.control.facts().management_lost(&world.now).unwrap();
    assert_eq!((lost.devices.len(), lost.unasked), (32, 32));
    world.unopened.clear();
    world.lost.clear();
    world.run_for(seconds(30));
    assert!(world.control.facts().management_lost(&world.now).is_none());
}

/// After ten automatic changes within an hour, the daemon waits for an operator's `resume` and then
/// acts immediately. The limit survives a restart.
#[test]
fn resume_bypasses_faults_that_exceeded_the_hourly_limit() {
    let mut world = World::new(64, 96, 8);
    for _ in 0..10 {
        let node = world.node_in_use();
        dies(&mut world, node);
        world.run_for(seconds(2));
    }
    assert!(!world.control.controller().budget().is_left(&world.now));
    let node = world.node_in_use();
    world.die(node);
    world.run_for(seconds(60));
    assert!(!world.is_bypassed(node), "ten were made");
    world.ask("resume", Request::Resume, None);
    world.run_for(Micros::from_millis(50));
    assert!(world.is_bypassed(node) && world.control.controller().budget().is_left(&world.now));
    world.run_for(seconds(2));
    world.kill();
    world.start();
    world.run_for(seconds(2));
    let node = world.node_in_use();
    dies(&mut world, node);
    assert!(world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
}

#[test]
fn hourly_limit_counts_changes_before_a_reboot_by_their_age() {
    let mut world = World::new(64, 96, 8);
    for _ in 0..10 {
        let node = world.node_in_use();
        dies(&mut world, node);
        world.run_for(seconds(2));
    }
    world.kill();
    // The changes are 55 minutes old, which is longer than the host has been running.
    world.now.wall_ms += 55 * 60 * 1_000;
    world.now.boot = "c".into();
    world.start();
    world.run_for(seconds(60));
    assert!(!world.control.controller().budget().is_left(&world.now));
    world.run_for(seconds(250));
    assert!(world.control.controller().budget().is_left(&world.now));
}

/// A part is reported while a change is open. Later, one request reports its repair and another fault.
#[test]
fn repair_with_another_fault_ends_its_report() {
    let mut world = World::new(32, 96, 16);
    world.kill();
    world.setup.on_fault = OnFault::Report;
    world.start();
    world.run_for(seconds(10));
    let node = |node| Part::Node(NodeId(node));
    world.report(&[node(5)], &[]);
    world.report(&[node(9)], &[]);
    world.run_for(seconds(5));
    assert!(world.is_bypassed(5) && !world.is_bypassed(9));
    world.report(&[node(13)], &[node(9)]);
    world.run_for(seconds(5));
    world.report(&[node(20)], &[]);
    world.run_for(seconds(5));
    let bypassed = [5, 9, 13, 20].map(|node| world.is_bypassed(node));
    assert_eq!(bypassed, [true, false, true, true]);
}

#[test]
fn rejects_fault_reports_while_no_device_answers() {
    let mut world = World::new(32, 96, 16);
    lose(&mut world, 0..32);
    world.run_for(seconds(60));
    let broken: Vec<_> =
        (0..32).map(|node| (Part::Node(NodeId(node)), "by hand".to_owned())).collect();
    let asked = Asked { actor: "alice".into(), request: "all".into(), digest: "all".into() };
    let actions = world.control.fault(&world.now, asked, &broken, &[], ReplyTo(7));
    let [Action::Answer(_, Answer::Refused { reasons })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert!(reasons[0].starts_with("no device responds"), "{reasons:?}");
    let lit = world.lit_circuits();
    world.lost.clear();
    world.run_for(seconds(30));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit));
    assert!(world.control.facts().failed_parts().is_empty() && world.control.plan().is_some());
}

/// A node that contains its whole group does not send light to other nodes. A network switch that
/// has lost its link is a witness if all modules of the node are unreachable.
#[test]
fn single_node_group_is_bypassed_when_its_switch_loses_the_link() {
    for node in [0, 9, 23] {
        let mut world = World::plugged_into(2, 32, 96, 4);
        let took = dies(&mut world, node);
        println!("n{node}: {} us, {:?}", took.0, world.bypassed);
        assert!(took <= seconds(5), "n{node}: {took:?}");
        world.run_for(seconds(5));
        assert!(world.wrongly_cut.is_empty() && world.control.facts().failed_parts().len() <= 2);
    }
}

#[test]
fn neither_lost_link_nor_missing_replies_suffice_for_a_node_fault() {
    let mut world = World::plugged_into(2, 32, 96, 4);
    // This node has no links, but responds.
    world.unplugged.insert(NodeId(9));
    world.run_for(seconds(30));
    // This node is unreachable, but its links are up.
    lose(&mut world, 4..5);
    world.run_for(seconds(30));
    assert!(world.moves == 0 && world.bypassed.is_empty(), "{:?}", world.bypassed);
    // This node and its switch are unreachable. Earlier readings are not evidence.
    world.lost.insert(switch_of(11, 2));
    world.run_for(seconds(5));
    world.die(11);
    world.run_for(seconds(30));
    assert!(world.moves == 0 && world.bypassed.is_empty(), "{:?}", world.bypassed);
    world.lost.remove(&switch_of(11, 2));
    world.run_for(seconds(20));
    assert!(world.is_bypassed(11) && !world.is_bypassed(9) && !world.is_bypassed(4));
}

/// Only the switches keep their management lines, and some links are lost. Devices that become
/// unreachable together have not failed.
#[test]
fn unreachable_nodes_with_lost_links_at_one_switch_move_nothing() {
    let mut world = World::plugged_into(2, 32, 96, 4);
    lose(&mut world, 0..32);
    world.unplugged.extend((0..32).step_by(2).map(NodeId));
    world.run_for(seconds(60));
    assert!(world.moves == 0 && world.bypassed.is_empty(), "{:?}", world.bypassed);
}

#[test]
fn storms_of_lost_management_cut_no_light_and_bypass_witnessed_faults() {
    let storms = std::env::var("LIGHTLOOM_STORMS").ok().and_then(|text| text.parse().ok());
    let mut counts = Counts::default();
    for seed in 0..storms.unwrap_or(20) {
        counts.add(&storm(seed));
    }
    println!("{counts:?}");
    assert!(counts.deaths_at_once > 0 && counts.lost > 0);
}
