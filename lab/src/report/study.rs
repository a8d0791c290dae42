// SPDX-License-Identifier: Apache-2.0

use anyhow::Context;
use lightloom_fabric::trace::{FaultTrace, Timeline};
use lightloom_report::page::{Comparison, Cost, History};
use lightloom_study::architecture::{Architecture, Cluster, NicRate, Site};
use lightloom_study::compare::{
    FaultSource, NodeFaultRatio, RatioQuestion, RowOutcome, Study, against_fault_ratio, compare,
    history,
};
use lightloom_study::cost::{
    CostOutcome, CostRow, PriceList, aggregate_of, cost, cost_per_usable_gpu,
};
use lightloom_units::seed::Seed;

const FAULT_RATIOS: [f64; 11] = [0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10];
const NODES_A_POINT: u32 = 100_000;
const SNAPSHOTS: [u32; 2] = [4, 200];

pub(super) struct StudyQuestion<'a> {
    pub(super) cluster: Cluster,
    pub(super) designs: &'a [Box<dyn Architecture>],
    pub(super) own: Option<String>,
    pub(super) tp: u32,
    pub(super) faults: String,
    pub(super) trace: Option<&'a FaultTrace>,
    pub(super) samples: &'a [Timeline],
    pub(super) seed: Seed,
}

pub(super) fn samples(
    trace: Option<&(String, FaultTrace)>,
    cluster: Cluster,
    samples: u64,
    seed: Seed,
) -> anyhow::Result<Vec<Timeline>> {
    let (name, source) = match trace {
        Some((name, trace)) => (name.as_str(), FaultSource::Trace(trace.clone())),
        None => ("a synthetic trace", FaultSource::Synthetic),
    };
    source
        .samples(cluster, samples, seed)
        .with_context(|| format!("{name} does not fit this cluster"))
}

pub(super) fn comparison(question: &StudyQuestion<'_>) -> Comparison {
    let StudyQuestion { cluster, designs, tp, samples, seed, .. } = *question;
    let study = Study { cluster, architectures: designs, tp: &[tp], jobs: &[], samples };
    let histories = designs.iter().filter_map(|design| {
        let moments = history(design.as_ref(), cluster, tp, &samples[0]).ok()?;
        Some(History { arch: design.name(), moments })
    });
    let snapshots = (NODES_A_POINT / cluster.nodes).clamp(SNAPSHOTS[0], SNAPSHOTS[1]);
    let ratios = RatioQuestion {
        cluster,
        tp,
        node_fault_ratios: &FAULT_RATIOS,
        samples: u64::from(snapshots),
        seed,
    };
    Comparison {
        cluster,
        tp,
        own: question.own.clone(),
        faults: question.faults.clone(),
        samples: samples.len() as u64,
        node_fault_ratio: NodeFaultRatio::of(samples),
        rows: compare(&study, &|_| ()),
        histories: histories.collect(),
        window: samples[0].window(),
        curves: against_fault_ratio(designs, &ratios),
        snapshots: u64::from(snapshots),
        trace: question.trace.map(FaultTrace::statistics),
    }
}

pub(super) fn costs(
    name: String,
    prices: &PriceList,
    designs: &[Box<dyn Architecture>],
    site: Site,
    comparison: Option<&Comparison>,
) -> anyhow::Result<Cost> {
    let rows = cost(designs, &site, prices)?;
    let gpu_usd = prices.quote("gpu").map(|quote| quote.usd.mean);
    let aggregate = match (gpu_usd, comparison) {
        (Some(gpu_usd), Some(comparison)) => aggregate_of(&comparison.curves, &rows, gpu_usd),
        _ => Vec::new(),
    };
    let usable = comparison.map_or_else(Vec::new, |comparison| usable(comparison, &rows));
    Ok(Cost { prices: name, usable, gpu_usd, aggregate, rows })
}

pub(super) const fn site(gpus: u32, gpus_per_node: u32) -> Site {
    Site { gpus, gpus_per_node, nic: NicRate::G400 }
}

fn usable(comparison: &Comparison, costs: &[CostRow]) -> Vec<(String, f64)> {
    let usable = costs.iter().filter_map(|row| {
        let CostOutcome::Priced(cost) = &row.outcome else { return None };
        let waste = comparison.rows.iter().find(|waste| waste.arch == row.arch)?;
        let RowOutcome::Held(waste) = &waste.outcome else { return None };
        let per_gpu = cost.cost_per_gpu_usd;
        let usable =
            cost_per_usable_gpu(per_gpu, comparison.cluster.gpus(), waste.usable_mean_gpus)?;
        Some((row.arch.clone(), usable))
    });
    usable.collect()
}
