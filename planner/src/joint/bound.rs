// SPDX-License-Identifier: Apache-2.0
//! A lower bound on the communication time of a training step, over all placements.
//!
//! A leaf has at most p nodes, and the GPUs of a node are different tensor-parallel ranks of one
//! group. For each tensor-parallel rank, a leaf therefore holds a set S of at most p groups, which
//! are points in the grid of context, data and pipeline ranks. A grid line (a data-parallel ring or
//! a pipeline) that is only partly in S sends at least the bytes of one message out of the leaf. By
//! the Loomis–Whitney inequality, |S|² is at most the product of the numbers of lines touched in
//! the three directions, which gives the minimum number of such lines. The minimum bytes per point
//! times the number of points, divided by the total rate of all leaves, is a lower bound on the
//! time for every placement and every choice of circuits.
//!
//! Traffic outside rings passes through the network interfaces of both GPUs even below one leaf, so
//! the busiest GPU of a phase sends the same bytes in every placement. This bound does not apply if
//! an island could carry the traffic.
//!
//! If islands hold several groups, S is limited by the larger of leaf and island.
//!
//! The bound is tight if traffic between leaves comes from a single dimension whose ranks divide
//! evenly. It is loose for unequal leaf loads, or if whole circuits do not match the traffic.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::{MappingFile, ShardingFile, StepFile};
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::plan::PhasePlan;

use super::mapping::Mapping;
use super::network::{leaf_rates, longest};
use crate::rfabric::step;
use crate::rfabric::workload::card::ModelCard;

#[derive(Clone, Copy, Debug)]
struct Direction {
    size: u32,
    bytes: f64,
}

/// `None` if neither size divides the other, because overlapping leaves and islands may connect all nodes.
fn nodes_together(fabric: &Fabric) -> Option<u32> {
    let of_leaf = fabric.dcn.nodes_per_tor();
    match fabric.hbd.grouping() {
        Grouping::Island { nodes } => {
            let (small, large) = (of_leaf.min(nodes), of_leaf.max(nodes));
            large.is_multiple_of(small).then_some(large)
        }
        Grouping::Line | Grouping::Anywhere => Some(of_leaf),
    }
}

pub(super) fn least_seconds(
    fabric: &Fabric,
    faults: &FaultSet,
    mappings: &[Mapping],
    phases: &[PhasePlan],
) -> Option<f64> {
    let rate: f64 = leaf_rates(fabric, faults).iter().sum();
    // In the best case, jobs do not delay one another, so only the slowest one matters.
    let bytes = mappings.iter().map(|mapping| least_bytes(fabric, mapping));
    let most = bytes.reduce(|most, bytes| Some(most?.max(bytes?)));
    let interfaces = match fabric.hbd.grouping() {
        Grouping::Island { .. } => None,
        Grouping::Line | Grouping::Anywhere => {
            longest(phases, |phase| phase.interface_ps.unwrap_or_default())
        }
    };
    let least = interfaces.unwrap_or_default().as_secs_f64();
    Some((most.flatten()? * 8.0 / rate).max(least))
}

fn least_bytes(fabric: &Fabric, mapping: &Mapping) -> Option<f64> {
    let job = &fabric.jobs[mapping.job as usize];
    let Some(StepFile::Training(raw)) = &job.step else { return None };
    let card = step::model(fabric, job).ok()??;
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    let together = nodes_together(fabric)?.saturating_mul((per_node / job.tp).max(1));
    let points = mapping.groups() as f64 * f64::from(job.tp);
    let each = least_bytes_a_point(&directions(mapping, raw, &card, job.tp), together);
    Some(each * points / raw.usable_share)
}

fn directions(mapping: &Mapping, raw: &MappingFile, card: &ModelCard, tp: u32) -> [Direction; 3] {
    let [tp, cp, pp] = [tp, mapping.cp, mapping.pp].map(f64::from);
    let layers = f64::from(card.layers / mapping.pp);
    let batches = f64::from(raw.micro_batches);
    let tokens = f64::from(raw.tokens);
    let kv = f64::from(card.cache_elements_per_layer) * f64::from(card.element_bytes);
    let context = 3.0 * (cp - 1.0) / cp * tokens * kv * layers * batches / tp;
    let stage = card.token_bytes().0 as f64 * tokens / cp * batches / tp;
    let passes = match raw.sharding {
        ShardingFile::Replicated => 2.0,
        ShardingFile::Sharded => 3.0,
    };
    // One ring connects all context and data ranks of a stage. With several context ranks, a
    // data-parallel line therefore need not leave its leaf.
    let replicas = cp * f64::from(mapping.dp);
    let gradients = passes * (replicas - 1.0) / replicas * card.weight_bytes().0 as f64 / (tp * pp);
    let gradients = gradients * raw.usable_share / raw.gradient_share();
    let data = if mapping.cp == 1 { gradients } else { 0.0 };
    [
        Direction { size: mapping.cp, bytes: context },
        Direction { size: mapping.dp, bytes: data },
        Direction { size: mapping.pp, bytes: stage },
    ]
}

fn least_bytes_a_point(directions: &[Direction; 3], together: u32) -> f64 {
    let mut least = f64::INFINITY;
    for points in 1..=together {
        let touched = directions.map(|direction| touchable(direction.size, points));
        for a in touched[0].clone() {
            for b in touched[1].clone() {
                let needed =
                    (u64::from(points) * u64::from(points)).div_ceil(u64::from(a) * u64::from(b));
                let third = touched[2].clone();
                let from = u32::try_from(needed).unwrap_or(u32::MAX).max(*third.start());
                for c in from..=*third.end() {
                    let bytes: f64 = directions
                        .iter()
                        .zip([a, b, c])
                        .map(|(direction, lines)| {
                            f64::from(cut(direction.size, lines, points)) * direction.bytes
                        })
                        .sum();
                    least = least.min(bytes / f64::from(points));
                }
            }
        }
    }
    least
}

fn touchable(size: u32, points: u32) -> std::ops::RangeInclusive<u32> {
    points.div_ceil(size)..=points
}

fn cut(size: u32, lines: u32, points: u32) -> u32 {
    if size == 1 {
        return 0;
    }
    (0..=lines)
        .find(|cut| {
            let whole = (lines - cut) * size;
            whole <= points && (*cut..=cut * (size - 1)).contains(&(points - whole))
        })
        .unwrap_or(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(size: u32, bytes: f64) -> Direction {
        Direction { size, bytes }
    }

    #[test]
    fn ring_that_leaves_its_leaf_once_meets_the_bound() {
        let one = [line(1, 0.0), line(64, 10.0), line(1, 0.0)];
        assert!((least_bytes_a_point(&one, 8) - 10.0 / 8.0).abs() < 1e-12);
        let inside = [line(1, 0.0), line(8, 10.0), line(1, 0.0)];
        assert!(
            least_bytes_a_point(&inside, 8).abs() < 1e-12,
            "a ring of eight nodes stays below one leaf"
        );
    }

    #[test]
    fn no_subset_of_a_grid_sends_less_than_the_bound() {
        for (sizes, bytes) in [([2, 3, 2], [5.0, 3.0, 2.0]), ([1, 4, 3], [0.0, 1.0, 7.0])] {
            let directions = [0, 1, 2].map(|at| line(sizes[at], bytes[at]));
            let points: Vec<[u32; 3]> = (0..sizes[0])
                .flat_map(|a| {
                    (0..sizes[1]).flat_map(move |b| (0..sizes[2]).map(move |c| [a, b, c]))
                })
                .collect();
            for most in 1..=4_u32 {
                let mut least = f64::INFINITY;
                for subset in 1_u32..1 << points.len() {
                    let chosen: Vec<[u32; 3]> = (0..points.len())
                        .filter(|at| subset >> at & 1 == 1)
                        .map(|at| points[at])
                        .collect();
                    if chosen.len() as u32 > most {
                        continue;
                    }
                    let mut sent = 0.0;
                    for axis in 0..3 {
                        let mut lines = std::collections::BTreeMap::new();
                        for point in &chosen {
                            let mut key = *point;
                            key[axis] = 0;
                            *lines.entry(key).or_insert(0) += 1;
                        }
                        let cut = lines.values().filter(|count| **count < sizes[axis]).count();
                        sent += cut as f64 * bytes[axis];
                    }
                    least = least.min(sent / chosen.len() as f64);
                }
                let bound = least_bytes_a_point(&directions, most);
                assert!(bound <= least + 1e-9, "{bound} {least} {sizes:?} {most}");
            }
        }
    }
}
