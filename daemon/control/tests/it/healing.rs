// SPDX-License-Identifier: Apache-2.0
//! Rings return to the applied plan after repairs, if the policy and their jobs allow it.

use std::collections::BTreeSet;

use lightloom_control::policy::HealPolicy;
use lightloom_control::record::{Asked, Cause, Record, TxnResult};
use lightloom_control::replan::sha256_of;
use lightloom_control::state::{Micros, Position, Slot};
use lightloom_fabric::fault::Part;
use lightloom_units::id::NodeId;

use crate::lost_management::world::{SLOT, World};

fn policy(jobs: &[&str], hours: Option<[u64; 2]>) -> Option<HealPolicy> {
    let jobs = jobs.iter().map(|job| (*job).to_owned()).collect();
    Some(HealPolicy { jobs, hours })
}

type Placed = (Vec<Vec<NodeId>>, Vec<Position>);

/// Returns the nodes of the job's groups, and all positions.
fn placed(world: &World) -> Placed {
    let groups = &world.control.plan().unwrap().groups;
    let own = groups.iter().filter(|group| group.job.is_some());
    (own.map(|group| group.nodes.clone()).collect(), world.stands.values().copied().collect())
}

/// Returns a ring of 26 nodes, of which a job uses 24, with the faults of two nodes bypassed.
fn bypassed(heal: Option<HealPolicy>) -> (World, [u32; 2], Placed) {
    let mut world = World::new(26, 96, 16);
    world.setup.heal = heal;
    world.kill();
    world.start();
    world.run_for(Micros::from_secs(5));
    let planned = placed(&world);
    let nodes = [planned.0[0][0].0, planned.0[5][1].0];
    for node in nodes {
        world.die(node);
        world.run_for(Micros::from_secs(10));
        assert!(world.is_bypassed(node), "n{node}");
    }
    (world, nodes, planned)
}

fn repair(world: &mut World, nodes: &[u32]) {
    for node in nodes {
        world.dead.remove(&NodeId(*node));
        world.light_changed();
        world.run_for(Micros::from_secs(20));
        world.repaired(Part::Node(NodeId(*node)));
        world.run_for(Micros::from_secs(10));
    }
}

#[test]
fn nothing_moves_back_while_the_policy_is_off() {
    let (mut world, nodes, planned) = bypassed(None);
    repair(&mut world, &nodes);
    let (stood, moves) = (placed(&world), world.moves);
    pass_hours(&mut world, 2);
    assert!(placed(&world) == stood && world.moves == moves);
    assert!(stood.0 != planned.0 && stood.1 != planned.1);
    assert!(world.healed.is_empty());
}

#[test]
fn rings_of_a_consenting_job_return_to_the_planned_circuits() {
    let (mut world, nodes, planned) = bypassed(policy(&["pretrain"], None));
    let before = world.control.applied().map(sha256_of);
    repair(&mut world, &nodes[..1]);
    repair(&mut world, &nodes[1..]);
    assert_eq!(placed(&world), planned);
    let ledger = world.control.ledger();
    assert_eq!(Some(&ledger.plan_sha256), before.as_ref());
    assert!(ledger.failed.is_empty() && world.control.applied().is_none());
    let healed: BTreeSet<&String> = world.healed.iter().flat_map(|one| &one.healed).collect();
    println!("{:?}", world.healed);
    assert!(healed.iter().all(|group| group.ends_with(" of pretrain")) && healed.len() >= 2);
    assert!(world.healed.last().unwrap().left.is_empty());
    let own = ledger.history.iter().filter(|past| past.actor == "policy:heal");
    let own: Vec<_> = own.map(|past| (past.cause.clone(), past.result)).collect();
    assert!(!own.is_empty() && own.iter().all(|own| *own == (Cause::Repair, TxnResult::Committed)));
    let spent = world.control.controller().budget().spent(&world.now);
    assert_eq!(spent, own.len() + 2, "two bypasses, and each healing");
}

#[test]
fn rings_of_a_running_job_stay() {
    let (mut world, nodes, planned) = bypassed(policy(&[], None));
    repair(&mut world, &nodes);
    let moves = world.moves;
    pass_hours(&mut world, 2);
    assert_eq!(world.moves, moves, "no circuit moved");
    assert_ne!(placed(&world), planned);
    let last = world.healed.last().unwrap();
    assert!(last.healed.is_empty() && last.left.len() >= 2, "{last:?}");
    assert!(last.left.iter().all(|group| group.ends_with(" of pretrain")), "{last:?}");
}

#[test]
fn rings_move_only_in_the_hours_of_the_policy() {
    // The world starts at 08:00 UTC.
    let (mut world, nodes, planned) = bypassed(policy(&["pretrain"], Some([10, 11])));
    repair(&mut world, &nodes);
    assert!(world.healed.is_empty() && placed(&world) != planned);
    pass_hours(&mut world, 2);
    assert_eq!(placed(&world), planned);
}

#[test]
fn drained_job_is_healed_without_consent() {
    let (mut world, nodes, planned) = bypassed(policy(&[], None));
    repair(&mut world, &nodes);
    assert_ne!(placed(&world), planned);
    for (device, of) in &mut world.inventory.devices {
        of.levers.insert(SLOT, ("leaf0".into(), Slot(device.as_str().len() as u32)));
    }
    let drained = world.inventory.devices.values().map(|of| of.levers[&SLOT].clone()).collect();
    let asked = Asked { actor: "alice".into(), request: "drain".into(), digest: String::new() };
    world.records.push(Record::Held { asked, levers: drained, drained: true, wall_ms: 1 });
    world.kill();
    world.start();
    world.run_for(Micros::from_secs(10));
    // The Linux switch is not part of this world, so the change itself cannot complete.
    let last = world.healed.last().unwrap();
    assert!(last.healed.len() >= 2 && last.left.is_empty(), "{last:?}");
}

fn pass_hours(world: &mut World, hours: u64) {
    for _ in 0..hours {
        world.now.wall_ms += 3_600_000;
        world.run_for(Micros::from_secs(10));
    }
}
