// SPDX-License-Identifier: Apache-2.0
//! Checks the jobs in a fabric file against each other and against the available GPUs.

use rustc_hash::FxHashMap;

use super::codes;
use super::raw::{DcnFile, FabricFile, HbdFile, JobFile};
use super::step::{RlFile, StepFile};
use crate::document::{self, Check, quote};
use crate::fabric::{Fabric, Job, JobSize};
use crate::khop::{MAX_GPUS_PER_NODE, MAX_NODES};
use lightloom_units::id::NodeId;

/// GPU counts according to the file, despite other errors in it, so that job errors are reported
/// together with domain errors. `None` if the counts themselves are wrong.
pub(super) struct Sizes {
    gpus_per_node: Option<u32>,
    gpus: Option<u64>,
    largest_group: Option<u64>,
    place: String,
}

impl Sizes {
    pub(super) fn of(raw: &FabricFile) -> Self {
        let (per_node, nodes, island, design) = match (&raw.hbd, &raw.dcn) {
            (Some(HbdFile::Khop(khop)), _) => {
                let listed = raw.nodes.as_ref().and_then(|nodes| u32::try_from(nodes.0.len()).ok());
                let lines = khop.lines.iter().copied().reduce(u32::saturating_add);
                (khop.gpus_per_node, khop.nodes.or(lines).or(listed), None, "khop")
            }
            (Some(HbdFile::Switch(islands)), _) => {
                (islands.gpus_per_node, Some(islands.nodes), Some(islands.gpus), "switch")
            }
            (Some(HbdFile::Torus(islands)), _) => {
                (islands.gpus_per_node, Some(islands.nodes), Some(islands.gpus), "torus")
            }
            (Some(HbdFile::None(nodes)), _) => {
                (nodes.gpus_per_node, Some(nodes.nodes), None, "none")
            }
            (None, DcnFile::ReconfigurableFatTree(network)) => {
                let (per_node, nodes) = network.nodes();
                let place = "/dcn/reconfigurable_fat_tree/gpus_per_leaf";
                return Self::counted(per_node.into(), nodes, None, place);
            }
            (None, _) => return Self::counted(0, None, None, "/dcn"),
        };
        let place = format!("/hbd/{design}/gpus_per_node");
        Self::counted(u32::from(per_node), nodes, island, &place)
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    fn counted(per_node: u32, nodes: Option<u32>, island: Option<u32>, place: &str) -> Self {
        let per_node =
            Some(per_node).filter(|gpus| (1..=u32::from(MAX_GPUS_PER_NODE)).contains(gpus));
        let nodes = nodes.filter(|nodes| (1..=MAX_NODES).contains(nodes));
        let gpus =
            per_node.zip(nodes).map(|(per_node, nodes)| u64::from(per_node) * u64::from(nodes));
        let largest_group = match (island, per_node) {
            (Some(island), Some(gpus)) if island.is_multiple_of(gpus) => Some(island.into()),
            (Some(_), _) => None,
            (None, _) => gpus,
        };
        Self { gpus_per_node: per_node, gpus, largest_group, place: place.to_owned() }
    }
}

pub(super) fn lower_jobs(raw: &[JobFile], sizes: &Sizes, check: &mut Check<'_>) -> Vec<Job> {
    let mut free = sizes.gpus;
    let mut taker_of_all = None;
    let mut first_of_name = FxHashMap::default();
    for (index, job) in raw.iter().enumerate() {
        let path = format!("/jobs/{index}");
        let first = *first_of_name.entry(job.name.as_str()).or_insert(index);
        if first != index {
            let message = format!("two jobs are named {}", quote(&job.name));
            check
                .error(codes::JOB_TWICE, &format!("{path}/name"), message)
                .also(&format!("/jobs/{first}/name"), "the other one is here")
                .help("give each job a unique name");
        }
        if let Some(taker) = taker_of_all {
            let message = format!("no GPUs are left for job {}", quote(&job.name));
            check
                .warning(codes::JOB_STARVED, &format!("{path}/name"), message)
                .also(&format!("/jobs/{taker}"), "this job takes all GPUs")
                .help("put the job that takes all GPUs last");
        }
        let is_searched = matches!(job.step, Some(StepFile::Search(_)));
        if is_searched && job.gpus == JobSize::All {
            check
                .error(document::codes::MISSING_KEY, &path, "the key `gpus` is missing")
                .help("the search for a mapping needs a number of GPUs, such as `gpus: 512`");
            continue;
        }
        let Some(tp) = job.tp.or(is_searched.then_some(1)) else {
            check_unplaced(job, &path, check);
            continue;
        };
        check_group(tp, &path, sizes, check);
        check_mapping(job, tp, &path, check);
        match job.gpus {
            JobSize::All => taker_of_all = taker_of_all.or(Some(index)),
            JobSize::Gpus(wanted) => {
                let left = free.filter(|_| taker_of_all.is_none());
                check_size(job, wanted, tp, &path, left, check);
                free = free.map(|free| free.saturating_sub(wanted));
            }
        }
    }
    raw.iter().map(lower_job).collect()
}

fn lower_job(raw: &JobFile) -> Job {
    let is_searched = matches!(raw.step, Some(StepFile::Search(_)));
    let is_placed = raw.tp.is_some() || is_searched;
    let size = if is_placed { raw.gpus } else { JobSize::Gpus(0) };
    Job {
        name: raw.name.clone(),
        size,
        tp: raw.tp.unwrap_or(0),
        least: raw.least,
        nodes: raw.nodes.as_ref().map(|ranges| {
            let all = ranges.iter().flat_map(|range| range.first.0..=range.last.0);
            all.map(NodeId).collect()
        }),
        step: raw.step.clone(),
        searched: None,
    }
}

fn check_unplaced(job: &JobFile, path: &str, check: &mut Check<'_>) {
    if !job.step.as_ref().is_some_and(StepFile::names_leaves) {
        check
            .error(document::codes::MISSING_KEY, path, "the key `tp` is missing")
            .help("set the number of GPUs per group, such as `tp: 32`");
    }
    if job.gpus != JobSize::All {
        check
            .error(
                codes::BAD_GROUP,
                &format!("{path}/gpus"),
                "the step already specifies the sending leaves",
            )
            .help("remove `gpus`, or add `tp`, so that its GPUs are placed");
    }
}

fn check_mapping(job: &JobFile, tp: u32, path: &str, check: &mut Check<'_>) {
    let Some(step) = &job.step else { return };
    let mapping = match step {
        StepFile::Training(mapping) => mapping,
        StepFile::Search(_) => return,
        StepFile::Rl(rl) => return check_placed_rl(job, rl, tp, path, check),
        StepFile::Phases(_) => {
            let message = "the step already specifies the sending leaves";
            check
                .error(codes::BAD_GROUP, &format!("{path}/tp"), message)
                .help("remove `tp` and `gpus`, or use `step: {training: …}`");
            return;
        }
    };
    let path = format!("{path}/step/training");
    if let Some(dp) = mapping.dp.filter(|dp| !dp.is_multiple_of(mapping.ep)) {
        let message = format!(
            "{dp} data-parallel ranks cannot be divided into groups of {} expert-parallel ranks",
            mapping.ep
        );
        check
            .error(codes::BAD_GROUP, &format!("{path}/ep"), message)
            .help(format!("use a divisor of {dp}"));
    }
    let JobSize::Gpus(gpus) = job.gpus else { return };
    let stage = product(&[tp, mapping.cp, mapping.dp.unwrap_or(1)]);
    let mapped = product(&[tp, mapping.pp, mapping.cp, mapping.dp.unwrap_or(1)]);
    let (degrees, fits, size, stages) = match mapping.dp {
        Some(_) => {
            let stages = Some(gpus / stage).filter(|pp| *pp > 0 && gpus.is_multiple_of(stage));
            ("tp · pp · cp · dp", mapped == gpus, mapped, stages)
        }
        None => {
            let mut fewer = (1..u64::from(mapping.pp)).rev();
            let stages = fewer.find(|pp| gpus.is_multiple_of(stage.saturating_mul(*pp)));
            let size = gpus.div_ceil(mapped).saturating_mul(mapped);
            ("tp · pp · cp", gpus.is_multiple_of(mapped), size, stages)
        }
    };
    if fits {
        return;
    }
    let stages = stages.map_or(String::new(), |pp| format!(" or `pp: {pp}`"));
    let one_replica = product(&[tp, mapping.pp, mapping.cp]);
    let is_free = mapping.dp.is_some() && gpus.is_multiple_of(one_replica);
    let omit = if is_free { ", or omit `dp`" } else { "" };
    let but =
        if mapping.dp.is_some() { "but the job has" } else { "which do not divide the job's" };
    let message = format!("{degrees} are {mapped} GPUs, {but} {gpus}");
    check.error(codes::BAD_GROUP, &path, message).help(format!("use `gpus: {size}`{stages}{omit}"));
}

fn product(ranks: &[u32]) -> u64 {
    ranks.iter().fold(1_u64, |all, ranks| all.saturating_mul(u64::from(*ranks))).max(1)
}

fn check_placed_rl(job: &JobFile, rl: &RlFile, tp: u32, path: &str, check: &mut Check<'_>) {
    let step = format!("{path}/step/rl");
    if rl.tp != tp {
        let message = format!("the job's groups have {tp} GPUs, but the trainer's have {}", rl.tp);
        check
            .error(codes::BAD_GROUP, &format!("{step}/tp"), message)
            .help(format!("use `tp: {tp}`, or change the job's `tp`"));
    }
    let gpus = u64::from(rl.trainer_gpus) + u64::from(rl.generation_gpus);
    if job.gpus != JobSize::Gpus(gpus) {
        let message = format!("trainer and generation have {gpus} GPUs together");
        check
            .error(codes::BAD_GROUP, &format!("{path}/gpus"), message)
            .help(format!("use `gpus: {gpus}`"));
    }
    for (key, gpus) in [("trainer_gpus", rl.trainer_gpus), ("generation_gpus", rl.generation_gpus)]
    {
        if !gpus.is_multiple_of(tp.max(1)) {
            let message = format!("{gpus} GPUs cannot be divided into groups of {tp}");
            check
                .error(codes::BAD_GROUP, &format!("{step}/{key}"), message)
                .help(format!("use a multiple of {tp}"));
        }
    }
}

/// Checks the limits of jobs against the nodes and their states at the start.
pub(super) fn check_limits(fabric: &Fabric, check: &mut Check<'_>) {
    let out = fabric.start.failed_nodes(&fabric.hbd);
    for (index, job) in fabric.jobs.iter().enumerate() {
        let most = match job.size {
            JobSize::All => fabric.gpus(),
            JobSize::Gpus(gpus) => gpus,
        };
        let tp = u64::from(job.tp).max(1);
        if let Some(least) = job.least.filter(|gpus| *gpus > most || gpus % tp != 0) {
            let message = format!("job {} cannot run with {least} GPUs", quote(&job.name));
            check
                .error(codes::BAD_GROUP, &format!("/jobs/{index}/least"), message)
                .help(format!("use a multiple of {tp} up to {most}"));
        }
        let Some(nodes) = &job.nodes else { continue };
        let lost: Vec<String> = nodes
            .iter()
            .filter(|node| node.0 >= fabric.hbd.nodes() || out.contains(node))
            .map(NodeId::to_string)
            .collect();
        let gpus = (nodes.len() - lost.len()) as u64 * u64::from(fabric.hbd.gpus_per_node());
        let needed = job.least.unwrap_or(if job.size == JobSize::All { tp } else { most });
        if gpus < needed {
            let message = format!(
                "job {} needs {needed} GPUs, but its nodes have {gpus}, without those that do not exist or are out of \
                 service at the start: {}",
                quote(&job.name),
                if lost.is_empty() { "none".to_owned() } else { lost.join(", ") }
            );
            check
                .error(codes::JOB_TOO_LARGE, &format!("/jobs/{index}/nodes"), message)
                .help("add nodes, repair them in `start`, or reduce the GPUs");
        }
    }
}

fn check_group(tp: u32, path: &str, sizes: &Sizes, check: &mut Check<'_>) {
    let node = sizes.gpus_per_node.unwrap_or(0);
    if let Some(gpus) = sizes.largest_group.filter(|gpus| u64::from(tp) > *gpus) {
        let message =
            format!("a group of {tp} GPUs exceeds the largest group of the domain: {gpus} GPUs");
        check
            .error(codes::JOB_TOO_LARGE, &format!("{path}/tp"), message)
            .help(format!("use at most {gpus}"))
            .depends_on("/hbd")
            .depends_on("/nodes");
        return;
    }
    if node == 0 || tp <= node || tp.is_multiple_of(node) {
        return;
    }
    let below = tp / node * node;
    let message = format!("a group of {tp} GPUs does not fill whole nodes of {node}");
    check
        .error(codes::BAD_GROUP, &format!("{path}/tp"), message)
        .help(format!("use {below} or {}", below + node))
        .also(&sizes.place, "the number of GPUs per node is set here");
}

fn check_size(
    job: &JobFile,
    wanted: u64,
    tp: u32,
    path: &str,
    free: Option<u64>,
    check: &mut Check<'_>,
) {
    let tp = u64::from(tp).max(1);
    let below = wanted / tp * tp;
    if wanted != below {
        let message = format!("{wanted} GPUs cannot be divided into groups of {tp}");
        let help = match below {
            0 => format!("use {tp}"),
            _ => format!("use {below} or {}", below + tp),
        };
        check.error(codes::BAD_GROUP, &format!("{path}/gpus"), message).help(help);
    }
    if let Some(free) = free.filter(|free| wanted > *free) {
        let name = quote(&job.name);
        let message = format!(
            "job {name} requests {wanted} GPUs, but only {free} are available \
            to it"
        );
        let help = match free / tp * tp {
            0 => "add nodes, or reduce the GPUs of other jobs".to_owned(),
            fitting => format!("use at most {fitting}, or add nodes"),
        };
        check
            .error(codes::JOB_TOO_LARGE, &format!("{path}/gpus"), message)
            .help(help)
            .depends_on("/hbd")
            .depends_on("/nodes")
            .depends_on("/jobs");
    }
}
