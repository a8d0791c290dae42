// SPDX-License-Identifier: Apache-2.0
//! Random tests in which operators also change Slurm, faults appear and are repaired, and the
//! controller crashes between any two commands. Operators' drains must remain, rings with faults
//! must not receive jobs, and a second pass must not change anything.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use super::agree;
use super::agree::{Desired, NodeState, Observed, SchedulerCommand, changes, objection};

const NODES: usize = 12;
const OPERATORS: &str = "operator: fan";

fn host(number: usize) -> String {
    format!("n{number}")
}

#[derive(Clone, Default)]
struct FakeSlurm {
    now: Observed,
    left: usize,
    commands: usize,
}

impl FakeSlurm {
    fn pass(&mut self, desired: &Desired) -> anyhow::Result<Option<String>> {
        let slurm = RefCell::new(self);
        let change = |command: &_| slurm.borrow_mut().change(command, desired);
        agree(desired, || Ok(slurm.borrow().now.clone()), change)
    }

    fn change(&mut self, command: &SchedulerCommand, desired: &Desired) -> anyhow::Result<()> {
        if self.left == 0 {
            bail!("killed");
        }
        self.left -= 1;
        self.commands += 1;
        let mut set = |nodes: &[String], set: &dyn Fn(&mut NodeState)| {
            for node in nodes {
                set(self.now.nodes.get_mut(node).expect("a node of Slurm"));
            }
        };
        match command {
            SchedulerCommand::Drain { nodes, reason } => set(nodes, &|node| {
                (node.is_drained, node.reason) = (true, reason.clone());
            }),
            SchedulerCommand::Explain { nodes, reason } => {
                set(nodes, &|node| node.reason.clone_from(reason))
            }
            SchedulerCommand::Resume { nodes } => set(nodes, &|node| {
                (node.is_drained, node.reason) = (false, String::new());
            }),
            SchedulerCommand::Load { .. } => self.now.rings = desired.rings.clone(),
        }
        Ok(())
    }
}

fn planned(broken: &BTreeSet<usize>, digest: u64) -> Desired {
    let working: Vec<String> = (0..NODES).filter(|node| !broken.contains(node)).map(host).collect();
    let chunks = working.chunks_exact(3);
    let rest = chunks.remainder().to_vec();
    let rings = chunks
        .enumerate()
        .map(|(ring, nodes)| (format!("g{ring}"), nodes.iter().cloned().collect()));
    let reason = |why: &str| format!("lightloom: {why}, plan {digest}");
    let drained = broken.iter().map(|node| (host(*node), reason("broken")));
    let idle = rest.into_iter().map(|node| (node, reason("in no ring")));
    Desired {
        hosts: (0..NODES).map(host).collect(),
        rings: rings.collect(),
        topology: digest.to_string(),
        drained: drained.chain(idle).collect(),
    }
}

fn meddle(rng: &mut Stream, slurm: &mut FakeSlurm) {
    let number = rng.random_range(0..NODES + 2);
    let node = slurm.now.nodes.get_mut(&host(number)).expect("a node of Slurm");
    *node = match rng.random_range(0..4) {
        0 => NodeState { is_drained: true, is_down: false, reason: OPERATORS.into() },
        1 => NodeState { is_drained: false, is_down: true, reason: OPERATORS.into() },
        2 => NodeState {
            is_drained: node.is_drained,
            is_down: true,
            reason: "Not responding".into(),
        },
        _ => NodeState::default(),
    };
}

fn held(slurm: &FakeSlurm) -> BTreeMap<String, NodeState> {
    let theirs = slurm.now.nodes.iter().filter(|(_, node)| {
        node.reason == OPERATORS || node.is_drained && node.reason == "Not responding"
    });
    theirs.map(|(name, node)| (name.clone(), node.clone())).collect()
}

fn world(seed: u64) {
    let mut rng = Seed(seed).stream("slurm", 0);
    let mut slurm = FakeSlurm::default();
    slurm.now.nodes = (0..NODES + 2).map(|node| (host(node), NodeState::default())).collect();
    let mut broken = BTreeSet::new();
    for round in 0..12_u64 {
        let node = rng.random_range(0..NODES);
        if !broken.remove(&node) {
            broken.insert(node);
        }
        for _ in 0..rng.random_range(0..3) {
            meddle(&mut rng, &mut slurm);
        }
        let theirs = held(&slurm);
        let desired = planned(&broken, round);
        slurm.left = rng.random_range(0..5);
        let _ = slurm.pass(&desired);
        slurm.left = usize::MAX;
        let left = slurm.pass(&desired).expect("Slurm answers");
        assert_eq!(left, None, "seed {seed}, round {round}");
        assert_eq!(held(&slurm), theirs, "seed {seed}, round {round}: operators' drains");
        assert_eq!(slurm.now.rings, desired.rings, "seed {seed}, round {round}");
        for (name, node) in &slurm.now.nodes {
            let is_usable = !node.is_drained && !node.is_down;
            let may_be = desired.hosts.contains(name) && desired.drained.contains_key(name);
            assert!(
                !(may_be && is_usable),
                "seed {seed}, round {round}: a job may start on {name}"
            );
            let is_ours = node.is_drained && node.reason.starts_with("lightloom: ");
            assert!(
                !is_ours || may_be,
                "seed {seed}, round {round}: {name} is drained without a reason"
            );
        }
        let before = slurm.commands;
        slurm.pass(&desired).expect("Slurm answers");
        assert_eq!(
            slurm.commands, before,
            "seed {seed}, round {round}: a second pass changed Slurm"
        );
    }
}

#[test]
fn slurm_agrees_despite_controller_crashes_and_operators() {
    for seed in 0..lightloom_testkit::cases(500, 20_000) {
        world(seed);
    }
}

/// If the plan contains a node that Slurm does not know, nodes must not be resumed.
#[test]
fn resumes_nodes_after_the_topology_if_slurm_knows_all() {
    let (before, after) = (planned(&BTreeSet::from([0]), 1), planned(&BTreeSet::new(), 2));
    let mut slurm = FakeSlurm { left: usize::MAX, ..FakeSlurm::default() };
    slurm.now.nodes = (0..NODES).map(|node| (host(node), NodeState::default())).collect();
    slurm.pass(&before).unwrap();
    assert!(slurm.now.nodes["n0"].is_drained && slurm.now.nodes["n10"].is_drained);
    let found = changes(&after, &slurm.now).commands;
    assert_eq!(found, [SchedulerCommand::Load { rings: 4 }]);
    let mut seen = Vec::new();
    let slurm_now = RefCell::new(&mut slurm);
    agree(
        &after,
        || Ok(slurm_now.borrow().now.clone()),
        |command| {
            seen.push(command.clone());
            slurm_now.borrow_mut().change(command, &after)
        },
    )
    .unwrap();
    assert!(
        matches!(&seen[..], [SchedulerCommand::Load { .. }, SchedulerCommand::Resume { .. }]),
        "{seen:?}"
    );

    slurm.now.nodes.remove("n3");
    let found = changes(&before, &slurm.now);
    assert!(found.blocked.unwrap().contains("such as n3"));
    assert!(found.commands.iter().all(|command| matches!(command, SchedulerCommand::Drain { .. })));
}

#[test]
fn job_starts_on_whole_rings_or_inside_one() {
    let desired = planned(&BTreeSet::from([0]), 1);
    let may = |numbers: &[usize]| objection(&desired, &numbers.iter().copied().map(host).collect());
    assert_eq!(may(&[1, 2, 3, 4, 5, 6]), None);
    assert_eq!(may(&[2]), None);
    assert_eq!(may(&[3, 4, 5]), Some("the job uses only part of ring g0".into()));
    assert_eq!(may(&[0, 1, 2]), Some("n0: lightloom: broken, plan 1".into()));
    assert_eq!(may(&[10, 11]), Some("n10: lightloom: in no ring, plan 1".into()));
}

#[test]
fn topology_that_slurm_ignores_is_an_error() {
    let nodes = (0..NODES).map(|node| (host(node), NodeState::default())).collect();
    let now = Observed { nodes, ..Observed::default() };
    let why = agree(&planned(&BTreeSet::new(), 1), || Ok(now.clone()), |_| Ok(())).unwrap_err();
    assert!(why.to_string().contains("TopologyPlugin=topology/tree"), "{why}");
}
