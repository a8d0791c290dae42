// SPDX-License-Identifier: Apache-2.0
//! A second, deliberately slow implementation of the comparison, which does not keep state between
//! instants or share code with the first.

use lightloom_fabric::trace::{Timeline, TraceTime};
use lightloom_study::architecture::{Cluster, parse};
use lightloom_study::compare::{self, Figures, RowOutcome, Study, compare};
use lightloom_units::id::NodeId;
use proptest::prelude::*;

struct Snapshot<'a> {
    healthy: &'a [bool],
    gpus_per_node: usize,
}

impl Snapshot<'_> {
    fn gpus(&self) -> usize {
        self.healthy.len() * self.gpus_per_node
    }

    fn gpu_is_healthy(&self, gpu: usize) -> bool {
        self.healthy[gpu / self.gpus_per_node]
    }

    fn under_switches(&self, domain: usize, tp: usize) -> usize {
        let gpus: Vec<usize> = (0..self.gpus()).collect();
        gpus.chunks(domain)
            .map(|domain| domain.iter().filter(|gpu| self.gpu_is_healthy(**gpu)).count())
            .map(|healthy| healthy / tp * tp)
            .sum()
    }

    fn healthy_blocks(&self, domain: usize, block: usize) -> usize {
        let gpus: Vec<usize> = (0..self.gpus()).collect();
        gpus.chunks(domain)
            .flat_map(|domain| domain.chunks_exact(block))
            .filter(|block| block.iter().all(|gpu| self.gpu_is_healthy(*gpu)))
            .count()
    }

    fn on_line(&self, k: usize, closed: bool, tp: usize) -> usize {
        let nodes = self.healthy.len();
        let mut component: Vec<usize> = (0..nodes).collect();
        loop {
            let before = component.clone();
            for from in 0..nodes {
                for to in from + 1..=from + k {
                    if to >= nodes && !closed {
                        continue;
                    }
                    let to = to % nodes;
                    if self.healthy[from] && self.healthy[to] {
                        let least = component[from].min(component[to]);
                        component[from] = least;
                        component[to] = least;
                    }
                }
            }
            if component == before {
                break;
            }
        }
        (0..nodes)
            .map(|c| (0..nodes).filter(|n| self.healthy[*n] && component[*n] == c).count())
            .map(|size| {
                if tp >= self.gpus_per_node {
                    size / (tp / self.gpus_per_node) * tp
                } else {
                    size * (self.gpus_per_node / tp) * tp
                }
            })
            .sum()
    }
}

const DESIGNS: [&str; 16] = [
    "khop:1",
    "khop:2",
    "khop:3",
    "khop:4",
    "khop:2:line",
    "khop:3:line",
    "khop:2:spare",
    "big-switch",
    "nvl:12",
    "nvl:18",
    "nvl:36x2",
    "tpuv4",
    "tpuv4:strict",
    "sip-ring",
    "dgx",
    "torus:4x4x2",
];

fn usable(design: &str, at: &Snapshot<'_>, tp: usize) -> Option<usize> {
    let node = at.gpus_per_node;
    if tp > at.gpus() {
        return None;
    }
    let whole_nodes = tp <= node || tp.is_multiple_of(node);
    match design {
        "big-switch" => Some(at.under_switches(at.gpus(), tp)),
        "nvl:12" => (tp <= 12).then(|| at.under_switches(12, tp)),
        "nvl:18" => (tp <= 18).then(|| at.under_switches(18, tp)),
        "nvl:36x2" => (tp <= 72).then(|| at.under_switches(72, tp)),
        "dgx" => (tp <= 8).then(|| at.under_switches(8, tp)),
        "sip-ring" => Some(at.healthy_blocks(at.gpus(), tp) * tp),
        "tpuv4" if tp < 64 => Some(at.healthy_blocks(64, tp) * tp),
        "tpuv4:strict" if tp < 64 => Some(at.healthy_blocks(64, 64) * (64 / tp * tp)),
        "tpuv4" | "tpuv4:strict" => Some(at.healthy_blocks(64, 64) / tp.div_ceil(64) * tp),
        // Boxes of 1, 2, 4, 8, 16 and 32 GPUs tile a torus of 4 x 4 x 2.
        "torus:4x4x2" => (tp <= 32 && tp.is_power_of_two()).then(|| at.healthy_blocks(32, tp) * tp),
        "khop:2:spare" => {
            let ring = tp / node + 1;
            let dead = |nodes: &&[bool]| nodes.iter().filter(|healthy| !**healthy).count();
            let rings = at.healthy.chunks_exact(ring);
            let holds = tp >= node && whole_nodes && node >= 2 && at.healthy.len() >= ring;
            holds.then(|| rings.filter(|nodes| dead(nodes) <= 1).count() * tp)
        }
        khop => {
            let mut parts = khop.split(':').skip(1);
            let k: usize = parts.next().unwrap().parse().unwrap();
            let closed = parts.next().is_none();
            (k <= node && whole_nodes).then(|| at.on_line(k, closed, tp))
        }
    }
}

type Interval = (u32, u64, u64);

fn healthy_at(intervals: &[Interval], nodes: u32, now: u64) -> Vec<bool> {
    let is_open = |node: u32, (n, start, end): &Interval| *n == node && *start <= now && now < *end;
    (0..nodes).map(|node| !intervals.iter().any(|interval| is_open(node, interval))).collect()
}

fn history(
    design: &str,
    cluster: Cluster,
    tp: u32,
    intervals: &[Interval],
) -> Option<Vec<(usize, usize)>> {
    (0..WINDOW_MS)
        .map(|now| {
            let healthy = healthy_at(intervals, cluster.nodes, now);
            let gpus_per_node = cluster.gpus_per_node as usize;
            let up = healthy.iter().filter(|h| **h).count() * gpus_per_node;
            let snapshot = Snapshot { healthy: &healthy, gpus_per_node };
            let usable = usable(design, &snapshot, tp as usize)?;
            Some((up - usable, usable))
        })
        .collect()
}

fn held(outcome: &RowOutcome) -> Option<&Figures> {
    match outcome {
        RowOutcome::Held(figures) => Some(figures),
        RowOutcome::CannotHold { .. } => None,
    }
}

fn assert_same(design: &str, gpus: u32, ours: &Figures, naive: &[(usize, usize)]) {
    let close = |ours: f64, naive: f64| {
        assert!((ours - naive).abs() < 1e-12, "{design}: {ours} is not {naive}");
    };
    let ratio = |wasted: usize| wasted as f64 / f64::from(gpus);
    let mut wasted: Vec<usize> = naive.iter().map(|(wasted, _)| *wasted).collect();
    wasted.sort_unstable();
    close(ours.waste_mean, ratio(wasted.iter().sum::<usize>()) / WINDOW_MS as f64);
    close(ours.waste_p50, ratio(wasted[11]));
    close(ours.waste_max, ratio(wasted[23]));
    let least = naive.iter().map(|(_, usable)| *usable).min();
    assert_eq!(Some(ours.max_job_gpus as usize), least, "{design}");
    for waiting in &ours.waiting_share {
        let short = naive.iter().filter(|(_, u)| *u < waiting.job_gpus as usize).count();
        close(waiting.share, short as f64 / WINDOW_MS as f64);
    }
    assert!(ours.lower_bound_mean <= ours.waste_mean + 1e-12, "{design} beats the bound");
}

fn assert_same_history(
    design: &str,
    moments: &[compare::Moment],
    naive: &[(usize, usize)],
    healthy_at: &dyn Fn(u64) -> Vec<bool>,
) {
    assert_eq!(moments[0].from, TraceTime::START, "{design}");
    assert!(moments.windows(2).all(|pair| pair[0].from < pair[1].from), "{design}: {moments:?}");
    for (now, (wasted, _)) in (0..).zip(naive) {
        let moment = moments.iter().rfind(|moment| moment.from <= TraceTime(now)).unwrap();
        assert_eq!(moment.gpus_wasted as usize, *wasted, "{design} at {now} ms");
        let faulty = healthy_at(now).into_iter().filter(|healthy| !healthy).count();
        assert_eq!(moment.nodes_faulty as usize, faulty, "{design} at {now} ms");
    }
}

const WINDOW_MS: u64 = 24;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn fast_comparison_agrees_with_the_definitions(
        nodes in 1_u32..40,
        gpus_per_node in prop::sample::select(vec![1_u32, 2, 3, 4, 8]),
        tp in prop::sample::select(vec![1_u32, 2, 3, 4, 6, 8, 12, 16, 32, 64, 96]),
        faults in prop::collection::vec((0_u32..40, 0_u64..WINDOW_MS, 0_u64..16), 0..60),
    ) {
        let intervals: Vec<Interval> = faults
            .into_iter()
            .map(|(node, start, length)| (node % nodes, start, start + length))
            .collect();
        let timeline = Timeline::from_intervals(
            nodes,
            TraceTime(WINDOW_MS),
            intervals.iter().map(|(n, s, e)| (NodeId(*n), TraceTime(*s), TraceTime(*e))),
        );
        let cluster = Cluster { nodes, gpus_per_node };
        let architectures: Vec<_> = DESIGNS.iter().map(|name| parse(name).unwrap()).collect();
        let samples = [timeline];
        let study = Study {
            cluster,
            architectures: &architectures,
            tp: &[tp],
            jobs: &[],
            samples: &samples,
        };
        for (row, design) in compare(&study, &|_| ()).iter().zip(DESIGNS) {
            let naive = history(design, cluster, tp, &intervals);
            let moments = compare::history(parse(design).unwrap().as_ref(), cluster, tp, &samples[0]);
            if let (Ok(moments), Some(naive)) = (&moments, &naive) {
                let bound = parse("big-switch").unwrap();
                if let Ok(bound) = compare::history(bound.as_ref(), cluster, tp, &samples[0]) {
                    let share = share_of_time_above(moments, &bound, TraceTime(WINDOW_MS));
                    let least = history("big-switch", cluster, tp, &intervals).unwrap();
                    let above = naive.iter().zip(&least).filter(|(ours, least)| ours.0 > least.0).count();
                    prop_assert!((share - above as f64 / WINDOW_MS as f64).abs() < 1e-12);
                }
                assert_same_history(design, moments, naive, &|now| healthy_at(&intervals, nodes, now));
            }
            prop_assert_eq!(moments.is_ok(), naive.is_some(), "{}", design);
            match (held(&row.outcome), &naive) {
                (Some(ours), Some(naive)) => assert_same(design, cluster.gpus(), ours, naive),
                (ours, naive) => prop_assert_eq!(ours.is_some(), naive.is_some(), "{}", design),
            }
        }
    }
}

/// The share of the window `[0, end)` during which `ours` wastes more than `theirs`.
///
/// Panics if the histories are from different timelines.
fn share_of_time_above(
    ours: &[compare::Moment],
    theirs: &[compare::Moment],
    end: TraceTime,
) -> f64 {
    assert!(ours.iter().map(|m| m.from).eq(theirs.iter().map(|m| m.from)), "one timeline");
    let ends = ours.iter().skip(1).map(|moment| moment.from).chain([end]);
    let above_ms: u64 = ours
        .iter()
        .zip(theirs)
        .zip(ends)
        .filter(|((ours, theirs), _)| ours.gpus_wasted > theirs.gpus_wasted)
        .map(|((ours, _), end)| end.ms_since(ours.from))
        .sum();
    above_ms as f64 / end.0.max(1) as f64
}
