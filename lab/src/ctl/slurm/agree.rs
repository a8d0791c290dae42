// SPDX-License-Identifier: Apache-2.0
//! Computes the changes that bring Slurm into agreement with the plan, without I/O.
//!
//! ```text
//! plan + faults ─▶ Desired ─┐
//!                           ├─▶ commands: drain ─▶ load the topology ─▶ (once it is loaded) resume
//! scontrol show ─▶ Observed ┘
//! ```
//!
//! Drains by operators or other programs remain, even if they contradict the plan. The reason of a
//! drained node identifies who drained it.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_daemon_api::status::BrokenPart;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_report::export::{ExportFormat, ExportNames, RingPlan, Seat};
use lightloom_units::id::BundleId;
use serde::Serialize;

use super::read::rings;

pub(super) const OURS: &str = "lightloom: ";
/// Reason that slurmctld sets for unresponsive nodes.
const SLURMS_OWN: &str = "Not responding";
/// Limits the length of a command line.
const NODES_MAX: usize = 1_000;
const DIGITS: usize = 12;

pub(crate) type Rings = BTreeMap<String, BTreeSet<String>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Desired {
    pub(super) hosts: BTreeSet<String>,
    pub(super) rings: Rings,
    pub(super) topology: String,
    pub(super) drained: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) nodes: BTreeMap<String, NodeState>,
    pub(super) rings: Rings,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) is_drained: bool,
    pub(crate) is_down: bool,
    pub(crate) reason: String,
}

impl NodeState {
    fn is_drained_by_us(&self) -> bool {
        self.is_drained && self.reason.starts_with(OURS)
    }

    fn is_held_by_another(&self) -> bool {
        let ours = self.reason.starts_with(OURS);
        let is_explained = !self.reason.is_empty() && self.reason != SLURMS_OWN;
        !ours && (self.is_drained || self.is_down && is_explained)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "did", rename_all = "kebab-case")]
pub(super) enum SchedulerCommand {
    Drain { nodes: Vec<String>, reason: String },
    Explain { nodes: Vec<String>, reason: String },
    Load { rings: usize },
    Resume { nodes: Vec<String> },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SchedulerChanges {
    pub(super) commands: Vec<SchedulerCommand>,
    pub(super) blocked: Option<String>,
}

/// Nodes are resumed only after the topology is loaded.
pub(super) fn changes(desired: &Desired, observed: &Observed) -> SchedulerChanges {
    let (mut drain, mut explain) = (BTreeMap::new(), BTreeMap::new());
    for (host, reason) in &desired.drained {
        let Some(node) = observed.nodes.get(host).filter(|node| !node.is_held_by_another()) else {
            continue;
        };
        let list: &mut BTreeMap<&str, Vec<String>> = match node.is_drained {
            true if node.reason == *reason => continue,
            true => &mut explain,
            false => &mut drain,
        };
        list.entry(reason).or_default().push(host.clone());
    }
    let mut commands = by_reason(drain, |nodes, reason| SchedulerCommand::Drain { nodes, reason });
    commands
        .extend(by_reason(explain, |nodes, reason| SchedulerCommand::Explain { nodes, reason }));
    let hosts = desired.rings.values().flatten();
    let unknown: Vec<&str> =
        hosts.filter(|host| !observed.nodes.contains_key(*host)).map(String::as_str).collect();
    if let Some(first) = unknown.first() {
        // slurmctld exits if its topology names an unknown node.
        let count = unknown.len();
        let why = format!(
            "the scheduler does not know {count} nodes of the plan, such as {first}: set their \
                names with --hostname or --hostnames"
        );
        return SchedulerChanges { commands, blocked: Some(why) };
    }
    if observed.rings != desired.rings {
        commands.push(SchedulerCommand::Load { rings: desired.rings.len() });
        return SchedulerChanges { commands, blocked: None };
    }
    let back = observed.nodes.iter().filter(|(host, node)| {
        node.is_drained_by_us()
            && desired.hosts.contains(*host)
            && !desired.drained.contains_key(*host)
    });
    let back: Vec<String> = back.map(|(host, _)| host.clone()).collect();
    commands.extend(
        back.chunks(NODES_MAX).map(|nodes| SchedulerCommand::Resume { nodes: nodes.to_vec() }),
    );
    SchedulerChanges { commands, blocked: None }
}

fn by_reason(
    all: BTreeMap<&str, Vec<String>>,
    command: impl Fn(Vec<String>, String) -> SchedulerCommand,
) -> Vec<SchedulerCommand> {
    let each = all.into_iter().flat_map(|(reason, nodes)| {
        nodes
            .chunks(NODES_MAX)
            .map(|nodes| command(nodes.to_vec(), reason.to_owned()))
            .collect::<Vec<_>>()
    });
    each.collect()
}

pub(super) fn objection(desired: &Desired, job: &BTreeSet<String>) -> Option<String> {
    if let Some((host, why)) = job.iter().find_map(|host| desired.drained.get_key_value(host)) {
        return Some(format!("{host}: {why}"));
    }
    let rings = desired.rings.iter().filter(|(_, hosts)| !hosts.is_disjoint(job));
    let parted = rings.clone().find(|(_, hosts)| !hosts.is_subset(job));
    parted
        .filter(|_| rings.count() > 1)
        .map(|(ring, _)| format!("the job uses only part of ring {ring}"))
}

pub(crate) fn short(digest: &str) -> &str {
    digest.get(..DIGITS).unwrap_or(digest)
}

/// Returns the desired state: each ring is a leaf switch, and failed nodes, nodes outside rings,
/// and nodes of rings with a fault that is not bypassed yet are drained.
pub(super) fn desired(
    fabric: &Fabric,
    plan: &Plan,
    digest: &str,
    names: &ExportNames,
    broken: &[BrokenPart],
) -> anyhow::Result<Desired> {
    let of = RingPlan::new(fabric, plan, names, None)?;
    let tree = ExportFormat::named("slurm-tree").expect("a format that the report knows");
    let export = tree.of_ring(&of)?;
    let text: String = export.files.into_iter().map(|file| file.text).collect();
    let mut drained = BTreeMap::new();
    let bypassed = broken.iter().filter_map(|part| part.part.parse::<Part>().ok());
    let parts: BTreeSet<Part> = plan.faults.iter().copied().chain(bypassed).collect();
    for node in of.nodes() {
        let mut bundles = (0..fabric.hbd.k()).map(|bundle| Part::Bundle(BundleId { node, bundle }));
        let is_dead = fabric.hbd.k() > 0 && bundles.all(|bundle| parts.contains(&bundle));
        match of.seat(node) {
            Seat::Idle if is_dead => drained.insert(of.name(node).to_owned(), "broken".to_owned()),
            Seat::Broken => drained.insert(of.name(node).to_owned(), "broken".to_owned()),
            Seat::Idle => drained.insert(of.name(node).to_owned(), "in no ring".to_owned()),
            Seat::Ring { .. } | Seat::Inside { .. } => None,
        };
    }
    let rings = rings(&text);
    for part in broken.iter().filter(|part| !part.bypassed) {
        let Ok(parsed) = part.part.parse::<Part>() else { continue };
        let Some(node) = parsed.node().filter(|node| node.0 < fabric.hbd.nodes()) else { continue };
        let host = of.name(node);
        for (ring, hosts) in rings.iter().filter(|(_, hosts)| hosts.contains(host)) {
            let why = format!("ring {ring} has a fault");
            drained.extend(hosts.iter().map(|host| (host.clone(), why.clone())));
        }
        if matches!(parsed, Part::Node(_)) {
            drained.insert(host.to_owned(), "broken".to_owned());
        }
    }
    let hosts = of.nodes().map(|node| of.name(node).to_owned()).collect();
    let why = drained.into_iter();
    let drained = why.map(|(host, why)| (host, format!("{OURS}{why}, plan {}", short(digest))));
    let (drained, topology) = (drained.collect(), format!("# plan {digest}\n{text}"));
    Ok(Desired { hosts, rings, topology, drained })
}
