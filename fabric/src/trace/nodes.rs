// SPDX-License-Identifier: Apache-2.0
//! Maps the servers of a trace to the nodes of a fabric.
//!
//! A fabric of N nodes gets a random sample of the trace's servers in random order. If nodes have
//! fewer GPUs than servers, each node is a part of a server. A server's fault then hits each part
//! independently with the probability [`part_fault_probability`].

use lightloom_units::id::NodeId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;
use rand::seq::SliceRandom;

use super::{FaultTrace, Timeline};

/// The servers of a trace cannot be mapped to the nodes of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum NodesError {
    #[error(
        "a server of {gpus_per_server} GPUs cannot be split into nodes of {gpus_per_node}: the \
         node size must divide the server size"
    )]
    NotAPart { gpus_per_server: u32, gpus_per_node: u32 },
    #[error(
        "{nodes} nodes of {gpus_per_node} GPUs need {needed} servers, but the trace has \
            {servers}: generate a larger one with `lightloom trace synth --servers {needed}`"
    )]
    TooFewServers { nodes: u32, gpus_per_node: u32, needed: u32, servers: u32 },
}

/// Returns the probability that a part with `part_gpus` GPUs has failed, given that its server has
/// failed and that servers are out of service for the fraction `server_ratio` of the time.
///
/// GPU faults are assumed independent with ratio f, where `1 - (1-f)^server_gpus` equals `server_ratio`. By Bayes'
/// theorem, the result is `(1 - (1-f)^part_gpus) / server_ratio`. For the public trace's 2.33 % and half of eight GPUs,
/// it is 0.503. The method is recalled from InfiniteHBD (arXiv 2502.03885).
pub fn part_fault_probability(server_ratio: f64, server_gpus: u32, part_gpus: u32) -> f64 {
    let share = f64::from(part_gpus) / f64::from(server_gpus);
    if part_gpus == server_gpus || server_ratio >= 1.0 {
        return 1.0;
    }
    if server_ratio <= 0.0 {
        return share;
    }
    (1.0 - (1.0 - server_ratio).powf(share)) / server_ratio
}

impl Timeline {
    /// Draws one mapping of the trace to a fabric, with the servers, their order, and the part that
    /// each fault hits. The seed and the sample number determine the mapping.
    ///
    /// # Errors
    /// Fails if the node size does not divide the server size or the trace has too few servers.
    pub fn on_nodes(
        trace: &FaultTrace,
        nodes: u32,
        gpus_per_node: u32,
        seed: Seed,
        sample: u64,
    ) -> Result<Self, NodesError> {
        let gpus_per_server = trace.gpus_per_server;
        if gpus_per_node == 0 || !gpus_per_server.is_multiple_of(gpus_per_node) {
            return Err(NodesError::NotAPart { gpus_per_server, gpus_per_node });
        }
        let parts = gpus_per_server / gpus_per_node;
        let (needed, servers) = (nodes.div_ceil(parts), trace.servers);
        if needed > servers {
            return Err(NodesError::TooFewServers { nodes, gpus_per_node, needed, servers });
        }
        let hit = part_fault_probability(trace.mean_ratio(), gpus_per_server, gpus_per_node);
        let mut random = seed.stream("trace on nodes", sample);
        let slots = shuffled(servers, &mut random);
        let places = shuffled(needed * parts, &mut random);
        let mut intervals = Vec::with_capacity(trace.faults.len());
        for fault in &trace.faults {
            for part in 0..parts {
                // Draw for every fault, so that servers do not affect each other's draws.
                let is_hit = random.random_bool(hit);
                let part_index =
                    u64::from(slots[fault.server.index()]) * u64::from(parts) + u64::from(part);
                let place = places.get(part_index as usize).copied().filter(|place| *place < nodes);
                if let Some(place) = place.filter(|_| is_hit) {
                    intervals.push((NodeId(place), fault.start, fault.end));
                }
            }
        }
        Ok(Self::from_intervals(nodes, trace.window, intervals))
    }
}

fn shuffled(count: u32, random: &mut Stream) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    order.shuffle(random);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Fault, ServerId, TraceTime};

    fn trace(servers: u32) -> FaultTrace {
        let fault = |server| Fault {
            start: TraceTime(10),
            end: TraceTime(20),
            server: ServerId(server),
            kind: 0,
        };
        FaultTrace {
            servers,
            gpus_per_server: 8,
            window: TraceTime(100),
            faults: (0..servers).map(fault).collect(),
            kinds: vec![],
            names: vec![],
            open_faults: 0,
        }
    }

    #[test]
    fn half_a_server_is_hit_with_the_published_probability() {
        assert!((part_fault_probability(0.0233, 8, 4) - 0.503).abs() < 5e-4);
        let four_gpu_node = 0.0233 * part_fault_probability(0.0233, 8, 4);
        assert!((four_gpu_node - 0.011_72).abs() < 5e-6);
        assert!((part_fault_probability(0.5, 8, 8) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn whole_servers_keep_their_faults_when_reassigned() {
        let draw = Timeline::on_nodes(&trace(10), 10, 8, Seed(1), 0).unwrap();
        assert_eq!(draw.faulty_at(TraceTime(15)).len(), 10);
        let subset = Timeline::on_nodes(&trace(10), 6, 8, Seed(1), 0).unwrap();
        assert_eq!(subset.faulty_at(TraceTime(15)).len(), 6);
    }

    #[test]
    fn draws_repeat_by_seed_and_sample() {
        let draw =
            |seed, sample| Timeline::on_nodes(&trace(400), 720, 4, Seed(seed), sample).unwrap();
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(7, 4));
        assert_ne!(draw(7, 3), draw(8, 3));
    }

    #[test]
    fn rejects_a_small_trace_for_a_large_fabric() {
        let error = Timeline::on_nodes(&trace(400), 32_768, 4, Seed(0), 0).unwrap_err();
        assert!(error.to_string().contains("--servers 16384"), "{error}");
        assert!(Timeline::on_nodes(&trace(4), 2, 3, Seed(0), 0).is_err());
        assert!(Timeline::on_nodes(&trace(4), 2, 16, Seed(0), 0).is_err());
    }
}
