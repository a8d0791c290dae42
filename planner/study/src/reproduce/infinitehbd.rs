// SPDX-License-Identifier: Apache-2.0
//! Claims of the InfiniteHBD study (arXiv 2502.03885, SIGCOMM 2025).
//!
//! Only the abstract was available. Recalled tables and figures are used only as test targets.

use lightloom_fabric::trace::{FaultTrace, NodesError, Statistics};
use lightloom_units::seed::Seed;

use super::claims::{Claim, Label, Published, Section, Unit, near};
use super::why::{PublishedRange, Why, assumption, explain};
use crate::architecture::{Architecture, Cluster, NicRate, Site, parse};
use crate::compare::{
    CrossTorQuestion, FaultSource, Row, RowOutcome, Study, compare, cross_tor_shares,
};
use crate::cost::{CostFigures, CostOutcome, CostRow, MissingPrices, PriceList, cost};

#[derive(Debug)]
pub struct Inputs<'a> {
    pub trace: Option<&'a FaultTrace>,
    pub prices: &'a PriceList,
    pub samples: u64,
    pub seed: Seed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    Trace(#[from] NodesError),
    #[error(transparent)]
    Prices(#[from] MissingPrices),
}

const R4: Cluster = Cluster { nodes: 720, gpus_per_node: 4 };
const DESIGNS: [&str; 3] = ["khop:2", "nvl:72", "tpuv4"];
const COST: &str = "InfiniteHBD: the cost of an interconnect is 31 % of NVL-72's";
const CROSSING: &str = "InfiniteHBD: cross-ToR traffic near zero with up to 7 % faulty nodes";
pub const MFU: &str = "InfiniteHBD: MFU up to 3.37 times that of DGX";

pub fn infinitehbd(inputs: &Inputs<'_>) -> Result<Vec<Claim>, StudyError> {
    let waste = match inputs.trace {
        None => None,
        Some(trace) => Some(Waste::on(trace, inputs)?),
    };
    let costs = costs(inputs.prices)?;
    let sections = [
        headlines(waste.as_ref(), &costs, inputs),
        trace_counts(inputs.trace),
        public_counts(&costs),
    ];
    Ok(sections.into_iter().flat_map(|section| section.claims).collect())
}

struct Waste(Vec<Row>);

impl Waste {
    fn on(trace: &FaultTrace, inputs: &Inputs<'_>) -> Result<Self, NodesError> {
        let source = FaultSource::Trace(trace.clone());
        let samples = source.samples(R4, inputs.samples, inputs.seed)?;
        let (architectures, cluster) = (designs(&DESIGNS), R4);
        let (tp, jobs, samples) = (&[32], &[], &samples);
        let study = Study { cluster, architectures: &architectures, tp, jobs, samples };
        Ok(Self(compare(&study, &|_| ())))
    }

    fn mean(&self, arch: &str) -> f64 {
        match self.0.iter().find(|row| row.arch == arch).map(|row| &row.outcome) {
            Some(RowOutcome::Held(figures)) => figures.waste_mean,
            _ => unreachable!("the table only lists designs that can hold the groups"),
        }
    }
}

fn designs(names: &[&str]) -> Vec<Box<dyn Architecture>> {
    names.iter().map(|name| parse(name).expect("in the registry")).collect()
}

fn headlines(waste: Option<&Waste>, costs: &[CostRow], inputs: &Inputs<'_>) -> Section {
    let mut section = Section::new("Headline claims of the abstract", Label::Read);
    section.stands_for(COST);
    let [ours, theirs] =
        ["khop:2", "nvl:72"].map(|arch| priced(costs, arch).cost_per_gbytes_per_s_usd);
    section.add(
        "interconnect cost of K = 2 per GB/s ÷ that of NVL-72",
        Unit::Ratio,
        near(0.31, 0.005),
        ours / theirs,
    );
    let more_than_ten = Published::AtLeast { value: 10.0 };
    let near_zero = Published::AtMost { value: 0.01 };
    section
        .stands_for("InfiniteHBD: GPU waste near zero, more than ten times below NVL-72 and TPUv4");
    for (claim, other) in [
        ("GPU waste of NVL-72 ÷ that of K = 2, TP-32", "nvl:72"),
        ("GPU waste of TPUv4 ÷ that of K = 2, TP-32", "tpuv4"),
    ] {
        let ratio = waste.map(|waste| waste.mean(other) / waste.mean("khop:2"));
        section.add_from_faults(claim, Unit::Times, more_than_ten, ratio);
    }
    let claim = "GPU waste of K = 2 at TP-32 \"near zero\" (limit: 1 %)";
    let ours = waste.map(|waste| waste.mean("khop:2"));
    section.add_from_faults(claim, Unit::Ratio, near_zero, ours);
    section.stands_for(CROSSING);
    for (nodes_per_tor, job_share) in [(2, 0.85), (4, 0.75)] {
        cross_tor(&mut section, inputs.seed, nodes_per_tor, job_share, 0.07);
    }
    section
}

/// The paper claims a value "near zero while the node fault ratio is under 7 %". It depends on the nodes per ToR and
/// the job's share of the cluster, which the abstract does not state, so two cases are computed.
fn cross_tor(section: &mut Section, seed: Seed, nodes_per_tor: u32, job_share: f64, ratio: f64) {
    let question = CrossTorQuestion {
        cluster: Cluster { nodes: 2_048, gpus_per_node: 4 },
        k: 3,
        nodes_per_tor,
        tp: 32,
        job_share,
        node_fault_ratios: &[ratio],
        samples: 10,
        seed,
    };
    let points = cross_tor_shares(&question).expect("K = 3 of 4 GPUs is a k-hop ring");
    let claim = format!(
        "cross-ToR share \"near zero\" (limit: 1 %) at {:.0} % faulty nodes: 8,192 GPUs, {nodes_per_tor} \
         nodes per ToR, job of {} %",
        100.0 * ratio,
        100.0 * job_share
    );
    let limit = crate::compare::aligned_limit(job_share, nodes_per_tor);
    let ours = points[0].orchestrated_mean;
    let claim = section.add(claim, Unit::Ratio, Published::AtMost { value: 0.01 }, ours);
    claim.note = Some(format!(
        "share of inner data-parallel hops; lower bound {:.1} %; alignment is feasible up to {:.1} % faults",
        100.0 * points[0].bound_mean,
        100.0 * limit
    ));
}

/// Varies nodes per ToR, the job's share, the cluster size and cost alternatives, which the abstract leaves open.
pub fn why(prices: &PriceList, seed: Seed) -> Vec<Why> {
    vec![cost_why(prices), crossing_why(seed)]
}

fn cost_why(prices: &PriceList) -> Why {
    let levels = [(1, "as recalled"), (0, "a fifth less"), (2, "a fifth more")];
    let costs = costs(prices).ok();
    explain(
        "InfiniteHBD: cost of K = 2 per GB/s ÷ that of NVL-72",
        Some(COST),
        PublishedRange { low: 30.5, high: 31.5, no_effect: Some(100.0), unit: " %" },
        vec![
            assumption("price of a switching transceiver", &levels),
            assumption("price of an NVLink switch chip", &levels),
        ],
        |choice| {
            let [ours, theirs] = [choice[0], choice[1]].map(|at| levels[at].0);
            let Some(costs) = &costs else { return f64::NAN };
            100.0 * per_bandwidth(prices, priced(costs, "khop:2"), "ocstrx-800g", ours)
                / per_bandwidth(prices, priced(costs, "nvl:72"), "nvlink-switch", theirs)
        },
    )
}

/// Returns the cost per GB/s if `part` costs the lowest, mean or highest price.
fn per_bandwidth(prices: &PriceList, figures: &CostFigures, part: &str, level: usize) -> f64 {
    let usd = prices.quote(part).map(|quote| &quote.usd);
    let usd = usd.map_or(f64::NAN, |usd| [usd.low, usd.mean, usd.high][level]);
    let lines = figures.bill.iter().map(|line| match line.part == part {
        true => line.count_per_gpu * usd,
        false => line.usd_per_gpu.unwrap_or(f64::NAN),
    });
    lines.sum::<f64>() / figures.gbytes_per_s_per_gpu
}

fn crossing_why(seed: Seed) -> Why {
    const SNAPSHOTS: u64 = 3;
    let clusters = [(2_048, "8,192 GPUs"), (720, "the study's 2,880 GPUs")];
    let nodes_per_tor = [(4, "4"), (2, "2")];
    let shares = [(0.85, "85 %"), (0.75, "75 %")];
    let faulty = [(0.07, "7 %"), (0.05, "5 %"), (0.03, "3 %"), (0.01, "1 %")];
    explain(
        "InfiniteHBD: share of hops that cross ToRs (near zero: up to 1 %)",
        Some(CROSSING),
        PublishedRange { low: 0.0, high: 1.0, no_effect: None, unit: " %" },
        vec![
            assumption("cluster", &clusters),
            assumption("nodes per ToR", &nodes_per_tor),
            assumption("job's share of the cluster", &shares),
            assumption("faulty nodes", &faulty),
        ],
        |choice| {
            let question = CrossTorQuestion {
                cluster: Cluster { nodes: clusters[choice[0]].0, gpus_per_node: 4 },
                k: 3,
                nodes_per_tor: nodes_per_tor[choice[1]].0,
                tp: 32,
                job_share: shares[choice[2]].0,
                node_fault_ratios: &[faulty[choice[3]].0],
                samples: SNAPSHOTS,
                seed,
            };
            match cross_tor_shares(&question).as_deref() {
                Ok([point]) if point.fits > 0.0 => 100.0 * point.orchestrated_mean,
                _ => f64::NAN,
            }
        },
    )
}

type Figure = fn(&Statistics) -> f64;

fn trace_counts(trace: Option<&FaultTrace>) -> Section {
    let mut section = Section::new("The public fault trace", Label::Trace);
    let statistics = trace.map(FaultTrace::statistics);
    let figures: [(&str, Unit, Published, Figure); 8] = [
        ("faults", Unit::Count, near(584.0, 0.0), |s| s.faults.into()),
        ("servers with a fault", Unit::Count, near(231.0, 0.0), |s| s.servers_affected.into()),
        ("server-days lost", Unit::ServerDays, near(3_231.3, 0.05), |s| s.server_days),
        ("mean share of servers out of service", Unit::Ratio, near(0.0232, 5e-6), |s| {
            s.concurrency.mean_ratio
        }),
        ("servers out of service, P50", Unit::Count, near(7.0, 0.0), |s| {
            s.concurrency.p50_servers.into()
        }),
        ("servers out of service, P99", Unit::Count, near(31.0, 0.0), |s| {
            s.concurrency.p99_servers.into()
        }),
        ("servers out of service, maximum", Unit::Count, near(35.0, 0.0), |s| {
            s.concurrency.max_servers.into()
        }),
        ("mean duration of a fault in days", Unit::Days, near(5.54, 0.005), |s| {
            s.durations.mean_days
        }),
    ];
    for (claim, unit, published, figure) in figures {
        section.add_from_faults(claim, unit, published, statistics.as_ref().map(figure));
    }
    section
}

fn costs(prices: &PriceList) -> Result<Vec<CostRow>, MissingPrices> {
    let site = Site { gpus: 2_880, gpus_per_node: 4, nic: NicRate::G400 };
    cost(&designs(&DESIGNS), &site, prices)
}

fn priced<'a>(costs: &'a [CostRow], arch: &str) -> &'a CostFigures {
    match costs.iter().find(|row| row.arch == arch).map(|row| &row.outcome) {
        Some(CostOutcome::Priced(figures)) => figures,
        _ => unreachable!("the table only lists designs with a bill"),
    }
}

fn public_counts(costs: &[CostRow]) -> Section {
    let mut section = Section::new("Public part counts, against the derived bills", Label::Read);
    for (claim, published, gpus, arch, part) in [
        ("copper cables of an NVL72", 5_184.0, 72.0, "nvl:72", "copper-200g"),
        ("switch chips of an NVL72", 18.0, 72.0, "nvl:72", "nvlink-switch"),
        ("optical switches for 4,096 TPUv4", 48.0, 4_096.0, "tpuv4", "palomar-ocs"),
        ("optical modules of a TPUv4", 1.5, 1.0, "tpuv4", "optical-400g"),
    ] {
        let lines = priced(costs, arch).bill.iter().filter(|line| line.part == part);
        let count: f64 = lines.map(|line| line.count_per_gpu).sum();
        section.add(claim, Unit::Count, near(published, 0.0), gpus * count);
    }
    section
}
