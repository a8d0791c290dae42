// SPDX-License-Identifier: Apache-2.0
//! Compares methods of distributing new weights to the replicas in reinforcement learning.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::{StepFile, SyncMethod, WeightSyncFile};
use lightloom_fabric::plan::{MethodTimes, Plan, SyncChoice};
use lightloom_units::{Bytes, Picoseconds};

use super::{Options, network, phases};
use crate::rfabric::evaluate::Evaluator;
use crate::rfabric::phases::{Phase, seconds_with_change};
use crate::rfabric::realise::topology_of;
use crate::rfabric::step;
use crate::rfabric::topology::Topology;

/// Compares the methods for every job in `plan` that has a reinforcement-learning step.
pub fn compare(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    options: Options,
) -> Vec<SyncChoice> {
    let options = Options { exact: None, ..options };
    let jobs = 0..fabric.jobs.len();
    jobs.filter_map(|job| of_job(fabric, faults, plan, job, options)).collect()
}

fn of_job(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    at: usize,
    options: Options,
) -> Option<SyncChoice> {
    let job = &fabric.jobs[at];
    let Some(StepFile::Rl(raw)) = &job.step else { return None };
    let delta_share = raw.weight_sync.delta_share;
    let size = step::named_model(fabric, &raw.model).ok()?.weight_bytes();
    let size = Bytes((size.0 as f64 * delta_share).round() as u64);
    let mut slack_ps = Picoseconds::ZERO;
    let mut methods = Vec::new();
    for method in SyncMethod::ALL {
        let mut other = fabric.clone();
        if let Some(StepFile::Rl(raw)) = &mut other.jobs[at].step {
            raw.weight_sync.method = method;
        }
        let all = phases(&other, &plan.ranks).ok()?;
        let names = ["weight-sync".to_owned(), format!("{}/weight-sync", job.name)];
        let Some(phase) = all.into_iter().find(|phase| names.contains(&phase.name)) else {
            continue;
        };
        slack_ps = phase.slack;
        let sync = WeightSyncFile { method, delta_share };
        methods.push(times(fabric, faults, plan, &phase, sync, size, options));
    }
    if methods.is_empty() {
        return None;
    }
    Some(SyncChoice {
        job: job.name.clone(),
        written: raw.weight_sync.method,
        delta_share,
        switching_ps: fabric.dcn.circuits().map(|_| switching(fabric)),
        slack_ps,
        best: quickest(&methods, |method| method.planned_ps),
        best_on_packets: quickest(&methods, |method| method.packets_ps),
        methods,
        assumptions: ASSUMPTIONS.map(str::to_owned).to_vec(),
    })
}

fn quickest(
    methods: &[MethodTimes],
    time: fn(&MethodTimes) -> Option<Picoseconds>,
) -> Option<SyncMethod> {
    let served = methods.iter().filter(|method| time(method).is_some());
    served.min_by_key(|method| time(method)).map(|method| method.method)
}

const ASSUMPTIONS: [&str; 6] = [
    "weights are sent in BF16, and only a fraction delta_share of their bytes, indices included",
    "a phase takes as long as its busiest circuit, uplink or interface; message start-up, packing and copies within a GPU are free",
    "relay and broadcast use all GPU interfaces of a leaf; a relay forwards while it receives",
    "shards: a replica splits every layer over all its GPUs, the trainer over tp and its layers over pp; data-parallel ranks send equal parts; experts are split in the same way",
    "no other phase sends at the same time; times on planned circuits exclude the change to these circuits",
    "the alternative to a change is to keep the settled circuits of the previous phase",
];

fn switching(fabric: &Fabric) -> Picoseconds {
    let Some(network) = fabric.dcn.circuits() else { return Picoseconds::ZERO };
    let domains = network.spec().failure_domains.min(network.switches() as u32);
    Picoseconds(network.spec().timing.total().0 * u64::from(domains))
}

fn times(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    phase: &Phase,
    WeightSyncFile { method, delta_share }: WeightSyncFile,
    size: Bytes,
    options: Options,
) -> MethodTimes {
    let carried = phase.demand.carried();
    let total = carried.rings.0 + carried.leaves.0 + phase.demand.total().0;
    let carry = network::carry(fabric, faults, std::slice::from_ref(phase), options).ok();
    let own = carry.and_then(|carried| carried.phases.into_iter().next());
    let planned_ps = own.as_ref().map(|own| own.duration_ps);
    let mut times = MethodTimes {
        method,
        ring_bytes: carried.rings,
        leaf_bytes: carried.leaves,
        demand_bytes: phase.demand.total(),
        trainer_bytes: if method == SyncMethod::Relay { size } else { Bytes(total) },
        planned_ps,
        packets_ps: planned_ps,
        change_pays_from: None,
        change_pays_from_without_slack: None,
    };
    let (Some(network), Some(own)) = (fabric.dcn.circuits(), own) else { return times };
    let network = network.without(faults);
    let evaluator = Evaluator::new(&network, &phase.demand);
    let dark = evaluator.lambda(&Topology::dark(network.ends()));
    times.packets_ps = (dark > 0.0).then(|| Picoseconds::from_secs_f64(1.0 / dark));
    let order = plan.phases.iter().position(|planned| planned.name == phase.name);
    let before =
        order.map(|order| &plan.phases[(order + plan.phases.len() - 1) % plan.phases.len()]);
    if let Some(before) = before {
        let from = topology_of(&network, &before.circuits);
        let to = topology_of(&network, &own.circuits);
        let at_once = Phase { slack: Picoseconds::ZERO, ..phase.clone() };
        let change = CircuitChange { phase: &at_once, evaluator: &evaluator, from: &from, to: &to };
        let switching = switching(fabric);
        let exposed = switching.saturating_sub(phase.slack).as_secs_f64();
        times.change_pays_from = change.pays_from(exposed, delta_share);
        times.change_pays_from_without_slack =
            change.pays_from(switching.as_secs_f64(), delta_share);
    }
    times
}

/// A change of circuits before `phase`.
struct CircuitChange<'a> {
    phase: &'a Phase,
    evaluator: &'a Evaluator,
    from: &'a Topology,
    to: &'a Topology,
}

impl CircuitChange<'_> {
    /// Returns the smallest share of the weights for which the change pays off. It delays traffic by
    /// `exposed` seconds, and the phase transfers the share `now`. Bytes and switching time scale together, so
    /// share s is tested as the phase with a change of `exposed · now / s` seconds.
    fn pays_from(&self, exposed: f64, now: f64) -> Option<f64> {
        if self.from == self.to || !self.pays(exposed * now) {
            return None;
        }
        if exposed <= 0.0 {
            return Some(0.0);
        }
        let (mut never, mut always) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = 0.5 * (never + always);
            if self.pays(exposed * now / middle) { always = middle } else { never = middle }
        }
        Some(always)
    }

    fn pays(&self, switching: f64) -> bool {
        let Self { phase, evaluator, from, to } = *self;
        seconds_with_change(phase, evaluator, from, to, switching) < 1.0 / evaluator.lambda(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfabric::demand::Demand;
    use crate::rfabric::one_hop;
    use crate::rfabric::testkit::spec;
    use crate::rfabric::workload::shapes;
    use lightloom_fabric::fat_tree::ReconfigurableFatTree;
    use lightloom_units::seed::Seed;

    fn phase(demand: &Demand) -> Phase {
        let name = "weight-sync".to_owned();
        Phase { name, job: None, demand: demand.clone(), slack: Picoseconds::ZERO }
    }

    #[test]
    fn first_change_pays_off_once_packets_take_longer() {
        let network = ReconfigurableFatTree::new(spec(16, 8)).expect("a network");
        let demand = shapes::weight_sync(16, Seed(1));
        let evaluator = Evaluator::new(&network, &demand);
        let dark = Topology::dark(16);
        let circuits = one_hop::plan(&network, &demand, Options::default().effort).topology;
        let packets = 1.0 / evaluator.lambda(&dark);
        let phase = phase(&demand);
        let change =
            CircuitChange { phase: &phase, evaluator: &evaluator, from: &dark, to: &circuits };
        for (part, now) in [(0.01, 1.0), (0.5, 1.0), (0.3, 0.02)] {
            let exposed = part * packets / now;
            let found = change.pays_from(exposed, now);
            assert!((found.expect("it pays") - part).abs() < 1e-9, "{part}: {found:?}");
        }
        let found = change.pays_from(1.01 * packets, 1.0);
        assert_eq!(found, None, "no share of the bytes makes the change pay off");
        assert_eq!(change.pays_from(0.0, 1.0), Some(0.0));
        assert_eq!(CircuitChange { to: &dark, ..change }.pays_from(0.0, 1.0), None);
    }
}
