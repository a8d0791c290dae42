// SPDX-License-Identifier: Apache-2.0

use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

use super::SeedRun;
use crate::nearest_rank::percentile;
use crate::outcome::{JobStep, Outcome};

/// Losses of all jobs in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLosses {
    /// Delay of the last step, for the most delayed job. `None` if a job did not finish.
    #[serde(rename = "time_lost_ps")]
    pub time_lost: Option<Picoseconds>,
    /// Largest delay of a single step. `None` if a job did not finish.
    #[serde(rename = "worst_step_lost_ps")]
    pub worst_step_lost: Option<Picoseconds>,
    /// Number of groups for which any step ended at a different time, even by a picosecond.
    pub groups_affected: u64,
    /// Number of groups that were lost and never re-formed.
    #[serde(default)]
    pub groups_lost: u64,
    /// Total loss in GPU-picoseconds. `None` if a job did not finish.
    #[serde(rename = "gpu_time_lost_ps", default)]
    pub gpu_time_lost: Option<u64>,
}

impl StepLosses {
    pub(super) fn of(outcome: &Outcome) -> Option<Self> {
        let steps = outcome.steps.of_jobs();
        if steps.is_empty() {
            return None;
        }
        let jobs: Vec<&[JobStep]> = steps.chunk_by(|one, next| one.job == next.job).collect();
        let has_ended = outcome.stop.is_none() && steps.iter().all(|step| step.end.is_some());
        let affected = outcome.groups.iter().filter(|group| {
            outcome.faults.iter().any(|fault| fault.groups_affected.contains(&group.group))
        });
        Some(Self {
            time_lost: most(jobs.iter().map(|steps| late(steps))).filter(|_| has_ended),
            worst_step_lost: most(jobs.iter().map(|steps| longest(steps))).filter(|_| has_ended),
            groups_affected: affected.count() as u64,
            groups_lost: outcome.groups.iter().filter(|group| group.lost).count() as u64,
            gpu_time_lost: has_ended.then(|| jobs.iter().map(|steps| gpu_time(steps)).sum()),
        })
    }
}

fn gpu_time(steps: &[JobStep]) -> u64 {
    let gpus = steps.first().map_or(0, |step| step.gpus);
    late(steps).unwrap_or(0).saturating_mul(gpus)
}

fn most(losses: impl Iterator<Item = Option<u64>>) -> Option<Picoseconds> {
    losses.collect::<Option<Vec<u64>>>()?.into_iter().max().map(Picoseconds)
}

fn late(steps: &[JobStep]) -> Option<u64> {
    let last = steps.last()?;
    Some(last.end?.0.saturating_sub(last.end_without_faults?.0))
}

fn longest(steps: &[JobStep]) -> Option<u64> {
    let (mut calm_start, mut most) = (SimTime::START, 0);
    for step in steps {
        let calm = step.end_without_faults?.since(calm_start);
        calm_start = step.end_without_faults?;
        most = most.max(step.took()?.0.saturating_sub(calm.0));
    }
    Some(most)
}

/// Distribution of a metric over seeds, by nearest rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The metric.
    pub figure: LossFigure,
    /// Median. A percentile is `None` if a job did not finish for the seed at that rank.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
    /// Seed with the largest loss.
    pub worst_seed: Seed,
}

/// A loss metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossFigure {
    /// Delay of the last step, for the most delayed job, in picoseconds.
    TimeLostPs,
    /// Largest delay of a single step, in picoseconds.
    WorstStepLostPs,
    /// One minus goodput, as a share.
    GoodputLost,
    /// Number of groups for which any step ended at a different time.
    GroupsAffected,
    /// Number of groups that were never re-formed.
    GroupsLost,
    /// Total loss in GPU-hours.
    GpuHoursLost,
}

lightloom_units::display_as_serialized!(LossFigure);

impl LossFigure {
    const ALL: [Self; 6] = [
        Self::TimeLostPs,
        Self::WorstStepLostPs,
        Self::GoodputLost,
        Self::GroupsAffected,
        Self::GroupsLost,
        Self::GpuHoursLost,
    ];

    /// Returns the description.
    pub const fn words(self) -> &'static str {
        match self {
            Self::TimeLostPs => "time lost in all steps",
            Self::WorstStepLostPs => "time lost in one step",
            Self::GoodputLost => "goodput lost",
            Self::GroupsAffected => "groups affected",
            Self::GroupsLost => "groups lost",
            Self::GpuHoursLost => "GPU-hours lost",
        }
    }

    /// Formats a value with its unit. `None` means that a job never finished.
    pub fn show(self, value: Option<f64>) -> String {
        match (self, value) {
            (_, None) => "never ended".to_owned(),
            (Self::TimeLostPs | Self::WorstStepLostPs, Some(time)) => {
                format!("{:.3} ms", time / 1e9)
            }
            (Self::GoodputLost, Some(share)) => format!("{:.2} %", 100.0 * share),
            (Self::GroupsAffected | Self::GroupsLost, Some(count)) => format!("{count:.0}"),
            (Self::GpuHoursLost, Some(hours)) => format!("{hours:.4}"),
        }
    }

    fn of(self, run: &SeedRun) -> Option<f64> {
        let lost = run.step_losses?;
        Some(match self {
            Self::TimeLostPs => lost.time_lost.map_or(f64::INFINITY, |time| time.0 as f64),
            Self::WorstStepLostPs => {
                lost.worst_step_lost.map_or(f64::INFINITY, |time| time.0 as f64)
            }
            // Rounded to nine digits to survive the JSON round trip.
            Self::GoodputLost => ((1.0 - run.goodput) * 1e9).round() / 1e9,
            Self::GroupsAffected => lost.groups_affected as f64,
            Self::GroupsLost => lost.groups_lost as f64,
            Self::GpuHoursLost => lost
                .gpu_time_lost
                .map_or(f64::INFINITY, |time| (time as f64 / 3.6e15 * 1e9).round() / 1e9),
        })
    }
}

pub(super) fn distributions(runs: &[SeedRun]) -> Vec<Distribution> {
    let distributions = LossFigure::ALL.into_iter().filter_map(|figure| {
        let values = runs.iter().filter_map(|run| Some((figure.of(run)?, run.seed)));
        let mut values: Vec<(f64, Seed)> = values.collect();
        // If losses tie, the first seed is the worst.
        values.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.0.cmp(&a.1.0)));
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|per_cent| {
            let value = percentile(&values, per_cent).map(|(value, _)| value);
            value.filter(|value| value.is_finite())
        });
        let worst_seed = values.last()?.1;
        Some(Distribution { figure, p50, p90, p99, max, worst_seed })
    });
    distributions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, lost: Option<u64>) -> SeedRun {
        let lost = lost.map(Picoseconds);
        SeedRun {
            seed: Seed(seed),
            passed: true,
            stop: None,
            simulated: SimTime(1),
            packet_hops: 1,
            availability: 1.0,
            goodput: 0.75,
            step_losses: Some(StepLosses {
                time_lost: lost,
                worst_step_lost: lost,
                groups_affected: seed % 3,
                groups_lost: 0,
                gpu_time_lost: lost.map(|time| time.0),
            }),
            faults: Vec::new(),
            expectations: Vec::new(),
        }
    }

    #[test]
    fn loss_percentiles_follow_the_nearest_rank() {
        let runs: Vec<SeedRun> = (1..=200).map(|seed| run(seed, Some(seed * 7))).collect();
        let all = distributions(&runs);
        let lost = &all[0];
        let at = |value: u64| Some((value * 7) as f64);
        assert_eq!((lost.p50, lost.p90, lost.p99, lost.max), (at(100), at(180), at(198), at(200)));
        assert_eq!(lost.worst_seed, Seed(200));
        assert_eq!(
            (all[2].p50, all[2].worst_seed),
            (Some(0.25), Seed(1)),
            "the first of several equal seeds is reported"
        );
        assert_eq!((all[3].max, all[3].worst_seed), (Some(2.0), Seed(2)));
        assert_eq!(LossFigure::TimeLostPs.show(Some(1.5e9)), "1.500 ms");
    }

    #[test]
    fn unfinished_job_counts_as_the_largest_loss() {
        let runs = [run(1, Some(5)), run(2, None), run(3, Some(4))];
        let lost = &distributions(&runs)[0];
        assert_eq!((lost.p50, lost.max, lost.worst_seed), (Some(5.0), None, Seed(2)));
        assert_eq!(LossFigure::TimeLostPs.show(lost.max), "never ended");
        let idle = SeedRun { step_losses: None, ..run(1, None) };
        assert!(distributions(&[idle]).is_empty());
    }
}
