// SPDX-License-Identifier: Apache-2.0
//! The result over months: losses by cause over many seeds, and the single change that saves most.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_fabric::trace::NodesError;
use lightloom_units::seed::Seed;
use serde::Serialize;

use super::alternatives::{self, Alternative, Change};
use super::{
    CaseRun, Cause, Goodput, LossSample, LossTable, LossesFrom, Month, Prepared, TrainedJob, month,
};
use crate::EmulateError;
use crate::nearest_rank::percentile;
use crate::scenario::{ControlDelays, FailureRate, FailureSource, StartError};
use crate::shipped::MakeControl;
use crate::stages::StageName;
use crate::substrate::AnyPart;
use crate::sweep::SeedRange;

/// Version of the document.
pub const MONTHS_SCHEMA: &str = "lightloom.month/v1";

const HOUR: f64 = 3.6e15;

/// Statistics of a figure over all seeds, with percentiles by nearest rank.
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
    /// Summarises `values`, which must not be empty.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |per_cent| percentile(&values, per_cent).unwrap_or_default();
        Self { mean: values.iter().sum::<f64>() / values.len() as f64, p50: at(50), p99: at(99) }
    }
}

/// A cause, and the GPU-hours lost to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BillRow {
    /// The cause.
    pub cause: &'static str,
    /// The recovery stage, for an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// The cause in words.
    pub words: String,
    /// GPU-hours per seed.
    pub gpu_hours: Figure,
    /// The mean as a share of all GPU-hours.
    pub share: f64,
    /// The mean in dollars. `None` if GPU-hours have no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
}

fn goodput(months: &[Month]) -> Goodput {
    let mean =
        |of: fn(&Month) -> f64| months.iter().map(of).sum::<f64>() / months.len().max(1) as f64;
    Goodput::new(mean(Month::scheduling), mean(Month::runtime), mean(Month::program))
}

/// A job in the span.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRow {
    /// Its name.
    pub job: String,
    /// Its number of GPUs.
    pub gpus: u64,
    /// Time of a step without failures, in seconds.
    pub step_seconds: f64,
    /// Time of a step without failures, in picoseconds.
    pub step_ps: i64,
    /// The closed form of a step, in seconds.
    pub closed_form_seconds: f64,
    /// Model FLOPs utilisation of a step without failures.
    pub mfu: f64,
    /// Number of steps between two checkpoints.
    pub saved_every_steps: u32,
    /// Its response to a lost node before it reads a checkpoint, or `restart` if it reads one
    /// immediately.
    pub answer: &'static str,
    /// Number of data-parallel replicas.
    pub replicas: u32,
    /// Time of a step with one replica fewer, in seconds, for an elastic job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_with_fewer_seconds: Option<f64>,
    /// Time of a step with one replica fewer, in picoseconds, for an elastic job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_with_fewer_ps: Option<i64>,
}

/// A kind of failure, with its rate and source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureRow {
    /// The kind of part.
    pub part: &'static str,
    /// Mean hours between failures of one part. `None` for a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtbf_hours: Option<f64>,
    /// Mean hours to repair. `None` for a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_hours: Option<f64>,
    /// The source of the rate, `assumed`, or the file name of a trace.
    pub source: String,
}

/// Results of the runs for one kind of failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableRow {
    /// The kind of part.
    pub part: &'static str,
    /// The number of nodes already out.
    pub out: usize,
    /// The number of runs.
    pub runs: usize,
    /// The number of runs that left a job unable to continue.
    pub stopped: usize,
    /// One-time loss in GPU-seconds, over the other runs.
    pub once_gpu_seconds: Figure,
    /// Additional GPU-seconds that each later step takes, compared with a step without failures.
    pub each_step_gpu_seconds: Figure,
}

impl TableRow {
    fn of(table: &LossTable) -> Vec<Self> {
        let row = |(part, out, samples): (AnyPart, usize, Vec<&LossSample>)| {
            let gone_on = |sample: &&LossSample| {
                let jobs = sample.jobs.iter().zip(&table.jobs);
                let mut sums = (0.0, 0.0);
                for (loss, job) in jobs {
                    let loss = loss.as_ref()?;
                    let once: i128 = loss.once.iter().map(|(_, time)| time).sum();
                    sums.0 += once as f64 * job.gpus as f64 / 1e12;
                    sums.1 += loss.slower as f64 * job.gpus as f64 / 1e12;
                }
                Some(sums)
            };
            let sums: Vec<(f64, f64)> = samples.iter().filter_map(gone_on).collect();
            let figure = |of: fn(&(f64, f64)) -> f64| match sums.is_empty() {
                true => Figure::default(),
                false => Figure::of(sums.iter().map(of).collect()),
            };
            Self {
                part: part.name(),
                out,
                runs: samples.len(),
                stopped: samples.len() - sums.len(),
                once_gpu_seconds: figure(|sums| sums.0),
                each_step_gpu_seconds: figure(|sums| sums.1),
            }
        };
        table.rows().map(row).collect()
    }
}

/// One month.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MonthRow {
    /// Its seed.
    pub seed: Seed,
    /// The number of failed parts.
    pub failures: u64,
    /// The number of failures that cost a job time.
    pub hits: u64,
    /// Number of times that a job waited for nodes.
    pub waits: u64,
    /// GPU-hours lost.
    pub lost_gpu_hours: f64,
    /// Share of all GPU-hours in useful work.
    pub useful_share: f64,
}

/// The result of a scenario over a span.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MonthsResult {
    /// The schema and the input files. The code that reads the files fills this in.
    #[serde(flatten)]
    pub made: Provenance,
    /// The name of the scenario.
    pub scenario: String,
    /// SHA-256 of the fabric file.
    pub fabric_sha256: String,
    /// The control plane of the runs: `assumed` delays or `lightloomd`.
    pub control: &'static str,
    /// The seeds.
    pub seeds: SeedRange,
    /// Length of the span in hours.
    pub span_hours: f64,
    /// Number of GPUs in the bill, including spare ones.
    pub gpus: u64,
    /// Number of nodes without a job.
    pub spare_nodes: usize,
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// The kinds of failures.
    pub failures: Vec<FailureRow>,
    /// All GPU-hours in the span, per seed.
    pub capacity_gpu_hours: f64,
    /// Lost GPU-hours.
    pub lost_gpu_hours: Figure,
    /// Mean loss in dollars. `None` if GPU-hours have no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_usd: Option<f64>,
    /// The losses by cause. Their means add up to the total.
    pub bill: Vec<BillRow>,
    /// Goodput, as means over the seeds.
    pub goodput: Goodput,
    /// Single changes in order of decreasing savings.
    pub alternatives: Vec<Alternative>,
    /// The change that saves most. `None` if none saves anything.
    pub saves_most: Option<Change>,
    /// Source of the losses. `None` if they come from runs of this scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses_from: Option<LossesFrom>,
    /// Results of the runs by kind of failure.
    pub table: Vec<TableRow>,
    /// The runs, with everything needed to repeat them individually.
    pub runs: Vec<CaseRun>,
    /// The months by seed.
    pub months: Vec<MonthRow>,
}

/// Runs cases, in any order and on any number of threads.
pub type RunCases<'a> = dyn Fn(&Prepared) -> Result<Vec<CaseRun>, EmulateError> + 'a;

/// Computes the months of `prepared` with these seeds, and recomputes them with each single change.
///
/// # Errors
/// Fails if a case cannot be run.
pub fn months(
    prepared: &Prepared,
    seeds: SeedRange,
    maker: &dyn MakeControl,
    run_cases: &RunCases<'_>,
) -> Result<MonthsResult, EmulateError> {
    let (table, runs) = filled(prepared, run_cases)?;
    let all: Vec<Seed> = seeds.share(None).collect();
    let drawn = run_all(prepared, &table, &all)?;
    let mut alternatives = Vec::new();
    let mut add = |change, words, months: &[Month]| {
        alternatives.push(alternative(prepared, (change, words), &drawn, months));
    };
    for (change, words, other) in alternatives::of_table(prepared, &table, &drawn) {
        add(change, words, &run_all(prepared, &other, &all)?);
    }
    if let Some(sooner) = alternatives::repaired_sooner(prepared.scenario()) {
        let sooner = prepared.with_scenario(sooner);
        let words = "parts repaired in half the time".to_owned();
        add(Change::RepairHalved, words, &run_all(&sooner, &table, &all)?);
    }
    // Halving the delay changes the course of a run, so its effect needs new runs.
    let faster = alternatives::faster(&prepared.scenario().control);
    if let Some((control, words)) = faster.filter(|_| prepared.losses_from().is_none()) {
        let faster = prepared.with_control(control, maker)?;
        let (table, _) = filled(&faster, run_cases)?;
        add(Change::DetectionHalved, words, &run_all(&faster, &table, &all)?);
    }
    alternatives.sort_by(|a, b| b.saves_gpu_hours.total_cmp(&a.saves_gpu_hours));
    Ok(result(prepared, (&table, runs), (seeds, &all, &drawn), alternatives))
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
    runs.iter().for_each(|run| table.add(&run.case, run.place, run.sample.clone()));
    Ok((table, runs))
}

fn run_all(
    prepared: &Prepared,
    table: &LossTable,
    seeds: &[Seed],
) -> Result<Vec<Month>, EmulateError> {
    let one = |seed: &Seed| {
        let changes = prepared.changes(*seed)?;
        Ok(month(table, &changes, prepared.span().length, *seed))
    };
    let months: Result<Vec<Month>, NodesError> = seeds.iter().map(one).collect();
    months.map_err(|error| {
        let what = "fabric";
        EmulateError::Start(StartError::Trace { what, error })
    })
}

fn mean_lost(months: &[Month]) -> f64 {
    let hours = months.iter().map(|month| month.lost_time() as f64 / HOUR);
    hours.sum::<f64>() / months.len().max(1) as f64
}

fn alternative(
    prepared: &Prepared,
    (change, words): (Change, String),
    before: &[Month],
    months: &[Month],
) -> Alternative {
    let lost_gpu_hours = mean_lost(months);
    let saves_gpu_hours = mean_lost(before) - lost_gpu_hours;
    let price = prepared.span().gpu_hour;
    let saves_usd = price.map(|price| price.0 * saves_gpu_hours);
    Alternative { change, words, lost_gpu_hours, saves_gpu_hours, saves_usd }
}

fn result(
    prepared: &Prepared,
    (table, runs): (&LossTable, Vec<CaseRun>),
    (seeds, all, months): (SeedRange, &[Seed], &[Month]),
    alternatives: Vec<Alternative>,
) -> MonthsResult {
    let (scenario, span) = (prepared.scenario(), prepared.span());
    let ControlDelays { lightloomd, .. } = scenario.control;
    let hours = |month: &Month| month.lost_time() as f64 / HOUR;
    let lost_gpu_hours = Figure::of(months.iter().map(hours).collect());
    let row = |(seed, month): (&Seed, &Month)| MonthRow {
        seed: *seed,
        failures: month.failures,
        hits: month.hits,
        waits: month.waits,
        lost_gpu_hours: hours(month),
        useful_share: month.useful as f64 / month.capacity.max(1) as f64,
    };
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
        months: all.iter().zip(months).map(row).collect(),
    }
}

fn bill(prepared: &Prepared, months: &[Month]) -> Vec<BillRow> {
    let causes: BTreeSet<Cause> =
        months.iter().flat_map(|month| month.lost.keys()).copied().collect();
    let capacity = months.first().map_or(0.0, |month| month.capacity as f64 / HOUR);
    let row = |cause: Cause| {
        let of =
            |lost: &BTreeMap<Cause, i128>| lost.get(&cause).map_or(0.0, |time| *time as f64 / HOUR);
        let gpu_hours = Figure::of(months.iter().map(|month| of(&month.lost)).collect());
        BillRow {
            cause: cause.key(),
            stage: cause.stage(),
            words: cause.to_string(),
            gpu_hours,
            share: gpu_hours.mean / capacity.max(f64::MIN_POSITIVE),
            usd: prepared.span().gpu_hour.map(|price| price.0 * gpu_hours.mean),
        }
    };
    causes.into_iter().map(row).collect()
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
        answer: job.policy.answer.name(),
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
            let row = |rate: &FailureRate| FailureRow {
                part: rate.part.name(),
                mtbf_hours: Some(rate.mtbf.as_hours()),
                repair_hours: Some(rate.repair.as_hours()),
                source: rate.source.clone().unwrap_or_else(|| "assumed".to_owned()),
            };
            rates.iter().map(row).collect()
        }
    }
}
