//! `lightloom mfu`: how fast a model trains on a fabric, and which cut of it is fastest.

mod operation;
pub(crate) mod study;

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Args, ValueEnum};
use lightloom_emulator::training::architecture::architecture;
use lightloom_emulator::training::calibration::{Calibration, Precision};
use lightloom_emulator::training::cards::{self, Accelerator};
use lightloom_emulator::training::goodput::Goodput;
use lightloom_emulator::training::mapping::{Batch, Recompute};
use lightloom_emulator::training::mfu::Convention;
use lightloom_emulator::training::model::Model;
use lightloom_emulator::training::network::Network;
use lightloom_emulator::training::search::{Found, Limits, Outcome as SearchOutcome, Search};
use lightloom_fabric::document::{self, Style};
use serde::Serialize;

use operation::{Faults, OperationArguments};

use crate::cli::{Format, FormatArgument};
use crate::output::{self, Outcome};
use crate::progress::Progress;
use crate::table::Table;

/// Computes training-step time and MFU, and finds the best mapping.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom mfu --model llama-3.1-405b --gpus 16384 --arch khop:3,nvl:72,dgx
  lightloom mfu --model llama-3.1-405b --gpus 1024,8192,131072 --arch khop:3 --tp 16,32,64 --cp 1
  lightloom mfu --model mixtral-8x7b --gpus 64 --arch dgx --batch 256 --seq 4096 --tp 1 --pp 4 --ep 8 --format json
  lightloom mfu --model llama-3.1-405b --gpus 16384 --arch khop:3,nvl:72 --faults synthetic")]
pub(crate) struct Arguments {
    /// A model that comes with lightloom, or a YAML file with its dimensions.
    #[arg(long, value_name = "NAME|FILE")]
    model: String,
    /// GPUs of the job; several for a sweep.
    #[arg(long, value_delimiter = ',', required = true, value_name = "N")]
    gpus: Vec<u64>,
    /// Architectures: khop:K, nvl:36|72|576, dgx, tpuv4, big-switch.
    #[arg(long, value_delimiter = ',', default_value = "khop:3", value_name = "ARCH")]
    arch: Vec<String>,
    /// Sequences of a step.
    #[arg(long, default_value_t = 2048, value_name = "N")]
    batch: u64,
    /// Tokens of a sequence.
    #[arg(long, default_value_t = 8192, value_name = "N")]
    seq: u64,
    /// Accelerator.
    #[arg(long, default_value = "h100", value_name = "NAME")]
    accelerator: String,
    /// Number format of the linear layers.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    precision: PrecisionArgument,
    /// How much more than its share the fullest expert rank gets: 0.2 is 20 %.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    imbalance: f64,
    /// What counts as useful work.
    #[arg(long, value_enum, default_value_t, value_name = "CONVENTION")]
    convention: ConventionArgument,
    /// Mappings shown for each architecture and number of GPUs.
    #[arg(long, default_value_t = 1, value_name = "N")]
    top: usize,
    #[command(flatten)]
    limits: LimitArguments,
    #[command(flatten)]
    operation: OperationArguments,
    #[command(flatten)]
    format: FormatArgument,
}

/// Degrees to try; all that divide, where none are given.
#[derive(Debug, Args)]
struct LimitArguments {
    /// Tensor-parallel degrees to try.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    tp: Vec<u32>,
    /// Context-parallel degrees to try.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    cp: Vec<u32>,
    /// Pipeline stages to try.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pp: Vec<u32>,
    /// Expert-parallel degrees to try.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    ep: Vec<u32>,
    /// Micro-batches to try, in sequences.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    micro_batch: Vec<u32>,
    /// Virtual stages to try.
    #[arg(long, value_delimiter = ',', value_name = "N")]
    virtual_stages: Vec<u32>,
    /// Recomputations to try.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "WHAT")]
    recompute: Vec<RecomputeArgument>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RecomputeArgument {
    /// Nothing.
    None,
    /// The attention core.
    Selective,
    /// Whole layers.
    Full,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum PrecisionArgument {
    /// Sixteen bits.
    #[default]
    Bf16,
    /// Eight bits.
    Fp8,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ConventionArgument {
    /// Model operations, full attention.
    #[default]
    MfuFull,
    /// Model operations, causal attention.
    MfuCausal,
    /// With recomputed operations, full attention.
    HfuFull,
    /// With recomputed operations, causal attention.
    HfuCausal,
}

/// One row of the result.
#[derive(Debug, Serialize)]
struct Row {
    arch: String,
    gpus: u64,
    tp: u32,
    pp: u32,
    dp: u32,
    cp: u32,
    ep: u32,
    micro_batch: u32,
    virtual_stages: u32,
    recompute: &'static str,
    step_seconds: f64,
    mfu: f64,
    mfu_convention: &'static str,
    memory_bytes: u64,
    compute_seconds: f64,
    tp_exposed_seconds: f64,
    cp_exposed_seconds: f64,
    ep_exposed_seconds: f64,
    dp_exposed_seconds: f64,
    pp_bubble_seconds: f64,
    pp_transfer_seconds: f64,
    optimizer_seconds: f64,
    jitter_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput: Option<Goodput>,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    accelerator: String,
    precision: Precision,
    constants: &'static str,
    constants_fitted_on_this_accelerator: bool,
    batch_sequences: u64,
    sequence_tokens: u64,
    mappings_tried: usize,
    rows: Vec<Row>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let Some(model) = read_model(&arguments.model)? else { return Ok(Outcome::Bad) };
    let card = cards::accelerator(&arguments.accelerator)?;
    let networks: Vec<Network> =
        arguments.arch.iter().map(|name| architecture(name)).collect::<Result<_, _>>()?;
    let job = JobArguments::new(arguments, &model, &card)?;
    let progress = Progress::new("searches", (networks.len() * arguments.gpus.len()) as u64);
    let (mut rows, mut tried, mut is_good) = (Vec::new(), 0, true);
    for network in &networks {
        for &gpus in &arguments.gpus {
            let search = job.search(gpus, network);
            let outcome = search.run();
            tried += outcome.tried;
            if outcome.found.is_empty() {
                explain(&search, &outcome);
                is_good = false;
            }
            rows.extend(
                outcome.found.iter().take(arguments.top).map(|found| job.row(&search, found)),
            );
            progress.advance(1);
        }
    }
    drop(progress);
    rows.sort_by(|a, b| a.gpus.cmp(&b.gpus).then(a.step_seconds.total_cmp(&b.step_seconds)));
    if let Some(faults) = arguments.operation.faults()? {
        add_goodput(&mut rows, &model, faults)?;
    }
    job.show(rows, tried, arguments.format.format)?;
    Ok(if is_good { Outcome::Good } else { Outcome::Bad })
}

fn add_goodput(rows: &mut [Row], model: &Model, mut faults: Faults<'_>) -> anyhow::Result<()> {
    for row in rows {
        row.goodput = faults.goodput(model, &row.arch, row.tp, row.gpus, row.mfu)?;
    }
    Ok(())
}

/// The model of a name or of a file; nothing after the file's mistakes were shown.
fn read_model(name: &str) -> anyhow::Result<Option<Model>> {
    let path = Path::new(name);
    if !path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
        return Ok(Some(cards::model(name)?));
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let (model, mistakes) = cards::read_model(name, &bytes);
    if !mistakes.is_empty() {
        let style = if output::coloured() { Style::Coloured } else { Style::Plain };
        output::note(&document::render(&mistakes, style));
    }
    Ok(model)
}

/// What all searches of a command have in common.
struct JobArguments<'a> {
    arguments: &'a Arguments,
    model: &'a Model,
    card: &'a Accelerator,
    compute: lightloom_emulator::training::step::Compute,
    calibration: Calibration,
    precision: Precision,
    convention: Convention,
    batch: Batch,
}

impl<'a> JobArguments<'a> {
    fn new(
        arguments: &'a Arguments,
        model: &'a Model,
        card: &'a Accelerator,
    ) -> anyhow::Result<Self> {
        let precision = match arguments.precision {
            PrecisionArgument::Bf16 => Precision::Bf16,
            PrecisionArgument::Fp8 => Precision::Fp8,
        };
        anyhow::ensure!(
            card.peak_flops(precision).is_some(),
            "{} has no fp8: leave out --precision",
            card.name
        );
        anyhow::ensure!(
            arguments.batch > 0 && arguments.seq > 0 && !arguments.gpus.contains(&0),
            "--batch, --seq and --gpus are at least 1"
        );
        anyhow::ensure!(
            (0.0..=100.0).contains(&arguments.imbalance),
            "--imbalance is a share of at least 0, such as 0.2"
        );
        Ok(Self {
            arguments,
            model,
            card,
            compute: card.compute(),
            calibration: card.calibration(),
            precision,
            convention: match arguments.convention {
                ConventionArgument::MfuFull => Convention::MfuFull,
                ConventionArgument::MfuCausal => Convention::MfuCausal,
                ConventionArgument::HfuFull => Convention::HfuFull,
                ConventionArgument::HfuCausal => Convention::HfuCausal,
            },
            batch: Batch { sequences: arguments.batch, tokens: arguments.seq },
        })
    }

    fn search<'s>(&'s self, gpus: u64, network: &'s Network) -> Search<'s> {
        let limits = &self.arguments.limits;
        let recompute = limits.recompute.iter().map(|recompute| match recompute {
            RecomputeArgument::None => Recompute::None,
            RecomputeArgument::Selective => Recompute::Selective,
            RecomputeArgument::Full => Recompute::Full,
        });
        Search {
            model: self.model,
            batch: self.batch,
            gpus,
            compute: &self.compute,
            network,
            calibration: &self.calibration,
            precision: self.precision,
            expert_imbalance: self.arguments.imbalance,
            limits: Limits {
                tensor: limits.tp.clone(),
                context: limits.cp.clone(),
                pipeline: limits.pp.clone(),
                expert: limits.ep.clone(),
                micro_batch: limits.micro_batch.clone(),
                virtual_stages: limits.virtual_stages.clone(),
                recompute: recompute.collect(),
                schedule: Vec::new(),
            },
        }
    }

    fn row(&self, search: &Search<'_>, found: &Found) -> Row {
        let (mapping, step) = (&found.mapping, &found.step);
        let peak = self.card.peak_flops(self.precision).unwrap_or(self.compute.peak_flops);
        Row {
            arch: search.network.name.clone(),
            gpus: search.gpus,
            tp: mapping.tensor,
            pp: mapping.pipeline,
            dp: mapping.data,
            cp: mapping.context,
            ep: mapping.expert,
            micro_batch: mapping.micro_batch,
            virtual_stages: mapping.virtual_stages,
            recompute: mapping.recompute.label(),
            step_seconds: step.step_seconds,
            mfu: self.convention.utilisation(
                self.model,
                self.batch,
                mapping.recompute,
                search.gpus,
                peak,
                step.step_seconds,
            ),
            mfu_convention: self.convention.label(),
            memory_bytes: found.memory.total_bytes() as u64,
            compute_seconds: step.compute_seconds,
            tp_exposed_seconds: step.tensor_seconds,
            cp_exposed_seconds: step.context_seconds,
            ep_exposed_seconds: step.expert_seconds,
            dp_exposed_seconds: step.data_seconds,
            pp_bubble_seconds: step.bubble_seconds,
            pp_transfer_seconds: step.transfer_seconds,
            optimizer_seconds: step.optimizer_seconds,
            jitter_seconds: step.jitter_seconds,
            goodput: None,
        }
    }

    fn show(&self, rows: Vec<Row>, tried: usize, format: Format) -> anyhow::Result<()> {
        let report = Report {
            model: self.model.name.clone(),
            accelerator: self.card.name.clone(),
            precision: self.precision,
            constants: self.calibration.name,
            constants_fitted_on_this_accelerator: self.card.name == "h100",
            batch_sequences: self.batch.sequences,
            sequence_tokens: self.batch.tokens,
            mappings_tried: tried,
            rows,
        };
        match format {
            Format::Json => output::print_json(&report),
            Format::Text => output::print(&text(&report, self.convention)),
        }
    }
}

fn text(report: &Report, convention: Convention) -> String {
    let mut table = Table::new([
        "arch",
        "GPUs",
        "TP",
        "CP",
        "PP",
        "DP",
        "EP",
        "micro",
        "virtual",
        "recompute",
        "step s",
        convention.label(),
        "memory GB",
        "compute s",
        "TP s",
        "CP s",
        "EP s",
        "DP s",
        "bubble s",
        "transfer s",
        "other s",
    ]);
    for row in &report.rows {
        let seconds = |seconds: f64| format!("{seconds:.3}");
        table.row([
            row.arch.clone(),
            row.gpus.to_string(),
            row.tp.to_string(),
            row.cp.to_string(),
            row.pp.to_string(),
            row.dp.to_string(),
            row.ep.to_string(),
            row.micro_batch.to_string(),
            row.virtual_stages.to_string(),
            row.recompute.to_owned(),
            seconds(row.step_seconds),
            format!("{:.2} %", 100.0 * row.mfu),
            format!("{:.1}", row.memory_bytes as f64 / 1e9),
            seconds(row.compute_seconds),
            seconds(row.tp_exposed_seconds),
            seconds(row.cp_exposed_seconds),
            seconds(row.ep_exposed_seconds),
            seconds(row.dp_exposed_seconds),
            seconds(row.pp_bubble_seconds),
            seconds(row.pp_transfer_seconds),
            seconds(row.optimizer_seconds + row.jitter_seconds),
        ]);
    }
    if report.rows.is_empty() {
        return String::new();
    }
    let fitted = if report.constants_fitted_on_this_accelerator {
        "fitted on this accelerator"
    } else {
        "not fitted on this accelerator: shares of peak scaled from H100"
    };
    let mut left = report
        .rows
        .iter()
        .filter_map(|row| Some((&row.arch[..], row.gpus, row.tp, row.goodput.as_ref()?)))
        .peekable();
    let left = if left.peek().is_some() { operation::table(left) } else { String::new() };
    format!(
        "{} on {}, {} sequences of {} tokens a step\nconstants {} ({fitted}); {} mappings tried\n\n{table}{left}",
        report.model,
        report.accelerator,
        report.batch_sequences,
        report.sequence_tokens,
        report.constants,
        report.mappings_tried,
    )
}

/// Says why nothing fits, by how much, and what comes nearest.
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
    output::note(&match search.nearest(wanted) {
        Some(near) => format!("  nearest that works: {}", near.mapping),
        None => "  nothing else fits either: take more GPUs or a smaller model".to_owned(),
    });
}
