// SPDX-License-Identifier: Apache-2.0
//! Job placement: crossing hops are counted node by node and compared with another program, an
//! exact optimum on small fabrics, and a placement that ignores ToRs.

use crate::{common, crossing_judge};

use common::{FabricSpec, counted, fabric};
use crossing_judge::CrossingJudge;
use lightloom_fabric::fabric::{Fabric, Job, JobSize};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::Shape;
use lightloom_planner::check::check;
use lightloom_planner::khop::{Method, plan, to_document};
use lightloom_testkit::cases;
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;

fn broken(nodes: u32, ratio: f64, (seed, sample): (u64, u64)) -> FaultSet {
    let mut draws = Seed(seed).stream("faults", sample);
    let nodes = (0..nodes).filter(|_| draws.random_bool(ratio)).map(NodeId).collect();
    FaultSet { nodes, ..FaultSet::none() }
}

fn share(fabric: &Fabric, faults: &FaultSet) -> (f64, f64) {
    let layout = plan(fabric, faults, Method::Scan).unwrap();
    let document = to_document(fabric, faults, Seed(0), &layout);
    assert_eq!(check(fabric, faults, &document).err(), None);
    let (hops, crossing) = counted(&document, 0, fabric.dcn.nodes_per_tor());
    let share = crossing as f64 / hops.max(1) as f64;
    let stated = &document.jobs[0];
    assert!((share - stated.cross_tor_share).abs() < 1e-9, "{share} {stated:?}");
    let bound = stated.cross_tor_share_lower_bound.unwrap();
    assert!(bound <= share + 1e-9, "bound {bound} of {share}");
    (share, bound)
}

/// Nodes, K, p, job share, failed share, mean crossing share of another dynamic program, and the
/// allowed ratio to that mean. The samples of the other program were not available.
const FIGURES: [(u32, u8, u32, f64, f64, f64, f64); 6] = [
    (2_048, 3, 4, 0.85, 0.05, 0.032, 1.05),
    (2_048, 3, 4, 0.85, 0.07, 0.073, 1.05),
    (2_048, 3, 4, 0.85, 0.10, 0.140, 1.15),
    (2_048, 3, 4, 0.75, 0.07, 0.013, 1.05),
    (2_048, 3, 2, 0.85, 0.07, 0.001, 1.05),
    (720, 2, 4, 0.85, 0.05, 0.099, 1.05),
];

#[test]
fn crossing_traffic_is_close_to_another_dynamic_program() {
    for &(nodes, k, per_tor, job, ratio, figure, times) in cases(&FIGURES[4..], &FIGURES[..]) {
        let spec =
            FabricSpec { nodes, k, per_tor, per_domain: 64, tp: 32, ..FabricSpec::default() };
        let mut fabric = fabric(&spec);
        fabric.jobs[0].size = JobSize::Gpus((f64::from(nodes * 4) * job / 32.0) as u64 * 32);
        let samples = 20;
        let pairs: Vec<(f64, f64)> =
            (0..samples).map(|sample| share(&fabric, &broken(nodes, ratio, (1, sample)))).collect();
        let mean = pairs.iter().map(|pair| pair.0).sum::<f64>() / samples as f64;
        let bound = pairs.iter().map(|pair| pair.1).sum::<f64>() / samples as f64;
        println!(
            "{nodes} nodes, p {per_tor}, job {job}, {ratio} broken: {mean:.4} crosses, bound {bound:.4}, figure {figure}"
        );
        assert!(mean <= times * figure + 5e-5, "{mean} crosses, {figure} can be had");
    }
}

/// Counts the cases with more than 1.05 times the minimum number of crossing hops (exact search).
fn worse_than_exact(
    count: u32,
    mut draw: impl FnMut(u64) -> Option<(FabricSpec, FaultSet, f64)>,
) -> u32 {
    let (mut cases, mut ours, mut exact, mut bounds, mut worse) = (0, 0.0, 0.0, 0.0, 0);
    for sample in 0.. {
        let Some((spec, faults, load)) = draw(sample) else { continue };
        let length = spec.tp / 4;
        let mut fabric = fabric(&spec);
        let most = plan(&fabric, &faults, Method::Scan).unwrap().groups_of(0).count() as u32;
        let groups = (f64::from(most) * load).ceil() as u32;
        if groups < 2 {
            continue;
        }
        fabric.jobs[0].size = JobSize::Gpus(u64::from(groups * 4 * length));
        let (share, bound) = share(&fabric, &faults);
        let alone = u32::from(groups % spec.per_tor == 1);
        let hops = f64::from((groups - alone) * length);
        let mut judge = CrossingJudge::of_paths(&fabric, &faults, length);
        let least = f64::from(judge.least(groups).unwrap());
        assert!(
            bound * hops <= least + 1e-6,
            "{spec:?} {faults:?}: bound {} of {least}",
            bound * hops
        );
        assert!(share * hops >= least - 1e-6, "{spec:?} {faults:?}: better than the optimum");
        if share * hops > 1.05 * least + 1e-6 {
            println!("{spec:?} {:?} groups {groups}: {} of {least}", faults.nodes, share * hops);
            worse += 1;
        }
        (cases, ours, exact) = (cases + 1, ours + share * hops, exact + least);
        bounds += bound * hops;
        if cases == count {
            break;
        }
    }
    println!(
        "{cases} cases: {ours} hops cross, {exact} must, bound {bounds}; {worse} more than 5 % above"
    );
    worse
}

#[test]
fn crossing_traffic_is_near_the_exact_optimum_on_small_fabrics() {
    let worse = worse_than_exact(200, |sample| {
        let mut draws = Seed(11).stream("small", sample);
        let nodes = 2 * draws.random_range(7..=10);
        let length = draws.random_range(2..=4);
        let shape = if draws.random_bool(0.5) { Shape::Ring } else { Shape::Line };
        let spec =
            FabricSpec { nodes, k: 2, shape, per_tor: 2, tp: 4 * length, ..FabricSpec::default() };
        Some((spec, broken(nodes, 0.1, (7, sample)), draws.random_range(0.6..=1.0)))
    });
    assert_eq!(worse, 0);
}

#[test]
fn partial_last_sets_cross_little_more_than_necessary() {
    let worse = worse_than_exact(cases(344, 2_000), |sample| {
        let mut draws = Seed(19).stream("smallest", sample);
        let per_tor = draws.random_range(2..=4_u32);
        let nodes = draws.random_range(3 * per_tor..=16);
        let length = draws.random_range(1..=3_u32);
        let k = draws.random_range(2..=3);
        let shape = if draws.random_bool(0.5) { Shape::Ring } else { Shape::Line };
        let spec = FabricSpec { nodes, k, shape, per_tor, tp: 4 * length, ..FabricSpec::default() };
        let ratio = [0.0, 0.05, 0.15][draws.random_range(0..3)];
        Some((spec, broken(nodes, ratio, (23, sample)), draws.random_range(0.5..=1.0)))
    });
    assert_eq!(worse, 0);
}

/// With failed fibres, the exact search includes rings that turn back or interleave.
#[test]
fn finds_all_possible_rings_despite_failed_fibres() {
    let (mut tried, mut ours, mut most) = (0, 0, 0);
    for sample in 0.. {
        let mut draws = Seed(29).stream("fibres", sample);
        let shape = if draws.random_bool(0.5) { Shape::Ring } else { Shape::Line };
        let (nodes, k) = (draws.random_range(8..=18), draws.random_range(2..=4));
        let length = draws.random_range(2..=4);
        let spec =
            FabricSpec { nodes, k, shape, per_tor: 2, tp: 4 * length, ..FabricSpec::default() };
        let fabric = fabric(&spec);
        let mut faults = broken(nodes, 0.05, (31, sample));
        let fibres: Vec<_> = fabric.hbd.fibres().collect();
        let gone = draws.random_range(2..=nodes as usize);
        faults.fibres.extend((0..gone).map(|_| fibres[draws.random_range(0..fibres.len())]));
        let layout = plan(&fabric, &faults, Method::Scan).unwrap();
        let document = to_document(&fabric, &faults, Seed(0), &layout);
        assert_eq!(check(&fabric, &faults, &document).err(), None);
        let found = layout.groups_of(0).count() as u32;
        let there_are = CrossingJudge::of_paths(&fabric, &faults, length).most_rings();
        if found != there_are {
            println!("{spec:?} {faults:?}: {found} of {there_are}");
        }
        (tried, ours, most) = (tried + 1, ours + found, most + there_are);
        if tried == cases(380, 3_000) {
            break;
        }
    }
    println!("{tried} cases: {ours} rings, {most} can be");
    assert_eq!(ours, most);
}

fn fits_blindly(fabric: &Fabric, faults: &FaultSet) -> bool {
    let mut runs: Vec<u64> = Vec::new();
    let (mut gap, k) = (u32::from(fabric.hbd.k()), u32::from(fabric.hbd.k()));
    for position in 0..fabric.hbd.nodes() {
        let node = fabric.hbd.node_at(lightloom_fabric::khop::Position(position));
        if faults.nodes.contains(&node) {
            gap += 1;
            continue;
        }
        if gap >= k {
            runs.push(0);
        }
        gap = 0;
        *runs.last_mut().unwrap() += 1;
    }
    let mut needs: Vec<(u64, u64)> = fabric
        .jobs
        .iter()
        .map(|job| {
            let JobSize::Gpus(gpus) = job.size else { panic!("sized") };
            (u64::from(job.tp) / 4, gpus.div_ceil(u64::from(job.tp)))
        })
        .collect();
    needs.sort_unstable_by(|a, b| b.cmp(a));
    needs.into_iter().all(|(length, mut count)| {
        for run in &mut runs {
            let here = count.min(*run / length);
            (*run, count) = (*run - here * length, count - here);
        }
        count == 0
    })
}

#[test]
fn accepts_every_job_set_that_fits_without_tor_alignment() {
    let (mut feasible, mut sample) = (0, 0);
    while feasible < cases(200, 1_000) {
        sample += 1;
        let mut draws = Seed(13).stream("jobs", sample);
        let nodes = 4 * draws.random_range(12..=40);
        let k = draws.random_range(1..=2) * 2;
        let mut fabric =
            fabric(&FabricSpec { nodes, k, shape: Shape::Line, ..FabricSpec::default() });
        let load = draws.random_range(0.6..0.97);
        let jobs = draws.random_range(2..=4);
        fabric.jobs = (0..jobs)
            .map(|job| {
                let tp = 4 * [1, 2, 3, 4, 6, 8][draws.random_range(0..6)];
                let gpus = f64::from(nodes * 4) * load / f64::from(jobs);
                let size = JobSize::Gpus(((gpus / f64::from(tp)) as u64).max(1) * u64::from(tp));
                Job {
                    name: format!("job{job}"),
                    size,
                    tp,
                    step: None,
                    searched: None,
                    least: None,
                    nodes: None,
                }
            })
            .collect();
        let faults = broken(nodes, draws.random_range(0.0..0.08), (7, sample));
        if !fits_blindly(&fabric, &faults) {
            continue;
        }
        feasible += 1;
        let layout = plan(&fabric, &faults, Method::Scan);
        let layout = layout.unwrap_or_else(|error| panic!("sample {sample}: {error}"));
        let document = to_document(&fabric, &faults, Seed(0), &layout);
        assert_eq!(check(&fabric, &faults, &document).err(), None, "sample {sample}");
    }
}

#[test]
fn job_order_does_not_change_cross_tor_traffic() {
    for sample in 0..10 {
        let mut planned = Vec::new();
        for jobs in [[(256, 16), (2304, 32)], [(2304, 32), (256, 16)]] {
            let mut fabric = fabric(&FabricSpec { nodes: 720, k: 3, ..FabricSpec::default() });
            let job = |(gpus, tp): (u64, u32)| Job {
                name: format!("tp{tp}"),
                size: JobSize::Gpus(gpus),
                tp,
                step: None,
                searched: None,
                least: None,
                nodes: None,
            };
            fabric.jobs = jobs.map(job).to_vec();
            let faults = broken(720, 0.04, (7, sample));
            let layout = plan(&fabric, &faults, Method::Scan).unwrap();
            let document = to_document(&fabric, &faults, Seed(0), &layout);
            assert_eq!(check(&fabric, &faults, &document).err(), None);
            planned.push(document.metrics.cross_tor_share);
        }
        println!("both orders: {planned:?}");
        assert!((planned[0] - planned[1]).abs() < 1e-9, "the order of the file does not matter");
        assert!(planned[0] < 0.2, "{planned:?}");
    }
}
