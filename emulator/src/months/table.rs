// SPDX-License-Identifier: Apache-2.0
//! The table from which months draw: the cost of each kind of failure, measured in runs.

use super::{Case, Cause, TrainedJob};
use crate::substrate::AnyPart;

/// Cost of a failure to one job in a run, in picoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLossSample {
    /// The one-time losses by cause, in chronological order.
    pub once: Vec<(Cause, i128)>,
    /// The additional time that every later step takes compared with a step without failures, due
    /// to all parts that are out.
    pub slower: i128,
}

/// The cost of a failure in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossSample {
    /// The cost for each job. `None` for a job that could not continue.
    pub jobs: Vec<Option<JobLossSample>>,
}

/// The cost of each kind of failure, measured in runs.
#[derive(Clone, Debug)]
pub struct LossTable {
    /// The jobs without failures.
    pub jobs: Vec<TrainedJob>,
    /// The number of GPUs in the bill, including spare ones.
    pub gpus: u64,
    /// GPUs per node.
    pub gpus_per_node: u64,
    rows: Vec<CaseKind>,
}

#[derive(Clone, Debug)]
struct CaseKind {
    part: AnyPart,
    out: usize,
    /// The runs, each with the index of the failed part.
    runs: Vec<(usize, LossSample)>,
}

impl LossTable {
    /// Creates a table for these jobs that contains no runs.
    #[must_use]
    pub fn new(jobs: Vec<TrainedJob>, gpus: u64, gpus_per_node: u64) -> Self {
        Self { jobs, gpus, gpus_per_node, rows: Vec::new() }
    }

    /// Adds the result of a run of `case`. `place` is the index of the failed part.
    pub fn add(&mut self, case: &Case, place: usize, sample: LossSample) {
        let Case { part, out, .. } = *case;
        match self.rows.iter_mut().find(|row| (row.part, row.out) == (part, out)) {
            Some(row) => row.runs.push((place, sample)),
            None => self.rows.push(CaseKind { part, out, runs: vec![(place, sample)] }),
        }
    }

    /// Returns the runs for a part with this number of nodes out, or with the nearest lower number
    /// that was run. If exactly this part failed in some of them, returns only those; otherwise
    /// returns all runs for its kind.
    #[must_use]
    pub fn samples(&self, (part, place): (AnyPart, usize), out: usize) -> Vec<&LossSample> {
        let fits = self.rows.iter().filter(|row| row.part == part && row.out <= out);
        let Some(row) = fits.max_by_key(|row| row.out) else { return Vec::new() };
        let own = row.runs.iter().filter(|(at, _)| *at == place).map(|(_, sample)| sample);
        let own: Vec<&LossSample> = own.collect();
        if own.is_empty() { row.runs.iter().map(|(_, sample)| sample).collect() } else { own }
    }

    /// Returns the cost of node failures for an elastic job, from the runs that hit the job.
    #[must_use]
    pub fn losses_of_elastic(&self, job: usize) -> Vec<&JobLossSample> {
        let runs =
            self.rows.iter().filter(|row| row.part == AnyPart::Node).flat_map(|row| &row.runs);
        let losses = runs.filter_map(|(_, sample)| sample.jobs[job].as_ref());
        losses.filter(|loss| !loss.once.is_empty()).collect()
    }

    /// Returns the runs by kind of part and number of nodes out.
    pub fn rows(&self) -> impl Iterator<Item = (AnyPart, usize, Vec<&LossSample>)> + '_ {
        self.rows.iter().map(|row| {
            let samples = row.runs.iter().map(|(_, sample)| sample);
            (row.part, row.out, samples.collect())
        })
    }

    /// Returns the total number of GPUs in jobs.
    #[must_use]
    pub fn gpus_of_jobs(&self) -> u64 {
        self.jobs.iter().map(|job| job.gpus).sum()
    }

    /// Returns the number of whole nodes without a job.
    #[must_use]
    pub fn spare_nodes(&self) -> usize {
        (self.gpus.saturating_sub(self.gpus_of_jobs()) / self.gpus_per_node.max(1)) as usize
    }
}
