//! From what a fabric file says to the fabric it means, with every check that needs more than one key.

use lightloom_units::{Dollars, Watts};
use rustc_hash::FxHashMap;

use super::codes;
use super::explicit;
use super::raw::{
    DcnFile, FabricFile, FatTreeFile, HbdFile, JobFile, JobSizeFile, KhopFile, PartsFile,
    TransceiverFile,
};
use crate::dcn::{FatTree, Order};
use crate::document::{Check, quote};
use crate::fabric::{Fabric, HbdLinks, Job, JobSize, Parts, Transceiver};
use crate::khop::{KhopError, KhopRing, MAX_GPUS_PER_NODE, MAX_NODES};

/// Makes a fabric of `raw`, or reports why it cannot be.
pub(super) fn lower(raw: FabricFile, sha256: String, check: &mut Check<'_>) -> Option<Fabric> {
    let HbdFile::Khop(khop) = &raw.hbd;
    let DcnFile::FatTree(tree) = &raw.dcn;
    check_fat_tree(tree, check);
    check_khop(khop, check);
    let transceiver = lower_transceiver(&raw.transceiver, check);
    let cabling = cabling(&raw, khop, tree, check);
    let gpus = cabling.as_ref().map(|(hbd, _)| hbd.gpus());
    let jobs = lower_jobs(&raw.jobs, khop.gpus_per_node, gpus, check);
    let (hbd, order) = cabling?;
    Some(Fabric {
        name: raw.name,
        sha256,
        hbd,
        hbd_links: HbdLinks {
            edge_rate: khop.edge_rate.0,
            inside_latency: khop.inside_latency.0,
            fibre_latency: khop.fibre_latency.0,
        },
        dcn: lower_fat_tree(tree),
        order,
        transceiver,
        jobs,
        parts: lower_parts(&raw.parts),
    })
}

/// The cabling in whichever form it is given, and the order in which the line runs.
fn cabling(
    raw: &FabricFile,
    khop: &KhopFile,
    tree: &FatTreeFile,
    check: &mut Check<'_>,
) -> Option<(KhopRing, Order)> {
    match (khop.nodes, &raw.nodes, &raw.links) {
        (Some(nodes), None, None) => {
            let order = raw.deployment.order;
            let line = || order.line(nodes, tree.nodes_per_tor);
            ring(khop, nodes, line, check).map(|ring| (ring, order))
        }
        (None, Some(nodes), Some(links)) => {
            if check.is_written("/deployment/order") {
                check
                    .error(codes::WHICH_FORM, "/deployment/order", "the order is given twice")
                    .help("remove `order`: the order of `nodes` is the order of the line")
                    .also("/nodes", "the nodes are listed here");
            }
            let line = explicit::line(&nodes.0, tree, check);
            let twice = explicit::cabled_twice(links, check);
            let line = line?;
            let count = u32::try_from(line.len()).ok()?;
            let order = explicit::order_of(&line, tree);
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
            .error(codes::WHICH_FORM, explicit, "the cabling is given in both forms")
            .help("remove `nodes: N` under `khop` to list nodes and links, or remove the lists")
            .also("/hbd/khop/nodes", "the generator form is chosen here");
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

/// A fully cabled ring, with what its own rules refuse reported at the key that is wrong.
fn ring(
    khop: &KhopFile,
    nodes: u32,
    line: impl FnOnce() -> Vec<lightloom_units::id::NodeId>,
    check: &mut Check<'_>,
) -> Option<KhopRing> {
    if let Err(error) = KhopRing::check(khop.gpus_per_node, khop.k, nodes) {
        let (path, help) = match error {
            KhopError::GpusPerNode(_) => {
                ("/hbd/khop/gpus_per_node", format!("write a number from 2 to {MAX_GPUS_PER_NODE}"))
            }
            KhopError::Hops { gpus_per_node, .. } => {
                ("/hbd/khop/k", format!("write a number from 2 to {gpus_per_node}"))
            }
            KhopError::Nodes(_) => {
                ("/hbd/khop/nodes", format!("write a number from 1 to {MAX_NODES}"))
            }
        };
        check.error(codes::BAD_RING, path, error.to_string()).help(help).depends_on("/nodes");
        return None;
    }
    KhopRing::new(khop.gpus_per_node, khop.k, khop.shape, line()).ok()
}

fn check_khop(khop: &KhopFile, check: &mut Check<'_>) {
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

fn check_fat_tree(tree: &FatTreeFile, check: &mut Check<'_>) {
    if tree.link_rate.0.0 == 0 {
        not_positive("/dcn/fat_tree/link_rate", "the rate of a link", check);
    }
    if tree.link_latency.0.0 == 0 {
        not_positive("/dcn/fat_tree/link_latency", "the delay of a link", check);
    }
}

fn not_positive(path: &str, what: &str, check: &mut Check<'_>) {
    check
        .error(codes::NOT_POSITIVE, path, format!("{what} is zero"))
        .help("write a value above zero");
}

fn lower_fat_tree(tree: &FatTreeFile) -> FatTree {
    FatTree {
        nodes_per_tor: tree.nodes_per_tor,
        tors_per_domain: tree.tors_per_domain,
        oversubscription: tree.oversubscription,
        link_rate: tree.link_rate.0,
        link_latency: tree.link_latency.0,
    }
}

fn lower_transceiver(raw: &TransceiverFile, check: &mut Check<'_>) -> Transceiver {
    let transceiver = Transceiver {
        switch_min: raw.switch_min.0,
        switch_max: raw.switch_max.0,
        software_delay: raw.software_delay.0,
    };
    if transceiver.switch_min > transceiver.switch_max {
        let Transceiver { switch_min, switch_max, .. } = transceiver;
        let message = format!(
            "the shortest switching time, {switch_min}, is above the longest, {switch_max}"
        );
        check
            .error(codes::SWITCH_TIMES, "/transceiver/switch_min", message)
            .also("/transceiver/switch_max", "the longest is set here")
            .help("exchange the two, or set both");
    }
    transceiver
}

fn lower_parts(parts: &PartsFile) -> Parts {
    Parts {
        ocstrx: Dollars(parts.ocstrx.usd),
        fibre: Dollars(parts.fibre.usd),
        dac: Dollars(parts.dac.usd),
        ocstrx_power: Watts(parts.ocstrx.watts),
        dac_power: Watts(parts.dac.watts),
    }
}

/// The jobs, checked one by one and against the GPUs there are (when that is known).
fn lower_jobs(
    raw: &[JobFile],
    gpus_per_node: u8,
    gpus: Option<u64>,
    check: &mut Check<'_>,
) -> Vec<Job> {
    let mut free = gpus;
    let mut taker_of_all = None;
    let mut first_of_name = FxHashMap::default();
    for (index, job) in raw.iter().enumerate() {
        let path = format!("/jobs/{index}");
        let first = *first_of_name.entry(job.name.as_str()).or_insert(index);
        if first != index {
            let message = format!("there are two jobs named {}", quote(&job.name));
            check
                .error(codes::JOB_TWICE, &format!("{path}/name"), message)
                .also(&format!("/jobs/{first}/name"), "the other is here")
                .help("give each job its own name");
        }
        if let Some(taker) = taker_of_all {
            let message = format!("nothing is left for job {}", quote(&job.name));
            check
                .warning(codes::JOB_STARVED, &format!("{path}/name"), message)
                .also(&format!("/jobs/{taker}"), "this job takes all GPUs")
                .help("put the job that takes all GPUs last");
        }
        check_group(job, &path, gpus_per_node, check);
        match job.gpus {
            JobSizeFile::All => taker_of_all = taker_of_all.or(Some(index)),
            JobSizeFile::Gpus(wanted) => {
                let left = free.filter(|_| taker_of_all.is_none());
                check_size(job, wanted, &path, left, check);
                free = free.map(|free| free.saturating_sub(wanted));
            }
        }
    }
    raw.iter().map(lower_job).collect()
}

fn lower_job(raw: &JobFile) -> Job {
    let size = match raw.gpus {
        JobSizeFile::All => JobSize::All,
        JobSizeFile::Gpus(gpus) => JobSize::Gpus(gpus),
    };
    Job { name: raw.name.clone(), size, tp: raw.tp }
}

fn check_group(job: &JobFile, path: &str, gpus_per_node: u8, check: &mut Check<'_>) {
    let node = u32::from(gpus_per_node);
    if node == 0 || job.tp <= node || job.tp.is_multiple_of(node) {
        return;
    }
    let below = job.tp / node * node;
    let message = format!("a group of {} GPUs does not fill whole nodes of {node}", job.tp);
    check
        .error(codes::BAD_GROUP, &format!("{path}/tp"), message)
        .help(format!("write {below} or {}", below + node))
        .also("/hbd/khop/gpus_per_node", "the GPUs of a node are set here");
}

fn check_size(job: &JobFile, wanted: u64, path: &str, free: Option<u64>, check: &mut Check<'_>) {
    let tp = u64::from(job.tp);
    let below = wanted / tp * tp;
    if wanted != below {
        let message = format!("{wanted} GPUs cannot be divided into groups of {tp}");
        let help = match below {
            0 => format!("write {tp}"),
            _ => format!("write {below} or {}", below + tp),
        };
        check.error(codes::BAD_GROUP, &format!("{path}/gpus"), message).help(help);
    }
    if let Some(free) = free.filter(|free| wanted > *free) {
        let name = quote(&job.name);
        let message = format!("job {name} wants {wanted} GPUs, but only {free} are free for it");
        let help = match free / tp * tp {
            0 => "add nodes, or let other jobs have fewer".to_owned(),
            fitting => format!("write at most {fitting}, or add nodes"),
        };
        check
            .error(codes::JOB_TOO_LARGE, &format!("{path}/gpus"), message)
            .help(help)
            .depends_on("/hbd/khop")
            .depends_on("/nodes")
            .depends_on("/jobs");
    }
}
