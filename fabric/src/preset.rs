// SPDX-License-Identifier: Apache-2.0
//! Starter fabric files that are commented and ready to be loaded and planned.

use std::fmt::Write as _;

/// Design of a new fabric file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Rings of transceivers with an integrated optical switch, under a packet network.
    Khop,
    /// Switch domains under a network of packet switches and optical switches.
    ReconfigurableFatTree,
    /// Rings under a network whose circuits follow the phases of the job.
    Pod,
    /// Switch domains under a fat-tree of packet switches.
    SwitchDomain,
    /// Switch domains under rail switches.
    Rails,
}

/// Cluster size and job size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// GPUs of the cluster.
    pub gpus: u32,
    /// GPUs per tensor-parallel group. `None` selects a size that suits the preset.
    pub tp: Option<u32>,
}

/// A size that the preset does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(String);

const RING_NODE: u32 = 4;
const DOMAIN_NODE: u32 = 8;
/// Largest port count of optical switches on the market. Larger clusters get larger leaves.
const MOST_LEAVES: u32 = 256;
const MOST_GPUS: u32 = 4_000_000;

impl Preset {
    /// Every preset with its name and description.
    pub const ALL: [(Self, &str, &str); 5] = [
        (Self::Khop, "khop", "rings of transceivers with an optical switch inside"),
        (Self::ReconfigurableFatTree, "rfabric", "optical switches that rewire the upper layers"),
        (Self::Pod, "pod", "rings below optical switches, planned together"),
        (Self::SwitchDomain, "dgx", "switch domains of 8 GPUs below a fat-tree"),
        (Self::Rails, "rails", "switch domains of 8 GPUs below rail switches"),
    ];

    /// Returns the preset with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| *known == name).map(|(preset, ..)| preset)
    }

    /// Returns a commented fabric file.
    ///
    /// # Errors
    /// Fails if the preset does not support this size. The error suggests the nearest supported size.
    pub fn file(self, size: Size) -> Result<String, Misfit> {
        if size.gpus > MOST_GPUS {
            return Err(Misfit(format!(
                "{} GPUs are too many: use at most {MOST_GPUS}",
                size.gpus
            )));
        }
        match self {
            Self::Khop => khop(size),
            Self::Pod => pod(size),
            Self::ReconfigurableFatTree => reconfigurable(size),
            Self::SwitchDomain => {
                let dcn = "# Packet switches in two or three tiers. Oversubscription: downlink over uplink bandwidth.\n\
                           dcn: {fat_tree: {nodes_per_tor: 4, oversubscription: 1, link_rate: 400Gbps}}\n";
                domain("dgx", size, dcn)
            }
            Self::Rails => {
                let dcn = "# A leaf for each GPU of a node: GPU i of 32 nodes is below leaf i, in every plane.\n\
                           dcn: {rails: {nodes_per_group: 32, planes: 1, link_rate: 400Gbps}}\n";
                domain("rails", size, dcn)
            }
        }
    }
}

fn head(text: &mut String, name: &str, gpus: u32, about: &str) {
    let _ = write!(
        text,
        "# {about}\n# Check it with `lightloom validate`, plan it with `lightloom plan`; every key: docs/fabric-file.md.\n\
         kind: fabric\nversion: 2\nname: {name}-{gpus}\n"
    );
}

fn whole(gpus: u32, unit: u32, least: u32, what: &str) -> Result<u32, Misfit> {
    if gpus.is_multiple_of(unit) && gpus / unit >= least {
        return Ok(gpus / unit);
    }
    let nearest = (gpus / unit).max(least) * unit;
    let above = if nearest < gpus { format!(" or {}", nearest + unit) } else { String::new() };
    Err(Misfit(format!(
        "{gpus} GPUs are not a whole number of {what} of {unit} GPUs, at least {least}: use \
            {nearest}{above}"
    )))
}

fn job_of(gpus: u32, group: u32) -> Result<u32, Misfit> {
    let spare = gpus - gpus / 16;
    match spare / group * group {
        0 if gpus >= group => Ok(gpus / group * group),
        0 => Err(Misfit(format!(
            "a group has {group} GPUs, but the cluster has only {gpus}: use a smaller tp"
        ))),
        used => Ok(used),
    }
}

fn group(size: Size, node: u32) -> Result<u32, Misfit> {
    let tp = size.tp.unwrap_or(if size.gpus >= 128 { 32 } else { 2 * node });
    let fits = tp > 0 && (tp.is_multiple_of(node) || node.is_multiple_of(tp));
    if fits {
        Ok(tp)
    } else {
        Err(Misfit(format!(
            "tp {tp} is neither a multiple nor a divisor of the {node} GPUs of a node: use {}",
            tp.div_ceil(node).max(1) * node
        )))
    }
}

fn khop(size: Size) -> Result<String, Misfit> {
    let nodes = whole(size.gpus, RING_NODE, 8, "nodes")?;
    let tp = group(size, RING_NODE)?;
    let used = job_of(size.gpus, tp)?;
    let mut text = String::new();
    head(
        &mut text,
        "khop",
        size.gpus,
        "GPUs in rings of transceivers with an optical switch inside.",
    );
    let _ = write!(
        text,
        "# Each node is cabled to the k nearest nodes on either side: a ring bypasses k - 1 failed nodes in a row.\n\
         # shape: ring connects the last nodes to the first; line leaves the ends open.\n\
         hbd:\n  khop: {{nodes: {nodes}, gpus_per_node: {RING_NODE}, k: 3, shape: ring, edge_rate: 3.2Tbps}}\n\
         # Other traffic uses a fat-tree of packet switches above the rings.\n\
         dcn: {{fat_tree: {{nodes_per_tor: 4, oversubscription: 1, link_rate: 400Gbps}}}}\n\
         # Times of a transceiver's optical switch (the range is published; the software delay is an assumption: measure yours).\n\
         transceiver: {{switch_min: 60us, switch_max: 80us, software_delay: 1ms}}\n\
         # {}\n\
         jobs:\n  - {{name: pretrain, gpus: {used}, tp: {tp}}}\n",
        spares(used, size.gpus)
    );
    Ok(text)
}

fn spares(used: u32, gpus: u32) -> String {
    match gpus - used {
        0 => format!("The job takes all {gpus} GPUs, so there are no spares."),
        left => format!("The job takes {used} of {gpus} GPUs; the other {left} are spares."),
    }
}

fn leaves(gpus: u32, unit: u32) -> Result<(u32, u32), Misfit> {
    let mut per_leaf = 32;
    while gpus / per_leaf > MOST_LEAVES {
        per_leaf *= 2;
    }
    debug_assert!(per_leaf % unit == 0, "leaves hold whole nodes");
    Ok((whole(gpus, per_leaf, 4, "leaves")?, per_leaf))
}

fn circuits(text: &mut String, leaves: u32, per_leaf: u32) {
    // A leaf has as many optical ports as GPUs, so the upper layers are not oversubscribed.
    let switches = per_leaf / 2;
    let rate = u64::from(per_leaf) * 400;
    let _ = write!(
        text,
        "# Leaves are connected by a thin packet core and by optical switches, whose circuits \
         follow the phases of the step.\n\
         dcn:\n  reconfigurable_fat_tree:\n    leaves: {leaves}\n    gpus_per_leaf: {per_leaf}\n    circuit_rate: 400Gbps\n\
         \x20   # The packet core: an eighth of the rate of the GPUs below a leaf.\n\
         \x20   electrical: {{rate_per_leaf: {rate}Gbps, oversubscription: 8}}\n\
         \x20   # Optical switches: a leaf has two ports on each, one in each direction around the ring of leaves.\n\
         \x20   banks:\n      - {{name: core, switches: {switches}, ports_per_switch: {}, ports_per_leaf: 2, insertion_loss_db: 2.0}}\n\
         \x20   # Duration of a change: software, then mirrors. Each stage of a change affects one failure domain.\n\
         \x20   timing: {{control: 1ms, switching: 10ms}}\n    failure_domains: 4\n",
        2 * leaves
    );
}

fn training(text: &mut String, gpus: u32, tp: u32) -> Result<(), Misfit> {
    let pp = if gpus / 16 * 15 >= 8 * tp { 4 } else { 1 };
    let used = job_of(gpus, tp * pp)?;
    let _ = write!(
        text,
        "# {used} of {gpus} GPUs: tensor-parallel groups of {tp}, {pp} pipeline stages, {} replicas; the others are spares.\n\
         jobs:\n  - name: pretrain\n    gpus: {used}\n    tp: {tp}\n    step:\n      training:\n        model: llama-3.1-70b\n\
         \x20       pp: {pp}\n        dp: {}\n        micro_batches: 16\n        tokens: 4096\n\
         \x20       # Idle network time before gradients are summed: circuit changes during this time cost nothing.\n\
         \x20       gradient_slack: 60ms\n",
        used / tp / pp,
        used / tp / pp
    );
    Ok(())
}

fn pod(size: Size) -> Result<String, Misfit> {
    let (leaves, per_leaf) = leaves(size.gpus, RING_NODE)?;
    let tp = group(size, RING_NODE)?;
    let mut text = String::new();
    head(
        &mut text,
        "pod",
        size.gpus,
        "Rings carry tensor parallelism; circuits above them carry the rest.",
    );
    let _ = write!(
        text,
        "# Each node is cabled to the k nearest nodes on either side.\n\
         hbd:\n  khop: {{nodes: {}, gpus_per_node: {RING_NODE}, k: 3}}\n",
        size.gpus / RING_NODE
    );
    circuits(&mut text, leaves, per_leaf);
    training(&mut text, size.gpus, tp)?;
    Ok(text)
}

fn reconfigurable(size: Size) -> Result<String, Misfit> {
    let (leaves, per_leaf) = leaves(size.gpus, DOMAIN_NODE)?;
    let tp = size.tp.unwrap_or(DOMAIN_NODE);
    let mut text = String::new();
    head(
        &mut text,
        "rfabric",
        size.gpus,
        "Switch domains of 8 GPUs below a network that rewires itself for each phase.",
    );
    domains(&mut text, size.gpus / DOMAIN_NODE);
    circuits(&mut text, leaves, per_leaf);
    within_domain(tp)?;
    training(&mut text, size.gpus, tp)?;
    Ok(text)
}

fn domains(text: &mut String, nodes: u32) {
    let _ = write!(
        text,
        "# The GPUs of a node reach each other through a switch.\n\
         hbd: {{switch: {{nodes: {nodes}, gpus_per_node: {DOMAIN_NODE}, gpus: {DOMAIN_NODE}, edge_rate: 3.6Tbps}}}}\n"
    );
}

fn within_domain(tp: u32) -> Result<(), Misfit> {
    if tp > 0 && DOMAIN_NODE.is_multiple_of(tp) {
        return Ok(());
    }
    Err(Misfit(format!(
        "tp {tp} does not divide a switch domain of {DOMAIN_NODE} GPUs: use 1, 2, 4 or 8"
    )))
}

fn domain(name: &str, size: Size, dcn: &str) -> Result<String, Misfit> {
    let nodes = whole(size.gpus, DOMAIN_NODE, 4, "nodes")?;
    let tp = size.tp.unwrap_or(DOMAIN_NODE);
    within_domain(tp)?;
    let used = job_of(size.gpus, tp)?;
    let mut text = String::new();
    head(&mut text, name, size.gpus, "Switch domains of 8 GPUs below packet switches.");
    domains(&mut text, nodes);
    text.push_str(dcn);
    let _ = write!(
        text,
        "# {}\n\
         jobs:\n  - {{name: pretrain, gpus: {used}, tp: {tp}}}\n",
        spares(used, size.gpus)
    );
    Ok(text)
}
