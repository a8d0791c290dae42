// SPDX-License-Identifier: Apache-2.0
//! Replica traffic across ToRs if rings have a spare node. It is compared with the placements of a
//! simple search and, on small fabrics, with an optimum by brute force.

use crate::{common, crossing_judge};

use common::{FabricSpec, counted, fabric};
use crossing_judge::CrossingJudge;
use lightloom_fabric::fabric::{Fabric, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Shape;
use lightloom_planner::check::check;
use lightloom_planner::khop::{Method, plan, to_document};
use lightloom_testkit::cases;
use lightloom_units::id::NodeId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

fn broken(nodes: u32, ratio: f64, sample: u64) -> FaultSet {
    let mut draws = Seed(7).stream("faults", sample);
    let nodes = (0..nodes).filter(|_| draws.random_bool(ratio)).map(NodeId).collect();
    FaultSet { nodes, ..FaultSet::none() }
}

fn with_spares(spec: &FabricSpec, gpus: u64) -> Fabric {
    let mut fabric = Fabric { spare_per_ring: 1, ..fabric(spec) };
    fabric.jobs[0].size = JobSize::Gpus(gpus);
    fabric
}

fn crossing(fabric: &Fabric, faults: &FaultSet) -> (f64, f64, f64) {
    let layout = plan(fabric, faults, Method::Scan).unwrap();
    let document = to_document(fabric, faults, Seed(0), &layout);
    assert_eq!(check(fabric, faults, &document).err(), None);
    let (hops, crossing) = counted(&document, 0, fabric.dcn.nodes_per_tor());
    let bound = document.jobs[0].cross_tor_share_lower_bound.unwrap();
    let hops = hops as f64 / f64::from(fabric.hbd.gpus_per_node());
    (hops, crossing as f64 / f64::from(fabric.hbd.gpus_per_node()), bound * hops)
}

struct Witness {
    starts: Vec<Vec<bool>>,
    length: usize,
}

impl Witness {
    fn new(fabric: &Fabric, faults: &FaultSet, length: usize) -> Self {
        let per_tor = fabric.dcn.nodes_per_tor() as usize;
        let columns = fabric.hbd.nodes() as usize / per_tor;
        let works = |slot: usize, column: usize| {
            column < columns && !faults.nodes.contains(&NodeId::from_index(column * per_tor + slot))
        };
        let starts = |slot: usize| {
            (0..columns).map(move |first| (first..first + length).all(|column| works(slot, column)))
        };
        Self { starts: (0..per_tor).map(|slot| starts(slot).collect()).collect(), length }
    }

    fn first_from(&self, slot: usize, column: usize) -> Option<usize> {
        (column..self.starts[slot].len()).find(|column| self.starts[slot][*column])
    }

    /// Places `sets` sets one after another. At random, a sub-line waits for the slowest one.
    /// Returns the number of crossing hops. `None` if the sets do not fit.
    fn attempt(&self, sets: usize, waits: f64, draws: &mut Stream) -> Option<usize> {
        let mut cursors = vec![0; self.starts.len()];
        let mut crossing = 0;
        for _ in 0..sets {
            let from = |cursors: &[usize], least: usize| -> Option<Vec<usize>> {
                (0..)
                    .zip(cursors)
                    .map(|(slot, at)| self.first_from(slot, *at.max(&least)))
                    .collect()
            };
            let mut chosen = from(&cursors, 0)?;
            // A run may start one column early and still have the same ranks as the others, because
            // its first node only passes light through.
            for _ in 0..3 {
                let last = chosen.iter().copied().max()?;
                let early = chosen.iter().any(|start| start + 1 < last);
                if !early || !draws.random_bool(waits) {
                    break;
                }
                chosen = from(&cursors, last.saturating_sub(1))?;
            }
            crossing += self.crossing(&chosen);
            cursors = chosen.iter().map(|start| start + self.length).collect();
        }
        Some(crossing)
    }

    /// Counts the columns where only some runs have ranks. Each run does not assign a rank to the
    /// end that fewer runs share.
    fn crossing(&self, starts: &[usize]) -> usize {
        let least = *starts.iter().min().unwrap();
        let most = starts.iter().max().unwrap() + self.length;
        let best = (least..=most - self.length).map(|middle| {
            let ranks = starts.iter().map(|start| {
                let first = if *start < middle { start + 1 } else { *start };
                first..first + self.length - 1
            });
            let ranks: Vec<_> = ranks.collect();
            let here = |column: usize| -> usize {
                let used: Vec<bool> = ranks.iter().map(|ranks| ranks.contains(&column)).collect();
                let turned = used.iter().cycle().skip(1);
                used.iter().zip(turned).filter(|(a, b)| **a && !**b).count()
            };
            (least..most).map(here).sum()
        });
        best.min().unwrap()
    }

    fn best(&self, sets: usize) -> Option<usize> {
        let mut draws = Seed(3).stream("witness", 0);
        let tries = (0..400).map(|round| f64::from(round % 20 + 1) / 20.0);
        tries.filter_map(|waits| self.attempt(sets, waits, &mut draws)).min()
    }
}

const LARGE: [(u32, u32, f64, f64); 4] = [
    (512, 16, 0.75, 0.005),
    (2_048, 32, 0.75, 0.005),
    (2_048, 32, 0.75, 0.01),
    (2_048, 32, 0.75, 0.02),
];

#[test]
fn spare_rings_cross_no_more_than_a_simple_search() {
    for (nodes, tp, job, ratio) in LARGE {
        let spec = FabricSpec { nodes, k: 3, per_domain: 64, tp, ..FabricSpec::default() };
        let gpus = u64::from((f64::from(nodes * 4) * job) as u32 / (tp * 4) * (tp * 4));
        let fabric = with_spares(&spec, gpus);
        let (mut ours, mut found, mut bounds, mut all) = (0.0, 0.0, 0.0, 0.0);
        for sample in 0..cases(3, 20) {
            let faults = broken(nodes, ratio, sample);
            let witness = Witness::new(&fabric, &faults, tp as usize / 4 + 1);
            let Some(least) = witness.best(gpus as usize / tp as usize / 4) else { continue };
            let (hops, crossing, bound) = crossing(&fabric, &faults);
            println!("  {crossing} of {hops} hops cross, {least} found, bound {bound}");
            (ours, found) = (ours + crossing, found + least as f64);
            (bounds, all) = (bounds + bound, all + hops);
        }
        println!(
            "{nodes} nodes, TP-{tp}, {job} job, {ratio} broken: {:.4} crosses, {:.4} found, bound {:.4}",
            ours / all,
            found / all,
            bounds / all
        );
        assert!(
            ours <= 1.1 * found,
            "{nodes} nodes, {ratio} broken: {ours} hops cross, {found} do"
        );
    }
}

#[test]
fn spare_rings_cross_little_more_than_the_small_optimum() {
    let (mut tried, mut ours, mut exact, mut bounds, mut worse) = (0, 0.0, 0.0, 0.0, 0);
    for sample in 0.. {
        let mut draws = Seed(17).stream("small.spares", sample);
        let per_tor = draws.random_range(2..=3_u32);
        let length = draws.random_range(1..=3 - per_tor / 3);
        let tors = 3 * (length + 1) + draws.random_range(0..=4);
        let shape = if draws.random_bool(0.5) { Shape::Ring } else { Shape::Line };
        let nodes = per_tor * tors;
        let spec = FabricSpec { nodes, shape, per_tor, tp: 4 * length, ..FabricSpec::default() };
        let faults = broken(nodes, draws.random_range(0.0..0.15), sample);
        let all = Fabric { spare_per_ring: 1, ..fabric(&spec) };
        let most = plan(&all, &faults, Method::Scan).unwrap().groups_of(0).count() as u32;
        if most < 2 {
            continue;
        }
        let groups = draws.random_range(most.div_ceil(2).max(2)..=most);
        let fabric = with_spares(&spec, u64::from(groups * 4 * length));
        let (_, crossing, bound) = crossing(&fabric, &faults);
        let mut search = CrossingJudge::of_runs(&fabric, &faults, length + 1);
        let least = f64::from(search.least(groups).unwrap());
        assert!(bound <= least + 1e-6, "{spec:?} {faults:?} {groups}: bound {bound} of {least}");
        assert!(crossing >= least - 1e-6, "{spec:?} {faults:?} {groups}: below the optimum");
        if crossing > 1.05 * least + 1e-6 {
            println!("{spec:?} {:?} groups {groups}: {crossing} of {least}", faults.nodes);
            worse += 1;
        }
        (tried, ours, exact, bounds) = (tried + 1, ours + crossing, exact + least, bounds + bound);
        if tried == cases(60, 300) {
            break;
        }
    }
    println!(
        "{tried} cases: {ours} hops cross, {exact} must, bound {bounds}; {worse} more than 5 % above"
    );
    assert!(worse == 0 && bounds >= 0.8 * exact, "{worse} of {tried}, bound {bounds} of {exact}");
}
