// SPDX-License-Identifier: Apache-2.0
//! One month of training with failures and repairs. Every lost GPU-hour is attributed to a cause.

use std::collections::BTreeMap;

use lightloom_planner::goodput::Training;
use lightloom_units::Milliseconds;
use lightloom_units::seed::Seed;
use rand::RngExt;

use super::failures::PartChange;
use super::seats::Seats;
use super::{Answer, Cause, LossSample, LossTable};
use crate::substrate::AnyPart;

const MILLISECOND: i128 = 1_000_000_000;

/// Result of a month. Times are in GPU-picoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Month {
    /// Total time of all GPUs.
    pub capacity: i128,
    /// Useful work, measured by its duration without failures.
    pub useful: i128,
    /// Useful work weighted by the MFU of each step.
    pub utilised: f64,
    /// Time during which jobs had all their GPUs.
    pub allocated: i128,
    /// Losses by cause. They add up to `capacity - useful`.
    pub lost: BTreeMap<Cause, i128>,
    /// Number of failed parts.
    pub failures: u64,
    /// Number of failures that delayed a job.
    pub hits: u64,
    /// Number of times a job waited for nodes.
    pub waits: u64,
}

impl Month {
    /// Returns the total loss.
    pub fn lost_time(&self) -> i128 {
        self.capacity - self.useful
    }

    fn productive(&self) -> i128 {
        self.useful + self.lost.get(&Cause::SlowerSteps).copied().unwrap_or(0)
    }

    /// Returns the share of GPU time that was allocated to jobs with all their GPUs.
    pub fn scheduling(&self) -> f64 {
        ratio(self.allocated, self.capacity)
    }

    /// Returns the share of allocated time spent on useful steps.
    pub fn runtime(&self) -> f64 {
        ratio(self.productive(), self.allocated)
    }

    /// Returns the MFU in useful steps.
    pub fn program(&self) -> f64 {
        self.utilised / self.productive().max(1) as f64
    }
}

fn ratio(part: i128, whole: i128) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

struct Out {
    part: AnyPart,
    place: usize,
    alone: Vec<i128>,
}

struct Cluster<'a> {
    table: &'a LossTable,
    jobs: Vec<Training<'a>>,
    seats: Seats,
    now: i128,
    open: Vec<Out>,
    together: Vec<i128>,
    month: Month,
}

impl Cluster<'_> {
    fn nodes_out(&self) -> usize {
        self.open.iter().filter(|out| out.part == AnyPart::Node).count()
    }

    fn held(&self) -> i128 {
        self.jobs.iter().filter(|one| one.waits.is_none()).map(Training::held).sum()
    }

    fn left_out(&self) -> i128 {
        let running = self.jobs.iter().enumerate().filter(|(_, one)| one.waits.is_none());
        let left_out = running.map(|(at, one)| {
            let vacant = self.seats.vacant(at) as i128 * i128::from(self.table.gpus_per_node);
            (i128::from(one.job.gpus) - one.held() - vacant).max(0)
        });
        left_out.sum()
    }

    fn gpus_out(&self) -> i128 {
        let gpus = i128::from(self.table.gpus_per_node) * self.nodes_out() as i128;
        gpus.min(i128::from(self.table.gpus))
    }

    fn free(&self) -> i128 {
        i128::from(self.table.gpus) - self.gpus_out() - self.held() - self.left_out()
    }

    fn advance_to(&mut self, until: i128) {
        while let Some(ready) = self.seats.next_ready().filter(|ready| *ready < until) {
            self.advance(ready.max(self.now) - self.now);
            for at in self.seats.take_up(self.now) {
                let one = &mut self.jobs[at];
                one.left_out = self.seats.left_out(at).0;
                if let (Answer::Elastic { rejoin, .. }, None) = (one.job.policy.answer, one.waits) {
                    one.takes_up(rejoin);
                }
            }
        }
        self.advance(until - self.now);
    }

    fn advance(&mut self, time: i128) {
        let (out, free, left_out) = (self.gpus_out(), self.free(), self.left_out());
        let waiting = self.jobs.iter().filter(|one| one.waits.is_some());
        let waiting = waiting.map(|one| i128::from(one.job.gpus)).sum::<i128>().min(free);
        let lost = [
            (Cause::UnderRepair, out),
            (Cause::LeftOut, left_out),
            (Cause::WaitingForNodes, waiting),
            (Cause::IdleSpares, free - waiting),
        ];
        for (cause, gpus) in lost.into_iter().filter(|(_, gpus)| *gpus != 0) {
            *self.month.lost.entry(cause).or_default() += gpus * time;
        }
        self.month.allocated += self.held() * time;
        self.jobs.iter_mut().filter(|one| one.waits.is_none()).for_each(|one| one.advance(time));
        self.now += time;
    }

    fn fails(&mut self, change: &PartChange, seed: Seed) {
        self.month.failures += 1;
        let mut random = seed.stream("losses of a month", self.month.failures);
        let (choice, victim, whose): (f64, f64, f64) =
            (random.random(), random.random(), random.random());
        let before = self.nodes_out();
        let table = self.table;
        let [sample, alone] = [before, 0].map(|out| {
            let samples = table.samples(change.part, change.place, out);
            samples.get((samples.len() as f64 * choice) as usize).copied()
        });
        let alone = self.slower(alone);
        if change.part == AnyPart::Node && before > 0 {
            self.together = self.slower(sample);
        }
        self.open.push(Out { part: change.part, place: change.place, alone });
        self.set_steps();
        let is_node = change.part == AnyPart::Node;
        let mut cost = is_node && self.leave_out(change.place, choice);
        let all = self.table.gpus as f64;
        for (at, one) in self.jobs.iter_mut().enumerate() {
            if is_node && one.is_elastic() {
                continue;
            }
            if one.waits.is_some() {
                if is_node && whose < one.job.gpus as f64 / all {
                    one.loses_a_node();
                }
                continue;
            }
            match sample.map(|sample| &sample.jobs[at]) {
                Some(Some(loss)) => cost |= one.hit(&loss.once, u32::from(is_node)),
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

    fn leave_out(&mut self, node: usize, choice: f64) -> bool {
        let Some((at, is_news)) = self.seats.fails(node) else { return false };
        self.jobs[at].left_out = self.seats.left_out(at).0;
        self.fill_seats();
        let one = &mut self.jobs[at];
        if one.waits.is_some() || !is_news {
            return false;
        }
        if one.has_too_few() {
            one.stop(usize::MAX);
            self.month.waits += 1;
            self.try_again(at);
            return true;
        }
        let losses = self.table.losses_of_elastic(at);
        let loss = losses.get((losses.len() as f64 * choice) as usize);
        loss.is_some_and(|loss| one.hit(&loss.once, 1))
    }

    fn fill_seats(&mut self) {
        let idle = self.idle().max(0) / i128::from(self.table.gpus_per_node.max(1));
        self.seats.fill(idle as usize, self.now);
    }

    fn idle(&self) -> i128 {
        let keep = self.jobs.iter().enumerate();
        let keep = keep.filter(|(_, one)| one.waits.is_some() && one.is_elastic());
        let kept = keep.map(|(at, one)| {
            let vacant = self.seats.vacant(at) as i128 * i128::from(self.table.gpus_per_node);
            (i128::from(one.job.gpus) - vacant).max(0)
        });
        self.free() - kept.sum::<i128>()
    }

    fn try_again(&mut self, at: usize) {
        let without = self.seats.left_out(at).1;
        let one = &mut self.jobs[at];
        let before = std::mem::replace(&mut one.left_out, without);
        if one.has_too_few() {
            one.left_out = before;
            return;
        }
        self.seats.begins_again(at);
        one.resume();
    }

    fn slower(&self, sample: Option<&LossSample>) -> Vec<i128> {
        let slower = (0..self.jobs.len()).map(|at| {
            let loss = sample.and_then(|sample| sample.jobs[at].as_ref());
            loss.map_or(0, |loss| loss.slower)
        });
        slower.collect()
    }

    fn set_steps(&mut self) {
        let (nodes, others): (Vec<&Out>, Vec<&Out>) =
            self.open.iter().partition(|out| out.part == AnyPart::Node);
        for (at, one) in self.jobs.iter_mut().enumerate() {
            let alone = nodes.iter().map(|out| out.alone[at]).sum();
            one.slower = others.iter().map(|out| out.alone[at]).sum();
            one.slower_elsewhere = if nodes.len() > 1 { self.together[at] } else { alone };
        }
    }

    /// Stops one job when there are too few nodes. A job is chosen with a probability proportional to its GPUs.
    fn stop_one(&mut self, choice: f64) {
        let mut left = (self.held() as f64 * choice) as i128;
        let running = self.jobs.iter_mut().filter(|one| one.waits.is_none());
        for one in running {
            left -= one.held();
            if left < 0 {
                one.stop(usize::MAX);
                self.month.waits += 1;
                return;
            }
        }
        unreachable!("the number of GPUs out of service exceeds the total");
    }

    fn works_again(&mut self, change: &PartChange) {
        let part = (change.part, change.place);
        let place = self.open.iter().position(|out| (out.part, out.place) == part);
        let Some(at) = place else { return };
        self.open.remove(at);
        self.set_steps();
        if change.part == AnyPart::Node {
            self.seats.works_again(change.place);
            self.fill_seats();
        }
        let out = self.nodes_out();
        for at in 0..self.jobs.len() {
            let one = &self.jobs[at];
            let gpus = i128::from(one.job.gpus);
            match one.waits {
                Some(_) if one.is_elastic() => self.try_again(at),
                Some(until) if out <= until && gpus <= self.idle() => self.jobs[at].resume(),
                _ => {}
            }
        }
    }
}

/// Simulates the jobs for `length`. `seed` selects the loss of each failure from the table.
pub fn month(table: &LossTable, changes: &[PartChange], length: Milliseconds, seed: Seed) -> Month {
    let mut cluster = Cluster {
        table,
        jobs: table.jobs.iter().map(Training::of).collect(),
        seats: Seats::of(table),
        now: 0,
        open: Vec::new(),
        together: vec![0; table.jobs.len()],
        month: Month::default(),
    };
    for change in changes.iter().filter(|change| change.at < length) {
        cluster.advance_to(i128::from(change.at.get()) * MILLISECOND);
        if change.fails {
            cluster.fails(change, seed);
        } else {
            cluster.works_again(change);
        }
    }
    let length = i128::from(length.get()) * MILLISECOND;
    cluster.advance_to(length);
    let Cluster { jobs, mut month, .. } = cluster;
    month.capacity = i128::from(table.gpus) * length;
    for one in &jobs {
        month.useful += one.useful;
        month.utilised += one.useful as f64 * one.job.mfu;
        for (cause, time) in &one.lost {
            *month.lost.entry(*cause).or_default() += time;
        }
    }
    assert_eq!(
        month.lost.values().sum::<i128>(),
        month.lost_time(),
        "the losses by cause must add up to the total"
    );
    month
}
