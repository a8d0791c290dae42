// SPDX-License-Identifier: Apache-2.0
//! Converts a recorded step to other sizes of TP, DP and EP.
//!
//! Rank numbers are `(stage · DP + replica) · TP + place`; an EP group consists of EP consecutive
//! replicas of one stage. Replicas do equal work, so a new replica copies a recorded one with the
//! same place in its EP group, and the batch grows with DP. Groups change as follows:
//!
//! * An EP group spans all its new replicas, with the same bytes per rank.
//! * A group over all replicas spans the new ones, with the same bytes.
//! * A group of ranks with equal experts has one member per EP group, with the bytes of a rank's
//!   experts in the new layout.
//!
//! Matrix products and all communication outside a TP group are divided by its size; communication
//! inside it is unchanged. If TP shrinks, the remaining rails of a group carry the traffic of all
//! rails. The number of stages does not change.

use std::collections::BTreeMap;

use lightloom_collective::CollectiveKind;
use lightloom_units::{Bytes, Picoseconds};

use super::graph::{GraphError, Task, TaskGraph, TaskId, TaskWork};
use super::recorded::Recorded;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankLayout {
    pub tensor: u32,
    pub data: u32,
    /// Replicas that share experts; a divisor of `data`.
    pub expert: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum RescaleError {
    #[error("{ranks} ranks are not a multiple of {data} replicas of TP {tensor}")]
    Stages { ranks: u32, data: u32, tensor: u32 },
    #[error("EP {expert} does not divide DP {data}")]
    Expert { expert: u32, data: u32 },
    #[error("a step of {what} 1 was recorded, so it has no communication to scale")]
    One { what: &'static str },
    #[error(
        "`{task}` spans replicas {replicas:?}, which are neither one replica, all of DP {data}, \
         an EP group of {expert}, nor one per EP group; specify the layout of the recorded ranks"
    )]
    Group { task: String, replicas: Vec<u32>, data: u32, expert: u32 },
    #[error(transparent)]
    Graph(#[from] GraphError),
}

#[derive(Clone, Copy)]
enum LayoutSpan {
    Own(u32),
    All,
    Experts(u32),
    Equal(u32),
}

struct Rescale {
    from: RankLayout,
    to: RankLayout,
}

impl Recorded {
    /// Fails if a layout is invalid or a group of the recording does not match `from`.
    pub fn rescaled(&self, from: RankLayout, to: RankLayout) -> Result<Self, RescaleError> {
        for RankLayout { data, expert, .. } in [from, to] {
            if expert == 0 || data == 0 || !data.is_multiple_of(expert) {
                return Err(RescaleError::Expert { expert, data });
            }
        }
        for (what, from, to) in [("DP", from.data, to.data), ("EP", from.expert, to.expert)] {
            if from == 1 && to > 1 {
                return Err(RescaleError::One { what });
            }
        }
        let stage = from.tensor.saturating_mul(from.data);
        let ranks = self.ranks.next_multiple_of(from.tensor.max(1));
        if stage == 0 || !ranks.is_multiple_of(stage) {
            let RankLayout { data, tensor, .. } = from;
            return Err(RescaleError::Stages { ranks, data, tensor });
        }
        let mut rescaled = Rescale { from, to }.tasks(self)?;
        rescaled.ranks = ranks / stage * to.tensor * to.data;
        Ok(rescaled)
    }
}

impl Rescale {
    fn tasks(&self, step: &Recorded) -> Result<Recorded, RescaleError> {
        let tasks = step.graph.tasks();
        let (mut made, mut took, mut parts) = (Vec::<Task>::new(), Vec::new(), Vec::new());
        let mut of: BTreeMap<(usize, u32), TaskId> = BTreeMap::new();
        let mut members: Vec<(usize, Vec<u32>)> = Vec::new();
        for (place, task) in tasks.iter().enumerate() {
            let span = self.span(task)?;
            for replicas in self.new_groups(span) {
                let id = TaskId(made.len() as u32);
                let (work, time) = self.work(&task.work, span, &replicas, step.took[place]);
                of.extend(replicas.iter().map(|replica| ((place, *replica), id)));
                made.push(Task { name: task.name.clone(), after: Vec::new(), work });
                took.push(time);
                parts.push(step.parts[place]);
                members.push((place, replicas));
            }
        }
        for (task, (place, replicas)) in made.iter_mut().zip(&members) {
            for before in &tasks[*place].after {
                let same = replicas.iter().filter_map(|own| of.get(&(before.index(), *own)));
                task.after.extend(same);
            }
            task.after.sort_unstable();
            task.after.dedup();
        }
        Ok(Recorded { graph: TaskGraph::new(made)?, took, parts, ..step.clone() })
    }

    fn source(&self, replica: u32) -> u32 {
        let (from, to) = (self.from, self.to);
        let group = replica / to.expert % (from.data / from.expert);
        group * from.expert + replica % to.expert % from.expert
    }

    fn span(&self, task: &Task) -> Result<LayoutSpan, RescaleError> {
        let RankLayout { tensor, data, expert } = self.from;
        let replica = |rank: &u32| rank / tensor % data;
        let mut replicas: Vec<u32> = match &task.work {
            TaskWork::Compute { rank, .. } => vec![replica(rank)],
            TaskWork::Ring { ring, .. } => vec![ring % data],
            TaskWork::Across { ranks, .. } | TaskWork::Pairs { ranks, .. } => {
                ranks.iter().map(replica).collect()
            }
            TaskWork::Transfer { from, to, .. } => vec![replica(from), replica(to)],
        };
        replicas.sort_unstable();
        replicas.dedup();
        let first = replicas.first().copied().unwrap_or(0);
        let are = |step: u32| replicas.windows(2).all(|pair| pair[1] - pair[0] == step);
        let count = replicas.len() as u32;
        if count <= 1 {
            Ok(LayoutSpan::Own(first))
        } else if count == expert && first.is_multiple_of(expert) && are(1) {
            Ok(LayoutSpan::Experts(first / expert))
        } else if count == data {
            Ok(LayoutSpan::All)
        } else if expert > 1 && count == data / expert && are(expert) {
            Ok(LayoutSpan::Equal(first % expert))
        } else {
            let task = task.name.clone();
            Err(RescaleError::Group { task, replicas, data, expert })
        }
    }

    fn new_groups(&self, span: LayoutSpan) -> Vec<Vec<u32>> {
        let (from, to) = (self.from, self.to);
        let all = 0..to.data;
        let group = |first: u32| (first..first + to.expert).collect();
        match span {
            LayoutSpan::Own(own) => {
                all.filter(|new| self.source(*new) == own).map(|new| vec![new]).collect()
            }
            LayoutSpan::All => vec![all.collect()],
            LayoutSpan::Experts(old) => {
                let firsts = all.step_by(to.expert as usize);
                firsts.filter(|first| self.source(*first) / from.expert == old).map(group).collect()
            }
            LayoutSpan::Equal(old) => {
                let places = (0..to.expert).filter(|place| place % from.expert == old);
                places.map(|place| (place..to.data).step_by(to.expert as usize).collect()).collect()
            }
        }
    }

    fn work(
        &self,
        work: &TaskWork,
        span: LayoutSpan,
        replicas: &[u32],
        took: Picoseconds,
    ) -> (TaskWork, Picoseconds) {
        let (from, to) = (self.from, self.to);
        let ratio = f64::from(from.tensor) / f64::from(to.tensor);
        let ring = |old: u32, replica: u32| old / from.data * to.data + replica;
        let first = replicas[0];
        let renumber = |rank: u32, replica: u32| {
            let rail = rank % from.tensor;
            (rail < to.tensor).then(|| ring(rank / from.tensor, replica) * to.tensor + rail)
        };
        let nothing = |old_ring: u32| {
            let rank = ring(old_ring, first) * to.tensor;
            (TaskWork::Compute { rank, took: Picoseconds::ZERO }, Picoseconds::ZERO)
        };
        let scaled = |bytes: Bytes, ratio: f64| Bytes(((bytes.0 as f64 * ratio) as u64).max(1));
        match work {
            TaskWork::Compute { rank, took: own } => {
                let rail = (rank % from.tensor).min(to.tensor - 1);
                let rank = ring(rank / from.tensor, first) * to.tensor + rail;
                let took = Picoseconds((own.0 as f64 * ratio) as u64);
                (TaskWork::Compute { rank, took }, took)
            }
            TaskWork::Ring { kind, ring: old, bytes } if to.tensor > 1 => {
                let ring = ring(*old, first);
                (TaskWork::Ring { kind: *kind, ring, bytes: *bytes }, took)
            }
            TaskWork::Ring { ring, .. } => nothing(*ring),
            TaskWork::Transfer { from: sender, to: receiver, bytes } => {
                match (renumber(*sender, first), renumber(*receiver, first)) {
                    (Some(from), Some(to)) => {
                        (TaskWork::Transfer { from, to, bytes: scaled(*bytes, ratio) }, took)
                    }
                    _ => nothing(sender / from.tensor),
                }
            }
            TaskWork::Pairs { ranks, bytes } => {
                let mean = bytes.iter().sum::<u64>() / ranks.len().max(1) as u64;
                let (kind, ranks) = (CollectiveKind::AllToAll, ranks.clone());
                let even = TaskWork::Across { kind, ranks, bytes: Bytes(mean) };
                self.work(&even, span, replicas, took)
            }
            TaskWork::Across { kind, ranks, bytes } => {
                let experts = f64::from(from.expert) / f64::from(to.expert);
                let share = if matches!(span, LayoutSpan::Equal(_)) { experts } else { 1.0 };
                let replica = |rank: u32| rank / from.tensor % from.data;
                let own = ranks.iter().filter(|rank| replica(**rank) == replica(ranks[0]));
                let new = own.flat_map(|rank| replicas.iter().map(|new| renumber(*rank, *new)));
                match new.collect::<Option<Vec<u32>>>() {
                    Some(ranks) if ranks.len() > 1 => {
                        let bytes = scaled(*bytes, ratio * share);
                        (TaskWork::Across { kind: *kind, ranks, bytes }, took)
                    }
                    _ => nothing(ranks[0] / from.tensor),
                }
            }
        }
    }
}
