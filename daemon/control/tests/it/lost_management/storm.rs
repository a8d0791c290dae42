// SPDX-License-Identifier: Apache-2.0
//! A random storm of lost management. Its judge uses only the true light and reachability.

use std::collections::BTreeSet;

use lightloom_control::management::DomainKind;
use lightloom_control::state::{DeviceName, Micros};
use lightloom_fabric::fault::Part;
use lightloom_units::id::NodeId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use super::world::{World, module};

const NODES: u32 = 32;
/// Time limit for the bypass of a failed node with two witnesses, without other events.
const BYPASSED_WITHIN: Micros = Micros::from_millis(50);
/// Time limit after a recently lost reply, when a hello on a fresh connection must fail first.
const BYPASSED_LATE: Micros = Micros::from_millis(100);

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) lost: u64,
    pub(super) deaths: u64,
    pub(super) deaths_at_once: u64,
    pub(super) bypassed: u64,
    pub(super) restarts: u64,
    pub(super) moves: u64,
    pub(super) suspected: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.deaths += other.deaths;
        self.deaths_at_once += other.deaths_at_once;
        self.bypassed += other.bypassed;
        self.restarts += other.restarts;
        self.moves += other.moves;
        self.suspected += other.suspected;
    }
}

struct Carriers(Vec<BTreeSet<DeviceName>>);

impl Carriers {
    fn drawn(world: &mut World, rng: &mut Stream) -> Self {
        let mut all = Vec::new();
        let of = |nodes: std::ops::Range<u32>| -> Vec<DeviceName> {
            nodes.flat_map(|node| [module(node, 0), module(node, 1)]).collect()
        };
        let width = [1, 2, 4, 8][rng.random_range(0..4)];
        let kind = [DomainKind::Agent, DomainKind::Server][usize::from(width > 1)];
        for first in (0..NODES).step_by(width) {
            let devices = of(first..(first + width as u32).min(NODES));
            world.behind(kind, &format!("c{first}"), &devices);
            all.push(devices.into_iter().collect());
        }
        if rng.random_bool(0.3) {
            for first in (0..NODES).step_by(16) {
                let devices = of(first..first + 16);
                world.behind(DomainKind::Switch, &format!("s{first}"), &devices);
                all.push(devices.into_iter().collect());
            }
        }
        Self(all)
    }

    fn share(&self, one: &DeviceName, other: &DeviceName) -> bool {
        one == other || self.0.iter().any(|all| all.contains(one) && all.contains(other))
    }
}

/// Returns the responding far ends that face this node's fibres and do not share management with
/// it, and the total number of far ends.
fn witnesses(world: &World, carriers: &Carriers, node: u32) -> (Vec<DeviceName>, usize) {
    let own = [module(node, 0), module(node, 1)];
    let far = own.iter().filter_map(|name| world.looked_into_by(name));
    let far: Vec<DeviceName> = far.collect();
    let answers = far.iter().filter(|far| world.is_reached(far));
    let apart = answers.filter(|far| !own.iter().any(|own| carriers.share(own, far)));
    (apart.cloned().collect(), far.len())
}

fn has_two(carriers: &Carriers, witnesses: &[DeviceName]) -> bool {
    witnesses
        .iter()
        .enumerate()
        .any(|(index, one)| witnesses[..index].iter().any(|other| !carriers.share(one, other)))
}

pub(super) fn storm(seed: u64) -> Counts {
    let mut rng = Seed(seed).stream("lost management", 0);
    let gpus = [96, 112, 128][rng.random_range(0..3)];
    let mut world = World::new(NODES, gpus, [8, 16][rng.random_range(0..2)]);
    let carriers = Carriers::drawn(&mut world, &mut rng);
    world.kill();
    world.start();
    world.run_for(Micros::from_secs(2));
    let mut counts = Counts::default();
    for _ in 0..rng.random_range(4..14) {
        match rng.random_range(0..10) {
            0..=3 => {
                counts.lost += 1;
                lose(&mut world, &carriers, &mut rng);
            }
            4..=5 => world.lost.clear(),
            6..=8 if world.dead.len() < 4 => {
                let node = rng.random_range(0..NODES);
                if world.dead.contains(&NodeId(node)) {
                    continue;
                }
                counts.deaths += 1;
                let (seen, _) = witnesses(&world, &carriers, node);
                let answers = [0, 1].iter().any(|bundle| world.is_reached(&module(node, *bundle)));
                let at_once = has_two(&carriers, &seen)
                    && answers
                    && !world.control.controller().transactions().is_busy()
                    && world.is_settled();
                let of_node = [0, 1].map(|bundle| module(node, bundle));
                let waits = world.may_wait_for(of_node.into_iter().chain(seen.clone()));
                world.die(node);
                if at_once {
                    world.run_for(if waits { BYPASSED_LATE } else { BYPASSED_WITHIN });
                    assert!(
                        world.is_bypassed(node),
                        "seed {seed}: n{node}, {seen:?}: {:?}",
                        world.control.not_bypassed(&world.now)
                    );
                    counts.deaths_at_once += 1;
                }
            }
            _ => {
                counts.restarts += 1;
                world.kill();
                world.run_for(Micros::from_millis(rng.random_range(1..30)));
                world.start();
            }
        }
        let wait = [2_000, 60_000, 1_000_000, 9_000_000][rng.random_range(0..4)];
        world.run_for(Micros(rng.random_range(100..wait)));
    }
    world.lost.clear();
    world.run_for(Micros::from_secs(40));
    judge(seed, &world, &carriers, &mut counts);
    counts
}

fn lose(world: &mut World, carriers: &Carriers, rng: &mut Stream) {
    match rng.random_range(0..6) {
        0 => world.lost.extend(world.stands.keys().cloned()),
        1..=3 => {
            for _ in 0..rng.random_range(1..4) {
                let index = rng.random_range(0..carriers.0.len());
                world.lost.extend(carriers.0[index].iter().cloned());
            }
        }
        _ => {
            let share = rng.random::<f64>();
            let names: Vec<DeviceName> = world.stands.keys().cloned().collect();
            world.lost.extend(names.into_iter().filter(|_| rng.random_bool(share)));
        }
    }
}

fn judge(seed: u64, world: &World, carriers: &Carriers, counts: &mut Counts) {
    assert!(world.wrongly_cut.is_empty(), "seed {seed}: {:?}", world.wrongly_cut);
    for (part, broken) in world.control.facts().failed_parts() {
        let node = part.parse::<Part>().unwrap().node().unwrap();
        let works = !world.dead.contains(&node);
        // A fibre becomes a suspect if a bypass failed there because of a late reply.
        let suspect = broken.why.is_empty() || broken.why.starts_with("suspect: ");
        if works && suspect && part.contains('.') {
            counts.suspected += 1;
            continue;
        }
        assert!(!works, "seed {seed}: {part} works: {}", broken.why);
    }
    for node in &world.dead {
        let (seen, circuits) = witnesses(world, carriers, node.0);
        let is_missed = has_two(carriers, &seen) || (circuits == 1 && seen.len() == 1);
        let why = world.control.not_bypassed(&world.now);
        assert!(!is_missed, "seed {seed}: {node} is dead, {seen:?} see it: {why:?}");
        counts.bypassed += u64::from(world.is_bypassed(node.0));
    }
    counts.moves += world.moves;
}
