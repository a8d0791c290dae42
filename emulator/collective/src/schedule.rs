// SPDX-License-Identifier: Apache-2.0
//! A collective as messages with dependencies, and its duration without other traffic.

use lightloom_units::{Bytes, Picoseconds};

use super::{CollectiveError, CollectiveKind};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkLevel {
    #[default]
    Inside,
    Between,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Await {
    /// Index of the awaited sending in [`Schedule::sendings`], which must end at the rank where the waiting one starts.
    pub sending: usize,
    /// Message `k` (from 0) may be sent once the awaited sending has delivered at least `k + 1 - ahead` messages, or
    /// all of them. In a ring, where each message forwards the previous one, `ahead` is 1.
    pub ahead: i32,
}

impl Await {
    /// Every message waits until `sending` is complete.
    pub const fn all_of(sending: usize) -> Self {
        Self { sending, ahead: i32::MIN }
    }
    /// Message `k` waits for message `k`.
    pub const fn each_of(sending: usize) -> Self {
        Self { sending, ahead: 0 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    pub from: usize,
    pub to: usize,
    pub message: Bytes,
    pub messages: u32,
    pub level: NetworkLevel,
    pub awaits: Vec<Await>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTime {
    /// Time from the start of sending until the message has fully arrived.
    pub arrives: Picoseconds,
    /// Time on the slowest link of its path, which is the minimum interval between arrivals over that path.
    pub occupies: Picoseconds,
    /// Number of parallel paths for messages of one sending, at least 1.
    pub ways: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub kind: CollectiveKind,
    pub ranks: usize,
    pub size: Bytes,
    pub sendings: Vec<Sending>,
    pub(crate) form: TimeForm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TimeForm {
    /// The longest dependency chain. Each sending must follow its dependencies in the list.
    LongestChain,
    Around(RingStride),
    InTurn(Vec<TimeForm>),
    AtOnce(Vec<TimeForm>),
}

/// One direction around a ring, where rank `r` sends to `r + step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingStride {
    pub(crate) first: usize,
    pub(crate) ranks: usize,
    pub(crate) step: usize,
    pub(crate) messages: usize,
}

impl Schedule {
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

    pub(crate) fn send(
        &mut self,
        from: usize,
        to: usize,
        message: Bytes,
        messages: u32,
        awaits: Vec<Await>,
    ) -> usize {
        let level = NetworkLevel::Inside;
        self.sendings.push(Sending { from, to, message, messages, level, awaits });
        self.sendings.len() - 1
    }

    /// Assigns ranks to `domains`: messages between domains are of [`NetworkLevel::Between`].
    /// `shares` are the effective shares of link rates, inside and between domains.
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

    /// Returns the duration if messages never queue behind other sendings. This is a lower bound for the given message
    /// times. Panics if `times` does not have exactly one entry per sending.
    pub fn ideal(&self, times: &[MessageTime]) -> Picoseconds {
        assert_eq!(times.len(), self.sendings.len(), "exactly one time per message");
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
    /// Returns the longer time: forwarding one piece from the worst rank, or sending all pieces over the slowest edge.
    fn time(&self, times: &[MessageTime]) -> Picoseconds {
        let edges = &times[self.first..self.first + self.ranks];
        let (rounds, rest) = (self.messages / edges.len(), self.messages % edges.len());
        let around: Picoseconds = edges.iter().map(|edge| edge.arrives).sum();
        let chains = (0..edges.len()).map(|start| {
            let places = (0..rest).map(|step| (start + step * self.step) % self.ranks);
            around * rounds as u64 + places.map(|place| edges[place].arrives).sum()
        });
        let single = edges.iter().map(|edge| {
            let later = (self.messages as u64 - 1) / u64::from(edge.ways.max(1));
            edge.arrives + edge.occupies * later
        });
        chains.chain(single).max().unwrap_or_default()
    }
}

/// Message `k` arrives at the later of two times: its dependencies' arrival plus its path time, and
/// the arrival of message `k-1` (`k-n` with `n` paths) plus its time on the slowest link.
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
