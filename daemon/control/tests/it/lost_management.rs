// SPDX-License-Identifier: Apache-2.0
//! The control plane never acts on its own blindness: answers that do not arrive move nothing, and what dies meanwhile
//! is bypassed where who answers misses its light.
//!
//! `LIGHTLOOM_STORMS=1000 cargo test -p lightloom-control --test it lost_management:: -- --nocapture` runs more storms.

mod storm;
mod world;

use lightloom_control::state::Micros;
use storm::{Counts, storm};
use world::{World, module};

const fn seconds(count: u64) -> Micros {
    Micros::from_secs(count)
}

fn lose(world: &mut World, nodes: std::ops::Range<u32>) {
    world.lost.extend(nodes.flat_map(|node| [module(node, 0), module(node, 1)]));
}

/// A node that dies when all is well is bypassed, and soon.
fn dies(world: &mut World, node: u32) -> Micros {
    let died = world.now.mono;
    world.die(node);
    while !world.goes_around(node) {
        world.run_for(Micros(200));
        assert!(world.now.mono < died + seconds(20), "n{node} is not bypassed");
    }
    world.now.mono - died
}

#[test]
fn four_nodes_whose_management_is_lost_keep_their_light() {
    let mut world = World::new(32, 128, 16);
    let lit = world.lit_circuits();
    assert_eq!(lit, 24);
    lose(&mut world, 4..8);
    world.run_for(seconds(60));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    assert!(world.bypassed.is_empty());
    // Over a restart, too.
    world.kill();
    world.start();
    world.run_for(seconds(60));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    world.lost.clear();
    world.run_for(seconds(30));
    assert!(world.control.broken().is_empty());
    let took = dies(&mut world, 5);
    println!("a death afterwards: {} us", took.0);
    assert!(took <= Micros::from_millis(50) && world.wrongly_cut.is_empty());
}

#[test]
fn all_lines_that_are_lost_leave_the_plan_and_what_dies_afterwards_is_bypassed() {
    let mut world = World::new(32, 96, 16);
    let lit = world.lit_circuits();
    lose(&mut world, 0..32);
    world.run_for(seconds(60));
    assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{:?}", world.bypassed);
    world.lost.clear();
    world.run_for(seconds(30));
    assert!(world.bypassed.is_empty() && world.control.broken().is_empty());
    assert!(world.control.not_bypassed(&world.now).is_empty());
    let took = dies(&mut world, 9);
    assert!(took <= Micros::from_millis(50) && world.wrongly_cut.is_empty(), "{took:?}");
}

#[test]
fn a_start_before_the_terminal_server_is_up_moves_nothing() {
    let mut world = World::new(32, 96, 16);
    let lit = world.lit_circuits();
    world.kill();
    lose(&mut world, 0..32);
    world.start();
    world.run_for(seconds(60));
    // The lines come back one by one.
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
fn every_node_that_dies_is_bypassed_and_cuts_no_lit_circuit() {
    for node in 0..32 {
        let mut world = World::new(32, 96, 16);
        let took = dies(&mut world, node);
        world.run_for(seconds(5));
        println!("n{node}: {} us, {:?} {:?}", took.0, world.bypassed, world.wrongly_cut);
        assert!(took <= Micros::from_millis(50), "n{node}: {took:?}");
    }
}

/// A second node dies at any moment after the first, elsewhere: neither waits for the other.
#[test]
fn a_second_death_elsewhere_is_bypassed_as_soon_as_the_first() {
    let mut took = Vec::new();
    for after_us in [0, 300, 1_500, 2_000, 3_500, 5_000, 8_000, 40_000, 400_000, 990_000, 1_500_000]
    {
        let mut world = World::new(64, 192, 16);
        world.die(32);
        world.run_for(Micros(after_us));
        took.push(dies(&mut world, 45));
        world.run_for(seconds(3));
        assert!(world.goes_around(32) && world.wrongly_cut.is_empty(), "{:?}", world.wrongly_cut);
    }
    println!("a second death: {took:?}");
    assert!(took.iter().all(|took| *took <= Micros::from_millis(50)), "{took:?}");
}

/// A node dies at any moment around a restart of the daemon.
#[test]
fn a_death_around_a_restart_is_bypassed_as_soon_as_it_can_be_seen() {
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
            while !world.goes_around(node) || world.control.controller().is_busy() {
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

/// Any subset of lines, servers, agents and switches of the management network is lost and comes back, nodes die
/// meanwhile, the daemon is killed: what has light keeps it, and what dies and is missed is bypassed.
#[test]
fn storms_of_lost_management_cut_no_light_and_leave_no_death_with_witnesses() {
    let storms = std::env::var("LIGHTLOOM_STORMS").ok().and_then(|text| text.parse().ok());
    let mut counts = Counts::default();
    for seed in 0..storms.unwrap_or(20) {
        counts.add(&storm(seed));
    }
    println!("{counts:?}");
    assert!(counts.deaths_at_once > 0 && counts.lost > 0);
}
