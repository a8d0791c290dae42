// SPDX-License-Identifier: Apache-2.0
//! Tracks which replicas of elastic jobs are left out after node failures, and when they are ready again.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, LossTable};

/// A job, and its replicas that have GPUs in the node.
type Seat = (usize, Vec<u32>);

#[derive(Clone, Copy, Debug)]
struct LeftOut {
    vacant: usize,
    ready: Option<i128>,
}

pub(super) struct Seats {
    of_node: Vec<Option<Seat>>,
    broken: BTreeSet<usize>,
    vacant: Vec<Seat>,
    left_out: BTreeMap<(usize, u32), LeftOut>,
    start: Vec<Option<i128>>,
}

impl Seats {
    pub(super) fn of(table: &LossTable) -> Self {
        let nodes = (table.gpus / table.gpus_per_node.max(1)) as usize;
        let mut of_node: Vec<Option<Seat>> = Vec::new();
        let start = table.jobs.iter().map(|job| match job.policy.answer {
            Answer::Elastic { start, .. } => Some(start),
            _ => None,
        });
        let start: Vec<_> = start.collect();
        for (at, job) in table.jobs.iter().enumerate().filter(|(at, _)| start[*at].is_some()) {
            of_node.resize(of_node.len().max(job.replicas.of_node.len()), None);
            let nodes = job.replicas.of_node.iter().enumerate();
            for (node, replicas) in nodes.filter(|(_, replicas)| !replicas.is_empty()) {
                of_node[node] = Some((at, replicas.clone()));
            }
        }
        of_node.resize(of_node.len().max(nodes), None);
        Self {
            of_node,
            broken: BTreeSet::new(),
            vacant: Vec::new(),
            left_out: BTreeMap::new(),
            start,
        }
    }

    pub(super) fn fails(&mut self, node: usize) -> Option<(usize, bool)> {
        self.broken.insert(node);
        let (job, replicas) = self.of_node.get_mut(node)?.take()?;
        let mut is_news = false;
        for replica in &replicas {
            let out = self.left_out.entry((job, *replica)).or_insert_with(|| {
                is_news = true;
                LeftOut { vacant: 0, ready: None }
            });
            out.vacant += 1;
            out.ready = None;
        }
        self.vacant.push((job, replicas));
        Some((job, is_news))
    }

    pub(super) fn works_again(&mut self, node: usize) {
        self.broken.remove(&node);
    }

    pub(super) fn fill(&mut self, mut idle: usize, now: i128) {
        while idle > 0 && !self.vacant.is_empty() {
            let free = (0..self.of_node.len())
                .find(|node| self.of_node[*node].is_none() && !self.broken.contains(node));
            let Some(node) = free else { return };
            let (job, replicas) = self.vacant.remove(0);
            for replica in &replicas {
                let Some(out) = self.left_out.get_mut(&(job, *replica)) else { continue };
                out.vacant -= 1;
                if out.vacant == 0 {
                    out.ready = self.start[job].map(|start| now + start);
                }
            }
            self.of_node[node] = Some((job, replicas));
            idle -= 1;
        }
    }

    pub(super) fn next_ready(&self) -> Option<i128> {
        self.left_out.values().filter_map(|out| out.ready).min()
    }

    pub(super) fn take_up(&mut self, now: i128) -> BTreeSet<usize> {
        let ready = self.left_out.iter();
        let ready = ready.filter(|(_, out)| out.ready.is_some_and(|ready| ready <= now));
        let ready: Vec<(usize, u32)> = ready.map(|(key, _)| *key).collect();
        for key in &ready {
            self.left_out.remove(key);
        }
        ready.into_iter().map(|(job, _)| job).collect()
    }

    pub(super) fn begins_again(&mut self, job: usize) {
        self.left_out.retain(|(of, _), out| *of != job || out.vacant > 0);
    }

    pub(super) fn left_out(&self, job: usize) -> (u32, u32) {
        let of = self.left_out.iter().filter(|((of, _), _)| *of == job);
        of.fold((0, 0), |(all, without), (_, out)| (all + 1, without + u32::from(out.vacant > 0)))
    }

    pub(super) fn vacant(&self, job: usize) -> usize {
        self.vacant.iter().filter(|(of, _)| *of == job).count()
    }
}
