// SPDX-License-Identifier: Apache-2.0
//! Communication tasks, and the overlap of data-parallel communication with passes.

use lightloom_units::Bytes;

use super::{Front, Maker, StagePass, join};
use crate::graph::{TaskId, TaskPace, TaskWork};
use crate::network::Group;
use crate::program::Exchange;
use crate::schedule::PassKind;
use crate::work::Bucket;

fn groups(ranks: u64, of: Group) -> impl Iterator<Item = Vec<u32>> {
    (0..ranks)
        .filter(move |rank| (rank / of.stride).is_multiple_of(of.size))
        .map(move |first| (0..of.size).map(|at| (first + at * of.stride) as u32).collect())
}

impl Maker<'_> {
    pub(super) fn exchange(&mut self, stage: u32, what: &Exchange, front: Front) -> Front {
        if what.is_empty() {
            return front;
        }
        let jitter = 1.0 + self.work.jitter;
        let bytes = Bytes((what.bytes * jitter) as u64);
        let pace = TaskPace::of(&what.pace.part(jitter));
        let tensor = self.work.mapping.tensor;
        let purpose = what.purpose;
        if let Some(kind) = what.kind
            && what.group == Group::new(tensor.into(), 1)
        {
            let lanes = front.into_iter().enumerate().map(|(lane, after)| {
                let ring = self.ring(stage, lane as u32);
                let work = TaskWork::Ring { kind, ring, bytes };
                vec![self.add(purpose, name(what, stage, lane as u32), after, work, pace)]
            });
            return lanes.collect();
        }
        let first = self.ring(stage, 0) * tensor;
        let ranks = u64::from(self.lanes * tensor);
        let mut after: Front = vec![Vec::new(); front.len()];
        // A group within one rail represents the corresponding groups of all rails.
        let cut = groups(ranks, what.group).filter(|group| {
            !what.group.stride.is_multiple_of(tensor.into()) || group[0] % tensor < self.rails
        });
        let cut: Vec<Vec<u32>> = cut.collect();
        for group in cut {
            let Some(kind) = what.kind else {
                for (at, from) in group.iter().enumerate() {
                    let to = group[(at + 1) % group.len()];
                    let before = front[(from / tensor) as usize].clone();
                    let work = TaskWork::Transfer { from: first + from, to: first + to, bytes };
                    let sent = self.add(purpose, name(what, stage, *from), before, work, pace);
                    after[(to / tensor) as usize].push(sent);
                }
                continue;
            };
            let mut lanes: Vec<usize> = group.iter().map(|rank| (rank / tensor) as usize).collect();
            lanes.dedup();
            let mut before: Vec<TaskId> =
                lanes.iter().flat_map(|lane| front[*lane].iter().copied()).collect();
            before.sort_unstable();
            before.dedup();
            let all = group.iter().map(|rank| first + rank).collect();
            let work = TaskWork::Across { kind, ranks: all, bytes };
            let task = self.add(purpose, name(what, stage, group[0]), before, work, pace);
            lanes.iter().for_each(|lane| after[*lane].push(task));
        }
        for (own, before) in after.iter_mut().zip(front) {
            if own.is_empty() {
                *own = before;
            }
        }
        after
    }

    pub(super) fn hand_on(&mut self, stage: u32, to: u32, what: &Exchange, end: &Front) -> Front {
        if what.bytes < 1.0 {
            return end.clone();
        }
        let jitter = 1.0 + self.work.jitter;
        let bytes = Bytes((what.bytes * jitter) as u64);
        let pace = TaskPace::of(&what.pace.part(jitter));
        let tensor = self.work.mapping.tensor;
        let lanes = end.iter().enumerate().map(|(lane, end)| {
            let [from, to] = [stage, to].map(|stage| self.ring(stage, lane as u32) * tensor);
            (0..self.rails)
                .map(|rail| {
                    let name = format!("transfer s{stage} lane {lane} rail {rail}");
                    let work = TaskWork::Transfer { from: from + rail, to: to + rail, bytes };
                    self.add(what.purpose, name, end.clone(), work, pace)
                })
                .collect()
        });
        lanes.collect()
    }

    pub(super) fn bucket(&mut self, stage: u32, of: &Bucket, layers: f64, front: Front) -> Front {
        of.iter().fold(front, |front, one| self.exchange(stage, &one.part(layers), front))
    }

    fn gathers(&self, slot: StagePass) -> bool {
        let is_first = slot.pass.kind == PassKind::Forward && slot.pass.micro_batch == 0;
        let is_hidden = self.work.data_shown < 1.0;
        !self.work.gather.is_empty() && (self.work.is_sharded || is_first && is_hidden)
    }

    /// Returns how many layers' passes overlap with data-parallel communication, in total and before this pass.
    fn shared_out(&self, slot: StagePass, layers: usize) -> (f64, f64) {
        if self.work.is_sharded {
            return (layers as f64, 0.0);
        }
        let all = self.stage_layers(slot.stage) as f64;
        let before = if slot.pass.kind == PassKind::Forward {
            slot.pass.piece
        } else {
            self.work.mapping.virtual_stages as usize - 1 - slot.pass.piece
        };
        (all, (before * layers) as f64)
    }

    pub(super) fn gathered(&mut self, slot: StagePass, layers: &[u32], front: Front) -> Front {
        if !self.gathers(slot) {
            return front;
        }
        let work = self.work;
        let (all, before) = self.shared_out(slot, layers.len());
        let shown = work.data_shown * all;
        let stage = slot.stage as usize;
        if work.is_sharded {
            self.streams[stage].clone_from(&front);
        }
        let mut front = front;
        let mut stream = std::mem::take(&mut self.streams[stage]);
        if before == 0.0 {
            stream = self.bucket(slot.stage, &work.gather, shown, stream);
            front = join(front, &stream);
        }
        let mut weights = Vec::new();
        for at in 0..layers.len() {
            let hidden = (before + at as f64 + 1.0 - shown).clamp(0.0, 1.0);
            stream = self.bucket(slot.stage, &work.gather, hidden, stream);
            weights.push(stream.clone());
        }
        self.streams[stage] = stream;
        self.weights = weights;
        front
    }

    pub(super) fn wait_for_weights(&mut self, slot: StagePass, at: usize, front: Front) -> Front {
        if !self.gathers(slot) {
            return front;
        }
        self.weights.get(at).map_or_else(|| front.clone(), |weights| join(front.clone(), weights))
    }

    pub(super) fn reduced(
        &mut self,
        slot: StagePass,
        at: usize,
        layers: usize,
        front: Front,
    ) -> Front {
        let work = self.work;
        let is_last = slot.pass.micro_batch as u64 + 1 == work.micro_batches;
        if !(work.is_sharded || is_last) {
            return front;
        }
        let (all, before) = self.shared_out(slot, layers);
        let hidden = (all * (1.0 - work.data_shown) - before - at as f64).clamp(0.0, 1.0);
        let stage = slot.stage as usize;
        let stream = join(std::mem::take(&mut self.streams[stage]), &front);
        self.streams[stage] = self.bucket(slot.stage, &work.reduce, hidden, stream);
        front
    }

    pub(super) fn shown_gradients(&mut self, stage: u32, layers: usize, front: Front) -> Front {
        let work = self.work;
        let stream = std::mem::take(&mut self.streams[stage as usize]);
        let front = join(front, &stream);
        let front = self.bucket(stage, &work.reduce, work.data_shown * layers as f64, front);
        self.streams[stage as usize] = front.clone();
        front
    }
}

fn name(what: &Exchange, stage: u32, at: u32) -> String {
    let kind = what.kind.map_or("block", |kind| kind.name());
    format!("{:?} {kind} s{stage} {at}", what.purpose).to_lowercase()
}
