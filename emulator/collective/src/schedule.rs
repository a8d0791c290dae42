// SPDX-License-Identifier: Apache-2.0
//! A collective laid out: messages between ranks, each after those it waits for, and the time they take
//! when no other traffic is in their way.

use lightloom_units::{Bytes, Picoseconds};

use super::{CollectiveError, CollectiveKind};

/// Which network of a collective over several groups carries a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkLevel {
    /// That of one group, or the only one there is.
    #[default]
    Inside,
    /// That between groups.
    Between,
}

/// What messages wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Await {
    /// The place of the sending waited for in [`Schedule::sendings`]. It ends where the waiting one begins.
    pub sending: usize,
    /// Message `k` (from 0) may go when the sending waited for has delivered at least `k + 1 - ahead`
    /// messages, or all it has. In a ring, where each message passes on the one that came before,
    /// `ahead` is 1.
    pub ahead: i32,
}

impl Await {
    /// Every message waits until `sending` is done.
    #[must_use]
    pub const fn all_of(sending: usize) -> Self {
        Self { sending, ahead: i32::MIN }
    }
    /// Message `k` waits for message `k`.
    #[must_use]
    pub const fn each_of(sending: usize) -> Self {
        Self { sending, ahead: 0 }
    }
}

/// Messages of one size that one rank sends to another, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The sending rank.
    pub from: usize,
    /// The receiving rank.
    pub to: usize,
    /// Data in each message.
    pub message: Bytes,
    /// How many messages.
    pub messages: u32,
    /// Over which network.
    pub level: NetworkLevel,
    /// What they wait for.
    pub awaits: Vec<Await>,
}

/// How long one message of a sending takes on an idle network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTime {
    /// From the moment it may go until all of it has arrived.
    pub arrives: Picoseconds,
    /// How long it occupies the slowest link of its path: the next message of the same sending that goes the same way
    /// arrives so much later at the earliest.
    pub occupies: Picoseconds,
    /// How many ways messages of one sending take side by side, at least 1.
    pub ways: u32,
}

/// A collective laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What it computes.
    pub kind: CollectiveKind,
    /// How many ranks take part.
    pub ranks: usize,
    /// Its size, see the description of this crate.
    pub size: Bytes,
    /// What is sent.
    pub sendings: Vec<Sending>,
    /// Its closed form.
    pub(crate) form: TimeForm,
}

/// A closed form over the times of single messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// The longest chain of waiting through all sendings. Each comes after those it waits for.
    LongestChain,
    /// One way round a ring.
    Around(RingStride),
    /// One after the other.
    InTurn(Vec<TimeForm>),
    /// All at once: the longest.
    AtOnce(Vec<TimeForm>),
}

/// One way round a ring: rank `r` sends to `r + step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingStride {
    /// The place of the sending of rank 0; those of the others follow.
    pub(crate) first: usize,
    pub(crate) ranks: usize,
    pub(crate) step: usize,
    /// Messages that each rank sends.
    pub(crate) messages: usize,
}

impl Schedule {
    /// An empty schedule, whose sendings will come in an order in which each is after those it waits for.
    pub(crate) fn chained(
        kind: CollectiveKind,
        ranks: usize,
        size: Bytes,
    ) -> Result<Self, CollectiveError> {
        if ranks < 2 {
            return Err(CollectiveError::TooFewRanks { ranks });
        }
        Ok(Self { kind, ranks, size, sendings: Vec::new(), form: TimeForm::LongestChain })
    }

    /// Adds `messages` messages of `message` from one rank to another, and says their place.
    pub(crate) fn send(
        &mut self,
        (from, to): (usize, usize),
        (message, messages): (Bytes, u32),
        awaits: Vec<Await>,
    ) -> usize {
        let level = NetworkLevel::Inside;
        self.sendings.push(Sending { from, to, message, messages, level, awaits });
        self.sendings.len() - 1
    }

    /// The same where ranks lie in these domains: messages that leave one are of [`NetworkLevel::Between`], and links carry
    /// bytes at these shares of their rates, inside and between.
    #[must_use]
    pub fn over_domains(mut self, domains: &[Option<u32>], shares: [f64; 2]) -> Self {
        for sending in &mut self.sendings {
            let [from, to] = [sending.from, sending.to].map(|rank| domains[rank]);
            let is_between = from.is_none() || from != to;
            if is_between {
                sending.level = NetworkLevel::Between;
            }
            let bytes = sending.message.0 as f64 / shares[usize::from(is_between)];
            sending.message = Bytes((bytes as u64).max(1));
        }
        self
    }

    /// What the collective takes when no message waits for one of another sending: a lower bound
    /// while its messages take so long.
    ///
    /// # Panics
    /// If `times` does not have one time for each of [`Schedule::sendings`], in their order.
    #[must_use]
    pub fn ideal(&self, times: &[MessageTime]) -> Picoseconds {
        assert_eq!(times.len(), self.sendings.len(), "one time for each sending");
        self.form.time(&self.sendings, times)
    }
}

impl TimeForm {
    fn time(&self, sendings: &[Sending], times: &[MessageTime]) -> Picoseconds {
        match self {
            Self::LongestChain => longest_chain(sendings, times),
            Self::Around(around) => around.time(times),
            Self::InTurn(forms) => forms.iter().map(|form| form.time(sendings, times)).sum(),
            Self::AtOnce(forms) => {
                let all = forms.iter().map(|form| form.time(sendings, times));
                all.max().unwrap_or_default()
            }
        }
    }
}

impl RingStride {
    /// The longest of: a piece passed on step by step from any rank; all pieces over any one edge.
    fn time(&self, times: &[MessageTime]) -> Picoseconds {
        let edges = &times[self.first..self.first + self.ranks];
        let (rounds, rest) = (self.messages / edges.len(), self.messages % edges.len());
        let around: Picoseconds = edges.iter().map(|edge| edge.arrives).sum();
        let next = |rank: &usize| Some((rank + self.step) % self.ranks);
        let from = |start: usize| {
            let places = std::iter::successors(Some(start), next).take(rest);
            around * rounds as u64 + places.map(|place| edges[place].arrives).sum()
        };
        let chains = (0..edges.len()).map(from);
        let later = |edge: &MessageTime| (self.messages as u64 - 1) / u64::from(edge.ways.max(1));
        let single = edges.iter().map(|edge| edge.arrives + edge.occupies * later(edge));
        chains.chain(single).max().unwrap_or_default()
    }
}

/// When the last message would arrive if messages met none but those of their own sending:
/// message `k` arrives at the later of (what it waits for) + its time over the path, and (message
/// `k-1` of the sending, with several ways one as many places before) + its time on the slowest link.
fn longest_chain(sendings: &[Sending], times: &[MessageTime]) -> Picoseconds {
    let mut arrivals: Vec<Vec<Picoseconds>> = vec![Vec::new(); sendings.len()];
    let rounds = sendings.iter().map(|sending| sending.messages).max().unwrap_or(0);
    for k in 0..rounds {
        for (place, sending) in sendings.iter().enumerate().filter(|(_, s)| k < s.messages) {
            let ready = sending.awaits.iter().map(|awaits| {
                let awaited = &arrivals[awaits.sending];
                let needed = (i64::from(k) - i64::from(awaits.ahead)).min(awaited.len() as i64 - 1);
                usize::try_from(needed).map_or(Picoseconds::ZERO, |needed| awaited[needed])
            });
            let MessageTime { arrives, occupies, ways } = times[place];
            let after_others = ready.max().unwrap_or_default() + arrives;
            let before = (k as usize).checked_sub(ways.max(1) as usize);
            let after_own =
                before.map_or(Picoseconds::ZERO, |before| arrivals[place][before] + occupies);
            arrivals[place].push(after_others.max(after_own));
        }
    }
    arrivals.iter().filter_map(|sending| sending.last()).copied().max().unwrap_or_default()
}
