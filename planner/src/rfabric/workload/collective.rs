// SPDX-License-Identifier: Apache-2.0
//! Traffic of collectives. `ranks` lists the leaves or seats of the members in rank order. Traffic
//! between ranks on the same leaf or ring does not use links between leaves.

use lightloom_units::Bytes;

use super::super::demand::{Demand, Seat};

/// Adds a ring all-reduce of `size` per rank, where each rank sends 2(g−1)/g·size to the next.
pub fn all_reduce<R: Into<Seat> + Copy>(demand: &mut Demand, ranks: &[R], size: Bytes) {
    ring(demand, ranks, share(size, 2 * (ranks.len() as u64 - 1), ranks.len() as u64));
}

/// Adds a ring all-gather or reduce-scatter, where each rank sends (g−1)/g·size to the next.
pub fn all_gather<R: Into<Seat> + Copy>(demand: &mut Demand, ranks: &[R], size: Bytes) {
    ring(demand, ranks, share(size, ranks.len() as u64 - 1, ranks.len() as u64));
}

/// Adds a dispatch and its combine. Each rank dispatches `size` in total, divided among all ranks
/// (including itself) by `weights`; the combine returns the same amounts.
pub fn dispatch_and_combine<R: Into<Seat> + Copy>(
    demand: &mut Demand,
    ranks: &[R],
    size: Bytes,
    weights: &[f64],
) {
    assert_eq!(ranks.len(), weights.len(), "one weight per rank");
    let sum: f64 = weights.iter().sum();
    for (at, from) in ranks.iter().enumerate() {
        for (to, weight) in
            ranks.iter().zip(weights).enumerate().filter(|(to, _)| *to != at).map(|(_, to)| to)
        {
            let part = Bytes((size.0 as f64 * weight / sum) as u64);
            demand.send(*from, *to, part);
            demand.send(*to, *from, part);
        }
    }
}

/// Sends `size` around the ring of ranks.
pub fn ring<R: Into<Seat> + Copy>(demand: &mut Demand, ranks: &[R], size: Bytes) {
    if ranks.len() < 2 {
        return;
    }
    for (at, from) in ranks.iter().enumerate() {
        demand.send(*from, ranks[(at + 1) % ranks.len()], size);
    }
}

/// Returns size·numerator/denominator without overflow.
pub fn share(size: Bytes, numerator: u64, denominator: u64) -> Bytes {
    let part = u128::from(size.0) * u128::from(numerator) / u128::from(denominator);
    Bytes(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_units::id::LeafId;

    fn leaves(count: u32) -> Vec<LeafId> {
        (0..count).map(LeafId).collect()
    }

    #[test]
    fn rings_send_the_textbook_shares() {
        let mut demand = Demand::none(4);
        all_reduce(&mut demand, &leaves(4), Bytes(1_000));
        assert_eq!(demand.bytes(LeafId(3), LeafId(0)), Bytes(1_500));
        all_gather(&mut demand, &leaves(4), Bytes(1_000));
        assert_eq!(demand.bytes(LeafId(0), LeafId(1)), Bytes(2_250));
        assert_eq!(demand.bytes(LeafId(1), LeafId(0)), Bytes(0));
    }

    #[test]
    fn all_to_all_is_symmetric_without_local_traffic() {
        let mut demand = Demand::none(3);
        dispatch_and_combine(&mut demand, &leaves(3), Bytes(600), &[1.0, 2.0, 3.0]);
        assert_eq!(demand.bytes(LeafId(0), LeafId(1)), Bytes(200 + 100));
        assert_eq!(demand.bytes(LeafId(1), LeafId(0)), Bytes(100 + 200));
        assert_eq!(demand.total(), Bytes(2 * (3 * 600 - 600)));
    }
}
