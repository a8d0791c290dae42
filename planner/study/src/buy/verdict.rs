// SPDX-License-Identifier: Apache-2.0
//! Turns the accounts into rows, a Pareto front, a winner, and the price changes that would make another design win.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use lightloom_planner::goodput::{Cause, Goodput};
use lightloom_units::thousands;

use super::{Priced, PurchasedPart, Question, Row, Shares, Spent};
use crate::cost::{CostFigures, PriceList};

const MS_PER_YEAR: f64 = 365.25 * 86_400_000.0;
const PS_PER_YEAR: f64 = 1e9 * MS_PER_YEAR;
const HOURS_PER_YEAR: f64 = 365.25 * 24.0;
const ENERGY: &str = "kilowatt-hour";
/// Limit for changes of a single price, as a factor.
const WIDEST: f64 = 10.0;
const UNWANTED: f64 = 0.05;
/// Relative cost difference below which designs are equally cheap.
const SAME: f64 = 1e-6;
const LEVEL: usize = 3;
const FLIPS: usize = 6;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub sentence: String,
    pub winner: Option<String>,
    /// The winner's cost per useful PFLOP-year in its cheapest and most expensive draw.
    pub usd_over_draws: Option<[f64; 2]>,
    /// Designs that are cheaper than the winner in some draw, in the order of the rows.
    pub level: Vec<NextDesign>,
    /// The cheapest design that costs more than the winner in every draw.
    pub next: Option<NextDesign>,
    pub by_draw: Vec<DrawFlip>,
    /// Designs that could be cheaper within the price ranges, nearest first.
    pub within_prices: Vec<Rival>,
    pub by_fault_rate: Vec<FaultFlip>,
    /// Changes of a single price that make another design win, smallest first.
    pub by_price: Vec<PriceFlip>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextDesign {
    pub design: String,
    pub below: f64,
    /// Minimum and maximum over all draws. Both designs share the faults and arrivals of a draw.
    pub below_over_draws: [f64; 2],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DrawFlip {
    pub seed: u64,
    pub winner: Option<String>,
}

/// A design compared with the winner over all price ranges. A part has the same price in both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rival {
    pub design: String,
    /// Additional dollars per useful PFLOP-year at this design's best prices. Negative if it can beat the winner.
    pub least_more_usd: f64,
    /// Additional dollars per useful PFLOP-year at the worst prices for this design.
    pub most_more_usd: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultFlip {
    pub factor: f64,
    pub winner: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PriceFlip {
    pub part: String,
    pub factor: f64,
    pub usd: f64,
    pub winner: String,
}

pub(super) fn price_of(row: &Row) -> f64 {
    row.usd_per_pflop_year.unwrap_or(f64::INFINITY)
}

/// Ties are broken by name, so that the order in the file does not matter.
pub(super) fn cheaper(a: &Row, b: &Row) -> Ordering {
    let by_price = price_of(a).total_cmp(&price_of(b));
    by_price.then_with(|| (&a.design, &a.policy).cmp(&(&b.design, &b.policy)))
}

fn name(row: &Row) -> String {
    format!("{} ({})", row.design, row.policy)
}

pub(super) fn row(
    question: &Question,
    priced: &Priced<'_>,
    spent: &Spent,
    step_stretch: f64,
    cross_tor_share: f64,
) -> Row {
    let (gpus, years) = (priced.cluster.gpus(), question.window_ms as f64 / MS_PER_YEAR);
    let bills: Vec<&CostFigures> =
        std::iter::once(&priced.figures).chain(priced.network.as_ref()).collect();
    let watts = question.running.gpu_watts + bills.iter().map(|bill| watts_of(bill)).sum::<f64>();
    let power_mw = watts * f64::from(gpus) * question.running.pue / 1e6;
    let energy_usd = power_mw * 1e3 * HOURS_PER_YEAR * years * question.running.usd_per_kwh;
    let share = years / question.running.service_years;
    let mut per_gpu_usd = [0.0; 3];
    for bill in &bills {
        per_gpu_usd[0] += bill.cost_per_gpu_low_usd;
        per_gpu_usd[1] += bill.cost_per_gpu_usd;
        per_gpu_usd[2] += bill.cost_per_gpu_high_usd;
    }
    let [capex_low_usd, capex_usd, capex_high_usd] =
        [0, 1, 2].map(|level| f64::from(gpus) * (priced.gpu_usd[level] + per_gpu_usd[level]));
    let mut purchase = BTreeMap::from([("gpu".to_owned(), priced.gpu_usd[1] * f64::from(gpus))]);
    for line in bills.iter().flat_map(|bill| &bill.bill) {
        let usd = line.usd_per_gpu.unwrap_or(0.0) * f64::from(gpus);
        *purchase.entry(line.part.clone()).or_default() += usd;
    }
    let shared = purchase.iter().map(|(part, usd)| (part.clone(), usd * share));
    let parts = shared.chain([(ENERGY.to_owned(), energy_usd)]).collect();
    let cost_usd = capex_usd * share + energy_usd;
    let slower = spent.lost_for(&[Cause::SlowerSteps]);
    let useful_gpu_years = spent.useful as f64 / PS_PER_YEAR;
    let useful = useful_gpu_years * question.peak_tflops / 1e3 * question.mfu / step_stretch;
    Row {
        design: priced.candidate.name(question),
        policy: priced.candidate.label(),
        gpus,
        capex_usd,
        cost_usd,
        cost_low_usd: capex_low_usd * share + energy_usd,
        cost_high_usd: capex_high_usd * share + energy_usd,
        power_mw,
        useful_pflop_years: useful,
        usd_per_pflop_year: (useful > 0.0).then(|| cost_usd / useful),
        step_stretch,
        cross_tor_share,
        jobs_finished: spent.finished,
        interruptions: spent.interruptions,
        shares: shares(spent),
        goodput: Goodput::new(
            spent.allocated as f64 / spent.total().max(1) as f64,
            (spent.useful + slower) as f64 / spent.allocated.max(1) as f64,
            question.mfu / step_stretch * spent.useful as f64
                / (spent.useful + slower).max(1) as f64,
        ),
        is_pareto: false,
        purchase: purchase.into_iter().map(|(part, usd)| PurchasedPart { part, usd }).collect(),
        parts,
    }
}

fn watts_of(bill: &CostFigures) -> f64 {
    bill.bill.iter().filter_map(|line| Some(line.unit_w? * line.count_per_gpu)).sum()
}

fn shares(spent: &Spent) -> Shares {
    Shares {
        useful: spent.useful as f64 / spent.total().max(1) as f64,
        redone: share_lost(spent, &[Cause::DoneAgain]),
        restarting: share_lost(
            spent,
            &[
                Cause::Outage,
                Cause::CheckpointLoad,
                Cause::MemoryLoad,
                Cause::Migration,
                Cause::Reform,
                Cause::Rejoin,
            ],
        ),
        checkpoint: share_lost(spent, &[Cause::CheckpointWrite, Cause::MemoryWrite]),
        slower: share_lost(spent, &[Cause::SlowerSteps]),
        waiting: share_lost(spent, &[Cause::WaitingForNodes]),
        idle: share_lost(spent, &[Cause::IdleSpares]),
        fragmented: share_lost(spent, &[Cause::InNoGroup]),
        faulty: share_lost(spent, &[Cause::UnderRepair]),
    }
}

fn share_lost(spent: &Spent, causes: &[Cause]) -> f64 {
    spent.lost_for(causes) as f64 / spent.total().max(1) as f64
}

pub(super) fn mark_pareto(rows: &mut [Row]) {
    let points: Vec<(f64, f64)> =
        rows.iter().map(|row| (row.cost_usd, row.useful_pflop_years)).collect();
    for row in rows {
        let (cost, useful) = (row.cost_usd, row.useful_pflop_years);
        row.is_pareto = useful > 0.0
            && !points.iter().any(|point| {
                point.0 <= cost && point.1 >= useful && (point.0 < cost || point.1 > useful)
            });
    }
}

pub(super) struct Elsewhere {
    pub(super) draws: Vec<(u64, Vec<Row>)>,
    pub(super) rates: Vec<(f64, Vec<Row>)>,
}

pub(super) fn judge(
    question: &Question,
    rows: &[Row],
    elsewhere: &Elsewhere,
    prices: &PriceList,
) -> Verdict {
    let (level, next) = beside(rows, elsewhere);
    let mut tied = winners(rows);
    tied.extend(level.iter().map(|one| one.design.clone()));
    let by_draw = elsewhere
        .draws
        .iter()
        .map(|(seed, rows)| DrawFlip { seed: *seed, winner: winner_among(rows, &tied) });
    let by_fault_rate = elsewhere
        .rates
        .iter()
        .map(|(factor, rows)| FaultFlip { factor: *factor, winner: winner_among(rows, &tied) });
    let mut verdict = Verdict {
        sentence: "No design does useful work.".to_owned(),
        winner: winner_among(rows, &tied),
        usd_over_draws: rows
            .first()
            .and_then(|first| over_draws(elsewhere, first, first, |usd, _| usd)),
        level,
        next,
        by_draw: by_draw.collect(),
        within_prices: rivals(rows, prices),
        by_fault_rate: by_fault_rate.collect(),
        by_price: price_flips(question, rows, prices, &winners(rows)),
    };
    if let [first, ..] = rows
        && verdict.winner.is_some()
    {
        let beyond = price_flips(question, rows, prices, &tied);
        verdict.sentence = sentence(&verdict, first, rows, &beyond);
    }
    verdict
}

/// Ties in another draw go to one of `tied`, the designs that win in this draw.
fn winner_among(rows: &[Row], tied: &[String]) -> Option<String> {
    let works = rows.iter().filter(|row| row.usd_per_pflop_year.is_some());
    let first = works.min_by(|a, b| cheaper(a, b))?;
    let as_cheap = rows.iter().filter(|row| is_as_cheap(row, price_of(first)));
    let names: Vec<String> = as_cheap.map(name).collect();
    Some(tied.iter().find(|one| names.contains(one)).cloned().unwrap_or_else(|| name(first)))
}

fn over_draws(
    elsewhere: &Elsewhere,
    first: &Row,
    second: &Row,
    figure: impl Fn(f64, f64) -> f64,
) -> Option<[f64; 2]> {
    let mut range: Option<[f64; 2]> = None;
    let mut prices = vec![(price_of(first), price_of(second))];
    for (_, rows) in &elsewhere.draws {
        prices.push((price_in(rows, first)?, price_in(rows, second)?));
    }
    for (first, second) in prices {
        let figure = Some(figure(first, second)).filter(|it| it.is_finite())?;
        let [least, most] = range.unwrap_or([figure; 2]);
        range = Some([least.min(figure), most.max(figure)]);
    }
    range
}

fn price_in(rows: &[Row], wanted: &Row) -> Option<f64> {
    rows.iter().find(|row| name(row) == name(wanted)).map(price_of)
}

fn share_below(first: f64, next: f64) -> f64 {
    1.0 - first / next
}

fn beside(rows: &[Row], elsewhere: &Elsewhere) -> (Vec<NextDesign>, Option<NextDesign>) {
    let Some(first) = rows.first() else { return Default::default() };
    let others = rows.iter().skip(winners(rows).len()).filter_map(|row| {
        Some(NextDesign {
            design: name(row),
            below: share_below(first.usd_per_pflop_year?, row.usd_per_pflop_year?),
            below_over_draws: over_draws(elsewhere, first, row, share_below)?,
        })
    });
    let (level, dearer): (Vec<_>, Vec<_>) =
        others.partition(|other| other.below_over_draws[0] < -SAME);
    (level, dearer.into_iter().next())
}

/// Costs are sums over parts, so in either extreme each price is at one end of its range.
fn rivals(rows: &[Row], prices: &PriceList) -> Vec<Rival> {
    let Some(first) = rows.first().filter(|row| row.useful_pflop_years > 0.0) else {
        return Vec::new();
    };
    let others = rows.iter().skip(1).filter(|row| row.useful_pflop_years > 0.0);
    let mut rivals: Vec<Rival> = others.map(|row| rival(first, row, prices)).collect();
    rivals.sort_by(|a, b| a.least_more_usd.total_cmp(&b.least_more_usd));
    rivals
}

fn rival(first: &Row, row: &Row, prices: &PriceList) -> Rival {
    let mut parts: Vec<&String> =
        first.parts.iter().chain(&row.parts).map(|(part, _)| part).collect();
    parts.sort();
    parts.dedup();
    let (mut least, mut most) = (0.0, 0.0);
    for part in parts {
        let more = usd_of_part(row, part) / row.useful_pflop_years
            - usd_of_part(first, part) / first.useful_pflop_years;
        let range = match prices.quote(part).map(|quote| &quote.usd) {
            Some(usd) if usd.mean > 0.0 => [usd.low / usd.mean, usd.high / usd.mean],
            _ => [1.0, 1.0],
        };
        least += (more * range[0]).min(more * range[1]);
        most += (more * range[0]).max(more * range[1]);
    }
    Rival { design: name(row), least_more_usd: least, most_more_usd: most }
}

fn usd_of_part(row: &Row, part: &str) -> f64 {
    row.parts.iter().find(|(name, _)| name == part).map_or(0.0, |(_, usd)| *usd)
}

pub(super) fn winners(rows: &[Row]) -> Vec<String> {
    let first = rows.first().map_or(f64::INFINITY, price_of);
    rows.iter().take_while(|row| is_as_cheap(row, first)).map(name).collect()
}

fn is_as_cheap(row: &Row, usd: f64) -> bool {
    price_of(row).is_finite() && price_of(row) <= usd * (1.0 + SAME)
}

/// `beyond` lists prices that would make a design outside the recommendation the cheapest.
fn sentence(verdict: &Verdict, first: &Row, rows: &[Row], beyond: &[PriceFlip]) -> String {
    let mut tied = winners(rows);
    let mut text = format!("Buy {}", tied.join(" or "));
    let draws = verdict.by_draw.len() + 1;
    if !verdict.level.is_empty() {
        let level = verdict.level.iter().take(LEVEL).map(|other| {
            let [least, most] = other.below_over_draws.map(|share| 100.0 * share);
            format!(" or {} ({least:+.1} to {most:+.1} %)", other.design)
        });
        text.extend(level);
        let more = verdict.level.len().saturating_sub(LEVEL);
        if more > 0 {
            text += &format!(" or {more} more");
        }
        text += &format!(", which {draws} draws of faults and arrivals cannot distinguish");
        tied.extend(verdict.level.iter().map(|other| other.design.clone()));
    }
    text += &format!(": ${} a useful PFLOP-year", whole(price_of(first)));
    let range = verdict.usd_over_draws.map(|range| range.map(whole));
    if let Some([least, most]) = range.filter(|[least, most]| least != most) {
        text += &format!(" (${least} to ${most} over {draws} draws)");
    }
    if let Some(next) = &verdict.next {
        let [least, most] = next.below_over_draws.map(|share| 100.0 * share);
        let below = 100.0 * next.below;
        text +=
            &format!(", {below:.1} % ({least:.1} to {most:.1}) below the next, {}", next.design);
    }
    if first.shares.idle >= UNWANTED {
        text += &format!(
            "; {:.0} % of its GPU-hours are idle for lack of jobs",
            100.0 * first.shares.idle
        );
    }
    if verdict.level.is_empty() {
        let winners = verdict.by_draw.iter().filter_map(|draw| draw.winner.as_ref());
        text += &format!(
            "; {} of {} other draws of faults and arrivals agree",
            winners.filter(|winner| tied.contains(winner)).count(),
            verdict.by_draw.len()
        );
    }
    text + &inside(verdict, &tied) + &outside(verdict, &tied, beyond) + "."
}

fn inside(verdict: &Verdict, tied: &[String]) -> String {
    let rest = &tied[1..];
    let rates = verdict.by_fault_rate.iter().filter_map(|flip| flip.winner.as_ref());
    let at_rates = rates.clone().filter(|winner| rest.contains(winner)).count();
    let nearest = verdict.by_price.iter().find(|flip| rest.contains(&flip.winner));
    let rates_text = format!("at {at_rates} of {} other fault rates", rates.count());
    let text = match (at_rates, nearest) {
        (0, None) => return String::new(),
        (_, None) => rates_text,
        (0, Some(flip)) => beyond_price(flip),
        (_, Some(flip)) => format!("{rates_text} and {}", beyond_price(flip)),
    };
    let who = if tied.len() == 2 { &tied[1] } else { "another of them" };
    format!("; {who} is the cheapest {text}")
}

fn outside(verdict: &Verdict, tied: &[String], beyond: &[PriceFlip]) -> String {
    let open: Vec<&str> = verdict
        .within_prices
        .iter()
        .filter(|rival| rival.least_more_usd < 0.0 && !tied.contains(&rival.design))
        .map(|rival| rival.design.as_str())
        .collect();
    let mut text = match open.as_slice() {
        [] => "; no other design is cheaper at prices within their ranges".to_owned(),
        open => {
            let names = open[..open.len().min(3)].join(" or ");
            format!("; prices within their ranges can make {names} cheaper")
        }
    };
    let flips = flips(verdict, tied, beyond);
    text += &match (flips.is_empty(), open.is_empty()) {
        (true, true) => {
            ", at a fault rate from 0 to 8 × or at a single price from 0.1 to 10 ×".to_owned()
        }
        (true, false) => {
            "; no fault rate from 0 to 8 × and no single price from 0.1 to 10 × does".to_owned()
        }
        (false, _) => format!("; it would be {}", flips.join(", ")),
    };
    text
}

fn whole(usd: f64) -> String {
    thousands(&format!("{usd:.0}"))
}

fn flips(verdict: &Verdict, tied: &[String], beyond: &[PriceFlip]) -> Vec<String> {
    let others = verdict.by_fault_rate.iter().filter_map(|flip| {
        let winner = flip.winner.as_ref().filter(|winner| !tied.contains(winner))?;
        Some((winner, flip.factor))
    });
    let below = others.clone().rfind(|(_, factor)| *factor < 1.0);
    let above = others.clone().find(|(_, factor)| *factor > 1.0);
    let faults = below
        .into_iter()
        .chain(above)
        .map(|(winner, factor)| format!("{winner} at {factor} × the fault rate"));
    let prices =
        beyond.iter().take(2).map(|flip| format!("{} {}", flip.winner, beyond_price(flip)));
    faults.chain(prices).collect()
}

fn beyond_price(flip: &PriceFlip) -> String {
    let side = if flip.factor > 1.0 { "above" } else { "below" };
    format!("at {} {side} ${:.2} ({:.2} ×)", flip.part, flip.usd, flip.factor)
}

fn price_flips(
    question: &Question,
    rows: &[Row],
    prices: &PriceList,
    choice: &[String],
) -> Vec<PriceFlip> {
    let works = rows.iter().filter(|row| row.useful_pflop_years > 0.0);
    let (chosen, others): (Vec<&Row>, Vec<&Row>) =
        works.partition(|row| choice.contains(&name(row)));
    if chosen.is_empty() {
        return Vec::new();
    }
    let mut parts: Vec<&String> =
        rows.iter().flat_map(|row| row.parts.iter().map(|(part, _)| part)).collect();
    parts.sort();
    parts.dedup();
    let mut flips = Vec::new();
    for part in parts {
        let mut nearest: [Option<(f64, &Row)>; 2] = [None, None];
        for row in &others {
            let Some(factor) = nearest_factor(row, &chosen, part) else { continue };
            let side = &mut nearest[usize::from(factor > 1.0)];
            if side.is_none_or(|(known, _)| log_distance(factor) < log_distance(known)) {
                *side = Some((factor, row));
            }
        }
        let today = match part.as_str() {
            ENERGY => question.running.usd_per_kwh,
            part => prices.quote(part).map_or(0.0, |quote| quote.usd.mean),
        };
        flips.extend(nearest.into_iter().flatten().map(|(factor, row)| PriceFlip {
            part: part.clone(),
            factor,
            usd: factor * today,
            winner: name(row),
        }));
    }
    flips.sort_by(|a, b| log_distance(a.factor).total_cmp(&log_distance(b.factor)));
    flips.truncate(FLIPS);
    flips
}

fn log_distance(factor: f64) -> f64 {
    factor.ln().abs()
}

/// Costs are linear in a price, so `row` is the cheapest in an interval of factors. Returns its end
/// nearest to 1, within [`WIDEST`].
fn nearest_factor(row: &Row, chosen: &[&Row], part: &str) -> Option<f64> {
    let [slope, rest] = price_line(row, part);
    let (mut low, mut high) = (1.0 / WIDEST, WIDEST);
    for other in chosen {
        // `row` is cheaper where slope·m + rest < other_slope·m + other_rest.
        let [other_slope, other_rest] = price_line(other, part);
        let crossing = (other_rest - rest) / (slope - other_slope);
        match (slope - other_slope).total_cmp(&0.0) {
            Ordering::Greater => high = high.min(crossing),
            Ordering::Less => low = low.max(crossing),
            Ordering::Equal if rest < other_rest => {}
            Ordering::Equal => return None,
        }
    }
    if low >= high {
        return None;
    }
    Some(if low >= 1.0 { low } else { high })
}

/// Returns the cost per useful PFLOP-year as slope and rest of a line over the factor of a part's price.
fn price_line(row: &Row, part: &str) -> [f64; 2] {
    let usd = usd_of_part(row, part);
    [usd, row.cost_usd - usd].map(|usd| usd / row.useful_pflop_years)
}

#[cfg(test)]
mod tests;
