// SPDX-License-Identifier: Apache-2.0
//! Orders moves in waves. Two slots never share a position, dark links in each failure domain stay
//! within the operator's limit, and both directions of a circuit move together.

use std::collections::{BTreeMap, BTreeSet};

use super::{Moves, Step};
use crate::state::{DeviceName, Move, Position, Sharing, Slot, SwitchState};

pub type Wave = BTreeMap<DeviceName, Step>;

pub type Way = Vec<Moves>;

pub trait Domains {
    fn domain(&self, device: &DeviceName, slot: Slot) -> String;
    fn dark_links_max(&self) -> usize;
    fn sharing(&self, device: &DeviceName) -> Sharing;
    /// Returns the offset from a duplex port's slot number to its position number, or `None` if
    /// ports are not duplex. A duplex circuit takes two moves in one wave and is one link.
    fn duplex(&self, _device: &DeviceName) -> Option<u32> {
        None
    }
}

fn fits(changes: &Moves, way: &[Moves]) -> bool {
    let mut left = keyed(changes);
    for (device, m) in way.iter().flatten().flat_map(|(d, moves)| moves.iter().map(move |m| (d, m)))
    {
        let Some(whole) = left.get_mut(&(device.clone(), m.slot)) else { return false };
        if whole.from != m.from || (m.to != whole.to && !m.to.is_dark()) {
            return false;
        }
        whole.from = m.to;
    }
    left.values().all(|m| m.from == m.to)
}

pub(super) fn legs<'a>(
    changes: &Moves,
    ways: impl Iterator<Item = &'a Way>,
) -> Option<(usize, Vec<SwitchState>)> {
    let (at, way) = ways.enumerate().find(|(_, way)| fits(changes, way))?;
    Some((at, way.iter().map(ends).collect()))
}

fn ends(stage: &Moves) -> SwitchState {
    let ends = stage
        .iter()
        .map(|(device, moves)| (device.clone(), moves.iter().map(|m| (m.slot, m.to)).collect()));
    ends.collect()
}

pub fn waves_in_stages(
    changes: &Moves,
    stages: &[SwitchState],
    domains: &impl Domains,
) -> Vec<Wave> {
    let mut left = keyed(changes);
    let mut all = Vec::new();
    for stage in stages {
        let mut moves = Moves::new();
        let ends = stage.iter().flat_map(|(d, slots)| slots.iter().map(move |slot| (d, slot)));
        for (device, (&slot, &to)) in ends {
            let Some(whole) = left.get_mut(&(device.clone(), slot)) else { continue };
            let m = Move { slot, from: whole.from, to };
            whole.from = to;
            if m.from != to {
                moves.entry(device.clone()).or_default().push(m);
            }
        }
        all.extend(waves(&moves, domains));
    }
    let mut rest = Moves::new();
    for ((device, _), m) in left.into_iter().filter(|(_, m)| m.from != m.to) {
        rest.entry(device).or_default().push(m);
    }
    all.extend(waves(&rest, domains));
    all
}

/// The removals of a wave free all new positions of the wave, so each wave ends in a valid state.
/// To break a cycle that is longer than the limit, one slot (or the old peers of one new duplex
/// circuit) stays dark during a wave.
pub fn waves(changes: &Moves, domains: &impl Domains) -> Vec<Wave> {
    let mut planner = WavePlanner::new(changes, domains);
    let mut waves = Vec::new();
    while !planner.pending.is_empty() {
        waves.push(planner.next_wave());
    }
    waves
}

pub fn at_once(changes: &Moves, domains: &impl Domains) -> Wave {
    let steps = changes.iter();
    steps
        .map(|(device, moves)| (device.clone(), Step::of(domains.sharing(device), moves)))
        .collect()
}

pub fn dark_links(wave: &Wave, domains: &impl Domains) -> usize {
    let halves = wave.iter().map(|(device, step)| {
        let switched = step.add.iter().filter(|m| !m.from.is_dark()).count();
        (step.remove.len() + switched) * halves(domains.duplex(device))
    });
    halves.sum::<usize>().div_ceil(2)
}

fn halves(duplex: Option<u32>) -> usize {
    if duplex.is_some() { 1 } else { 2 }
}

fn keyed(changes: &Moves) -> BTreeMap<(DeviceName, Slot), Move> {
    let keyed = changes
        .iter()
        .flat_map(|(device, moves)| moves.iter().map(move |&m| ((device.clone(), m.slot), m)));
    keyed.collect()
}

/// The place of a device in [`WavePlanner::devices`], because comparisons of names would take most of
/// the time, and a slot.
type Key = (usize, Slot);

struct WavePlanner<'a, D> {
    domains: &'a D,
    devices: Vec<(&'a DeviceName, Option<u32>)>,
    pending: BTreeMap<Key, Move>,
    holder: BTreeMap<(usize, Position), Slot>,
    parked: BTreeSet<Key>,
}

impl<'a, D: Domains> WavePlanner<'a, D> {
    fn new(changes: &'a Moves, domains: &'a D) -> Self {
        let devices: Vec<_> = changes.keys().map(|name| (name, domains.duplex(name))).collect();
        let moves = changes.values().enumerate();
        let pending: BTreeMap<Key, Move> =
            moves.flat_map(|(at, moves)| moves.iter().map(move |&m| ((at, m.slot), m))).collect();
        let held = pending.iter().filter(|((at, _), m)| {
            !m.from.is_dark() && domains.sharing(devices[*at].0) == Sharing::Exclusive
        });
        let holder = held.map(|(&(at, slot), m)| ((at, m.from), slot)).collect();
        Self { domains, devices, pending, holder, parked: BTreeSet::new() }
    }

    fn next_wave(&mut self) -> Wave {
        let mut dark = BTreeMap::<String, usize>::new();
        for &(at, slot) in &self.parked {
            let (device, duplex) = self.devices[at];
            *dark.entry(self.domains.domain(device, slot)).or_default() += halves(duplex);
        }
        let mut chosen: BTreeSet<Key> = BTreeSet::new();
        for &key in self.pending.keys() {
            if chosen.contains(&key) {
                continue;
            }
            let closure = self.closure(key, &chosen);
            if self.darken(&closure, &mut dark) {
                chosen.extend(closure);
            }
        }
        let mut moves = Moves::new();
        if chosen.is_empty() {
            self.open(&mut moves);
        } else {
            self.take(&chosen, &mut moves);
        }
        at_once(&moves, self.domains)
    }

    fn closure(&self, key: Key, chosen: &BTreeSet<Key>) -> BTreeSet<Key> {
        let mut closure = BTreeSet::new();
        let mut next = vec![key];
        while let Some(key) = next.pop() {
            if !chosen.contains(&key) && closure.insert(key) {
                next.extend(self.tied(key));
            }
        }
        closure
    }

    fn tied(&self, key: Key) -> impl Iterator<Item = Key> {
        let m = self.pending[&key];
        let holder = self.holder.get(&(key.0, m.to)).filter(|_| !m.to.is_dark());
        let in_the_way = holder.map(|slot| (key.0, *slot));
        let twins = [m.from, m.to].map(|position| self.other_direction(key.0, position));
        let tied = in_the_way.into_iter().chain(twins.into_iter().flatten());
        tied.filter(|tied| self.pending.contains_key(tied))
    }

    fn other_direction(&self, at: usize, position: Position) -> Option<Key> {
        let offset = self.devices[at].1.filter(|_| !position.is_dark())?;
        Some((at, Slot(position.0.checked_sub(offset)?)))
    }

    fn darken(&self, keys: &BTreeSet<Key>, dark: &mut BTreeMap<String, usize>) -> bool {
        let mut more = BTreeMap::<String, usize>::new();
        for key in keys {
            if !self.pending[key].from.is_dark() {
                let (device, duplex) = self.devices[key.0];
                *more.entry(self.domains.domain(device, key.1)).or_default() += halves(duplex);
            }
        }
        let bound = 2 * self.domains.dark_links_max().max(1);
        let fits = more.iter().all(|(d, n)| dark.get(d).copied().unwrap_or(0) + n <= bound);
        if fits {
            for (domain, count) in more {
                *dark.entry(domain).or_default() += count;
            }
        }
        fits
    }

    fn take(&mut self, chosen: &BTreeSet<Key>, moves: &mut Moves) {
        for key in chosen {
            let Some(m) = self.pending.remove(key) else { continue };
            self.let_go(*key, m.from);
            self.parked.remove(key);
            moves.entry(self.devices[key.0].0.clone()).or_default().push(m);
        }
    }

    fn let_go(&mut self, (at, slot): Key, position: Position) {
        if self.holder.get(&(at, position)) == Some(&slot) {
            self.holder.remove(&(at, position));
        }
    }

    fn open(&mut self, moves: &mut Moves) {
        // Finish the open circuit first, so that only one circuit's slots are parked at a time.
        let begun = self.parked.iter().find(|key| self.devices[key.0].1.is_some());
        let mut lit = self.pending.iter().filter(|(_, m)| !m.from.is_dark()).map(|(key, _)| key);
        let next = begun.or_else(|| lit.next()).copied();
        let key = next.expect("some pending move has a lit position if no move fits in the wave");
        match self.devices[key.0].1 {
            Some(_) => self.open_circuit(key, moves),
            None => self.park(key, moves),
        }
    }

    fn open_circuit(&mut self, key: Key, moves: &mut Moves) {
        let tied = self.closure(key, &BTreeSet::new());
        let mut ends = [key].into_iter().chain(tied.iter().copied());
        let first = ends.find(|key| !self.pending[key].to.is_dark());
        let Some(first) = first else { return self.take(&tied, moves) };
        let back = self.other_direction(first.0, self.pending[&first].to);
        let directions = [Some(first), back].into_iter().flatten();
        let made: BTreeSet<Key> = directions.filter(|key| tied.contains(key)).collect();
        let peers: BTreeSet<Key> = made.iter().flat_map(|key| self.tied(*key)).collect();
        for peer in peers.difference(&made) {
            self.park(*peer, moves);
        }
        self.take(&made, moves);
    }

    fn park(&mut self, key: Key, moves: &mut Moves) {
        let Some(m) = self.pending.get_mut(&key).filter(|m| !m.from.is_dark()) else { return };
        let dark = Move { to: Position::DARK, ..*m };
        m.from = Position::DARK;
        if m.to.is_dark() {
            self.pending.remove(&key);
        } else {
            self.parked.insert(key);
        }
        self.let_go(key, dark.from);
        moves.entry(self.devices[key.0].0.clone()).or_default().push(dark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Positions, at};
    use proptest::prelude::*;

    struct OneDomain {
        dark_links_max: usize,
        duplex: Option<u32>,
    }
    impl Domains for OneDomain {
        fn domain(&self, _: &DeviceName, _: Slot) -> String {
            "all".into()
        }
        fn dark_links_max(&self) -> usize {
            self.dark_links_max
        }
        fn sharing(&self, _: &DeviceName) -> Sharing {
            Sharing::Exclusive
        }
        fn duplex(&self, _: &DeviceName) -> Option<u32> {
            self.duplex
        }
    }

    fn one_way(dark_links_max: usize) -> OneDomain {
        OneDomain { dark_links_max, duplex: None }
    }

    fn moves(list: &[(u32, u32, u32)]) -> Moves {
        let of = |&(slot, from, to): &(u32, u32, u32)| Move {
            slot: Slot(slot),
            from: Position(from),
            to: Position(to),
        };
        Moves::from([("o".into(), list.iter().map(of).collect())])
    }

    fn changes_between(start: &Positions, end: &Positions) -> Moves {
        let slots: BTreeSet<Slot> = start.keys().chain(end.keys()).copied().collect();
        let moves = slots.into_iter().map(|slot| {
            let (from, to) = (at(start, slot), at(end, slot));
            Move { slot, from, to }
        });
        Moves::from([("o".into(), moves.filter(|m| m.from != m.to).collect())])
    }

    fn play(
        start: &Positions,
        waves: &[Wave],
        dark_max: usize,
        end: &Positions,
        links: impl Fn(&Positions) -> usize,
    ) -> Positions {
        let mut state = start.clone();
        let finished = |slot: &Slot, state: &Positions| at(state, *slot) == at(end, *slot);
        for wave in waves {
            let step = &wave[&DeviceName::from("o")];
            for m in &step.remove {
                assert_eq!(at(&state, m.slot), m.from);
                state.remove(&m.slot);
            }
            let dark: Positions = start
                .iter()
                .filter(|(slot, _)| !state.contains_key(slot))
                .filter(|(slot, _)| {
                    !finished(slot, &state) || step.remove.iter().any(|m| m.slot == **slot)
                })
                .map(|(&slot, &position)| (slot, position))
                .collect();
            let dark = links(&dark);
            assert!(dark <= dark_max.max(2), "{dark} dark, at most {dark_max}");
            for m in &step.add {
                assert!(!state.values().any(|p| *p == m.to), "{} held twice", m.to);
                assert_eq!(at(&state, m.slot), Position::DARK);
                state.insert(m.slot, m.to);
            }
        }
        state
    }

    #[test]
    fn both_directions_of_a_circuit_share_a_wave() {
        let changes = moves(&[
            (1, 12, 13),
            (2, 11, 14),
            (3, 14, 11),
            (4, 13, 12),
            (5, 16, 17),
            (6, 15, 0),
            (7, 0, 15),
        ]);
        let domains = OneDomain { dark_links_max: 2, duplex: Some(10) };
        let slots = |wave: &Wave| -> Vec<u32> {
            wave[&DeviceName::from("o")].end().keys().map(|slot| slot.0).collect()
        };
        let waves: Vec<Vec<u32>> = waves(&changes, &domains).iter().map(slots).collect();
        assert_eq!(waves, [vec![1, 2, 3, 4], vec![5, 6, 7]]);
    }

    #[test]
    fn later_stage_waits_for_the_previous_one() {
        let changes = moves(&[(1, 11, 12), (2, 12, 11), (3, 0, 13)]);
        let way = vec![moves(&[(3, 0, 13)]), moves(&[(1, 11, 12), (2, 12, 11)])];
        let (_, stages) = legs(&changes, [&way].into_iter()).unwrap();
        let waves = waves_in_stages(&changes, &stages, &one_way(8));
        let slots = |wave: &Wave| wave[&DeviceName::from("o")].end().len();
        assert_eq!(waves.iter().map(slots).collect::<Vec<_>>(), [1, 2]);
        for other in [
            moves(&[(1, 14, 12), (2, 12, 11), (3, 0, 13)]),
            moves(&[(1, 11, 12), (2, 12, 11), (3, 0, 13), (4, 15, 0)]),
            moves(&[(1, 11, 12), (2, 12, 11)]),
        ] {
            assert_eq!(legs(&other, [&way].into_iter()), None, "{other:?}");
        }
        let rest = moves(&[(1, 11, 12), (2, 0, 11)]);
        assert_eq!(waves_in_stages(&rest, &stages, &one_way(8)).len(), 1);
    }

    #[test]
    fn lighting_a_dark_slot_does_not_free_a_parked_one() {
        let changes = moves(&[(1, 11, 12), (2, 12, 13), (3, 13, 11), (9, 0, 19)]);
        let start: Positions =
            [(1, 11), (2, 12), (3, 13)].map(|(s, p)| (Slot(s), Position(p))).into();
        let end: Positions =
            [(1, 12), (2, 13), (3, 11), (9, 19)].map(|(s, p)| (Slot(s), Position(p))).into();
        let waves = waves(&changes, &one_way(2));
        assert_eq!(play(&start, &waves, 2, &end, Positions::len), end);
    }

    fn matching(seed: u64, stream: u64, ports: u32, share: f64, offset: u32) -> Positions {
        use rand::{RngExt, seq::SliceRandom};
        let mut stream = lightloom_units::seed::Seed(seed).stream("matching", stream);
        let mut list: Vec<u32> = (1..=ports).collect();
        list.shuffle(&mut stream);
        let pairs: Vec<(u32, u32)> = list.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        let kept = pairs.into_iter().filter(|_| stream.random_bool(share));
        kept.flat_map(|(p, q)| [(p, q), (q, p)])
            .map(|(from, to)| (Slot(from), Position(to + offset)))
            .collect()
    }

    proptest! {
        #[test]
        fn permutations_complete_without_double_use_within_the_bound(
            seed in any::<u64>(), size in 1_u32..24, dark_max in 2_usize..8,
        ) {
            use rand::{RngExt, seq::SliceRandom};
            let mut stream = lightloom_units::seed::Seed(seed).stream("permutation", 0);
            let mut to: Vec<u32> = (100..100 + size).collect();
            to.shuffle(&mut stream);
            let start: Positions = (0..size)
                .filter(|_| stream.random_bool(0.9))
                .map(|s| (Slot(s), Position(100 + s)))
                .collect();
            let wanted: Positions = (0..size).map(|s| (Slot(s), Position(to[s as usize]))).collect();
            let changes = changes_between(&start, &wanted);
            let waves = waves(&changes, &one_way(dark_max));
            let end = play(&start, &waves, dark_max, &wanted, Positions::len);
            prop_assert_eq!(end, wanted);
        }

        #[test]
        fn duplex_circuits_complete_as_pairs_within_the_bound(
            seed in any::<u64>(), ports in 2_u32..40, dark_max in 2_usize..6, sides in any::<bool>(),
        ) {
            let offset = if sides { 0 } else { ports };
            let start = matching(seed, 0, ports, 0.9, offset);
            let wanted = matching(seed, 1, ports, 0.8, offset);
            let changes = changes_between(&start, &wanted);
            let domains = OneDomain { dark_links_max: dark_max, duplex: Some(offset) };
            let all = waves(&changes, &domains);
            let mut state = start.clone();
            for count in 1..=all.len() {
                state = play(&start, &all[..count], dark_max, &wanted, |dark: &Positions| dark.len().div_ceil(2));
                for (slot, position) in &state {
                    let back = Slot(position.0 - offset);
                    prop_assert_eq!(at(&state, back), Position(slot.0 + offset));
                }
            }
            prop_assert_eq!(state, wanted);
        }
    }
}
