// SPDX-License-Identifier: Apache-2.0
//! Converts a fabric file to a fabric, with all checks that involve more than one key.

use std::collections::BTreeSet;

use super::codes;
use super::direct::{self, Direct};
use super::explicit;
use super::idle;
use super::jobs::{Sizes, check_limits, lower_jobs};
use super::network;
use super::optics::{self, OpticsFile};
use super::raw::{
    DcnFile, FabricFile, HbdFile, IslandsFile, KhopFile, LeafSpineFile, StartFile, TransceiverFile,
};
use super::step::StepFile;
use crate::dcn::{Dcn, FatTree, Order, Rails};
use crate::document::{self, Check};
use crate::fabric::{Fabric, HbdLinks, Job, Transceiver};
use crate::fat_tree::ReconfigurableFatTree;
use crate::fault::{FaultSet, Part};
use crate::hbd::{Hbd, Islands};
use crate::khop::{Fibre, KhopError, KhopRing, MAX_GPUS_PER_NODE, MAX_NODES, Shape};
use lightloom_units::id::NodeId;
use lightloom_units::{BitsPerSecond, Picoseconds};

pub(super) fn require_version(raw: &FabricFile, check: &mut Check<'_>) {
    if raw.kind.is_some() && raw.version.is_some() {
        return;
    }
    check
        .error(codes::NO_VERSION, "/name", "the file does not state its kind and version")
        .help("add the lines `kind: fabric` and `version: 2`")
        .depends_on("/kind")
        .depends_on("/version");
}

pub(super) fn lower(
    raw: FabricFile,
    sha256: String,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    check: &mut Check<'_>,
) -> Option<Fabric> {
    idle::refuse(&raw, check);
    let network = lower_network(&raw.dcn, check);
    let transceiver = lower_transceiver(&raw.transceiver, check);
    let domain = domain(&raw, check);
    let sizes = Sizes::of(&raw);
    let jobs = lower_jobs(&raw.jobs, &sizes, check);
    let files = jobs.iter().filter_map(|job| job.step.as_ref()).flat_map(|step| step.files());
    let files = files.map(|name| (name.to_owned(), read(name))).collect();
    let (domain, network) = (domain?, network?);
    let dcn = network.above(&domain.hbd, &sizes, check)?;
    refuse_empty_leaves(&dcn, &domain.hbd, &jobs, check);
    let mut fabric = Fabric {
        name: raw.name,
        sha256,
        hbd: domain.hbd,
        spare_per_ring: domain.spare_per_ring,
        hbd_links: domain.links,
        dcn,
        order: domain.order,
        transceiver,
        jobs,
        start: FaultSet::none(),
        drained: FaultSet::none(),
        absent: BTreeSet::new(),
        floor: raw.planning.floor,
        files,
    };
    take_out_of_service(&mut fabric, &raw.start, check);
    check_limits(&fabric, check);
    Some(fabric)
}

fn take_out_of_service(fabric: &mut Fabric, raw: &StartFile, check: &mut Check<'_>) {
    let (mut all, mut drained) = (FaultSet::none(), FaultSet::none());
    let absent: Vec<Part> = raw.absent.iter().copied().map(Part::Node).collect();
    let lists = [("failed", &raw.failed), ("drained", &raw.drained), ("absent", &absent)];
    for (key, parts) in lists {
        for (index, part) in parts.iter().enumerate() {
            let path = format!("/start/{key}/{index}");
            if key == "drained" {
                let _ = drained.insert(fabric, *part);
            }
            match all.insert(fabric, *part) {
                Err(error) => {
                    check.error(document::codes::BAD_VALUE, &path, error.to_string());
                }
                Ok(false) => {
                    let message = format!("{part} is listed twice");
                    check
                        .error(document::codes::BAD_VALUE, &path, message)
                        .help("list each part once");
                }
                Ok(true) => {}
            }
        }
    }
    (fabric.start, fabric.drained) = (all, drained);
    fabric.absent = raw.absent.iter().copied().collect();
    if fabric.installed().next().is_none() {
        check
            .error(document::codes::BAD_VALUE, "/start/absent", "no node is installed")
            .help("list only empty slots");
    }
}

struct Domain {
    hbd: Hbd,
    spare_per_ring: u8,
    links: HbdLinks,
    order: Order,
}

fn domain(raw: &FabricFile, check: &mut Check<'_>) -> Option<Domain> {
    if !matches!(raw.hbd, Some(HbdFile::Khop(_)) | None) {
        refuse_cabling(raw, check);
    }
    match (&raw.hbd, &raw.dcn) {
        (Some(HbdFile::Khop(khop)), _) => {
            check_khop(khop, check);
            let (mut ring, order) = cabling(raw, khop, check)?;
            if let Some(budget) = &raw.transceiver.optics {
                optics::cut(&mut ring, budget, check);
            }
            let links = HbdLinks {
                edge_rate: khop.edge_rate.0,
                inside_latency: khop.inside_latency.0,
                fibre_latency: khop.fibre_latency.0,
            };
            let spare_per_ring = khop.spare_per_ring;
            if spare_per_ring > 0 {
                check_spares(raw, khop, &ring, check);
            }
            Some(Domain { hbd: ring.into(), spare_per_ring, links, order })
        }
        (Some(HbdFile::Switch(raw)), _) => islands("switch domain", "/hbd/switch/gpus", raw, check),
        (Some(HbdFile::Torus(raw)), _) => islands("torus cube", "/hbd/torus/gpus", raw, check),
        (Some(HbdFile::None(nodes)), _) => Some(without(nodes.nodes, nodes.gpus_per_node)),
        (None, DcnFile::ReconfigurableFatTree(network)) => {
            let (gpus_per_node, nodes) = network.nodes();
            let nodes = nodes.filter(|nodes| (1..=MAX_NODES).contains(nodes));
            // Invalid numbers are reported at `dcn`.
            Some(without(nodes.unwrap_or(1), gpus_per_node))
        }
        (None, _) => {
            check.error(document::codes::MISSING_KEY, "", "the key `hbd` is missing").help(
                "set the connections between GPUs: `hbd: {khop: {nodes: 720, gpus_per_node: 4, k: \
                    3}}`, or `hbd: {none: {nodes: 256, gpus_per_node: 8}}`",
            );
            None
        }
    }
}

fn islands(
    name: &'static str,
    path: &str,
    raw: &IslandsFile,
    check: &mut Check<'_>,
) -> Option<Domain> {
    let per_node = u32::from(raw.gpus_per_node);
    if per_node == 0 || !raw.gpus.is_multiple_of(per_node) {
        let message =
            format!("an island of {} GPUs does not fill whole nodes of {per_node}", raw.gpus);
        check.error(codes::BAD_GROUP, path, message).help("use a multiple of `gpus_per_node`");
        return None;
    }
    let links = HbdLinks { edge_rate: raw.edge_rate.0, ..HbdLinks::default() };
    let nodes_per_island = raw.gpus / per_node;
    Some(domain_of_islands(name, raw.nodes, raw.gpus_per_node, nodes_per_island, links))
}

fn domain_of_islands(
    name: &'static str,
    nodes: u32,
    gpus_per_node: u8,
    nodes_per_island: u32,
    links: HbdLinks,
) -> Domain {
    let hbd = Hbd::Islands(Islands { name, nodes, gpus_per_node, nodes_per_island });
    Domain { hbd, spare_per_ring: 0, links, order: Order::Sequential }
}

fn without(nodes: u32, gpus_per_node: u8) -> Domain {
    domain_of_islands("none", nodes, gpus_per_node, 0, HbdLinks::default())
}

fn refuse_cabling(raw: &FabricFile, check: &mut Check<'_>) {
    let listed = [("/nodes", raw.nodes.is_some()), ("/links", raw.links.is_some())];
    let written = ["/deployment", "/transceiver"].map(|path| (path, check.is_written(path)));
    for (path, _) in listed.into_iter().chain(written).filter(|(_, is_there)| *is_there) {
        check
            .error(codes::WHICH_FORM, path, "this design has no transceivers to describe")
            .help("remove it, or choose `hbd: {khop: …}`")
            .also("/hbd", "the design is selected here");
    }
}

enum Network {
    FatTree(FatTree),
    LeafSpine(LeafSpineFile),
    Rails(Rails),
    Direct(Direct),
    Reconfigurable(Box<ReconfigurableFatTree>),
}

fn lower_network(raw: &DcnFile, check: &mut Check<'_>) -> Option<Network> {
    match raw {
        DcnFile::FatTree(tree) => {
            check_links("fat_tree", tree.link_rate, tree.link_latency, check);
            Some(Network::FatTree(tree.clone()))
        }
        DcnFile::LeafSpine(raw) => {
            check_links("leaf_spine", raw.link_rate.0, raw.link_latency.0, check);
            Some(Network::LeafSpine(raw.clone()))
        }
        DcnFile::Rails(raw) => {
            check_links("rails", raw.link_rate, raw.link_latency, check);
            Some(Network::Rails(raw.clone()))
        }
        DcnFile::Dragonfly(raw) => direct::dragonfly(raw, check).map(Network::Direct),
        DcnFile::Torus(raw) => direct::torus(raw, check).map(Network::Direct),
        DcnFile::Graph(raw) => direct::graph(raw, check).map(Network::Direct),
        DcnFile::ReconfigurableFatTree(raw) => {
            network::lower(raw, check).map(|network| Network::Reconfigurable(Box::new(network)))
        }
    }
}

impl Network {
    fn above(self, hbd: &Hbd, sizes: &Sizes, check: &mut Check<'_>) -> Option<Dcn> {
        let network = match self {
            Self::FatTree(tree) => {
                require_core(&tree, hbd, check);
                return Some(tree.into());
            }
            Self::LeafSpine(raw) => return Some(leaf_spine(&raw, hbd).into()),
            Self::Rails(raw) => {
                return Some(Dcn::Rails(Rails { gpus_per_node: hbd.gpus_per_node(), ..raw }));
            }
            Self::Direct(raw) => return Some(Dcn::Direct(Box::new(raw.above(hbd, check)?))),
            Self::Reconfigurable(network) => network,
        };
        const LEAVES: &str = "/dcn/reconfigurable_fat_tree/leaves";
        const GPUS: &str = "/dcn/reconfigurable_fat_tree/gpus_per_leaf";
        let (leaves, gpus) = (network.spec().leaves, network.spec().gpus_per_leaf);
        let per_node = u32::from(hbd.gpus_per_node());
        if !gpus.is_multiple_of(per_node) {
            let message =
                format!("{gpus} GPUs under a leaf do not fill whole nodes of {per_node} GPUs");
            check
                .error(codes::BAD_GROUP, GPUS, message)
                .help(format!("use a multiple of {per_node}"))
                .also(sizes.place(), "the number of GPUs per node is set here");
            return None;
        }
        let nodes_per_leaf = gpus / per_node;
        let needed = hbd.nodes().div_ceil(nodes_per_leaf);
        if needed > leaves {
            let message = format!(
                "{} nodes need {needed} leaves of {nodes_per_leaf} nodes, but there are {leaves}",
                hbd.nodes()
            );
            check
                .error(codes::TOO_FEW_LEAVES, LEAVES, message)
                .help(format!("use at least {needed}, or put more GPUs under a leaf"))
                .also("/hbd", "the number of nodes is set here");
            return None;
        }
        Some(Dcn::Reconfigurable { network, nodes_per_leaf })
    }
}

/// Lines follow each other in the racks, and fibres between them are not installed.
fn separate_lines(
    raw: &FabricFile,
    khop: &KhopFile,
    check: &mut Check<'_>,
) -> Option<(KhopRing, Order)> {
    const LINES: &str = "/hbd/khop/lines";
    let is_ring = check.is_written("/hbd/khop/shape") && khop.shape == Shape::Ring;
    let is_mixed =
        check.is_written("/deployment/order") && raw.deployment.order != Order::Sequential;
    let others = [
        (khop.nodes.is_some(), "/hbd/khop/nodes"),
        (raw.nodes.is_some(), "/nodes"),
        (raw.links.is_some(), "/links"),
        (is_mixed, "/deployment/order"),
        (is_ring, "/hbd/khop/shape"),
    ];
    if let Some((_, path)) = others.into_iter().find(|(is_other, _)| *is_other) {
        check
            .error(codes::WHICH_FORM, LINES, "separate lines determine all nodes and their order")
            .help("remove the other key: lines are open at both ends and follow each other")
            .also(path, "this does not fit");
        return None;
    }
    let total: u64 = khop.lines.iter().map(|nodes| u64::from(*nodes)).sum();
    let nodes = u32::try_from(total).unwrap_or(u32::MAX);
    let line = KhopFile { shape: Shape::Line, ..khop.clone() };
    let mut ring = ring(&line, nodes, || (0..nodes).map(NodeId).collect(), check)?;
    let ends = khop.lines.iter().scan(0, |end, nodes| {
        *end += nodes;
        Some(*end)
    });
    let ends: BTreeSet<u32> = ends.collect();
    for fibre in ring.fibres().collect::<Vec<Fibre>>() {
        let first = fibre.from.0;
        if ends.range(first + 1..=first + u32::from(fibre.hops)).next().is_some() {
            ring.remove_fibre(fibre);
        }
    }
    Some((ring, Order::Sequential))
}

/// A leaf without GPUs cannot send the traffic that a step specifies per leaf.
fn refuse_empty_leaves(dcn: &Dcn, hbd: &Hbd, jobs: &[Job], check: &mut Check<'_>) {
    let Dcn::Reconfigurable { network, nodes_per_leaf } = dcn else { return };
    let (leaves, gpus) = (network.spec().leaves, network.spec().gpus_per_leaf);
    let used = hbd.nodes().div_ceil(*nodes_per_leaf);
    let names_leaves = jobs.iter().any(|job| matches!(job.step, Some(StepFile::Phases(_))));
    if used < leaves && names_leaves {
        let message = format!(
            "{leaves} leaves of {gpus} GPUs are specified, but the fabric has {} GPUs, so {} leaves have none to send the traffic of `phases`",
            hbd.gpus(),
            leaves - used
        );
        check
            .error(document::codes::BAD_VALUE, "/dcn/reconfigurable_fat_tree/leaves", message)
            .help(format!("use `leaves: {used}`, or fewer GPUs per leaf"))
            .also("/hbd", "the number of nodes is set here");
    }
}

fn cabling(raw: &FabricFile, khop: &KhopFile, check: &mut Check<'_>) -> Option<(KhopRing, Order)> {
    let nodes_per_tor = match &raw.dcn {
        DcnFile::FatTree(tree) => tree.nodes_per_tor,
        DcnFile::LeafSpine(leaves) => leaves.nodes_per_leaf,
        DcnFile::Rails(rails) => rails.nodes_per_group,
        DcnFile::Dragonfly(raw) => raw.nodes_per_leaf,
        DcnFile::Torus(raw) => raw.nodes_per_leaf,
        DcnFile::Graph(raw) => raw.nodes_per_leaf,
        DcnFile::ReconfigurableFatTree(network) => {
            (network.gpus_per_leaf / u32::from(khop.gpus_per_node).max(1)).max(1)
        }
    };
    if !khop.lines.is_empty() {
        return separate_lines(raw, khop, check);
    }
    match (khop.nodes, &raw.nodes, &raw.links) {
        (Some(nodes), None, None) => {
            let order = raw.deployment.order;
            ring(khop, nodes, || order.line(nodes, nodes_per_tor), check).map(|ring| (ring, order))
        }
        (None, Some(nodes), Some(links)) => {
            if check.is_written("/deployment/order") {
                check
                    .error(codes::WHICH_FORM, "/deployment/order", "the file has two node orders")
                    .help("remove `order`: the order of `nodes` is the order of the line")
                    .also("/nodes", "the nodes are listed here");
            }
            let line = explicit::line(&nodes.0, nodes_per_tor, check);
            let twice = explicit::cabled_twice(links, check);
            let line = line?;
            let count = u32::try_from(line.len()).ok()?;
            let order = explicit::order_of(&line, nodes_per_tor);
            let mut ring = ring(khop, count, || line, check)?;
            explicit::cable(&mut ring, links, &twice, check).then_some((ring, order))
        }
        _ => {
            report_form(raw, khop, check);
            None
        }
    }
}

fn report_form(raw: &FabricFile, khop: &KhopFile, check: &mut Check<'_>) {
    if khop.nodes.is_some() {
        let explicit = if raw.nodes.is_some() { "/nodes" } else { "/links" };
        check
            .error(codes::WHICH_FORM, explicit, "the file has both forms of the cabling")
            .help("remove `nodes: N` under `khop` to list nodes and links, or remove the lists")
            .also("/hbd/khop/nodes", "the generator form is selected here");
        return;
    }
    let (message, help) = match (&raw.nodes, &raw.links) {
        (Some(_), None) => ("nodes are listed without their links", "add `links:`"),
        (None, Some(_)) => ("links are listed without their nodes", "add `nodes:`"),
        _ => ("the cabling is missing", "add `nodes: N` here, or list `nodes:` and `links:` above"),
    };
    check
        .error(codes::WHICH_FORM, "/hbd/khop", message)
        .help(help)
        .depends_on("/nodes")
        .depends_on("/links");
}

fn ring(
    khop: &KhopFile,
    nodes: u32,
    line: impl FnOnce() -> Vec<lightloom_units::id::NodeId>,
    check: &mut Check<'_>,
) -> Option<KhopRing> {
    if let Err(error) = KhopRing::check(khop.gpus_per_node, khop.k, nodes) {
        let (path, help) = match error {
            KhopError::GpusPerNode(_) => {
                ("/hbd/khop/gpus_per_node", format!("use a number from 2 to {MAX_GPUS_PER_NODE}"))
            }
            KhopError::Hops { gpus_per_node, .. } => {
                ("/hbd/khop/k", format!("use a number from 2 to {gpus_per_node}"))
            }
            KhopError::Nodes(_) => {
                ("/hbd/khop/nodes", format!("use a number from 1 to {MAX_NODES}"))
            }
        };
        check.error(codes::BAD_RING, path, error.to_string()).help(help).depends_on("/nodes");
        return None;
    }
    KhopRing::new(khop.gpus_per_node, khop.k, khop.shape, line()).ok()
}

fn check_khop(khop: &KhopFile, check: &mut Check<'_>) {
    warn_of_slow("/hbd/khop/edge_rate", khop.edge_rate.0, check);
    if khop.edge_rate.0.0 == 0 {
        not_positive("/hbd/khop/edge_rate", "the rate of a ring edge", check);
    }
    for (path, latency) in
        [("inside_latency", khop.inside_latency.0), ("fibre_latency", khop.fibre_latency.0)]
    {
        if latency.0 == 0 {
            not_positive(&format!("/hbd/khop/{path}"), "the delay of a link", check);
        }
    }
}

/// Forwarding nodes require rings of whole nodes, and are bypassed with a hop of two.
fn check_spares(raw: &FabricFile, khop: &KhopFile, ring: &KhopRing, check: &mut Check<'_>) {
    const SPARES: &str = "/hbd/khop/spare_per_ring";
    let per_node = u32::from(khop.gpus_per_node);
    let mut sizes = raw.jobs.iter().filter_map(|job| job.tp).peekable();
    if sizes.peek().is_some() && sizes.all(|tp| tp < per_node) {
        check
            .error(
                codes::BAD_GROUP,
                SPARES,
                "all jobs have rings inside a node, which need no spare",
            )
            .help("remove `spare_per_ring`")
            .also("/jobs", "the ring sizes are set here");
    }
    if ring.nodes() > 2 && !ring.fibres().any(|fibre| fibre.hops == 2) {
        check
            .error(
                codes::OPTICAL_BUDGET,
                SPARES,
                "no fibre over two hops works, so no node can be left out",
            )
            .help("reduce the loss of such hops, or remove `spare_per_ring`")
            .depends_on("/links");
    }
}

pub(super) fn warn_of_slow(path: &str, rate: BitsPerSecond, check: &mut Check<'_>) {
    if rate.0 > 0 && rate < BitsPerSecond::from_gbps(1) {
        check
            .warning(codes::IMPLAUSIBLE, path, format!("{rate} is slower than any GPU link"))
            .help("check the unit: GPU links have 100Gbps or more");
    }
}

pub(super) fn check_links(
    design: &str,
    rate: BitsPerSecond,
    latency: Picoseconds,
    check: &mut Check<'_>,
) {
    let (rate_path, latency_path) =
        (format!("/dcn/{design}/link_rate"), format!("/dcn/{design}/link_latency"));
    warn_of_slow(&rate_path, rate, check);
    if rate.0 == 0 {
        not_positive(&rate_path, "the rate of a link", check);
    }
    if latency.0 == 0 {
        not_positive(&latency_path, "the delay of a link", check);
    }
}

fn require_core(tree: &FatTree, hbd: &Hbd, check: &mut Check<'_>) {
    let tors = hbd.nodes().div_ceil(tree.nodes_per_tor.max(1));
    if tree.core_oversubscription > 1 && tors <= tree.tors_per_domain {
        let message = format!("all {tors} ToRs are in one aggregation domain, which has no core");
        check
            .error(codes::BAD_GROUP, "/dcn/fat_tree/core_oversubscription", message)
            .help(format!("remove it, or use `tors_per_domain` below {tors}"));
    }
}

fn leaf_spine(raw: &LeafSpineFile, hbd: &Hbd) -> FatTree {
    FatTree {
        design: "leaf-spine",
        nodes_per_tor: raw.nodes_per_leaf,
        tors_per_domain: hbd.nodes().div_ceil(raw.nodes_per_leaf.max(1)).max(1),
        oversubscription: raw.oversubscription,
        core_oversubscription: 1,
        nics_per_gpu: raw.nics_per_gpu,
        link_rate: raw.link_rate.0,
        link_latency: raw.link_latency.0,
    }
}

pub(super) fn not_positive(path: &str, what: &str, check: &mut Check<'_>) {
    check
        .error(codes::NOT_POSITIVE, path, format!("{what} is zero"))
        .help("use a value above zero");
}

fn lower_transceiver(raw: &TransceiverFile, check: &mut Check<'_>) -> Transceiver {
    let transceiver = Transceiver {
        switch_min: raw.switch_min.0,
        switch_max: raw.switch_max.0,
        software_delay: raw.software_delay.0,
        relock: raw.relock.as_ref().map_or(Picoseconds::ZERO, |time| time.0),
        light: raw.optics.as_ref().map(OpticsFile::light),
    };
    if transceiver.switch_min > transceiver.switch_max {
        let Transceiver { switch_min, switch_max, .. } = transceiver;
        let message = format!(
            "the shortest switching time, {switch_min}, is above the longest, {switch_max}"
        );
        check
            .error(codes::SWITCH_TIMES, "/transceiver/switch_min", message)
            .also("/transceiver/switch_max", "the longest is set here")
            .help("swap the two values, or set both");
    }
    transceiver
}
