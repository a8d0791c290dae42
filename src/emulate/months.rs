// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write as _;

use lightloom_emulator::months::{
    Alternative, CaseRun, JobRow, LossesFrom, MonthsResult, Prepared, months,
};
use lightloom_emulator::shipped::MakeControl;
use lightloom_emulator::sweep::SeedRange;
use rayon::prelude::*;

use super::{Arguments, ScenarioSource};
use crate::output::{VerbOutcome, WrongUsage};
use crate::progress::Progress;
use crate::table::TextTable;

pub(super) fn run(
    arguments: &Arguments,
    source: &ScenarioSource,
    control: &MakeControl,
) -> anyhow::Result<VerbOutcome> {
    let shows_a_run = arguments.flows_out.is_some()
        || arguments.look.is_asked_for()
        || arguments.prove_reuse
        || arguments.no_reuse
        || arguments.reports.is_asked_for()
        || arguments.shard.is_some();
    if shows_a_run {
        let message = "a scenario with `span` consists of many runs, so it accepts only --seed, --threads, --format and --output; the JSON contains every run in the table with its faults";
        return Err(WrongUsage(message.to_owned()).into());
    }
    let scenario = &source.scenario;
    let own = SeedRange { first: scenario.seed.0, last: scenario.seed.0 };
    let prepared = Prepared::of(scenario, control)?.expect("it has a span");
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(usize::from(arguments.threads)).build()?;
    let seeds = arguments.seed.unwrap_or(own);
    let mut result = months(&prepared, seeds, control, &|prepared: &Prepared| {
        let cases = prepared.cases();
        let progress = Progress::new("runs", cases.len() as u64);
        let runs = cases.par_iter().map(|case| -> Result<CaseRun, _> {
            let run = prepared.run(case, control)?;
            progress.advance(1);
            Ok(run)
        });
        pool.install(|| runs.collect())
    })?;
    result.made.inputs.clone_from(&source.inputs);
    arguments.result.show(&result, "bill", || describe(&result))?;
    Ok(VerbOutcome::Good)
}

fn describe(result: &MonthsResult) -> String {
    let mut text = format!(
        "`{}`: {} over {:.1} days, seeds {}, control {}\n",
        result.scenario,
        count(result.gpus, "GPU"),
        result.span_hours / 24.0,
        result.seeds,
        result.control
    );
    for job in &result.jobs {
        let _ = writeln!(
            text,
            "job {}: {}, a step of {:.3} s at {:.1} % MFU, {}",
            job.job,
            count(job.gpus, "GPU"),
            job.step_seconds,
            100.0 * job.mfu,
            policy(job)
        );
    }
    for row in &result.failures {
        let rates = row.mtbf_hours.zip(row.repair_hours).map(|(mtbf, repair)| {
            format!(" fails every {mtbf:.0} h and is repaired in {repair:.1} h, on average")
        });
        let _ = writeln!(text, "{}{}: {}", row.part, rates.unwrap_or_default(), row.source);
    }
    if let Some(from) = &result.losses_from {
        let _ = writeln!(text, "{}", losses_from(from));
    }
    let _ = writeln!(text, "{}\n", spares(result));
    text.push_str(&bill(result));
    let goodput = &result.goodput;
    let _ = writeln!(
        text,
        "\ngoodput {:.2} % = scheduling {:.2} % × runtime {:.2} % × program {:.2} % (MFU)\n",
        100.0 * goodput.overall,
        100.0 * goodput.scheduling,
        100.0 * goodput.runtime,
        100.0 * goodput.program
    );
    text.push_str(&changes(result));
    text.push_str(&table(result));
    text
}

fn policy(job: &JobRow) -> String {
    let checkpoint =
        format!("the last checkpoint (every {})", count(job.saved_every_steps.into(), "step"));
    match (job.answer.as_str(), job.step_with_fewer_seconds) {
        ("restart", _) => format!("restarts from {checkpoint}"),
        ("in_memory", _) => format!("restarts from a copy in memory, else from {checkpoint}"),
        ("migrate", _) => format!("moves to a spare node, else restarts from {checkpoint}"),
        (_, step) => format!(
            "continues with fewer than {}, a step of {:.3} s, else restarts from {checkpoint}",
            count(job.replicas.into(), "replica"),
            step.unwrap_or_default()
        ),
    }
}

fn losses_from(from: &LossesFrom) -> String {
    let LossesFrom { file, control, gpus, stretched, stand_in } = from;
    if !stand_in {
        return format!("losses from {file}, control {control}");
    }
    let jobs = gpus.iter().zip(stretched);
    let jobs: Vec<String> = jobs
        .map(|(gpus, stretch)| format!("{}, steps × {stretch:.3}", count(*gpus, "GPU")))
        .collect();
    format!(
        "losses assumed from another fabric, {file}, control {control}, scaled by closed forms: jobs of {}",
        jobs.join("; ")
    )
}

fn spares(result: &MonthsResult) -> String {
    let months = &result.months;
    let mut sums = [0; 3];
    for month in months {
        sums[0] += month.failures;
        sums[1] += month.hits;
        sums[2] += month.waits;
    }
    let [failures, hits, waits] = sums.map(|sum| sum as f64 / months.len() as f64);
    format!(
        "spares: {}; on average {failures:.1} failures, {hits:.1} with a loss for a job, and {waits:.2} waits for nodes",
        count(result.spare_nodes as u64, "node"),
    )
}

fn bill(result: &MonthsResult) -> String {
    let mut headings = vec!["GPU-hours lost for", "mean", "P50", "P99", "share"];
    if result.lost_usd.is_some() {
        headings.push("dollars");
    }
    let mut table = TextTable::with_headings(headings.into_iter().map(str::to_owned));
    let share = result.lost_gpu_hours.mean / result.capacity_gpu_hours.max(f64::MIN_POSITIVE);
    let all = ("all of them", result.lost_gpu_hours, share, result.lost_usd);
    let lines = result.bill.iter();
    let lines = lines.map(|line| (line.words.as_str(), line.gpu_hours, line.share, line.usd));
    for (words, hours, share, usd) in lines.chain([all]) {
        let mut cells = vec![words.to_owned(), show(hours.mean), show(hours.p50), show(hours.p99)];
        cells.push(format!("{:.4} %", 100.0 * share));
        cells.extend(usd.map(|usd| format!("${usd:.2}")));
        table.row(cells);
    }
    format!("{table}of {:.0} GPU-hours\n", result.capacity_gpu_hours)
}

fn show(hours: f64) -> String {
    if hours != 0.0 && hours.abs() < 0.1 { format!("{hours:.5}") } else { format!("{hours:.2}") }
}

fn changes(result: &MonthsResult) -> String {
    if result.alternatives.is_empty() {
        return String::new();
    }
    let mut table =
        TextTable::new(["the same months with", "GPU-hours lost", "saves", "saves dollars"]);
    for Alternative { words, lost_gpu_hours, saves_gpu_hours, saves_usd, .. } in
        &result.alternatives
    {
        let usd = saves_usd.map_or("-".to_owned(), |usd| format!("{usd:.2}"));
        table.row([words.clone(), show(*lost_gpu_hours), show(*saves_gpu_hours), usd]);
    }
    let verdict = match result.saves_most {
        Some(_) => format!("saves the most: {}\n", result.alternatives[0].words),
        None => "no change saves anything\n".to_owned(),
    };
    format!("{table}{verdict}\n")
}

fn table(result: &MonthsResult) -> String {
    let table = TextTable::of(&result.table)
        .column("runs of", |row| row.part.to_owned())
        .column("nodes out", |row| row.out)
        .column("runs", |row| row.runs)
        .column("stopped", |row| row.stopped)
        .column("GPU-seconds immediately", |row| format!("{:.3}", row.once_gpu_seconds.mean))
        .column("P99", |row| format!("{:.3}", row.once_gpu_seconds.p99))
        .column("per step until the repair", |row| format!("{:.4}", row.each_step_gpu_seconds.mean))
        .table();
    format!(
        "{table}computed rather than simulated: waiting for nodes, checkpoints, and whole steps since the last checkpoint; if more nodes are out than the table lists, its last row applies, and the delays of steps add up\n"
    )
}

pub(super) fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}
