// SPDX-License-Identifier: Apache-2.0

use std::io;

use super::link::{Link, Seat};

pub(super) const NO_STEP: u64 = u64::MAX;

pub(super) fn brings(index: usize, step: u64, at: usize) -> u32 {
    (index as u32 + 1).wrapping_mul(1 + (at as u32 % 7)).wrapping_add(step as u32)
}

pub(super) fn sum(members: usize, step: u64, at: usize) -> u32 {
    let members = members as u32;
    let numbers = members * (members + 1) / 2;
    numbers.wrapping_mul(1 + (at as u32 % 7)).wrapping_add((step as u32).wrapping_mul(members))
}

pub(super) type NeighbourExchange<'a> = dyn FnMut(&[u8], &mut [u8]) -> io::Result<()> + 'a;

/// Sums in place. The length of `data` must be a multiple of the number of members.
pub(super) fn all_reduce(
    data: &mut [u32],
    index: usize,
    members: usize,
    exchange: &mut NeighbourExchange<'_>,
) -> io::Result<()> {
    let share = data.len() / members;
    let mut received = vec![0_u8; 4 * share];
    for round in 0..2 * (members - 1) {
        // The first half of the rounds is a reduce-scatter, the second half an all-gather.
        let [sends, hears] = [0, 1].map(|back| {
            let piece = (index + 2 * members - back - round) % members;
            piece * share..(piece + 1) * share
        });
        let bytes: Vec<u8> = data[sends].iter().flat_map(|value| value.to_ne_bytes()).collect();
        exchange(&bytes, &mut received)?;
        let values = received.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes));
        for (own, heard) in data[hears].iter_mut().zip(values) {
            *own = if round < members - 1 { own.wrapping_add(heard) } else { heard };
        }
    }
    Ok(())
}

pub(super) fn agree(
    own: u64,
    members: usize,
    exchange: &mut NeighbourExchange<'_>,
) -> io::Result<u64> {
    let (mut least, mut passing) = (own, own);
    for _ in 1..members {
        let mut heard = [0; 8];
        exchange(&passing.to_be_bytes(), &mut heard)?;
        passing = u64::from_be_bytes(heard);
        least = least.min(passing);
    }
    Ok(if least == NO_STEP { 0 } else { least })
}

pub(super) fn step(
    link: &mut Link,
    seat: Seat,
    number: u64,
    elements: usize,
    is_over: &dyn Fn() -> bool,
) -> io::Result<()> {
    let length = elements.next_multiple_of(seat.members);
    let mut data: Vec<u32> = (0..length).map(|at| brings(seat.index, number, at)).collect();
    let exchange = &mut |send: &[u8], receive: &mut [u8]| link.exchange(send, receive, is_over);
    all_reduce(&mut data, seat.index, seat.members, exchange)?;
    match data.iter().enumerate().find(|(at, value)| **value != sum(seat.members, number, *at)) {
        None => Ok(()),
        Some((at, value)) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the sum of element {at} in step {number} is {value}, not {}",
                sum(seat.members, number, at)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn ring<T: Send>(
        members: usize,
        work: impl Fn(usize, &mut NeighbourExchange<'_>) -> T + Sync,
    ) -> Vec<T> {
        let (senders, mut receivers): (Vec<_>, Vec<_>) =
            (0..members).map(|_| channel::<Vec<u8>>()).unzip();
        receivers.rotate_right(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = senders
                .into_iter()
                .zip(receivers)
                .enumerate()
                .map(|(index, (sender, receiver))| {
                    let work = &work;
                    scope.spawn(move || {
                        work(index, &mut |send, receive| {
                            sender.send(send.to_vec()).unwrap();
                            receive.copy_from_slice(&receiver.recv().unwrap());
                            Ok(())
                        })
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_member_finds_the_sum_of_all() {
        for members in [2, 4, 6, 10] {
            let sums = ring(members, |index, exchange| {
                let mut data: Vec<u32> = (0..members * 3).map(|at| brings(index, 5, at)).collect();
                all_reduce(&mut data, index, members, exchange).unwrap();
                data
            });
            // Compute the expected sums directly instead of by the closed form.
            let all = |at| (0..members).map(|index| brings(index, 5, at)).sum::<u32>();
            let expected: Vec<u32> = (0..members * 3).map(all).collect();
            assert!(sums.iter().all(|found| *found == expected), "{members}");
            assert!((0..members * 3).all(|at| sum(members, 5, at) == expected[at]));
        }
    }

    #[test]
    fn ring_resumes_at_the_lowest_step_and_newcomers_follow() {
        let steps = [7, 8, NO_STEP, 7];
        let agreed = ring(4, |index, exchange| agree(steps[index], 4, exchange).unwrap());
        assert_eq!(agreed, [7; 4]);
        assert_eq!(ring(2, |_, exchange| agree(NO_STEP, 2, exchange).unwrap()), [0, 0]);
    }
}
