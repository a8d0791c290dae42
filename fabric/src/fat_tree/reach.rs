// SPDX-License-Identifier: Apache-2.0
//! Determines the leaf pairs that each bank may connect within the loss budget.
//!
//! The loss of a path is the sum of the losses of its bank, its fibre and its two leaves, so a bank with less loss can
//! connect all pairs that a bank with more loss can. Banks for the same pairs have the same *reach*.

use std::collections::BTreeSet;

use lightloom_units::id::LeafId;

use super::{FatTreeSpec, LeafPair};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reaches {
    forbidden: BTreeSet<LeafPair>,
    extra_db: Vec<f64>,
    reaches: Vec<Reach>,
    of_bank: Vec<Option<usize>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Reach {
    common_db: f64,
    budget_db: f64,
    joins: Vec<bool>,
}

impl Reaches {
    pub(super) fn of(spec: &FatTreeSpec) -> Self {
        let forbidden = spec.forbidden.iter().filter_map(|&(a, b)| LeafPair::new(a, b)).collect();
        let mut extra_db = vec![0.0; spec.leaves as usize];
        for &(leaf, db) in &spec.loss.extra_db {
            extra_db[leaf.index()] += db;
        }
        let of_bank = vec![None; spec.banks.len()];
        let mut reaches = Self { forbidden, extra_db, reaches: Vec::new(), of_bank };
        let mut banks: Vec<usize> = (0..spec.banks.len()).collect();
        banks.sort_by(|a, b| {
            let db = |bank: usize| spec.banks[bank].insertion_loss_db;
            db(*a).total_cmp(&db(*b))
        });
        for bank in banks {
            let common_db = spec.banks[bank].insertion_loss_db + spec.loss.path_db;
            reaches.add(bank, common_db, spec.loss.budget_db);
        }
        reaches
    }

    fn add(&mut self, bank: usize, common_db: f64, budget_db: f64) {
        let reach = Reach { common_db, budget_db, joins: Vec::new() };
        let leaves = 0..self.extra_db.len();
        let is_last = |widest: &Reach| {
            let narrower = |a: usize, b: usize| {
                self.admits(widest, pair(a, b)) != self.admits(&reach, pair(a, b))
            };
            !leaves.clone().any(|a| (a + 1..leaves.end).any(|b| narrower(a, b)))
        };
        if self.reaches.last().is_some_and(is_last) {
            self.of_bank[bank] = Some(self.reaches.len() - 1);
            return;
        }
        let is_joined =
            |a: usize| leaves.clone().any(|b| a != b && self.admits(&reach, pair(a, b)));
        let joins: Vec<bool> = leaves.clone().map(is_joined).collect();
        if joins.contains(&true) {
            self.of_bank[bank] = Some(self.reaches.len());
            self.reaches.push(Reach { joins, ..reach });
        }
    }

    fn admits(&self, reach: &Reach, pair: LeafPair) -> bool {
        self.extra_db(pair).is_some_and(|extra| reach.common_db + extra <= reach.budget_db)
    }

    pub(super) fn extra_db(&self, pair: LeafPair) -> Option<f64> {
        let extra = self.extra_db[pair.a.index()] + self.extra_db[pair.b.index()];
        (!self.forbidden.contains(&pair)).then_some(extra)
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

    pub(super) fn joins(&self, reach: usize, leaf: LeafId) -> bool {
        self.reaches.get(reach).is_some_and(|reach| reach.joins[leaf.index()])
    }
}

fn pair(a: usize, b: usize) -> LeafPair {
    let (a, b) = (LeafId::from_index(a), LeafId::from_index(b));
    LeafPair { a: a.min(b), b: a.max(b) }
}
