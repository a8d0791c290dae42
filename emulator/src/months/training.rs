// SPDX-License-Identifier: Apache-2.0
//! A job in a month: useful work in progress, or it works off what a failure cost it, or it waits.

use std::collections::{BTreeMap, VecDeque};

use super::policy::Answer;
use super::{Cause, Policy, TrainedJob};

/// A job under way. Its sums are picoseconds of one GPU.
pub(super) struct Training<'a> {
    pub(super) job: &'a TrainedJob,
    /// What a step takes longer now for parts other than nodes.
    pub(super) slower: i128,
    /// What it takes longer because the job is on other nodes than at the start.
    pub(super) slower_elsewhere: i128,
    /// Replicas that it goes on without.
    pub(super) left_out: u32,
    /// Useful work done.
    pub(super) useful: i128,
    /// What is to be worked off before it goes on.
    pending: VecDeque<(Cause, i128)>,
    /// Whole steps among that which are done again.
    again: i128,
    /// Nodes that died since it went on last.
    deaths: u32,
    /// It waits until no more nodes than this are out.
    pub(super) waits: Option<usize>,
    pub(super) lost: BTreeMap<Cause, i128>,
}

impl<'a> Training<'a> {
    pub(super) fn of(job: &'a TrainedJob) -> Self {
        Self {
            job,
            slower: 0,
            slower_elsewhere: 0,
            left_out: 0,
            useful: 0,
            pending: VecDeque::new(),
            again: 0,
            deaths: 0,
            waits: None,
            lost: BTreeMap::new(),
        }
    }

    /// GPUs of its replicas that are not left out.
    pub(super) fn held(&self) -> i128 {
        let all = i128::from(self.job.gpus);
        all - all / i128::from(self.job.replicas.count.max(1)) * i128::from(self.left_out)
    }

    /// What a step takes now.
    fn step(&self) -> i128 {
        let calm = match self.left_out {
            0 => self.job.step + self.slower_elsewhere,
            _ => self.job.replicas.step_with_fewer,
        };
        (calm + self.slower).max(1)
    }

    /// Useful work of the whole job, in the time that it takes with all replicas.
    fn progress(&self) -> i128 {
        self.useful / i128::from(self.job.gpus.max(1))
    }

    /// Useful work since the last of places to begin again from, so many steps apart.
    fn since(&self, every: u32) -> i128 {
        self.progress() % (self.job.step * i128::from(every)).max(1)
    }

    /// Whether it goes on with fewer replicas.
    pub(super) const fn is_elastic(&self) -> bool {
        self.job.policy.answer.is_elastic()
    }

    /// Whether fewer replicas are left than it goes on with.
    pub(super) const fn has_too_few(&self) -> bool {
        let left = self.job.replicas.count.saturating_sub(self.left_out);
        matches!(self.job.policy.answer, Answer::Elastic { least, .. } if left < least)
    }

    fn lose(&mut self, cause: Cause, time: i128) {
        if time != 0 {
            *self.lost.entry(cause).or_default() += time * self.held();
        }
    }

    /// Time passes.
    pub(super) fn advance(&mut self, mut time: i128) {
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
        let Policy { every, write, answer, .. } = self.job.policy;
        let (copied_every, copy) = match answer {
            Answer::InMemory { every, write, .. } => (i128::from(every), write),
            _ => (1, 0),
        };
        let every = i128::from(every);
        let (steps, writing, copying) = (every * copied_every, write * copied_every, copy * every);
        let period = self.step() * steps + writing + copying;
        let useful = time * self.job.step * steps / period;
        let (written, copied) = (time * writing / period, time * copying / period);
        self.useful += useful * self.held();
        self.lose(Cause::CheckpointWrite, written);
        self.lose(Cause::MemoryWrite, copied);
        self.lose(Cause::SlowerSteps, time - useful - written - copied);
    }

    /// A failure hits it, of a node or of something else. Whether it cost anything.
    pub(super) fn hit(&mut self, once: &[(Cause, i128)], dead_nodes: u32) -> bool {
        // What was late for one cause and early for another cost nothing.
        if once.iter().map(|(_, time)| time).sum::<i128>() == 0 {
            return false;
        }
        let is_down = !self.pending.is_empty();
        if !is_down {
            (self.again, self.deaths) = (0, 0);
        }
        self.deaths += dead_nodes;
        // What was to be done again before still is; nothing has been done since.
        let counts = |(cause, _): &&(Cause, i128)| !(is_down && *cause == Cause::DoneAgain);
        self.pending.extend(once.iter().filter(counts));
        if once.iter().any(|(cause, time)| *cause == Cause::DoneAgain && *time != 0) {
            let (cause, time, every) = self.begins_again();
            self.pending.push_back((cause, time));
            let whole = self.since(every) / self.job.step.max(1);
            if whole > self.again {
                self.pending.push_back((Cause::DoneAgain, (whole - self.again) * self.step()));
                self.again = whole;
            }
        }
        true
    }

    /// What it does first when it begins again, for how long, and how many steps lie between the places where it can.
    fn begins_again(&self) -> (Cause, i128, u32) {
        let Policy { every, load, answer, .. } = self.job.policy;
        match answer {
            Answer::InMemory { every, load, copies, .. } if self.deaths < copies => {
                (Cause::MemoryLoad, load, every)
            }
            Answer::Migrate { takes } if self.deaths < self.job.replicas.count => {
                (Cause::Migration, takes, 1)
            }
            Answer::Elastic { reform, .. } if self.waits.is_none() => (Cause::Reform, reform, 1),
            _ => (Cause::CheckpointLoad, load, every),
        }
    }

    pub(super) fn stop(&mut self, until: usize) {
        self.waits = Some(until);
        self.pending.clear();
        self.again = 0;
    }

    /// A node of it dies, while it waits.
    pub(super) fn loses_a_node(&mut self) {
        self.deaths += 1;
    }

    /// It has its nodes again, and begins again: no run covers that, so it is computed.
    pub(super) fn resume(&mut self) {
        let (cause, time, every) = self.begins_again();
        self.waits = None;
        self.pending.push_back((cause, time));
        let since = self.since(every);
        self.pending.push_back((Cause::DoneAgain, since * self.step() / self.job.step.max(1)));
        self.again = since / self.job.step.max(1);
    }

    /// Replicas that were left out are ready again.
    pub(super) fn takes_up(&mut self, rejoin: i128) {
        self.pending.push_back((Cause::Rejoin, rejoin));
    }
}
