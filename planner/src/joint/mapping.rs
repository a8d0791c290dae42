// SPDX-License-Identifier: Apache-2.0
//! Assigns the ranks between groups (pipeline, context, data) to the groups of a job.
//!
//! Groups are numbered in the order of placement, so neighbouring groups share leaves. A mapping
//! counts through the parallel dimensions in some order; ranks of the fastest-changing dimension
//! then share leaves.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::{MappingFile, StepFile};
use lightloom_fabric::plan::Rank;
use lightloom_units::id::TorId;

use super::PlanError;
use super::network::{self, Estimate};
use super::traffic::phases;
use crate::khop::{Layout, RingGroup};

/// A parallel dimension between groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Context parallelism.
    Context,
    /// Data parallelism.
    Data,
    /// Pipeline parallelism.
    Pipeline,
}

/// The ranks of one job's groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// Index of the job.
    pub job: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Expert-parallel ranks, a subset of the data-parallel ranks.
    pub ep: u32,
    /// The dimensions, fastest-changing first.
    pub order: [Dimension; 3],
    /// How the groups are numbered.
    pub count: Count,
}

/// How the groups of a job are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Numbered in the order of placement, set by set.
    AsPlaced,
    /// Numbered by the leaf of the first node. If leaves differ in size, a set may span several.
    LeafByLeaf,
    /// As `LeafByLeaf`, and every second run through a dimension counts down. The runs on both sides of a leaf that they share
    /// then have neighbouring ranks below it.
    BackAndForth,
}

/// The ranks of a group. All indices start at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coordinates {
    /// Pipeline stage.
    pub pp: u32,
    /// Context-parallel rank.
    pub cp: u32,
    /// Data-parallel rank.
    pub dp: u32,
}

/// The parallel dimensions of a job do not match its groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message documents each field")]
#[error(
    "job `{job}` needs {needed} groups of {tp} GPUs for pp {pp} · cp {cp} · dp {dp}, but {got} fit: use a smaller \
     `dp` or omit it"
)]
pub struct MappingError {
    pub job: String,
    pub tp: u32,
    pub pp: u32,
    pub cp: u32,
    pub dp: u32,
    pub needed: u64,
    pub got: u64,
}

const MOST_NODES_BACK_AND_FORTH: u32 = 1_024;

const ORDERS: [[Dimension; 3]; 6] = {
    use Dimension::{Context, Data, Pipeline};
    [
        [Context, Data, Pipeline],
        [Data, Context, Pipeline],
        [Context, Pipeline, Data],
        [Pipeline, Context, Data],
        [Data, Pipeline, Context],
        [Pipeline, Data, Context],
    ]
};

impl Coordinates {
    pub(super) fn of(rank: &Rank) -> Self {
        Self { pp: rank.pp, cp: rank.cp, dp: rank.dp }
    }
}

impl Mapping {
    /// Returns the number of groups in use.
    pub fn groups(&self) -> u64 {
        u64::from(self.pp) * u64::from(self.cp) * u64::from(self.dp)
    }

    fn size(&self, dimension: Dimension) -> u32 {
        match dimension {
            Dimension::Context => self.cp,
            Dimension::Data => self.dp,
            Dimension::Pipeline => self.pp,
        }
    }

    /// Returns the coordinates of the job's `group`-th group.
    pub fn coordinates(&self, group: u32) -> Coordinates {
        let mut rest = group;
        let mut at = Coordinates::default();
        for dimension in self.order {
            let size = self.size(dimension);
            let rank = rest % size;
            rest /= size;
            let turns = self.count == Count::BackAndForth && rest % 2 == 1;
            let rank = if turns { size - 1 - rank } else { rank };
            match dimension {
                Dimension::Context => at.cp = rank,
                Dimension::Data => at.dp = rank,
                Dimension::Pipeline => at.pp = rank,
            }
        }
        at
    }
}

pub(super) fn mappings(fabric: &Fabric, layout: &mut Layout) -> Result<Vec<Mapping>, MappingError> {
    let mut mappings = Vec::new();
    for (job, installed) in (0..).zip(&fabric.jobs) {
        let Some(StepFile::Training(raw)) = &installed.step else { continue };
        let got = layout.groups_of(job).count() as u64;
        let mapping = mapping(job, raw, got);
        let needed = mapping.groups();
        if needed > got || mapping.dp == 0 {
            let MappingFile { pp, cp, .. } = *raw;
            let (dp, needed) = (mapping.dp.max(1), needed.max(u64::from(pp) * u64::from(cp)));
            let (job, tp) = (installed.name.clone(), installed.tp);
            return Err(MappingError { job, tp, pp, cp, dp, needed, got });
        }
        layout.release(job, usize::try_from(needed).unwrap_or(usize::MAX));
        mappings.push(mapping);
    }
    Ok(mappings)
}

pub(super) fn mappings_of_groups(
    fabric: &Fabric,
    layout: &Layout,
    jobs: &BTreeSet<u32>,
) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    for (job, installed) in (0..).zip(&fabric.jobs).filter(|(job, _)| jobs.contains(job)) {
        if let Some(StepFile::Training(raw)) = &installed.step {
            let raw = MappingFile { dp: None, ..raw.clone() };
            mappings.push(mapping(job, &raw, layout.groups_of(job).count() as u64));
        }
    }
    mappings
}

fn mapping(job: u32, raw: &MappingFile, groups: u64) -> Mapping {
    let MappingFile { pp, cp, ep, dp, .. } = *raw;
    let most = u32::try_from(groups / (u64::from(pp) * u64::from(cp))).unwrap_or(u32::MAX);
    let dp = dp.unwrap_or(most / ep * ep);
    Mapping { job, pp, cp, dp, ep, order: ORDERS[0], count: Count::AsPlaced }
}

/// Ranks in the order with the shortest estimate. Returns the estimated seconds and mappings of every order of the last job,
/// best first.
pub(super) fn rank_in_best_order(
    fabric: &Fabric,
    faults: &FaultSet,
    ranks: &mut [Rank],
    layout: &Layout,
    mappings: &[Mapping],
) -> Result<Vec<(f64, Vec<Mapping>)>, PlanError> {
    let mut tried = vec![(Estimate::default(), mappings.to_vec())];
    rank(fabric, ranks, layout, mappings);
    for at in 0..mappings.len() {
        let mut mappings = tried.swap_remove(0).1;
        let orders = distinct_orders(&mappings[at]);
        let is_sorted = is_leaf_by_leaf(fabric, layout, mappings[at].job);
        let is_small = fabric.hbd.nodes() <= MOST_NODES_BACK_AND_FORTH;
        let mut counts = vec![Count::AsPlaced];
        counts.extend((!is_sorted).then_some(Count::LeafByLeaf));
        counts.extend(is_small.then_some(Count::BackAndForth));
        let ways = counts.iter().flat_map(|count| orders.iter().map(|order| (*count, *order)));
        tried.clear();
        for (count, order) in ways {
            (mappings[at].count, mappings[at].order) = (count, order);
            rank(fabric, ranks, layout, &mappings);
            let estimate = network::estimate(fabric, faults, &phases(fabric, ranks)?);
            let place = tried.partition_point(|(other, _)| !estimate.is_better_than(other));
            tried.insert(place, (estimate, mappings.clone()));
        }
        rank(fabric, ranks, layout, &tried[0].1);
    }
    Ok(tried.into_iter().map(|(estimate, mappings)| (estimate.seconds, mappings)).collect())
}

fn leaf_of(fabric: &Fabric, group: &RingGroup) -> Option<TorId> {
    group.nodes.first().map(|node| fabric.dcn.tor_of(*node))
}

fn is_leaf_by_leaf(fabric: &Fabric, layout: &Layout, job: u32) -> bool {
    layout.groups_of(job).is_sorted_by_key(|group| leaf_of(fabric, group))
}

fn distinct_orders(mapping: &Mapping) -> Vec<[Dimension; 3]> {
    let mut seen: Vec<Vec<Dimension>> = Vec::new();
    let mut orders = Vec::new();
    for order in ORDERS {
        let real: Vec<Dimension> =
            order.into_iter().filter(|dimension| mapping.size(*dimension) > 1).collect();
        if !seen.contains(&real) {
            orders.push(order);
            seen.push(real);
        }
    }
    orders
}

pub(super) fn rank(fabric: &Fabric, ranks: &mut [Rank], layout: &Layout, mappings: &[Mapping]) {
    let mut coordinates = BTreeMap::new();
    for job in (0..).take(layout.jobs.len()) {
        let mapping = mappings.iter().find(|mapping| mapping.job == job);
        let trains = matches!(fabric.jobs[job as usize].step, Some(StepFile::Training(_)));
        if trains && mapping.is_none() {
            continue;
        }
        let mut groups: Vec<&RingGroup> = layout.groups_of(job).collect();
        if mapping.is_some_and(|mapping| mapping.count != Count::AsPlaced) {
            groups.sort_by_key(|group| leaf_of(fabric, group));
        }
        for (number, group) in (0..).zip(groups) {
            let replica = Coordinates { dp: number, ..Coordinates::default() };
            let at = mapping.map_or(replica, |mapping| mapping.coordinates(number));
            coordinates.insert(group.id, (at, mapping.map_or(1, |mapping| mapping.ep)));
        }
    }
    for rank in ranks {
        let Some((at, ep)) = coordinates.get(&rank.group) else { continue };
        (rank.pp, rank.cp, rank.dp, rank.ep) = (at.pp, at.cp, at.dp, at.dp % (*ep).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_assigns_every_rank_once() {
        for order in ORDERS {
            for count in [Count::AsPlaced, Count::BackAndForth] {
                let mapping = Mapping { job: 0, pp: 3, cp: 2, dp: 4, ep: 1, order, count };
                let mut seen: Vec<(u32, u32, u32)> = (0..24)
                    .map(|group| mapping.coordinates(group))
                    .map(|at| (at.pp, at.cp, at.dp))
                    .collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), 24, "{order:?}");
            }
        }
        assert_eq!(
            distinct_orders(&Mapping {
                job: 0,
                pp: 3,
                cp: 1,
                dp: 4,
                ep: 1,
                order: ORDERS[0],
                count: Count::AsPlaced
            })
            .len(),
            2
        );
    }
}
