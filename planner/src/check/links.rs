// SPDX-License-Identifier: Apache-2.0
//! Checks that every bundle is set exactly once, works, and matches the far end of its circuit.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::{Fibre, Hop, Path, Port, hop_for_port};
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{BundleId, NodeId};

use super::Violation;

pub(super) struct Lit {
    k: usize,
    paths: Vec<Option<Path>>,
    far_ends: Vec<Option<Port>>,
}

impl Lit {
    pub(super) fn path(&self, bundle: BundleId) -> Option<Path> {
        self.paths[self.slot(bundle)]
    }
    pub(super) fn far_end(&self, bundle: BundleId) -> Option<Port> {
        self.far_ends[self.slot(bundle)]
    }
    fn slot(&self, bundle: BundleId) -> usize {
        bundle.node.index() * self.k + usize::from(bundle.bundle)
    }
}

pub(super) fn check(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    found: &mut Vec<Violation>,
) -> Lit {
    let k = usize::from(fabric.hbd.k());
    let slots = fabric.hbd.nodes() as usize * k;
    let mut lit = Lit { k, paths: vec![None; slots], far_ends: vec![None; slots] };
    set_bundles(fabric, faults, plan, &mut lit, found);
    find_unset(fabric, faults, &lit, found);
    let made = join_ends(fabric, faults, &mut lit, found);
    compare_circuits(fabric, plan, &lit, made, found);
    lit
}

pub(super) fn works(faults: &FaultSet, bundle: BundleId) -> bool {
    !faults.nodes.contains(&bundle.node) && !faults.bundles.contains(&bundle)
}

fn set_bundles(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    lit: &mut Lit,
    found: &mut Vec<Violation>,
) {
    for entry in &plan.transceivers {
        let bundle = entry.bundle;
        if bundle.node.0 >= fabric.hbd.nodes() || bundle.bundle >= fabric.hbd.k() {
            found.push(Violation::NoSuchBundle(bundle));
            continue;
        }
        if !works(faults, bundle) {
            found.push(Violation::BrokenBundleUsed(bundle));
        }
        let slot = lit.slot(bundle);
        if lit.paths[slot].replace(entry.path).is_some() {
            found.push(Violation::BundleSetTwice(bundle));
        }
    }
}

fn bundles(fabric: &Fabric) -> impl Iterator<Item = BundleId> + use<> {
    let (nodes, k) = (fabric.hbd.nodes(), fabric.hbd.k());
    (0..nodes)
        .flat_map(move |node| (0..k).map(move |bundle| BundleId { node: NodeId(node), bundle }))
}

fn find_unset(fabric: &Fabric, faults: &FaultSet, lit: &Lit, found: &mut Vec<Violation>) {
    let unset =
        bundles(fabric).filter(|bundle| works(faults, *bundle) && lit.path(*bundle).is_none());
    found.extend(unset.map(Violation::BundleNotSet));
}

fn join_ends(
    fabric: &Fabric,
    faults: &FaultSet,
    lit: &mut Lit,
    found: &mut Vec<Violation>,
) -> usize {
    let mut ends = 0;
    for bundle in bundles(fabric) {
        let Some(port) = lit.path(bundle).and_then(|path| selected(bundle, path)) else { continue };
        let Some(far) = working_far_end(fabric, faults, port) else {
            found.push(Violation::NoFibre(port));
            continue;
        };
        if lit.path(far.bundle) == Some(far.selects()) {
            let slot = lit.slot(bundle);
            lit.far_ends[slot] = Some(far);
            ends += 1;
        } else {
            found.push(Violation::NotAnswered(port, far));
        }
    }
    ends / 2
}

pub(super) fn selected(bundle: BundleId, path: Path) -> Option<Port> {
    match path {
        Path::External1 => Some(Port { bundle, path: 1 }),
        Path::External2 => Some(Port { bundle, path: 2 }),
        Path::Loopback => None,
    }
}

pub(super) fn working_far_end(fabric: &Fabric, faults: &FaultSet, port: Port) -> Option<Port> {
    let far = fabric.hbd.peer(port)?;
    let hop: Hop = hop_for_port(fabric.hbd.k(), port.bundle.bundle, port.path)?;
    let lower = if hop > 0 { port } else { far };
    let from = fabric.hbd.position_of(lower.bundle.node);
    (!faults.fibres.contains(&Fibre { from, hops: hop.unsigned_abs() })).then_some(far)
}

fn compare_circuits(
    fabric: &Fabric,
    plan: &Plan,
    lit: &Lit,
    made: usize,
    found: &mut Vec<Violation>,
) {
    let exists =
        |port: Port| port.bundle.node.0 < fabric.hbd.nodes() && port.bundle.bundle < fabric.hbd.k();
    for circuit in &plan.circuits {
        let (a, b) = (circuit.a, circuit.b);
        let is_made = exists(a)
            && lit.path(a.bundle) == Some(a.selects())
            && lit.far_end(a.bundle) == Some(b);
        if !is_made {
            found.push(Violation::CircuitNotMade(a, b));
        }
    }
    let mut listed: Vec<_> = plan.circuits.clone();
    listed.sort_unstable();
    listed.dedup();
    if listed.len() != made || listed.len() != plan.circuits.len() {
        found.push(Violation::CircuitCount { made, listed: plan.circuits.len() });
    }
}
