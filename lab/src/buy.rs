// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_fabric::trace::{FaultTrace, Observation};
use lightloom_study::buy::{
    Answer, BuyError, Candidate, FaultModel, PlannedSteps, Question, Row, buy, load_buy, refuse_buy,
};
use lightloom_study::cost::PriceList;
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use lightloom_units::seed::Seed;
use serde::Serialize;

use crate::compare::fabric_design;
use crate::cost;
use lightloom::files;
use lightloom::output::{self, InputRefused, VerbOutcome};
use lightloom::result::{ResultArguments, ResultFormat};
use lightloom::table::{TextTable, separated};
use lightloom::trace;

const SCHEMA: &str = "lightloom.buy/v1";

/// Compare designs by the cost of useful compute over months.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom buy topologies/buy-pretraining.yaml
  lightloom buy topologies/buy-experts.yaml --format markdown
  lightloom buy topologies/buy-pretraining.yaml --prices mine.yaml -o answer.json

File format and cost model: docs/buy.md")]
pub(crate) struct Arguments {
    /// Buy file (YAML): workload, size, budget, faults, designs.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Price file (YAML) [default: the shipped topologies/prices.yaml].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
    #[command(flatten)]
    result: ResultArguments,
}

#[derive(Serialize)]
struct BuyResult {
    #[serde(flatten)]
    made: Provenance,
    name: String,
    gpus: u32,
    days: f64,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepTaken>,
    #[serde(flatten)]
    answer: Answer,
}

#[derive(Clone, Debug, Serialize)]
struct StepTaken {
    from: String,
    model: String,
    gpus: u32,
}

#[derive(Debug)]
pub(crate) struct BuyAsked {
    pub(crate) question: Question,
    pub(crate) trace: Option<FaultTrace>,
    step: Option<StepTaken>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let mut inputs = Inputs::new();
    let bytes = files::read_document(&arguments.file).map_err(|mistake| {
        output::diagnostics(&[*mistake]);
        InputRefused
    })?;
    let prices = cost::prices(arguments.prices.as_deref(), &mut inputs)?;
    let BuyAsked { question, trace, step } = read(&arguments.file, &bytes, &prices, &mut inputs)?;
    let answer = buy(&question, &prices, trace.as_ref(), Seed(arguments.seed));
    let answer = answer.map_err(|error| placed(error, &question, &arguments.file, &bytes))?;
    let outcome = if answer.rows.is_empty() { VerbOutcome::Bad } else { VerbOutcome::Good };
    let document = BuyResult {
        made: Provenance::of(SCHEMA, inputs),
        name: question.name.clone(),
        gpus: question.cluster.gpus(),
        days: question.window_ms as f64 / 86_400_000.0,
        seed: arguments.seed,
        step,
        answer,
    };
    if arguments.result.format == ResultFormat::Markdown {
        output::print(&format!("{}\n\n", document.answer.verdict.sentence))?;
    }
    arguments.result.show(&document, "rows", || describe(&document))?;
    Ok(outcome)
}

pub(crate) fn read(
    path: &Path,
    bytes: &[u8],
    prices: &PriceList,
    inputs: &mut Inputs,
) -> anyhow::Result<BuyAsked> {
    let name = files::name(path);
    files::note_input(inputs, "buy", &name, bytes);
    let beside = |file: &str| path.parent().unwrap_or(Path::new("")).join(file);
    let mut fabrics = |file: &str| {
        fabric_design(&beside(file), prices, inputs).map_err(|error| error.to_string())
    };
    let (question, mistakes) = load_buy(&name, bytes, &mut fabrics);
    output::diagnostics(&mistakes);
    let mut question = question.ok_or(InputRefused)?;
    let refuse = |at: &str, message: String| {
        output::diagnostics(&refuse_buy(&name, bytes, at, message));
        InputRefused
    };
    let mut step = None;
    if let Some(file) = question.step_from.clone() {
        let refuse =
            |why| refuse("/workload/step/from", format!("{}: {why}", beside(&file).display()));
        step = Some(take_step(&mut question, &file, &beside(&file), inputs).map_err(refuse)?);
    }
    let trace = match &question.faults {
        FaultModel::Trace(file) if !beside(file).is_file() => {
            let message = format!("file {} does not exist", beside(file).display());
            return Err(refuse("/faults/trace", message).into());
        }
        FaultModel::Trace(file) => {
            Some(trace::read(&beside(file), Observation::default(), inputs)?)
        }
        _ => None,
    };
    Ok(BuyAsked { question, trace, step })
}

fn take_step(
    question: &mut Question,
    file: &str,
    path: &Path,
    inputs: &mut Inputs,
) -> Result<StepTaken, String> {
    let bytes = files::read_document(path).map_err(|mistake| mistake.message)?;
    let steps: PlannedSteps =
        serde_json::from_slice(&bytes).map_err(|mistake| mistake.to_string())?;
    files::note_input(inputs, "step", file, &bytes);
    let step = steps.rows.first().ok_or("it is empty")?;
    let card = cards::accelerator(&steps.accelerator).ok();
    if let Some(peak) = card.and_then(|card| card.peak_flops(Precision::Bf16)) {
        let (theirs, ours) = (peak / 1e12, question.peak_tflops);
        if (theirs / ours - 1.0).abs() > 0.01 {
            return Err(format!(
                "the step's MFU refers to {theirs:.0} TFLOP/s ({}), but `workload.peak_tflops` is {ours}",
                steps.accelerator
            ));
        }
    }
    question.take_step(step)?;
    Ok(StepTaken { from: file.to_owned(), model: steps.model.clone(), gpus: step.gpus })
}

fn placed(error: BuyError, question: &Question, file: &Path, bytes: &[u8]) -> anyhow::Error {
    let BuyError::Network(name, why) = &error else { return error.into() };
    let is_it = |other: &Candidate| other.network.as_ref().is_some_and(|one| one.name() == *name);
    let of_design = question.candidates.iter().position(is_it);
    let path = match of_design {
        Some(index) if question.usual_network.as_ref() != Some(name) => {
            format!("/designs/{index}/network")
        }
        _ => "/network".to_owned(),
    };
    output::diagnostics(&refuse_buy(&files::name(file), bytes, &path, why.clone()));
    InputRefused.into()
}

fn percent(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

fn describe(document: &BuyResult) -> String {
    let answer = &document.answer;
    let mut text = format!(
        "{}\n\n{}: {} GPUs, {:.0} days, seed {}; nodes out of service: mean {:.2} %\n",
        answer.verdict.sentence.replace("; ", ";\n"),
        document.name,
        document.gpus,
        document.days,
        document.seed,
        100.0 * answer.node_fault_ratio.mean
    );
    if let Some(StepTaken { from, model, gpus }) = &document.step {
        text += &format!("all jobs use the step of {model} on {gpus} GPUs ({from})\n");
    }
    if !answer.rows.is_empty() {
        text += &format!(
            "\n{}\nPurchase by part, $\n\n{}\nShares of all GPU-hours, %\n\n{}",
            costs(&answer.rows),
            purchases(&answer.rows),
            shares(&answer.rows)
        );
    }
    for left_out in &answer.left_out {
        text += &format!("{}: excluded: {}\n", left_out.design, left_out.why);
    }
    text += &flips(answer);
    if !answer.parts_without_watts.is_empty() {
        text += &format!(
            "\nThe price file gives no power for {}; 0 W is assumed.\n",
            answer.parts_without_watts.join(", ")
        );
    }
    text
}

fn costs(rows: &[Row]) -> TextTable {
    let mut table = TextTable::new([
        "design",
        "policy",
        "GPUs",
        "capex M$",
        "cost M$",
        "low",
        "high",
        "MW",
        "step",
        "PFLOP-years",
        "$/PFLOP-year",
        "Pareto",
    ]);
    for row in rows {
        table.row([
            row.design.clone(),
            row.policy.clone(),
            row.gpus.to_string(),
            format!("{:.1}", row.capex_usd / 1e6),
            format!("{:.1}", row.cost_usd / 1e6),
            format!("{:.1}", row.cost_low_usd / 1e6),
            format!("{:.1}", row.cost_high_usd / 1e6),
            format!("{:.1}", row.power_mw),
            format!("{:.3}", row.step_stretch),
            format!("{:.1}", row.useful_pflop_years),
            row.usd_per_pflop_year.map_or("-".to_owned(), |usd| format!("{usd:.0}")),
            if row.is_pareto { "yes" } else { "no" }.to_owned(),
        ]);
    }
    table
}

/// The policies of a design share its purchase.
fn purchases(rows: &[Row]) -> TextTable {
    let mut designs: Vec<&Row> = Vec::new();
    for row in rows {
        if !designs.iter().any(|other| other.design == row.design && other.gpus == row.gpus) {
            designs.push(row);
        }
    }
    let mut table = TextTable::new(["design", "part", "$"]);
    for row in designs {
        let usd = |usd: f64| separated(&format!("{usd:.0}"));
        for part in &row.purchase {
            table.row([row.design.clone(), part.part.clone(), usd(part.usd)]);
        }
        table.row([row.design.clone(), "total".to_owned(), usd(row.capex_usd)]);
    }
    table
}

fn shares(rows: &[Row]) -> TextTable {
    let mut table = TextTable::new([
        "design",
        "policy",
        "useful",
        "redone",
        "restart",
        "checkpoint",
        "slower",
        "waiting",
        "idle",
        "fragments",
        "faulty",
        "interruptions",
        "jobs done",
    ]);
    for row in rows {
        let shares = &row.shares;
        table.row([
            row.design.clone(),
            row.policy.clone(),
            percent(shares.useful),
            percent(shares.redone),
            percent(shares.restarting),
            percent(shares.checkpoint),
            percent(shares.slower),
            percent(shares.waiting),
            percent(shares.idle),
            percent(shares.fragmented),
            percent(shares.faulty),
            row.interruptions.to_string(),
            row.jobs_finished.to_string(),
        ]);
    }
    table
}

fn flips(answer: &Answer) -> String {
    let mut rates = TextTable::new(["× fault rate", "cheapest useful PFLOP-year"]);
    for flip in &answer.verdict.by_fault_rate {
        let winner = flip.winner.clone().unwrap_or_else(|| "-".to_owned());
        rates.row([flip.factor.to_string(), winner]);
    }
    let mut text = format!("\n{rates}");
    if !answer.verdict.within_prices.is_empty() {
        let mut rivals = TextTable::new([
            "rival, prices within ranges",
            "$ more per PFLOP-year, at least",
            "at most",
        ]);
        for rival in &answer.verdict.within_prices {
            rivals.row([
                rival.design.clone(),
                format!("{:+.0}", rival.least_more_usd),
                format!("{:+.0}", rival.most_more_usd),
            ]);
        }
        text += &format!("\n{rivals}");
    }
    if !answer.verdict.by_price.is_empty() {
        let mut prices = TextTable::new(["price of", "× today", "$", "wins above that"]);
        for flip in &answer.verdict.by_price {
            prices.row([
                flip.part.clone(),
                format!("{:.2}", flip.factor),
                format!("{:.2}", flip.usd),
                flip.winner.clone(),
            ]);
        }
        text += &format!("\n{prices}");
    }
    text
}
