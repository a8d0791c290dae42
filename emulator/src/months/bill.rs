// SPDX-License-Identifier: Apache-2.0
//! Losses by cause over many seeds, and the single change with the largest saving.

use std::collections::BTreeSet;

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_fabric::trace::NodesError;
use lightloom_units::seed::Seed;
use serde::Serialize;

use super::alternatives::{self, Alternative, Change};
use super::{CaseRun, Cause, Goodput, LossTable, LossesFrom, Month, Prepared, TrainedJob, month};
use crate::EmulateError;
use crate::nearest_rank::percentile;
use crate::scenario::{ControlDelays, FailureSource, JobRow, StartError};
use crate::shipped::MakeControl;
use crate::stages::StageName;
use crate::substrate::AnyPart;
use crate::sweep::SeedRange;

/// Schema version of the document.
pub const MONTHS_SCHEMA: &str = "lightloom.month/v1";

const HOUR: f64 = 3.6e15;

/// Statistics of a metric over all seeds, with percentiles by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Figure {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let [p50, p99] = [50, 99].map(|per_cent| percentile(&values, per_cent).unwrap_or_default());
        Self { mean: values.iter().sum::<f64>() / values.len() as f64, p50, p99 }
    }
}

/// GPU-hours lost to one cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BillRow {
    /// The cause.
    pub cause: &'static str,
    /// The recovery stage, for an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Description of the cause.
    pub words: String,
    /// GPU-hours lost per seed.
    pub gpu_hours: Figure,
    /// Mean loss as a share of all GPU-hours.
    pub share: f64,
    /// Mean loss in US dollars. `None` if GPU-hours have no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
}

fn goodput(months: &[Month]) -> Goodput {
    let shares: [fn(&Month) -> f64; 3] = [Month::scheduling, Month::runtime, Month::program];
    let [scheduling, runtime, program] =
        shares.map(|of| months.iter().map(of).sum::<f64>() / months.len().max(1) as f64);
    Goodput::new(scheduling, runtime, program)
}

/// Failure rate of one kind of part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureRow {
    /// The kind of part.
    pub part: &'static str,
    /// Mean hours between failures of one part. `None` if a trace is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtbf_hours: Option<f64>,
    /// Mean hours to repair. `None` if a trace is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_hours: Option<f64>,
    /// Source of the rate, `assumed`, or the file name of the trace.
    pub source: String,
}

/// Measured losses for one kind of failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableRow {
    /// The kind of part.
    pub part: &'static str,
    /// Number of nodes that had already failed.
    pub out: usize,
    /// Number of runs.
    pub runs: usize,
    /// Number of runs with a job that could not continue.
    pub stopped: usize,
    /// One-time loss in GPU-seconds, over the runs in which all jobs continued.
    pub once_gpu_seconds: Figure,
    /// Additional GPU-seconds per later step.
    pub each_step_gpu_seconds: Figure,
}

impl TableRow {
    fn of(table: &LossTable) -> Vec<Self> {
        let rows = table.rows().map(|(part, out, samples)| {
            let sums = samples.iter().filter_map(|sample| {
                let jobs = sample.jobs.iter().zip(&table.jobs);
                let mut sums = (0.0, 0.0);
                for (loss, job) in jobs {
                    let loss = loss.as_ref()?;
                    let once: i128 = loss.once.iter().map(|(_, time)| time).sum();
                    sums.0 += once as f64 * job.gpus as f64 / 1e12;
                    sums.1 += loss.slower as f64 * job.gpus as f64 / 1e12;
                }
                Some(sums)
            });
            let (once, each_step): (Vec<f64>, Vec<f64>) = sums.unzip();
            let stopped = samples.len() - once.len();
            let [once, each_step] = [once, each_step].map(|sums| match sums.is_empty() {
                true => Figure::default(),
                false => Figure::of(sums),
            });
            Self {
                part: part.name(),
                out,
                runs: samples.len(),
                stopped,
                once_gpu_seconds: once,
                each_step_gpu_seconds: each_step,
            }
        });
        rows.collect()
    }
}

/// Result of one month.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MonthRow {
    /// Seed of the month.
    pub seed: Seed,
    /// Number of failed parts.
    pub failures: u64,
    /// Number of failures that delayed a job.
    pub hits: u64,
    /// Number of times a job waited for nodes.
    pub waits: u64,
    /// Lost GPU-hours.
    pub lost_gpu_hours: f64,
    /// Share of GPU-hours spent on useful work.
    pub useful_share: f64,
}

/// Result of a scenario over its time span.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MonthsResult {
    /// Schema and input files, filled in by the file reader.
    #[serde(flatten)]
    pub made: Provenance,
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of the fabric file.
    pub fabric_sha256: String,
    /// Control plane of the runs: `assumed` or `lightloomd`.
    pub control: &'static str,
    /// Range of seeds.
    pub seeds: SeedRange,
    /// Time span in hours.
    pub span_hours: f64,
    /// Number of GPUs, including spares.
    pub gpus: u64,
    /// Number of nodes without a job.
    pub spare_nodes: usize,
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// The kinds of failures.
    pub failures: Vec<FailureRow>,
    /// Total GPU-hours per seed.
    pub capacity_gpu_hours: f64,
    /// Lost GPU-hours.
    pub lost_gpu_hours: Figure,
    /// Mean loss in US dollars. `None` if GPU-hours have no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_usd: Option<f64>,
    /// Losses by cause. Their means add up to the total.
    pub bill: Vec<BillRow>,
    /// Mean goodput over the seeds.
    pub goodput: Goodput,
    /// Single changes, largest savings first.
    pub alternatives: Vec<Alternative>,
    /// Change with the largest saving. `None` if no change saves anything.
    pub saves_most: Option<Change>,
    /// Source of reused losses. `None` if they were measured in runs of this scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses_from: Option<LossesFrom>,
    /// Measured losses by kind of failure.
    pub table: Vec<TableRow>,
    /// Individual runs, with the inputs that reproduce them.
    pub runs: Vec<CaseRun>,
    /// Results by seed.
    pub months: Vec<MonthRow>,
}

/// Executes the cases, in any order and on any number of threads.
pub type RunCases<'a> = dyn Fn(&Prepared) -> Result<Vec<CaseRun>, EmulateError> + 'a;

/// Simulates the months of `prepared`, and recomputes them for each single change.
pub fn months(
    prepared: &Prepared,
    seeds: SeedRange,
    maker: &MakeControl,
    run_cases: &RunCases<'_>,
) -> Result<MonthsResult, EmulateError> {
    let (table, runs) = filled(prepared, run_cases)?;
    let all: Vec<Seed> = seeds.share(None).collect();
    let drawn = run_all(prepared, &table, &all)?;
    let mut changed = Vec::new();
    for (change, words, other) in alternatives::of_table(prepared, &table, &drawn) {
        changed.push((change, words, mean_lost(&run_all(prepared, &other, &all)?)));
    }
    if let Some(sooner) = alternatives::repaired_sooner(prepared.scenario()) {
        let sooner = prepared.with_scenario(sooner);
        let words = "repairs in half the time".to_owned();
        changed.push((Change::RepairHalved, words, mean_lost(&run_all(&sooner, &table, &all)?)));
    }
    let faster = alternatives::faster(&prepared.scenario().control);
    if let Some((control, words)) = faster.filter(|_| prepared.losses_from().is_none()) {
        let faster = prepared.with_control(control, maker)?;
        let (table, _) = filled(&faster, run_cases)?;
        let lost = mean_lost(&run_all(&faster, &table, &all)?);
        changed.push((Change::DetectionHalved, words, lost));
    }
    let (lost, price) = (mean_lost(&drawn), prepared.span().gpu_hour);
    let alternatives = changed.into_iter().map(|(change, words, lost_gpu_hours)| {
        let saves_gpu_hours = lost - lost_gpu_hours;
        let saves_usd = price.map(|price| price.0 * saves_gpu_hours);
        Alternative { change, words, lost_gpu_hours, saves_gpu_hours, saves_usd }
    });
    let mut alternatives: Vec<Alternative> = alternatives.collect();
    alternatives.sort_by(|a, b| b.saves_gpu_hours.total_cmp(&a.saves_gpu_hours));
    Ok(result(prepared, &table, runs, seeds, &drawn, alternatives))
}

fn filled(
    prepared: &Prepared,
    run_cases: &RunCases<'_>,
) -> Result<(LossTable, Vec<CaseRun>), EmulateError> {
    let runs = match prepared.known_runs() {
        Some(runs) => runs,
        None => run_cases(prepared)?,
    };
    let mut table = prepared.table();
    runs.iter().for_each(|run| table.add(&run.run.case, run.run.place, run.sample.clone()));
    Ok((table, runs))
}

fn run_all(
    prepared: &Prepared,
    table: &LossTable,
    seeds: &[Seed],
) -> Result<Vec<Month>, EmulateError> {
    let months = seeds.iter().map(|seed| {
        let changes = prepared.changes(*seed)?;
        Ok(month(table, &changes, prepared.span().length, *seed))
    });
    let months: Result<Vec<Month>, NodesError> = months.collect();
    months.map_err(|error| {
        let what = "fabric";
        EmulateError::Start(StartError::Trace { what, error })
    })
}

fn mean_lost(months: &[Month]) -> f64 {
    let hours = months.iter().map(|month| month.lost_time() as f64 / HOUR);
    hours.sum::<f64>() / months.len().max(1) as f64
}

fn result(
    prepared: &Prepared,
    table: &LossTable,
    runs: Vec<CaseRun>,
    seeds: SeedRange,
    months: &[Month],
    alternatives: Vec<Alternative>,
) -> MonthsResult {
    let (scenario, span) = (prepared.scenario(), prepared.span());
    let ControlDelays { lightloomd, .. } = scenario.control;
    let hours: Vec<f64> = months.iter().map(|month| month.lost_time() as f64 / HOUR).collect();
    let rows = seeds.share(None).zip(months).zip(&hours).map(|((seed, month), hours)| MonthRow {
        seed,
        failures: month.failures,
        hits: month.hits,
        waits: month.waits,
        lost_gpu_hours: *hours,
        useful_share: month.useful as f64 / month.capacity.max(1) as f64,
    });
    let rows = rows.collect();
    let lost_gpu_hours = Figure::of(hours);
    let best = alternatives.first().filter(|best| best.saves_gpu_hours > 0.0);
    MonthsResult {
        made: Provenance::of(MONTHS_SCHEMA, Inputs::new()),
        scenario: scenario.name.clone(),
        fabric_sha256: scenario.sha256.clone(),
        control: if lightloomd.is_some() { "lightloomd" } else { "assumed" },
        seeds,
        span_hours: span.length.as_hours(),
        gpus: table.gpus,
        spare_nodes: table.spare_nodes(),
        jobs: table.jobs.iter().map(job_row).collect(),
        failures: failure_rows(&span.failures),
        capacity_gpu_hours: table.gpus as f64 * span.length.as_hours(),
        lost_usd: span.gpu_hour.map(|price| price.0 * lost_gpu_hours.mean),
        lost_gpu_hours,
        bill: bill(prepared, months),
        goodput: goodput(months),
        saves_most: best.map(|best| best.change),
        alternatives,
        losses_from: prepared.losses_from().cloned(),
        table: TableRow::of(table),
        runs,
        months: rows,
    }
}

fn bill(prepared: &Prepared, months: &[Month]) -> Vec<BillRow> {
    let causes: BTreeSet<Cause> =
        months.iter().flat_map(|month| month.lost.keys()).copied().collect();
    let capacity = months.first().map_or(0.0, |month| month.capacity as f64 / HOUR);
    let rows = causes.into_iter().map(|cause| {
        let lost = months.iter().map(|month| month.lost.get(&cause).copied().unwrap_or(0));
        let gpu_hours = Figure::of(lost.map(|time| time as f64 / HOUR).collect());
        BillRow {
            cause: cause.key(),
            stage: cause.stage(),
            words: cause.to_string(),
            gpu_hours,
            share: gpu_hours.mean / capacity.max(f64::MIN_POSITIVE),
            usd: prepared.span().gpu_hour.map(|price| price.0 * gpu_hours.mean),
        }
    });
    rows.collect()
}

fn job_row(job: &TrainedJob) -> JobRow {
    let with_fewer = job.policy.answer.is_elastic().then_some(job.replicas.step_with_fewer);
    JobRow {
        job: job.name.clone(),
        step_ps: job.step as i64,
        closed_form_seconds: job.closed_form,
        gpus: job.gpus,
        step_seconds: job.step as f64 / 1e12,
        mfu: job.mfu,
        saved_every_steps: job.policy.every,
        answer: job.policy.answer.name().to_owned(),
        replicas: job.replicas.count,
        step_with_fewer_seconds: with_fewer.map(|step| step as f64 / 1e12),
        step_with_fewer_ps: with_fewer.map(|step| step as i64),
    }
}

fn failure_rows(failures: &FailureSource) -> Vec<FailureRow> {
    match failures {
        FailureSource::Trace { file, .. } => vec![FailureRow {
            part: AnyPart::Node.name(),
            mtbf_hours: None,
            repair_hours: None,
            source: file.clone(),
        }],
        FailureSource::Rates(rates) => {
            let rows = rates.iter().map(|rate| FailureRow {
                part: rate.part.name(),
                mtbf_hours: Some(rate.mtbf.as_hours()),
                repair_hours: Some(rate.repair.as_hours()),
                source: rate.source.clone().unwrap_or_else(|| "assumed".to_owned()),
            });
            rows.collect()
        }
    }
}
