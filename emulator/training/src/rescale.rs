// SPDX-License-Identifier: Apache-2.0
//! A recorded step on other numbers of ranks: TP, DP and EP from what was recorded to what is asked, in one way for all.
//!
//! Rank `(stage · DP + replica) · TP + place`; an EP group is EP replicas in a row of one stage. Replicas do the same work, so
//! a new replica is a copy of a recorded one, at the same place of its EP group: the batch grows with DP. Groups get their
//! new members: an EP group all of its replicas, with as many bytes a rank; a group over all replicas the new ones, with the
//! same bytes; a group of equal experts one member of each EP group, with the bytes of the experts that a rank then has.
//! Matrix products and everything beyond a TP group divide by its size, exchange inside it keeps its size; of the equal
//! rails of a group those that remain carry what all carried. Stages stay as many.

use std::collections::BTreeMap;

use lightloom_units::{Bytes, Picoseconds};

use super::graph::{GraphError, Task, TaskGraph, TaskId, TaskWork};
use super::recorded::Recorded;

/// How the ranks of a step are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankLayout {
    /// Ranks of a TP group.
    pub tensor: u32,
    /// Replicas of a stage.
    pub data: u32,
    /// Replicas that share experts; a divisor of `data`.
    pub expert: u32,
}

/// Why a step cannot have other numbers of ranks.
#[derive(Debug, thiserror::Error)]
pub enum RescaleError {
    /// Ranks that are not so cut.
    #[error("{ranks} ranks are no whole stages of {data} replicas of TP {tensor}")]
    Stages {
        /// Ranks of the step.
        ranks: u32,
        /// Replicas.
        data: u32,
        /// TP.
        tensor: u32,
    },
    /// EP that does not divide the replicas.
    #[error("EP {expert} is no divisor of DP {data}")]
    Expert {
        /// EP.
        expert: u32,
        /// DP.
        data: u32,
    },
    /// One replica, or one that has all experts, was recorded.
    #[error("a step of {what} 1 was recorded: nothing in it says what more exchange")]
    One {
        /// DP or EP.
        what: &'static str,
    },
    /// A group that is none of the layout.
    #[error(
        "`{task}` is of replicas {replicas:?}: neither of one, nor of all of DP {data}, nor of an EP group of {expert}, nor of \
         one in each; say how the recorded ranks are cut"
    )]
    Group {
        /// The task.
        task: String,
        /// Its replicas.
        replicas: Vec<u32>,
        /// DP.
        data: u32,
        /// EP.
        expert: u32,
    },
    /// What came out waits for itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Which replicas a task is of.
#[derive(Clone, Copy)]
enum LayoutSpan {
    /// One.
    Own(u32),
    /// All.
    All,
    /// This EP group.
    Experts(u32),
    /// At this place of each EP group.
    Equal(u32),
}

struct Rescale {
    from: RankLayout,
    to: RankLayout,
}

impl Recorded {
    /// The same step on ranks cut as `to` instead of `from`.
    ///
    /// # Errors
    /// Groups that are none of `from`, and layouts that are none.
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
        let (graph, took) = Rescale { from, to }.tasks(self)?;
        let ranks = ranks / stage * to.tensor * to.data;
        Ok(Self { graph, took, ranks, recorded: self.recorded })
    }
}

impl Rescale {
    fn tasks(&self, step: &Recorded) -> Result<(TaskGraph, Vec<Picoseconds>), RescaleError> {
        let tasks = step.graph.tasks();
        let (mut made, mut took): (Vec<Task>, Vec<Picoseconds>) = (Vec::new(), Vec::new());
        // By recorded task and new replica: the new task.
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
        Ok((TaskGraph::new(made)?, took))
    }

    /// The recorded replica that a new one is a copy of.
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
            TaskWork::Across { ranks, .. } => ranks.iter().map(replica).collect(),
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

    /// The replicas of each new task.
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
                let equal = |place| (place..to.data).step_by(to.expert as usize).collect();
                places.map(equal).collect()
            }
        }
    }

    /// The work of a task of these new replicas, and its time.
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
        // A rail that is no more has no new rank.
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
            TaskWork::Across { kind, ranks, bytes } => {
                let experts = f64::from(from.expert) / f64::from(to.expert);
                let share = if matches!(span, LayoutSpan::Equal(_)) { experts } else { 1.0 };
                // The ranks of one replica stand for those of the others.
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
