// SPDX-License-Identifier: Apache-2.0

pub(crate) mod inputs;
mod study;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_fabric::trace::{Timeline, TraceTime};
use lightloom_planner::Options;
use lightloom_planner::check::Verdict;
use lightloom_report::page::{Bought, RenderForm, Results, Subject, render};
use lightloom_study::architecture::{Cluster, name_of};
use lightloom_study::cost::PriceList;
use lightloom_units::seed::Seed;

use crate::designs::{self, BuyAsked, ClusterSize, designs};
use inputs::Inputs;
use lightloom::choice::{OptionValue, one_of};
use lightloom::output::{self, VerbOutcome, WrongUsage};
use lightloom::{files, plan};
use study::StudyQuestion;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom report topologies/ring-2880.yaml topologies/traces/synthetic.json -o report.html
  lightloom report topologies/ring-2880.yaml plan.json run.json mfu.json prices.yaml -o report.html
  lightloom report topologies/rfabric-2048.yaml -o report.md
  lightloom report topologies/ring-131072.yaml -o report.csv
  lightloom report topologies/buy-pretraining.yaml -o report.html

Inputs are recognised by their content, in any order: fabric, plan, fault trace, prices, buy file, and the JSON
results of `emulate` and `mfu`. Their sections on the page: docs/report.md")]
pub(crate) struct Arguments {
    /// Input files of the page.
    #[arg(value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Where to write the page [default: standard output].
    #[arg(short, long, value_name = "FILE", value_parser = files::destination)]
    output: Option<PathBuf>,
    /// Format of the page [default: from the extension of --output, else html].
    #[arg(long, value_name = "FORMAT", value_parser = one_of(FORMS))]
    format: Option<RenderForm>,
    /// Failed parts of the fabric: nodes `n17`, bundles `n17/b0`, fibres `n17/b0.2`.
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    fault: Vec<Part>,
    /// Day in the trace to plan for [default: when the most nodes are out of service].
    #[arg(long, value_name = "DAYS")]
    at: Option<f64>,
    /// Tensor-parallel group size for the comparison [default: the first job's, else 32].
    #[arg(long, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1 << 24))]
    tp: Option<u32>,
    /// Designs to compare, comma-separated [default: none with a fabric, plan or buy file].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    arch: Vec<String>,
    #[command(flatten)]
    size: ClusterSize,
    /// Random assignments of trace servers to nodes [default: 40, fewer above 10,000 GPUs].
    #[arg(long, value_name = "N", value_parser = lightloom::number::whole::<u64>(1..=10_000))]
    samples: Option<u64>,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
}

const FORMS: &[OptionValue<RenderForm>] = &[
    (RenderForm::Html, "html", "One self-contained file for a browser"),
    (RenderForm::Markdown, "markdown", "The same sections and tables in Markdown"),
    (RenderForm::Csv, "csv", "Every number: table,row,column,value,unit"),
];

const DESIGNS: [&str; 8] =
    ["khop:2", "khop:3", "nvl:36", "nvl:72", "nvl:576", "tpuv4", "sip-ring", "big-switch"];
const SAMPLES: u64 = 40;
const MOST_SAMPLED_GPUS: u64 = 400_000;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let form = form(arguments)?;
    let inputs = Inputs::read(&arguments.inputs)?;
    inputs.must_be_of_one_cluster()?;
    let page = match inputs.circuits_alone() {
        Some((fabric, network)) => circuits_page(arguments, &inputs, fabric, network, form)?,
        None if inputs.has_results_alone() => render(&common(arguments, &inputs), form),
        None => rings_page(arguments, &inputs, form)?,
    };
    match &arguments.output {
        Some(path) => files::write(path, page.as_bytes())?,
        None => output::print(&page)?,
    }
    Ok(VerbOutcome::Good)
}

fn form(arguments: &Arguments) -> anyhow::Result<RenderForm> {
    if let Some(form) = arguments.format {
        return Ok(form);
    }
    let Some(path) = &arguments.output else { return Ok(RenderForm::Html) };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => Ok(RenderForm::Html),
        Some("md") => Ok(RenderForm::Markdown),
        Some("csv") => Ok(RenderForm::Csv),
        _ => {
            let text = format!(
                "{}: the name must end in .html, .md or .csv, unless --format is set",
                path.display()
            );
            Err(WrongUsage(text).into())
        }
    }
}

fn rings_page(arguments: &Arguments, inputs: &Inputs, form: RenderForm) -> anyhow::Result<String> {
    let seed = Seed(arguments.seed);
    let fabric = inputs.fabric.as_ref().map(|(_, fabric)| fabric);
    let cluster = cluster_of(arguments, inputs)?;
    let samples =
        study::samples(inputs.trace.as_ref(), cluster, sample_count(arguments, cluster), seed)?;
    let planned = match fabric {
        Some(fabric) => Some(planned(arguments, inputs, fabric, samples.first())?),
        None => None,
    };
    let own = fabric.and_then(name_of);
    if inputs.live.is_some() {
        let subject = match (fabric, &planned) {
            (Some(fabric), Some(planned)) => planned.subject(fabric),
            _ => Subject::None,
        };
        return Ok(render(&Results { subject, ..common(arguments, inputs) }, form));
    }
    let names = design_names(arguments, inputs, own.as_deref());
    let shipped = designs::prices(None, &mut Default::default())?;
    let (price_name, prices) = prices(inputs, &shipped);
    let bought = bought(inputs, &price_name, prices, seed)?;
    let (mut comparison, mut cost) = (None, None);
    if !names.is_empty() {
        let designs = designs(&names, prices, &mut Default::default())?;
        let question = StudyQuestion {
            cluster,
            designs: &designs,
            own,
            tp: arguments.tp.unwrap_or_else(|| first_tp(inputs)),
            faults: fault_source(inputs),
            trace: inputs.trace.as_ref().map(|(_, trace)| trace),
            samples: &samples,
            seed,
        };
        let compared = study::comparison(&question);
        let site = study::site(cluster.gpus(), cluster.gpus_per_node);
        cost = Some(study::costs(price_name, prices, &designs, site, Some(&compared))?);
        comparison = Some(compared);
    }
    let subject = match (fabric, &planned, &inputs.plan) {
        (Some(fabric), Some(planned), _) => planned.subject(fabric),
        (None, _, Some((_, plan))) => Subject::PlanAlone { plan },
        _ => Subject::None,
    };
    let results = Results { subject, bought, comparison, cost, ..common(arguments, inputs) };
    Ok(render(&results, form))
}

fn common<'a>(arguments: &Arguments, inputs: &Inputs) -> Results<'a> {
    Results {
        subject: Subject::None,
        bought: None,
        comparison: None,
        cost: None,
        runs: inputs.runs.clone(),
        sweeps: inputs.sweeps.clone(),
        live: inputs.live.clone(),
        bills: inputs.bills.clone(),
        training: inputs.training.clone(),
        sources: inputs.sources.clone(),
        would_add: if inputs.live.is_some() { Vec::new() } else { would_add(inputs) },
        seed: arguments.seed,
        version: env!("CARGO_PKG_VERSION"),
        command: command(arguments),
    }
}

fn command(arguments: &Arguments) -> String {
    let mut words = vec!["lightloom report".to_owned()];
    words.extend(arguments.inputs.iter().map(|path| path.display().to_string()));
    if !arguments.fault.is_empty() {
        let parts: Vec<String> = arguments.fault.iter().map(ToString::to_string).collect();
        words.push(format!("--fault {}", parts.join(",")));
    }
    if let Some(at) = arguments.at {
        words.push(format!("--at {at}"));
    }
    if let Some(tp) = arguments.tp {
        words.push(format!("--tp {tp}"));
    }
    if !arguments.arch.is_empty() {
        words.push(format!("--arch {}", arguments.arch.join(",")));
    }
    if let Some(samples) = arguments.samples {
        words.push(format!("--samples {samples}"));
    }
    words.push(format!("--seed {}", arguments.seed));
    words.join(" ")
}

fn would_add(inputs: &Inputs) -> Vec<String> {
    if inputs.has_results_alone() {
        return vec!["A fabric file would add its picture and a verified plan.".to_owned()];
    }
    let is_compared = inputs.circuits_alone().is_none();
    let additions = [
        (inputs.fabric.is_none(), "A fabric file would add its picture and a verified plan."),
        (
            is_compared && inputs.trace.is_none(),
            "Your own fault trace would replace the synthetic one and add the plan at its worst moment.",
        ),
        (
            inputs.prices.is_none(),
            "Your own price file would replace the prices that ship with lightloom.",
        ),
        (
            inputs.buy.is_none(),
            "A buy file (docs/buy.md) would add a purchase recommendation at the top.",
        ),
        (
            inputs.runs.is_empty(),
            "A run (`lightloom emulate SCENARIO --format json`) would add collectives and the groups that faults affected.",
        ),
        (
            inputs.bills.is_empty(),
            "A run over months (`lightloom emulate SCENARIO --format json` for a scenario with `span`) would add the cost of failures.",
        ),
        (
            inputs.training.is_empty(),
            "A training step (`lightloom mfu --model NAME --gpus N --format json`) would add MFU and the best mapping.",
        ),
    ];
    let missing = additions.into_iter().filter(|(is_missing, _)| *is_missing);
    missing.map(|(_, text)| text.to_owned()).collect()
}

struct PlannedRing {
    plan: Plan,
    verdict: Verdict,
    faults: String,
}

impl PlannedRing {
    fn subject<'a>(&'a self, fabric: &'a Fabric) -> Subject<'a> {
        let Self { plan, verdict, faults, .. } = self;
        Subject::Fabric { fabric, plan, verdict: *verdict, faults: faults.clone() }
    }
}

/// Verifies the given plan, or creates one around the given faults and the faults of the `timeline`.
fn planned(
    arguments: &Arguments,
    inputs: &Inputs,
    fabric: &Fabric,
    timeline: Option<&Timeline>,
) -> anyhow::Result<PlannedRing> {
    if let Some((name, plan)) = &inputs.plan {
        ensure!(
            plan.fabric_sha256 == fabric.sha256,
            "{name} is a plan for another fabric ({:.12}…) than {} ({:.12}…): make a new plan, or use its fabric file",
            plan.fabric_sha256,
            fabric.name,
            fabric.sha256
        );
        ensure!(
            arguments.fault.is_empty() && arguments.at.is_none(),
            "{name} already contains faults: omit --fault and --at"
        );
        let faults = FaultSet::of(fabric, plan.faults.iter().copied())?;
        let verdict = plan::prove(fabric, &faults, plan).with_context(|| name.clone())?;
        let faults = with_broken(plan.faults.len());
        return Ok(PlannedRing { plan: plan.clone(), verdict, faults });
    }
    let (mut broken, when) = broken(arguments, inputs, timeline)?;
    broken.extend(&arguments.fault);
    let faults = plan::fault_set(fabric, broken)?;
    let options = Options { seed: Seed(arguments.seed), ..Options::default() };
    let plan = lightloom_planner::plan(fabric, &faults, options).with_context(|| when.clone())?;
    let verdict = plan::prove(fabric, &faults, &plan)?;
    let faults = if when.is_empty() { with_broken(plan.faults.len()) } else { when };
    Ok(PlannedRing { plan, verdict, faults })
}

fn with_broken(parts: usize) -> String {
    match parts {
        0 => "without faults".to_owned(),
        1 => "with 1 failed part".to_owned(),
        parts => format!("with {parts} failed parts"),
    }
}

fn broken(
    arguments: &Arguments,
    inputs: &Inputs,
    timeline: Option<&Timeline>,
) -> anyhow::Result<(Vec<Part>, String)> {
    let (Some((name, _)), Some(timeline)) = (&inputs.trace, timeline) else {
        ensure!(arguments.at.is_none(), "--at requires a fault trace among the inputs");
        return Ok((Vec::new(), String::new()));
    };
    let last = timeline.window().as_days();
    let (at, which) = match arguments.at {
        Some(day) => {
            ensure!(
                (0.0..=last).contains(&day),
                "day {day} is outside {name}, which covers days 0 to {last}"
            );
            (TraceTime::from_days(day), "")
        }
        None => (timeline.worst(), ", the worst"),
    };
    let broken: Vec<Part> = timeline.faulty_at(at).into_iter().map(Part::Node).collect();
    let when = format!(
        "on day {:.1} of {}{which}, with {} of {} nodes out of service",
        at.as_days(),
        short(name),
        broken.len(),
        timeline.nodes()
    );
    Ok((broken, when))
}

fn cluster_of(arguments: &Arguments, inputs: &Inputs) -> anyhow::Result<Cluster> {
    if let Some((_, fabric)) = &inputs.fabric {
        let gpus_per_node = u32::from(fabric.hbd.gpus_per_node());
        let nodes = fabric.installed().count() as u32;
        return Ok(Cluster { nodes, gpus_per_node });
    }
    if let Some((name, plan)) = &inputs.plan {
        let group = plan.groups.iter().find(|group| !group.nodes.is_empty());
        let group = group.with_context(|| {
            format!("{name} contains no ring: add its fabric file to the inputs")
        })?;
        let gpus_per_node = (group.ring.len() / group.nodes.len()).max(1);
        let nodes = plan.metrics.gpus_total / gpus_per_node as u64;
        return Ok(Cluster {
            nodes: u32::try_from(nodes)?,
            gpus_per_node: u32::try_from(gpus_per_node)?,
        });
    }
    if let Some(asked) = &inputs.buy {
        return Ok(asked.question.cluster);
    }
    arguments.size.cluster()
}

fn bought(
    inputs: &Inputs,
    price_name: &str,
    prices: &PriceList,
    seed: Seed,
) -> anyhow::Result<Option<Bought>> {
    let Some(BuyAsked { question, trace, .. }) = &inputs.buy else { return Ok(None) };
    let answer = lightloom_study::buy::buy(question, prices, trace.as_ref(), seed)?;
    Ok(Some(Bought {
        name: question.name.clone(),
        gpus: question.cluster.gpus(),
        days: question.window_ms as f64 / 86_400_000.0,
        prices: price_name.to_owned(),
        answer,
    }))
}

fn sample_count(arguments: &Arguments, cluster: Cluster) -> u64 {
    let affordable = (MOST_SAMPLED_GPUS / u64::from(cluster.gpus())).clamp(2, SAMPLES);
    arguments.samples.unwrap_or(affordable)
}

fn first_tp(inputs: &Inputs) -> u32 {
    let of_fabric = inputs.fabric.as_ref().and_then(|(_, fabric)| Some(fabric.jobs.first()?.tp));
    let of_plan = inputs.plan.as_ref().and_then(|(_, plan)| Some(plan.jobs.first()?.tp));
    let of_question = inputs.buy.as_ref().map(|asked| asked.question.tp);
    of_fabric.or(of_plan).or(of_question).unwrap_or(32)
}

/// Without a fabric, plan or buy file, the usual designs are compared.
fn design_names(arguments: &Arguments, inputs: &Inputs, own: Option<&str>) -> Vec<String> {
    let is_of_size = inputs.fabric.is_none() && inputs.plan.is_none() && inputs.buy.is_none();
    let wanted = match arguments.arch.is_empty() && is_of_size {
        true => DESIGNS.map(str::to_owned).to_vec(),
        false => arguments.arch.clone(),
    };
    let others = wanted.into_iter().filter(|name| Some(name.as_str()) != own);
    own.map(str::to_owned).into_iter().chain(others).collect()
}

fn short(path: &str) -> String {
    Path::new(path).file_name().map_or(path.to_owned(), |name| name.to_string_lossy().into_owned())
}

fn fault_source(inputs: &Inputs) -> String {
    inputs.trace.as_ref().map_or(
        "a synthetic trace with the published rate, durations and months".to_owned(),
        |(path, _)| short(path),
    )
}

fn prices<'a>(inputs: &'a Inputs, shipped: &'a PriceList) -> (String, &'a PriceList) {
    match &inputs.prices {
        Some((name, prices)) => (name.clone(), prices),
        None => ("the shipped price file".to_owned(), shipped),
    }
}

fn circuits_page(
    arguments: &Arguments,
    inputs: &Inputs,
    fabric: &Fabric,
    network: &ReconfigurableFatTree,
    form: RenderForm,
) -> anyhow::Result<String> {
    let planned = planned(arguments, inputs, fabric, None)?;
    let shipped = designs::prices(None, &mut Default::default())?;
    let (price_name, prices) = prices(inputs, &shipped);
    let designs = designs(&arguments.arch, prices, &mut Default::default())?;
    let spec = network.spec();
    let site = study::site(spec.leaves * spec.gpus_per_leaf, 8);
    let bought = bought(inputs, &price_name, prices, Seed(arguments.seed))?;
    let cost = match designs.is_empty() {
        true => None,
        false => Some(study::costs(price_name, prices, &designs, site, None)?),
    };
    let results =
        Results { bought, subject: planned.subject(fabric), cost, ..common(arguments, inputs) };
    Ok(render(&results, form))
}
