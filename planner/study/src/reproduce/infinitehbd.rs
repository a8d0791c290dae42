// SPDX-License-Identifier: Apache-2.0
//! The claims of the InfiniteHBD study (arXiv 2502.03885, SIGCOMM 2025), as far as they can be
//! computed.
//!
//! The paper's full text was not available. Its abstract was read. Tables and figures were
//! recalled, and those that an independent calculation had reproduced are targets here.

use lightloom_fabric::trace::{FaultTrace, NodesError, Timeline, part_fault_probability};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;

use super::claims::{Claim, Label, Published, Section, Unit, near};
use super::why::{PublishedRange, Why, assumption, explain};
use crate::architecture::{Architecture, Cluster, NicRate, Site, parse};
use crate::compare::{
    CrossTorQuestion, FaultSource, Figures, NodeFaultRatio, Row, RowOutcome, Study, compare,
    cross_tor_shares, snapshots,
};
use crate::cost::{CostFigures, CostOutcome, CostRow, MissingPrices, PriceList, cost};

#[derive(Debug)]
pub struct Inputs<'a> {
    /// The public fault trace. Without it, claims about it are not computed.
    pub trace: Option<&'a FaultTrace>,
    pub prices: &'a PriceList,
    /// Random draws of servers and their positions.
    pub samples: u64,
    pub seed: Seed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StudyError {
    /// The trace does not have 400 servers of 8 GPUs.
    #[error(transparent)]
    Trace(#[from] NodesError),
    #[error(transparent)]
    Prices(#[from] MissingPrices),
}

/// 2,880 GPUs in nodes of four and of eight: the cluster of the study.
const R4: Cluster = Cluster { nodes: 720, gpus_per_node: 4 };
const R8: Cluster = Cluster { nodes: 360, gpus_per_node: 8 };
const COST: &str = "InfiniteHBD: the cost of an interconnect is 31 % of NVL-72's";
const CROSSING: &str = "InfiniteHBD: cross-ToR traffic near zero with up to 7 % faulty nodes";
/// The sentence on MFU, which the training model computes.
pub const MFU: &str = "InfiniteHBD: MFU up to 3.37 times that of DGX";

/// Returns every claim that was read, or recalled and reproduced, with our figure if there is one.
pub fn infinitehbd(inputs: &Inputs<'_>) -> Result<Vec<Claim>, StudyError> {
    let waste = match inputs.trace {
        None => None,
        Some(trace) => Some(Waste::on(trace, inputs)?),
    };
    let costs = costs(inputs.prices)?;
    let sections = [
        headlines(waste.as_ref(), &costs, inputs),
        trace_counts(inputs.trace),
        fault_ratios(inputs.trace, waste.as_ref()),
        mean_waste(waste.as_ref()),
        waste_table(waste.as_ref()),
        waiting(waste.as_ref()),
        arithmetic(),
        bounds(inputs),
        cost_table(&costs),
        public_counts(&costs),
    ];
    Ok(sections.into_iter().flat_map(|section| section.claims).collect())
}

/// The comparison on the trace for nodes of four GPUs, and the fault ratios of both node sizes.
struct Waste {
    rows: Vec<Row>,
    rows_r8: Vec<Row>,
    faults_r4: NodeFaultRatio,
    faults_r8: NodeFaultRatio,
}

impl Waste {
    fn on(trace: &FaultTrace, inputs: &Inputs<'_>) -> Result<Self, NodesError> {
        let source = FaultSource::Trace(trace.clone());
        let r4 = source.samples(R4, inputs.samples, inputs.seed)?;
        let r8 = source.samples(R8, inputs.samples, inputs.seed)?;
        let names = MEAN_WASTE_PERCENT.map(|(name, _)| name);
        let rows_r8 = rows(R8, &TABLE_R8.map(|(name, _)| name), &[32], &r8, &[]);
        let rows = rows(R4, &names, &MEAN_WASTE_TP, &r4, &[2_560, 2_752]);
        let (faults_r4, faults_r8) = (NodeFaultRatio::of(&r4), NodeFaultRatio::of(&r8));
        Ok(Self { rows, rows_r8, faults_r4, faults_r8 })
    }

    fn figures(&self, arch: &str, tp: u32) -> &Figures {
        figures(&self.rows, arch, tp)
    }

    fn mean(&self, arch: &str) -> f64 {
        self.figures(arch, 32).waste_mean
    }
}

fn designs(names: &[&str]) -> Vec<Box<dyn Architecture>> {
    names.iter().map(|name| parse(name).expect("in the registry")).collect()
}

fn rows(
    cluster: Cluster,
    names: &[&str],
    tp: &[u32],
    samples: &[Timeline],
    jobs: &[u32],
) -> Vec<Row> {
    let architectures = designs(names);
    compare(&Study { cluster, architectures: &architectures, tp, jobs, samples }, &|_| ())
}

fn figures<'a>(rows: &'a [Row], arch: &str, tp: u32) -> &'a Figures {
    let row = rows.iter().find(|row| row.arch == arch && row.tp == tp);
    match row.map(|row| &row.outcome) {
        Some(RowOutcome::Held(figures)) => figures,
        _ => unreachable!("the tables only name designs that hold the groups"),
    }
}

fn headlines(waste: Option<&Waste>, costs: &[CostRow], inputs: &Inputs<'_>) -> Section {
    let mut section = Section::new("Headline claims of the abstract", Label::Read);
    section.stands_for(COST);
    let per_bandwidth = |arch| priced(costs, arch).cost_per_gbytes_per_s_usd;
    section.add(
        "interconnect cost of K = 2 per GB/s ÷ that of NVL-72",
        Unit::Ratio,
        near(0.31, 0.005),
        per_bandwidth("khop:2") / per_bandwidth("nvl:72"),
    );
    let more_than_ten = Published::AtLeast { value: 10.0 };
    let near_zero = Published::AtMost { value: 0.01 };
    section
        .stands_for("InfiniteHBD: GPU waste near zero, more than ten times below NVL-72 and TPUv4");
    for (claim, other) in [
        ("GPU waste of NVL-72 ÷ that of K = 2, TP-32", "nvl:72"),
        ("GPU waste of TPUv4 ÷ that of K = 2, TP-32", "tpuv4"),
    ] {
        match waste {
            None => section.needs_faults(claim, Unit::Times, more_than_ten),
            Some(waste) => {
                let ratio = waste.mean(other) / waste.mean("khop:2");
                section.add(claim, Unit::Times, more_than_ten, ratio);
            }
        }
    }
    let claim = "GPU waste of K = 2 at TP-32 \"near zero\" (we ask for 1 %)";
    match waste {
        None => section.needs_faults(claim, Unit::Ratio, near_zero),
        Some(waste) => {
            section.add(claim, Unit::Ratio, near_zero, waste.mean("khop:2"));
        }
    }
    section.stands_for(CROSSING);
    for (nodes_per_tor, job_share) in [(2, 0.85), (4, 0.75)] {
        cross_tor(&mut section, inputs.seed, nodes_per_tor, job_share, 0.07);
    }
    section.stands_for(MFU);
    section.not_computed(
        "model FLOPs utilisation ÷ that of DGX, at most",
        Unit::Times,
        near(3.37, 0.1),
        "the sentence above has its cases; `lightloom reproduce mfu` has the mappings",
    );
    section.claims.extend(switching().claims);
    section
}

/// The paper says "near zero while the node fault ratio is under 7 %". The result depends on the
/// nodes per ToR and the job's share of the cluster, which were not recovered, so this computes two
/// cases at 7 %.
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
        "cross-ToR share \"near zero\" (we ask for 1 %) at {:.0} % faulty nodes: 8,192 GPUs, {nodes_per_tor} \
         nodes a ToR, job of {} %",
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

/// Explores what the abstract leaves open: nodes per ToR, the job's share of the cluster and its
/// size, and alternatives for the cost. The study's own prices match to the cent, so that sentence
/// is based on its rows.
#[must_use]
pub fn why(prices: &PriceList, seed: Seed) -> Vec<Why> {
    vec![cost_why(prices), crossing_why(seed)]
}

fn cost_why(prices: &PriceList) -> Why {
    let levels = [(1, "as recalled"), (0, "a fifth less"), (2, "a fifth more")];
    let usd = |part: &str, level: usize| {
        let usd = prices.quote(part).map(|quote| &quote.usd);
        usd.map_or(f64::NAN, |usd| [usd.low, usd.mean, usd.high][level])
    };
    let costs = costs(prices).ok();
    let per_bandwidth = |design: &str, part: &str, level: usize| {
        let Some(costs) = &costs else { return f64::NAN };
        let figures = priced(costs, design);
        let lines = figures.bill.iter().map(|line| match line.part == part {
            true => line.count_per_gpu * usd(part, level),
            false => line.usd_per_gpu,
        });
        lines.sum::<f64>() / figures.gbytes_per_s_per_gpu
    };
    explain(
        "InfiniteHBD: cost of K = 2 per GB/s ÷ that of NVL-72",
        Some(COST),
        PublishedRange { low: 30.5, high: 31.5, no_effect: Some(100.0), unit: " %" },
        vec![
            assumption("price of a transceiver that switches", &levels),
            assumption("price of an NVLink switch chip", &levels),
        ],
        |choice| {
            let [ours, theirs] = [choice[0], choice[1]].map(|at| levels[at].0);
            100.0 * per_bandwidth("khop:2", "ocstrx-800g", ours)
                / per_bandwidth("nvl:72", "nvlink-switch", theirs)
        },
    )
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
            assumption("nodes under a ToR", &nodes_per_tor),
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

fn switching() -> Section {
    let mut section = Section::new("Headline claims of the abstract", Label::Read);
    section.stands_for("InfiniteHBD: a transceiver switches in 60 to 80 µs");
    section.not_computed(
        "switching time of an OCSTrx in µs (60 to 80)",
        Unit::Count,
        near(70.0, 10.0),
        "an input of the emulator, not a result",
    );
    section
}

fn trace_counts(trace: Option<&FaultTrace>) -> Section {
    let mut section = Section::new("The public fault trace", Label::Trace);
    let statistics = trace.map(FaultTrace::statistics);
    let mut add = |claim: &str, unit, published, ours: Option<f64>| match ours {
        Some(ours) => {
            section.add(claim, unit, published, ours);
        }
        None => section.needs_faults(claim, unit, published),
    };
    let s = statistics.as_ref();
    add("faults", Unit::Count, near(584.0, 0.0), s.map(|s| f64::from(s.faults)));
    add(
        "servers with a fault",
        Unit::Count,
        near(231.0, 0.0),
        s.map(|s| f64::from(s.servers_affected)),
    );
    add("server-days lost", Unit::ServerDays, near(3_231.3, 0.05), s.map(|s| s.server_days));
    add(
        "mean share of servers out",
        Unit::Ratio,
        near(0.0232, 5e-6),
        s.map(|s| s.concurrency.mean_ratio),
    );
    add(
        "servers out, P50",
        Unit::Count,
        near(7.0, 0.0),
        s.map(|s| f64::from(s.concurrency.p50_servers)),
    );
    add(
        "servers out, P99",
        Unit::Count,
        near(31.0, 0.0),
        s.map(|s| f64::from(s.concurrency.p99_servers)),
    );
    add(
        "servers out, most",
        Unit::Count,
        near(35.0, 0.0),
        s.map(|s| f64::from(s.concurrency.max_servers)),
    );
    add(
        "days that a fault lasts, mean",
        Unit::Days,
        near(5.54, 0.005),
        s.map(|s| s.durations.mean_days),
    );
    section
}

fn fault_ratios(trace: Option<&FaultTrace>, waste: Option<&Waste>) -> Section {
    let mut section = Section::new(
        "Node fault ratios of 2,880 GPUs drawn from the trace",
        Label::RecalledReproduced,
    );
    let (Some(trace), Some(waste)) = (trace, waste) else {
        section.needs_faults("mean, nodes of 8 GPUs", Unit::Ratio, near(0.0233, 0.0));
        return section;
    };
    // The tolerances are the variation between draws of 360 of the 400 servers.
    let mut add = |claim: &str, value, tolerance, ours| {
        section.add(claim, Unit::Ratio, near(value, tolerance), ours);
    };
    add("mean, nodes of 8 GPUs", 0.0233, 0.001, waste.faults_r8.mean);
    add("P50, nodes of 8 GPUs", 0.0167, 0.0028, waste.faults_r8.p50);
    add("P99, nodes of 8 GPUs", 0.0722, 0.0111, waste.faults_r8.p99);
    add("mean, nodes of 4 GPUs", 0.0117, 0.0006, waste.faults_r4.mean);
    add("P99, nodes of 4 GPUs", 0.0367, 0.0163, waste.faults_r4.p99);
    section.label = Label::Derived;
    let hit = part_fault_probability(trace.mean_ratio(), 8, 4);
    section.add(
        "half of a server faulty, given that the server is",
        Unit::Ratio,
        near(0.503, 0.001),
        hit,
    );
    section
}

fn mean_waste(waste: Option<&Waste>) -> Section {
    let mut section =
        Section::new("Mean waste on the trace, TP-32, nodes of 4 GPUs", Label::RecalledReproduced);
    for (arch, value, tolerance) in
        [("khop:2", 0.0053, 0.0007), ("nvl:72", 0.1004, 0.003), ("tpuv4", 0.0756, 0.013)]
    {
        match waste {
            None => section.needs_faults(arch, Unit::Ratio, near(value, tolerance)),
            Some(waste) => {
                section.add(arch, Unit::Ratio, near(value, tolerance), waste.mean(arch));
            }
        }
    }
    section
}

/// TP sizes of [`MEAN_WASTE_PERCENT`].
pub const MEAN_WASTE_TP: [u32; 4] = [8, 16, 32, 64];
/// Mean waste on the public trace in percent, by design and TP size: nodes of four GPUs, 40 random
/// draws by another program. NaN if the design never holds such a group.
pub const MEAN_WASTE_PERCENT: [(&str, [f64; 4]); 11] = [
    ("big-switch", [0.069, 0.209, 0.518, 1.332]),
    ("khop:3", [0.069, 0.209, 0.518, 1.332]),
    ("khop:2", [0.071, 0.215, 0.532, 1.361]),
    ("khop:2:line", [0.080, 0.241, 0.598, 1.498]),
    ("khop:1", [0.58, 1.74, 3.94, 8.25]),
    ("nvl:36", [10.08, 10.23, 10.54, f64::NAN]),
    ("nvl:72", [0.90, 9.99, 10.06, 10.20]),
    ("nvl:576", [0.31, 1.03, 2.77, 6.66]),
    ("tpuv4", [1.16, 3.43, 7.70, 15.45]),
    ("sip-ring", [1.16, 3.43, 7.70, 15.45]),
    ("tpuv4:strict", [15.45, 15.45, 15.45, 15.45]),
];
/// Mean waste on the public trace in percent, by design: nodes of eight GPUs, TP-32.
const TABLE_R8: [(&str, f64); 6] = [
    ("big-switch", 0.39),
    ("khop:2", 0.42),
    ("khop:3", 0.39),
    ("nvl:72", 9.86),
    ("nvl:576", 2.15),
    ("tpuv4", 6.41),
];
const TABLE_DRAWS: f64 = 40.0;

fn waste_table(waste: Option<&Waste>) -> Section {
    let mut section =
        Section::new("Mean waste on the trace, all designs and TP sizes", Label::Derived);
    let Some(waste) = waste else { return section };
    for (arch, means) in MEAN_WASTE_PERCENT {
        for (tp, percent) in MEAN_WASTE_TP.into_iter().zip(means).filter(|(_, mean)| !mean.is_nan())
        {
            let row = waste.figures(arch, tp);
            let published = drawn(percent, row);
            section.add(format!("{arch} at TP-{tp}"), Unit::Ratio, published, row.waste_mean);
        }
    }
    let above_ideal = waste.mean("khop:3") - waste.mean("big-switch");
    section.add("khop:3 above the ideal switch, TP-32", Unit::Ratio, near(0.0, 5e-5), above_ideal);
    for (arch, percent) in TABLE_R8 {
        let row = figures(&waste.rows_r8, arch, 32);
        let claim = format!("{arch} at TP-32, nodes of 8 GPUs");
        section.add(claim, Unit::Ratio, drawn(percent, row), row.waste_mean);
    }
    section
}

/// Compares means of random draws, in percent. Both are random, so the difference has the sum of
/// both variances, and the table is rounded.
fn drawn(percent: f64, ours: &Figures) -> Published {
    let draws = 1.0 / TABLE_DRAWS + 1.0 / ours.samples as f64;
    near(percent / 100.0, 3.5 * ours.waste_stddev * draws.sqrt() + 5e-5)
}

fn waiting(waste: Option<&Waste>) -> Section {
    let mut section = Section::new("Share of time that a job waits, TP-32", Label::Derived);
    let Some(waste) = waste else { return section };
    // From ten draws of unknown variance; the tolerances are our judgement.
    for (arch, shares) in [
        ("khop:3", [(0.0, 0.0), (0.004, 0.004)]),
        ("khop:2", [(0.0, 0.001), (0.014, 0.01)]),
        ("nvl:576", [(0.0, 0.001), (0.325, 0.04)]),
        ("nvl:72", [(0.110, 0.03), (1.0, 0.0)]),
        ("tpuv4", [(0.238, 0.04), (0.655, 0.04)]),
    ] {
        let waitings = &waste.figures(arch, 32).waiting_share;
        for (waiting, (share, tolerance)) in waitings.iter().zip(shares) {
            let claim = format!("{arch}, job of {} GPUs", waiting.job_gpus);
            section.add(claim, Unit::Ratio, near(share, tolerance), waiting.share);
        }
    }
    section
}

fn arithmetic() -> Section {
    let mut section = Section::new("Waste without any fault", Label::Derived);
    let healthy = [Timeline::constant(R4.nodes, std::iter::empty::<NodeId>())];
    let names = ["nvl:36", "nvl:72", "nvl:576", "tpuv4", "khop:2"];
    let rows = rows(R4, &names, &[16, 32], &healthy, &[]);
    for tp in [16, 32] {
        for (arch, value) in names.into_iter().zip([1.0 / 9.0, 1.0 / 9.0, 0.0, 0.0, 0.0]) {
            let ours = figures(&rows, arch, tp).waste_mean;
            section.add(format!("{arch} at TP-{tp}"), Unit::Ratio, near(value, 0.0), ours);
        }
    }
    section
}

fn bounds(inputs: &Inputs<'_>) -> Section {
    let name = "Bounds of the waste at TP-32, and the simulation below them";
    let mut section = Section::new(name, Label::RecalledReproduced);
    let recalled = [
        (R4, 0.0367, [("khop:2", 0.0754), ("khop:3", 0.0028), ("khop:4", 0.0001)]),
        (R8, 0.0722, [("khop:2", 0.2502), ("khop:3", 0.0181), ("khop:4", 0.0013)]),
    ];
    let mut simulated = Section::new(name, Label::Derived);
    for (cluster, ratio, values) in recalled {
        let r = cluster.gpus_per_node;
        let names = values.map(|(arch, _)| arch);
        let architectures = designs(&names);
        let samples = snapshots(cluster, ratio, inputs.samples.max(200), inputs.seed);
        let study = Study {
            cluster,
            architectures: &architectures,
            tp: &[32],
            jobs: &[],
            samples: &samples,
        };
        let rows = compare(&study, &|_| ());
        for ((arch, value), architecture) in values.into_iter().zip(&architectures) {
            let Some(bounds) = architecture.waste_bounds(cluster, 32, ratio) else { continue };
            let claim = format!("2 (N_t − R) P^K, {arch}, R = {r}, P = {:.2} %", 100.0 * ratio);
            section.add(claim, Unit::Ratio, near(value, 5.5e-5), bounds.recalled);
            let claim = format!("simulated waste of {arch}, R = {r}, below our tighter bound");
            let most = Published::AtMost { value: bounds.derived + bounds.remainder };
            simulated.add(claim, Unit::Ratio, most, figures(&rows, arch, 32).waste_mean);
        }
    }
    section.claims.extend(simulated.claims);
    section
}

/// Dollars and watts per GPU, and dollars per GB/s.
const COSTS: [(&str, f64, f64, f64); 7] = [
    ("tpuv4", 1_567.20, 19.39, 5.22),
    ("nvl:36", 9_563.20, 75.95, 10.63),
    ("nvl:72", 9_563.20, 75.95, 10.63),
    ("nvl:36x2", 17_924.00, 150.33, 19.92),
    ("nvl:576", 30_417.60, 413.45, 33.80),
    ("khop:2", 2_626.80, 48.10, 3.28),
    ("khop:3", 3_740.60, 72.05, 4.68),
];

fn costs(prices: &PriceList) -> Result<Vec<CostRow>, MissingPrices> {
    let site = Site { gpus: 2_880, gpus_per_node: 4, nic: NicRate::G400 };
    cost(&designs(&COSTS.map(|(name, ..)| name)), &site, prices)
}

fn priced<'a>(costs: &'a [CostRow], arch: &str) -> &'a CostFigures {
    match costs.iter().find(|row| row.arch == arch).map(|row| &row.outcome) {
        Some(CostOutcome::Priced(figures)) => figures,
        _ => unreachable!("the table only names designs that have a bill"),
    }
}

fn cost_table(costs: &[CostRow]) -> Section {
    let mut section =
        Section::new("Interconnect cost and power, nodes of 4 GPUs", Label::RecalledReproduced);
    for (arch, dollars, watts, per_bandwidth) in COSTS {
        let figures = priced(costs, arch);
        let cost = near(dollars, 0.0);
        section.add(format!("cost of {arch}"), Unit::UsdPerGpu, cost, figures.cost_per_gpu_usd);
        section.add(
            format!("cost of {arch} per GB/s"),
            Unit::UsdPerGbytesPerS,
            near(per_bandwidth, 0.006),
            figures.cost_per_gbytes_per_s_usd,
        );
        let power = near(watts, 0.005);
        let claim = format!("power of {arch}");
        match figures.power_per_gpu_w {
            Some(ours) => {
                section.add(claim, Unit::WattsPerGpu, power, ours);
            }
            None => section.not_computed(claim, Unit::WattsPerGpu, power, "a part has no watts"),
        }
    }
    section
}

fn public_counts(costs: &[CostRow]) -> Section {
    let mut section = Section::new("Public part counts, against the derived bills", Label::Read);
    let count = |arch, part: &str| -> f64 {
        let lines = priced(costs, arch).bill.iter().filter(|line| line.part == part);
        lines.map(|line| line.count_per_gpu).sum()
    };
    let mut add = |claim: &str, value, ours| {
        section.add(claim, Unit::Count, near(value, 0.0), ours);
    };
    add("copper cables of an NVL72", 5_184.0, 72.0 * count("nvl:72", "copper-200g"));
    add("switch chips of an NVL72", 18.0, 72.0 * count("nvl:72", "nvlink-switch"));
    add("optical switches for 4,096 TPUv4", 48.0, 4_096.0 * count("tpuv4", "palomar-ocs"));
    add("optical modules of a TPUv4", 1.5, count("tpuv4", "optical-400g"));
    section
}
