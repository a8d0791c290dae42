// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

use lightloom_fabric::file::StepFile;
use lightloom_fabric::provenance::Inputs;
use lightloom_planner::Options;
use lightloom_training::cards::{self, Accelerator};
use lightloom_training::network::Network;
use lightloom_training::reinforcement::{
    ReinforcementJob, ReinforcementReport, SIZES, TrainingLoop, Way,
};
use lightloom_training::rollout::{Generation, Lengths};
use lightloom_units::Picoseconds;
use lightloom_units::seed::Seed;

use crate::cards::{Decoding, card};
use lightloom::choice::{OptionValue, one_of};
use lightloom::output::VerbOutcome;
use lightloom::result::{ResultArguments, ResultDocument};
use lightloom::table::TextTable;
use lightloom::{fabric, plan};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom rl --model qwen2.5-14b --gpus 32,32 --samples 2048
  lightloom rl --model qwen2.5-32b --gpus 48,16 --samples 512 --mean 8192 --sigma 0.7 --loop synchronous
  lightloom rl --model llama-3.1-70b --accelerator h100 --gpus 64,64 --samples 1024 --format json
  lightloom rl --fabric topologies/rfabric-2048.yaml
  lightloom rl --model qwen2.5-14b --gpus 32,32 --death 60s

Computed in closed form; assumptions: docs/rl.md")]
pub(crate) struct Arguments {
    /// A shipped model, a YAML file with its dimensions, or a Hugging Face `config.json`.
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "fabric")]
    model: Option<String>,
    /// Fabric file with a reinforcement-learning job; also shows the gain of circuits per phase.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "gpus", "samples", "mean", "arch"])]
    fabric: Option<PathBuf>,
    /// Numbers of GPUs for generation and for training; one number applies to both.
    #[arg(long, value_name = "N,N", value_delimiter = ',', num_args = 1..=2, required_unless_present = "fabric",
        value_parser = lightloom::number::whole::<u32>(1..=65_536))]
    gpus: Vec<u32>,
    /// GPUs per generating replica [default: the best of 1 to 32, also in turn].
    #[arg(long, value_name = "N", value_parser = replica)]
    replica: Option<u32>,
    /// A shipped accelerator, or a YAML file that describes one.
    #[arg(long, default_value = "h800", value_name = "NAME|FILE")]
    accelerator: String,
    /// Samples per step.
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=100_000))]
    samples: u32,
    /// Tokens per prompt.
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1_000_000))]
    prompt: u32,
    /// Mean number of tokens per response, before truncation.
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1_000_000))]
    mean: u32,
    /// Standard deviation of the response's log length; 0 for equal lengths.
    #[arg(long, default_value_t = 1.0, value_name = "SIGMA", value_parser = lightloom::number::sigma, allow_negative_numbers = true)]
    sigma: f64,
    /// Maximum number of tokens per response; longer ones are truncated.
    #[arg(long, default_value_t = 16_384, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1_000_000))]
    longest: u32,
    /// Forward passes over all samples before training, such as for a reference model.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = lightloom::number::whole::<u32>(0..=8))]
    forward_passes: u32,
    /// How generation and training alternate or overlap.
    #[arg(long = "loop", default_value = "one-step-off", value_name = "LOOP", value_parser = one_of(LOOPS))]
    training_loop: TrainingLoop,
    #[command(flatten)]
    decoding: Decoding,
    /// Software overhead of changing replicas, in addition to the transfer.
    #[arg(long, default_value = "1s", value_name = "TIME")]
    change: Picoseconds,
    /// Let a replica of the best size fail at this time, and show the cost.
    #[arg(long, value_name = "TIME")]
    death: Option<Picoseconds>,
    /// Random seed of the lengths [default: 1, or the fabric job's].
    #[arg(long, value_name = "N", value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: Option<u64>,
    #[command(flatten)]
    result: ResultArguments,
}

const LOOPS: &[OptionValue<TrainingLoop>] = &[
    (TrainingLoop::Synchronous, "synchronous", "Generate, then train"),
    (TrainingLoop::OneStepOff, "one-step-off", "Train on the samples of the previous step"),
    (
        TrainingLoop::Streaming,
        "streaming",
        "Train with each sample as soon as generation completes it",
    ),
    (TrainingLoop::Asynchronous, "asynchronous", "Never wait for the last sample"),
];

fn replica(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|size| SIZES.contains(size));
    size.ok_or_else(|| format!("expected one of {SIZES:?}"))
}

#[derive(Serialize)]
struct RlResult {
    model: String,
    accelerator: String,
    arch: String,
    generation_gpus: u32,
    trainer_gpus: u32,
    samples: u32,
    seed: u64,
    /// Additional communication time per step, in seconds, if all phases use the same topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_topology_seconds: Option<f64>,
    #[serde(flatten)]
    report: ReinforcementReport,
}

struct Asked {
    model: String,
    network: Network,
    gpus: [u32; 2],
    samples: u32,
    mean: u32,
    seed: u64,
    one_topology_seconds: Option<f64>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let mut inputs = Inputs::new();
    let name = &*arguments.accelerator;
    let chip = card("accelerator", name, cards::accelerator, cards::read_accelerator, &mut inputs)?;
    let asked = match &arguments.fabric {
        Some(path) => of_fabric(path, arguments, &mut inputs)?,
        None => of_command(arguments, &chip)?,
    };
    let model = card("model", &asked.model, cards::model, cards::read_model, &mut inputs)?;
    let [generate, train] = asked.gpus;
    let job = ReinforcementJob {
        model,
        card: chip,
        network: asked.network,
        gpus: asked.gpus,
        replica_gpus: arguments.replica,
        samples: asked.samples,
        prompt: arguments.prompt,
        lengths: Lengths {
            mean: asked.mean.into(),
            sigma: arguments.sigma,
            most: arguments.longest,
        },
        forward_passes: arguments.forward_passes,
        training_loop: arguments.training_loop,
        batch: arguments.decoding.batch,
        host_seconds: arguments.decoding.host_seconds(),
        change_seconds: arguments.change.as_secs_f64(),
        death_seconds: arguments.death.map(Picoseconds::as_secs_f64),
        seed: Seed(asked.seed),
    };
    let report = job.report()?;
    if arguments.death.is_some() && report.death.is_none() {
        anyhow::bail!(
            "--death: the best size has only one replica, or generation ends before this time; use an earlier time or \
                more GPUs"
        );
    }
    let result = RlResult {
        model: job.model.name.clone(),
        accelerator: job.card.name.clone(),
        arch: job.network.name.clone(),
        generation_gpus: generate,
        trainer_gpus: train,
        samples: job.samples,
        seed: asked.seed,
        one_topology_seconds: asked.one_topology_seconds,
        report,
    };
    let document = ResultDocument::new("lightloom.rl/v1", inputs, &result);
    arguments.result.show(&document, "steps", || text(&result))?;
    Ok(VerbOutcome::Good)
}

fn of_command(arguments: &Arguments, chip: &Accelerator) -> anyhow::Result<Asked> {
    let generate = arguments.gpus[0];
    Ok(Asked {
        model: arguments.model.clone().unwrap_or_default(),
        network: arguments.decoding.network(chip)?,
        gpus: [generate, arguments.gpus.get(1).copied().unwrap_or(generate)],
        samples: arguments.samples,
        mean: arguments.mean,
        seed: arguments.seed.unwrap_or(1),
        one_topology_seconds: None,
    })
}

fn of_fabric(path: &Path, arguments: &Arguments, inputs: &mut Inputs) -> anyhow::Result<Asked> {
    let fabric = fabric::read(path)?;
    inputs.insert("fabric".to_owned(), plan::fabric_input(path, &fabric));
    let steps = fabric.jobs.iter().filter_map(|job| job.step.as_ref());
    let rl = steps.into_iter().find_map(|step| match step {
        StepFile::Rl(rl) => Some(rl),
        _ => None,
    });
    let rl = rl.with_context(|| {
        format!(
            "{}: no job has `step: {{rl: …}}`; `lightloom rl --model …` does not need a fabric",
            path.display()
        )
    })?;
    let plan = lightloom_planner::plan(&fabric, &fabric.start, Options::default())?;
    let metrics = &plan.metrics;
    let pair = metrics.static_step_time_ps.zip(metrics.step_time_ps);
    let longer = pair.map(|(fixed, step)| fixed.0.saturating_sub(step.0) as f64 / 1e12);
    let model = match rl.model.ends_with(".yaml") || rl.model.ends_with(".yml") {
        true => path.with_file_name(&rl.model).display().to_string(),
        false => rl.model.clone(),
    };
    let answer = rl.tokens_per_sample.saturating_sub(arguments.prompt);
    anyhow::ensure!(
        answer > 0,
        "--prompt {}: the samples of {} have only {} tokens",
        arguments.prompt,
        path.display(),
        rl.tokens_per_sample
    );
    Ok(Asked {
        model,
        network: Network::of_fabric(&fabric),
        gpus: [rl.generation_gpus, rl.trainer_gpus],
        samples: rl.samples,
        mean: answer,
        seed: arguments.seed.unwrap_or(rl.seed),
        one_topology_seconds: longer,
    })
}

fn way(way: Way) -> &'static str {
    match way {
        Way::FixedEven => "one size, dealt out",
        Way::Fixed => "one size, shared queue",
        Way::Adaptive => "size follows the tail",
    }
}

/// Formats sizes such as `2, then 8 for the last 32`.
fn replicas(generation: &Generation) -> String {
    let mut parts = Vec::new();
    for (at, stage) in generation.stages.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| generation.stages[before].replica_gpus);
        parts.push(match before {
            None => stage.replica_gpus.to_string(),
            Some(same) if same == stage.replica_gpus => {
                format!("rebalanced for the last {}", stage.samples)
            }
            Some(_) => format!("{} for the last {}", stage.replica_gpus, stage.samples),
        });
    }
    parts.join(", ")
}

fn text(result: &RlResult) -> String {
    let table = TextTable::of(&result.report.steps)
        .column("generation", |step| way(step.way))
        .column("GPUs a replica", |step| replicas(&step.generation))
        .column("generates", |step| in_seconds(step.generation.seconds))
        .column("trains", |step| in_seconds(step.training_seconds))
        .column("weights", |step| in_seconds(step.weights_seconds))
        .column("step", |step| in_seconds(step.step_seconds))
        .column("tokens/s", |step| format!("{:.0}", step.tokens_per_second))
        .column("busy", |step| format!("{:.0} %", 100.0 * step.generation.busy_share))
        .table();
    let report = &result.report;
    let mapping = &report.mapping;
    let of_ways = [&[Way::Adaptive][..], &[Way::Fixed], &[Way::Fixed, Way::FixedEven]];
    let [adaptive, fixed, single] = of_ways.map(|ways| {
        let some = report.steps.iter().filter(|step| ways.contains(&step.way));
        some.map(|step| step.tokens_per_second).fold(0.0, f64::max)
    });
    let lead = match adaptive {
        0.0 => format!("{fixed:.0} tokens/s"),
        adaptive => format!(
            "replicas sized for the tail reach {:.2}× the tokens/s of the best single size",
            adaptive / single
        ),
    };
    let rates = report.replica_gpus.iter().zip(&report.tokens_per_second_by_size);
    let sizes: Vec<String> = rates.map(|(gpus, rate)| format!("{gpus}: {rate:.0}")).collect();
    let columns = format!("{}{}", four_columns(result), death(result));
    format!(
        "{} on {} {} for generation and {} for training ({}), {} samples:\n{lead}\n\n{table}\n{columns}\
         Tokens/s by GPUs per replica, one size and a shared queue: {}.\n\
         Generation takes at least {} with any replica sizes. Trainer: TP {}, CP {}, PP {}, DP {}.\n\
         Assumed: in closed form; non-blocking networks; rewards take no time; 16-bit weights and caches; a cache is\n\
         reserved for all its tokens; the scheduler knows only the lengths of the previous step.\n\
         Not validated: four published steps of a framework took 1.2 to 2.6 times as long.\n",
        result.model,
        result.generation_gpus,
        result.accelerator,
        result.trainer_gpus,
        result.arch,
        result.samples,
        sizes.join(", "),
        in_seconds(report.least_generation_seconds),
        mapping.tensor,
        mapping.context,
        mapping.pipeline,
        mapping.data,
    )
}

fn in_seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

fn four_columns(result: &RlResult) -> String {
    let Some(longer) = result.one_topology_seconds else { return String::new() };
    let mut table = TextTable::new(["tokens/s", "one topology", "circuits follow the phases"]);
    let steps = &result.report.steps;
    let fixed = steps.iter().filter(|step| step.way != Way::Adaptive);
    let best = fixed.max_by(|a, b| a.tokens_per_second.total_cmp(&b.tokens_per_second));
    if best.is_none() {
        return String::new();
    }
    let adaptive = steps.iter().find(|step| step.way == Way::Adaptive);
    let mut base = None;
    for (name, step) in [("best single size", best), ("size follows the tail", adaptive)] {
        let Some(step) = step else { continue };
        let tokens = step.generation.tokens as f64;
        let rates = [tokens / (step.step_seconds + longer), tokens / step.step_seconds];
        let base = *base.get_or_insert(rates[0]);
        let [one, follow] = rates.map(|rate| format!("{rate:.0} ({:.3}×)", rate / base));
        table.row([name.to_owned(), one, follow]);
    }
    format!(
        "{table}With one topology, communication takes {:.0} ms longer per step; all of it is assumed to extend the step.\n\n",
        1e3 * longer
    )
}

fn death(result: &RlResult) -> String {
    let Some(death) = result.report.death else { return String::new() };
    format!(
        "A replica of the best single size fails at {:.2} s: {} samples continue elsewhere, {} cached tokens are recomputed, and generation ends {:.2} s later, at {:.2} s.\n\n",
        death.at_seconds, death.samples, death.tokens, death.later_seconds, death.seconds
    )
}
