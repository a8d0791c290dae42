// SPDX-License-Identifier: Apache-2.0
//! Adds the tasks that send data between ranks: TP, CP, EP and DP communication, and transfers
//! between stages.

use lightloom_collective::CollectiveKind;
use lightloom_units::Bytes;

use super::{Front, Maker, TaskPurpose, groups};
use crate::calibration::ZeroStage;
use crate::graph::{TaskId, TaskWork};
use crate::network::Group;
use crate::schedule::Pass;

impl Maker<'_> {
    pub(super) fn tensor_exchange(
        &mut self,
        kind: CollectiveKind,
        stage: u32,
        pass: Pass,
        front: Front,
    ) -> Front {
        if self.job.mapping.tensor == 1 {
            return front;
        }
        let bytes = Bytes(self.pieces.exchange_bytes as u64);
        let micro = pass.micro_batch;
        let lanes = front.into_iter().enumerate().map(|(lane, after)| {
            let ring = self.ring(stage, lane as u32);
            let name = format!("TP {} s{stage} lane {lane} m{micro}", kind.name());
            vec![self.add(TaskPurpose::Tensor, name, after, TaskWork::Ring { kind, ring, bytes })]
        });
        lanes.collect()
    }

    /// Adds ring attention: each block of keys and values is forwarded while it is processed.
    pub(super) fn core_in_blocks(
        &mut self,
        stage: u32,
        pass: Pass,
        seconds: f64,
        bytes: Bytes,
        front: Front,
    ) -> Front {
        let context = self.job.mapping.context;
        let share = seconds / f64::from(context);
        let mut held = front.clone();
        let mut worked = self.compute("core", stage, pass, share, front);
        for _ in 1..context {
            let mut arrived: Front = vec![Vec::new(); self.lanes as usize];
            for lane in 0..self.lanes {
                let next = lane / context * context + (lane + 1) % context;
                for rail in 0..self.rails {
                    let (from, to) = (self.rank(stage, lane, rail), self.rank(stage, next, rail));
                    let name = format!("CP block s{stage} lane {lane} rail {rail}");
                    let after = held[lane as usize].clone();
                    let work = TaskWork::Transfer { from, to, bytes };
                    let sent = self.add(TaskPurpose::Context, name, after, work);
                    arrived[next as usize].push(sent);
                }
            }
            held.clone_from(&arrived);
            for (front, block) in worked.iter_mut().zip(arrived) {
                front.extend(block);
            }
            worked = self.compute("core", stage, pass, share, worked);
        }
        worked
    }

    /// Adds one all-to-all of EP if the experts span several lanes.
    pub(super) fn experts(
        &mut self,
        what: &str,
        stage: u32,
        is_expert: bool,
        front: Front,
    ) -> Front {
        let expert = self.job.mapping.expert;
        if !is_expert || expert == 1 {
            return front;
        }
        let cut: Vec<Vec<u32>> = groups(self.lanes, expert, 1).collect();
        let bytes = self.pieces.expert_bytes;
        let what = format!("EP {what}");
        self.across(
            (TaskPurpose::Expert, &what),
            CollectiveKind::AllToAll,
            stage,
            &cut,
            bytes,
            front,
        )
    }

    /// Adds a collective on every rail in each set of lanes in `cut`.
    pub(super) fn across(
        &mut self,
        (dimension, what): (TaskPurpose, &str),
        kind: CollectiveKind,
        stage: u32,
        cut: &[Vec<u32>],
        bytes: f64,
        front: Front,
    ) -> Front {
        let mut after = front.clone();
        for lanes in cut.iter().filter(|lanes| lanes.len() > 1) {
            let before: Vec<TaskId> =
                lanes.iter().flat_map(|lane| front[*lane as usize].iter().copied()).collect();
            let tasks: Vec<TaskId> = (0..self.rails)
                .map(|rail| {
                    let ranks = lanes.iter().map(|lane| self.rank(stage, *lane, rail)).collect();
                    let work = TaskWork::Across { kind, ranks, bytes: Bytes(bytes as u64) };
                    let name =
                        format!("{what} {} s{stage} lane {} rail {rail}", kind.name(), lanes[0]);
                    self.add(dimension, name, before.clone(), work)
                })
                .collect();
            for lane in lanes {
                after[*lane as usize].clone_from(&tasks);
            }
        }
        after
    }

    /// Adds the transfers of a pass's result to the next stage in its direction.
    pub(super) fn hand_on(&mut self, stage: u32, to: u32, end: &Front) -> Front {
        if stage == to {
            return end.clone();
        }
        let bytes = Bytes(self.pieces.transfer_bytes as u64);
        let lanes = end.iter().enumerate().map(|(lane, end)| {
            let lane = lane as u32;
            (0..self.rails)
                .map(|rail| {
                    let (from, to) = (self.rank(stage, lane, rail), self.rank(to, lane, rail));
                    let name = format!("transfer s{stage} lane {lane} rail {rail}");
                    let work = TaskWork::Transfer { from, to, bytes };
                    self.add(TaskPurpose::Pipeline, name, end.clone(), work)
                })
                .collect()
        });
        lanes.collect()
    }

    /// Adds the communication between replicas, with the same bytes per weight for replicated
    /// weights and for experts, each in their own groups.
    pub(super) fn replicas(
        &mut self,
        kind: CollectiveKind,
        stage: u32,
        bytes_each: f64,
        front: Front,
    ) -> Front {
        let (dense, experts) = self.pieces.weights;
        let expert = self.job.mapping.expert;
        let all: Vec<Vec<u32>> = groups(self.lanes, self.lanes, 1).collect();
        let alike: Vec<Vec<u32>> = groups(self.lanes, self.lanes / expert, expert).collect();
        let what = (TaskPurpose::Data, "DP");
        let front = self.spanning(what, kind, stage, &all, dense * bytes_each, front);
        self.spanning(what, kind, stage, &alike, experts * bytes_each, front)
    }

    /// Adds a collective in each set in `cut`. If the sets span domains, there is one ring per rank
    /// of a domain, which crosses to the next domain through that rank's card.
    pub(super) fn spanning(
        &mut self,
        what: (TaskPurpose, &str),
        kind: CollectiveKind,
        stage: u32,
        cut: &[Vec<u32>],
        bytes: f64,
        front: Front,
    ) -> Front {
        let size = cut[0].len();
        if size < 2 || bytes < 1.0 {
            return front;
        }
        let apart = u64::from((cut[0][1] - cut[0][0]) * self.job.mapping.tensor);
        let inside = self.job.network.inside(Group { size: size as u64, stride: apart }) as usize;
        let rings = if inside == size { 1 } else { inside };
        let mut after: Front = vec![Vec::new(); front.len()];
        for first in 0..rings {
            let turned = |lanes: &Vec<u32>| -> Vec<u32> {
                let domains = lanes.chunks(inside);
                domains.flat_map(|lanes| [&lanes[first..], &lanes[..first]].concat()).collect()
            };
            let cut: Vec<Vec<u32>> = cut.iter().map(turned).collect();
            let share = bytes / rings as f64;
            let front = self.across(what, kind, stage, &cut, share, front.clone());
            for (all, ring) in after.iter_mut().zip(front) {
                all.extend(ring);
            }
        }
        after
    }

    /// Gathers the weights before a pass (ZeRO-3).
    pub(super) fn gather_weights(&mut self, stage: u32, front: &mut Front) {
        let software = &self.job.calibration.software;
        if software.sharding == ZeroStage::Everything && self.lanes > 1 {
            let taken = std::mem::take(front);
            *front = self.replicas(CollectiveKind::AllGather, stage, 2.0, taken);
        }
    }

    /// Scatters the gradients after a pass (ZeRO-3).
    pub(super) fn scatter_gradients(&mut self, stage: u32, front: Front) -> Front {
        let software = &self.job.calibration.software;
        if software.sharding == ZeroStage::Everything && self.lanes > 1 {
            return self.replicas(
                CollectiveKind::ReduceScatter,
                stage,
                software.gradient_bytes,
                front,
            );
        }
        front
    }
}
