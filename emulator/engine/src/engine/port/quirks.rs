// SPDX-License-Identifier: Apache-2.0
//! Properties of only a few ports: random marks, bit errors, packet loss and jitter.

use std::collections::VecDeque;

use super::{Ramp, mix};

#[derive(Clone, Debug, Default)]
pub(super) struct Quirks {
    pub(super) ramp: Option<Ramp>,
    /// In units of 2⁻⁶⁴.
    pub(super) errors: u64,
    /// In units of 2⁻⁶⁴.
    pub(super) loss: u64,
    pub(super) salt: u64,
    pub(super) jitter: Jitter,
    /// Lost packets that may still be queued: size and departure time of the last bit.
    pub(super) corrupted: VecDeque<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Jitter {
    /// Maximum in picoseconds.
    pub(super) most: u64,
    pub(super) salt: u64,
    /// Remainder of an earlier jitter: packets sent from `held_from` on must arrive after `held_until`.
    pub(super) held_from: u64,
    pub(super) held_until: u64,
}

impl Quirks {
    pub(super) fn boxed(self) -> Option<Box<Self>> {
        let Self { ramp, errors, loss, jitter, corrupted, .. } = &self;
        let has_any = ramp.is_some() || errors | loss | jitter.most | jitter.held_until > 0;
        (has_any || !corrupted.is_empty()).then(|| Box::new(self))
    }

    #[cold]
    pub(super) fn mark(&self, backlog: u64, number: u64) -> bool {
        self.ramp.as_ref().is_none_or(|ramp| ramp.marks(backlog, number))
    }

    #[cold]
    pub(super) fn note_corrupted(&mut self, packet: (u64, u64), now: u64) {
        while self.corrupted.front().is_some_and(|(end, _)| *end <= now) {
            self.corrupted.pop_front();
        }
        self.corrupted.push_back(packet);
    }

    #[cold]
    pub(super) fn corrupt(&self, size: u64, number: u64) -> bool {
        self.errors | self.loss > 0
            && mix(self.salt.wrapping_add(number))
                < either(chance_of_any(self.errors, size * 8), self.loss)
    }
}

impl Jitter {
    pub(super) fn held(&self, sent: u64) -> u64 {
        (self.held_until + sent.saturating_sub(self.held_from) / 2).saturating_sub(sent)
    }

    /// The delay falls by at most half a picosecond per picosecond, so packets stay in order.
    pub(super) fn late(&self, sent: u64) -> u64 {
        let held = self.held(sent);
        if self.most == 0 {
            return held;
        }
        let (turn, into) = (sent / (2 * self.most), sent % (2 * self.most));
        let [from, to] = [turn, turn + 1].map(|turn| {
            let drawn = u128::from(mix(self.salt.wrapping_add(turn)));
            (drawn * u128::from(self.most + 1)) >> 64
        });
        let (into, whole) = (u128::from(into), u128::from(2 * self.most));
        let late = (from * (whole - into) + to * into) / whole;
        held.max(late as u64)
    }
}

fn either(a: u64, b: u64) -> u64 {
    let both = (u128::from(a) * u128::from(b)) >> 64;
    u64::try_from(u128::from(a) + u128::from(b) - both).unwrap_or(u64::MAX)
}

/// 1 − (1 − p)ⁿ for n `bits`, in units of 2⁻⁶⁴. Integer arithmetic gives the same result on every machine.
fn chance_of_any(one: u64, bits: u64) -> u64 {
    let (mut chance, mut of_power, mut left) = (0, one, bits);
    while left > 0 {
        if left & 1 == 1 {
            chance = either(chance, of_power);
        }
        of_power = either(of_power, of_power);
        left >>= 1;
    }
    chance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varying_jitter_keeps_packets_in_order() {
        for most in [1, 7, 1_000, 250_000] {
            let jitter = Jitter { most, salt: 9, held_from: 30 * most, held_until: 40 * most };
            let arrivals: Vec<u64> =
                (30 * most..).map(|sent| sent + jitter.late(sent)).take(60_000).collect();
            assert!(arrivals.is_sorted(), "{most}");
            let late = (30 * most..)
                .zip(&arrivals)
                .map(|(sent, arrival)| arrival - sent)
                .skip(20 * most as usize);
            let late: Vec<u64> = late.collect();
            assert!(late.iter().all(|late| *late <= most), "{most}");
            assert!(late.is_empty() || late.iter().max() > late.iter().min(), "{most}");
        }
    }

    #[test]
    fn packet_error_chance_follows_its_bit_error_rate() {
        for one in [1e-15_f64, 1e-12, 1e-9, 1e-6, 3e-5, 1e-3, 0.5] {
            for bits in [1_u64, 64 * 8, 4_160 * 8, 65_535 * 8] {
                let units = (one * 2_f64.powi(64)) as u64;
                let exact = -f64::exp_m1(bits as f64 * f64::ln_1p(-one));
                let ours = chance_of_any(units, bits) as f64 / 2_f64.powi(64);
                assert!((ours / exact - 1.0).abs() < 1e-3, "{one} {bits}: {ours}, not {exact}");
            }
        }
    }
}
