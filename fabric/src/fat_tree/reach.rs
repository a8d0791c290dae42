// SPDX-License-Identifier: Apache-2.0
//! Determines the leaf pairs that each bank may connect within the loss budget.
//!
//! A bank connects pairs of its own leaves. The loss of a path is the sum of the losses of its bank, its fibre and its
//! two leaves. Banks with circuits of the same rate for the same pairs have the same *reach*. Reaches are sorted by
//! decreasing number of pairs, and then by rate.
//!
//! Rates of circuits are whole numbers of a *unit*, their greatest common divisor.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::id::{LeafId, OcsId, OcsPortId};
use lightloom_units::{BitsPerSecond, gcd};

use super::{FatTreeSpec, LeafLoss, LeafPair, PortLoss, halves};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reaches {
    forbidden: BTreeSet<LeafPair>,
    extra_db: Vec<f64>,
    reaches: Vec<Reach>,
    of_bank: Vec<Option<usize>>,
    pub(super) unit: BitsPerSecond,
    pub(super) are_between_halves: bool,
    /// Whether all circuits have the rate of one unit.
    pub(super) are_equal: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Reach {
    rate: BitsPerSecond,
    common_db: f64,
    budget_db: f64,
    leaves: Option<Vec<LeafId>>,
    joins: Vec<bool>,
}

impl Reaches {
    pub(super) fn of(spec: &FatTreeSpec, are_between_halves: bool) -> Self {
        let forbidden = spec.forbidden.iter().filter_map(|&(a, b)| LeafPair::new(a, b)).collect();
        let extra_db = extra_db_of_leaves(spec);
        let of_bank = vec![None; spec.banks.len()];
        let unit = unit_of(spec);
        let are_equal = spec.banks.iter().all(|bank| spec.circuit_rate_over(bank) == unit);
        let mut reaches = Self {
            forbidden,
            extra_db,
            reaches: Vec::new(),
            of_bank,
            unit,
            are_between_halves,
            are_equal,
        };
        let mut found: Vec<(Reach, Vec<usize>)> = Vec::new();
        for (bank, of) in spec.banks.iter().enumerate() {
            let reach = Reach {
                rate: spec.circuit_rate_over(of),
                common_db: of.insertion_loss_db + spec.loss.path_db,
                budget_db: spec.loss.budget_db,
                leaves: of.leaves.clone(),
                joins: Vec::new(),
            };
            match found.iter_mut().find(|(known, _)| *known == reach) {
                Some((_, banks)) => banks.push(bank),
                None => found.push((reach, vec![bank])),
            }
        }
        if found.len() > 1 {
            found = reaches.distinct(found);
        }
        for (mut reach, banks) in found {
            reach.joins = reaches.joins_of(&reach);
            if reach.joins.contains(&true) {
                banks.iter().for_each(|bank| reaches.of_bank[*bank] = Some(reaches.count()));
                reaches.reaches.push(reach);
            }
        }
        reaches
    }

    /// Merges reaches with equal pairs of leaves and rates, and sorts them.
    fn distinct(&self, found: Vec<(Reach, Vec<usize>)>) -> Vec<(Reach, Vec<usize>)> {
        let mut distinct: Vec<(Vec<LeafPair>, Reach, Vec<usize>)> = Vec::new();
        for (reach, banks) in found {
            let pairs = self.pairs_of(&reach);
            match distinct
                .iter_mut()
                .find(|(known, other, _)| *known == pairs && other.rate == reach.rate)
            {
                Some((.., known)) => known.extend(banks),
                None => distinct.push((pairs, reach, banks)),
            }
        }
        distinct.sort_by_key(|(pairs, reach, _)| (std::cmp::Reverse(pairs.len()), reach.rate));
        distinct.into_iter().map(|(_, reach, banks)| (reach, banks)).collect()
    }

    fn joins_of(&self, reach: &Reach) -> Vec<bool> {
        let leaves = (0..self.extra_db.len()).map(LeafId::from_index);
        let joins = leaves.clone().map(|leaf| {
            let mut pairs = leaves.clone().filter_map(|peer| LeafPair::new(leaf, peer));
            pairs.any(|pair| self.admits(reach, pair))
        });
        joins.collect()
    }

    fn pairs_of(&self, reach: &Reach) -> Vec<LeafPair> {
        let all = (0..self.extra_db.len()).map(LeafId::from_index);
        let leaves: Vec<LeafId> = reach.leaves.clone().unwrap_or_else(|| all.collect());
        let pairs = leaves
            .iter()
            .enumerate()
            .flat_map(|(at, a)| leaves[at + 1..].iter().filter_map(move |b| LeafPair::new(*a, *b)));
        pairs.filter(|pair| self.admits(reach, *pair)).collect()
    }

    fn admits(&self, reach: &Reach, pair: LeafPair) -> bool {
        [pair.a, pair.b].iter().all(|leaf: &LeafId| {
            reach.leaves.as_ref().is_none_or(|leaves| leaves.binary_search(leaf).is_ok())
        }) && self.extra_db(pair).is_some_and(|extra| reach.common_db + extra <= reach.budget_db)
    }

    pub(super) fn extra_db(&self, pair: LeafPair) -> Option<f64> {
        let extra = self.extra_db[pair.a.index()] + self.extra_db[pair.b.index()];
        let may_join = !self.are_between_halves || halves::may_join(pair, self.extra_db.len());
        (may_join && !self.forbidden.contains(&pair)).then_some(extra)
    }

    pub(super) fn count(&self) -> usize {
        self.reaches.len()
    }

    pub(super) fn join_nothing(&self) -> bool {
        self.reaches.is_empty()
    }

    pub(super) fn of_bank(&self, bank: usize) -> usize {
        self.of_bank[bank].unwrap_or(self.reaches.len())
    }

    pub(super) fn is_dark(&self, bank: usize) -> bool {
        self.of_bank[bank].is_none()
    }

    pub(super) fn permits(&self, reach: usize, pair: LeafPair) -> bool {
        self.reaches.get(reach).is_some_and(|reach| self.admits(reach, pair))
    }

    pub(super) fn units(&self, reach: usize) -> u32 {
        let own = self.reaches.get(reach).filter(|_| !self.are_equal);
        own.map_or(1, |reach| units(reach.rate, self.unit))
    }

    pub(super) fn joins(&self, reach: usize, leaf: LeafId) -> bool {
        self.reaches.get(reach).is_some_and(|reach| reach.joins[leaf.index()])
    }
}

/// Returns the greatest common divisor of the rates of all banks.
pub(super) fn unit_of(spec: &FatTreeSpec) -> BitsPerSecond {
    let rates = spec.banks.iter().map(|bank| spec.circuit_rate_over(bank).0);
    BitsPerSecond(rates.fold(0, gcd))
}

pub(super) fn units(rate: BitsPerSecond, unit: BitsPerSecond) -> u32 {
    u32::try_from(rate.0 / unit.0.max(1)).unwrap_or(u32::MAX)
}

fn extra_db_of_leaves(spec: &FatTreeSpec) -> Vec<f64> {
    let mut extra_db = vec![0.0; spec.leaves as usize];
    for &LeafLoss { leaf, db } in &spec.loss.extra_db {
        extra_db[leaf.index()] += db;
    }
    extra_db
}

/// Returns the ports that stay dark because of the loss of their fibres. A port is used only if no circuit over it,
/// to any other usable port of the switch, can exceed the budget.
pub(super) fn dark_ports(spec: &FatTreeSpec) -> Vec<OcsPortId> {
    let extra_db = extra_db_of_leaves(spec);
    let mut of_switch = BTreeMap::<OcsId, Vec<(f64, OcsPortId)>>::new();
    for &PortLoss { port, db } in &spec.loss.ports {
        let Some(bank) = spec.bank(port.ocs) else { continue };
        let leaf_db = bank.leaf_at(port.port).map_or(0.0, |leaf| extra_db[leaf.index()]);
        of_switch.entry(port.ocs).or_default().push((db + leaf_db, port));
    }
    let mut dark = Vec::new();
    for (ocs, mut ports) in of_switch {
        let Some(bank) = spec.bank(ocs) else { continue };
        let own = (0..spec.leaves).filter(|leaf| bank.place_of(LeafId(*leaf)).is_some());
        let left_db = spec.loss.budget_db - spec.loss.path_db - bank.insertion_loss_db;
        // A leaf whose loss alone forbids circuits with others does not count as a partner.
        let own_db = own.map(|leaf| extra_db[leaf as usize]).filter(|db| *db <= left_db);
        let plain_db = own_db.fold(0.0, f64::max);
        ports.sort_by(|a, b| a.0.total_cmp(&b.0));
        while let Some((worst_db, port)) = ports.pop() {
            let second_db = ports.last().map_or(plain_db, |(db, _)| db.max(plain_db));
            if worst_db + second_db <= left_db {
                break;
            }
            dark.push(port);
        }
    }
    dark
}
