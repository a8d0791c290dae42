// SPDX-License-Identifier: Apache-2.0
//! Jobs over months of faults on one design: who holds which GPUs, and what became of every GPU-millisecond.
//!
//! Jobs start in the order of their arrival, each when as many GPUs in full groups are free as it wants; the
//! first that does not fit holds the others back. A faulty node stops the job that holds it: the work
//! since the last checkpoint is lost, and the job goes before all that arrived later. Where groups are
//! lost, the jobs that arrived last stop until the others fit. A stop by another job's fault costs the same.

use std::collections::BTreeMap;

use lightloom_fabric::trace::{Change, Health, Timeline};

use crate::architecture::{Architecture, CannotHold, Cluster, FaultPolicy, UsableGpus};

/// A job that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in milliseconds.
    pub at_ms: u64,
    /// GPUs it holds.
    pub gpus: u32,
    /// Milliseconds of its steps on the reference network.
    pub work_ms: u64,
}

/// What happens to every design alike.
#[derive(Clone, Debug)]
pub struct History {
    /// Nodes that fail and come back.
    pub faults: Timeline,
    /// For every change of `faults`, which of the healthy GPUs a fault hits: from 0 to 1 along the running jobs.
    pub hits: Vec<f64>,
    /// Jobs in order of arrival.
    pub arrivals: Vec<Arrival>,
}

/// How jobs run on a design.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// GPUs of a group.
    pub tp: u32,
    /// The policy.
    pub policy: FaultPolicy,
    /// Time of a step ÷ time on the reference network.
    pub stretch: f64,
    /// Milliseconds from a start to the first step.
    pub restart_ms: u64,
    /// Milliseconds of work between checkpoints.
    pub checkpoint_every_ms: u64,
    /// Milliseconds of a checkpoint.
    pub checkpoint_ms: u64,
}

/// GPU-milliseconds by what became of them, and what was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// In steps that count.
    pub useful: u64,
    /// In steps that are lost, and unfinished checkpoints.
    pub redone: u64,
    /// From a start to the first step.
    pub restarting: u64,
    /// Writing checkpoints.
    pub checkpoint: u64,
    /// Free while a job waits.
    pub waiting: u64,
    /// Free while none does.
    pub idle: u64,
    /// Healthy, in no full group.
    pub fragmented: u64,
    /// On faulty nodes.
    pub faulty: u64,
    /// Jobs that finished.
    pub finished: u32,
    /// Jobs that lost work.
    pub interruptions: u64,
}

impl Spent {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.useful
            + self.redone
            + self.restarting
            + self.checkpoint
            + self.waiting
            + self.idle
            + self.fragmented
            + self.faulty
    }
}

/// A job that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    gpus: u32,
    since_ms: u64,
    left_ms: u64,
    ends_ms: u64,
}

/// How a stretch of running ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Finished,
    Stopped,
    Window,
}

struct Simulation<'a> {
    rules: &'a Rules,
    state: Box<dyn UsableGpus>,
    gpus: u32,
    gpus_per_node: u32,
    healthy: u32,
    held: u32,
    now_ms: u64,
    /// By number of arrival.
    running: BTreeMap<u32, Running>,
    /// GPUs and milliseconds left of those that wait.
    waiting: BTreeMap<u32, (u32, u64)>,
    spent: Spent,
}

/// Runs a history on a design.
///
/// # Errors
/// If the design never holds the groups.
pub fn run(
    design: &dyn Architecture,
    cluster: Cluster,
    rules: &Rules,
    history: &History,
) -> Result<Spent, CannotHold> {
    let mut simulation = Simulation {
        rules,
        state: design.usable_under(rules.policy, cluster, rules.tp)?,
        gpus: cluster.gpus(),
        gpus_per_node: cluster.gpus_per_node,
        healthy: cluster.gpus(),
        held: 0,
        now_ms: 0,
        running: BTreeMap::new(),
        waiting: BTreeMap::new(),
        spent: Spent::default(),
    };
    let window = history.faults.window().0;
    let mut changes = history
        .faults
        .changes()
        .iter()
        .zip(&history.hits)
        .filter(|(change, _)| change.node.0 < cluster.nodes)
        .peekable();
    let mut arrivals = (0..).zip(&history.arrivals).peekable();
    loop {
        let next_end = simulation.running.values().map(|job| job.ends_ms).min();
        let next_change = changes.peek().map(|(change, _)| change.at.0);
        let next_arrival = arrivals.peek().map(|(_, arrival)| arrival.at_ms);
        let soonest = [next_end, next_change, next_arrival].into_iter().flatten().min();
        let Some(at) = soonest.filter(|at| *at < window) else { break };
        simulation.pass_until(at);
        // Of one instant: jobs that finish, then nodes, then arrivals.
        if next_end == Some(at) {
            simulation.finish();
        } else if next_change == Some(at) {
            let (change, hit) = changes.next().expect("peeked");
            simulation.change(*change, *hit);
        } else if let Some((number, arrival)) = arrivals.next() {
            let work = (arrival.work_ms as f64 * rules.stretch).round() as u64;
            simulation.waiting.insert(number, (arrival.gpus, work.max(1)));
        }
        simulation.start();
    }
    simulation.pass_until(window);
    for job in std::mem::take(&mut simulation.running).into_values() {
        simulation.charge(&job, End::Window);
    }
    Ok(simulation.spent)
}

impl Simulation<'_> {
    fn pass_until(&mut self, at_ms: u64) {
        let spent_ms = at_ms - self.now_ms;
        let usable = self.state.usable_gpus();
        let gpu_ms = |gpus: u32| u64::from(gpus) * spent_ms;
        self.spent.faulty += gpu_ms(self.gpus - self.healthy);
        self.spent.fragmented += gpu_ms(self.healthy - usable);
        let free = gpu_ms(usable - self.held);
        match self.waiting.is_empty() {
            true => self.spent.idle += free,
            false => self.spent.waiting += free,
        }
        self.now_ms = at_ms;
    }

    /// Every job that ends now.
    fn finish(&mut self) {
        let now = self.now_ms;
        let ended: Vec<u32> =
            self.running.iter().filter(|(_, job)| job.ends_ms == now).map(|(id, _)| *id).collect();
        for id in ended {
            let job = self.running.remove(&id).expect("it runs");
            self.held -= job.gpus;
            self.charge(&job, End::Finished);
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
                if let Some(id) = self.holder((hit * f64::from(self.healthy)) as u32) {
                    self.stop(id);
                }
                self.state.fail(change.node);
                self.healthy -= self.gpus_per_node;
                while self.held > self.state.usable_gpus() {
                    let last = *self.running.last_key_value().expect("running jobs hold them").0;
                    self.stop(last);
                }
            }
        }
    }

    /// The job that holds the GPU at `place` along the jobs in order of arrival.
    fn holder(&self, place: u32) -> Option<u32> {
        let mut end = 0;
        self.running.iter().find_map(|(id, job)| {
            end += job.gpus;
            (place < end).then_some(*id)
        })
    }

    fn stop(&mut self, id: u32) {
        let job = self.running.remove(&id).expect("it runs");
        self.held -= job.gpus;
        let left = self.charge(&job, End::Stopped);
        self.waiting.insert(id, (job.gpus, left));
        self.spent.interruptions += 1;
    }

    fn start(&mut self) {
        let Rules { restart_ms, checkpoint_every_ms, checkpoint_ms, .. } = *self.rules;
        while let Some((&id, &(gpus, left_ms))) = self.waiting.first_key_value() {
            if self.held + gpus > self.state.usable_gpus() {
                return;
            }
            self.waiting.remove(&id);
            self.held += gpus;
            let checkpoints = (left_ms - 1) / checkpoint_every_ms;
            let ends_ms = self.now_ms + restart_ms + left_ms + checkpoints * checkpoint_ms;
            self.running.insert(id, Running { gpus, since_ms: self.now_ms, left_ms, ends_ms });
        }
    }

    /// Accounts for what a job did since it started; the work that is left.
    fn charge(&mut self, job: &Running, end: End) -> u64 {
        let Rules { restart_ms, checkpoint_every_ms, checkpoint_ms, .. } = *self.rules;
        let elapsed = self.now_ms - job.since_ms;
        let restarting = elapsed.min(restart_ms);
        let cycle = checkpoint_every_ms + checkpoint_ms;
        let (whole, rest) = ((elapsed - restarting) / cycle, (elapsed - restarting) % cycle);
        let rest_work = rest.min(checkpoint_every_ms);
        let gpu_ms = |ms: u64| u64::from(job.gpus) * ms;
        let spent = &mut self.spent;
        spent.restarting += gpu_ms(restarting);
        spent.checkpoint += gpu_ms(whole * checkpoint_ms);
        spent.useful += gpu_ms(whole * checkpoint_every_ms);
        if end == End::Stopped {
            spent.redone += gpu_ms(rest);
        } else {
            spent.useful += gpu_ms(rest_work);
            spent.checkpoint += gpu_ms(rest - rest_work);
        }
        job.left_ms - whole * checkpoint_every_ms
    }
}
