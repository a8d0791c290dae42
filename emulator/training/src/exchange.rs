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
    Collective(CollectiveKind),
    Reduce,
    Gather,
    Scatter,
    Barrier,
    Send,
    Receive,
}

/// Words in names of other operations than collectives, most specific first.
const WORDS: &[(&str, Operation)] = &[
    ("barrier", Operation::Barrier),
    ("gather", Operation::Gather),
    ("scatter", Operation::Scatter),
    ("reduce", Operation::Reduce),
    ("send", Operation::Send),
    ("recv", Operation::Receive),
    ("receive", Operation::Receive),
];

impl Operation {
    pub const ALL_REDUCE: Self = Self::Collective(CollectiveKind::AllReduce);

    /// Recognises names such as `nccl:all_to_allv`, `AllReduce` and `REDUCESCATTER`.
    pub fn of_name(name: &str) -> Option<Self> {
        let bare: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
        let bare = bare.to_ascii_lowercase();
        let mut kinds = CollectiveKind::NAMED.into_iter();
        if let Some(kind) = kinds.find(|kind| bare.contains(&kind.name().replace('-', ""))) {
            return Some(Self::Collective(kind));
        }
        WORDS.iter().find(|(word, _)| bare.contains(word)).map(|(_, operation)| *operation)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Collective(kind) => kind.name(),
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Barrier => "barrier",
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }

    pub const fn is_pairwise(self) -> bool {
        matches!(self, Self::Collective(kind) if kind.is_pairwise())
    }

    /// Returns whether the input of a rank is only its piece of the whole.
    const fn has_piece_before(self) -> bool {
        matches!(self, Self::Gather)
            || matches!(self, Self::Collective(kind) if kind.has_piece_before())
    }

    /// Returns whether the output of a rank is only its piece of the whole.
    const fn has_piece_after(self) -> bool {
        matches!(self, Self::Scatter)
            || matches!(self, Self::Collective(kind) if kind.has_piece_after())
    }

    /// Returns whether only the output is the same on all ranks in PyTorch's records.
    pub const fn is_sized_by_output(self) -> bool {
        match self {
            Self::Collective(kind) => kind.has_piece_before(),
            _ => matches!(self, Self::Scatter | Self::Receive),
        }
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
        let [before, after] = [operation.has_piece_before(), operation.has_piece_after()];
        let (bytes, is_piece) = match self {
            _ if matches!(operation, Operation::Barrier) => (0, false),
            Self::Input(bytes) => (bytes, before),
            Self::Output(bytes) => (bytes, after),
            Self::Count(bytes) => (bytes, before || after || operation.is_pairwise()),
            Self::Whole(bytes) => (bytes, false),
        };
        if is_piece { bytes.saturating_mul(ranks) } else { bytes }
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
            TaskWork::Pairs { bytes, .. } => {
                (Operation::Collective(CollectiveKind::PAIRWISE), Some(Arc::clone(bytes)))
            }
            TaskWork::Ring { kind, .. } | TaskWork::Across { kind, .. } => match kind {
                CollectiveKind::Flows => (Operation::Collective(CollectiveKind::PAIRWISE), None),
                kind => (Operation::Collective(*kind), None),
            },
        };
        let whole = Size::Whole(work.bytes().0);
        Some(Self { pairs, ..Self::new(operation, work.members(&machine.rings).into(), whole) })
    }

    pub fn input(&self, member: usize) -> u64 {
        let ranks = self.members.len().max(1);
        match (self.operation, &self.pairs) {
            (_, Some(pairs)) => pairs.iter().skip(member * ranks).take(ranks).sum(),
            (operation, None) if operation.has_piece_before() => self.bytes.div_ceil(ranks as u64),
            _ => self.bytes,
        }
    }

    /// Places the exchange on a ring of the high-bandwidth domain if the operation runs on rings.
    pub fn on_ring(&self, ring: u32) -> TaskWork {
        match self.work() {
            TaskWork::Across { kind, bytes, .. } if kind.is_around_a_ring() => {
                TaskWork::Ring { kind, ring, bytes }
            }
            work => work,
        }
    }

    /// A reduce is a broadcast in the opposite direction. The first member is the root.
    pub fn work(&self) -> TaskWork {
        let (ranks, bytes) = (self.members.clone(), Bytes(self.bytes));
        match (self.operation, &self.pairs) {
            (_, Some(pairs)) => TaskWork::Pairs { ranks, bytes: Arc::clone(pairs) },
            (Operation::Collective(kind), None) => TaskWork::Across { kind, ranks, bytes },
            (Operation::Reduce, None) => {
                TaskWork::Across { kind: CollectiveKind::Broadcast, ranks, bytes }
            }
            (Operation::Barrier, None) => {
                TaskWork::Across { kind: CollectiveKind::AllReduce, ranks, bytes: Bytes(1) }
            }
            (Operation::Gather | Operation::Scatter, None) => {
                let count = ranks.len();
                let piece = self.bytes / count.max(1) as u64;
                let is_gather = self.operation == Operation::Gather;
                let bytes = (0..count * count).map(|place| {
                    let (from, to) = (place / count, place % count);
                    let (root, other) = if is_gather { (to, from) } else { (from, to) };
                    if root == 0 && other > 0 { piece } else { 0 }
                });
                TaskWork::Pairs { bytes: bytes.collect(), ranks }
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
    if known.iter().all(|share| share.sent == first.sent && share.received == first.sent)
        && !has_parts
    {
        return None;
    }
    let count = known.len() as u64;
    let missing = Share {
        sent: known.iter().map(|share| share.sent).sum::<u64>() / count,
        received: known.iter().map(|share| share.received).sum::<u64>() / count,
        parts: vec![],
    };
    let all: Vec<&Share> = shares.iter().map(|share| share.as_ref().unwrap_or(&missing)).collect();
    let received: Vec<u64> = all.iter().map(|share| share.received).collect();
    let mut bytes = Vec::with_capacity(all.len() * all.len());
    for share in &all {
        let of = if share.parts.len() == all.len() { &share.parts } else { &received };
        let sum = u128::from(of.iter().sum::<u64>().max(1));
        let (mut parts, mut sent) = (0, 0);
        for part in of {
            // Round the sums, so that the parts add up to the total.
            parts += u128::from(*part);
            let up_to = (u128::from(share.sent) * parts / sum) as u64;
            bytes.push(up_to - sent);
            sent = up_to;
        }
    }
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_size_has_one_meaning_in_every_program() {
        const MIB: u64 = 1 << 20;
        let [reduce, gather, scatter, to_all, broadcast] =
            CollectiveKind::NAMED.map(Operation::Collective);
        let sized = |operation, size| Exchange::new(operation, (0..8).collect(), size).bytes;
        for size in
            [Size::Input(MIB), Size::Output(8 * MIB), Size::Count(MIB), Size::Whole(8 * MIB)]
        {
            assert_eq!(sized(gather, size), 8 * MIB, "{size:?}");
        }
        for size in [Size::Input(8 * MIB), Size::Output(MIB), Size::Count(MIB)] {
            assert_eq!(sized(scatter, size), 8 * MIB, "{size:?}");
        }
        for size in [Size::Input(MIB), Size::Output(MIB), Size::Count(MIB)] {
            assert_eq!(sized(reduce, size), MIB, "{size:?}");
            assert_eq!(sized(broadcast, size), MIB, "{size:?}");
        }
        assert_eq!(sized(to_all, Size::Count(MIB)), 8 * MIB);
        assert_eq!(sized(to_all, Size::Input(MIB)), MIB);
        let gather = Exchange::new(gather, (0..8).collect(), Size::Input(MIB));
        assert_eq!(gather.input(3), MIB);
    }

    #[test]
    fn operation_names_of_every_program_are_recognised() {
        let [reduce, gather, scatter, to_all, _] = CollectiveKind::NAMED.map(Operation::Collective);
        for (names, operation) in [
            (["allreduce", "nccl:all_reduce", "ALLREDUCE"], reduce),
            (["_allgather_base", "AllGather", "all_gather_into_tensor"], gather),
            (["_reduce_scatter_base", "ReduceScatter", "REDUCESCATTER"], scatter),
            (["all_to_allv", "ALLTOALL", "c10d::alltoall_base_"], to_all),
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
