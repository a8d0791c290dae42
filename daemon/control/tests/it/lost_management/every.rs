// SPDX-License-Identifier: Apache-2.0
//! Every subset of a small ring's modules loses its management, with and without a node failure and
//! a restart of the daemon.

use lightloom_control::state::{DeviceName, Micros};
use lightloom_fabric::fault::Part;

use super::seconds;
use super::world::{World, module};

const NODES: u32 = 6;

fn ring() -> World {
    World::new(NODES, 16, 8)
}

fn modules() -> Vec<DeviceName> {
    (0..NODES).flat_map(|node| [module(node, 0), module(node, 1)]).collect()
}

fn lose(world: &mut World, set: u32) {
    let of_set = modules().into_iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
    world.lost = of_set.map(|(_, device)| device).collect();
    world.light_changed();
}

fn subsets(few: u32) -> Vec<u32> {
    let count = 2 * NODES;
    let is_few = |set: &u32| set.count_ones() <= few || set.count_ones() >= count - 1;
    (1..1_u32 << count).filter(is_few).collect()
}

fn wrong(world: &World) -> Vec<String> {
    let named = world.bypassed.iter().flat_map(|(_, parts)| parts);
    let living = |part: &&Part| part.node().is_none_or(|node| !world.dead.contains(&node));
    let named = named.filter(living).map(|part| format!("{part} works, and is bypassed"));
    named.chain(world.wrongly_cut.iter().cloned()).collect()
}

fn lost_and_back(mut world: World, set: u32, dies: Option<u32>) -> World {
    lose(&mut world, set);
    world.run_for(Micros::from_millis(700));
    if let Some(node) = dies {
        world.die(node);
    }
    world.run_for(seconds(8));
    world.kill();
    world.start();
    world.run_for(seconds(8));
    lose(&mut world, 0);
    world.run_for(seconds(15));
    world
}

fn nothing_moves(subsets: &[u32]) {
    let lit = ring().lit_circuits();
    for &set in subsets {
        let world = lost_and_back(ring(), set, None);
        assert!(world.bypassed.is_empty(), "{set:b}: {:?}", world.bypassed);
        assert_eq!((world.moves, world.lit_circuits()), (0, lit), "{set:b}");
    }
    println!(
        "{} subsets of {} modules, a restart in each: nothing moved",
        subsets.len(),
        2 * NODES
    );
}

fn what_lives_keeps_its_light(subsets: &[u32]) {
    let mut bypassed = 0;
    for &set in subsets {
        for node in 0..NODES {
            let world = lost_and_back(ring(), set, Some(node));
            let wrong = wrong(&world);
            assert!(wrong.is_empty(), "{set:b}, n{node} dies: {wrong:?}");
            bypassed += u32::from(world.is_bypassed(node));
        }
    }
    let runs = subsets.len() * NODES as usize;
    println!(
        "{runs} deaths under lost management, {bypassed} bypassed, no light of the living cut"
    );
    assert!(bypassed > 0);
}

#[test]
fn losing_management_of_any_two_modules_moves_nothing() {
    nothing_moves(&subsets(2));
}

#[test]
fn node_fault_during_lost_management_keeps_other_circuits_lit() {
    what_lives_keeps_its_light(&subsets(1));
}

#[test]
#[ignore = "takes minutes"]
fn nightly_losing_management_of_any_modules_moves_nothing() {
    nothing_moves(&subsets(12));
}

#[test]
#[ignore = "takes minutes"]
fn nightly_node_fault_during_any_lost_management_keeps_circuits_lit() {
    what_lives_keeps_its_light(&subsets(12));
}

#[test]
fn judge_detects_lost_management_treated_as_darkness() {
    let mut found = 0;
    for node in 0..NODES {
        let mut world = ring();
        world.unreachable_is_dark = true;
        let world = lost_and_back(world, 0b11 << (2 * node), None);
        found += u32::from(!wrong(&world).is_empty());
    }
    assert!(found > 0);
    println!("found at {found} of {NODES} nodes");
}
