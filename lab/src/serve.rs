// SPDX-License-Identifier: Apache-2.0

use clap::Args;
use clap::builder::TypedValueParser;
use serde::Serialize;

use lightloom_fabric::provenance::Inputs;
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_training::rollout::Lengths;
use lightloom_training::serving::{
    DecodeGroups, Layout, Load, Objective, ServingJob, ServingResult,
};
use lightloom_training::step::Formats;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds};

use crate::cards::{Decoding, PRECISIONS, card};
use lightloom::choice::one_of;
use lightloom::output::VerbOutcome;
use lightloom::result::{ResultArguments, ResultDocument};
use lightloom::table::{TextTable, separated};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom serve --model llama-3.1-70b --gpus 64 --per-minute 1000
  lightloom serve --model llama-3.1-70b --gpus 256 --per-minute 10000 --for 24h
  lightloom serve --model llama-3.1-70b --layout colocated=4xTP2 --concurrency 256 --sigma 0
  lightloom serve --model llama-3.1-70b --layout prefill=2xTP4,decode=4xTP2 --per-minute 300
  lightloom serve --model deepseek-v3 --accelerator h200 --gpus 64 --per-minute 600 --first 5s --token 80ms
  lightloom serve --model step-3 --accelerator h800 --gpus 64 --per-minute 2000 --precision fp8 --cache-bits 8 --attention-ffn

Exit status 1 if no layout meets the objective for the requested share of requests.")]
pub(crate) struct Arguments {
    /// A shipped model, a YAML file with its dimensions, or a Hugging Face `config.json`.
    #[arg(long, value_name = "NAME|FILE")]
    model: String,
    /// Number of GPUs in the pool.
    #[arg(long, value_name = "N", required_unless_present = "layout", conflicts_with = "layout", value_parser = lightloom::number::whole::<u32>(1..=65_536))]
    gpus: Option<u32>,
    /// Only this layout: `colocated=4xTP2` or `prefill=2xTP4,decode=4xTP2` [default: the best of
    /// each kind].
    #[arg(long, value_name = "LAYOUT", value_parser = given_layout)]
    layout: Option<GivenLayout>,
    /// Requests per minute; arrivals are Poisson.
    #[arg(long, value_name = "N", required_unless_present = "concurrency", value_parser = lightloom::number::whole::<u32>(1..=10_000_000))]
    per_minute: Option<u32>,
    /// Time span of the arrivals.
    #[arg(long = "for", value_name = "TIME", default_value = "10min")]
    lasts: Picoseconds,
    /// Requests in flight instead of arrivals: the next one starts when one ends (colocated layouts).
    #[arg(long, value_name = "N", conflicts_with_all = ["per_minute", "lasts", "attention_ffn"], value_parser = lightloom::number::whole::<u32>(1..=1_000_000))]
    concurrency: Option<u32>,
    /// Number of requests with --concurrency [default: 8 per request in flight].
    #[arg(long, value_name = "N", requires = "concurrency", value_parser = lightloom::number::whole::<u32>(1..=10_000_000))]
    requests: Option<u32>,
    /// A shipped accelerator, or a YAML file that describes one.
    #[arg(long, default_value = "h100", value_name = "NAME|FILE")]
    accelerator: String,
    /// Mean number of tokens per prompt.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1_000_000))]
    prompt: u32,
    /// Mean number of tokens per response.
    #[arg(long, default_value_t = 250, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=1_000_000))]
    response: u32,
    /// Standard deviation of log length, 0 for equal lengths; truncated at 16 times the mean.
    #[arg(long, default_value_t = 0.8, value_name = "SIGMA", value_parser = lightloom::number::sigma, allow_negative_numbers = true)]
    sigma: f64,
    /// Maximum wait for the first token.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    first: Picoseconds,
    /// Maximum wait for each further token, averaged over a request.
    #[arg(long, value_name = "TIME", default_value = "50ms")]
    token: Picoseconds,
    /// Percentage of requests that must meet both limits.
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = lightloom::number::percent, allow_negative_numbers = true)]
    share: f64,
    #[command(flatten)]
    decoding: Decoding,
    /// Maximum number of prompt tokens between two decode steps (`max_num_tokens` of TensorRT-LLM,
    /// `max_num_batched_tokens` of vLLM).
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = lightloom::number::whole::<u64>(1..=10_000_000))]
    prompt_budget: u64,
    /// Number format of the linear layers' weights and products.
    #[arg(long, default_value = "bf16", value_name = "FORMAT", value_parser = one_of(PRECISIONS))]
    precision: Precision,
    /// Bits per value in the caches: 16 or 8.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::builder::PossibleValuesParser::new(["16", "8"]).map(|bits| bits.parse::<u32>().expect("it is a number")))]
    cache_bits: u32,
    /// Also try to decode with attention and feed-forward parts on separate GPUs.
    #[arg(long)]
    attention_ffn: bool,
    /// Random seed for arrivals and lengths.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
    #[command(flatten)]
    result: ResultArguments,
}

#[derive(Clone, Copy, Debug)]
struct GivenLayout {
    gpus: u32,
    layout: Layout,
}

/// Reads `colocated=4xTP2` or `prefill=2xTP4,decode=4xTP2`.
fn given_layout(text: &str) -> Result<GivenLayout, String> {
    let colocated = replicas(text, "colocated").map(|(count, gpus)| GivenLayout {
        gpus: count * gpus,
        layout: Layout::Colocated { replica_gpus: gpus },
    });
    let layout = colocated.or_else(|| {
        let (prefill, decode) = text.split_once(',')?;
        let (prefills, one) = replicas(prefill, "prefill")?;
        let (decodes, other) = replicas(decode, "decode")?;
        let layout = Layout::Disaggregated {
            prefill_gpus: prefills * one,
            prefill_replica_gpus: one,
            decode_gpus: decodes * other,
            decode_replica_gpus: other,
        };
        Some(GivenLayout { gpus: prefills * one + decodes * other, layout })
    });
    layout.ok_or_else(|| {
        let other = ["DP", "EP", "PP"].into_iter().find(|other| text.contains(other));
        let unknown = other.map_or_else(String::new, |other| {
            format!("attention by request, experts across replicas and pipelines ({other}) are not modelled: ")
        });
        format!(
            "{unknown}use `colocated=4xTP2` or `prefill=2xTP4,decode=4xTP2`, with 1 to 4096 replicas"
        )
    })
}

/// Reads the number of replicas and the GPUs of each from a part such as `decode=4xTP2`.
fn replicas(part: &str, name: &str) -> Option<(u32, u32)> {
    let (count, gpus) = part.strip_prefix(name)?.strip_prefix('=')?.split_once("xTP")?;
    let [count, gpus] = [count, gpus]
        .map(|text| text.parse::<u32>().ok().filter(|number| (1..=4096).contains(number)));
    count.zip(gpus)
}

/// Limited because all requests of a run are held in memory.
const MOST_REQUESTS: f64 = 50e6;

#[derive(Serialize)]
struct ServeResult {
    model: String,
    accelerator: String,
    arch: String,
    gpus: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_minute: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    prompt_tokens: u32,
    response_tokens: u32,
    sigma: f64,
    batch: u32,
    prompt_budget_tokens: u64,
    host_seconds: f64,
    precision: Precision,
    cache_bits: u32,
    seed: u64,
    objective: Objective,
    share_percent: f64,
    is_kept: bool,
    layouts: Vec<ServingResult>,
}

fn load(arguments: &Arguments) -> anyhow::Result<Load> {
    let Some(per_minute) = arguments.per_minute else {
        let concurrency = arguments.concurrency.unwrap_or(1);
        let requests = arguments.requests.unwrap_or(concurrency.saturating_mul(8));
        anyhow::ensure!(
            requests >= concurrency,
            "--requests {requests}: use at least the {concurrency} in flight"
        );
        return Ok(Load::Closed { concurrency, requests });
    };
    let (rate, seconds) = (f64::from(per_minute) / 60.0, arguments.lasts.as_secs_f64());
    anyhow::ensure!(
        rate * seconds >= 1.0 && rate * seconds <= MOST_REQUESTS,
        "--per-minute {per_minute} --for {}: {:.0} requests in total; choose times and rates for 1 to {MOST_REQUESTS:.0}",
        arguments.lasts,
        rate * seconds
    );
    Ok(Load::Open { rate, seconds })
}

fn job_of(arguments: &Arguments, inputs: &mut Inputs) -> anyhow::Result<ServingJob> {
    let model = card("model", &arguments.model, cards::model, cards::read_model, inputs)?;
    let name = &*arguments.accelerator;
    let card = card("accelerator", name, cards::accelerator, cards::read_accelerator, inputs)?;
    let network = arguments.decoding.network(&card)?;
    let load = load(arguments)?;
    if let (Some(_), Some(GivenLayout { layout: Layout::Disaggregated { .. }, .. })) =
        (arguments.concurrency, arguments.layout)
    {
        anyhow::bail!("--concurrency is only possible with colocated layouts: use --per-minute");
    }
    let lengths = [arguments.prompt, arguments.response].map(|mean| Lengths {
        mean: mean.into(),
        sigma: arguments.sigma,
        most: mean.saturating_mul(16),
    });
    let objective = Objective {
        first_seconds: arguments.first.as_secs_f64(),
        token_seconds: arguments.token.as_secs_f64(),
    };
    let precision = arguments.precision;
    anyhow::ensure!(
        card.peak_flops(precision).is_some(),
        "--precision {precision}: {} does not support it; omit it, or use another accelerator",
        card.name
    );
    Ok(ServingJob {
        model,
        card,
        network,
        gpus: arguments.layout.map_or(arguments.gpus.unwrap_or(0), |given| given.gpus),
        load,
        lengths,
        batch: arguments.decoding.batch,
        prompt_tokens: arguments.prompt_budget,
        host_seconds: arguments.decoding.host_seconds(),
        formats: Formats {
            weights: precision,
            cache_value_bytes: f64::from(arguments.cache_bits) / 8.0,
        },
        tries_attention_ffn: arguments.attention_ffn,
        layout: arguments.layout.map(|given| given.layout),
        objective,
        seed: Seed(arguments.seed),
    })
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let mut inputs = Inputs::new();
    let job = job_of(arguments, &mut inputs)?;
    let layouts = job.report();
    if layouts.is_empty() {
        let (model, card) = (&job.model.name, &job.card.name);
        anyhow::ensure!(
            arguments.layout.is_none() || job.smallest_replica().is_none(),
            "--layout: {model} does not fit on its replicas, or their TP is not 1, 2, 4, 8 or 16 or does not divide the heads: use at least TP{} of {card}",
            job.smallest_replica().unwrap_or(1)
        );
        let Some(gpus) = job.smallest_replica() else {
            anyhow::bail!(
                "{model} does not fit on a replica of 16 {card} or fewer: use an accelerator with more memory, or --precision with fewer bits"
            );
        };
        anyhow::bail!(
            "--gpus {}: a replica of {model} needs at least {gpus} {card}, so that its weights fit: use --gpus {gpus} or a multiple of {gpus}",
            job.gpus
        );
    }
    let result = ServeResult {
        model: job.model.name.clone(),
        accelerator: job.card.name.clone(),
        arch: job.network.name.clone(),
        gpus: job.gpus,
        requests_per_minute: arguments.per_minute,
        seconds: match job.load {
            Load::Open { seconds, .. } => Some(seconds),
            Load::Closed { .. } => None,
        },
        concurrency: arguments.concurrency,
        prompt_tokens: arguments.prompt,
        response_tokens: arguments.response,
        sigma: arguments.sigma,
        batch: job.batch,
        prompt_budget_tokens: job.prompt_tokens,
        host_seconds: job.host_seconds,
        precision: job.formats.weights,
        cache_bits: arguments.cache_bits,
        seed: arguments.seed,
        objective: job.objective,
        share_percent: arguments.share,
        is_kept: layouts[0].within >= arguments.share / 100.0,
        layouts,
    };
    let is_kept = result.is_kept;
    let document = ResultDocument::new("lightloom.serve/v1", inputs, &result);
    arguments.result.show(&document, "layouts", || text(&result, arguments))?;
    Ok(if is_kept { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn layout(result: &ServingResult, all: u32) -> String {
    match result.layout {
        Layout::Colocated { replica_gpus } => {
            format!("colocated, {}×TP{replica_gpus}", all / replica_gpus)
        }
        Layout::Disaggregated {
            prefill_gpus,
            prefill_replica_gpus: one,
            decode_gpus,
            decode_replica_gpus: other,
        } => format!(
            "disaggregated, prefill {}×TP{one}, decode {}×TP{other}",
            prefill_gpus / one,
            decode_gpus / other
        ),
        Layout::AttentionFfn { prefill_gpus, prefill_replica_gpus: one, decodes } => {
            let DecodeGroups { groups, attention, feed_forward, micro_batches } = decodes;
            let times = if groups > 1 { format!("{groups}× ") } else { String::new() };
            format!(
                "attention–FFN, prefill {}×TP{one}, decode {times}{}×TP{} and {}×TP{}, {micro_batches} micro-batches",
                prefill_gpus / one,
                attention.count,
                attention.gpus,
                feed_forward.count,
                feed_forward.gpus
            )
        }
    }
}

fn token_time(seconds: Option<f64>) -> String {
    seconds.map_or("–".to_owned(), |seconds| format!("{:.1} ms", 1e3 * seconds))
}

fn text(result: &ServeResult, arguments: &Arguments) -> String {
    let table = TextTable::of(&result.layouts)
        .column("layout of the GPUs", |one| layout(one, result.gpus))
        .column("within", |one| format!("{:.2} %", 100.0 * one.within))
        .column("TTFT P50", |one| format!("{:.0} ms", 1e3 * one.ttft_p50_seconds))
        .column("P99", |one| format!("{:.0} ms", 1e3 * one.ttft_p99_seconds))
        .column("TPOT P50", |one| token_time(one.tpot_p50_seconds))
        .column("P99", |one| token_time(one.tpot_p99_seconds))
        .column("tokens/s", |one| format!("{:.0}", one.tokens_per_second))
        .column("in flight", |one| format!("{:.1}", one.mean_requests))
        .column("caches moved", |one| Bytes(one.moved_bytes))
        .table();
    let best = &result.layouts[0];
    let refused = match best.refused {
        0 => String::new(),
        refused => format!("{refused} requests are too long for any replica's caches.\n"),
    };
    let exchanged = result.layouts.iter().find(|one| one.activation_bytes > 0);
    let exchanged = exchanged.map_or(String::new(), |one| {
        format!("Attention and FFN exchange {}.\n", Bytes(one.activation_bytes))
    });
    let load = match (result.requests_per_minute, result.concurrency) {
        (Some(rate), _) => format!("{rate} requests per minute"),
        (None, most) => format!("{} requests in flight", most.unwrap_or(0)),
    };
    let formats = match (result.precision, result.cache_bits) {
        (Precision::Bf16, 16) => "16-bit weights, caches and products".to_owned(),
        (weights, caches) => format!("{weights} in linear layers, {caches}-bit caches"),
    };
    format!(
        "{} on {} {} ({}), {load}:\n{:.2} % within {} and {} per token: {} {} %\n\n{table}\n{refused}{exchanged}\
         Assumed: in closed form; {formats}; a non-blocking network; a cache\n\
         reserved for a whole request; at most {} prompt tokens, or one prompt, between two decode steps;\n\
         decoding reads at 87 % of the memory rate and starts a kernel in 3.6 µs, as measured on an H200. TPOT\n\
         includes the wait for decoding.\n",
        result.model,
        result.gpus,
        result.accelerator,
        result.arch,
        100.0 * best.within,
        arguments.first,
        arguments.token,
        if result.is_kept { "meets the objective of" } else { "MISSES the objective of" },
        arguments.share,
        separated(&result.prompt_budget_tokens.to_string()),
    )
}
