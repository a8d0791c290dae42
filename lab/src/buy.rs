// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_study::buy::{Answer, BuyError, Question, Row, buy, refuse_buy};
use lightloom_units::seed::Seed;
use serde::Serialize;

use crate::designs::{BuyAsked, StepTaken, prices, read_buy};
use lightloom::files;
use lightloom::output::{self, InputRefused, VerbOutcome};
use lightloom::result::{ResultArguments, ResultFormat};
use lightloom::table::{TextTable, separated};

const SCHEMA: &str = "lightloom.buy/v1";

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

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let mut inputs = Inputs::new();
    let bytes = files::read_document(&arguments.file).map_err(|mistake| {
        output::diagnostics(&[*mistake]);
        InputRefused
    })?;
    let prices = prices(arguments.prices.as_deref(), &mut inputs)?;
    let BuyAsked { question, trace, step } =
        read_buy(&arguments.file, &bytes, &prices, &mut inputs)?;
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

fn placed(error: BuyError, question: &Question, file: &Path, bytes: &[u8]) -> anyhow::Error {
    let BuyError::Network(name, why) = &error else { return error.into() };
    let of_design = question.candidates.iter().position(|candidate| {
        candidate.network.as_ref().is_some_and(|network| network.name() == *name)
    });
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
    TextTable::of(rows)
        .column("design", |row| row.design.clone())
        .column("policy", |row| row.policy.clone())
        .column("GPUs", |row| row.gpus)
        .column("capex M$", |row| format!("{:.1}", row.capex_usd / 1e6))
        .column("cost M$", |row| format!("{:.1}", row.cost_usd / 1e6))
        .column("low", |row| format!("{:.1}", row.cost_low_usd / 1e6))
        .column("high", |row| format!("{:.1}", row.cost_high_usd / 1e6))
        .column("MW", |row| format!("{:.1}", row.power_mw))
        .column("step", |row| format!("{:.3}", row.step_stretch))
        .column("PFLOP-years", |row| format!("{:.1}", row.useful_pflop_years))
        .column("$/PFLOP-year", |row| {
            row.usd_per_pflop_year.map_or("-".to_owned(), |usd| format!("{usd:.0}"))
        })
        .column("Pareto", |row| if row.is_pareto { "yes" } else { "no" }.to_owned())
        .table()
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
        let parts = row.purchase.iter().map(|part| (part.part.as_str(), part.usd));
        for (part, usd) in parts.chain([("total", row.capex_usd)]) {
            table.row([row.design.clone(), part.to_owned(), separated(&format!("{usd:.0}"))]);
        }
    }
    table
}

fn shares(rows: &[Row]) -> TextTable {
    TextTable::of(rows)
        .column("design", |row| row.design.clone())
        .column("policy", |row| row.policy.clone())
        .column("useful", |row| percent(row.shares.useful))
        .column("redone", |row| percent(row.shares.redone))
        .column("restart", |row| percent(row.shares.restarting))
        .column("checkpoint", |row| percent(row.shares.checkpoint))
        .column("slower", |row| percent(row.shares.slower))
        .column("waiting", |row| percent(row.shares.waiting))
        .column("idle", |row| percent(row.shares.idle))
        .column("fragments", |row| percent(row.shares.fragmented))
        .column("faulty", |row| percent(row.shares.faulty))
        .column("interruptions", |row| row.interruptions)
        .column("jobs done", |row| row.jobs_finished)
        .table()
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
