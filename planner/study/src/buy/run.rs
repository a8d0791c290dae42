// SPDX-License-Identifier: Apache-2.0
//! Simulates jobs over months of faults on one design and accounts for every GPU-picosecond.
//!
//! Progress, policies and causes come from [`lightloom_planner::goodput`], as in monthly scenarios. This module adds
//! arrivals, a queue with backfill, and groups lost to faults.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::trace::{Change, Health, Timeline};
use lightloom_planner::goodput::{Answer, Cause, Policy, Replicas, TrainedJob, Training};

use super::picoseconds;
use super::queue::{self, Waiting};
use crate::architecture::{Architecture, CannotHold, Cluster, FaultPolicy, UsableGpus};

pub(super) const MILLISECOND: i128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at_ms: u64,
    pub gpus: u32,
    pub work_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowPart {
    pub from_ms: u64,
    pub until_ms: u64,
    /// Position among the healthy GPUs, from 0 to 1, in the order of running jobs.
    pub place: f64,
    pub slower: f64,
    pub exchange: SlowExchange,
}

/// The communication that a slow part affects. The two kinds of communication alternate within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowExchange {
    Inside,
    Between,
}

/// Events in the window, the same for every design except for the faults of parts other than nodes.
#[derive(Clone, Debug)]
pub struct History {
    pub faults: Timeline,
    /// The GPU affected by each change in `faults`, as a position (0 to 1) among the healthy GPUs in order of jobs.
    pub hits: Vec<f64>,
    pub arrivals: Vec<Arrival>,
    pub slow: Vec<SlowPart>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    pub tp: u32,
    pub policy: FaultPolicy,
    pub spares: u32,
    pub stretch: f64,
    pub step: i128,
    /// The checkpoint interval is measured in steps on this design.
    pub job: Policy,
    pub least: f64,
    pub outage: i128,
}

impl Rules {
    fn trained(&self, gpus: u32, gpus_per_node: u32) -> TrainedJob {
        let step = ((self.step as f64 * self.stretch).round() as i128).max(1);
        let part = if self.policy == FaultPolicy::ReducedTp { gpus_per_node } else { self.tp };
        let count = (gpus / part.max(1)).max(1);
        let answer = match self.job.answer {
            Answer::Elastic { reform, start, rejoin, .. } => {
                let least = (f64::from(count) * self.least).ceil() as u32;
                Answer::Elastic { reform, start, rejoin, least }
            }
            answer => answer,
        };
        TrainedJob {
            name: String::new(),
            gpus: u64::from(gpus),
            step,
            closed_form: 0.0,
            mfu: 1.0,
            policy: Policy { answer, ..self.job },
            replicas: Replicas { count, step_with_fewer: step, of_node: Vec::new() },
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub useful: i128,
    /// Together with `useful`, accounts for all GPUs at all times.
    pub lost: BTreeMap<Cause, i128>,
    pub allocated: i128,
    pub finished: u32,
    pub interruptions: u64,
    pub stops: u64,
}

impl Spent {
    pub fn total(&self) -> i128 {
        self.useful + self.lost.values().sum::<i128>()
    }

    pub fn lost_for(&self, causes: &[Cause]) -> i128 {
        causes.iter().filter_map(|cause| self.lost.get(cause)).sum()
    }

    fn lose(&mut self, cause: Cause, time: i128) {
        if time != 0 {
            *self.lost.entry(cause).or_default() += time;
        }
    }
}

struct Arrived<'a> {
    training: Training<'a>,
    work: i128,
    counted: i128,
    /// End time without further faults while the job runs; run time while it waits.
    ends: i128,
    /// Time of the job's last node failure. Failures of several nodes of one server are treated as one interruption.
    hit_at: Option<i128>,
    /// How often the job has released its groups. A job no longer uses the slow parts in released groups.
    moves: u32,
    slow: BTreeMap<usize, (SlowExchange, i128)>,
}

impl Arrived<'_> {
    /// Only the slowest part of each kind of communication is relevant.
    fn slower(&self) -> i128 {
        let slowest = [SlowExchange::Inside, SlowExchange::Between].map(|exchange| {
            let of = self.slow.values().filter(|(of, _)| *of == exchange);
            of.map(|(_, longer)| *longer).max().unwrap_or(0)
        });
        slowest.iter().sum()
    }

    fn held(&self) -> u32 {
        u32::try_from(self.training.held()).expect("a running job uses GPUs of the cluster")
    }

    fn count(&mut self, now: i128) {
        self.training.advance(now - std::mem::replace(&mut self.counted, now));
    }

    fn part(&self) -> u32 {
        self.training.job.gpus as u32 / self.training.job.replicas.count
    }

    fn leave_out(&mut self) -> bool {
        self.training.left_out += 1;
        if self.training.has_too_few() {
            self.training.left_out -= 1;
            return false;
        }
        true
    }
}

struct Fleet<'a> {
    rules: &'a Rules,
    state: Box<dyn UsableGpus>,
    gpus: u32,
    gpus_per_node: u32,
    healthy: u32,
    held: u32,
    now: i128,
    jobs: Vec<Arrived<'a>>,
    running: BTreeSet<u32>,
    waiting: BTreeSet<u32>,
    wanted: u64,
    /// For each slow part, the job that it slows and the value of `moves` of that job at the fault.
    slowed: Vec<Option<(u32, u32)>>,
    spent: Spent,
}

pub fn run(
    design: &dyn Architecture,
    cluster: Cluster,
    rules: &Rules,
    history: &History,
) -> Result<Spent, CannotHold> {
    let trained: Vec<TrainedJob> =
        history.arrivals.iter().map(|job| rules.trained(job.gpus, cluster.gpus_per_node)).collect();
    let failed = design.failed_nodes();
    let mut fleet = Fleet {
        rules,
        state: design.usable_under(rules.policy, rules.spares, cluster, rules.tp)?,
        gpus: cluster.gpus(),
        gpus_per_node: cluster.gpus_per_node,
        healthy: cluster.gpus() - failed.len() as u32 * cluster.gpus_per_node,
        held: 0,
        now: 0,
        jobs: Vec::new(),
        running: BTreeSet::new(),
        waiting: BTreeSet::new(),
        wanted: 0,
        slowed: vec![None; history.slow.len()],
        spent: Spent::default(),
    };
    let window = picoseconds(history.faults.window().0);
    let mut changes = history
        .faults
        .changes()
        .iter()
        .zip(&history.hits)
        .filter(|(change, _)| change.node.0 < cluster.nodes && !failed.contains(&change.node))
        .peekable();
    let mut arrivals = history.arrivals.iter().zip(&trained).peekable();
    let mut slow: Vec<(u64, bool, usize)> = (0..history.slow.len())
        .flat_map(|at| {
            let part = &history.slow[at];
            [(part.from_ms, true, at), (part.until_ms, false, at)]
        })
        .collect();
    slow.sort_unstable();
    let mut slow = slow.into_iter().peekable();
    loop {
        let next_end = fleet.running.iter().map(|id| fleet.jobs[*id as usize].ends).min();
        let next_change = changes.peek().map(|(change, _)| picoseconds(change.at.0));
        let next_arrival = arrivals.peek().map(|(arrival, _)| picoseconds(arrival.at_ms));
        let next_slow = slow.peek().map(|(at, ..)| picoseconds(*at));
        let soonest = [next_end, next_change, next_slow, next_arrival].into_iter().flatten().min();
        let Some(at) = soonest.filter(|at| *at < window) else { break };
        fleet.pass_until(at);
        // At equal times, finished jobs come first, then nodes, slow parts and arrivals.
        if next_end == Some(at) {
            fleet.finish();
        } else if next_change == Some(at) {
            let (change, hit) = changes.next().expect("peeked");
            fleet.change(*change, *hit);
        } else if next_slow == Some(at) {
            let (_, begins, at) = slow.next().expect("peeked");
            fleet.slow(at, &history.slow[at], begins);
        } else if let Some((arrival, job)) = arrivals.next() {
            fleet.arrive(arrival, job);
        }
        fleet.start();
    }
    fleet.pass_until(window);
    Ok(fleet.spent())
}

impl<'a> Fleet<'a> {
    fn pass_until(&mut self, at: i128) {
        let (time, usable) = (at - self.now, self.state.usable_gpus());
        let free = usable - self.held;
        let waiting = free.min(u32::try_from(self.wanted).unwrap_or(u32::MAX));
        self.spent.lose(Cause::UnderRepair, i128::from(self.gpus - self.healthy) * time);
        self.spent.lose(Cause::InNoGroup, i128::from(self.healthy - usable) * time);
        self.spent.lose(Cause::WaitingForNodes, i128::from(waiting) * time);
        self.spent.lose(Cause::IdleSpares, i128::from(free - waiting) * time);
        self.spent.allocated += i128::from(self.held) * time;
        self.now = at;
    }

    fn arrive(&mut self, arrival: &Arrival, job: &'a TrainedJob) {
        let work = (arrival.work_ms as f64 * self.rules.stretch).round().max(1.0);
        let mut training = Training::of(job);
        training.begin();
        let work = work as i128 * MILLISECOND;
        let ends = training.time_to(work);
        let id = self.jobs.len() as u32;
        self.jobs.push(Arrived {
            training,
            work,
            counted: self.now,
            ends,
            hit_at: None,
            moves: 0,
            slow: BTreeMap::new(),
        });
        self.wait(id);
    }

    fn wait(&mut self, id: u32) {
        self.waiting.insert(id);
        self.wanted += self.jobs[id as usize].training.job.gpus;
    }

    fn finish(&mut self) {
        let now = self.now;
        let ended: Vec<u32> =
            self.running.iter().copied().filter(|id| self.jobs[*id as usize].ends == now).collect();
        for id in ended {
            self.running.remove(&id);
            let job = &mut self.jobs[id as usize];
            job.count(now);
            self.held -= job.held();
            self.spent.finished += 1;
        }
    }

    fn change(&mut self, change: Change, hit: f64) {
        match change.health {
            Health::Healthy => {
                self.state.repair(change.node);
                self.healthy += self.gpus_per_node;
            }
            Health::Faulty => {
                let victim = self.holder((hit * f64::from(self.healthy)) as u32);
                let has_spare = self.state.has_spare_for(change.node);
                self.state.fail(change.node);
                self.healthy -= self.gpus_per_node;
                if let Some(id) = victim {
                    self.hit(id, has_spare);
                }
                while self.held > self.state.usable_gpus() {
                    let last = *self.running.last().expect("running jobs hold them");
                    self.stop(last);
                }
            }
        }
    }

    fn holder(&self, place: u32) -> Option<u32> {
        let mut end = 0;
        self.running.iter().copied().find(|id| {
            end += self.jobs[*id as usize].held();
            place < end
        })
    }

    fn slow(&mut self, at: usize, part: &SlowPart, begins: bool) {
        let slowed = match begins {
            true => {
                let id = self.holder((part.place * f64::from(self.healthy)) as u32);
                id.map(|id| (id, self.jobs[id as usize].moves))
            }
            false => self.slowed[at].take(),
        };
        let Some((id, moves)) = slowed.filter(|(id, _)| self.running.contains(id)) else { return };
        let job = &mut self.jobs[id as usize];
        if job.moves != moves {
            return;
        }
        job.count(self.now);
        let longer = (job.training.job.step as f64 * part.slower).round() as i128;
        match begins {
            true => job.slow.insert(at, (part.exchange, longer)),
            false => job.slow.remove(&at),
        };
        job.training.slower = job.slower();
        job.ends = self.now + job.training.time_to(job.work);
        if begins {
            self.slowed[at] = slowed;
        }
    }

    fn hit(&mut self, id: u32, has_spare: bool) {
        let usable = self.state.usable_gpus();
        let job = &mut self.jobs[id as usize];
        job.count(self.now);
        let is_known = job.hit_at.replace(self.now) == Some(self.now);
        self.spent.interruptions += u64::from(!is_known);
        if job.training.is_elastic() {
            loop {
                if !job.leave_out() {
                    return self.stop(id);
                }
                self.held -= job.part();
                if self.held <= usable {
                    break;
                }
            }
        }
        if is_known {
            return;
        }
        // Without a warm spare in the domain, the job cannot migrate.
        let has_none = !has_spare && matches!(self.rules.job.answer, Answer::Migrate { .. });
        let dead = if has_none { job.training.job.replicas.count } else { 1 };
        let step = job.training.in_step().max(1);
        job.training.hit(&[(Cause::Outage, self.rules.outage), (Cause::DoneAgain, step)], dead);
        job.ends = self.now + job.training.time_to(job.work);
    }

    fn stop(&mut self, id: u32) {
        self.running.remove(&id);
        let job = &mut self.jobs[id as usize];
        job.count(self.now);
        self.held -= job.held();
        job.training.stop(usize::MAX);
        job.training.gives_up_nodes();
        job.training.left_out = 0;
        job.slow.clear();
        (job.training.slower, job.moves) = (0, job.moves + 1);
        job.ends = {
            let mut again = job.training.clone();
            again.resume();
            again.time_to(job.work)
        };
        self.spent.stops += 1;
        self.wait(id);
    }

    fn start(&mut self) {
        self.take_up();
        let free = self.state.usable_gpus() - self.held;
        let jobs = &self.jobs;
        let waiting = self.waiting.iter().map(|id| {
            let job = &jobs[*id as usize];
            Waiting { id: *id, gpus: job.training.job.gpus as u32, takes: job.ends }
        });
        let running = self.running.iter().map(|id| {
            let job = &jobs[*id as usize];
            (job.ends, job.held())
        });
        for id in queue::starts(waiting, running, free, self.now) {
            self.waiting.remove(&id);
            self.running.insert(id);
            let job = &mut self.jobs[id as usize];
            self.wanted -= job.training.job.gpus;
            if job.training.waits.is_some() {
                job.training.resume();
            }
            job.counted = self.now;
            job.ends += self.now;
            self.held += job.held();
        }
    }

    fn take_up(&mut self) {
        let Answer::Elastic { rejoin, .. } = self.rules.job.answer else { return };
        for id in &self.running {
            let job = &mut self.jobs[*id as usize];
            let free = (self.state.usable_gpus() - self.held) / job.part();
            let back = free.min(job.training.left_out);
            if back > 0 {
                job.count(self.now);
                job.training.left_out -= back;
                self.held += back * job.part();
                job.training.takes_up(rejoin);
                job.ends = self.now + job.training.time_to(job.work);
            }
        }
    }

    fn spent(mut self) -> Spent {
        for (id, job) in (0..).zip(&mut self.jobs) {
            if self.running.contains(&id) {
                job.count(self.now);
            }
            self.spent.useful += job.training.useful;
            for (cause, time) in &job.training.lost {
                *self.spent.lost.entry(*cause).or_default() += time;
            }
        }
        self.spent
    }
}
