//! A fluid model of one phase: flows share circuits and the electrical core max-min fairly.
//!
//! The closed form says how fast a phase could be if traffic were divided over circuits and core as well
//! as possible. Here every pair simply uses its circuits at their rate, and the core at its fair share,
//! until its bytes are gone; when one ends, the others share anew. The time is never below the closed
//! form, and the difference is what plain transport would lose. A pair gets the bandwidth of its
//! circuits, not the electrical path plus a delay.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;

use super::demand::Demand;
use super::topology::Topology;

/// One pair's bytes on their way.
#[derive(Clone, Debug)]
struct Flow {
    from: usize,
    to: usize,
    bits_left: f64,
    circuit_rate: f64,
}

/// Links that flows share, by index: 4 a leaf.
#[derive(Clone, Copy)]
enum Link {
    /// Into the core.
    Up = 0,
    /// Out of the core.
    Down = 1,
    /// From the GPUs below.
    Send = 2,
    /// To the GPUs below.
    Receive = 3,
}

/// Seconds until the last byte of `demand` has arrived; infinite where some cannot.
#[must_use]
pub fn seconds(fabric: &ReconfigurableFatTree, demand: &Demand, topology: &Topology) -> f64 {
    let circuit = fabric.spec().circuit_rate.0 as f64;
    let mut flows: Vec<Flow> = demand
        .flows()
        .map(|(from, to, bytes)| Flow {
            from: from.index(),
            to: to.index(),
            bits_left: bytes.0 as f64 * 8.0,
            circuit_rate: circuit * f64::from(topology.between(from.index(), to.index())),
        })
        .collect();
    let mut elapsed = 0.0;
    while !flows.is_empty() {
        let rates = rates(fabric, &flows);
        let next = flows
            .iter()
            .zip(&rates)
            .map(|(flow, rate)| flow.bits_left / rate)
            .fold(f64::INFINITY, f64::min);
        if next.is_infinite() {
            return f64::INFINITY;
        }
        elapsed += next;
        for (flow, rate) in flows.iter_mut().zip(&rates) {
            flow.bits_left -= rate * next;
        }
        flows.retain(|flow| flow.bits_left > 1.0);
    }
    elapsed
}

/// The rate of every flow: what its circuits give and its share of the core.
fn rates(fabric: &ReconfigurableFatTree, flows: &[Flow]) -> Vec<f64> {
    let mut capacity = vec![0.0; 4 * fabric.leaves()];
    for leaf in 0..fabric.leaves() {
        for link in [Link::Up, Link::Down] {
            capacity[4 * leaf + link as usize] = fabric.electrical_rate();
        }
        for link in [Link::Send, Link::Receive] {
            capacity[4 * leaf + link as usize] = fabric.host_rate();
        }
    }
    let over_circuits: Vec<(Vec<usize>, f64)> = flows
        .iter()
        .map(|flow| {
            let hosts =
                vec![4 * flow.from + Link::Send as usize, 4 * flow.to + Link::Receive as usize];
            (hosts, flow.circuit_rate)
        })
        .collect();
    let circuit_rates = max_min(&mut capacity, &over_circuits);
    let over_core: Vec<(Vec<usize>, f64)> = flows
        .iter()
        .map(|flow| {
            let links = vec![
                4 * flow.from + Link::Send as usize,
                4 * flow.from + Link::Up as usize,
                4 * flow.to + Link::Down as usize,
                4 * flow.to + Link::Receive as usize,
            ];
            (links, f64::INFINITY)
        })
        .collect();
    let core_rates = max_min(&mut capacity, &over_core);
    circuit_rates.iter().zip(&core_rates).map(|(circuits, core)| circuits + core).collect()
}

/// Progressive filling: all rates rise together; a flow stops at its own limit or when a link of its path is
/// full. Takes what it gives from `capacity`.
fn max_min(capacity: &mut [f64], flows: &[(Vec<usize>, f64)]) -> Vec<f64> {
    let mut rates = vec![0.0; flows.len()];
    let mut rising: Vec<usize> = (0..flows.len()).filter(|flow| flows[*flow].1 > 0.0).collect();
    while !rising.is_empty() {
        let mut users = vec![0.0; capacity.len()];
        for flow in &rising {
            for link in &flows[*flow].0 {
                users[*link] += 1.0;
            }
        }
        let by_links = (0..capacity.len())
            .filter(|link| users[*link] > 0.0)
            .map(|link| capacity[link] / users[link])
            .fold(f64::INFINITY, f64::min);
        let by_limits =
            rising.iter().map(|flow| flows[*flow].1 - rates[*flow]).fold(f64::INFINITY, f64::min);
        let rise = by_links.min(by_limits).max(0.0);
        for flow in &rising {
            rates[*flow] += rise;
            for link in &flows[*flow].0 {
                capacity[*link] -= rise;
            }
        }
        let is_full = |link: &usize| capacity[*link] <= 1e-3;
        rising.retain(|flow| {
            let (links, limit) = &flows[*flow];
            rates[*flow] < limit * (1.0 - 1e-12) && !links.iter().any(is_full)
        });
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::super::evaluate::Evaluator;
    use super::super::one_hop::{self, Effort};
    use super::super::testing::fabric;
    use super::super::workload::shapes;
    use super::*;
    use lightloom_fabric::id::LeafId;
    use lightloom_fabric::seed::Seed;
    use lightloom_fabric::units::Bytes;

    #[test]
    fn two_flows_share_a_core_link_and_the_second_ends_alone() {
        let fabric = fabric(3, 2);
        // The core carries 80 Gb/s a leaf. 1 GB and 2 GB from one leaf: 0.2 s together, 0.1 s alone.
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(1), Bytes(1_000_000_000));
        demand.add(LeafId(0), LeafId(2), Bytes(2_000_000_000));
        let seconds = seconds(&fabric, &demand, &Topology::dark(3));
        assert!((seconds - 0.3).abs() < 1e-6, "{seconds}");
    }

    #[test]
    fn a_circuit_gives_its_own_rate_beside_the_core() {
        let fabric = fabric(3, 2);
        let mut topology = Topology::dark(3);
        topology.add(0, 1);
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(1), Bytes(60_000_000_000));
        let seconds = seconds(&fabric, &demand, &topology);
        assert!((seconds - 1.0).abs() < 1e-6, "480 Gb over 400 + 80 Gb/s: {seconds}");
    }

    #[test]
    fn fluid_time_is_never_below_the_closed_form_and_near_it_on_planned_circuits() {
        for shape in [shapes::moe as fn(usize, Seed) -> Demand, shapes::weight_sync] {
            let fabric = fabric(16, 8);
            let demand = shape(16, Seed(1));
            let plan = one_hop::plan(&fabric, &demand, Effort::default());
            let closed = 1.0 / Evaluator::new(&fabric, &demand).lambda(&plan.topology);
            let fluid = seconds(&fabric, &demand, &plan.topology);
            assert!(fluid >= closed * (1.0 - 1e-6), "{fluid} {closed}");
            assert!(fluid <= closed * 1.5, "{fluid} {closed}");
        }
    }

    #[test]
    fn traffic_without_a_way_never_arrives() {
        let mut spec = super::super::testing::spec(3, 2);
        spec.electrical.rate_per_leaf = lightloom_fabric::units::BitsPerSecond::ZERO;
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(1), Bytes(1));
        assert!(seconds(&fabric, &demand, &Topology::dark(3)).is_infinite());
    }
}
