// SPDX-License-Identifier: Apache-2.0

use lightloom_study::cost::{CostFigures, CostOutcome, CostRow};
use serde_json::json;

use super::super::document::{
    Bar, Cell, FigureTable, FirstScreen, Headline, PageDocument, PageSection, Picture, Tone,
};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::Cost;
use super::super::tables;

pub(in super::super) fn add(report: &mut PageDocument, cost: &Cost) {
    let mut section = PageSection::new("cost", "Cost and power of the interconnect");
    let mut table = tables::table("cost", cost.rows.iter().filter(|row| is_priced(row)));
    table.column("usable GPU".to_owned(), Some("cost_per_usable_gpu_usd"));
    for (row, (arch, _)) in table.rows.iter_mut().zip(priced(&cost.rows)) {
        let usable = cost.usable.iter().find(|(name, _)| name == arch);
        row.push(Cell::maybe(usable.map(|(_, usd)| *usd), ShownUnit::Usd));
    }
    section.table(table);
    section.note(format!("Prices: {}.", cost.prices));
    for row in &cost.rows {
        if let CostOutcome::CannotPrice { cannot_price } = &row.outcome {
            section.note(format!("{}: no price: {cannot_price}", row.arch));
        }
    }
    section.table(aggregate(cost));
    for (arch, figures) in priced(&cost.rows) {
        let mut bill = tables::table("parts", &figures.bill);
        (bill.id, bill.title) = (format!("bill_{arch}"), format!("{arch}: {}", figures.basis));
        section.table(bill);
    }
    let (verdict, figures) = answer(cost);
    report.add(FirstScreen { verdict, figures, picture: bars(cost) }, section);
}

fn is_priced(row: &CostRow) -> bool {
    matches!(row.outcome, CostOutcome::Priced(_))
}

fn priced(rows: &[CostRow]) -> impl Iterator<Item = (&str, &CostFigures)> {
    rows.iter().filter_map(|row| match &row.outcome {
        CostOutcome::Priced(figures) => Some((row.arch.as_str(), figures.as_ref())),
        CostOutcome::CannotPrice { .. } => None,
    })
}

fn answer(cost: &Cost) -> (String, Vec<Headline>) {
    let mut by_bandwidth: Vec<(&str, &CostFigures)> = priced(&cost.rows).collect();
    by_bandwidth.sort_by(|a, b| usd(a.1).value.total_cmp(&usd(b.1).value));
    match by_bandwidth[..] {
        [] => ("No listed design can be priced.".to_owned(), Vec::new()),
        [(arch, only)] => {
            let verdict = format!(
                "The interconnect of {arch} costs {} and GPU at mean prices.",
                usd(only).show()
            );
            (verdict, vec![headline("interconnect", arch, only)])
        }
        [(cheap, least), .., (dear, most)] => {
            let verdict = format!(
                "At mean prices, {cheap} is the cheapest interconnect at {} and GPU, and {dear} the most expensive at {}.",
                usd(least).show(),
                usd(most).show()
            );
            let most = headline("most expensive", dear, most);
            (verdict, vec![headline("cheapest", cheap, least), most])
        }
    }
}

fn usd(figures: &CostFigures) -> ShownQuantity {
    ShownQuantity::new(figures.cost_per_gbytes_per_s_usd, ShownUnit::UsdPerBandwidth)
}

fn headline(label: &'static str, arch: &str, figures: &CostFigures) -> Headline {
    Headline::new(label, usd(figures), arch, Some("cost_per_gbytes_per_s_usd"))
}

fn bars(cost: &Cost) -> Option<Picture> {
    let bars = priced(&cost.rows).map(|(arch, figures)| {
        let usd = figures.cost_per_gbytes_per_s_usd;
        let ends = [figures.cost_per_gpu_low_usd, figures.cost_per_gpu_high_usd];
        let spread = Some(ends.map(|usd: f64| usd / figures.gbytes_per_s_per_gpu));
        let usd = ShownQuantity::new(usd, ShownUnit::Usd);
        Bar { spread, ..Bar::new(arch, Tone::Own, usd) }
    });
    let caption = "Interconnect cost per GB/s of GPU bandwidth; whiskers span low to high prices.";
    Picture::bars("cost-bars", "US dollars per GB/s", bars, caption)
}

fn aggregate(cost: &Cost) -> FigureTable {
    let points = cost.aggregate.iter().flat_map(|curve| {
        curve.points.iter().map(|point| {
            json!({"arch": curve.arch, "node_fault_ratio": point.node_fault_ratio, "usd_per_gpu": point.usd_per_gpu})
        })
    });
    let mut table = tables::table("aggregate_cost", points);
    if let Some(usd) = cost.gpu_usd {
        table.title += &format!(", a GPU at ${}", fixed(usd, 0));
    }
    table
}
