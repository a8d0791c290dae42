// SPDX-License-Identifier: Apache-2.0

use super::{Case, Cause, TrainedJob};
use crate::substrate::AnyPart;

/// Loss of one job due to a failure, in picoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLossSample {
    /// One-time losses by cause, in chronological order.
    pub once: Vec<(Cause, i128)>,
    /// Additional time per later step due to all failed parts.
    pub slower: i128,
}

/// Losses of all jobs due to a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossSample {
    /// Loss of each job. `None` if the job could not continue.
    pub jobs: Vec<Option<JobLossSample>>,
}

/// Losses by kind of failure, measured in runs.
#[derive(Clone, Debug)]
pub struct LossTable {
    /// Jobs in the fault-free run.
    pub jobs: Vec<TrainedJob>,
    /// Number of GPUs, including spares.
    pub gpus: u64,
    /// GPUs per node.
    pub gpus_per_node: u64,
    rows: Vec<CaseKind>,
}

#[derive(Clone, Debug)]
struct CaseKind {
    part: AnyPart,
    out: usize,
    runs: Vec<(usize, LossSample)>,
}

impl LossTable {
    /// Creates a table without runs.
    pub fn new(jobs: Vec<TrainedJob>, gpus: u64, gpus_per_node: u64) -> Self {
        Self { jobs, gpus, gpus_per_node, rows: Vec::new() }
    }

    /// Adds a run of `case`. `place` is the index of the failed part.
    pub fn add(&mut self, case: &Case, place: usize, sample: LossSample) {
        let Case { part, out, .. } = *case;
        match self.rows.iter_mut().find(|row| (row.part, row.out) == (part, out)) {
            Some(row) => row.runs.push((place, sample)),
            None => self.rows.push(CaseKind { part, out, runs: vec![(place, sample)] }),
        }
    }

    /// Returns the runs for a kind of part with `out` nodes failed, or with the next lower number
    /// available. Prefers runs in which exactly this part failed.
    pub fn samples(&self, part: AnyPart, place: usize, out: usize) -> Vec<&LossSample> {
        let fits = self.rows.iter().filter(|row| row.part == part && row.out <= out);
        let Some(row) = fits.max_by_key(|row| row.out) else { return Vec::new() };
        let own = row.runs.iter().filter(|(at, _)| *at == place).map(|(_, sample)| sample);
        let own: Vec<&LossSample> = own.collect();
        if own.is_empty() { row.runs.iter().map(|(_, sample)| sample).collect() } else { own }
    }

    /// Returns the losses of an elastic job in all runs in which a node failure affected it.
    pub fn losses_of_elastic(&self, job: usize) -> Vec<&JobLossSample> {
        let runs =
            self.rows.iter().filter(|row| row.part == AnyPart::Node).flat_map(|row| &row.runs);
        let losses = runs.filter_map(|(_, sample)| sample.jobs[job].as_ref());
        losses.filter(|loss| !loss.once.is_empty()).collect()
    }

    /// Returns the runs by kind of part and number of failed nodes.
    pub fn rows(&self) -> impl Iterator<Item = (AnyPart, usize, Vec<&LossSample>)> + '_ {
        self.rows.iter().map(|row| {
            let samples = row.runs.iter().map(|(_, sample)| sample);
            (row.part, row.out, samples.collect())
        })
    }

    /// Returns the total number of GPUs used by jobs.
    pub fn gpus_of_jobs(&self) -> u64 {
        self.jobs.iter().map(|job| job.gpus).sum()
    }

    /// Returns the number of whole spare nodes.
    pub fn spare_nodes(&self) -> usize {
        (self.gpus.saturating_sub(self.gpus_of_jobs()) / self.gpus_per_node.max(1)) as usize
    }
}
