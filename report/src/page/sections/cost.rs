// SPDX-License-Identifier: Apache-2.0
//! Cost and power of each design's interconnect.

use lightloom_study::cost::{Confidence, CostFigures, CostOutcome, CostRow, Sensitivity};

use super::super::bars::{Bar, Bars};
use super::super::chart::{Axis, Curve, Plot, reach};
use super::super::compose::Used;
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{Comparison, Cost};
use super::ink_of;

pub(in super::super) fn add(
    report: &mut PageDocument,
    used: &mut Used,
    cost: &Cost,
    comparison: Option<&Comparison>,
) {
    let own = comparison.and_then(|comparison| comparison.own.as_deref());
    let names: Vec<String> = comparison.map_or_else(
        || cost.rows.iter().map(|row| row.arch.clone()).collect(),
        |comparison| comparison.rows.iter().map(|row| row.arch.clone()).collect(),
    );
    used.push(("cost_per_gbytes_per_s_usd", format!("mean prices; prices: {}", cost.prices)));
    used.push(("bill_usd", "Σ over the parts of its bill: count for each GPU × price".to_owned()));
    used.push(("bill_w", "Σ over the parts of its bill: count for each GPU × watts".to_owned()));
    used.push(("cost_per_usable_gpu_usd", "same samples as the waste".to_owned()));
    let mut section =
        PageSection::new("cost", "Cost and power of the interconnect", conclusion(cost, own));
    section.blocks.push(bars(cost, own, &names));
    section.blocks.push(PageBlock::Table(table(cost)));
    for row in &cost.rows {
        if let CostOutcome::CannotPrice { cannot_price } = &row.outcome {
            section.blocks.push(PageBlock::Note(format!("{}: no price: {cannot_price}", row.arch)));
        }
    }
    if let Some(figure) = aggregate(cost, own, &names) {
        used.push((
            "aggregate",
            cost.gpu_usd.map_or(String::new(), |usd| format!("a GPU at ${}", fixed(usd, 0))),
        ));
        section.blocks.push(figure);
    }
    let tables = bills(cost);
    section.blocks.push(PageBlock::Folded {
        summary: "Bills of materials: parts, counts, prices".to_owned(),
        tables,
    });
    if !cost.sensitivity.is_empty() {
        section.blocks.push(PageBlock::Folded {
            summary: "What each price does to the order of the designs".to_owned(),
            tables: vec![sensitivity(&cost.sensitivity)],
        });
    }
    report.sections.push(section);
}

fn priced(rows: &[CostRow]) -> impl Iterator<Item = (&str, &CostFigures)> {
    rows.iter().filter_map(|row| match &row.outcome {
        CostOutcome::Priced(figures) => Some((row.arch.as_str(), figures.as_ref())),
        CostOutcome::CannotPrice { .. } => None,
    })
}

fn conclusion(cost: &Cost, own: Option<&str>) -> String {
    let by_bandwidth = |a: &(&str, &CostFigures), b: &(&str, &CostFigures)| {
        a.1.cost_per_gbytes_per_s_usd.total_cmp(&b.1.cost_per_gbytes_per_s_usd)
    };
    let usd = |figures: &CostFigures| {
        ShownQuantity::new(figures.cost_per_gbytes_per_s_usd, ShownUnit::UsdPerBandwidth).show()
    };
    let (least, most) =
        (priced(&cost.rows).min_by(by_bandwidth), priced(&cost.rows).max_by(by_bandwidth));
    let (Some((cheapest, least)), Some((dearest, most))) = (least, most) else {
        return "No design of the list has a price.".to_owned();
    };
    let ours = own
        .filter(|own| *own != cheapest && *own != dearest)
        .and_then(|own| priced(&cost.rows).find(|(arch, _)| *arch == own))
        .map_or(String::new(), |(arch, figures)| format!(" {arch} takes {}.", usd(figures)));
    format!(
        "For each GB/s of a GPU's bandwidth, {cheapest} is the cheapest at {} and {dearest} the dearest at {}, at mean prices.{ours}",
        usd(least),
        usd(most)
    )
}

fn bars(cost: &Cost, own: Option<&str>, names: &[String]) -> PageBlock {
    let money = Bars {
        title: "US dollars for each GB/s",
        unit: ShownUnit::Usd,
        bars: priced(&cost.rows)
            .map(|(arch, figures)| Bar {
                name: arch.to_owned(),
                ink: ink_of(arch, own, names),
                start: 0.0,
                value: figures.cost_per_gbytes_per_s_usd,
                spread: Some((
                    figures.cost_per_gpu_low_usd / figures.gbytes_per_s_per_gpu,
                    figures.cost_per_gpu_high_usd / figures.gbytes_per_s_per_gpu,
                )),
                label: ShownQuantity::new(figures.cost_per_gbytes_per_s_usd, ShownUnit::Usd).show(),
            })
            .collect(),
    };
    let power = Bars {
        title: "watts for each GB/s",
        unit: ShownUnit::Watts,
        bars: priced(&cost.rows)
            .filter_map(|(arch, figures)| {
                let watts = figures.power_per_gbytes_per_s_w?;
                Some(Bar {
                    name: arch.to_owned(),
                    ink: ink_of(arch, own, names),
                    start: 0.0,
                    value: watts,
                    spread: None,
                    label: format!("{}\u{a0}W", fixed(watts, 3)),
                })
            })
            .collect(),
    };
    // Network prices often have no power figures.
    let power = if power.bars.is_empty() { String::new() } else { power.svg() };
    let svg = format!("<div class=\"pair\">{}{power}</div>", money.svg());
    PageBlock::Figure(Figure {
        id: "cost-bars",
        svg,
        caption: format!(
            "Interconnect cost and power for each GB/s of bandwidth, so that designs of different bandwidth can be \
             compared; whiskers reach from low to high prices. Prices: {}.",
            cost.prices
        ),
        data: vec![],
    })
}

fn table(cost: &Cost) -> FigureTable {
    let mut table = FigureTable::new("cost", "Interconnect for each GPU")
        .words("design")
        .numbers("bandwidth")
        .defined("cost", "bill_usd")
        .numbers("low")
        .numbers("high")
        .defined("usable GPU", "cost_per_usable_gpu_usd")
        .defined("for bandwidth", "cost_per_gbytes_per_s_usd")
        .defined("power", "bill_w")
        .words("least sure price");
    for (arch, figures) in priced(&cost.rows) {
        table.row([
            Cell::text(arch),
            Cell::number(figures.gbytes_per_s_per_gpu, ShownUnit::Bandwidth),
            Cell::number(figures.cost_per_gpu_usd, ShownUnit::Usd),
            Cell::number(figures.cost_per_gpu_low_usd, ShownUnit::Usd),
            Cell::number(figures.cost_per_gpu_high_usd, ShownUnit::Usd),
            Cell::maybe(usable(arch, cost), ShownUnit::Usd),
            Cell::number(figures.cost_per_gbytes_per_s_usd, ShownUnit::UsdPerBandwidth),
            Cell::maybe(figures.power_per_gpu_w, ShownUnit::Watts),
            Cell::text(sure(figures.confidence)),
        ]);
    }
    table
}

/// Returns the confidence of a price as in its file. Readers need not know where a recalled price
/// is from.
const fn sure(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::RecalledReproduced => "not verified",
        other => other.name(),
    }
}

fn usable(arch: &str, cost: &Cost) -> Option<f64> {
    cost.usable.iter().find(|(name, _)| name == arch).map(|(_, usd)| *usd)
}

/// Returns interconnect and lost GPUs by fault ratio.
fn aggregate(cost: &Cost, own: Option<&str>, names: &[String]) -> Option<PageBlock> {
    let gpu_usd = cost.gpu_usd?;
    let mut curves: Vec<Curve> = cost
        .aggregate
        .iter()
        .map(|curve| {
            let points: Vec<(f64, f64)> = curve
                .points
                .iter()
                .map(|point| (point.node_fault_ratio, point.usd_per_gpu))
                .collect();
            let last = points.last().map_or(0.0, |(_, usd)| *usd);
            Curve {
                ink: ink_of(&curve.arch, own, names),
                points,
                label: curve.arch.clone(),
                value: format!("${}k", fixed(last / 1e3, 1)),
                hover: format!(
                    "{} at the right end",
                    ShownQuantity::new(last, ShownUnit::Usd).show()
                ),
            }
        })
        .collect();
    if curves.is_empty() {
        return None;
    }
    curves.sort_by_key(|curve| std::cmp::Reverse(curve.ink));
    let (right, most) = reach(&curves);
    let plot = Plot {
        x: Axis {
            range: 0.0..right.max(1e-3),
            title: "nodes out of service, share of all",
            show: |ratio| format!("{:.0} %", 100.0 * ratio),
        },
        y: Axis {
            range: 0.0..most * 1.06,
            title: "US dollars for each GPU",
            show: |usd| format!("${}k", fixed(usd / 1e3, 0)),
        },
        curves,
        heights_px: [320, 300],
        is_filled: false,
        remark: None,
    };
    Some(PageBlock::Figure(Figure {
        id: "aggregate-cost",
        svg: plot.svg(),
        caption: format!(
            "Interconnect plus the GPUs that are wasted or out of service, at ${} a GPU: what a cheap interconnect that \
             wastes GPUs really costs.",
            fixed(gpu_usd, 0)
        ),
        data: vec![aggregate_table(cost)],
    }))
}

fn aggregate_table(cost: &Cost) -> FigureTable {
    let mut table =
        FigureTable::new("aggregate_cost", "Interconnect and lost GPUs, by share of nodes out")
            .words("design");
    for point in cost.aggregate.first().map_or(&[][..], |curve| &curve.points) {
        table = table.numbers(&format!("{:.1} %", 100.0 * point.node_fault_ratio));
    }
    for curve in &cost.aggregate {
        let points =
            curve.points.iter().map(|point| Cell::number(point.usd_per_gpu, ShownUnit::Usd));
        table.row(std::iter::once(Cell::text(&curve.arch)).chain(points));
    }
    table
}

fn bills(cost: &Cost) -> Vec<FigureTable> {
    let bill = |(arch, figures): (&str, &CostFigures)| {
        let mut table =
            FigureTable::new(format!("bill_{arch}"), format!("{arch}: {}", figures.basis))
                .words("part")
                .numbers("count")
                .numbers("price")
                .numbers("power")
                .numbers("for each GPU")
                .words("price is")
                .words("count is");
        for line in &figures.bill {
            table.row([
                Cell::text(&line.part),
                Cell::number(line.count_per_gpu, ShownUnit::PartsPerGpu),
                Cell::number(line.unit_usd, ShownUnit::Usd),
                Cell::maybe(line.unit_w, ShownUnit::Watts),
                Cell::number(line.usd_per_gpu, ShownUnit::Usd),
                Cell::text(sure(line.confidence)),
                Cell::text(&line.formula),
            ]);
        }
        table
    };
    priced(&cost.rows).map(bill).collect()
}

fn sensitivity(effects: &[Sensitivity]) -> FigureTable {
    let mut table =
        FigureTable::new("sensitivity", "Each price at its low and high end, others at their mean")
            .words("price of")
            .numbers("from")
            .numbers("to")
            .words("moves most")
            .numbers("from")
            .numbers("to")
            .words("changes the order");
    for effect in effects {
        let Some(most) = effect.designs.first() else { continue };
        table.row([
            Cell::text(&effect.part),
            Cell::number(effect.unit_usd[0], ShownUnit::Usd),
            Cell::number(effect.unit_usd[2], ShownUnit::Usd),
            Cell::text(&most.arch),
            Cell::number(most.low_usd, ShownUnit::UsdPerBandwidth),
            Cell::number(most.high_usd, ShownUnit::UsdPerBandwidth),
            Cell::text(if effect.changes_order { "yes" } else { "no" }),
        ]);
    }
    table
}
