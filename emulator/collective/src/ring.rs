// SPDX-License-Identifier: Apache-2.0
//! Ring collectives: every rank forwards pieces to its neighbour.
//!
//! ```text
//!   reduce-scatter and all-gather: N-1 steps; all-reduce: both, 2(N-1) steps (Patarasuk, Yuan:
//!   "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009, section 3)
//!
//!      ┌─▶ r0 ──▶ r1 ──▶ r2 ─┐    one flow per rank and direction; its message k (the piece of step k)
//!      └──────── r3 ◀────────┘    is sent once message k-1 has arrived from the previous neighbour
//! ```
//! If both directions are used, each carries half of the data, concurrently.

use lightloom_units::Bytes;

use super::schedule::{Await, NetworkLevel, RingStride, Schedule, Sending, TimeForm};
use super::{CollectiveError, CollectiveKind, part_of};

/// Directions around the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// From each member to the next.
    One,
    /// Both directions, with half of the data each.
    #[default]
    Both,
}

impl Directions {
    const fn count(self) -> u64 {
        match self {
            Self::One => 1,
            Self::Both => 2,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub kind: CollectiveKind,
    pub ranks: usize,
    pub size: Bytes,
    pub directions: Directions,
}

impl Ring {
    fn steps(&self) -> u32 {
        let once = self.ranks as u32 - 1;
        if self.kind == CollectiveKind::AllReduce { 2 * once } else { once }
    }
    fn piece(&self) -> Bytes {
        part_of(self.size, self.ranks as u64 * self.directions.count())
    }

    /// Fails for fewer than two ranks.
    pub fn schedule(&self) -> Result<Schedule, CollectiveError> {
        let mut sendings = Vec::new();
        let ranks: Vec<usize> = (0..self.ranks).collect();
        let laid = self.lay_out(&mut sendings, &ranks, NetworkLevel::Inside, &[])?;
        let Self { kind, ranks, size, .. } = *self;
        Ok(Schedule { kind, ranks, size, sendings, form: laid.form })
    }

    /// Creates one ring per rank of a domain, through that rank's NIC. Fails for fewer than two ranks.
    pub fn schedule_over(&self, domains: &[Vec<usize>]) -> Result<Schedule, CollectiveError> {
        let Self { kind, ranks, size, .. } = *self;
        let count = domains.first().map_or(1, Vec::len);
        let share = Self { size: part_of(size, count as u64), ..*self };
        let (mut sendings, mut forms) = (Vec::new(), Vec::new());
        for first in 0..count {
            let turned = domains.iter().flat_map(|own| own[first..].iter().chain(&own[..first]));
            let names: Vec<usize> = turned.copied().collect();
            forms.push(share.lay_out(&mut sendings, &names, NetworkLevel::Inside, &[])?.form);
        }
        Ok(Schedule { kind, ranks, size, sendings, form: TimeForm::AtOnce(forms) })
    }

    pub(crate) fn lay_out(
        &self,
        sendings: &mut Vec<Sending>,
        names: &[usize],
        level: NetworkLevel,
        waits: &[Vec<usize>],
    ) -> Result<Laid, CollectiveError> {
        let ranks = self.ranks;
        if ranks < 2 {
            return Err(CollectiveError::TooFewRanks { ranks });
        }
        let mut ways = Vec::new();
        let mut into = vec![Vec::new(); ranks];
        for direction in 0..self.directions.count() {
            let step = if direction == 0 { 1 } else { ranks - 1 };
            let first = sendings.len();
            for place in 0..ranks {
                let next = (place + step) % ranks;
                let behind = first + (place + ranks - step) % ranks;
                let others = waits.get(place).into_iter().flatten().copied().map(Await::all_of);
                sendings.push(Sending {
                    from: names[place],
                    to: names[next],
                    message: self.piece(),
                    messages: self.steps(),
                    level,
                    awaits: others.chain([Await { sending: behind, ahead: 1 }]).collect(),
                });
                into[next].push(first + place);
            }
            ways.push(TimeForm::Around(RingStride {
                first,
                ranks,
                step,
                messages: self.steps() as usize,
            }));
        }
        Ok(Laid { form: TimeForm::AtOnce(ways), into })
    }
}

pub(crate) struct Laid {
    pub(crate) form: TimeForm,
    pub(crate) into: Vec<Vec<usize>>,
}
