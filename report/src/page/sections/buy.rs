// SPDX-License-Identifier: Apache-2.0

use lightloom_study::buy::Row;

use super::super::document::{
    Bar, FirstScreen, Headline, PageDocument, PageSection, Picture, Tone,
};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::Bought;
use super::super::tables;

const MOST_NAMED: usize = 4;

pub(in super::super) fn add(report: &mut PageDocument, bought: &Bought) {
    let answer = &bought.answer;
    let mut section = PageSection::new("buy", "What to buy");
    section.note(answer.verdict.sentence.clone());
    section.note(format!(
        "{}: {} of nodes out of service on average; one simulation of the same jobs with the same faults for each design \
         (docs/buy.md); prices: {}.",
        bought.name,
        ShownQuantity::share(answer.node_fault_ratio.mean).show(),
        bought.prices
    ));
    section.table(tables::table("buy", &answer.rows));
    section.table(tables::table("buy-fault-rates", &answer.verdict.by_fault_rate));
    section.table(tables::table("buy-price-ranges", &answer.verdict.within_prices));
    section.table(tables::table("buy-prices", &answer.verdict.by_price));
    section.table(tables::table("buy-hours", &answer.rows));
    for left_out in &answer.left_out {
        section.note(format!("{}: excluded: {}", left_out.design, left_out.why));
    }
    if !answer.parts_without_watts.is_empty() {
        section.note(format!(
            "The price file gives no power for {}; 0 W is assumed.",
            answer.parts_without_watts.join(", ")
        ));
    }
    let (verdict, figures, picture) = (verdict(bought), figures(bought), bars(&answer.rows));
    report.add(FirstScreen { verdict, figures, picture }, section);
}

fn verdict(bought: &Bought) -> String {
    let answer = &bought.answer;
    if answer.verdict.winner.is_none() {
        return answer.verdict.sentence.clone();
    }
    let level: Vec<String> =
        answer.verdict.level.iter().map(|other| other.design.clone()).collect();
    let ties = match level.len() {
        0 => String::new(),
        _ => format!("; {} cost about the same", named(level, " and ")),
    };
    format!(
        "Buy {}{ties} ({} GPUs, {} days).",
        named(answer.winners(), " or "),
        fixed(f64::from(bought.gpus), 0),
        fixed(bought.days, 0)
    )
}

fn named(mut all: Vec<String>, last: &str) -> String {
    if let Some(more @ 1..) = all.len().checked_sub(MOST_NAMED) {
        all.truncate(MOST_NAMED);
        all.push(format!("{more} more"));
    }
    all.join(last)
}

fn dollars(usd: f64) -> String {
    ShownQuantity::new(usd, ShownUnit::Usd).show()
}

fn figures(bought: &Bought) -> Vec<Headline> {
    let (answer, winners) = (&bought.answer, bought.answer.winners());
    let (Some(first), Some(usd)) =
        (answer.rows.first(), answer.rows.first().and_then(|row| row.usd_per_pflop_year))
    else {
        return Vec::new();
    };
    let [low, high] =
        [first.cost_low_usd, first.cost_high_usd].map(|cost| cost / first.useful_pflop_years);
    let mut beside = format!("{} to {} from low to high prices", dollars(low), dollars(high));
    let draws = &answer.verdict.by_draw;
    if let Some([least, most]) = answer.verdict.usd_over_draws {
        let [least, most] = [least, most].map(dollars);
        beside += &format!(", {least} to {most} over {} draws", draws.len() + 1);
    }
    let usd_each = ShownQuantity::new(usd, ShownUnit::Usd);
    let mut figures = vec![Headline::new(
        "cost per useful PFLOP-year",
        usd_each,
        beside,
        Some("usd_per_pflop_year"),
    )];
    let next = answer.rows.get(winners.len());
    if let Some((next, dearer)) = next.and_then(|row| Some((row, row.usd_per_pflop_year?))) {
        let mut beside = format!("{}, at {}", name(next), dollars(dearer));
        if !answer.verdict.level.is_empty() {
            beside += "; the draws cannot separate all of these";
        }
        let more = ShownQuantity::share(dearer / usd - 1.0);
        figures.push(Headline::new(
            "extra cost of the next design",
            more,
            beside,
            Some("next_design"),
        ));
    }
    if !draws.is_empty() {
        let won = draws.iter().filter_map(|draw| draw.winner.as_ref());
        let same = won.filter(|winner| winners.contains(winner)).count();
        let same = ShownQuantity::new(same as f64, ShownUnit::Count);
        let beside = format!("of {} other draws of faults and arrivals", draws.len());
        figures.push(Headline::new("draws that agree", same, beside, Some("other_draws")));
    }
    figures
}

fn name(row: &Row) -> String {
    format!("{} ({})", row.design, row.policy)
}

fn bars(rows: &[Row]) -> Option<Picture> {
    let bars = rows.iter().enumerate().filter_map(|(place, row)| {
        let has_policies = rows.iter().filter(|other| other.design == row.design).count() > 1;
        let useful = row.useful_pflop_years;
        let usd = row.usd_per_pflop_year?;
        Some(Bar {
            name: if has_policies { name(row) } else { row.design.clone() },
            tone: if place == 0 { Tone::Own } else { Tone::Other },
            length: usd,
            spread: Some([row.cost_low_usd / useful, row.cost_high_usd / useful]),
            label: format!("${}", fixed(usd, 0)),
            ..Bar::default()
        })
    });
    let caption = "One bar for each design and policy; whiskers: all prices at their low and at their high end.";
    Picture::bars("buy-bars", "US dollars per useful PFLOP-year", bars, caption)
}
