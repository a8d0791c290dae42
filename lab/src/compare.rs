// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::path::PathBuf;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_study::FabricDesign;
use lightloom_study::compare::{
    FabricFigures, Figures, NodeFaultRatio, Row, RowOutcome, Study, compare, on_fabric,
};
use lightloom_study::results::{COMPARE_SCHEMA, CompareResult};
use lightloom_units::seed::Seed;

use crate::designs::{ClusterSize, designs, fault_source, prices, read_fabric};
use lightloom::output::VerbOutcome;
use lightloom::progress::Progress;
use lightloom::result::ResultArguments;
use lightloom::table::TextTable;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom compare --faults fault_trace.json --tp 32 --samples 100
  lightloom compare --arch khop:2,khop:3,nvl:72 --gpus 131072 --faults iid:0.05
  lightloom compare topologies/pod-2048.yaml --faults iid:0.03

Architectures: khop:K, khop:K:line, khop:K:spare, big-switch, nvl:X, nvl:36x2, tpuv4, tpuv4:strict, sip-ring, dgx,
torus:XxYxZ, or a fabric file. Columns: docs/compare.md")]
pub(crate) struct Arguments {
    /// Fabric file to compare; sets GPUs and group sizes, and includes its plans under faults.
    #[arg(conflicts_with_all = ["gpus", "gpus_per_node"])]
    fabric: Option<PathBuf>,
    #[command(flatten)]
    size: ClusterSize,
    /// Designs, separated by commas.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "khop:2,khop:3,big-switch,nvl:36,nvl:72,nvl:576,tpuv4,sip-ring,dgx"
    )]
    arch: Vec<String>,
    /// Tensor-parallel group sizes, comma-separated [default: the fabric's, else 8,16,32,64].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = lightloom::number::whole::<u32>(1..=1 << 24))]
    tp: Vec<u32>,
    /// A trace file, `synthetic`, or `iid:P` for nodes that fail with probability P.
    #[arg(long, value_name = "FILE|synthetic|iid:P", default_value = "synthetic")]
    faults: String,
    /// Number of servers observed, for a trace file that does not state it [default: 400].
    #[arg(long, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=u32::MAX.into()))]
    trace_servers: Option<u32>,
    /// Number of random assignments of trace servers to nodes.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = lightloom::number::whole::<u64>(1..=1_000_000))]
    samples: u64,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Job sizes in GPUs for waiting times [default: six from 80 % to 98 % of the cluster].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = lightloom::number::whole::<u32>(1..=1 << 24))]
    jobs: Vec<u32>,
    #[command(flatten)]
    result: ResultArguments,
}

/// Planning is slow, and each moment requires two plans per job.
const MOST_MOMENTS: usize = 10;

const USUAL_TP: [u32; 4] = [8, 16, 32, 64];

fn group_sizes(asked: &[u32], fabric: Option<&Fabric>) -> Vec<u32> {
    let mut sizes: Vec<u32> = match (asked, fabric) {
        ([], Some(fabric)) => fabric.jobs.iter().map(|job| job.tp).filter(|tp| *tp > 0).collect(),
        (asked, _) => asked.to_vec(),
    };
    if sizes.is_empty() {
        sizes.extend(USUAL_TP);
    }
    let mut seen = BTreeSet::new();
    sizes.retain(|tp| seen.insert(*tp));
    sizes
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let mut inputs = Inputs::new();
    let fabric =
        arguments.fabric.as_deref().map(|path| read_fabric(path, &mut inputs)).transpose()?;
    // Only the bill depends on prices.
    let prices = prices(None, &mut Inputs::new())?;
    let own = fabric.clone().map(|fabric| FabricDesign::new(fabric, &prices));
    let cluster = match &own {
        None => arguments.size.cluster()?,
        Some(design) => design.cluster(),
    };
    let mut architectures = designs(&arguments.arch, &prices, &mut inputs)?;
    if let Some(design) = own {
        architectures.insert(0, Box::new(design));
    }
    let sizes = group_sizes(&arguments.tp, fabric.as_ref());
    if let Some(tp) = arguments.tp.iter().find(|tp| **tp > cluster.gpus()) {
        let gpus = cluster.gpus();
        anyhow::bail!(
            "--tp {tp} exceeds the cluster of {gpus} GPUs: use --tp up to {gpus}, or more --gpus"
        );
    }
    let source = fault_source(&arguments.faults, arguments.trace_servers, &mut inputs)?;
    let samples = source.samples(cluster, arguments.samples, Seed(arguments.seed))?;
    let steps = (architectures.len() + 1) * sizes.len() * samples.len();
    let progress = Progress::new("replaying faults", steps as u64);
    let (tp, jobs) = (&sizes[..], &arguments.jobs[..]);
    for (job, tp) in jobs.iter().flat_map(|job| tp.iter().map(move |tp| (job, tp))) {
        if job % tp != 0 {
            let whole = job / tp * tp;
            lightloom::output::note(&format!(
                "--jobs {job}: shown as {whole} GPUs in whole groups of {tp}"
            ));
        }
    }
    let study = Study { cluster, architectures: &architectures, tp, jobs, samples: &samples };
    let rows = compare(&study, &|done| progress.advance(done));
    drop(progress);
    let document = CompareResult {
        made: Provenance::of(COMPARE_SCHEMA, inputs),
        gpus: cluster.gpus(),
        gpus_per_node: cluster.gpus_per_node,
        faults: arguments.faults.clone(),
        seed: arguments.seed,
        samples: arguments.samples,
        node_fault_ratio: NodeFaultRatio::of(&samples),
        rows,
        fabric: fabric.as_ref().map(|fabric| {
            on_fabric(fabric, &samples[..samples.len().min(MOST_MOMENTS)], Seed(arguments.seed))
        }),
    };
    arguments.result.show(&document, "rows", || describe(&document, tp))?;
    Ok(VerbOutcome::Good)
}

fn describe(document: &CompareResult, tp: &[u32]) -> String {
    let faults = document.node_fault_ratio;
    let mut text = format!(
        "{} GPUs in nodes of {}; faults: {}; {} samples, seed {}\n\
         nodes out of service: mean {:.2} %, P50 {:.2} %, P99 {:.2} %, maximum {:.2} %\n",
        document.gpus,
        document.gpus_per_node,
        document.faults,
        document.samples,
        document.seed,
        100.0 * faults.mean,
        100.0 * faults.p50,
        100.0 * faults.p99,
        100.0 * faults.max,
    );
    for &tp in tp {
        let rows: Vec<&Row> = document.rows.iter().filter(|row| row.tp == tp).collect();
        if held(&rows).next().is_some() {
            text.push_str(&format!("\nTP-{tp}: GPUs wasted, % of all GPUs, and jobs\n\n"));
            text.push_str(&waste_table(&rows).to_string());
            text.push_str(&format!(
                "\nTP-{tp}: % of the time that a job waits, by GPUs of the job\n\n"
            ));
            text.push_str(&waiting_table(&rows).to_string());
        } else {
            text.push_str(&format!("\nTP-{tp}: no design supports this group size\n"));
        }
        text.push_str(&reasons(&rows));
    }
    if let Some(fabric) = &document.fabric {
        text.push_str(&fabric_text(fabric));
    }
    text.push_str(NOTES);
    text
}

const NOTES: &str = "
mean = arithmetic + faults. arithmetic: waste without faulty nodes, if the domain is not a multiple of TP;
faults: the rest, negative if faults hit GPUs that arithmetic already wastes.
bound: one ideal switch over all GPUs. ±: standard deviation of the samples' means.
job: largest job that never waits; job 1%: largest job that waits for at most 1 % of the time.
";

fn shown_share(share: f64) -> String {
    format!("{:.2} %", 100.0 * share + 0.0)
}

fn fabric_text(fabric: &FabricFigures) -> String {
    let mut table = TextTable::new(["this fabric, as planned", "mean", "bound"]);
    table.row([
        "GPUs wasted".into(),
        shown_share(fabric.waste_mean),
        shown_share(fabric.lower_bound_mean),
    ]);
    if let Some(passing) = fabric.passing_mean {
        table.row(["  of these, passing light through".into(), shown_share(passing), "-".into()]);
    }
    let bound = fabric.cross_tor_share_lower_bound_mean.map_or("-".to_owned(), shown_share);
    table.row([
        "inner hops that cross ToRs".into(),
        shown_share(fabric.cross_tor_share_mean),
        bound,
    ]);
    if let Some(gain) = fabric.orchestration_gain_mean {
        let bound = fabric.orchestration_gain_upper_bound_mean.map_or("-".to_owned(), shown_share);
        table.row(["saved by joint planning".into(), shown_share(gain), bound]);
    }
    let refused = fabric.first_refusal.as_ref().map_or(String::new(), |why| {
        format!("{} moments have no plan; first reason: {why}\n", shown_share(1.0 - fabric.planned))
    });
    format!(
        "\n{}: {} moments of the fault histories\n\n{table}{refused}",
        fabric.name, fabric.moments
    )
}

fn waste_table(rows: &[&Row]) -> TextTable {
    TextTable::of(held(rows))
        .column("design", |(row, _)| row.arch.clone())
        .column("mean %", |(_, figures)| percent(figures.waste_mean))
        .column("± %", |(_, figures)| percent(figures.waste_stddev))
        .column("P50 %", |(_, figures)| percent(figures.waste_p50))
        .column("P99 %", |(_, figures)| percent(figures.waste_p99))
        .column("max %", |(_, figures)| percent(figures.waste_max))
        .column("arithmetic %", |(_, figures)| percent(figures.waste_arithmetic))
        .column("faults %", |(_, figures)| percent(figures.waste_from_faults))
        .column("bound %", |(_, figures)| percent(figures.lower_bound_mean))
        .column("job GPUs", |(_, figures)| figures.max_job_gpus)
        .column("job 1% GPUs", |(_, figures)| figures.max_job_gpus_waiting_1pct)
        .table()
}

fn percent(ratio: f64) -> String {
    format!("{:.3}", 100.0 * ratio + 0.0)
}

fn waiting_table(rows: &[&Row]) -> TextTable {
    let jobs = held(rows).next().map_or(&[][..], |(_, figures)| &figures.waiting_share);
    let headings = jobs.iter().map(|waiting| waiting.job_gpus.to_string());
    let mut table = TextTable::with_headings(std::iter::once("design".to_owned()).chain(headings));
    for (row, figures) in held(rows) {
        let shares = figures.waiting_share.iter().map(|w| format!("{:.2}", 100.0 * w.share));
        table.row(std::iter::once(row.arch.clone()).chain(shares));
    }
    table
}

fn held<'a>(rows: &'a [&Row]) -> impl Iterator<Item = (&'a Row, &'a Figures)> {
    rows.iter().filter_map(|row| match &row.outcome {
        RowOutcome::Held(figures) => Some((*row, figures.as_ref())),
        RowOutcome::CannotHold { .. } => None,
    })
}

fn reasons(rows: &[&Row]) -> String {
    let lines = rows.iter().filter_map(|row| match &row.outcome {
        RowOutcome::Held(_) => None,
        RowOutcome::CannotHold { cannot_hold } => {
            Some(format!("{}: not possible: {cannot_hold}\n", row.arch))
        }
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}
