// SPDX-License-Identifier: Apache-2.0
//! Runs the same scenario with many seeds, on one machine or split over several.

mod losses;
mod recoveries;

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use lightloom_fabric::provenance::{Inputs, VERSION};
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;
use serde::{Deserialize, Serialize};

use crate::outcome::{ExpectationResult, FaultResult, Outcome, Stop};
pub use losses::{Distribution, LossFigure, StepLosses};
pub use recoveries::Recoveries;

/// Schema version of the document.
pub const SWEEP_SCHEMA: &str = "lightloom.sweep/v1";

/// Inclusive range of seeds. `0..99` means a hundred seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedRange {
    /// First seed.
    pub first: u64,
    /// Last seed.
    pub last: u64,
}

/// At one run per minute, this many seeds take more than a year.
const MOST_SEEDS: u64 = 1_000_000;

impl FromStr for SeedRange {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let [first, last] = [first, last].map(|text| text.parse::<u64>().ok());
        let range = first.zip(last).map(|(first, last)| Self { first, last });
        range
            .filter(|Self { first, last }| first <= last && last - first < MOST_SEEDS)
            .ok_or_else(|| {
                format!("`{text}` is neither a seed nor a range of seeds; help: use `7` or `0..99` (inclusive)")
            })
    }
}

impl fmt::Display for SeedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            self.first.fmt(f)
        } else {
            write!(f, "{}..{}", self.first, self.last)
        }
    }
}

/// One of `count` shards of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepShard {
    /// Index of the shard, from 0.
    pub index: u64,
    /// Number of shards.
    pub count: u64,
}

impl FromStr for SweepShard {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let shard = text.split_once('/').and_then(|(index, count)| {
            Some(Self { index: index.parse().ok()?, count: count.parse().ok()? })
        });
        let shard = shard.filter(|shard| shard.index < shard.count);
        shard.ok_or_else(|| {
            format!(
                "`{text}` is not a shard; help: use `i/n` with i from 0 to n - 1, such as `0/4`"
            )
        })
    }
}

impl SeedRange {
    /// Returns whether the range has more than one seed.
    pub const fn is_many(self) -> bool {
        self.first != self.last
    }

    /// Returns the seeds of `shard`, assigned in rotation, or all seeds without a shard.
    pub fn share(self, shard: Option<SweepShard>) -> impl Iterator<Item = Seed> {
        let SweepShard { index, count } = shard.unwrap_or(SweepShard { index: 0, count: 1 });
        (self.first..=self.last).filter(move |seed| (seed - self.first) % count == index).map(Seed)
    }
}

/// Results of one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeedRun {
    /// Seed of the run.
    pub seed: Seed,
    /// Whether all expectations held and no unintended limit stopped the run.
    pub passed: bool,
    /// Unintended limit that stopped the run. `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Simulated time of the last event.
    #[serde(rename = "simulated_ps")]
    pub simulated: SimTime,
    /// Packets sent, counted once per link.
    pub packet_hops: u64,
    /// Share of the workers' time without fault-induced downtime.
    pub availability: f64,
    /// Share of the workers' time that the same work takes without faults.
    pub goodput: f64,
    /// Losses of training jobs to faults. `None` without training jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_losses: Option<StepLosses>,
    /// Effects of each fault.
    pub faults: Vec<FaultResult>,
    /// Expectations and their results.
    pub expectations: Vec<ExpectationResult>,
}

impl From<&Outcome> for SeedRun {
    fn from(outcome: &Outcome) -> Self {
        Self {
            seed: outcome.head.seed,
            passed: outcome.passed(),
            stop: outcome.stop.clone().filter(|_| outcome.never_ended),
            simulated: outcome.head.simulated,
            packet_hops: outcome.head.packet_hops,
            availability: outcome.metrics.availability,
            goodput: outcome.metrics.goodput,
            step_losses: StepLosses::of(outcome),
            faults: outcome.faults.clone(),
            expectations: outcome.expectations.clone(),
        }
    }
}

/// Scenario of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepSubject {
    /// Scenario file, as named by the caller.
    pub file: String,
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of the fabric file.
    pub fabric_sha256: String,
}

/// Results of one expectation over all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectationTally {
    /// The expectation as written.
    pub expect: String,
    /// Number of seeds that met the expectation.
    pub passed: usize,
    /// Number of seeds that did not meet it.
    pub failed: usize,
    /// Seed with the value closest to the bound, or furthest beyond it.
    pub worst_seed: Seed,
    /// Value measured for that seed.
    pub worst_value: String,
}

/// Result document of a sweep: the runs of a scenario for many seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// [`SWEEP_SCHEMA`].
    pub schema: String,
    /// Program version. Empty in results of earlier versions.
    #[serde(default)]
    pub version: String,
    /// Scenario file and all files that it references, filled in by the file reader.
    #[serde(default)]
    pub inputs: Inputs,
    /// Scenario of the sweep.
    pub subject: SweepSubject,
    /// Requested seeds.
    pub seeds: SeedRange,
    /// Shard with these seeds. `None` for a complete sweep.
    pub shard: Option<SweepShard>,
    /// Requested seeds without a run.
    pub seeds_missing: Vec<Seed>,
    /// Results of each expectation.
    pub expectations: Vec<ExpectationTally>,
    /// Losses of training steps over all seeds. Empty without training jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<Distribution>,
    /// Recovery times by kind of fault. Empty without faults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recoveries: Vec<Recoveries>,
    /// Seed with the most failed expectations and, among equals, the smallest margin.
    pub worst_seed: Option<Seed>,
    /// All runs, by seed.
    pub runs: Vec<SeedRun>,
}

/// Reasons why sweeps cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum MergeError {
    #[error("no sweeps to merge")]
    Nothing,
    #[error("`{one}` and `{other}` are different scenarios")]
    Scenarios { one: String, other: String },
    #[error("scenario `{scenario}` was run on different versions of the fabric file")]
    Fabrics { scenario: String },
    #[error("seed {} has two different results, possibly from different program versions", .0.0)]
    Disagreement(Seed),
}

impl Sweep {
    /// Creates a sweep from runs for some of `seeds`.
    pub fn new(
        subject: SweepSubject,
        seeds: SeedRange,
        shard: Option<SweepShard>,
        mut runs: Vec<SeedRun>,
    ) -> Self {
        runs.sort_by_key(|run| run.seed.0);
        let present: BTreeSet<u64> = runs.iter().map(|run| run.seed.0).collect();
        let seeds_missing = seeds.share(shard).filter(|seed| !present.contains(&seed.0)).collect();
        Self {
            schema: SWEEP_SCHEMA.to_owned(),
            version: VERSION.to_owned(),
            inputs: Inputs::new(),
            subject,
            seeds,
            shard,
            seeds_missing,
            expectations: Self::tally(&runs),
            distributions: Self::distributions(&runs),
            recoveries: recoveries::of(&runs),
            worst_seed: Self::worst(&runs).map(|run| run.seed),
            runs,
        }
    }

    /// Merges shards of a sweep. A seed may be repeated with the same result.
    ///
    /// # Errors
    /// Fails if scenarios, fabrics or results conflict.
    pub fn merge(parts: Vec<Self>) -> Result<Self, MergeError> {
        let first = parts.first().ok_or(MergeError::Nothing)?;
        let (subject, inputs) = (first.subject.clone(), first.inputs.clone());
        let mut seeds = first.seeds;
        let mut runs: Vec<SeedRun> = Vec::new();
        for part in parts {
            if part.subject.scenario != subject.scenario {
                let (one, other) = (subject.scenario, part.subject.scenario);
                return Err(MergeError::Scenarios { one, other });
            }
            if part.subject.fabric_sha256 != subject.fabric_sha256 {
                return Err(MergeError::Fabrics { scenario: subject.scenario });
            }
            seeds.first = seeds.first.min(part.seeds.first);
            seeds.last = seeds.last.max(part.seeds.last);
            runs.extend(part.runs);
        }
        runs.sort_by_key(|run| run.seed.0);
        if let Some(pair) = runs.windows(2).find(|p| p[0].seed == p[1].seed && p[0] != p[1]) {
            return Err(MergeError::Disagreement(pair[0].seed));
        }
        runs.dedup_by_key(|run| run.seed);
        Ok(Self { inputs, ..Self::new(subject, seeds, None, runs) })
    }

    /// Returns the run with the most failed expectations and, among equals, the smallest margin.
    pub fn worst(runs: &[SeedRun]) -> Option<&SeedRun> {
        runs.iter().min_by_key(|run| rank(run))
    }

    /// Returns the losses of training steps over runs of the same scenario.
    pub fn distributions(runs: &[SeedRun]) -> Vec<Distribution> {
        losses::distributions(runs)
    }

    /// Returns the results of each expectation over `runs`, which must have the same scenario.
    pub fn tally(runs: &[SeedRun]) -> Vec<ExpectationTally> {
        let Some(first) = runs.first() else { return Vec::new() };
        let tallies = first.expectations.iter().enumerate().map(|(index, expected)| {
            let results = runs.iter();
            let results: Vec<(Seed, &ExpectationResult)> =
                results.filter_map(|run| Some((run.seed, run.expectations.get(index)?))).collect();
            let worst = results
                .iter()
                .min_by_key(|(_, result)| (result.passed, TotalOrder(margin_of(result))));
            let (worst_seed, worst) = *worst.expect("the first run has the expectation");
            let passed = results.iter().filter(|(_, result)| result.passed).count();
            ExpectationTally {
                expect: expected.expect.clone(),
                passed,
                failed: results.len() - passed,
                worst_seed,
                worst_value: worst.value.clone(),
            }
        });
        tallies.collect()
    }

    /// Returns whether all seeds were run and passed.
    pub fn passed(&self) -> bool {
        self.seeds_missing.is_empty() && self.runs.iter().all(|run| run.passed)
    }
}

/// Compares all margins, because an equation that holds has a margin of 0 for every seed.
fn rank(run: &SeedRun) -> (Reverse<usize>, Vec<TotalOrder>) {
    let failed = run.expectations.iter().filter(|result| !result.passed).count()
        + usize::from(run.stop.is_some());
    let mut margins: Vec<TotalOrder> =
        run.expectations.iter().map(margin_of).map(TotalOrder).collect();
    margins.sort_unstable();
    (Reverse(failed), margins)
}

fn margin_of(result: &ExpectationResult) -> f64 {
    let without = if result.passed { f64::INFINITY } else { f64::NEG_INFINITY };
    result.margin.unwrap_or(without)
}

#[derive(PartialEq)]
struct TotalOrder(f64);

impl Eq for TotalOrder {}

impl PartialOrd for TotalOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TotalOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, margin: f64) -> SeedRun {
        SeedRun {
            seed: Seed(seed),
            passed: margin >= 0.0,
            stop: None,
            simulated: SimTime(1),
            packet_hops: 1,
            availability: 1.0,
            goodput: 1.0,
            step_losses: None,
            faults: Vec::new(),
            expectations: vec![ExpectationResult {
                expect: "restored within 5 ms".into(),
                passed: margin >= 0.0,
                value: format!("margin {margin}"),
                margin: Some(margin),
                breached_by: Vec::new(),
            }],
        }
    }

    fn subject() -> SweepSubject {
        SweepSubject { file: "s.yaml".into(), scenario: "s".into(), fabric_sha256: "f".into() }
    }

    fn sweep(seeds: &str, shard: Option<&str>) -> Sweep {
        let seeds: SeedRange = seeds.parse().unwrap();
        let shard = shard.map(|text| text.parse().unwrap());
        let runs = seeds.share(shard).map(|seed| run(seed.0, seed.0 as f64 - 3.5)).collect();
        Sweep::new(subject(), seeds, shard, runs)
    }

    #[test]
    fn seeds_and_shards_round_trip_through_text() {
        assert_eq!("0..99".parse::<SeedRange>().unwrap().to_string(), "0..99");
        assert_eq!("7".parse::<SeedRange>().unwrap().to_string(), "7");
        for wrong in ["", "a", "9..0", "0..", "0..1000000", "-1"] {
            assert!(wrong.parse::<SeedRange>().is_err(), "{wrong}");
        }
        assert_eq!("3/4".parse(), Ok(SweepShard { index: 3, count: 4 }));
        for wrong in ["4/4", "0/0", "1", "/", "-1/2"] {
            assert!(wrong.parse::<SweepShard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shards_of_a_sweep_merge_into_the_whole() {
        let parts = ["0/3", "1/3", "2/3"].map(|shard| sweep("0..9", Some(shard)));
        assert_eq!(parts.iter().map(|part| part.runs.len()).sum::<usize>(), 10);
        let whole = Sweep::merge(parts.to_vec()).unwrap();
        assert_eq!(whole, sweep("0..9", None));
        assert_eq!((whole.worst_seed, whole.passed()), (Some(Seed(0)), false));
        let [tally] = whole.expectations.as_slice() else { panic!("one expectation") };
        assert_eq!((tally.passed, tally.failed, tally.worst_seed), (6, 4, Seed(0)));

        let half = Sweep::merge(parts[..2].to_vec()).unwrap();
        assert_eq!(half.seeds_missing, [2, 5, 8].map(Seed));
        assert!(!half.passed(), "a sweep with missing seeds cannot pass");
    }

    /// An equation has no margin, so the first seed was always reported as the worst.
    #[test]
    fn equality_expectation_does_not_hide_the_worst_seed() {
        let runs: Vec<SeedRun> = [0.5, 0.2, 0.4]
            .into_iter()
            .zip(0..)
            .map(|(margin, seed)| {
                let mut run = run(seed, margin);
                let equal = ExpectationResult { margin: Some(0.0), ..run.expectations[0].clone() };
                run.expectations.insert(0, equal);
                run
            })
            .collect();
        assert_eq!(Sweep::worst(&runs).map(|run| run.seed), Some(Seed(1)));
    }

    #[test]
    fn rejects_merging_unrelated_sweeps() {
        let mut other = sweep("0..9", None);
        other.runs[3].packet_hops = 2;
        let disagreement = Sweep::merge(vec![sweep("0..9", None), other.clone()]).unwrap_err();
        assert_eq!(disagreement, MergeError::Disagreement(Seed(3)));
        other.subject.fabric_sha256 = "g".into();
        assert!(matches!(
            Sweep::merge(vec![sweep("0..9", None), other.clone()]),
            Err(MergeError::Fabrics { .. })
        ));
        other.subject.scenario = "t".into();
        assert!(matches!(
            Sweep::merge(vec![sweep("0..9", None), other]),
            Err(MergeError::Scenarios { .. })
        ));
        assert_eq!(Sweep::merge(Vec::new()), Err(MergeError::Nothing));
    }
}
