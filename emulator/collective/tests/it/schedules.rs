// SPDX-License-Identifier: Apache-2.0
//! Schedules deliver every piece to its destination, and closed forms match a message-by-message
//! simulation.
use std::collections::BTreeSet;

use lightloom_collective::{
    AllToAll, CollectiveError, CollectiveKind, Directions, Exchange, HalvingDoubling, Hierarchical,
    MessageTime, Ring, Schedule, TorusAllReduce, Tree, TreeOperation,
};
use lightloom_units::{Bytes, Picoseconds};

const SIZE: Bytes = Bytes(1 << 20);

fn torus() -> TorusAllReduce {
    let along = (0..4).map(|y| (0..3).map(|x| x + 3 * y).collect()).collect();
    let across = (0..3).map(|x| (0..4).map(|y| x + 3 * y).collect()).collect();
    TorusAllReduce { rings: vec![along, across], size: SIZE }
}

fn every_kind() -> Vec<(String, Schedule)> {
    let mut all = vec![
        ("hierarchical".to_owned(), Hierarchical { groups: vec![4; 3], size: SIZE }.schedule()),
        ("torus".to_owned(), torus().schedule()),
        ("halving".to_owned(), HalvingDoubling { ranks: 16, size: SIZE }.schedule()),
    ];
    for ranks in [2, 3, 8, 13] {
        for kind in
            [CollectiveKind::AllReduce, CollectiveKind::ReduceScatter, CollectiveKind::AllGather]
        {
            for directions in [Directions::One, Directions::Both] {
                let ring = Ring { kind, ranks, size: SIZE, directions }.schedule();
                all.push((format!("{kind:?} of {ranks} {directions:?}"), ring));
            }
        }
        for operation in
            [TreeOperation::AllReduce, TreeOperation::DoubleAllReduce, TreeOperation::Broadcast]
        {
            let tree = Tree { operation, ranks, size: SIZE, pieces: 5 }.schedule();
            all.push((format!("{operation:?} of {ranks}"), tree));
        }
        for exchange in [Exchange::Pairwise, Exchange::AtOnce, Exchange::Bruck] {
            let all_to_all = AllToAll { ranks, size: SIZE, exchange }.schedule();
            all.push((format!("{exchange:?} of {ranks}"), all_to_all));
        }
    }
    all.into_iter().map(|(name, schedule)| (name, schedule.unwrap())).collect()
}

fn message_by_message(schedule: &Schedule, time: MessageTime) -> u64 {
    let sendings = &schedule.sendings;
    let mut arrived: Vec<Vec<u64>> =
        sendings.iter().map(|sending| vec![0; sending.messages as usize]).collect();
    loop {
        let mut moved = false;
        for (place, sending) in sendings.iter().enumerate() {
            for message in 0..sending.messages as usize {
                let awaited = sending.awaits.iter().filter_map(|awaits| {
                    let others = &arrived[awaits.sending];
                    let last = others.len() as i64 - 1;
                    let needed = (message as i64 - i64::from(awaits.ahead)).min(last);
                    usize::try_from(needed).ok().map(|needed| others[needed])
                });
                let after_others = awaited.max().unwrap_or(0) + time.arrives.get();
                let before = message.checked_sub(time.ways as usize);
                let after_own =
                    before.map_or(0, |before| arrived[place][before] + time.occupies.get());
                let at = after_others.max(after_own);
                moved |= arrived[place][message] != at;
                arrived[place][message] = at;
            }
        }
        if !moved {
            return arrived.into_iter().flatten().max().unwrap();
        }
    }
}

#[test]
fn closed_forms_match_message_by_message_simulation() {
    for (arrives, occupies, ways) in
        [(1_000, 1_000, 1), (1_000, 300, 1), (1_000, 1, 1), (1_000, 600, 2), (1_000, 900, 3)]
    {
        let (arrives, occupies) = (Picoseconds(arrives), Picoseconds(occupies));
        let time = MessageTime { arrives, occupies, ways };
        for (name, schedule) in every_kind() {
            let ideal = schedule.ideal(&vec![time; schedule.sendings.len()]).get();
            assert_eq!(ideal, message_by_message(&schedule, time), "{name}, {time:?}");
        }
    }
}

#[test]
fn sends_wait_only_for_messages_to_their_sender() {
    for (name, schedule) in every_kind() {
        let ranks: BTreeSet<usize> = schedule.sendings.iter().map(|sending| sending.to).collect();
        assert!(ranks.into_iter().max() < Some(schedule.ranks), "{name}");
        for sending in &schedule.sendings {
            assert_ne!(sending.from, sending.to, "{name}");
            for awaits in &sending.awaits {
                assert_eq!(schedule.sendings[awaits.sending].to, sending.from, "{name}");
            }
        }
    }
}

#[test]
fn every_all_reduce_rank_sends_the_expected_bytes() {
    let hierarchical = Hierarchical { groups: vec![4; 3], size: Bytes(4_800) }.schedule().unwrap();
    let by_rank = |rank| -> u64 {
        let own = hierarchical.sendings.iter().filter(|sending| sending.from == rank);
        own.map(|sending| sending.message.0 * u64::from(sending.messages)).sum()
    };
    // 3/4 of the size twice inside groups, 2·2/3 of a quarter between groups.
    assert!((0..12).all(|rank| by_rank(rank) == 2 * 3_600 + 2 * 2 * 400), "{}", by_rank(0));
}

#[test]
fn unsupported_schedules_return_their_reason() {
    let alone =
        Ring { kind: CollectiveKind::AllReduce, ranks: 1, size: SIZE, directions: Directions::One };
    assert_eq!(alone.schedule(), Err(CollectiveError::TooFewRanks { ranks: 1 }));
    let odd = HalvingDoubling { ranks: 6, size: SIZE }.schedule();
    assert_eq!(odd, Err(CollectiveError::NoPowerOfTwo { ranks: 6 }));
    let unequal = Hierarchical { groups: vec![8, 3], size: SIZE }.schedule();
    let expected = CollectiveError::UnequalGroups { group: 1, ranks: 3, expected: 8 };
    assert_eq!(unequal, Err(expected));
}

fn exchanged(exchange: Exchange, ranks: usize) -> Vec<BTreeSet<(usize, usize)>> {
    let mut held: Vec<BTreeSet<(usize, usize)>> =
        (0..ranks).map(|own| (0..ranks).map(|to| (own, to)).collect()).collect();
    for step in exchange.steps(ranks).unwrap() {
        let mut next = held.clone();
        for (rank, pieces) in held.iter().enumerate() {
            for &(first, last) in pieces {
                let way = match exchange {
                    Exchange::Binary => first ^ last,
                    _ => (last + ranks - first) % ranks,
                };
                if step.ways.contains(&way) {
                    next[rank].remove(&(first, last));
                    next[exchange.partner(rank, step.distance, ranks)].insert((first, last));
                }
            }
        }
        held = next;
    }
    held
}

#[test]
fn every_exchange_delivers_each_piece_to_its_rank() {
    for ranks in 2..=33_usize {
        for exchange in [Exchange::Pairwise, Exchange::AtOnce, Exchange::Bruck, Exchange::Binary] {
            if exchange == Exchange::Binary && !ranks.is_power_of_two() {
                assert!(exchange.steps(ranks).is_err());
                continue;
            }
            for (rank, pieces) in exchanged(exchange, ranks).into_iter().enumerate() {
                let wanted: BTreeSet<_> = (0..ranks).map(|first| (first, rank)).collect();
                assert_eq!(pieces, wanted, "{exchange:?} over {ranks}");
            }
        }
    }
}
