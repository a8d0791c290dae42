// SPDX-License-Identifier: Apache-2.0
//! Cost of failures over a span, the most effective single change, and the worst fault.

use serde_json::json;

use super::super::document::{
    Bar, FirstScreen, Headline, PageBlock, PageDocument, PageSection, Picture, Tone,
};
use super::super::quantity::{ShownQuantity, fixed};
use super::super::results::{Billed, BilledRun, BilledSeeds, MonthFigure};
use super::super::tables;
use super::run::time_bar;

const LEAST_PS: i64 = 1000;
const MOST_BARS: usize = 10;

pub(in super::super) fn add(report: &mut PageDocument, billed: &Billed) {
    let title = format!("Cost of failures: {}", billed.scenario);
    let mut section = PageSection::new("bill", title);
    let mut causes = tables::table("bill", &billed.bill);
    let all = json!({"words": "all of them", "gpu_hours": billed.lost_gpu_hours, "usd": billed.lost_usd,
        "share": share(billed, billed.lost_gpu_hours.mean).value});
    causes.rows.extend(tables::table("bill", [all]).rows);
    section.table(causes);
    section.table(tables::table("changes", &billed.alternatives));
    let worst = billed.runs.iter().max_by(|a, b| lost(a).total_cmp(&lost(b)));
    section.blocks.extend(worst.and_then(timeline).map(PageBlock::Picture));
    section.note(rests_on(billed));
    let (verdict, figures, picture) = (verdict(billed), figures(billed), picture(billed));
    report.add(FirstScreen { verdict, figures, picture }, section);
}

fn share(billed: &Billed, hours: f64) -> ShownQuantity {
    ShownQuantity::share(hours / billed.capacity_gpu_hours.max(f64::MIN_POSITIVE))
}

fn dollars(usd: Option<f64>) -> String {
    usd.map_or(String::new(), |usd| format!("${}, ", fixed(usd, 0)))
}

fn verdict(billed: &Billed) -> String {
    let largest =
        by_size(billed).first().map_or_else(String::new, |(name, _)| format!(", mostly {name}"));
    format!(
        "Failures cost {} of GPU-hours over {} days on {} GPUs ({}{}){largest}.",
        share(billed, billed.lost_gpu_hours.mean).show(),
        fixed(billed.span_hours / 24.0, 0),
        fixed(billed.gpus as f64, 0),
        dollars(billed.lost_usd),
        seeds(billed)
    )
}

fn seeds(billed: &Billed) -> String {
    match billed.seeds {
        BilledSeeds { first, last } if first == last => format!("seed {first} only"),
        BilledSeeds { first, last } => format!("seeds {first} to {last}"),
    }
}

fn figures(billed: &Billed) -> Vec<Headline> {
    let MonthFigure { mean, p99, .. } = billed.lost_gpu_hours;
    let capacity = format!("of {} GPU-hours", fixed(billed.capacity_gpu_hours, 0));
    let mut figures = vec![Headline::new("lost, mean", share(billed, mean), capacity, None)];
    if billed.seeds.first < billed.seeds.last {
        figures.push(Headline::new("P99 loss", share(billed, p99), seeds(billed), None));
    }
    let best = billed.alternatives.first().filter(|_| billed.saves_most.is_some());
    if let Some(best) = best {
        let saves = share(billed, best["saves_gpu_hours"].as_f64().unwrap_or_default());
        let beside = format!("of all GPU-hours: {}", best["words"].as_str().unwrap_or_default());
        figures.push(Headline::new("best single change saves", saves, beside, None));
    }
    figures
}

/// Largest first; the stages of an outage are one cause.
fn by_size(billed: &Billed) -> Vec<(&'static str, f64)> {
    let mut sums: Vec<(&'static str, f64)> = Vec::new();
    for row in &billed.bill {
        let name = short(row["cause"].as_str().unwrap_or_default());
        let mean = row["gpu_hours"]["mean"].as_f64().unwrap_or_default();
        match sums.iter_mut().find(|(of, _)| *of == name) {
            Some((_, hours)) => *hours += mean,
            None => sums.push((name, mean)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}

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
        "disturbed_step" => "the interrupted step",
        "slower_steps" => "slower steps",
        "waiting_for_nodes" => "waiting",
        "under_repair" => "under repair",
        "idle_spares" => "idle spares",
        _ => "other",
    }
}

fn picture(billed: &Billed) -> Option<Picture> {
    let bars = by_size(billed).into_iter().take(MOST_BARS).filter(|(_, hours)| *hours > 0.0);
    let bars = bars.map(|(name, hours)| {
        let is_idle = matches!(name, "idle spares" | "under repair" | "waiting");
        Bar {
            name: name.to_owned(),
            tone: if is_idle { Tone::Other } else { Tone::Lost },
            length: hours,
            label: share(billed, hours).show(),
            ..Bar::default()
        }
    });
    let caption = "Mean over the seeds, as a share of all GPU-hours. GPUs without a job are shown in a separate colour.";
    Picture::bars("bill-bars", "GPU-hours lost", bars, caption)
}

fn lost(run: &BilledRun) -> f64 {
    let lost = run.losses.iter().map(|job| {
        let once: f64 = job.once.iter().map(|part| part.time_ps as f64).sum();
        once * 1e-12 * job.gpus as f64
    });
    lost.sum()
}

fn timeline(run: &BilledRun) -> Option<Picture> {
    let losses = run.losses.iter();
    let job = losses.max_by_key(|job| job.once.iter().map(|part| part.time_ps).sum::<i64>())?;
    let mut start = 0;
    let mut bars = Vec::new();
    for part in job.once.iter().filter(|part| part.time_ps >= LEAST_PS) {
        let (tone, name) = match &part.stage {
            Some(stage) => (Tone::Own, stage.clone()),
            None => (Tone::Lost, short(&part.cause).to_owned()),
        };
        let length = part.time_ps.unsigned_abs();
        bars.push(Bar { tone, ..time_bar(name, start, length) });
        start += length;
    }
    let out = match run.failed_at_start.as_slice() {
        [] => String::new(),
        nodes => format!(", with {} out already", nodes.join(", ")),
    };
    let caption = format!(
        "{0} fails{out}: an immediate loss of {1} GPU-seconds, the highest of all runs. To examine it, run the scenario with steps: 4 and \
         faults: [{{part: {0}, at: {2}ps}}], and --timeline.",
        run.fails,
        fixed(lost(run), 1),
        run.at_ps
    );
    Picture::bars("worst-fault", "the worst fault, part by part", bars, caption)
}

fn rests_on(billed: &Billed) -> String {
    let rows = billed.failures.iter().map(|row| {
        let [part, source] = ["part", "source"].map(|key| row[key].as_str().unwrap_or_default());
        match row["mtbf_hours"].as_f64() {
            Some(hours) => format!("{part} every {} h ({source})", fixed(hours, 0)),
            None => format!("{part} as in {source}"),
        }
    });
    format!(
        "{} spare nodes, control {}. Failures: {}. Immediate losses are from {} runs, packet by packet.",
        fixed(billed.spare_nodes as f64, 0),
        billed.control,
        rows.collect::<Vec<_>>().join("; "),
        billed.runs.len()
    )
}
