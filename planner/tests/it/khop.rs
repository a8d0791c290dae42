// SPDX-License-Identifier: Apache-2.0
//! Properties of the k-hop planner on random fabrics, faults and jobs.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};

use common::{FabricSpec, arbitrary_case, fabric, faults_of};
use lightloom_fabric::dcn::Order;
use lightloom_fabric::fabric::{Fabric, JobSize};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::khop::{Path, Position, Shape};
use lightloom_fabric::plan::{Plan, RingProof, RingSearch};
use lightloom_planner::check::{Violation, check};
use lightloom_planner::khop::{
    GroupChange, Layout, Method, PlanError, Survey, from_document, most_groups, plan, replan,
    replan_after_repairs, to_document,
};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::Seed;
use proptest::prelude::*;
use rand::RngExt;

fn planned(fabric: &Fabric, faults: &FaultSet) -> (Layout, Plan) {
    let layout = plan(fabric, faults, Method::Scan).expect("jobs that take all always fit");
    let document = to_document(fabric, faults, Seed(0), &layout);
    (layout, document)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_plan_passes_the_independent_checker(case in arbitrary_case()) {
        let (fabric, faults) = case.build();
        let (_, document) = planned(&fabric, &faults);
        prop_assert_eq!(check(&fabric, &faults, &document).err(), None);
    }

    #[test]
    fn node_with_all_bundles_failed_is_a_failed_node(
        case in arbitrary_case(), hit in any::<prop::sample::Index>(),
    ) {
        let (fabric, mut by_name) = case.build();
        let node = NodeId(u32::try_from(hit.index(fabric.hbd.nodes() as usize)).unwrap());
        let mut by_bundles = by_name.clone();
        by_name.nodes.insert(node);
        by_bundles.nodes.remove(&node);
        by_bundles.bundles.extend((0..fabric.hbd.k()).map(|bundle| BundleId { node, bundle }));
        let (_, expected) = planned(&fabric, &by_name);
        let (_, document) = planned(&fabric, &by_bundles);
        prop_assert_eq!(&document.groups, &expected.groups);
        prop_assert_eq!(document.metrics.gpus_faulty, expected.metrics.gpus_faulty);
        prop_assert_eq!(document.metrics.waste_ratio, expected.metrics.waste_ratio);
        prop_assert_eq!(check(&fabric, &by_bundles, &document).err(), None);
    }

    #[test]
    fn plan_document_round_trips(case in arbitrary_case()) {
        let (fabric, faults) = case.build();
        let (layout, document) = planned(&fabric, &faults);
        let text = serde_json::to_string(&document).unwrap();
        let (again, same_faults) = from_document(&fabric, &serde_json::from_str(&text).unwrap()).unwrap();
        prop_assert_eq!(same_faults, faults);
        prop_assert_eq!(&again.groups, &layout.groups);
        prop_assert_eq!(again.paths().collect::<Vec<_>>(), layout.paths().collect::<Vec<_>>());
    }

    #[test]
    fn replanning_keeps_every_untouched_group_and_passes_the_checker(
        case in arbitrary_case(), hits in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
    ) {
        let (fabric, mut faults) = case.build();
        let (mut layout, _) = planned(&fabric, &faults);
        for hit in hits {
            let node = NodeId(u32::try_from(hit.index(fabric.hbd.nodes() as usize)).unwrap());
            faults.nodes.insert(node);
            let before = layout.clone();
            let change = replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
            for group in before.groups.iter().filter(|g| g.job.is_some() && !g.nodes.contains(&node)) {
                prop_assert!(layout.groups.contains(group), "untouched {group:?} stays");
            }
            let document = to_document(&fabric, &faults, Seed(0), &layout);
            prop_assert_eq!(check(&fabric, &faults, &document).err(), None);
            for (bundle, from, to) in &change.bundles {
                prop_assert_eq!(before.path(*bundle), *from);
                prop_assert_eq!(layout.path(*bundle), *to);
            }
        }
        faults.nodes.clear();
        replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
        let document = to_document(&fabric, &faults, Seed(0), &layout);
        prop_assert_eq!(check(&fabric, &faults, &document).err(), None);
    }

    #[test]
    fn repairs_form_spare_rings_without_moving_job_rings(
        case in arbitrary_case(), hits in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
    ) {
        let (fabric, mut faults) = case.build();
        let (mut layout, _) = planned(&fabric, &faults);
        let known = faults.clone();
        for hit in hits {
            faults.nodes.insert(NodeId(u32::try_from(hit.index(fabric.hbd.nodes() as usize)).unwrap()));
            replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
        }
        let before = layout.clone();
        let change = replan_after_repairs(&fabric, &Survey::new(&fabric.hbd, &known), &mut layout);
        for group in before.groups.iter().filter(|group| group.job.is_some()) {
            prop_assert!(layout.groups.contains(group), "{group:?} stays");
        }
        let document = to_document(&fabric, &known, Seed(0), &layout);
        prop_assert_eq!(check(&fabric, &known, &document).err(), None);
        for (bundle, from, to) in &change.bundles {
            prop_assert_eq!((before.path(*bundle), layout.path(*bundle)), (*from, *to));
        }
        let again = replan_after_repairs(&fabric, &Survey::new(&fabric.hbd, &known), &mut layout);
        prop_assert_eq!(again.groups, vec![]);
        if known.bundles.is_empty() && known.fibres.is_empty() {
            let length = fabric.jobs[0].tp.div_ceil(u32::from(fabric.hbd.gpus_per_node())) as usize;
            let run = longest_run(&fabric, &idle(&fabric, &known, &layout));
            prop_assert!(run < length, "{run} idle nodes in a row, a ring has {length}");
        }
    }
}

fn longest_run(fabric: &Fabric, nodes: &BTreeSet<NodeId>) -> usize {
    let mut places: Vec<usize> =
        nodes.iter().map(|node| fabric.hbd.position_of(*node).index()).collect();
    places.sort_unstable();
    let far = |pair: &[usize]| pair[1] - pair[0] > usize::from(fabric.hbd.k());
    let cuts = (1..places.len()).filter(|i| far(&places[i - 1..=*i]));
    let cuts: Vec<usize> = std::iter::once(0).chain(cuts).chain([places.len()]).collect();
    cuts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// With only node faults and even K, the scan is optimal. Otherwise it may find one ring fewer,
    /// because it neither turns back nor interleaves rings.
    #[test]
    fn scan_is_close_to_the_exact_optimum(case in arbitrary_case()) {
        let (fabric, faults) = case.build();
        let length = fabric.jobs[0].tp / u32::from(fabric.hbd.gpus_per_node());
        prop_assume!((1..=3).contains(&length) && fabric.hbd.nodes() <= 16);
        let survey = Survey::new(&fabric.hbd, &faults);
        let exact = most_groups(&survey, survey.alive(), length as usize, 60.0).unwrap().groups;
        let (layout, _) = planned(&fabric, &faults);
        let scanned = layout.groups_of(0).count();
        prop_assert!(scanned <= exact.len());
        let only_nodes = faults.bundles.is_empty() && faults.fibres.is_empty();
        let slack = usize::from(!only_nodes || fabric.hbd.k() % 2 == 1) * 2;
        prop_assert!(scanned + slack >= exact.len(), "{scanned} of {}", exact.len());
        for group in &exact {
            prop_assert_eq!(group.nodes.len(), length as usize);
        }
    }

    #[test]
    fn exact_plans_pass_the_checker(case in arbitrary_case()) {
        let (fabric, faults) = case.build();
        prop_assume!(fabric.hbd.nodes() <= 16 && fabric.jobs[0].tp <= 3 * u32::from(fabric.hbd.gpus_per_node()));
        let layout = plan(&fabric, &faults, Method::Exact).unwrap();
        let document = to_document(&fabric, &faults, Seed(0), &layout);
        prop_assert_eq!(check(&fabric, &faults, &document).err(), None);
    }

    #[test]
    fn bypass_replaces_the_fewest_nodes_then_switches_the_fewest_bundles(
        dead in prop::collection::btree_set(0u32..14, 0..5), hit in 0u32..14, k in 2u8..=4, m in 2u32..=4,
    ) {
        let spec = FabricSpec { nodes: 14, gpus_per_node: 4, k, shape: Shape::Line, tp: 4 * m, ..FabricSpec::default() };
        let mut fabric = fabric(&spec);
        // The job has one group fewer than would fit, so nodes stay idle. Without a spare ring, the
        // replan must use a bypass.
        let mut faults = FaultSet { nodes: dead.iter().map(|n| NodeId(*n)).collect(), ..FaultSet::none() };
        let most = planned(&fabric, &faults).0.groups.len();
        prop_assume!(most >= 1);
        fabric.jobs[0].size = JobSize::Gpus((most as u64 - 1).max(1) * u64::from(4 * m));
        let (mut layout, _) = planned(&fabric, &faults);
        layout.groups.retain(|group| group.job.is_some());
        let idle_now: BTreeSet<NodeId> = idle(&fabric, &faults, &layout);
        put_out(&mut layout, &fabric, &idle_now, &faults);
        let Some(index) = layout.groups.iter().position(|g| g.nodes.contains(&NodeId(hit))) else { return Ok(()) };
        faults.nodes.insert(NodeId(hit));
        let best = cheapest_by_trying(&fabric, &faults, &layout, index);
        let change = replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
        if change.moved.rings > 0 {
            prop_assert_eq!(best, None, "{:?} moves a healthy ring", change);
            return Ok(());
        }
        match (&change.groups[0], best) {
            (GroupChange::Bypassed { into, .. }, Some(best)) => {
                prop_assert_eq!((into.len(), change.bundles.len()), best);
            }
            (GroupChange::Bypassed { .. }, None) => prop_assert!(false, "no chain exists: {change:?}"),
            (_, Some(best)) => prop_assert!(false, "a chain exists at cost {best:?}: {change:?}"),
            (_, None) => {}
        }
    }
}

fn idle(fabric: &Fabric, faults: &FaultSet, layout: &Layout) -> BTreeSet<NodeId> {
    let used: BTreeSet<NodeId> =
        layout.groups.iter().flat_map(|g| g.nodes.iter().copied()).collect();
    let all = (0..fabric.hbd.nodes()).map(NodeId);
    all.filter(|node| !used.contains(node) && !faults.nodes.contains(node)).collect()
}

/// Sets idle nodes to loopback, as if their spare rings had never been lit.
fn put_out(layout: &mut Layout, fabric: &Fabric, idle: &BTreeSet<NodeId>, faults: &FaultSet) {
    let mut document = to_document(fabric, faults, Seed(0), layout);
    for entry in &mut document.transceivers {
        if idle.contains(&entry.bundle.node) {
            entry.path = Path::Loopback;
        }
    }
    *layout = from_document(fabric, &document).unwrap().0;
}

/// Minimum cost (replaced nodes, switched bundles) of rebuilding group `index` with at least one of
/// its nodes. Tries every chain up the line and derives costs from the resulting paths.
fn cheapest_by_trying(
    fabric: &Fabric,
    faults: &FaultSet,
    layout: &Layout,
    index: usize,
) -> Option<(usize, usize)> {
    let old = &layout.groups[index];
    let mut pool: Vec<NodeId> = idle(fabric, faults, layout).into_iter().collect();
    pool.extend(old.nodes.iter().filter(|node| !faults.nodes.contains(node)));
    pool.sort_by_key(|node| fabric.hbd.position_of(*node));
    let mut best = None;
    for picked in subsets(&pool, old.nodes.len()) {
        let kept = picked.iter().filter(|node| old.nodes.contains(node)).count();
        if let Some(switched) =
            switched_for(fabric, faults, layout, &old.nodes, &picked).filter(|_| kept > 0)
        {
            let cost = (picked.len() - kept, switched);
            best = Some(best.map_or(cost, |b: (usize, usize)| b.min(cost)));
        }
    }
    best
}

fn subsets(pool: &[NodeId], size: usize) -> Vec<Vec<NodeId>> {
    match (size, pool.split_first()) {
        (0, _) => vec![vec![]],
        (_, None) => vec![],
        (_, Some((first, rest))) => {
            let with =
                subsets(rest, size - 1).into_iter().map(|tail| [vec![*first], tail].concat());
            with.chain(subsets(rest, size)).collect()
        }
    }
}

/// Counts the bundles of working nodes that switch when `picked` replaces `old`. Follows hops
/// instead of the planner's tables. `None` if the chain is impossible.
fn switched_for(
    fabric: &Fabric,
    faults: &FaultSet,
    layout: &Layout,
    old: &[NodeId],
    picked: &[NodeId],
) -> Option<usize> {
    let hbd = &fabric.hbd;
    let mut paths: std::collections::BTreeMap<BundleId, Path> = layout.paths().collect();
    for bundle in picked
        .iter()
        .flat_map(|node| (0..hbd.k()).map(move |bundle| BundleId { node: *node, bundle }))
    {
        paths.insert(bundle, Path::Loopback);
    }
    for pair in picked.windows(2) {
        let Position(from) = hbd.position_of(pair[0]);
        let hop = i64::from(hbd.position_of(pair[1]).0) - i64::from(from);
        let hop = i8::try_from(hop).ok().filter(|hop| (1..=hbd.k() as i8).contains(hop))?;
        for port in [hbd.port(pair[0], hop), hbd.port(pair[1], -hop)] {
            if paths.insert(port.bundle, port.selects()) != Some(Path::Loopback) {
                return None; // a bundle would need two paths
            }
        }
    }
    let touched: BTreeSet<NodeId> = old.iter().chain(picked).copied().collect();
    let dangling: Vec<BundleId> = paths
        .iter()
        .filter(|(bundle, path)| {
            let path_number = match path {
                Path::Loopback => return false,
                Path::External1 => 1,
                Path::External2 => 2,
            };
            let far =
                hbd.peer(lightloom_fabric::khop::Port { bundle: **bundle, path: path_number });
            far.is_none_or(|far| {
                faults.nodes.contains(&far.bundle.node) || paths[&far.bundle] != far.selects()
            })
        })
        .map(|(bundle, _)| *bundle)
        .collect();
    for bundle in dangling {
        assert!(touched.contains(&bundle.node) || !faults.nodes.contains(&bundle.node));
        paths.insert(bundle, Path::Loopback);
    }
    let differs = |(bundle, path): &(&BundleId, &Path)| {
        !faults.nodes.contains(&bundle.node) && layout.path(**bundle) != **path
    };
    Some(paths.iter().filter(differs).count())
}

/// Every triple of neighbours is a candidate, so the integer program would take minutes for a
/// trivial bound.
#[test]
fn exact_search_stops_when_counting_proves_the_scan() {
    let spec = FabricSpec { nodes: 22, k: 4, gpus_per_node: 4, tp: 12, ..FabricSpec::default() };
    let fabric = fabric(&spec);
    let faults = faults_of(&fabric, &[]);
    let survey = Survey::new(&fabric.hbd, &faults);
    let found = most_groups(&survey, survey.alive(), 3, 20.0).unwrap();
    let proof = RingProof { rings: 7, at_most: 7, ended: RingSearch::Counting };
    assert_eq!((found.groups.len(), found.proof), (7, proof));
}

#[test]
fn exact_search_keeps_scanned_rings_at_its_time_limit() {
    let spec = FabricSpec { nodes: 14, k: 2, tp: 12, shape: Shape::Line, ..FabricSpec::default() };
    let fabric = fabric(&spec);
    let all: Vec<_> = fabric.hbd.fibres().collect();
    let mut stopped = 0;
    for sample in 0..60 {
        let mut draws = Seed(11).stream("fibres", sample);
        let mut faults = FaultSet::none();
        faults.fibres.extend(all.iter().filter(|_| draws.random_bool(0.2)).copied());
        let survey = Survey::new(&fabric.hbd, &faults);
        let exact = most_groups(&survey, survey.alive(), 3, 60.0).unwrap();
        let hasty = most_groups(&survey, survey.alive(), 3, 0.0).unwrap();
        assert_ne!(exact.proof.ended, RingSearch::TimeLimit);
        assert_eq!(exact.proof.rings, exact.proof.at_most);
        assert_eq!(hasty.groups.len() as u64, hasty.proof.rings);
        let (rings, bounds) = (exact.proof.rings, hasty.proof.rings..=hasty.proof.at_most);
        assert!(bounds.contains(&rings), "sample {sample}: {rings} rings, {bounds:?}");
        stopped += u32::from(hasty.proof.ended == RingSearch::TimeLimit);
    }
    assert!(stopped > 0, "no case needed the program");
}

#[test]
fn rejected_job_error_states_how_many_gpus_fit() {
    let mut fabric = fabric(&FabricSpec { nodes: 20, tp: 16, ..FabricSpec::default() });
    fabric.jobs[0].size = JobSize::Gpus(80);
    let faults = faults_of(&fabric, &["n3"]);
    let error = plan(&fabric, &faults, Method::Scan).unwrap_err();
    assert!(
        matches!(error, PlanError::DoesNotFit { wanted: 80, possible: 64, healthy: 76, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("only 64 fit"), "{error}");
}

#[test]
fn failed_fibre_removes_an_edge_but_not_the_node() {
    let spec = FabricSpec { nodes: 16, order: Order::Sequential, tp: 16, ..FabricSpec::default() };
    let fabric = fabric(&spec);
    let faults = faults_of(&fabric, &["n1/b0.1"]);
    let (_, document) = planned(&fabric, &faults);
    assert_eq!(
        document.metrics.gpus_used, 64,
        "the ring is cut at the bad fibre and loses nothing"
    );
    assert!(document.circuits.iter().all(|c| c.a.to_string() != "n1/b0.1"));
}

#[test]
fn failed_bundle_leaves_small_groups_on_its_node() {
    let small = fabric(&FabricSpec { nodes: 4, tp: 2, ..FabricSpec::default() });
    let faults = faults_of(&small, &["n1/b0"]);
    let (_, document) = planned(&small, &faults);
    assert_eq!(document.metrics.gpus_used, 16, "g1-g2 and g3-g0 avoid the open edge g0-g1");
    assert_eq!(check(&small, &faults, &document).err(), None);
    let large = fabric(&FabricSpec { nodes: 4, tp: 4, ..FabricSpec::default() });
    assert_eq!(planned(&large, &faults).1.metrics.gpus_used, 12);
}

#[test]
fn aligned_jobs_keep_equal_ranks_under_one_tor() {
    let spec = FabricSpec { nodes: 256, tp: 32, per_tor: 4, k: 3, ..FabricSpec::default() };
    let mut fabric = fabric(&spec);
    fabric.jobs[0].size = JobSize::Gpus(768);
    let faults = faults_of(&fabric, &["n17", "n102", "n203"]);
    let (_, document) = planned(&fabric, &faults);
    assert_eq!(document.metrics.cross_tor_share, 0.0);
}

/// The crossing share is near zero if the job's share is at most (1 - f)^p, which leaves room for
/// alignment. For larger jobs it rises slowly.
#[test]
fn cross_tor_traffic_is_near_zero_while_alignment_is_possible() {
    let cases = [
        (2, 0.85, 0.06, 0.001),
        (2, 0.85, 0.07, 0.05),
        (4, 0.75, 0.05, 0.01),
        (4, 0.75, 0.065, 0.06),
    ];
    for (per_tor, job, ratio, most) in cases {
        let spec = FabricSpec {
            nodes: 2048,
            k: 3,
            per_tor,
            per_domain: 64,
            tp: 32,
            ..FabricSpec::default()
        };
        let mut fabric = fabric(&spec);
        fabric.jobs[0].size = JobSize::Gpus((8192.0 * job / 32.0) as u64 * 32);
        let share = |sample: u64| {
            let mut draws = Seed(3).stream("faults", sample);
            let nodes = (0..2048).filter(|_| draws.random_bool(ratio)).map(NodeId).collect();
            let faults = FaultSet { nodes, ..FaultSet::none() };
            let (_, document) = planned(&fabric, &faults);
            document.metrics.cross_tor_share
        };
        let mean = (0..10).map(share).sum::<f64>() / 10.0;
        assert!(mean <= most, "p={per_tor}, job {job}, {ratio} broken: {mean}");
    }
}

#[test]
fn checker_detects_every_kind_of_damage() {
    let fabric = fabric(&FabricSpec { nodes: 24, tp: 16, k: 3, ..FabricSpec::default() });
    let faults = faults_of(&fabric, &["n5"]);
    let (_, sound) = planned(&fabric, &faults);
    let caught = |damage: &dyn Fn(&mut Plan), expected: &dyn Fn(&Violation) -> bool| {
        let mut plan = sound.clone();
        damage(&mut plan);
        let found = check(&fabric, &faults, &plan).expect_err("damage is found");
        assert!(found.iter().any(expected), "{found:?}");
    };
    let lit = sound.transceivers.iter().position(|t| t.path != Path::Loopback).unwrap();
    caught(&|p| p.transceivers[lit].path = Path::Loopback, &|v| {
        matches!(v, Violation::NotAnswered(..))
    });
    caught(&|p| p.transceivers[lit].path = Path::Loopback, &|v| {
        matches!(v, Violation::Degree { .. } | Violation::NotOneCycle { .. })
    });
    caught(
        &|p| {
            p.transceivers.remove(lit);
        },
        &|v| matches!(v, Violation::BundleNotSet(_)),
    );
    caught(&|p| p.transceivers.push(p.transceivers[lit]), &|v| {
        matches!(v, Violation::BundleSetTwice(_))
    });
    caught(&|p| p.transceivers[lit].bundle.node = NodeId(5), &|v| {
        matches!(v, Violation::BrokenBundleUsed(_))
    });
    caught(&|p| p.transceivers[lit].bundle.node = NodeId(99), &|v| {
        matches!(v, Violation::NoSuchBundle(_))
    });
    caught(
        &|p| {
            p.circuits.pop();
        },
        &|v| matches!(v, Violation::CircuitCount { .. }),
    );
    caught(&|p| p.circuits.push(p.circuits[0]), &|v| matches!(v, Violation::CircuitCount { .. }));
    caught(&|p| p.circuits[0].b.path = 3 - p.circuits[0].b.path, &|v| {
        matches!(v, Violation::CircuitNotMade(..))
    });
    caught(&|p| p.groups[0].ring.swap(0, 5), &|v| matches!(v, Violation::NotNeighbours { .. }));
    caught(
        &|p| {
            p.groups[0].ring.pop();
        },
        &|v| matches!(v, Violation::RingIncomplete { .. } | Violation::GroupSize { .. }),
    );
    caught(&|p| p.groups[0].nodes[0] = NodeId(5), &|v| {
        matches!(v, Violation::BrokenNodeUsed { .. })
    });
    caught(&|p| p.groups[1].ring = p.groups[0].ring.clone(), &|v| {
        matches!(v, Violation::GpuInTwoGroups { .. } | Violation::RingIncomplete { .. })
    });
    caught(&|p| p.groups[0].job = Some(7), &|v| matches!(v, Violation::NoSuchJob { .. }));
    caught(&|p| p.groups.swap(0, 1), &|v| matches!(v, Violation::GroupOutOfPlace { .. }));
    caught(
        &|p| {
            p.ranks.pop();
        },
        &|v| matches!(v, Violation::Ranks { .. }),
    );
    caught(&|p| p.ranks[0].tp = 1, &|v| matches!(v, Violation::Ranks { .. }));
    caught(&|p| p.metrics.waste_ratio += 0.01, &|v| {
        matches!(v, Violation::Metric { name: "waste_ratio", .. })
    });
    caught(&|p| p.metrics.cross_tor_share = f64::NAN, &|v| matches!(v, Violation::Metric { .. }));
    caught(&|p| p.fabric_sha256 = "0".into(), &|v| matches!(v, Violation::OtherFabric(_)));
    let used = sound.groups[0].nodes[0];
    let also_dead = faults_of(&fabric, &["n5", &used.to_string()]);
    let stale = check(&fabric, &also_dead, &sound).expect_err("a plan from before the fault");
    assert!(
        stale.iter().any(|v| matches!(v, Violation::BrokenNodeUsed { node, .. } if *node == used))
    );
}

#[test]
fn failed_node_switches_at_most_two_k_bundles() {
    for k in 2..=4u8 {
        let spec = FabricSpec { nodes: 240, tp: 32, k, ..FabricSpec::default() };
        let mut fabric = fabric(&spec);
        fabric.jobs[0].size = JobSize::Gpus(704);
        let faults = faults_of(&fabric, &["n20", "n77", "n78", "n150"]);
        let (layout, _) = planned(&fabric, &faults);
        for hit in 0..240 {
            let mut faults = faults.clone();
            faults.insert(&fabric, Part::Node(NodeId(hit))).unwrap();
            let mut next = layout.clone();
            let change = replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut next);
            assert!(change.bundles.len() <= 2 * usize::from(k), "k={k} n{hit}: {change:?}");
        }
    }
}

#[test]
fn rebuilds_a_group_on_the_longest_hops() {
    let spec =
        FabricSpec { nodes: 200, gpus_per_node: 64, k: 64, tp: 192, ..FabricSpec::default() };
    let mut fabric = fabric(&spec);
    fabric.jobs[0].size = JobSize::Gpus(192);
    let dead: Vec<String> = (1..64).chain(65..128).map(|node| format!("n{node}")).collect();
    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    let faults = faults_of(&fabric, &dead);
    let (planned, _) = planned(&fabric, &faults);
    for hit in [0, 64, 128] {
        let (mut faults, mut layout) = (faults.clone(), planned.clone());
        faults.insert(&fabric, Part::Node(NodeId(hit))).unwrap();
        replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
        let document = to_document(&fabric, &faults, Seed(0), &layout);
        assert_eq!(check(&fabric, &faults, &document).err(), None, "n{hit}");
    }
}

/// Counts dark circuits after two nodes fail and are repaired, on the fabric of the daemon's
/// examples.
#[test]
fn repairing_most_node_pairs_restores_every_circuit() {
    let spec = FabricSpec { nodes: 32, gpus_per_node: 4, k: 2, tp: 16, ..FabricSpec::default() };
    let mut fabric = fabric(&spec);
    fabric.jobs[0].size = JobSize::Gpus(96);
    let circuits = |layout: &Layout, faults: &FaultSet| {
        to_document(&fabric, faults, Seed(0), layout).circuits.len()
    };
    let (first, _) = planned(&fabric, &FaultSet::none());
    let all = circuits(&first, &FaultSet::none());
    let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
    for (a, b) in (0..32).flat_map(|a| (0..32).map(move |b| (a, b))).filter(|(a, b)| a != b) {
        let (mut layout, mut faults) = (first.clone(), FaultSet::none());
        for node in [a, b] {
            faults.nodes.insert(NodeId(node));
            replan(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
        }
        for node in [a, b] {
            faults.nodes.remove(&NodeId(node));
            replan_after_repairs(&fabric, &Survey::new(&fabric.hbd, &faults), &mut layout);
        }
        *missing.entry(all - circuits(&layout, &faults)).or_default() += 1;
    }
    println!("of {all} circuits are dark, after so many of 992 pairs: {missing:?}");
    assert!(missing[&0] >= 868, "{missing:?}");
    assert!(missing.keys().all(|dark| *dark <= 3), "{missing:?}");
}
