// SPDX-License-Identifier: Apache-2.0

mod limits;
mod measured;
mod packets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use lightloom_emulator::training::packets::PacketStep;
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_training::architecture::with_rates;
use lightloom_training::calibration::Precision;
use lightloom_training::cards::{self, Accelerator};
use lightloom_training::mapping::Batch;
use lightloom_training::mfu::Convention;
use lightloom_training::model::Model;
use lightloom_training::network::Network;
use lightloom_training::request::{self, MfuReport, Prepared, Request, Row};
use lightloom_training::runs::refit::{self, RefitFile};
use lightloom_training::search::{Found, Search, SearchOutcome};
use lightloom_training::step::StepOperator;

use crate::cards::{PRECISIONS, card};
use limits::LimitArguments;
use packets::PacketArguments;

use lightloom::choice::{OptionValue, one_of};
use lightloom::files;
use lightloom::output::{self, VerbOutcome};
use lightloom::progress::Progress;
use lightloom::result::ResultArguments;
use lightloom::table::{TextTable, separated};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom mfu --model llama-3.1-405b --gpus 16384 --arch khop:3,nvl:72,dgx
  lightloom mfu --model llama-3.1-405b --gpus 1024,8192,131072 --arch khop:3 --tp 16,32,64 --cp 1
  lightloom mfu --model mixtral-8x7b --gpus 64 --arch dgx --batch 256 --seq 4096 --tp 1 --pp 4 --ep 8 --format json
  lightloom mfu --model llama-3.1-405b --gpus 16384 --arch khop:3 --tp 32 --cp 1 --virtual-stages 1 --packets
  lightloom mfu --model llama-3.1-70b --gpus 2048 --fabric topologies/pod-2048.yaml
  lightloom mfu --model mixtral-8x7b --gpus 256 --arch dgx --schedule 1f1b,zero-bubble --zero 2
  lightloom mfu --model llama-3.1-8b --gpus 8 --why
  lightloom mfu --runs mine/runs.csv")]
pub(crate) struct Arguments {
    /// A shipped model, a YAML file with its dimensions, or a Hugging Face `config.json`.
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "runs")]
    model: Option<String>,
    /// Number of GPUs of the job; several numbers for a sweep.
    #[arg(long, value_delimiter = ',', required_unless_present = "runs", value_name = "N", value_parser = lightloom::number::whole::<u64>(1..=request::MOST))]
    gpus: Vec<u64>,
    /// Compare computed steps with measured ones (`init --from`, or the table of `calibrate`).
    #[arg(
        long,
        value_name = "RUNS.csv",
        conflicts_with_all = ["model", "gpus", "arch", "fabric", "packets"]
    )]
    runs: Option<PathBuf>,
    /// Architectures: khop:K, nvl:36|72|576, dgx, tpuv4, big-switch [default: by accelerator].
    #[arg(long, value_delimiter = ',', value_name = "ARCH")]
    arch: Vec<String>,
    /// Fabric file; sets the domain, the network cards' rate and the share of leaf uplinks per GPU.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["arch", "packets"])]
    fabric: Option<PathBuf>,
    /// Sequences per step.
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = lightloom::number::whole::<u64>(1..=request::MOST))]
    batch: u64,
    /// Tokens per sequence.
    #[arg(long, default_value_t = 8192, value_name = "N", value_parser = lightloom::number::whole::<u64>(1..=request::MOST))]
    seq: u64,
    /// A shipped accelerator, or a YAML file that describes one.
    #[arg(long, default_value = "h100", value_name = "NAME|FILE")]
    accelerator: String,
    /// Constants of a software stack, such as nemo-25.02 or h100/nemo-25.02, or a file from
    /// `lightloom calibrate`; an unknown name lists all [default: the accelerator's most common
    /// software].
    #[arg(long, value_name = "NAME|FILE")]
    constants: Option<String>,
    /// Multi-token-prediction depths [default: the model's].
    #[arg(long, value_name = "N", value_parser = lightloom::number::whole::<u32>(0..=1000))]
    prediction_depths: Option<u32>,
    /// Number format of the linear layers.
    #[arg(long, default_value = "bf16", value_name = "FORMAT", value_parser = one_of(PRECISIONS))]
    precision: Precision,
    /// Excess load of the most loaded expert rank over its even share: 0.2 means 20 %.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    imbalance: f64,
    /// Definition of useful work.
    #[arg(long, default_value = "mfu-full", value_name = "CONVENTION", value_parser = one_of(CONVENTIONS))]
    convention: Convention,
    /// Number of mappings to show for each architecture and number of GPUs.
    #[arg(long, default_value_t = 1, value_name = "N")]
    top: usize,
    /// List the ten slowest operators of the fastest row, with the measurements they come from.
    #[arg(long, conflicts_with = "runs")]
    why: bool,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    packets: PacketArguments,
    #[command(flatten)]
    result: ResultArguments,
}

const CONVENTIONS: &[OptionValue<Convention>] = &[
    (Convention::MfuFull, "mfu-full", "Operations of the model, full attention"),
    (Convention::MfuCausal, "mfu-causal", "Operations of the model, causal attention"),
    (Convention::HfuFull, "hfu-full", "Including recomputed operations, full attention"),
    (Convention::HfuCausal, "hfu-causal", "Including recomputed operations, causal attention"),
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    if let Some(runs) = &arguments.runs {
        return measured::run(arguments, runs);
    }
    let mut inputs = Inputs::new();
    let model = arguments.model.as_deref().unwrap_or_default();
    let mut model = card("model", model, cards::model, cards::read_model, &mut inputs)?;
    model.prediction_depths = arguments.prediction_depths.unwrap_or(model.prediction_depths);
    let name = &*arguments.accelerator;
    let card = card("accelerator", name, cards::accelerator, cards::read_accelerator, &mut inputs)?;
    let networks = networks(arguments, &card, &mut inputs)?;
    let constants = constants(arguments.constants.as_deref(), &mut inputs)?;
    let job = asked(arguments, model, card, constants).prepare()?;
    let progress = Progress::new("searches", (networks.len() * arguments.gpus.len()) as u64);
    let (mut found, mut tried, mut is_good) = (Vec::new(), 0, true);
    for network in &networks {
        for &gpus in &arguments.gpus {
            let search = job.search(gpus, network);
            let outcome = search.run();
            tried += outcome.tried;
            if outcome.found.is_empty() {
                explain(&search, &outcome);
                is_good = false;
            }
            found.extend(outcome.found.into_iter().take(arguments.top).map(|f| (gpus, network, f)));
            progress.advance(1);
        }
    }
    drop(progress);
    found.sort_by(|a, b| {
        a.0.cmp(&b.0).then(a.2.step.step_seconds.total_cmp(&b.2.step.step_seconds))
    });
    let mut rows: Vec<Row<PacketStep>> = found
        .iter()
        .map(|(gpus, network, found)| job.row(&job.search(*gpus, network), found))
        .collect();
    if arguments.packets.packets {
        is_good &= add_packets(&mut rows, &found, &job, &arguments.packets)?;
    }
    let mut report = job.report(rows, tried, inputs);
    let fastest =
        found.iter().min_by(|a, b| a.2.step.step_seconds.total_cmp(&b.2.step.step_seconds));
    if let Some((gpus, network, found)) = fastest.filter(|_| arguments.why) {
        let search = job.search(*gpus, network);
        let operators = search.with_job(found.mapping, |job| Some(job.operators()));
        report.operators = operators.unwrap_or_default();
    }
    arguments.result.show(&report, "rows", || text(&report, job.request().convention))?;
    Ok(if is_good { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn add_packets(
    rows: &mut [Row<PacketStep>],
    found: &[(u64, &Network, Found)],
    job: &Prepared,
    packets: &PacketArguments,
) -> anyhow::Result<bool> {
    for (place, (row, (gpus, network, found))) in rows.iter_mut().zip(found).enumerate() {
        let search = job.search(*gpus, network);
        let ran = search.with_job(found.mapping, |job| packets.run(job, &network.name));
        if let Some(ran) = ran.as_ref().filter(|_| place == 0) {
            packets.write_traces(ran)?;
        }
        row.packets = ran.map(|ran| ran.step);
    }
    Ok(rows.iter().all(|row| row.packets.is_some()))
}

/// Uses the accelerator's rates if the architecture does not define them.
fn networks(
    arguments: &Arguments,
    card: &Accelerator,
    inputs: &mut Inputs,
) -> anyhow::Result<Vec<Network>> {
    if let Some(path) = &arguments.fabric {
        let fabric = lightloom::fabric::read(path)?;
        let file = files::name(path);
        inputs.insert("fabric".to_owned(), Input { file, sha256: fabric.sha256.clone() });
        let installed = fabric.gpus();
        if let Some(gpus) = arguments.gpus.iter().find(|gpus| **gpus > installed) {
            anyhow::bail!("--gpus {gpus}: {} has only {installed} GPUs", path.display());
        }
        return Ok(vec![Network::of_fabric(&fabric)]);
    }
    let own = card.network();
    if arguments.arch.is_empty() {
        return Ok(vec![own]);
    }
    let rates = [own.domain_rate, own.scale_out_rate];
    Ok(arguments.arch.iter().map(|name| with_rates(name, rates)).collect::<Result<_, _>>()?)
}

type ChosenConstants = (Option<String>, BTreeMap<String, f64>);

fn constants(name: Option<&str>, inputs: &mut Inputs) -> anyhow::Result<ChosenConstants> {
    let Some(name) = name else { return Ok((None, BTreeMap::new())) };
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok((Some(name.to_owned()), BTreeMap::new()));
    }
    let bytes = files::read_result(path)?;
    inputs.insert("constants".to_owned(), Input::of(name, &bytes));
    let file: RefitFile = serde_json::from_slice(&bytes)
        .with_context(|| format!("{name} was not written by `lightloom calibrate`"))?;
    anyhow::ensure!(
        file.schema == refit::SCHEMA,
        "{name} uses the schema `{}`, but `lightloom calibrate` writes `{}`",
        file.schema,
        refit::SCHEMA
    );
    file.check().map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
    Ok((Some(file.base), file.refitted))
}

fn asked(
    arguments: &Arguments,
    model: Model,
    card: Accelerator,
    (constants, refitted): ChosenConstants,
) -> Request {
    Request {
        model,
        card,
        batch: Batch { sequences: arguments.batch, tokens: arguments.seq },
        precision: arguments.precision,
        expert_imbalance: arguments.imbalance,
        convention: arguments.convention,
        limits: arguments.limits.limits(),
        constants,
        refitted,
        changes: arguments.limits.changes(),
    }
}

fn text(report: &MfuReport<PacketStep>, convention: Convention) -> String {
    let Some(answer) = answer(report, convention) else { return String::new() };
    let rows = &report.rows;
    let mut run = rows
        .iter()
        .filter_map(|row| Some((&row.arch[..], row.gpus, row.packets.as_ref()?)))
        .peekable();
    let run = match run.peek() {
        Some(_) => packets::table(run, report.software.features),
        None => String::new(),
    };
    let fitted = if let Some(operators) = &report.operators_measured {
        &*format!("operators scaled by roofline from {operators}")
    } else if report.constants_fitted_on_this_accelerator {
        "fitted on this accelerator"
    } else {
        "not fitted on this accelerator; the shares of peak are scaled"
    };
    let features = report.software.features.to_string();
    let source = report.features_from.map_or_else(String::new, |source| format!(", from {source}"));
    let features = match features.as_str() {
        "none" => String::new(),
        _ => format!("features {features}{source}\n"),
    };
    format!(
        "{answer}\n{}\n{}{}{run}\nconstants {}, from {} ({fitted})\n{features}",
        mappings(rows, convention),
        parts(rows),
        operators(&report.operators, report.operators_measured.is_some()),
        report.constants,
        report.constants_origin,
    )
}

fn answer(report: &MfuReport<PacketStep>, convention: Convention) -> Option<String> {
    let fastest =
        report.rows.iter().min_by(|one, other| one.step_seconds.total_cmp(&other.step_seconds))?;
    let range = fastest.expected.map_or_else(String::new, |expected| {
        let [low, high] = expected.seconds_80.map(seconds);
        let runs = match expected.runs {
            0 => "; no published run resembles it".to_owned(),
            runs => format!(", {runs} published runs"),
        };
        format!(" (80 %: {low} to {high} s{runs})")
    });
    let of = match report.rows.len() {
        1 => String::new(),
        rows => format!(", the fastest of {rows}"),
    };
    let label = convention.label();
    let (ratio, attention) = label.split_once(", ").unwrap_or((label, "as stated"));
    let text = format!(
        "{} s per step{range}, {ratio} {:.2} % ({attention}){of}: {} GPUs on {}\n{} on {}, {} \
         sequences of {} tokens per step; {} \
         mappings tried\n",
        seconds(fastest.step_seconds),
        100.0 * fastest.mfu,
        fastest.gpus,
        fastest.arch,
        report.model,
        report.accelerator,
        report.batch_sequences,
        report.sequence_tokens,
        report.mappings_tried,
    );
    Some(separated(&text))
}

fn seconds(seconds: f64) -> String {
    if seconds == 0.0 { "-".to_owned() } else { format!("{seconds:.3}") }
}

fn mappings(rows: &[Row<PacketStep>], convention: Convention) -> TextTable {
    TextTable::of(rows)
        .column("arch", |row| row.arch.clone())
        .column("GPUs", |row| row.gpus)
        .column("TP", |row| row.tp)
        .column("CP", |row| row.cp)
        .column("PP", |row| row.pp)
        .column("DP", |row| row.dp)
        .column("EP", |row| row.ep)
        .column("micro", |row| row.micro_batch)
        .column("virtual", |row| row.virtual_stages)
        .column("recompute", |row| row.recompute)
        .column("schedule", |row| row.schedule.to_owned())
        .column("step s", |row| seconds(row.step_seconds))
        .column("80 % of runs s", |row| {
            row.expected
                .map_or_else(String::new, |expected| expected.seconds_80.map(seconds).join(" to "))
        })
        .column("published runs", |row| row.expected.map_or(0, |expected| expected.runs))
        .column(convention.label(), |row| format!("{:.2} %", 100.0 * row.mfu))
        .column("memory GB", |row| format!("{:.1}", row.memory_bytes as f64 / 1e9))
        .table()
}

fn parts(rows: &[Row<PacketStep>]) -> TextTable {
    TextTable::of(rows)
        .column("arch", |row| row.arch.clone())
        .column("GPUs", |row| row.gpus)
        .column("step s", |row| seconds(row.step_seconds))
        .column("compute s", |row| seconds(row.compute_seconds))
        .column("TP s", |row| seconds(row.tp_exposed_seconds))
        .column("CP s", |row| seconds(row.cp_exposed_seconds))
        .column("EP s", |row| seconds(row.ep_exposed_seconds))
        .column("DP s", |row| seconds(row.dp_exposed_seconds))
        .column("bubble s", |row| seconds(row.pp_bubble_seconds))
        .column("transfer s", |row| seconds(row.pp_transfer_seconds))
        .column("other s", |row| seconds(row.optimizer_seconds + row.jitter_seconds))
        .table()
}

/// Shows the ten slowest operators and the share of time far from any measurement.
fn operators(all: &[StepOperator], is_measured: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let total: f64 = all.iter().map(|one| one.seconds).sum();
    let table = TextTable::of(&all[..all.len().min(10)])
        .column("operator", |one| one.name)
        .column("size", |one| one.size.clone())
        .column("s per step", |one| seconds(one.seconds))
        .column("share", |one| format!("{:.1} %", 100.0 * one.seconds / total))
        .column("nearest measured", |one| {
            one.nearest.as_ref().map_or("-".to_owned(), |near| near.size.clone())
        })
        .column("away", |one| {
            one.nearest.as_ref().map_or(String::new(), |near| format!("× {:.2}", near.factor))
        })
        .table();
    if !is_measured {
        return format!("\n{table}");
    }
    let far = all.iter().filter(|one| {
        !one.size.is_empty() && one.nearest.as_ref().is_none_or(|near| near.factor > 2.0)
    });
    let far = far.map(|one| one.seconds).fold(0.0, |sum, one| sum + one);
    let share = 100.0 * far / total;
    format!("\n{table}more than a factor of 2 from any measurement: {share:.1} % of the time\n")
}

fn explain(search: &Search<'_>, outcome: &SearchOutcome) {
    output::note(&format!("{} GPUs on {}: no mapping works", search.gpus, search.network.name));
    match (&outcome.closest, search.wanted()) {
        (Some((mapping, refusal)), _) => output::note(&format!("  {mapping}: {refusal}")),
        (None, Err(refusal)) => output::note(&format!("  {refusal}")),
        (None, Ok(wanted)) => {
            for refusal in search.refusals(wanted) {
                output::note(&format!("  {wanted}: {refusal}"));
            }
        }
    }
    let wanted = outcome.closest.as_ref().map_or_else(|| search.asked(), |(mapping, _)| *mapping);
    let near = search.nearest(wanted).map(|near| (search.gpus, near));
    let near = near.or_else(|| search.nearest_gpus());
    output::note(&match near.or_else(|| search.without_limits().nearest_gpus()) {
        Some((gpus, near)) if gpus == search.gpus => {
            format!("  nearest that works: {}", near.mapping)
        }
        Some((gpus, near)) => format!("  nearest that works: {gpus} GPUs, {}", near.mapping),
        None => "  the model does not fit on any number of GPUs: use a smaller one".to_owned(),
    });
}
