// SPDX-License-Identifier: Apache-2.0
//! Durations of the distinct exchanges of a step on idle links, each simulated once, packet by packet.

use lightloom_engine::transport::Transport;
use lightloom_training::graph::{Task, TaskGraph, TaskId, TaskPace, TaskPaces, TaskWork};
use lightloom_training::machine::Machine;
use lightloom_units::Picoseconds;
use rustc_hash::FxHashMap;

use super::packets::{HOPS_BUDGET, hops_of};
use super::replay::{RingReuse, replay};
use crate::run::workload::by_domain;
use crate::run::{Progress, RunError};

pub(super) struct IdleTimes {
    /// Duration of each task.
    pub(super) took: Vec<Picoseconds>,
    pub(super) packet_hops: u64,
    pub(super) reused: u64,
}

/// An exchange is too long to simulate whole above this number of packet-hops.
const LONG: f64 = HOPS_BUDGET / 50.0;

impl IdleTimes {
    pub(super) fn of(
        graph: &TaskGraph,
        machine: &Machine,
        progress: &mut dyn Progress,
    ) -> Result<Self, RunError> {
        Self::above(LONG, graph, machine, progress)
    }

    /// Simulates exchanges above `long` packet-hops in parts.
    fn above(
        long: f64,
        graph: &TaskGraph,
        machine: &Machine,
        progress: &mut dyn Progress,
    ) -> Result<Self, RunError> {
        let domains = machine.domain_of();
        let mut places: FxHashMap<(TaskWork, TaskPace), (usize, u64)> = FxHashMap::default();
        let (mut tasks, mut paces): (Vec<Task>, TaskPaces) = Default::default();
        let exchanges = (0u32..).zip(graph.tasks()).map(|(id, task)| {
            let pace = graph.pace(TaskId(id));
            let exchange = without_ranks(&task.work, &domains)?;
            Some(*places.entry((exchange, pace)).or_insert_with(|| {
                let (works, units) = shortened(&task.work, machine, &domains, long);
                for work in works {
                    let after = tasks.len().checked_sub(1).map(|last| TaskId(last as u32));
                    let after = after.into_iter().collect();
                    tasks.push(Task { name: task.name.clone(), after, work });
                    paces.push(pace);
                }
                (tasks.len() - 1, units)
            }))
        });
        let exchanges: Vec<Option<(usize, u64)>> = exchanges.collect();
        let distinct = TaskGraph::new(tasks).expect("tasks are created in order").with_paces(paces);
        let alone = replay(&distinct, machine, RingReuse::IdleRings, progress)?;
        let alone_for: Vec<Picoseconds> =
            alone.spans.iter().map(|(begun, ended)| ended.since(*begun)).collect();
        let took = exchanges.iter().zip(graph.tasks()).map(|(exchange, task)| {
            match (exchange, &task.work) {
                (Some((place, 0)), _) => alone_for[*place],
                (Some((place, units)), _) => {
                    let unit = alone_for[*place].saturating_sub(alone_for[place - 1]);
                    alone_for[*place] + unit * *units
                }
                (None, TaskWork::Compute { took, .. }) => *took,
                (None, _) => Picoseconds::ZERO,
            }
        });
        let took = took.collect();
        let reused = exchanges.iter().flatten().count() - places.len();
        Ok(Self { took, packet_hops: alone.packet_hops, reused: reused as u64 })
    }
}

/// Returns a long exchange cut to the sizes s and s + u, and the number of units u between s + u and its
/// size. A unit adds the same number of full packets to each message, and so the same time, except that paces
/// round by up to a packet for each message. Otherwise returns the exchange and 0.
fn shortened(
    work: &TaskWork,
    machine: &Machine,
    domains: &[Option<u32>],
    long: f64,
) -> (Vec<TaskWork>, u64) {
    let mut works = vec![work.clone(), work.clone()];
    let mut units = 0;
    for (work, left) in works.iter_mut().zip([1, 2]) {
        let (ranks, rings, bytes) = match work {
            TaskWork::Ring { ring, bytes, .. } => (machine.rings[*ring as usize].len(), 1, bytes),
            TaskWork::Across { ranks, bytes, .. } => {
                let own = ranks.iter().map(|rank| domains[*rank as usize]).collect::<Vec<_>>();
                (ranks.len(), by_domain(&own)[0].len(), bytes)
            }
            TaskWork::Transfer { bytes, .. } => (2, 1, bytes),
            TaskWork::Compute { .. } | TaskWork::Pairs { .. } => break,
        };
        // A rank sends a piece for each other rank, in two directions, on each ring.
        let packets = Transport::default().payload.0 * (ranks * 2 * rings) as u64;
        let unit = packets * ((long / 8.0 / sent_hops(ranks, packets)) as u64).max(1);
        if sent_hops(ranks, bytes.0) > long && bytes.0 / unit > 3 {
            units = bytes.0 / unit - left;
            bytes.0 -= units * unit;
        }
    }
    (works.split_off(usize::from(units == 0)), units)
}

fn sent_hops(ranks: usize, bytes: u64) -> f64 {
    ranks as f64 * hops_of(bytes as f64)
}

/// Estimates the packets of an exchange, counted once per link.
pub(super) fn packet_hops(work: &TaskWork, machine: &Machine) -> f64 {
    match work {
        TaskWork::Compute { .. } => 0.0,
        TaskWork::Ring { ring, bytes, .. } => {
            sent_hops(machine.rings[*ring as usize].len(), bytes.0)
        }
        TaskWork::Across { ranks, bytes, .. } => sent_hops(ranks.len(), bytes.0),
        TaskWork::Transfer { bytes, .. } => sent_hops(1, bytes.0),
        TaskWork::Pairs { bytes, .. } => sent_hops(1, bytes.iter().sum()),
    }
}

/// Returns an exchange without the identities of its ranks: their domains, numbered in order of appearance, and one ring
/// for all. Equal exchanges take equally long on idle links.
fn without_ranks(work: &TaskWork, domains: &[Option<u32>]) -> Option<TaskWork> {
    let mut work = work.clone();
    match &mut work {
        TaskWork::Compute { .. } => return None,
        TaskWork::Ring { ring, .. } => *ring = 0,
        TaskWork::Across { ranks, .. } | TaskWork::Pairs { ranks, .. } => {
            *ranks = numbered(ranks, domains);
        }
        TaskWork::Transfer { from, to, .. } => {
            *to = u32::from(domains[*from as usize] != domains[*to as usize]);
            *from = 0;
        }
    }
    Some(work)
}

/// Returns the number of each rank's domain.
fn numbered(ranks: &[u32], domains: &[Option<u32>]) -> Vec<u32> {
    let mut seen = Vec::new();
    let numbers = ranks.iter().map(|rank| {
        let Some(domain) = domains[*rank as usize] else { return u32::MAX };
        let known = seen.iter().position(|one| *one == domain).unwrap_or_else(|| {
            seen.push(domain);
            seen.len() - 1
        });
        known as u32
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use lightloom_collective::CollectiveKind;
    use lightloom_training::graph::{Task, TaskGraph, TaskWork};
    use lightloom_training::machine::{Cable, Domain, Machine};
    use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

    use super::{IdleTimes, shortened};

    fn machine(domain: Domain) -> Machine {
        let delay = Picoseconds::from_nanos(500);
        let link = |gbps| Cable { rate: BitsPerSecond::from_gbps(gbps), delay };
        Machine {
            ranks: 8,
            rings: vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]],
            domain,
            ring_link: link(3_200),
            rails: (0..4).map(|rail| vec![rail, rail + 4]).collect(),
            rail_link: link(400),
            expert_imbalance: 0.0,
        }
    }

    #[test]
    fn extrapolated_exchanges_take_as_long_as_whole_ones() {
        let groups = vec![(0..4).collect(), (4..8).collect()];
        for domain in [Domain::Cables, Domain::Switches { groups }] {
            let machine = machine(domain);
            for bytes in [30_000_017, 52_428_800].map(Bytes) {
                let ring = |kind| TaskWork::Ring { kind, ring: 0, bytes };
                let across = |kind| TaskWork::Across { kind, ranks: vec![0, 4], bytes };
                let works =
                    CollectiveKind::NAMED[..4].iter().flat_map(|kind| [ring(*kind), across(*kind)]);
                for work in works.chain([TaskWork::Transfer { from: 1, to: 5, bytes }]) {
                    let long = super::packet_hops(&work, &machine) / 2.0;
                    assert_eq!(
                        shortened(&work, &machine, &machine.domain_of(), long).0.len(),
                        2,
                        "{work:?}"
                    );
                    let task = Task { name: String::new(), after: Vec::new(), work };
                    let graph = TaskGraph::new(vec![task.clone()]).unwrap();
                    let [whole, cut] = [1e9, long]
                        .map(|long| IdleTimes::above(long, &graph, &machine, &mut ()).unwrap());
                    assert!(cut.packet_hops < whole.packet_hops, "{:?}", task.work);
                    let [cut, whole] = [cut.took[0], whole.took[0]];
                    let most = match &task.work {
                        TaskWork::Across { .. } => Picoseconds(whole.0 / 500),
                        _ => Picoseconds(whole.0 / 5_000),
                    };
                    assert!(cut.0.abs_diff(whole.0) <= most.0, "{:?}", task.work);
                }
            }
        }
    }
}
