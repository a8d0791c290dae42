// SPDX-License-Identifier: Apache-2.0
//! An exchange between ranks, independent of file formats. The meaning of a size depends on the
//! operation and on the program that wrote it. No other module interprets such sizes.
//!
//! | operation | input of a rank | output of a rank | the whole |
//! | --- | --- | --- | --- |
//! | all-reduce, broadcast, reduce, send | whole | whole | the buffer |
//! | all-gather, gather | whole ÷ n | whole | the gathered data |
//! | reduce-scatter, scatter | whole | whole ÷ n | the scattered data |
//! | all-to-all | whole | whole | a rank's data for all ranks |

use std::sync::Arc;

use lightloom_collective::CollectiveKind;
use lightloom_units::Bytes;

use super::graph::{PairBytes, TaskWork};
use super::machine::Machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    Gather,
    ReduceScatter,
    Scatter,
    AllToAll,
    Barrier,
    Send,
    Receive,
}

/// Words in operation names, in lower case without `_` and `-`, most specific first.
const WORDS: &[(&str, Operation)] = &[
    ("allreduce", Operation::AllReduce),
    ("allgather", Operation::AllGather),
    ("reducescatter", Operation::ReduceScatter),
    ("alltoall", Operation::AllToAll),
    ("broadcast", Operation::Broadcast),
    ("barrier", Operation::Barrier),
    ("gather", Operation::Gather),
    ("scatter", Operation::Scatter),
    ("reduce", Operation::Reduce),
    ("send", Operation::Send),
    ("recv", Operation::Receive),
    ("receive", Operation::Receive),
];

impl Operation {
    /// Recognises names such as `nccl:all_to_allv`, `AllReduce` and `REDUCESCATTER`.
    pub fn of_name(name: &str) -> Option<Self> {
        let bare: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let bare = bare.to_ascii_lowercase();
        WORDS.iter().find(|(word, _)| bare.contains(word)).map(|(_, operation)| *operation)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
            Self::AllGather => "all-gather",
            Self::Gather => "gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Scatter => "scatter",
            Self::AllToAll => "all-to-all",
            Self::Barrier => "barrier",
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }

    pub const fn is_pairwise(self) -> bool {
        matches!(self, Self::AllToAll)
    }

    pub const fn is_between_two(self) -> bool {
        matches!(self, Self::Send | Self::Receive)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Size of a rank's input, as in Chakra's `comm_size` and PyTorch's input tensors.
    Input(u64),
    Output(u64),
    Count(u64),
    /// Size of the whole buffer, as in nccl-tests, SimAI and [`lightloom_collective`].
    Whole(u64),
}

impl Size {
    pub const fn whole(self, operation: Operation, ranks: u64) -> u64 {
        use Operation::{AllGather, AllToAll, Barrier, Gather, ReduceScatter, Scatter};
        match (operation, self) {
            (Barrier, _) => 0,
            (AllGather | Gather, Self::Input(bytes) | Self::Count(bytes))
            | (ReduceScatter | Scatter, Self::Output(bytes) | Self::Count(bytes))
            | (AllToAll, Self::Count(bytes)) => bytes.saturating_mul(ranks),
            (_, Self::Input(bytes) | Self::Output(bytes) | Self::Count(bytes))
            | (_, Self::Whole(bytes)) => bytes,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub operation: Operation,
    pub members: Vec<u32>,
    /// The whole buffer, as in [`lightloom_collective`].
    pub bytes: u64,
    pub pairs: Option<PairBytes>,
}

impl Exchange {
    pub fn new(operation: Operation, members: Vec<u32>, size: Size) -> Self {
        let bytes = size.whole(operation, members.len() as u64);
        Self { operation, members, bytes, pairs: None }
    }

    pub fn of(work: &TaskWork, machine: &Machine) -> Option<Self> {
        let (operation, pairs) = match work {
            TaskWork::Compute { .. } => return None,
            TaskWork::Transfer { .. } => (Operation::Send, None),
            TaskWork::Pairs { bytes, .. } => (Operation::AllToAll, Some(Arc::clone(bytes))),
            TaskWork::Ring { kind, .. } | TaskWork::Across { kind, .. } => match kind {
                CollectiveKind::AllReduce => (Operation::AllReduce, None),
                CollectiveKind::AllGather => (Operation::AllGather, None),
                CollectiveKind::ReduceScatter => (Operation::ReduceScatter, None),
                CollectiveKind::AllToAll | CollectiveKind::Flows => (Operation::AllToAll, None),
                CollectiveKind::Broadcast => (Operation::Broadcast, None),
            },
        };
        let whole = Size::Whole(work.bytes().0);
        Some(Self { pairs, ..Self::new(operation, work.members(&machine.rings).into(), whole) })
    }

    pub fn input(&self, member: usize) -> u64 {
        let ranks = self.members.len().max(1);
        match (self.operation, &self.pairs) {
            (_, Some(pairs)) => pairs.iter().skip(member * ranks).take(ranks).sum(),
            (Operation::AllGather | Operation::Gather, None) => self.bytes.div_ceil(ranks as u64),
            _ => self.bytes,
        }
    }

    /// Places the exchange on a ring of the high-bandwidth domain if the operation runs on rings.
    pub fn on_ring(&self, ring: u32) -> TaskWork {
        match self.work() {
            TaskWork::Across { kind, bytes, .. }
                if !matches!(kind, CollectiveKind::AllToAll | CollectiveKind::Broadcast) =>
            {
                TaskWork::Ring { kind, ring, bytes }
            }
            work => work,
        }
    }

    /// A reduce is a broadcast in the opposite direction. The first member is the root.
    pub fn work(&self) -> TaskWork {
        let (ranks, bytes) = (self.members.clone(), Bytes(self.bytes));
        let across = |kind| TaskWork::Across { kind, ranks: ranks.clone(), bytes };
        match (self.operation, &self.pairs) {
            (_, Some(pairs)) => TaskWork::Pairs { ranks, bytes: Arc::clone(pairs) },
            (Operation::AllReduce, None) => across(CollectiveKind::AllReduce),
            (Operation::AllGather, None) => across(CollectiveKind::AllGather),
            (Operation::ReduceScatter, None) => across(CollectiveKind::ReduceScatter),
            (Operation::AllToAll, None) => across(CollectiveKind::AllToAll),
            (Operation::Broadcast | Operation::Reduce, None) => across(CollectiveKind::Broadcast),
            (Operation::Barrier, None) => {
                TaskWork::Across { kind: CollectiveKind::AllReduce, ranks, bytes: Bytes(1) }
            }
            (Operation::Gather | Operation::Scatter, None) => {
                let count = ranks.len();
                let piece = self.bytes / count.max(1) as u64;
                let is_gather = self.operation == Operation::Gather;
                let of = |place: usize| {
                    let (from, to) = (place / count, place % count);
                    let (root, other) = if is_gather { (to, from) } else { (from, to) };
                    if root == 0 && other > 0 { piece } else { 0 }
                };
                TaskWork::Pairs { bytes: (0..count * count).map(of).collect(), ranks }
            }
            (Operation::Send | Operation::Receive, None) => {
                let [from, to] = [0, 1].map(|end| ranks.get(end).copied().unwrap_or_default());
                TaskWork::Transfer { from, to, bytes }
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub sent: u64,
    pub received: u64,
    /// Relative amounts sent to each member. Empty if unknown.
    pub parts: Vec<u64>,
}

/// The bytes between members of an uneven all-to-all, or `None` if all are equal. A member without a share gets
/// the mean of all other members. If parts are unknown, members send in the proportion in which they receive.
pub fn pairs(shares: &[Option<Share>]) -> Option<PairBytes> {
    let known: Vec<&Share> = shares.iter().flatten().collect();
    let first = known.first()?;
    let has_parts = known.iter().any(|share| share.parts.windows(2).any(|two| two[0] != two[1]));
    let is_even = |share: &&Share| share.sent == first.sent && share.received == first.sent;
    if known.iter().all(is_even) && !has_parts {
        return None;
    }
    let mean = |of: fn(&Share) -> u64| {
        known.iter().map(|share| of(share)).sum::<u64>() / known.len() as u64
    };
    let missing =
        Share { sent: mean(|it| it.sent), received: mean(|it| it.received), parts: vec![] };
    let share = |member: &Option<Share>| member.clone().unwrap_or_else(|| missing.clone());
    let all: Vec<Share> = shares.iter().map(share).collect();
    let received: Vec<u64> = all.iter().map(|share| share.received).collect();
    let row = |share: &Share| {
        let of = if share.parts.len() == all.len() { &share.parts } else { &received };
        let (sum, sent) = (of.iter().sum::<u64>().max(1), share.sent);
        // Round the sums, so that the parts add up to the total.
        let up_to = |parts: u64| (u128::from(sent) * u128::from(parts) / u128::from(sum)) as u64;
        let mut before = 0;
        let mut row = Vec::with_capacity(of.len());
        for part in of {
            row.push(up_to(before + part) - up_to(before));
            before += part;
        }
        row
    };
    Some(all.iter().flat_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_has_one_meaning_in_every_program() {
        const MIB: u64 = 1 << 20;
        let sized = |operation, size| Exchange::new(operation, (0..8).collect(), size).bytes;
        for size in
            [Size::Input(MIB), Size::Output(8 * MIB), Size::Count(MIB), Size::Whole(8 * MIB)]
        {
            assert_eq!(sized(Operation::AllGather, size), 8 * MIB, "{size:?}");
        }
        for size in [Size::Input(8 * MIB), Size::Output(MIB), Size::Count(MIB)] {
            assert_eq!(sized(Operation::ReduceScatter, size), 8 * MIB, "{size:?}");
        }
        for size in [Size::Input(MIB), Size::Output(MIB), Size::Count(MIB)] {
            assert_eq!(sized(Operation::AllReduce, size), MIB, "{size:?}");
            assert_eq!(sized(Operation::Broadcast, size), MIB, "{size:?}");
        }
        assert_eq!(sized(Operation::AllToAll, Size::Count(MIB)), 8 * MIB);
        assert_eq!(sized(Operation::AllToAll, Size::Input(MIB)), MIB);
        let gather = Exchange::new(Operation::AllGather, (0..8).collect(), Size::Input(MIB));
        assert_eq!(gather.input(3), MIB);
    }

    #[test]
    fn operation_names_of_every_program_are_recognised() {
        for (names, operation) in [
            (["allreduce", "nccl:all_reduce", "ALLREDUCE"], Operation::AllReduce),
            (["_allgather_base", "AllGather", "all_gather_into_tensor"], Operation::AllGather),
            (["_reduce_scatter_base", "ReduceScatter", "REDUCESCATTER"], Operation::ReduceScatter),
            (["all_to_allv", "ALLTOALL", "c10d::alltoall_base_"], Operation::AllToAll),
            (["nccl:recv 3<-0", "c10d::recv_", "recv"], Operation::Receive),
            (["c10d::barrier", "gloo:barrier", "barrier"], Operation::Barrier),
            (["scatter", "c10d::scatter_", "nccl:scatter"], Operation::Scatter),
        ] {
            for name in names {
                assert_eq!(Operation::of_name(name), Some(operation), "{name}");
            }
        }
        assert_eq!(Operation::of_name("nccl:coalesced"), None);
    }

    #[test]
    fn unequal_parts_preserve_bytes_sent_by_each_rank() {
        let share =
            |sent, received, parts: &[u64]| Some(Share { sent, received, parts: parts.to_vec() });
        assert_eq!(pairs(&[share(8, 8, &[]), share(8, 8, &[1, 1]), None]), None);
        let known = pairs(&[share(100, 60, &[1, 4]), share(20, 60, &[4, 1])]);
        assert_eq!(known.as_deref(), Some(&[20, 80, 16, 4][..]));
        let guessed = pairs(&[share(100, 60, &[]), share(20, 60, &[]), None]).expect("uneven");
        assert_eq!(guessed.iter().sum::<u64>(), 100 + 20 + 60);
    }
}
