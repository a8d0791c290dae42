// SPDX-License-Identifier: Apache-2.0
//! Rederives the circuits of optical switches from the wiring. Checks that the switches can form
//! them and that they reach the planned rates.
//!
//! Rates are tested against the definition, not with the planner's closed form.

mod proof;
mod routed;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::{CrossConnect, FatTreeSpec, OcsBank, ReconfigurableFatTree};
use lightloom_fabric::plan::{PhasePlan, Stage, TransitionPlan};
use lightloom_units::Picoseconds;
use lightloom_units::id::{LeafId, OcsId, OcsPortId};

const RATE_TOLERANCE: f64 = 1e-6;

pub(crate) type Flows = BTreeMap<(u32, u32), f64>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) flows: Flows,
    /// Time in seconds that the busiest GPU's interfaces need. 0 if the step names only leaves.
    pub(crate) interface_seconds: f64,
}

pub(crate) fn check_step(
    network: &ReconfigurableFatTree,
    demands: &[Asked],
    phases: &[PhasePlan],
    transitions: &[TransitionPlan],
) -> Vec<String> {
    let spec = network.spec();
    let mut findings = Vec::new();
    if demands.len() != phases.len() {
        return vec![format!("{} demands for {} phases", demands.len(), phases.len())];
    }
    for (phase, demand) in phases.iter().zip(demands) {
        check_circuits(spec, phase, &mut findings);
        check_ports(network, phase, &mut findings);
        if demand.flows.is_empty() {
            findings.extend(check_silent(phase, demand.interface_seconds));
            continue;
        }
        check_rate(network, demand, phase, &mut findings);
        check_bound(network, demand, phase, &mut findings);
    }
    let stated: BTreeMap<&str, (&Vec<CrossConnect>, &Asked)> = phases
        .iter()
        .zip(demands)
        .map(|(phase, demand)| (phase.name.as_str(), (&phase.circuits, demand)))
        .collect();
    for transition in transitions {
        match (stated.get(transition.from.as_str()), stated.get(transition.to.as_str())) {
            (Some((from, _)), Some((to, demand))) => {
                check_transition(spec, transition, from, to, &mut findings);
                check_without(network, transition, from, demand, &mut findings);
            }
            _ => findings.push(format!(
                "transition from {} to {}: no such phase",
                transition.from, transition.to
            )),
        }
    }
    findings
}

/// Checks failed ports, and the circuits that stay: each is in every phase unless one of its ports has failed.
fn check_ports(network: &ReconfigurableFatTree, phase: &PhasePlan, findings: &mut Vec<String>) {
    for circuit in &phase.circuits {
        let ports = [circuit.a_port, circuit.b_port].into_iter();
        for port in ports.filter(|port| !works(network, circuit.ocs, *port)) {
            findings.push(format!(
                "phase {}: {} port {port} is broken or occupied",
                phase.name, circuit.ocs
            ));
        }
    }
    for own in &network.spec().usable {
        let is_up = works(network, own.ocs, own.a_port) && works(network, own.ocs, own.b_port);
        if is_up && !phase.circuits.contains(own) {
            findings.push(format!(
                "phase {}: the circuit on {} ports {} and {} has to stay, but is missing",
                phase.name, own.ocs, own.a_port, own.b_port
            ));
        }
    }
}

fn works(network: &ReconfigurableFatTree, ocs: OcsId, port: u32) -> bool {
    !network.dead_ports(ocs).any(|dead| dead == port)
}

/// Without traffic between leaves, the interfaces determine the time of a phase.
pub(crate) fn check_silent(phase: &PhasePlan, interface_seconds: f64) -> Option<String> {
    let stated = phase.duration_ps.as_secs_f64();
    let rate = phase.lambda * interface_seconds;
    let is_rate = (rate - if phase.duration_ps.0 > 0 { 1.0 } else { 0.0 }).abs() < RATE_TOLERANCE;
    let is_time = (stated - interface_seconds).abs() < 1e-12 + RATE_TOLERANCE * interface_seconds;
    let name = &phase.name;
    (!is_rate || !is_time).then(|| {
        format!("phase {name}: lasts {stated} s in the plan, but its interfaces need {interface_seconds} s")
    })
}

fn check_circuits(spec: &FatTreeSpec, phase: &PhasePlan, findings: &mut Vec<String>) {
    let held = spec.held.iter().filter(|held| !spec.usable.contains(held));
    let mut owner: BTreeSet<PortSide> = held.flat_map(|held| ports_of(spec, held)).collect();
    for circuit in &phase.circuits {
        let place = format!(
            "phase {}: {} ports {} and {}",
            phase.name, circuit.ocs, circuit.a_port, circuit.b_port
        );
        let Some(bank) = bank_of(spec, circuit.ocs.0) else {
            findings.push(format!("{place}: no such switch"));
            continue;
        };
        for ((_, port, side), leaf) in
            ports_of(spec, circuit).into_iter().zip([circuit.a, circuit.b])
        {
            let place = port / bank.ports_per_leaf;
            let wired = match &bank.leaves {
                Some(leaves) => leaves.get(place as usize).copied(),
                None => Some(LeafId(place)).filter(|leaf| leaf.0 < spec.leaves),
            };
            if wired != Some(leaf) {
                findings.push(format!("{place}: port {port} is not wired to {leaf}"));
            }
            if !owner.insert((circuit.ocs.0, port, side)) {
                findings.push(format!("{place}: port {port} already has another peer"));
            }
        }
        if let Some(reason) = closed(spec, circuit) {
            findings.push(format!("{place}: {reason}"));
        }
    }
}

fn bank_of(spec: &FatTreeSpec, mut ocs: u32) -> Option<&OcsBank> {
    spec.banks.iter().find(|bank| {
        let here = ocs < bank.switches;
        ocs = ocs.saturating_sub(bank.switches);
        here
    })
}

fn closed(spec: &FatTreeSpec, circuit: &CrossConnect) -> Option<String> {
    let (a, b) = (circuit.a, circuit.b);
    if a == b {
        return Some(format!("connects {a} to itself"));
    }
    if spec.forbidden.contains(&(a, b)) || spec.forbidden.contains(&(b, a)) {
        return Some(format!("a circuit between {a} and {b} is not permitted"));
    }
    let bank = bank_of(spec, circuit.ocs.0)?;
    let leaves = spec.loss.extra_db.iter().filter(|own| [a, b].contains(&own.leaf));
    let extra: f64 = leaves.map(|own| own.db).sum();
    let ends = [circuit.a_port, circuit.b_port].map(|port| OcsPortId { ocs: circuit.ocs, port });
    let fibres = spec.loss.ports.iter().filter(|own| ends.contains(&own.port));
    let fibres: f64 = fibres.map(|own| own.db).sum();
    let loss = bank.insertion_loss_db + spec.loss.path_db + extra + fibres;
    (loss > spec.loss.budget_db).then(|| {
        format!("has a loss of {loss:.1} dB, but the budget is {:.1} dB", spec.loss.budget_db)
    })
}

pub(super) fn can_serve(
    network: &ReconfigurableFatTree,
    Asked { flows: demand, interface_seconds }: &Asked,
    circuits: &BTreeMap<(u32, u32), f64>,
    lambda: f64,
) -> bool {
    if lambda * interface_seconds > 1.0 + 1e-9 {
        return false;
    }
    let spec = network.spec();
    let mut sent = vec![0.0; spec.leaves as usize];
    let mut received = vec![0.0; spec.leaves as usize];
    for (&(from, to), bytes) in demand {
        let carried = circuits.get(&(from, to)).copied().unwrap_or(0.0);
        let over = lambda * bytes * 8.0 - carried;
        if over > 0.0 {
            sent[from as usize] += over;
            received[to as usize] += over;
        }
    }
    let hosts = f64::from(spec.gpus_per_leaf) * spec.gpu_rate.0 as f64 * (1.0 + 1e-9);
    let mut from_hosts = vec![0.0; spec.leaves as usize];
    let mut to_hosts = vec![0.0; spec.leaves as usize];
    for (&(from, to), bytes) in demand {
        from_hosts[from as usize] += lambda * bytes * 8.0;
        to_hosts[to as usize] += lambda * bytes * 8.0;
    }
    if from_hosts.iter().chain(&to_hosts).any(|load| *load > hosts) {
        return false;
    }
    sent.iter().zip(received).enumerate().all(|(leaf, (sent, received))| {
        let core = network.electrical_rate_of(LeafId::from_index(leaf));
        sent.max(received) <= core + 1e-9 * spec.circuit_rate.0 as f64
    })
}

/// Returns the rate of the circuits from each leaf to each other, in bit/s.
pub(super) fn rates(spec: &FatTreeSpec, circuits: &[CrossConnect]) -> BTreeMap<(u32, u32), f64> {
    let mut rates = BTreeMap::new();
    for circuit in circuits {
        let rate = bank_of(spec, circuit.ocs.0).and_then(|bank| bank.circuit_rate);
        let rate = rate.map_or(spec.circuit_rate, |own| own.0).0 as f64;
        *rates.entry((circuit.a.0, circuit.b.0)).or_insert(0.0) += rate;
        if !is_one_way(spec, circuit) {
            *rates.entry((circuit.b.0, circuit.a.0)).or_insert(0.0) += rate;
        }
    }
    rates
}

fn check_without(
    network: &ReconfigurableFatTree,
    transition: &TransitionPlan,
    circuits: &[CrossConnect],
    demand: &Asked,
    findings: &mut Vec<String>,
) {
    let circuits = rates(network.spec(), circuits);
    let is_right = match transition.without_ps.map(Picoseconds::as_secs_f64) {
        None => demand.flows.keys().any(|(from, to)| {
            let mut core =
                [*from, *to].into_iter().map(|leaf| network.electrical_rate_of(LeafId(leaf)));
            !circuits.contains_key(&(*from, *to)) && core.any(|rate| rate <= 0.0)
        }),
        Some(_) if demand.flows.is_empty() => true,
        Some(time) => {
            let longer = time * (1.0 + RATE_TOLERANCE) + 1e-12;
            let shorter = (time * (1.0 - RATE_TOLERANCE) - 1e-12).max(f64::MIN_POSITIVE);
            can_serve(network, demand, &circuits, 1.0 / longer)
                && !can_serve(network, demand, &circuits, 1.0 / shorter)
        }
    };
    if !is_right {
        let (from, to) = (&transition.from, &transition.to);
        let stated = transition.without_ps.map_or("unlimited".to_owned(), |time| time.to_string());
        findings.push(format!(
            "transition from {from} to {to}: the stated time of {to} on the circuits of {from}, \
             {stated}, is wrong"
        ));
    }
}

fn check_rate(
    network: &ReconfigurableFatTree,
    demand: &Asked,
    phase: &PhasePlan,
    findings: &mut Vec<String>,
) {
    let (circuits, name) = (rates(network.spec(), &phase.circuits), &phase.name);
    if phase.routes.is_empty() {
        if !can_serve(network, demand, &circuits, phase.lambda * (1.0 - RATE_TOLERANCE)) {
            findings
                .push(format!("phase {name}: cannot be served {} times per second", phase.lambda));
        }
        if can_serve(network, demand, &circuits, phase.lambda * (1.0 + RATE_TOLERANCE)) {
            findings.push(format!(
                "phase {name}: can be served more often than the stated {} times per second",
                phase.lambda
            ));
        }
    } else {
        match routed::seconds(network, demand, &circuits, phase) {
            Ok(seconds) if (seconds * phase.lambda - 1.0).abs() <= RATE_TOLERANCE => {}
            Ok(seconds) => findings.push(format!(
                "phase {name}: can be served {} times per second on its routes, not {}",
                1.0 / seconds,
                phase.lambda
            )),
            Err(finding) => findings.push(finding),
        }
    }
}

/// In older plans, the bound has no prices and covers only one-hop traffic.
fn check_bound(
    network: &ReconfigurableFatTree,
    demand: &Asked,
    phase: &PhasePlan,
    findings: &mut Vec<String>,
) {
    let (name, bound) = (&phase.name, phase.lambda_upper_bound);
    if phase.lambda > bound * (1.0 + RATE_TOLERANCE) {
        findings.push(format!("phase {name}: its rate exceeds its upper bound"));
    }
    if bound * demand.interface_seconds > 1.0 + RATE_TOLERANCE {
        findings.push(format!("phase {name}: the bound exceeds the limit of the interfaces"));
    }
    let gap = 1.0 - phase.lambda / bound;
    if (gap - phase.gap).abs() > RATE_TOLERANCE {
        findings.push(format!("phase {name}: its gap is {gap}, not {}", phase.gap));
    }
    let solved = phase.solver.as_ref().filter(|solver| !solver.is_one_hop);
    if solved.is_some_and(|solver| solver.lambda_upper_bound <= bound * (1.0 + RATE_TOLERANCE)) {
        return;
    }
    let interfaces = demand.interface_seconds.max(routed::host_seconds(network, demand));
    let proven = match &phase.prices {
        None => Ok(f64::INFINITY),
        Some(prices) => proof::proven(network, demand, prices),
    };
    match proven.map(|proven| proven.min(1.0 / interfaces)) {
        Ok(proven) if (bound / proven - 1.0).abs() <= RATE_TOLERANCE => {}
        Ok(proven) => findings.push(format!(
            "phase {name}: it states a bound of {bound} times per second, but its prices prove only {proven}"
        )),
        Err(finding) => findings.push(format!("phase {name}: {finding}")),
    }
}

fn is_one_way(spec: &FatTreeSpec, circuit: &CrossConnect) -> bool {
    bank_of(spec, circuit.ocs.0).is_some_and(|bank| bank.one_way)
}

/// A switch, a port and one of its sides. A one-way circuit leads from the first side to the second side of another
/// port; two-way circuits occupy both sides, which count as one.
type PortSide = (u32, u32, u8);

fn ports_of(spec: &FatTreeSpec, circuit: &CrossConnect) -> [PortSide; 2] {
    let receiving = u8::from(is_one_way(spec, circuit));
    [(circuit.ocs.0, circuit.a_port, 0), (circuit.ocs.0, circuit.b_port, receiving)]
}

fn check_transition(
    spec: &FatTreeSpec,
    transition: &TransitionPlan,
    from: &[CrossConnect],
    to: &[CrossConnect],
    findings: &mut Vec<String>,
) {
    let name = format!("transition from {} to {}", transition.from, transition.to);
    let mut removed = 0;
    findings.extend(execute(spec, &name, &transition.stages, from, to, |_, removals, _| {
        removed += removals;
    }));
    if from.len() - removed != transition.circuits_kept {
        findings.push(format!("{name}: keeps {} circuits", from.len() - removed));
    }
}

pub(super) fn execute<'a>(
    spec: &FatTreeSpec,
    name: &str,
    stages: impl IntoIterator<Item = &'a Stage>,
    from: &[CrossConnect],
    to: &[CrossConnect],
    mut during: impl FnMut(usize, usize, &[CrossConnect]),
) -> Vec<String> {
    let mut findings = Vec::new();
    let switches: u32 = spec.banks.iter().map(|bank| bank.switches).sum();
    let mut now: BTreeSet<CrossConnect> = from.iter().copied().collect();
    let mut busy: BTreeSet<PortSide> = now.iter().flat_map(|own| ports_of(spec, own)).collect();
    for (at, stage) in stages.into_iter().enumerate() {
        let domains: BTreeSet<u64> = stage
            .remove
            .iter()
            .chain(&stage.add)
            .map(|c| u64::from(c.ocs.0) * u64::from(spec.failure_domains) / u64::from(switches))
            .collect();
        if domains.len() > 1 {
            findings.push(format!("{name}: stage {at} affects {} failure domains", domains.len()));
        }
        for circuit in &stage.remove {
            for port in ports_of(spec, circuit) {
                busy.remove(&port);
            }
            if !now.remove(circuit) {
                findings.push(format!("{name}: stage {at} removes a circuit that does not exist"));
            }
        }
        during(at, stage.remove.len(), &now.iter().copied().collect::<Vec<_>>());
        for circuit in &stage.add {
            let is_free = ports_of(spec, circuit).map(|port| busy.insert(port)) == [true, true];
            if !is_free {
                findings.push(format!("{name}: stage {at} adds a circuit on a busy port"));
            }
            now.insert(*circuit);
        }
    }
    if now != to.iter().copied().collect() {
        findings.push(format!("{name}: the stages do not produce the circuits of the next phase"));
    }
    findings
}
