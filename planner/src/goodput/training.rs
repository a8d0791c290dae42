// SPDX-License-Identifier: Apache-2.0
//! Tracks the useful work, recovery and waiting of a job over a month.

use std::collections::{BTreeMap, VecDeque};

use super::{Answer, Cause, Policy, TrainedJob};

struct Cycle {
    steps: i128,
    writing: i128,
    copying: i128,
    period: i128,
}

/// A running job. Totals are GPU time in picoseconds.
#[derive(Clone, Debug)]
pub struct Training<'a> {
    /// The job.
    pub job: &'a TrainedJob,
    /// Extra step time due to failed parts other than nodes.
    pub slower: i128,
    /// Extra step time due to running on other nodes.
    pub slower_elsewhere: i128,
    /// Number of excluded replicas.
    pub left_out: u32,
    /// Useful work done.
    pub useful: i128,
    pending: VecDeque<(Cause, i128)>,
    again: i128,
    lost_step: bool,
    deaths: u32,
    /// If set, the job waits until at most this many nodes are out of service.
    pub waits: Option<usize>,
    /// Lost time by cause.
    pub lost: BTreeMap<Cause, i128>,
}

impl<'a> Training<'a> {
    /// Creates a job that has not started.
    pub fn of(job: &'a TrainedJob) -> Self {
        Self {
            job,
            slower: 0,
            slower_elsewhere: 0,
            left_out: 0,
            useful: 0,
            pending: VecDeque::new(),
            again: 0,
            lost_step: false,
            deaths: 0,
            waits: None,
            lost: BTreeMap::new(),
        }
    }

    /// Returns the number of GPUs in active replicas.
    pub fn held(&self) -> i128 {
        let all = i128::from(self.job.gpus);
        all - all / i128::from(self.job.replicas.count.max(1)) * i128::from(self.left_out)
    }

    fn step(&self) -> i128 {
        let calm = match self.left_out {
            0 => self.job.step + self.slower_elsewhere,
            _ => self.job.replicas.step_with_fewer,
        };
        (calm + self.slower).max(1)
    }

    fn cycle(&self) -> Cycle {
        let Policy { every, write, answer, .. } = self.job.policy;
        let (copied_every, copy) = match answer {
            Answer::InMemory { every, write, .. } => (i128::from(every), write),
            _ => (1, 0),
        };
        let every = i128::from(every);
        let (steps, writing, copying) = (every * copied_every, write * copied_every, copy * every);
        Cycle { steps, writing, copying, period: self.step() * steps + writing + copying }
    }

    /// Returns the time that each GPU needs for `work` without further failures.
    pub fn time_to(&self, work: i128) -> i128 {
        let left = (work * i128::from(self.job.gpus) - self.useful).max(0);
        let Cycle { steps, period, .. } = self.cycle();
        let pending: i128 = self.pending.iter().map(|(_, time)| time).sum();
        let left = scaled_up(left, 1, self.held().max(1));
        pending + scaled_up(left, period, self.job.step * steps)
    }

    fn progress(&self) -> i128 {
        self.useful / i128::from(self.job.gpus.max(1))
    }

    fn since(&self, every: u32) -> i128 {
        self.progress() % (self.job.step * i128::from(every)).max(1)
    }

    /// Returns whether the job continues with fewer replicas.
    pub const fn is_elastic(&self) -> bool {
        self.job.policy.answer.is_elastic()
    }

    /// Returns whether the job has fewer replicas than it needs.
    pub const fn has_too_few(&self) -> bool {
        let left = self.job.replicas.count.saturating_sub(self.left_out);
        matches!(self.job.policy.answer, Answer::Elastic { least, .. } if left < least)
    }

    fn lose(&mut self, cause: Cause, time: i128) {
        if time != 0 {
            *self.lost.entry(cause).or_default() += time * self.held();
        }
    }

    /// Advances the job by `time`.
    pub fn advance(&mut self, mut time: i128) {
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
        let Cycle { steps, writing, copying, period } = self.cycle();
        let [written, copied] = [writing, copying].map(|part| scaled(time, part, period).0);
        // Subtract the work at normal speed, so that rounding is not reported as slower steps.
        let useful = match self.step() == self.job.step {
            true => time - written - copied,
            false => scaled(time, self.job.step * steps, period).0,
        };
        self.useful += useful * self.held();
        self.lose(Cause::CheckpointWrite, written);
        self.lose(Cause::MemoryWrite, copied);
        self.lose(Cause::SlowerSteps, time - useful - written - copied);
    }

    /// Applies a failure of a node or another part. Returns whether it cost time.
    pub fn hit(&mut self, once: &[(Cause, i128)], dead_nodes: u32) -> bool {
        // A delay can cancel out a gain from another cause.
        if once.iter().map(|(_, time)| time).sum::<i128>() == 0 {
            return false;
        }
        let is_down = !self.pending.is_empty();
        if !is_down {
            self.is_new_outage();
        }
        self.deaths = self.deaths.saturating_add(dead_nodes);
        // Work waiting to be repeated is lost only once.
        let is_lost = self.lost_step;
        let counted = once.iter().filter(|(cause, _)| !(is_lost && *cause == Cause::DoneAgain));
        self.pending.extend(counted);
        if once.iter().any(|(cause, time)| *cause == Cause::DoneAgain && *time != 0) {
            let (cause, time, since) = self.begins_again();
            self.lost_step = true;
            self.pending.push_back((cause, time));
            let whole = since / self.job.step.max(1);
            if whole > self.again {
                self.pending.push_back((Cause::DoneAgain, (whole - self.again) * self.step()));
                self.again = whole;
            }
        }
        true
    }

    fn is_new_outage(&mut self) {
        (self.again, self.deaths, self.lost_step) = (0, 0, false);
    }

    fn begins_again(&self) -> (Cause, i128, i128) {
        let Policy { every, load, answer, .. } = self.job.policy;
        let checkpoint = self.since(every);
        match answer {
            Answer::InMemory { every, load, copies, .. }
                if self.deaths < copies && self.since(every) <= checkpoint =>
            {
                (Cause::MemoryLoad, load, self.since(every))
            }
            Answer::Migrate { takes } if self.deaths < self.job.replicas.count => {
                (Cause::Migration, takes, self.since(1))
            }
            Answer::Elastic { reform, .. } if self.waits.is_none() => {
                (Cause::Reform, reform, self.since(1))
            }
            _ => (Cause::CheckpointLoad, load, checkpoint),
        }
    }

    /// Stops the job until at most `until` nodes are out of service.
    pub fn stop(&mut self, until: usize) {
        self.waits = Some(until);
        self.pending.clear();
        self.again = 0;
    }

    /// Starts the job for the first time, from a checkpoint.
    pub fn begin(&mut self) {
        self.waits = None;
        self.pending.push_back((Cause::CheckpointLoad, self.job.policy.load));
    }

    /// Returns the time to repeat the completed part of the current step at the current speed.
    pub fn in_step(&self) -> i128 {
        self.since(1) * self.step() / self.job.step.max(1)
    }

    /// Releases the nodes of a waiting job to other jobs. Only its checkpoints remain.
    pub fn gives_up_nodes(&mut self) {
        self.deaths = u32::MAX;
    }

    /// Records a node failure during a wait.
    pub fn loses_a_node(&mut self) {
        self.deaths = self.deaths.saturating_add(1);
    }

    /// Restarts a waiting job that has its nodes again. The cost is computed, not taken from a run.
    pub fn resume(&mut self) {
        let (cause, time, since) = self.begins_again();
        self.waits = None;
        self.pending.push_back((cause, time));
        self.pending.push_back((Cause::DoneAgain, since * self.step() / self.job.step.max(1)));
        self.again = since / self.job.step.max(1);
        self.lost_step = true;
    }

    /// Reintegrates replicas that are ready.
    pub fn takes_up(&mut self, rejoin: i128) {
        if self.pending.is_empty() {
            self.is_new_outage();
        }
        self.pending.push_back((Cause::Rejoin, rejoin));
    }
}

fn scaled_up(time: i128, by: i128, of: i128) -> i128 {
    let (whole, rest) = scaled(time, by, of);
    whole + i128::from(rest != 0)
}

/// Returns `time · by ÷ of` rounded down, and the remainder, even if the product exceeds 128 bits.
fn scaled(time: i128, by: i128, of: i128) -> (i128, i128) {
    if let Some(product) = time.checked_mul(by) {
        return (product / of, product % of);
    }
    let (mut whole, mut rest) = (0, 0);
    for bit in (0..i128::BITS - 1).rev() {
        rest = 2 * rest + (time >> bit & 1) * by;
        whole = 2 * whole + rest / of;
        rest %= of;
    }
    (whole, rest)
}

#[cfg(test)]
mod tests {
    use super::super::Replicas;
    use super::*;

    fn job(step: i128, policy: Policy) -> TrainedJob {
        TrainedJob {
            name: "t".to_owned(),
            gpus: 8,
            step,
            closed_form: 0.0,
            mfu: 1.0,
            policy,
            replicas: Replicas { count: 8, step_with_fewer: step, of_node: Vec::new() },
        }
    }

    #[test]
    fn rare_copies_with_frequent_checkpoints_do_not_overflow() {
        const SECOND: i128 = 1_000_000_000_000;
        let answer = Answer::InMemory { every: 120_000, load: 1, write: 60 * SECOND, copies: 2 };
        let job =
            job(10 * SECOND, Policy { answer, ..Policy::restart(180, 600 * SECOND, 30 * SECOND) });
        let mut training = Training::of(&job);
        let month = 30 * 86_400 * SECOND;
        let all = training.time_to(month);
        training.advance(all);
        let by_hand = month + month / 1_800 * 30 + month / 1_200_000 * 60;
        assert!((all - by_hand).abs() < 10 * SECOND, "{all} {by_hand}");
        assert_eq!(training.useful, 8 * month);
        for (time, by, of) in [(7, 5, 3), (1 << 100, 1 << 90, (1 << 90) - 1), (1 << 126, 6, 7)] {
            let (whole, rest) = scaled(time, by, of);
            assert!((0..of).contains(&rest));
            let low = |a: i128, b: i128| a.wrapping_mul(b);
            assert_eq!(low(whole, of).wrapping_add(rest), low(time, by));
        }
    }

    #[test]
    fn restarts_from_a_checkpoint_newer_than_the_copy() {
        let lost = |every, copies| {
            let answer = Answer::InMemory { every, load: 5, write: 0, copies };
            let job = job(100, Policy { answer, ..Policy::restart(10, 50, 0) });
            let mut training = Training::of(&job);
            training.advance(3_800);
            assert!(training.hit(&[(Cause::DoneAgain, 1)], 1));
            training.advance(10_000);
            let of = |cause| training.lost.get(&cause).copied().unwrap_or(0) / 8;
            [Cause::DoneAgain, Cause::MemoryLoad, Cause::CheckpointLoad].map(of)
        };
        assert_eq!(lost(150, 2), lost(150, 1));
        assert_eq!([lost(150, 2), lost(6, 2)], [[801, 0, 50], [201, 5, 0]]);
    }

    #[test]
    fn node_fault_during_a_rejoin_costs_the_current_step() {
        let answer = Answer::Elastic { reform: 5, start: 0, rejoin: 7, least: 1 };
        let job = job(100, Policy { answer, ..Policy::restart(10, 50, 0) });
        let mut training = Training::of(&job);
        training.advance(130);
        assert!(training.hit(&[(Cause::Outage, 1), (Cause::DoneAgain, 30)], 1));
        training.advance(36 + 20);
        training.takes_up(7);
        training.advance(3);
        assert!(training.hit(&[(Cause::Outage, 1), (Cause::DoneAgain, 50)], 1));
        training.advance(1_000);
        assert_eq!(training.lost[&Cause::DoneAgain], 8 * (30 + 50));
    }
}
