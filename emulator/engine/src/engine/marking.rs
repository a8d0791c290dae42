// SPDX-License-Identifier: Apache-2.0
//! ECN marking.

use lightloom_units::Bytes;
use lightloom_units::seed::Seed;
use rand::Rng;

use super::network::LinkId;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Marking {
    /// Marks packets that meet a backlog of at least the threshold, as in DCTCP.
    #[default]
    Threshold,
    /// The marking probability rises linearly with the backlog, from zero at the threshold (Kmin)
    /// to Pmax at a second threshold (Kmax), above which every packet is marked (Zhu et al.,
    /// "Congestion control for large-scale RDMA deployments", SIGCOMM 2015, section 3.1). Draws
    /// depend on the seed, the link and the packet's number on the link.
    Ramp {
        /// Kmax as a percentage of the threshold. Values up to 100 act like a plain threshold.
        full_at_percent: u32,
        most_percent: u32,
    },
}

/// Backlogs are in bytes or in transmission time.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    from: u64,
    full_at: u64,
    /// At `full_at`, in units of 2⁻³².
    most: u64,
    salt: u64,
}

impl Ramp {
    /// `None` if the link has no ramp. `measure` converts a backlog to the ramp's unit.
    pub(crate) fn new(
        marking: Marking,
        seed: Seed,
        link: LinkId,
        mark_from: Option<Bytes>,
        measure: impl Fn(Bytes) -> u64,
    ) -> Option<Self> {
        let Marking::Ramp { full_at_percent, most_percent } = marking else { return None };
        let from = mark_from?;
        let full_at = u128::from(from.0) * u128::from(full_at_percent) / 100;
        let full_at = Bytes(u64::try_from(full_at).unwrap_or(u64::MAX));
        Some(Self {
            from: measure(from),
            full_at: measure(full_at),
            most: (u64::from(most_percent.min(100)) << 32) / 100,
            salt: seed.stream("marks", u64::from(link.0)).next_u64(),
        })
    }

    #[cold]
    pub(crate) fn marks(&self, backlog: u64, number: u64) -> bool {
        if backlog >= self.full_at {
            return true;
        }
        let (above, whole) = (backlog - self.from, self.full_at - self.from);
        let chance = u128::from(self.most) * u128::from(above) / u128::from(whole);
        u128::from(mix(self.salt.wrapping_add(number)) >> 32) < chance
    }
}

/// Finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
