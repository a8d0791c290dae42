// SPDX-License-Identifier: Apache-2.0

mod against;
mod why;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use lightloom_fabric::dcn::FatTree;
use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::file::StepFile;
use lightloom_fabric::plan::{JobPlan, Plan, RingSearch, Searched, digest};
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_fabric::trace::{Observation, Timeline, TraceTime};
use lightloom_planner::Options;
use lightloom_planner::check::{Verdict, Violation, check};
use lightloom_planner::khop::Method;
use lightloom_planner::rfabric;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::why::{WastedGpus, wasted};
use lightloom_units::id::LeafId;
use lightloom_units::seed::Seed;
use serde::Serialize;

use crate::output::{self, VerbOutcome};
use crate::plan_rfabric::{self, SOLVER_LIMITS};
use crate::result::ResultFormat;
use crate::table::{TextTable, rounded, separated};
use crate::{fabric, files, replan, trace};
use against::Against;

/// Plan a fabric around its faults: rings, transceiver paths, ranks
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom plan topologies/ring-2880.yaml --fault n17,n42/b1,n7/b0.2 -o plan.json
  lightloom plan topologies/pod-2048.yaml --fault n17,ocs3
  lightloom plan topologies/ring-2880.yaml --trace topologies/traces/synthetic.json --at 75
  lightloom plan topologies/ring-2880.yaml --fault n17 --against plan.json
  lightloom plan topologies/pod-2048.yaml --separately --against together.json
  lightloom plan topologies/explicit-8.yaml --exact
  lightloom plan topologies/ring-2880.yaml --fault n17,n42 --why
  lightloom plan topologies/rfabric-shapes.yaml --exact")]
pub struct Arguments {
    /// Fabric file; `-` reads standard input
    pub fabric: PathBuf,
    /// Failed parts: nodes `n17`, bundles `n17/b0`, fibres by one of their ports `n17/b0.2`,
    /// optical switches `ocs3` and their ports `ocs3/p17`
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    pub fault: Vec<Part>,
    /// Take the failed nodes from this fault trace
    #[arg(long, value_name = "FILE", requires = "at")]
    pub trace: Option<PathBuf>,
    /// Day in the trace
    #[arg(long, value_name = "DAYS", allow_negative_numbers = true)]
    at: Option<f64>,
    /// Random seed (assigns trace servers to nodes)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::number::whole::<u64>(0..=u64::MAX))]
    pub seed: u64,
    /// Maximise the number of rings, by counting if that settles it, otherwise by integer
    /// programming over up to 2,000 candidate rings with at most 20 s per job; ignores ToRs. On a
    /// reconfigurable fat-tree, also solve every phase, with at most 20 s each, and use multi-hop
    /// routes with up to 24 leaves
    #[arg(long)]
    pub exact: bool,
    /// Attribute every wasted GPU to a cause, with remedies that are proven by planning them
    #[arg(long)]
    pub why: bool,
    /// Plan rings and network separately, the baseline for joint planning
    #[arg(long, conflicts_with = "exact")]
    separately: bool,
    /// Plan file to compare with
    #[arg(long, value_name = "PLAN")]
    against: Option<PathBuf>,
    /// File for the plan
    #[arg(short, long, value_name = "FILE", value_parser = files::destination)]
    pub output: Option<PathBuf>,
    /// Output format; the rows of `csv` and `markdown` are the phases of a step, or the jobs
    /// without one
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: ResultFormat,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let document = files::read_document(&arguments.fabric);
    let (fabric, mistakes) = fabric::quietly(&arguments.fabric, document)?;
    let mut inputs = Inputs::new();
    output::diagnostics(&mistakes);
    let fabric = fabric.ok_or(output::InputRefused)?;
    inputs.insert("fabric".to_owned(), fabric_input(&arguments.fabric, &fabric));
    for (name, text) in &fabric.files {
        if let Ok(text) = text {
            files::note_input(&mut inputs, "matrix", name, text.as_bytes());
        }
    }
    let seed = Seed(arguments.seed);
    if let (Some(day), None) = (arguments.at, &arguments.trace) {
        let message = format!(
            "--at {day} needs the trace with this day: add --trace FILE, or name failed parts with --fault"
        );
        return Err(output::WrongUsage(message).into());
    }
    let mut broken = arguments.fault.clone();
    if let (Some(path), Some(day)) = (&arguments.trace, arguments.at) {
        broken.extend(broken_on(&fabric, path, day, seed, &mut inputs)?);
    }
    let faults = fault_set(&fabric, broken)?;
    // Fabrics without placed jobs have no rings to solve.
    let has_rings = fabric.jobs.iter().any(Job::is_placed);
    let method = if arguments.exact && has_rings { Method::Exact } else { Method::Scan };
    let exact = arguments.exact.then_some(SOLVER_LIMITS);
    let separately = arguments.separately;
    let options = Options { method, exact, separately, seed, ..Options::default() };
    let start = Instant::now();
    let mut plan = lightloom_planner::plan(&fabric, &faults, options)?;
    let planned = start.elapsed();
    let verdict = prove(&fabric, &faults, &plan)?;
    let took = Took { planned, proven: Some(start.elapsed() - planned) };
    let why = arguments.why.then(|| wasted(&fabric, &faults, &plan, options));
    plan.weight_sync = lightloom_planner::joint::sync::compare(&fabric, &faults, &plan, options);
    let plan = plan.sealed(inputs);
    let against = arguments.against.as_deref();
    let against = against.map(|path| compare_with(path, &fabric, &plan)).transpose()?;
    write(arguments.output.as_deref(), &plan)?;
    match arguments.format {
        ResultFormat::Text => {
            output::print(&describe(&fabric, &plan, &verdict, took))?;
            output::print(&plan_rfabric::weight_sync(&plan.weight_sync))?;
            output::print(&break_even(&fabric, &faults, &plan, options)?)?;
            if let Some(rows) = &why {
                output::print(&why::text(rows))?;
            }
            if let Some(against) = &against {
                output::print(&against.to_string())?;
            }
        }
        format => {
            output::note(&took.to_string());
            let rows = if plan.phases.is_empty() { "jobs" } else { "phases" };
            format.print(&Printed { plan: &plan, why, against }, rows, String::new)?;
        }
    }
    Ok(VerbOutcome::Good)
}

fn compare_with(path: &Path, fabric: &Fabric, plan: &Plan) -> anyhow::Result<Against> {
    let other = replan::read_plan(path, &mut Inputs::new())?;
    if other.fabric_sha256 != fabric.sha256 {
        output::note(&format!("{} was made for another fabric file", path.display()));
    }
    Ok(Against::new(files::name(path), &other, plan))
}

fn break_even(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    options: Options,
) -> anyhow::Result<String> {
    let phases = sending(fabric, plan)?;
    let Some(network) = fabric.dcn.circuits().filter(|_| !phases.is_empty()) else {
        return Ok(String::new());
    };
    let circuits = rfabric::Options {
        effort: options.effort,
        floor: fabric.floor,
        ..rfabric::Options::default()
    };
    Ok(plan_rfabric::break_even(&network.without(faults), &phases, plan, circuits))
}

pub fn fabric_input(path: &Path, fabric: &Fabric) -> Input {
    Input { file: files::name(path), sha256: fabric.sha256.clone() }
}

/// Shown only in text output, because times differ between runs.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub planned: Duration,
    /// Time of the exact search. `None` if `planned` includes this time.
    pub proven: Option<Duration>,
}

impl fmt::Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [planned, proven] =
            [Some(self.planned), self.proven].map(|took| took.map(|took| took.as_secs_f64() * 1e3));
        let planned = planned.unwrap_or_default();
        match proven {
            Some(proven) => write!(f, "planned in {planned:.2} ms, proven in {proven:.2} ms"),
            None => write!(f, "planned and proven in {planned:.2} ms"),
        }
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Vec<WastedGpus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<Against>,
}

fn sending(fabric: &Fabric, plan: &Plan) -> anyhow::Result<Vec<Phase>> {
    let mut phases = lightloom_planner::joint::phases(fabric, &plan.ranks)?;
    phases.retain(|phase| phase.demand.total().0 > 0);
    Ok(phases)
}

pub fn fault_set(
    fabric: &Fabric,
    parts: impl IntoIterator<Item = Part>,
) -> anyhow::Result<FaultSet> {
    let mut faults = fabric.start.clone();
    let unknown: Vec<String> = parts
        .into_iter()
        .filter_map(|part| faults.insert(fabric, part).err())
        .map(|error| error.to_string())
        .collect();
    anyhow::ensure!(
        unknown.is_empty(),
        "{}\nhelp: faults name nodes (n0 to n{}) and their bundles, fibres, optical switches, ports and uplinks: `n3`, `n3/b0`, `n3/b0.1`, `ocs1`, `ocs1/p2`, `l0/up1`",
        unknown.join("\n"),
        fabric.hbd.nodes() - 1
    );
    Ok(faults)
}

pub fn broken_on(
    fabric: &Fabric,
    path: &Path,
    day: f64,
    seed: Seed,
    inputs: &mut Inputs,
) -> anyhow::Result<Vec<Part>> {
    let unknown = Observation { servers: None, gpus_per_server: None, days: None };
    let trace = trace::read(path, unknown, inputs)?;
    anyhow::ensure!(
        (0.0..=trace.window.as_days()).contains(&day),
        "day {day} is outside {}, which covers days 0 to {}",
        path.display(),
        trace.window.as_days()
    );
    let (nodes, per_node) = (fabric.hbd.nodes(), u32::from(fabric.hbd.gpus_per_node()));
    let timeline = Timeline::on_nodes(&trace, nodes, per_node, seed, 0)
        .with_context(|| format!("{} does not fit this fabric", path.display()))?;
    Ok(timeline.faulty_at(TraceTime::from_days(day)).into_iter().map(Part::Node).collect())
}

/// Plans that fail this check are not written.
pub fn prove(fabric: &Fabric, faults: &FaultSet, plan: &Plan) -> anyhow::Result<Verdict> {
    check(fabric, faults, plan).map_err(|found| not_valid(&found))
}

pub fn not_valid(found: &[Violation]) -> anyhow::Error {
    let shown: Vec<String> =
        found.iter().take(20).map(|violation| format!("\n  {violation}")).collect();
    anyhow::anyhow!("the plan is not valid ({} findings):{}", found.len(), shown.concat())
}

pub fn write(path: Option<&Path>, plan: &Plan) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let mut text = serde_json::to_vec(plan)?;
    text.push(b'\n');
    files::write(path, &text)
}

pub fn describe(fabric: &Fabric, plan: &Plan, verdict: &Verdict, took: Took) -> String {
    let heading =
        format!("{}\n{}\n{}", answer(plan), heading(fabric, plan), proof(plan, verdict, took));
    let placed = fabric.jobs.iter().any(Job::is_placed) || fabric.jobs.is_empty();
    let groups = if placed { groups_text(fabric, plan) } else { String::new() };
    let network = match plan.phases.is_empty() {
        true => String::new(),
        false => format!(
            "{}\n{}{}{}{}\n",
            plan_rfabric::text(plan),
            plan_rfabric::summary(plan),
            interface_text(plan),
            gain_text(plan),
            assumed_text(fabric)
        ),
    };
    format!("{heading}\n{groups}{}{network}", ranks_text(fabric, plan))
}

pub fn heading(fabric: &Fabric, plan: &Plan) -> String {
    let hbd = &fabric.hbd;
    let mut apart = fabric.drained.parts(fabric);
    apart.extend(fabric.absent.iter().copied().map(Part::Node));
    let failed = plan.faults.iter().filter(|part| !apart.contains(part)).count();
    // Computing the digest takes as long as serialising the plan, so reuse it.
    let name = if plan.digest.is_empty() { digest(plan) } else { plan.digest.clone() };
    // Keep separators out of the digest, which may consist of decimal digits only.
    let counts = separated(&format!(
        "{}: {} nodes of {} GPUs, {}; {}; {}",
        fabric.name,
        fabric.installed().count(),
        hbd.gpus_per_node(),
        hbd.name(),
        fabric.dcn.name(),
        broken_parts(failed),
    ));
    format!("{counts}; plan {}", &name[..name.len().min(12)])
}

fn answer(plan: &Plan) -> String {
    let metrics = &plan.metrics;
    let short =
        plan.jobs.iter().filter(|job| job.gpus_wanted.is_some_and(|wanted| job.gpus < wanted));
    let short: String = short.map(|job| format!("; job {} lacks GPUs", job.name)).collect();
    let jobs = match plan.jobs.len() {
        1 => "1 job".to_owned(),
        jobs => format!("{jobs} jobs"),
    };
    let spare = match metrics.gpus_spare {
        0 => String::new(),
        spare => format!(", {spare} are in spare rings"),
    };
    let faulty = match metrics.gpus_faulty {
        0 => String::new(),
        faulty => format!(", {faulty} are on failed nodes"),
    };
    let step = metrics
        .step_time_ps
        .map_or(String::new(), |step| format!("; a step communicates for {}", rounded(step)));
    separated(&format!(
        "{} of {} GPUs work for {jobs}{spare}{faulty}, {} are wasted ({}){short}{step}",
        metrics.gpus_used,
        metrics.gpus_total,
        metrics.gpus_wasted,
        percent(metrics.waste_ratio),
    ))
}

fn groups_text(fabric: &Fabric, plan: &Plan) -> String {
    let metrics = &plan.metrics;
    let mut jobs = TextTable::new(["job", "TP", "GPUs", "wanted", "cross-ToR", "lower bound"]);
    for job in &plan.jobs {
        jobs.row(job_row(job));
    }
    let mut gpus = TextTable::new(["GPUs", "count", "share", "lower bound"]);
    let total = metrics.gpus_total;
    let is_idle = plan.jobs.is_empty();
    let rows = [
        ("all", Some(total)),
        ("on failed nodes", Some(metrics.gpus_faulty)),
        ("working for jobs", Some(metrics.gpus_used)),
        ("in spare rings", Some(metrics.gpus_spare)),
        ("idle, without jobs", is_idle.then_some(metrics.gpus_wasted)),
        ("wasted", (!is_idle).then_some(metrics.gpus_wasted)),
        ("  of them, pass-through", metrics.gpus_passing),
    ];
    for (what, count) in rows {
        let Some(count) = count else { continue };
        let bound = match what {
            "wasted" => percent(metrics.waste_ratio_lower_bound),
            _ => "-".to_owned(),
        };
        gpus.row([what.to_owned(), count.to_string(), percent(count as f64 / total as f64), bound]);
    }
    let proofs: String = plan.jobs.iter().filter_map(ring_proof).collect();
    let jobs_planned = fabric.jobs.iter().zip(&plan.jobs);
    let searches: String =
        jobs_planned.filter_map(|(job, planned)| search_text(job, planned)).collect();
    format!("{jobs}{proofs}{searches}\n{gpus}{}{}\n", reserve_note(plan), spare_note(plan))
}

fn search_text(job: &Job, planned: &JobPlan) -> Option<String> {
    let found = planned.searched.as_ref()?;
    let Searched { sequences, sequence, .. } = found;
    Some(format!(
        "{}: the shortest step of {} mappings, by the closed form of `lightloom mfu` ({}, constants {}, bf16, {sequences} \
         sequences of {sequence} tokens, no virtual stages): {:.3} s, MFU {}, recompute {}\n  to keep it: tp: {}, step: {}\n",
        job.name,
        found.tried,
        found.accelerator,
        found.constants,
        found.step_seconds,
        percent(found.mfu),
        found.recompute,
        found.tp,
        serde_json::to_string(&job.step)
            .ok()?
            .replace('"', "")
            .replace(':', ": ")
            .replace(',', ", "),
    ))
}

fn ring_proof(job: &JobPlan) -> Option<String> {
    let proof = job.most_rings?;
    let ended = match proof.ended {
        RingSearch::Counting => "counting the connected nodes",
        RingSearch::IntegerProgram => "an integer program",
        RingSearch::TimeLimit => "the time limit of the integer program",
    };
    let gap = match proof.at_most - proof.rings {
        0 => "proven maximum".to_owned(),
        more => format!("{more} below the bound of {}", proof.at_most),
    };
    Some(format!("{}: {} rings of TP-{}, {gap}, by {ended}\n", job.name, proof.rings, job.tp))
}

fn ranks_text(fabric: &Fabric, plan: &Plan) -> String {
    let mut table = TextTable::new([
        "ranks of",
        "TP",
        "PP",
        "CP",
        "DP",
        "EP",
        "DP neighbours below one leaf",
        "PP",
    ]);
    let mut rows = 0;
    for (index, job) in (0_u32..).zip(&fabric.jobs) {
        if !matches!(job.step, Some(StepFile::Training(_))) {
            continue;
        }
        let at: BTreeMap<[u32; 4], LeafId> = plan
            .ranks
            .iter()
            .filter(|rank| rank.job == Some(index))
            .map(|rank| ([rank.tp, rank.pp, rank.cp, rank.dp], fabric.dcn.leaf_of(rank.gpu)))
            .collect();
        let counts: [u32; 4] =
            std::array::from_fn(|axis| at.keys().map(|at| at[axis] + 1).max().unwrap_or(0));
        // The gradient ring is closed, so the last rank neighbours the first; pipeline stages form a line.
        let [data, stages] = [(3, true), (1, false)].map(|(axis, is_round)| {
            let pairs = at.iter().filter_map(|(rank, leaf)| {
                let mut next = *rank;
                next[axis] += 1;
                if is_round && counts[axis] > 2 {
                    next[axis] %= counts[axis];
                }
                at.get(&next).map(|other| leaf == other)
            });
            let (same, all) =
                pairs.fold((0, 0), |(same, all), is_same| (same + u32::from(is_same), all + 1));
            if all == 0 { "-".to_owned() } else { percent(f64::from(same) / f64::from(all)) }
        });
        let experts =
            plan.ranks.iter().filter(|rank| rank.job == Some(index)).map(|rank| rank.ep + 1);
        table.row([
            job.name.clone(),
            counts[0].to_string(),
            counts[1].to_string(),
            counts[2].to_string(),
            counts[3].to_string(),
            experts.max().unwrap_or(0).to_string(),
            data,
            stages,
        ]);
        rows += 1;
    }
    if rows == 0 { String::new() } else { format!("{table}\n") }
}

fn assumed_text(fabric: &Fabric) -> String {
    let assumed = FatTree::default();
    if fabric.dcn.packet_tree() != Some(&assumed) {
        return String::new();
    }
    format!(
        "Assumed because the file has no `dcn`: a fat-tree, {}:1, {} nodes below a leaf, {} per network interface.\n",
        assumed.oversubscription, assumed.nodes_per_tor, assumed.link_rate
    )
}

fn gain_text(plan: &Plan) -> String {
    let metrics = &plan.metrics;
    let Some(gain) = metrics.orchestration_gain else { return String::new() };
    let bound = match metrics.orchestration_gain_upper_bound {
        Some(bound) if bound < 0.999_95 => {
            format!("; no placement saves more than {}", percent(bound.max(0.0)))
        }
        _ => "; upper bound unknown".to_owned(),
    };
    format!(
        "Planning rings and network together saves {} of that time compared with separate planning{bound}.\n",
        percent(gain)
    )
}

fn interface_text(plan: &Plan) -> String {
    let held = plan.phases.iter().filter(|phase| {
        phase.interface_ps.is_some_and(|time| time.0 > 0 && time == phase.duration_ps)
    });
    let held: Vec<&str> = held.map(|phase| phase.name.as_str()).collect();
    match held.is_empty() {
        true => String::new(),
        false => format!(
            "NIC-bound: {}. Neither circuits nor placement can shorten this.\n",
            held.join(", ")
        ),
    }
}

fn proof(plan: &Plan, verdict: &Verdict, took: Took) -> String {
    let mut proven = Vec::new();
    if verdict.circuits > 0 || verdict.bundles > 0 {
        proven.push(format!(
            "{} rings are single cycles over {} GPUs; both ends select {} circuits; {} bundles are set",
            verdict.rings, verdict.gpus, verdict.circuits, verdict.bundles
        ));
    }
    if verdict.phases > 0 {
        proven.push(format!(
            "{2} cross-connects carry the stated traffic of {0} ranks in {1} phases",
            verdict.ranks, verdict.phases, verdict.cross_connects
        ));
    }
    if proven.is_empty() {
        proven.push(format!("{} groups over {} GPUs", plan.groups.len(), verdict.gpus));
    }
    separated(&format!("proven: {}; {took}\n", proven.join("; ")))
}

fn broken_parts(count: usize) -> String {
    match count {
        0 => "no faults".to_owned(),
        1 => "1 failed part".to_owned(),
        _ => format!("{count} failed parts"),
    }
}

fn reserve_note(plan: &Plan) -> &'static str {
    if plan.jobs.is_empty() {
        return "(the fabric has no `jobs`, so all GPUs are idle: add `jobs: [{name: train, gpus: all, tp: 32}]`)\n";
    }
    let sized = plan.jobs.iter().any(|job| job.gpus_wanted.is_some());
    let reserves = sized && plan.metrics.gpus_passing.is_none();
    if reserves && plan.metrics.waste_ratio > plan.metrics.waste_ratio_lower_bound {
        "(idle nodes are kept as spares so that data-parallel peers share a ToR)\n"
    } else {
        ""
    }
}

fn spare_note(plan: &Plan) -> String {
    match plan.metrics.rings_without_spare {
        None => String::new(),
        Some(0) => {
            "(every ring has a spare node: any single failure in a ring switches the modules of \
             two nodes)\n"
                .to_owned()
        }
        Some(1) => {
            "(1 ring has no spare node left, or cannot bypass one of its nodes)\n".to_owned()
        }
        Some(rings) => {
            format!(
                "({rings} rings have no spare node left, or cannot bypass one of their nodes)\n"
            )
        }
    }
}

fn job_row(job: &JobPlan) -> [String; 6] {
    [
        job.name.clone(),
        job.tp.to_string(),
        job.gpus.to_string(),
        job.gpus_wanted.map_or("all".to_owned(), |gpus| gpus.to_string()),
        percent(job.cross_tor_share),
        job.cross_tor_share_lower_bound.map_or("–".to_owned(), percent),
    ]
}

pub fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
