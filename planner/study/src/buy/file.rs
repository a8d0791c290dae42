// SPDX-License-Identifier: Apache-2.0
//! The buy file format. Parsing reports every mistake in the file.

mod answer;
mod parts;

use std::sync::Arc;

use lightloom_fabric::document::{self, Check, Diagnostic, codes};
use schemars::JsonSchema;
use serde::Deserialize;

use answer::AnswerRecord;
use answer::answer;

use super::{Candidate, JobKind, Question, Speed};
use crate::architecture::{
    Architecture, Cluster, FaultPolicy, NicRate, is_fabric_file, parse, parse_network,
};

pub(super) const MS_PER_DAY: f64 = 86_400_000.0;

/// A purchase question with workload, size, budget, operating cost, faults and candidate designs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuyFile {
    /// Name of the question.
    pub name: String,
    /// Number of GPUs to buy.
    #[schemars(range(min = 1, max = 16777216))]
    pub gpus: u32,
    /// GPUs per node. Nodes fail as a whole.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_node: u32,
    /// Simulated days.
    #[serde(default = "year")]
    #[schemars(range(min = 0.001, max = 3650))]
    pub days: f64,
    /// Maximum purchase price in US dollars. If a design costs more, fewer GPUs are bought.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000000000000000_u64))]
    pub budget_usd: Option<f64>,
    /// Data-centre network that every design needs in addition to its domains, such as
    /// `fat-tree:128`. If absent, networks are not part of the cost.
    #[serde(default)]
    pub network: Option<String>,
    /// Rate of each GPU's single network card in Gb/s: 100, 200, 400 or 800.
    #[serde(default = "four_hundred")]
    pub nic_gbps: u32,
    /// The candidate designs.
    #[schemars(length(min = 1))]
    pub designs: Vec<DesignRecord>,
    /// The workload.
    pub workload: WorkloadRecord,
    /// Checkpoint settings of the jobs.
    pub checkpoint: CheckpointRecord,
    /// The fault model of nodes.
    pub faults: FaultModel,
    /// Fault rates of other parts by their names in the price file: transceivers, cables, switches.
    #[serde(default)]
    pub part_faults: Vec<PartFaultRecord>,
    /// The operating cost.
    pub running: RunningRecord,
}

/// Fault rate of one kind of part. Parts fail independently, with exponentially distributed times.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartFaultRecord {
    /// Name of the part in the price file.
    pub part: String,
    /// Mean hours from a repair to the next fault of one part.
    #[schemars(range(min = 1, max = 1000000000000_u64))]
    pub mtbf_hours: f64,
    /// Mean hours from fault to repair.
    #[schemars(range(min = 0, max = 1000000))]
    pub repair_hours: f64,
}

/// A design and its response to faults.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DesignRecord {
    /// Name as for `lightloom compare --arch`, such as `khop:3` or `nvl:72`, or a fabric file next to this file.
    pub design: String,
    /// Data-centre network of this design, if it differs from the file's.
    #[serde(default)]
    pub network: Option<String>,
    /// Policy for faulty nodes. Default: the policy that the design was made for.
    #[serde(default)]
    pub policy: Option<FaultPolicy>,
    /// Warm spare nodes per domain, with `policy: backup`.
    #[serde(default)]
    #[schemars(range(min = 1, max = 64))]
    pub spares: Option<u32>,
    /// How jobs respond to the loss of a node. Default: the usual response under this policy.
    #[serde(default)]
    pub answer: Option<AnswerRecord>,
    /// Minutes from a fault to the next step, if they differ from `checkpoint`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100000))]
    pub restart_minutes: Option<f64>,
}

/// The workload.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadRecord {
    /// GPUs per tensor-parallel group.
    #[schemars(range(min = 1))]
    pub tp: u32,
    /// Peak performance of a GPU in TFLOP/s.
    #[schemars(range(min = 0.000001, max = 1000000000000000_u64))]
    pub peak_tflops: f64,
    /// Share of peak performance that jobs reach on the reference network without faults. Must be
    /// absent with `step.from`, which provides it.
    #[serde(default)]
    #[schemars(range(min = 0.000001, max = 1))]
    pub mfu: Option<f64>,
    /// The step on the reference network.
    pub step: StepRecord,
    /// The jobs.
    #[schemars(length(min = 1))]
    pub jobs: Vec<JobRecord>,
}

/// Communication shares of a step on a reference network that connects all GPUs at the same rate.
/// The rest is computation.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepRecord {
    /// Path of a result of `lightloom mfu --format json`, relative to this file, for the planned
    /// job or with the constants of measured runs. Its first row provides the seconds, the shares
    /// and `mfu`, which must be absent here.
    #[serde(default)]
    pub from: Option<String>,
    /// Seconds per step, which determine the cost of a fault within a step.
    #[serde(default = "ten")]
    #[schemars(range(min = 0.000001, max = 100000))]
    pub seconds: f64,
    /// Bandwidth per GPU and direction on the reference network, in GB/s.
    #[schemars(range(min = 0.000001, max = 1000000000000000_u64))]
    pub at_gbytes_per_s: f64,
    /// Share of tensor-parallel communication.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub tensor_parallel: f64,
    /// Share of expert all-to-alls within a group.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub all_to_all: f64,
    /// Share of data-parallel communication.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub data_parallel: f64,
    /// Time of data-parallel traffic across ToRs ÷ its time under one ToR.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub cross_tor_slowdown: f64,
    /// Nodes per ToR.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 64))]
    pub nodes_per_tor: u32,
}

/// A recurring job. The first instance arrives at the start.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    /// Name of the job.
    pub name: String,
    /// Number of GPUs, in whole groups.
    #[schemars(range(min = 1))]
    pub gpus: u32,
    /// Duration in days on the reference network, without faults and checkpoints.
    #[schemars(range(min = 0.001, max = 100000))]
    pub days: f64,
    /// Mean days between arrivals.
    #[schemars(range(min = 0.001, max = 100000))]
    pub every_days: f64,
}

/// Checkpoint settings of the jobs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRecord {
    /// Minutes of work between checkpoints.
    #[schemars(range(min = 0.001, max = 1000000))]
    pub every_minutes: f64,
    /// Seconds per checkpoint, during which the job is paused.
    #[schemars(range(min = 0, max = 1000000))]
    pub seconds: f64,
    /// Minutes from a start or a fault to the next step.
    #[schemars(range(min = 0, max = 100000))]
    pub restart_minutes: f64,
    /// Minutes to move to a warm spare.
    #[serde(default = "two_minutes")]
    #[schemars(range(min = 0, max = 100000))]
    pub migrate_minutes: f64,
    /// Minutes to continue with fewer GPUs, and later to return to full size.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100000))]
    pub reform_minutes: f64,
    /// Seconds until a job detects the loss of a node.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000000))]
    pub outage_seconds: f64,
}

/// The fault model. Set exactly one variant.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "FaultsRecord")]
pub enum FaultModel {
    /// Nodes fail independently, with exponentially distributed times.
    Exponential(ExponentialRecord),
    /// Published rates, durations and months (docs/traces.md), for any number of servers.
    Published(NothingRecord),
    /// Servers from a trace file in the same folder as this file, resampled to any number.
    Trace(String),
}

/// Exponentially distributed times.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExponentialRecord {
    /// Mean days from a repair to the next fault of a node.
    #[schemars(range(min = 0.01, max = 1000000000))]
    pub node_mtbf_days: f64,
    /// Mean hours from fault to repair.
    #[schemars(range(min = 0, max = 1000000))]
    pub repair_hours: f64,
}

/// An empty record.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NothingRecord {}

/// The operating cost.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunningRecord {
    /// Depreciation period in years (linear).
    #[schemars(range(min = 0.01, max = 100))]
    pub service_years: f64,
    /// Watts per GPU, including its share of the server.
    #[schemars(range(min = 0, max = 1000000))]
    pub gpu_watts: f64,
    /// US dollars per kilowatt-hour.
    #[schemars(range(min = 0, max = 1000))]
    pub usd_per_kwh: f64,
    /// Site power ÷ equipment power, at least 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    pub pue: f64,
}

const fn two_minutes() -> f64 {
    2.0
}
const fn ten() -> f64 {
    10.0
}
const fn four() -> u32 {
    4
}
const fn four_hundred() -> u32 {
    400
}
const fn year() -> f64 {
    365.0
}
const fn one() -> f64 {
    1.0
}

pub type ReadFabric<'a> = &'a mut dyn FnMut(&str) -> Result<Box<dyn Architecture>, String>;

/// Reads a buy file, named `file` in messages. Does not open the trace file.
pub fn load_buy(
    file: &str,
    bytes: &[u8],
    fabrics: ReadFabric<'_>,
) -> (Option<Question>, Vec<Diagnostic>) {
    document::load(file, bytes, |file, check| question(file, fabrics, check))
}

const REMEDY: &str = "for valid values, see docs/buy.md";

/// Reports an error at `path` whose cause is outside the file.
pub fn refuse_buy(file: &str, bytes: &[u8], path: &str, message: String) -> Vec<Diagnostic> {
    document::load(file, bytes, |_: BuyFile, check| -> Option<()> {
        check.error(codes::UNREADABLE, path, message).help(REMEDY);
        None
    })
    .1
}

fn question(file: BuyFile, fabrics: ReadFabric<'_>, check: &mut Check<'_>) -> Option<Question> {
    if !file.gpus.is_multiple_of(file.gpus_per_node) {
        let per_node = file.gpus_per_node;
        let message = format!("{} GPUs are not a multiple of {per_node} per node", file.gpus);
        refuse(check, "/gpus", message, format!("use a multiple of {per_node}"));
    }
    check_step(&file, check);
    let network = file.network.as_deref().and_then(|name| network(name, "/network", check));
    let candidates = candidates(&file, &network, fabrics, check);
    let nic = NicRate::ALL.into_iter().find(|rate| rate.gbps() == file.nic_gbps);
    if nic.is_none() {
        let message = format!("no price for a network card of {} Gb/s", file.nic_gbps);
        refuse(check, "/nic_gbps", message, "use 100, 200, 400 or 800");
    }
    let jobs = jobs(&file, check);
    if check.has_errors() {
        return None;
    }
    let step = &file.workload.step;
    let cluster =
        Cluster { nodes: file.gpus / file.gpus_per_node, gpus_per_node: file.gpus_per_node };
    let nic = nic?;
    let site = cluster.site(nic);
    let parts = parts::rates(&file.part_faults, &candidates, &site, check);
    if check.has_errors() {
        return None;
    }
    Some(Question {
        cluster,
        window_ms: milliseconds(file.days),
        budget_usd: file.budget_usd,
        usual_network: network.map(|network| network.name()),
        nic,
        candidates,
        tp: file.workload.tp,
        peak_tflops: file.workload.peak_tflops,
        mfu: file.workload.mfu.unwrap_or(1.0),
        step_from: step.from.clone(),
        step: ((step.seconds * 1e12).round() as i128).max(1),
        speed: Speed {
            tensor_parallel: step.tensor_parallel,
            expert_parallel: step.all_to_all,
            data_parallel: step.data_parallel,
            at_gbytes_per_s: step.at_gbytes_per_s,
            cross_tor_slowdown: step.cross_tor_slowdown,
            nodes_per_tor: step.nodes_per_tor,
        },
        jobs,
        checkpoint_every_ms: milliseconds(file.checkpoint.every_minutes / 1_440.0).max(1),
        checkpoint_ms: milliseconds(file.checkpoint.seconds / 86_400.0),
        outage_ms: milliseconds(file.checkpoint.outage_seconds / 86_400.0),
        faults: file.faults,
        parts,
        running: file.running,
        name: file.name,
    })
}

fn milliseconds(days: f64) -> u64 {
    (days * MS_PER_DAY).round() as u64
}

fn check_step(file: &BuyFile, check: &mut Check<'_>) {
    let step = &file.workload.step;
    let typed = shares_typed(step)
        || file.workload.mfu.is_some()
        || check.is_written("/workload/step/seconds");
    match (&step.from, typed) {
        (Some(_), true) => {
            refuse(
                check,
                "/workload/step/from",
                "`from` excludes shares, `seconds` and `mfu`",
                "omit `from` or the values that it provides",
            );
        }
        (None, _) if file.workload.mfu.is_none() => {
            refuse(
                check,
                "/workload/mfu",
                "the MFU is missing",
                "add `mfu`, or `step.from` with the result of `lightloom mfu`",
            );
        }
        _ => {}
    }
    let shares = step.tensor_parallel + step.all_to_all + step.data_parallel;
    if shares >= 1.0 {
        refuse(
            check,
            "/workload/step",
            format!("the communication shares add up to {shares}"),
            "use shares with a sum below 1, to leave time for computation",
        );
    }
}

fn jobs(file: &BuyFile, check: &mut Check<'_>) -> Vec<JobKind> {
    let tp = file.workload.tp;
    let mut jobs = Vec::new();
    for (index, job) in file.workload.jobs.iter().enumerate() {
        let place = format!("/workload/jobs/{index}");
        if !job.gpus.is_multiple_of(tp) || job.gpus > file.gpus {
            let message = format!("job `{}` needs {} GPUs, in groups of {tp}", job.name, job.gpus);
            let help =
                format!("use a multiple of {tp} up to the {} GPUs of the cluster", file.gpus);
            refuse(check, &format!("{place}/gpus"), message, help);
        }
        jobs.push(JobKind {
            name: job.name.clone(),
            gpus: job.gpus,
            work_ms: (job.days * MS_PER_DAY).round().max(1.0) as u64,
            every_ms: job.every_days * MS_PER_DAY,
        });
    }
    jobs
}

fn design(
    name: &str,
    path: &str,
    fabrics: ReadFabric<'_>,
    check: &mut Check<'_>,
) -> Option<Box<dyn Architecture>> {
    if is_fabric_file(name) {
        let read = fabrics(name).map_err(|why| {
            check.error(codes::UNREADABLE, path, why).help("use a valid fabric file");
        });
        return read.ok();
    }
    let unknown = match parse(name) {
        Ok(design) => return Some(design),
        Err(unknown) => unknown,
    };
    refuse(check, path, format!("unknown design `{name}`"), unknown.instead);
    None
}

fn network(name: &str, path: &str, check: &mut Check<'_>) -> Option<Arc<dyn Architecture>> {
    match parse_network(name) {
        Ok(network) => Some(Arc::from(network)),
        Err(unknown) => {
            let message = format!("unknown data-centre network `{name}`");
            refuse(check, path, message, unknown.instead);
            None
        }
    }
}

fn candidates(
    file: &BuyFile,
    usual: &Option<Arc<dyn Architecture>>,
    fabrics: ReadFabric<'_>,
    check: &mut Check<'_>,
) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for (index, record) in file.designs.iter().enumerate() {
        let place = format!("/designs/{index}");
        let at = format!("{place}/design");
        let Some(design) = design(&record.design, &at, fabrics, check) else {
            continue;
        };
        let network = match record.network.as_deref() {
            Some(_) if design.has_network() => {
                let message = format!("`{}` describes its own network", record.design);
                refuse(check, &format!("{place}/network"), message, "remove it");
                None
            }
            None => usual.clone().filter(|_| !design.has_network()),
            Some(name) => network(name, &format!("{place}/network"), check),
        };
        let known = design.fault_policies();
        let policy = record.policy.unwrap_or(known[0]);
        if !known.contains(&policy) {
            let names: Vec<String> = known.iter().map(ToString::to_string).collect();
            let message = format!("`{}` cannot have the policy `{policy}`", record.design);
            refuse(
                check,
                &format!("{place}/policy"),
                message,
                format!("use one of {}", names.join(", ")),
            );
        }
        let minutes = record.restart_minutes.unwrap_or(file.checkpoint.restart_minutes);
        if record.spares.is_some() && policy != FaultPolicy::Backup {
            let message = format!("the policy `{policy}` reserves no spares");
            refuse(
                check,
                &format!("{place}/spares"),
                message,
                "use `policy: backup` or omit `spares`",
            );
        }
        let spares = record.spares.unwrap_or(1);
        if record.spares.is_some() {
            let (gpus_per_node, tp) = (file.gpus_per_node, file.workload.tp);
            let cluster = Cluster { nodes: file.gpus / gpus_per_node, gpus_per_node };
            if let Err(why) = design.usable_under(policy, spares, cluster, tp) {
                refuse(check, &format!("{place}/spares"), why.to_string(), "write fewer");
            }
        }
        let (answer, least) = answer(record, policy, file, &format!("{place}/answer"), check);
        let restart_ms = (minutes * 60_000.0).round().max(0.0) as u64;
        candidates.push(Candidate { design, network, policy, spares, answer, least, restart_ms });
    }
    candidates
}

fn shares_typed(step: &StepRecord) -> bool {
    [step.tensor_parallel, step.all_to_all, step.data_parallel].iter().any(|share| *share != 0.0)
}

fn refuse(check: &mut Check<'_>, path: &str, message: impl Into<String>, help: impl Into<String>) {
    check.error(codes::BAD_VALUE, path, message).help(help);
}
