// SPDX-License-Identifier: Apache-2.0
//! One month: jobs train over failures and repairs, and every GPU-hour has a cause.
//!
//! A job is useful work in progress, or it works off what a failure cost it, or it waits. Work is counted in the time that it
//! takes without a failure, as a fluid: a part of a step counts.

use std::collections::{BTreeMap, VecDeque};

use lightloom_units::Milliseconds;
use lightloom_units::seed::Seed;
use rand::RngExt;

use super::failures::PartChange;
use super::{Cause, LossSample, LossTable};
use crate::scenario::Restart;
use crate::substrate::AnyPart;

/// Picoseconds of a millisecond.
const MILLISECOND: i128 = 1_000_000_000;

/// A job that trains over a span.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedJob {
    /// Its name.
    pub name: String,
    /// Its GPUs.
    pub gpus: u64,
    /// What a step takes without a failure, in picoseconds.
    pub step: i128,
    /// Utilisation of its GPUs in such a step.
    pub mfu: f64,
    /// Where it begins again.
    pub policy: Policy,
}

/// Where a job begins again, in picoseconds and steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Steps between two places to begin again from: 1 where the end of every step is one.
    pub every: u32,
    /// What reading such a place takes.
    pub load: i128,
    /// What writing it takes.
    pub write: i128,
}

impl From<Restart> for Policy {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::Barrier => Self { every: 1, load: 0, write: 0 },
            Restart::Checkpoint { every, load, write } => {
                Self { every: every.max(1), load: load.0.into(), write: write.0.into() }
            }
        }
    }
}

/// What a month came to. Times are picoseconds of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Month {
    /// All GPUs, all the time.
    pub capacity: i128,
    /// Work that counted, in the time that it takes without failures.
    pub useful: i128,
    /// The same times the utilisation of its steps.
    pub utilised: f64,
    /// Time in which jobs had all their GPUs.
    pub allocated: i128,
    /// What was lost, by cause: adds up to `capacity - useful`.
    pub lost: BTreeMap<Cause, i128>,
    /// Parts that failed.
    pub failures: u64,
    /// Failures that cost a job anything.
    pub hits: u64,
    /// Times that a job waited for nodes.
    pub waits: u64,
}

impl Month {
    /// What was lost for any cause.
    #[must_use]
    pub fn lost_time(&self) -> i128 {
        self.capacity - self.useful
    }

    /// Time in steps that counted, with what they took longer.
    fn productive(&self) -> i128 {
        self.useful + self.lost.get(&Cause::SlowerSteps).copied().unwrap_or(0)
    }

    /// Share of all GPU time in which jobs had all their GPUs.
    #[must_use]
    pub fn scheduling(&self) -> f64 {
        ratio(self.allocated, self.capacity)
    }

    /// Share of that in steps that counted.
    #[must_use]
    pub fn runtime(&self) -> f64 {
        ratio(self.productive(), self.allocated)
    }

    /// Utilisation of the GPUs in these steps.
    #[must_use]
    pub fn program(&self) -> f64 {
        self.utilised / self.productive().max(1) as f64
    }
}

fn ratio(part: i128, whole: i128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A job under way.
struct Training<'a> {
    job: &'a TrainedJob,
    /// What a step takes longer now.
    slower: i128,
    /// Useful work done.
    progress: i128,
    /// What is to be worked off before it goes on.
    pending: VecDeque<(Cause, i128)>,
    /// It waits until no more nodes than this are out.
    waits: Option<usize>,
    lost: BTreeMap<Cause, i128>,
}

impl<'a> Training<'a> {
    fn of(job: &'a TrainedJob) -> Self {
        Self {
            job,
            slower: 0,
            progress: 0,
            pending: VecDeque::new(),
            waits: None,
            lost: BTreeMap::new(),
        }
    }

    /// What a step takes now.
    fn step(&self) -> i128 {
        (self.job.step + self.slower).max(1)
    }

    /// Useful work since the last place to begin again from.
    fn since_saved(&self) -> i128 {
        self.progress % (self.job.step * i128::from(self.job.policy.every)).max(1)
    }

    fn lose(&mut self, cause: Cause, time: i128) {
        *self.lost.entry(cause).or_default() += time;
    }

    /// Time goes on.
    fn advance(&mut self, mut time: i128) {
        while let Some((cause, left)) = self.pending.front_mut() {
            let (cause, worked) = (*cause, (*left).min(time));
            *left -= worked;
            time -= worked;
            let is_over = *left == 0;
            self.lose(cause, worked);
            if !is_over {
                return;
            }
            self.pending.pop_front();
        }
        let Policy { every, write, .. } = self.job.policy;
        let (step, every) = (self.step(), i128::from(every));
        let period = step * every + write;
        let useful = time * self.job.step * every / period;
        let written = time * write / period;
        self.progress += useful;
        if written != 0 {
            self.lose(Cause::CheckpointWrite, written);
        }
        let slower = time - useful - written;
        if slower != 0 {
            self.lose(Cause::SlowerSteps, slower);
        }
    }

    /// A failure hits it. Whether it cost anything.
    fn hit(&mut self, once: &[(Cause, i128)]) -> bool {
        // What was late for one cause and early for another cost nothing.
        if once.iter().map(|(_, time)| time).sum::<i128>() == 0 {
            return false;
        }
        // What was to be done again before still is; nothing has been done since.
        let is_down = !self.pending.is_empty();
        let again = |(cause, _): &&(Cause, i128)| !(is_down && *cause == Cause::DoneAgain);
        self.pending.extend(once.iter().filter(again));
        if once.iter().any(|(cause, time)| *cause == Cause::DoneAgain && *time != 0) {
            self.pending.push_back((Cause::CheckpointLoad, self.job.policy.load));
            let whole = self.since_saved() / self.job.step.max(1);
            if !is_down && whole > 0 {
                self.pending.push_back((Cause::DoneAgain, whole * self.step()));
            }
        }
        true
    }

    fn stop(&mut self, until: usize) {
        self.waits = Some(until);
        self.pending.clear();
    }

    /// It has its nodes again, and begins again: no run covers that, so it is computed.
    fn resume(&mut self) {
        self.waits = None;
        self.pending.push_back((Cause::CheckpointLoad, self.job.policy.load));
        let again = self.since_saved() * self.step() / self.job.step.max(1);
        self.pending.push_back((Cause::DoneAgain, again));
    }
}

/// A part that is out.
struct Out {
    part: AnyPart,
    place: usize,
    /// By job: what every step takes longer while of its kind it alone is out.
    alone: Vec<i128>,
}

/// All jobs of a table under way.
struct Cluster<'a> {
    table: &'a LossTable,
    jobs: Vec<Training<'a>>,
    open: Vec<Out>,
    /// By job: what every step takes longer with the nodes that are out, where those are several.
    together: Vec<i128>,
    month: Month,
}

impl Cluster<'_> {
    fn nodes_out(&self) -> usize {
        self.open.iter().filter(|out| out.part == AnyPart::Node).count()
    }

    fn gpus_of(&self, is_waiting: bool) -> i128 {
        let jobs = self.jobs.iter().filter(|one| one.waits.is_some() == is_waiting);
        jobs.map(|one| i128::from(one.job.gpus)).sum()
    }

    fn gpus_out(&self) -> i128 {
        let gpus = i128::from(self.table.gpus_per_node) * self.nodes_out() as i128;
        gpus.min(i128::from(self.table.gpus))
    }

    /// GPUs that work and that no running job has.
    fn free(&self) -> i128 {
        i128::from(self.table.gpus) - self.gpus_out() - self.gpus_of(false)
    }

    fn advance(&mut self, time: i128) {
        let (out, free) = (self.gpus_out(), self.free());
        let waiting = self.gpus_of(true).min(free);
        let mut lose = |cause, gpus: i128| {
            if gpus != 0 {
                *self.month.lost.entry(cause).or_default() += gpus * time;
            }
        };
        lose(Cause::UnderRepair, out);
        lose(Cause::WaitingForNodes, waiting);
        lose(Cause::IdleSpares, free - waiting);
        self.month.allocated += self.gpus_of(false) * time;
        self.jobs.iter_mut().filter(|one| one.waits.is_none()).for_each(|one| one.advance(time));
    }

    fn fails(&mut self, change: &PartChange, seed: Seed) {
        self.month.failures += 1;
        let mut random = seed.stream("losses of a month", self.month.failures);
        let (choice, victim): (f64, f64) = (random.random(), random.random());
        let before = self.nodes_out();
        let of = (change.part, change.place);
        let draw = |out| {
            let samples = self.table.samples(of, out);
            samples.get((samples.len() as f64 * choice) as usize).copied()
        };
        let (sample, alone) = (draw(before), self.slower(draw(0)));
        if change.part == AnyPart::Node && before > 0 {
            self.together = self.slower(sample);
        }
        self.open.push(Out { part: change.part, place: change.place, alone });
        // What is done again is done in steps as they are from now on.
        self.set_steps();
        let mut cost = false;
        for (at, one) in self.jobs.iter_mut().enumerate().filter(|(_, one)| one.waits.is_none()) {
            match sample.map(|sample| &sample.jobs[at]) {
                Some(Some(loss)) => cost |= one.hit(&loss.once),
                Some(None) => {
                    one.stop(before);
                    self.month.waits += 1;
                    cost = true;
                }
                None => {}
            }
        }
        while self.free() < 0 {
            self.stop_one(victim);
            cost = true;
        }
        self.month.hits += u64::from(cost);
    }

    /// By job: what every step takes longer after a run.
    fn slower(&self, sample: Option<&LossSample>) -> Vec<i128> {
        let of = |at: usize| {
            let loss = sample.and_then(|sample| sample.jobs[at].as_ref());
            loss.map_or(0, |loss| loss.slower)
        };
        (0..self.jobs.len()).map(of).collect()
    }

    /// Steps are as long as what is out makes them: nodes together, and each other part besides.
    fn set_steps(&mut self) {
        let nodes = self.nodes_out();
        for (at, one) in self.jobs.iter_mut().enumerate() {
            let counts = |out: &&Out| out.part != AnyPart::Node || nodes == 1;
            let parts: i128 = self.open.iter().filter(counts).map(|out| out.alone[at]).sum();
            one.slower = parts + if nodes > 1 { self.together[at] } else { 0 };
        }
    }

    /// There are too few nodes for all jobs: one of them waits, the likelier the more GPUs it has.
    fn stop_one(&mut self, choice: f64) {
        let mut left = (self.gpus_of(false) as f64 * choice) as i128;
        let running = self.jobs.iter_mut().filter(|one| one.waits.is_none());
        for one in running {
            left -= i128::from(one.job.gpus);
            if left < 0 {
                one.stop(usize::MAX);
                self.month.waits += 1;
                return;
            }
        }
        unreachable!("more GPUs are out than there are");
    }

    fn works_again(&mut self, change: &PartChange) {
        let is_it = |out: &Out| (out.part, out.place) == (change.part, change.place);
        let Some(at) = self.open.iter().position(is_it) else { return };
        self.open.remove(at);
        self.set_steps();
        let out = self.nodes_out();
        for at in 0..self.jobs.len() {
            let gpus = i128::from(self.jobs[at].job.gpus);
            if self.jobs[at].waits.is_some_and(|until| out <= until) && gpus <= self.free() {
                self.jobs[at].resume();
            }
        }
    }
}

/// Jobs train for `length` over these changes; the seed draws what each failure costs from the table.
#[must_use]
pub fn month(table: &LossTable, changes: &[PartChange], length: Milliseconds, seed: Seed) -> Month {
    let jobs = table.jobs.iter().map(Training::of).collect();
    let mut cluster = {
        let together = vec![0; table.jobs.len()];
        Cluster { table, jobs, open: Vec::new(), together, month: Month::default() }
    };
    let mut now = Milliseconds::ZERO;
    for change in changes.iter().filter(|change| change.at < length) {
        cluster.advance(i128::from(change.at.get() - now.get()) * MILLISECOND);
        now = change.at;
        if change.fails {
            cluster.fails(change, seed);
        } else {
            cluster.works_again(change);
        }
    }
    cluster.advance(i128::from(length.get() - now.get()) * MILLISECOND);
    let Cluster { jobs, mut month, .. } = cluster;
    month.capacity = i128::from(table.gpus) * i128::from(length.get()) * MILLISECOND;
    for one in &jobs {
        let gpus = i128::from(one.job.gpus);
        month.useful += one.progress * gpus;
        month.utilised += (one.progress * gpus) as f64 * one.job.mfu;
        for (cause, time) in &one.lost {
            *month.lost.entry(*cause).or_default() += time * gpus;
        }
    }
    assert_eq!(month.lost.values().sum::<i128>(), month.lost_time(), "every GPU-hour has a cause");
    month
}
