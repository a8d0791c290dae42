// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_study::architecture::{Architecture, Cluster, NicRate};
use lightloom_study::compare::{FaultSource, RatioQuestion, RowOutcome, Study, compare};
use lightloom_study::cost::{
    Aggregate, AggregateQuestion, CostFigures, CostOutcome, CostRow, PricedLine, Purchase,
    aggregate, cost, cost_per_usable_gpu, purchase,
};
use lightloom_study::results::{COST_SCHEMA, CostResult, FabricCostResult, UsableCost};
use lightloom_units::seed::Seed;

use crate::designs::{ClusterSize, designs, fault_source, prices};
use lightloom::choice::{OptionValue, one_of};
use lightloom::output::VerbOutcome;
use lightloom::result::ResultArguments;
use lightloom::table::{TextTable, separated};

const FAULT_RATIOS: [f64; 7] = [0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.10];
const SNAPSHOTS: u64 = 200;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom cost
  lightloom cost topologies/job-2048-circuits.yaml
  lightloom cost --arch khop:2,khop:3,nvl:72 --gpus-per-node 8 --prices mine.yaml
  lightloom cost --arch fat-tree:64,rfabric --nic 800G --gpus 8192 --bill

Architectures: as in `compare`, and fat-tree:K, rfabric, rfabric:thin, rfabric:core. Prices:
docs/cost.md")]
pub(crate) struct Arguments {
    /// Fabric file: print the bill of this fabric, part by part, with its total.
    #[arg(value_name = "FABRIC", conflicts_with_all = ["arch", "gpus", "gpus_per_node", "nic", "tp", "faults", "samples", "seed", "bill"])]
    fabric: Option<PathBuf>,
    /// Designs, separated by commas.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "khop:2,khop:3,tpuv4,nvl:36,nvl:72,nvl:36x2,nvl:576"
    )]
    arch: Vec<String>,
    /// Price file (YAML) [default: the shipped topologies/prices.yaml].
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    #[command(flatten)]
    size: ClusterSize,
    /// Rate of each GPU's network card, for data-centre networks.
    #[arg(long, default_value = "400G", value_parser = one_of(NIC_RATES))]
    nic: NicRate,
    /// Tensor-parallel group size for computing waste.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = lightloom::number::whole::<u32>(1..=1 << 24))]
    tp: u32,
    /// Faults for computing waste: a trace file, `synthetic`, or `iid:P`.
    #[arg(long, value_name = "FILE|synthetic|iid:P", default_value = "synthetic")]
    faults: String,
    /// Number of random draws when computing waste.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = lightloom::number::whole::<u64>(1..=100_000))]
    samples: u64,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Show every part with its count, formula, price and confidence.
    #[arg(long)]
    bill: bool,
    #[command(flatten)]
    result: ResultArguments,
}

const NIC_RATES: &[OptionValue<NicRate>] = &[
    (NicRate::G100, "100G", ""),
    (NicRate::G200, "200G", ""),
    (NicRate::G400, "400G", ""),
    (NicRate::G800, "800G", ""),
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    if let Some(fabric) = &arguments.fabric {
        return fabric_bill(fabric, arguments);
    }
    let cluster = arguments.size.cluster()?;
    let mut inputs = Inputs::new();
    let prices = prices(arguments.prices.as_deref(), &mut inputs)?;
    let architectures = designs(&arguments.arch, &prices, &mut inputs)?;
    let rows = cost(&architectures, &cluster.site(arguments.nic), &prices)?;
    let gpu_usd = prices.quote("gpu").map(|quote| quote.usd.mean);
    let usable = usable(arguments, cluster, &architectures, &rows, &mut inputs)?;
    let document = CostResult {
        made: Provenance::of(COST_SCHEMA, inputs),
        prices: arguments.prices.as_ref().map_or("shipped".to_owned(), |p| p.display().to_string()),
        gpus: cluster.gpus(),
        gpus_per_node: cluster.gpus_per_node,
        tp: arguments.tp,
        faults: arguments.faults.clone(),
        seed: arguments.seed,
        samples: arguments.samples,
        usable,
        gpu_usd,
        aggregate: gpu_usd.map_or_else(Vec::new, |gpu_usd| {
            let faults = RatioQuestion {
                cluster,
                tp: arguments.tp,
                node_fault_ratios: &FAULT_RATIOS,
                samples: SNAPSHOTS,
                seed: Seed(arguments.seed),
            };
            aggregate(&architectures, &rows, &AggregateQuestion { faults, gpu_usd })
        }),
        rows,
    };
    arguments.result.show(&document, "rows", || describe(&document, arguments.bill))?;
    let none = !document.rows.iter().any(|row| priced(row).is_some());
    Ok(if none { VerbOutcome::Bad } else { VerbOutcome::Good })
}

fn fabric_bill(path: &Path, arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let fabric = lightloom::fabric::read(path)?;
    let mut inputs = Inputs::new();
    inputs.insert("fabric".to_owned(), lightloom::plan::fabric_input(path, &fabric));
    let prices = prices(arguments.prices.as_deref(), &mut inputs)?;
    let bill = purchase(&fabric, &prices)?;
    let document = FabricCostResult {
        made: Provenance::of(COST_SCHEMA, inputs),
        name: fabric.name.clone(),
        gpus: fabric.gpus(),
        bill,
    };
    arguments.result.show(&document, "lines", || bill_text(&document))?;
    Ok(VerbOutcome::Good)
}

fn or_dash(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn bill_text(document: &FabricCostResult) -> String {
    let Purchase { lines, usd, usd_low, usd_high, watts, .. } = &document.bill;
    let table = bill_table(lines);
    let mut text = format!(
        "{}: {} GPUs cost ${} (${} to ${} with low and high prices), ${} per GPU; the network takes {} W\n\n{table}",
        document.name,
        document.gpus,
        separated(&format!("{usd:.2}")),
        separated(&format!("{usd_low:.0}")),
        separated(&format!("{usd_high:.0}")),
        separated(&format!("{:.2}", usd / document.gpus as f64)),
        separated(&format!("{watts:.0}")),
    );
    for (lacks, parts) in [
        ("no price, so not in the total", &document.bill.parts_without_price),
        ("no power, so not in the sum of watts", &document.bill.parts_without_watts),
    ] {
        if !parts.is_empty() {
            text += &format!("{lacks}: {}\n", parts.join(", "));
        }
    }
    text
}

fn usable(
    arguments: &Arguments,
    cluster: Cluster,
    architectures: &[Box<dyn Architecture>],
    costs: &[CostRow],
    inputs: &mut Inputs,
) -> anyhow::Result<Vec<UsableCost>> {
    let source: FaultSource = fault_source(&arguments.faults, None, inputs)?;
    let samples = source.samples(cluster, arguments.samples, Seed(arguments.seed))?;
    let tp = &[arguments.tp];
    let study = Study { cluster, architectures, tp, jobs: &[], samples: &samples };
    let rows = compare(&study, &|_| ()).into_iter().zip(costs);
    let usable = rows.filter_map(|(row, cost)| {
        let RowOutcome::Held(figures) = row.outcome else { return None };
        let (per_gpu, usable_mean_gpus) =
            (priced(cost)?.cost_per_gpu_usd, figures.usable_mean_gpus);
        Some(UsableCost {
            arch: row.arch,
            waste_mean: figures.waste_mean,
            usable_mean_gpus,
            cost_per_usable_gpu_usd: cost_per_usable_gpu(
                per_gpu,
                cluster.gpus(),
                usable_mean_gpus,
            )?,
        })
    });
    Ok(usable.collect())
}

fn priced(row: &CostRow) -> Option<&CostFigures> {
    match &row.outcome {
        CostOutcome::Priced(figures) => Some(figures),
        CostOutcome::CannotPrice { .. } => None,
    }
}

fn describe(document: &CostResult, with_bill: bool) -> String {
    let mut text = format!(
        "Interconnect per GPU; prices: {}; waste: TP-{} on {} GPUs, faults {}, {} samples, seed {}\n\n{}",
        document.prices,
        document.tp,
        document.gpus,
        document.faults,
        document.samples,
        document.seed,
        if document.rows.iter().any(|row| priced(row).is_some()) {
            summary(document).to_string()
        } else {
            String::new()
        }
    );
    for row in &document.rows {
        if let CostOutcome::CannotPrice { cannot_price } = &row.outcome {
            text.push_str(&format!("{}: no price: {cannot_price}\n", row.arch));
        }
    }
    if with_bill {
        text.push_str(&bills(&document.rows, document.gpus));
    }
    if let (Some(gpu_usd), false) = (document.gpu_usd, document.aggregate.is_empty()) {
        text.push_str(&format!(
            "\nAggregate: interconnect + ${gpu_usd:.0} · (wasted + faulty GPUs), $ per GPU, by % of faulty nodes\n\n{}",
            aggregate_table(&document.aggregate)
        ));
    }
    text
}

fn summary(document: &CostResult) -> TextTable {
    let rows = document.rows.iter().filter_map(|row| {
        let usable = document.usable.iter().find(|usable| usable.arch == row.arch);
        Some((row, priced(row)?, usable))
    });
    TextTable::of(rows)
        .column("design", |(row, ..)| row.arch.clone())
        .column("GB/s", |(_, figures, _)| format!("{:.0}", figures.gbytes_per_s_per_gpu))
        .column("$/GPU", |(_, figures, _)| format!("{:.2}", figures.cost_per_gpu_usd))
        .column("low", |(_, figures, _)| format!("{:.0}", figures.cost_per_gpu_low_usd))
        .column("high", |(_, figures, _)| format!("{:.0}", figures.cost_per_gpu_high_usd))
        .column("$/GB/s", |(_, figures, _)| format!("{:.2}", figures.cost_per_gbytes_per_s_usd))
        .column("W/GPU", |(_, figures, _)| or_dash(figures.power_per_gpu_w, 2))
        .column("W/GB/s", |(_, figures, _)| or_dash(figures.power_per_gbytes_per_s_w, 3))
        .column("waste %", |(.., usable)| or_dash(usable.map(|of| 100.0 * of.waste_mean), 2))
        .column("$/usable GPU", |(.., usable)| {
            or_dash(usable.map(|of| of.cost_per_usable_gpu_usd), 2)
        })
        .column("confidence", |(_, figures, _)| figures.confidence)
        .table()
}

fn bills(rows: &[CostRow], gpus: u32) -> String {
    let mut text = String::new();
    for row in rows {
        let Some(figures) = priced(row) else { continue };
        let usd: f64 = figures.bill.iter().filter_map(|line| line.usd).sum();
        let heading = format!(
            "{} ({}): ${} for {gpus} GPUs, ${:.2} and {} W per GPU",
            row.arch,
            figures.basis,
            separated(&format!("{usd:.0}")),
            figures.cost_per_gpu_usd,
            or_dash(figures.power_per_gpu_w, 3),
        );
        text.push_str(&format!("\n{heading}\n\n{}", bill_table(&figures.bill)));
    }
    text
}

fn bill_table(lines: &[PricedLine]) -> TextTable {
    TextTable::of(lines)
        .column("place", |line| line.place.clone())
        .column("part", |line| line.part.clone())
        .column("count", |line| format!("{:.0}", line.count))
        .column("per GPU", |line| format!("{:.4}", line.count_per_gpu))
        .column("$ each", |line| or_dash(line.unit_usd, 2))
        .column("$", |line| or_dash(line.usd, 2))
        .column("W", |line| or_dash(line.watts(), 0))
        .column("confidence", |line| {
            line.confidence.map_or("-".to_owned(), |confidence| confidence.to_string())
        })
        .column("date", |line| line.date.clone().unwrap_or_else(|| "-".to_owned()))
        .column("counted as", |line| line.formula.clone())
        .table()
}

fn aggregate_table(curves: &[Aggregate]) -> TextTable {
    let percents = FAULT_RATIOS.iter().map(|ratio| format!("{:.0} %", 100.0 * ratio));
    let mut table = TextTable::with_headings(std::iter::once("design".to_owned()).chain(percents));
    for curve in curves {
        let points = curve.points.iter().map(|point| format!("{:.0}", point.usd_per_gpu));
        table.row(std::iter::once(curve.arch.clone()).chain(points));
    }
    table
}
