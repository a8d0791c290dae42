// SPDX-License-Identifier: Apache-2.0
//! A lower bound over all placements on the communication time of a training step, between leaves
//! and at GPU interfaces.
//!
//! A leaf has at most p nodes. All GPUs of a node belong to one group and have different
//! tensor-parallel ranks. For each tensor-parallel rank, a leaf therefore holds a set S of at most
//! p groups. S is a set of points in the grid of context, data and pipeline ranks. If S contains
//! some but not all points of a grid line (a data-parallel ring or a pipeline), that line sends at
//! least the bytes of one message out of the leaf. The Loomis–Whitney inequality gives the minimum
//! number of such lines: |S|² is at most the product of the numbers of lines touched in the three
//! directions. The minimum bytes per point, times the number of points, divided by the total rate
//! of all leaves, is a lower bound on the time for every placement and every choice of circuits.
//!
//! All traffic outside rings passes the network interfaces of the sending and the receiving GPU,
//! even if both are below the same leaf. The busiest GPU of a phase therefore sends the same bytes
//! in every placement. If an island could carry this traffic instead, there is no such bound.
//!
//! If islands hold several groups, S covers the larger of a leaf and an island.
//!
//! The bound is tight if only one dimension has traffic between leaves and its ranks divide evenly.
//! It is loose if leaves have unequal loads, or if whole circuits do not match the traffic.

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
    /// Minimum bytes that a grid line sends out of a leaf that holds only a part of it.
    bytes: f64,
}

/// Returns the number of nodes that reach one another below a leaf or on an island. `None` if
/// neither size divides the other, because overlapping leaves and islands may then connect all
/// nodes.
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

/// Returns a lower bound in seconds on the step time of the slowest job in `mappings`.
pub(super) fn least_seconds(
    fabric: &Fabric,
    faults: &FaultSet,
    mappings: &[Mapping],
    phases: &[PhasePlan],
) -> Option<f64> {
    let rate: f64 = leaf_rates(fabric, faults).iter().sum();
    // Only the slowest job counts, because in the best case the traffic of other jobs does not
    // delay it.
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
    // One ring joins all context and data ranks of a stage, so a data-parallel line need not send
    // bytes out of its leaf if there are several context ranks.
    let replicas = cp * f64::from(mapping.dp);
    let gradients = passes * (replicas - 1.0) / replicas * card.weight_bytes().0 as f64 / (tp * pp);
    // Express the gradients as the bytes that take equally long at the micro-batches' share of the
    // rate.
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
                // The Loomis–Whitney inequality requires at least this many lines in the third
                // direction.
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
            "a ring of eight stays below the leaf"
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
