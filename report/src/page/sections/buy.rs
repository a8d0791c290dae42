// SPDX-License-Identifier: Apache-2.0
//! The purchase answer in a short sentence and three figures, with its basis.

use lightloom_study::buy::Row;

use super::super::bars::{Bar, Bars};
use super::super::compose::{Used, headline};
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::Bought;

pub(in super::super) fn add(report: &mut PageDocument, used: &mut Used, bought: &Bought) {
    let answer = &bought.answer;
    used.push((
        "usd_per_pflop_year",
        format!(
            "dollars of the window (purchase over its years of service, energy) ÷ useful PFLOP-years (useful GPU-time × \
             peak × MFU ÷ step); prices: {}",
            bought.prices
        ),
    ));
    answer_first(report, used, bought);
    let conclusion = format!(
        "{}: {} GPUs over {} days, {} of nodes out of service in the mean; one simulation of the same jobs over the same \
         faults for each design (docs/buy.md).",
        bought.name,
        fixed(f64::from(bought.gpus), 0),
        fixed(bought.days, 0),
        ShownQuantity::share(answer.node_fault_ratio.mean).show()
    );
    let mut section = PageSection::new("buy", "What to buy", conclusion);
    if !answer.rows.is_empty() {
        section.blocks.push(bars(&answer.rows));
        section.blocks.push(PageBlock::Table(costs(&answer.rows)));
        section.blocks.push(PageBlock::Folded {
            summary: "Where the GPU-hours go, and where the answer changes".to_owned(),
            tables: [shares(&answer.rows), rates(bought), rivals(bought), prices(bought)]
                .into_iter()
                .filter(|table| !table.rows.is_empty())
                .collect(),
        });
    }
    section.blocks.push(PageBlock::Note(answer.verdict.sentence.clone()));
    for left_out in &answer.left_out {
        section
            .blocks
            .push(PageBlock::Note(format!("{}: left out: {}", left_out.design, left_out.why)));
    }
    if !answer.parts_without_watts.is_empty() {
        section.blocks.push(PageBlock::Note(format!(
            "The price file has no watts for {}: they are counted as 0 W.",
            answer.parts_without_watts.join(", ")
        )));
    }
    report.sections.push(section);
}

/// Adds the recommended design, its cost, its lead over the next one, and the certainty of the
/// answer.
fn answer_first(report: &mut PageDocument, used: &mut Used, bought: &Bought) {
    let (answer, winners) = (&bought.answer, bought.answer.winners());
    let (Some(first), Some(usd)) =
        (answer.rows.first(), answer.rows.first().and_then(|row| row.usd_per_pflop_year))
    else {
        report.answer.clone_from(&answer.verdict.sentence);
        return;
    };
    report.answer = format!("Buy {}.", winners.join(" or "));
    let money = |usd| ShownQuantity::new(usd, ShownUnit::Usd).show();
    let [low, high] =
        [first.cost_low_usd, first.cost_high_usd].map(|cost| cost / first.useful_pflop_years);
    let mut beside = format!("{} to {} from low to high prices", money(low), money(high));
    if let Some([least, most]) = answer.verdict.usd_over_draws {
        let draws = answer.verdict.by_draw.len() + 1;
        beside += &format!(", {} to {} over {draws} draws", money(least), money(most));
    }
    headline(report, "a useful PFLOP-year", (usd, ShownUnit::Usd), beside, "usd_per_pflop_year");
    let next = answer.rows.get(winners.len());
    if let Some((next, dearer)) = next.and_then(|row| Some((row, row.usd_per_pflop_year?))) {
        used.push(("next_design", "its usd_per_pflop_year ÷ that of the first − 1".to_owned()));
        let mut beside = format!("{}, at {}", name(next), money(dearer));
        if !answer.verdict.level.is_empty() {
            let level = answer.verdict.level.iter().map(|other| other.design.clone());
            let all: Vec<String> = winners.iter().cloned().chain(level).collect();
            report.answer = format!("Buy {}.", all.join(" or "));
            beside += "; the draws do not tell all of these apart";
        }
        let share = (dearer / usd - 1.0, ShownUnit::Share);
        headline(report, "more for the next design", share, beside, "next_design");
    }
    let draws = &answer.verdict.by_draw;
    if !draws.is_empty() {
        let agree =
            |winner: &Option<String>| winner.as_ref().is_some_and(|it| winners.contains(it));
        let same = draws.iter().filter(|draw| agree(&draw.winner)).count();
        let how =
            "other seeds, each with its own faults and arrivals, under which the same design wins";
        used.push(("other_draws", how.to_owned()));
        let beside = format!("of {} other draws of faults and arrivals", draws.len());
        let count = (same as f64, ShownUnit::Count);
        headline(report, "draws that agree", count, beside, "other_draws");
    }
}

fn name(row: &Row) -> String {
    format!("{} ({})", row.design, row.policy)
}

fn bars(rows: &[Row]) -> PageBlock {
    let has_policies =
        |row: &Row| rows.iter().filter(|other| other.design == row.design).count() > 1;
    let bar = |(place, row): (usize, &Row)| {
        let useful = row.useful_pflop_years;
        let usd = row.usd_per_pflop_year?;
        Some(Bar {
            name: if has_policies(row) { name(row) } else { row.design.clone() },
            ink: if place == 0 { 1 } else { 3 },
            start: 0.0,
            value: usd,
            spread: Some((row.cost_low_usd / useful, row.cost_high_usd / useful)),
            label: format!("${}", fixed(usd, 0)),
        })
    };
    let bars = rows.iter().enumerate().filter_map(bar).collect();
    PageBlock::Figure(Figure {
        id: "buy-bars",
        svg: Bars { title: "US dollars for a useful PFLOP-year", unit: ShownUnit::Usd, bars }.svg(),
        caption: "A design under a policy each, in the order of the table; whiskers reach from low to high prices of all parts together."
            .to_owned(),
        data: vec![],
    })
}

fn costs(rows: &[Row]) -> FigureTable {
    let mut table = FigureTable::new("buy", "Designs, cheapest useful PFLOP-year first")
        .words("design")
        .words("policy")
        .numbers("GPUs")
        .numbers("purchase, M$")
        .numbers("cost, M$")
        .numbers("MW")
        .numbers("step")
        .numbers("PFLOP-years")
        .defined("a PFLOP-year", "usd_per_pflop_year")
        .words("Pareto");
    for row in rows {
        let shown = |value: f64, unit: &'static str, decimals: usize| Cell::Shown {
            value: Some(value),
            unit,
            text: fixed(value, decimals),
        };
        table.row([
            Cell::text(&row.design),
            Cell::text(&row.policy),
            Cell::number(f64::from(row.gpus), ShownUnit::Count),
            shown(row.capex_usd / 1e6, "million USD", 1),
            shown(row.cost_usd / 1e6, "million USD", 1),
            shown(row.power_mw, "MW", 1),
            Cell::number(row.step_stretch, ShownUnit::Times),
            shown(row.useful_pflop_years, "PFLOP-years", 1),
            Cell::maybe(row.usd_per_pflop_year, ShownUnit::Usd),
            Cell::text(if row.is_pareto { "yes" } else { "no" }),
        ]);
    }
    table
}

fn shares(rows: &[Row]) -> FigureTable {
    let mut table = FigureTable::new("buy-hours", "Shares of all GPU-hours")
        .words("design")
        .numbers("useful")
        .numbers("redone")
        .numbers("restarting")
        .numbers("checkpoint")
        .numbers("slower steps")
        .numbers("waiting")
        .numbers("idle")
        .numbers("fragmented")
        .numbers("faulty");
    for row in rows {
        let of = &row.shares;
        let shares = [
            of.useful,
            of.redone,
            of.restarting,
            of.checkpoint,
            of.slower,
            of.waiting,
            of.idle,
            of.fragmented,
            of.faulty,
        ];
        table.row(std::iter::once(Cell::text(name(row))).chain(shares.map(Cell::share)));
    }
    table
}

fn rates(bought: &Bought) -> FigureTable {
    let mut table = FigureTable::new("buy-fault-rates", "At other fault rates")
        .numbers("fault rate")
        .words("cheapest useful PFLOP-year");
    for flip in &bought.answer.verdict.by_fault_rate {
        let winner = flip.winner.clone().unwrap_or_else(|| "–".to_owned());
        table.row([Cell::number(flip.factor, ShownUnit::Times), Cell::text(winner)]);
    }
    table
}

fn rivals(bought: &Bought) -> FigureTable {
    let mut table = FigureTable::new(
        "buy-price-ranges",
        "Dearer than the first, with every price in its range",
    )
    .words("design")
    .numbers("at least")
    .numbers("at most");
    for rival in &bought.answer.verdict.within_prices {
        table.row([
            Cell::text(&rival.design),
            Cell::number(rival.least_more_usd, ShownUnit::Usd),
            Cell::number(rival.most_more_usd, ShownUnit::Usd),
        ]);
    }
    table
}

fn prices(bought: &Bought) -> FigureTable {
    let mut table = FigureTable::new("buy-prices", "At other prices, each changed alone")
        .words("price of")
        .numbers("to today's")
        .numbers("price")
        .words("from there on the cheapest");
    for flip in &bought.answer.verdict.by_price {
        table.row([
            Cell::text(&flip.part),
            Cell::number(flip.factor, ShownUnit::Times),
            Cell::number(flip.usd, ShownUnit::Usd),
            Cell::text(&flip.winner),
        ]);
    }
    table
}
