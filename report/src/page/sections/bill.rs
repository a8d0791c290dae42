// SPDX-License-Identifier: Apache-2.0
//! Cost of failures over a span: the costs as one picture, the change with the largest saving, and
//! the timeline of the worst fault.

use super::super::bars::{Bar, Bars};
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{Billed, BilledCause, BilledLoss, BilledRun, MonthFigure};
use super::timeline::{self, TimelinePart};

const SECONDS_PER_PS: f64 = 1e-12;
/// Shorter parts of an outage are not drawn.
const LEAST_PS: i64 = 1000;
/// Maximum number of causes in the picture; the table contains all.
const MOST_BARS: usize = 10;

/// Returns the cost of failures as a sentence.
fn answer(billed: &Billed) -> String {
    let share = |hours: f64| {
        ShownQuantity::share(hours / billed.capacity_gpu_hours.max(f64::MIN_POSITIVE)).show()
    };
    let dollars = |usd: Option<f64>| usd.map(|usd| format!(" (${})", fixed(usd, 0)));
    let lost = billed.lost_gpu_hours.mean;
    let largest = by_size(billed).first().map_or_else(String::new, |(name, hours)| {
        format!(", most of it for {name} ({})", share(*hours))
    });
    let saves = match (billed.saves_most.as_ref(), billed.alternatives.first()) {
        (Some(_), Some(best)) => format!(
            " Of single changes {} saves most: {} GPU-hours{}.",
            best.words,
            fixed(best.saves_gpu_hours, 0),
            dollars(best.saves_usd).unwrap_or_default()
        ),
        _ => " No single change of those that were run saves anything.".to_owned(),
    };
    format!(
        "In {} days {} of {} GPU-hours are lost{}{largest}; 99 of 100 months lose at most {}.{saves}",
        fixed(billed.span_hours / 24.0, 0),
        share(lost),
        fixed(billed.capacity_gpu_hours, 0),
        dollars(billed.lost_usd).unwrap_or_default(),
        share(billed.lost_gpu_hours.p99),
    )
}

/// Returns the cost of failures as a short sentence.
pub(in super::super) fn short_answer(billed: &Billed) -> String {
    let share = billed.lost_gpu_hours.mean / billed.capacity_gpu_hours.max(f64::MIN_POSITIVE);
    let dollars = billed.lost_usd.map(|usd| format!(": ${}", fixed(usd, 0))).unwrap_or_default();
    format!(
        "Failures cost {} of the GPU-hours of {} days{dollars}.",
        ShownQuantity::share(share).show(),
        fixed(billed.span_hours / 24.0, 0)
    )
}

pub(in super::super) fn add(report: &mut PageDocument, billed: &Billed, index: usize) {
    let id = if index == 0 { "bill" } else { "another-bill" };
    let title = format!("What failures cost: {}", billed.scenario);
    let mut section = PageSection::new(id, title, answer(billed));
    section.blocks.push(picture(billed));
    section.blocks.push(PageBlock::Table(causes(billed)));
    section.blocks.push(PageBlock::Table(changes(billed)));
    if let Some(run) = worst(billed) {
        section.blocks.push(timeline(run));
    }
    section.blocks.push(PageBlock::Note(rests_on(billed)));
    report.sections.push(section);
}

/// Returns GPU-hours by cause, largest first, with the stages of an outage combined.
fn by_size(billed: &Billed) -> Vec<(&'static str, f64)> {
    let mut sums: Vec<(&'static str, f64)> = Vec::new();
    for row in &billed.bill {
        let name = short(&row.cause);
        match sums.iter_mut().find(|(of, _)| *of == name) {
            Some((_, hours)) => *hours += row.gpu_hours.mean,
            None => sums.push((name, row.gpu_hours.mean)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}

/// Returns the label of a cause.
fn short(cause: &str) -> &'static str {
    match cause {
        "outage" => "outages",
        "done_again" => "work redone",
        "checkpoint_load" => "loading",
        "checkpoint_write" => "checkpoints",
        "memory_load" => "memory load",
        "memory_write" => "memory copies",
        "migration" => "migration",
        "reform" => "reforming",
        "rejoin" => "rejoining",
        "replicas_left_out" => "left out",
        "disturbed_step" => "the step hit",
        "slower_steps" => "slower steps",
        "waiting_for_nodes" => "waiting",
        "under_repair" => "under repair",
        "idle_spares" => "idle spares",
        _ => "other",
    }
}

fn picture(billed: &Billed) -> PageBlock {
    let capacity = billed.capacity_gpu_hours.max(f64::MIN_POSITIVE);
    let all = by_size(billed).into_iter().filter(|(_, hours)| *hours > 0.0).take(MOST_BARS);
    let bars = all.map(|(name, hours)| Bar {
        name: name.to_owned(),
        ink: if matches!(name, "idle spares" | "under repair" | "waiting") { 3 } else { 1 },
        start: 0.0,
        value: hours,
        spread: None,
        label: ShownQuantity::share(hours / capacity).show(),
    });
    let bars = Bars {
        title: "GPU-hours lost, mean over the months",
        unit: ShownUnit::Count,
        bars: bars.collect(),
    };
    PageBlock::Figure(Figure {
        id: "bill-bars",
        svg: bars.svg(),
        caption: "Beside each bar its share of all GPU-hours. GPUs without a job have a colour of their own.".to_owned(),
        data: vec![],
    })
}

fn causes(billed: &Billed) -> FigureTable {
    let mut table = FigureTable::new("bill", "GPU-hours lost, by cause")
        .words("lost for")
        .numbers("mean")
        .numbers("P50")
        .numbers("P99")
        .numbers("share")
        .numbers("dollars");
    let hours = |value: f64| Cell::Shown {
        value: Some(value),
        unit: "GPU-hours",
        text: if value.abs() < 0.1 && value != 0.0 { fixed(value, 5) } else { fixed(value, 1) },
    };
    let mut row = |words: &str, figure: &MonthFigure, share, usd| {
        table.row([
            Cell::text(words),
            hours(figure.mean),
            hours(figure.p50),
            hours(figure.p99),
            Cell::number(share, ShownUnit::Share),
            Cell::maybe(usd, ShownUnit::Usd),
        ]);
    };
    for BilledCause { words, gpu_hours, share, usd, .. } in &billed.bill {
        row(words, gpu_hours, *share, *usd);
    }
    let all = billed.lost_gpu_hours.mean / billed.capacity_gpu_hours.max(f64::MIN_POSITIVE);
    row("all of them", &billed.lost_gpu_hours, all, billed.lost_usd);
    table
}

fn changes(billed: &Billed) -> FigureTable {
    let mut table = FigureTable::new("changes", "The same months with one change")
        .words("change")
        .numbers("GPU-hours lost")
        .numbers("saves")
        .numbers("saves dollars");
    let hours =
        |value: f64| Cell::Shown { value: Some(value), unit: "GPU-hours", text: fixed(value, 1) };
    for change in &billed.alternatives {
        table.row([
            Cell::text(&change.words),
            hours(change.lost_gpu_hours),
            hours(change.saves_gpu_hours),
            Cell::maybe(change.saves_usd, ShownUnit::Usd),
        ]);
    }
    table
}

/// Returns the one-time loss of a run in GPU-seconds.
fn lost(run: &BilledRun) -> f64 {
    let of_job = |job: &BilledLoss| {
        let once: f64 = job.once.iter().map(|part| part.time_ps as f64).sum();
        once * SECONDS_PER_PS * job.gpus as f64
    };
    run.losses.iter().map(of_job).sum()
}

fn worst(billed: &Billed) -> Option<&BilledRun> {
    let runs = billed.runs.iter().filter(|run| run.losses.iter().any(|job| !job.once.is_empty()));
    runs.max_by(|a, b| lost(a).total_cmp(&lost(b)))
}

/// Draws the consequences of the most expensive fault, each part below the previous one and
/// starting at its end.
fn timeline(run: &BilledRun) -> PageBlock {
    let job =
        run.losses.iter().max_by_key(|job| job.once.iter().map(|part| part.time_ps).sum::<i64>());
    let once = job.map(|job| &job.once[..]).unwrap_or_default();
    let mut start = 0.0;
    let mut parts = Vec::new();
    for part in once.iter().filter(|part| part.time_ps >= LEAST_PS) {
        let seconds = part.time_ps as f64 * SECONDS_PER_PS;
        parts.push(TimelinePart {
            name: part.stage.clone().unwrap_or_else(|| short(&part.cause).to_owned()),
            ink: if part.stage.is_some() { 1 } else { 3 },
            start,
            seconds,
        });
        start += seconds;
    }
    let out = match run.failed_at_start.as_slice() {
        [] => String::new(),
        nodes => format!(", with {} out already", nodes.join(", ")),
    };
    let caption = format!(
        "{} fails{out}: {} GPU-seconds at once, the most of all runs. To look into it, run the scenario with steps: 4 and \
         faults: [{{part: {}, at: {}ps}}], and --timeline.",
        run.fails,
        fixed(lost(run), 1),
        run.fails,
        run.at_ps
    );
    timeline::picture("worst-fault", "The worst fault, part by part", parts, caption)
}

fn rests_on(billed: &Billed) -> String {
    let rows = billed.failures.iter().map(|row| match row.mtbf_hours {
        Some(hours) => format!("{} every {} h ({})", row.part, fixed(hours, 0), row.source),
        None => format!("{} as in {}", row.part, row.source),
    });
    format!(
        "{} GPUs, {} nodes to spare, control {}; seeds {} to {}. What fails: {}. Losses at once are from {} runs, packet by packet.",
        fixed(billed.gpus as f64, 0),
        fixed(billed.spare_nodes as f64, 0),
        billed.control,
        billed.seeds.first,
        billed.seeds.last,
        rows.collect::<Vec<_>>().join("; "),
        billed.runs.len()
    )
}
