// SPDX-License-Identifier: Apache-2.0
//! The table that months draw from: what each kind of failure cost, in runs.

use super::{Case, Cause, TrainedJob};
use crate::substrate::AnyPart;

/// What a failure cost a job in a run, in picoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLossSample {
    /// Once, cause by cause, in the order in which they come.
    pub once: Vec<(Cause, i128)>,
    /// What every step takes longer from then on than without any failure, for all that is out then.
    pub slower: i128,
}

/// What a failure cost in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossSample {
    /// By job. `None` for one that could not go on.
    pub jobs: Vec<Option<JobLossSample>>,
}

/// What each kind of failure cost, in runs.
#[derive(Clone, Debug)]
pub struct LossTable {
    /// The jobs, without a failure.
    pub jobs: Vec<TrainedJob>,
    /// GPUs that the bill is about: those of these jobs, and those that no job has.
    pub gpus: u64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    rows: Vec<CaseKind>,
}

/// The runs of a kind of part, with so many nodes out already.
#[derive(Clone, Debug)]
struct CaseKind {
    part: AnyPart,
    out: usize,
    /// Each with the place of the part that failed.
    runs: Vec<(usize, LossSample)>,
}

impl LossTable {
    /// A table of these jobs without any run.
    #[must_use]
    pub fn new(jobs: Vec<TrainedJob>, gpus: u64, gpus_per_node: u64) -> Self {
        Self { jobs, gpus, gpus_per_node, rows: Vec::new() }
    }

    /// Adds what was found in a run of `case`, in which the part at `place` failed.
    pub fn add(&mut self, case: &Case, place: usize, sample: LossSample) {
        let Case { part, out, .. } = *case;
        match self.rows.iter_mut().find(|row| (row.part, row.out) == (part, out)) {
            Some(row) => row.runs.push((place, sample)),
            None => self.rows.push(CaseKind { part, out, runs: vec![(place, sample)] }),
        }
    }

    /// The runs of a part with so many nodes out, or else with the nearest number below that was run: those in which this
    /// very part failed, where there are any, or else all of its kind.
    #[must_use]
    pub fn samples(&self, (part, place): (AnyPart, usize), out: usize) -> Vec<&LossSample> {
        let fits = self.rows.iter().filter(|row| row.part == part && row.out <= out);
        let Some(row) = fits.max_by_key(|row| row.out) else { return Vec::new() };
        let own = row.runs.iter().filter(|(at, _)| *at == place).map(|(_, sample)| sample);
        let own: Vec<&LossSample> = own.collect();
        if own.is_empty() { row.runs.iter().map(|(_, sample)| sample).collect() } else { own }
    }

    /// What the death of a node cost an elastic job in runs in which it hit the job.
    #[must_use]
    pub fn losses_of_elastic(&self, job: usize) -> Vec<&JobLossSample> {
        let runs =
            self.rows.iter().filter(|row| row.part == AnyPart::Node).flat_map(|row| &row.runs);
        let losses = runs.filter_map(|(_, sample)| sample.jobs[job].as_ref());
        losses.filter(|loss| !loss.once.is_empty()).collect()
    }

    /// Every kind of part with the nodes out and the runs of that.
    pub fn rows(&self) -> impl Iterator<Item = (AnyPart, usize, Vec<&LossSample>)> + '_ {
        self.rows.iter().map(|row| {
            let samples = row.runs.iter().map(|(_, sample)| sample);
            (row.part, row.out, samples.collect())
        })
    }

    /// GPUs of all jobs.
    #[must_use]
    pub fn gpus_of_jobs(&self) -> u64 {
        self.jobs.iter().map(|job| job.gpus).sum()
    }

    /// Whole nodes that no job has.
    #[must_use]
    pub fn spare_nodes(&self) -> usize {
        (self.gpus.saturating_sub(self.gpus_of_jobs()) / self.gpus_per_node.max(1)) as usize
    }
}
