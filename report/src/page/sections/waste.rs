// SPDX-License-Identifier: Apache-2.0
//! Designs with faults: waste over time and by fault ratio, jobs and waiting.

use lightloom_study::compare::{Figures, Row, RowOutcome, share_of_time_above};

use super::super::chart::{Axis, Curve, Plot, reach, steps};
use super::super::compose::{Used, headline};
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{Comparison, History};
use super::{BOUND, ink_of};

pub(in super::super) fn add(report: &mut PageDocument, used: &mut Used, comparison: &Comparison) {
    let (own, others) = sides(comparison);
    if let Some((arch, figures)) = own {
        headline(
            report,
            "wasted over the trace",
            (figures.waste_mean, ShownUnit::Share),
            format!(
                "{arch}, mean; ideal switch {}",
                ShownQuantity::share(figures.lower_bound_mean).show()
            ),
            "waste_mean",
        );
    }
    let from = format!(
        "mean over {} samples of {:.0} days, weighted by time; faults: {}",
        comparison.samples,
        comparison.window.as_days(),
        comparison.faults
    );
    used.push(("waste_mean", from));
    used.push(("waste_stddev", format!("over {} samples", comparison.samples)));
    used.push(("waste_p99", "over time, all samples together".to_owned()));
    used.push(("waste_arithmetic", format!("TP-{}, no node faulty", comparison.tp)));
    used.push(("waste_from_faults", "waste_mean − waste_arithmetic".to_owned()));
    used.push(("lower_bound_mean", "one ideal switch, same samples".to_owned()));
    used.push(("max_job_gpus", "least GPUs usable at any time, any sample".to_owned()));
    used.push(("waiting_share", "same samples".to_owned()));

    let mut section =
        PageSection::new("waste", "GPUs wasted under faults", conclusion(own, &others, comparison));
    section.blocks.push(over_time(comparison));
    section.blocks.extend(near_bound(comparison));
    section.blocks.push(nodes_out(comparison));
    section.blocks.push(PageBlock::Table(waste_table(comparison)));
    for reason in cannot_hold(comparison) {
        section.blocks.push(PageBlock::Note(reason));
    }
    section.blocks.push(against_ratio(comparison));
    report.sections.push(section);
    report.sections.push(jobs_section(comparison, own));
}

type Named<'a> = (&'a str, &'a Figures);

fn held(rows: &[Row]) -> impl Iterator<Item = Named<'_>> {
    rows.iter().filter_map(|row| match &row.outcome {
        RowOutcome::Held(figures) => Some((row.arch.as_str(), figures.as_ref())),
        RowOutcome::CannotHold { .. } => None,
    })
}

/// Returns the fabric's own design, and the others without the bound.
fn sides(comparison: &Comparison) -> (Option<Named<'_>>, Vec<Named<'_>>) {
    let is_own = |arch: &str| comparison.own.as_deref() == Some(arch);
    let own = held(&comparison.rows).find(|(arch, _)| is_own(arch));
    let others =
        held(&comparison.rows).filter(|(arch, _)| !is_own(arch) && *arch != BOUND).collect();
    (own, others)
}

fn conclusion(own: Option<Named<'_>>, others: &[Named<'_>], comparison: &Comparison) -> String {
    let tp = comparison.tp;
    let least = own.or_else(|| {
        others.iter().copied().min_by(|a, b| a.1.waste_mean.total_cmp(&b.1.waste_mean))
    });
    let (Some((arch, figures)), Some((worst, most))) =
        (least, others.iter().copied().max_by(|a, b| a.1.waste_mean.total_cmp(&b.1.waste_mean)))
    else {
        return format!("No design of the list holds groups of {tp} GPUs.");
    };
    let times = if figures.waste_mean > 0.0 && most.waste_mean > figures.waste_mean {
        let times = most.waste_mean / figures.waste_mean;
        format!(", {} times as much", fixed(times, if times < 100.0 { 1 } else { 0 }))
    } else {
        String::new()
    };
    format!(
        "In groups of {tp} GPUs, {arch} wastes {} of all GPUs on average, where an ideal switch over the whole cluster \
         would waste {}. {worst} wastes {}{times}.",
        ShownQuantity::share(figures.waste_mean).show(),
        ShownQuantity::share(figures.lower_bound_mean).show(),
        ShownQuantity::share(most.waste_mean).show(),
    )
}

fn names(comparison: &Comparison) -> Vec<String> {
    comparison.rows.iter().map(|row| row.arch.clone()).collect()
}

fn ink(comparison: &Comparison, arch: &str) -> u8 {
    ink_of(arch, comparison.own.as_deref(), &names(comparison))
}

fn percent(ratio: f64) -> String {
    let percent = 100.0 * ratio;
    if (percent - percent.round()).abs() < 1e-9 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

fn day(days: f64) -> String {
    fixed(days, 0)
}

/// Returns an axis range from zero to slightly above the maximum.
fn up_to(most: f64) -> std::ops::Range<f64> {
    0.0..(most * 1.06).max(1e-4)
}

fn gpus(comparison: &Comparison) -> f64 {
    f64::from(comparison.cluster.gpus())
}

fn curve_over_time(comparison: &Comparison, history: &History) -> Curve {
    let total = gpus(comparison);
    let values: Vec<(f64, f64)> = history
        .moments
        .iter()
        .map(|moment| (moment.from.as_days(), f64::from(moment.gpus_wasted) / total))
        .collect();
    let mean = held(&comparison.rows)
        .find(|(arch, _)| *arch == history.arch)
        .map_or(0.0, |(_, f)| f.waste_mean);
    Curve {
        ink: ink(comparison, &history.arch),
        points: steps(&values, comparison.window.as_days()),
        label: history.arch.clone(),
        value: String::new(),
        hover: format!(
            "{}: {} on average over all samples",
            history.arch,
            ShownQuantity::share(mean).show()
        ),
    }
}

fn over_time(comparison: &Comparison) -> PageBlock {
    let mut curves: Vec<Curve> =
        comparison.histories.iter().map(|history| curve_over_time(comparison, history)).collect();
    // Draw the fabric's own design last, on top.
    curves.sort_by_key(|curve| std::cmp::Reverse((curve.ink != 9, curve.ink)));
    let (_, most) = reach(&curves);
    let changes =
        comparison.histories.first().map_or(0, |history| history.moments.len().saturating_sub(1));
    let plot = Plot {
        x: Axis { range: 0.0..comparison.window.as_days(), title: "day", show: day },
        y: Axis { range: up_to(most), title: "wasted GPUs, share of all", show: percent },
        curves,
        heights_px: [340, 320],
        is_filled: false,
        remark: None,
    };
    let mut data = FigureTable::new("waste_over_time", "Waste over time")
        .words("design")
        .numbers("from")
        .numbers("nodes out")
        .numbers("wasted");
    for history in &comparison.histories {
        for moment in &history.moments {
            data.row([
                Cell::text(&history.arch),
                Cell::number(moment.from.as_days(), ShownUnit::Days),
                Cell::number(f64::from(moment.nodes_faulty), ShownUnit::Nodes),
                Cell::number(f64::from(moment.gpus_wasted), ShownUnit::Gpus),
            ]);
        }
    }
    PageBlock::Figure(Figure {
        id: "waste-over-time",
        svg: plot.svg(),
        caption: format!(
            "Waste over {} days, one draw of {}, event by event: the lines step at each of its {} changes. The dashed line \
             is the bound: one ideal switch.",
            day(comparison.window.as_days()),
            comparison.faults,
            fixed(changes as f64, 0),
        ),
        data: vec![data],
    })
}

/// Compares only the fabric's own design and the bound, which coincide on the scale of all designs.
fn near_bound(comparison: &Comparison) -> Option<PageBlock> {
    let own = comparison.own.as_deref()?;
    let of = |arch: &str| comparison.histories.iter().find(|history| history.arch == arch);
    let (ours, bound) = (of(own)?, of(BOUND)?);
    let curves = vec![curve_over_time(comparison, ours), curve_over_time(comparison, bound)];
    let (_, most) = reach(&curves);
    let above = share_of_time_above(&ours.moments, &bound.moments, comparison.window);
    let plot = Plot {
        x: Axis { range: 0.0..comparison.window.as_days(), title: "day", show: day },
        y: Axis { range: up_to(most), title: "wasted GPUs, share of all", show: percent },
        curves,
        heights_px: [230, 220],
        is_filled: false,
        remark: None,
    };
    Some(PageBlock::Figure(Figure {
        id: "waste-near-bound",
        svg: plot.svg(),
        caption: if above > 0.0 {
            format!(
                "The same, {own} and the ideal switch alone. {own} wastes more than the ideal switch during {} of the time: \
                 {}.",
                ShownQuantity::share(above).show(),
                match own.ends_with(":spare") {
                    true => "each ring has a node that only passes light on, whatever is broken",
                    false => "where broken nodes stand so close together that no fibre spans them",
                }
            )
        } else {
            format!(
                "The same, {own} and the ideal switch alone: the lines lie on each other. In this draw {own} never wastes \
                 more than the bound; what is left is the remainder of healthy GPUs that makes no full group."
            )
        },
        data: vec![],
    }))
}

/// Draws nodes out of service over the same time axis.
fn nodes_out(comparison: &Comparison) -> PageBlock {
    let nodes = f64::from(comparison.cluster.nodes);
    let moments = comparison.histories.first().map_or(&[][..], |history| &history.moments);
    let values: Vec<(f64, f64)> = moments
        .iter()
        .map(|moment| (moment.from.as_days(), f64::from(moment.nodes_faulty) / nodes))
        .collect();
    let most = values.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let ratio = comparison.node_fault_ratio;
    let curve = Curve {
        ink: 10,
        points: steps(&values, comparison.window.as_days()),
        label: "nodes out".to_owned(),
        value: String::new(),
        hover: format!("{} on average", ShownQuantity::share(ratio.mean).show()),
    };
    let plot = Plot {
        x: Axis { range: 0.0..comparison.window.as_days(), title: "day", show: day },
        y: Axis { range: up_to(most), title: "nodes out of service, share of all", show: percent },
        curves: vec![curve],
        heights_px: [190, 190],
        is_filled: true,
        remark: comparison.planned_day.map(|day| (day, format!("day {day:.1}: the plan above"))),
    };
    let trace = comparison.trace.as_ref().map_or(String::new(), |trace| {
        format!(
            " The trace has {} faults on {} of {} servers.",
            fixed(f64::from(trace.faults), 0),
            fixed(f64::from(trace.servers_affected), 0),
            fixed(f64::from(trace.servers), 0)
        )
    });
    PageBlock::Figure(Figure {
        id: "nodes-out",
        svg: plot.svg(),
        caption: format!(
            "Nodes out of service in the same draw. Over all {} samples: mean {}, half of the time at most {}, 99 % of the \
             time at most {}, never more than {}.{trace}",
            comparison.samples,
            ShownQuantity::share(ratio.mean).show(),
            ShownQuantity::share(ratio.p50).show(),
            ShownQuantity::share(ratio.p99).show(),
            ShownQuantity::share(ratio.max).show(),
        ),
        data: vec![],
    })
}

fn waste_table(comparison: &Comparison) -> FigureTable {
    let title = format!(
        "Waste at TP-{} on {} GPUs, {} samples",
        comparison.tp,
        fixed(gpus(comparison), 0),
        comparison.samples
    );
    let mut table = FigureTable::new("waste", title)
        .words("design")
        .defined("mean", "waste_mean")
        .defined("±", "waste_stddev")
        .defined("bound", "lower_bound_mean")
        .defined("P99", "waste_p99")
        .defined("most", "waste_p99")
        .defined("arithmetic", "waste_arithmetic")
        .defined("faults", "waste_from_faults");
    for (arch, figures) in held(&comparison.rows) {
        table.row([
            Cell::text(arch),
            Cell::share(figures.waste_mean),
            Cell::share(figures.waste_stddev),
            Cell::share(figures.lower_bound_mean),
            Cell::share(figures.waste_p99),
            Cell::share(figures.waste_max),
            Cell::share(figures.waste_arithmetic),
            Cell::share(figures.waste_from_faults),
        ]);
    }
    table
}

fn cannot_hold(comparison: &Comparison) -> Vec<String> {
    let never = |row: &Row| match &row.outcome {
        RowOutcome::Held(_) => None,
        RowOutcome::CannotHold { cannot_hold } => {
            Some(format!("{}: never: {cannot_hold}", row.arch))
        }
    };
    comparison.rows.iter().filter_map(never).collect()
}

fn against_ratio(comparison: &Comparison) -> PageBlock {
    let mut curves: Vec<Curve> = comparison
        .curves
        .iter()
        .map(|curve| {
            let points: Vec<(f64, f64)> = curve
                .points
                .iter()
                .map(|point| (point.node_fault_ratio, point.waste_mean))
                .collect();
            let last = points.last().map_or(0.0, |(_, waste)| *waste);
            Curve {
                ink: ink(comparison, &curve.arch),
                points,
                label: curve.arch.clone(),
                value: percent(last),
                hover: format!("{} at the right end", ShownQuantity::share(last).show()),
            }
        })
        .collect();
    curves.sort_by_key(|curve| std::cmp::Reverse((curve.ink != 9, curve.ink)));
    let (right, most) = reach(&curves);
    let plot = Plot {
        x: Axis {
            range: 0.0..right.max(1e-3),
            title: "nodes out of service, share of all",
            show: percent,
        },
        y: Axis { range: up_to(most), title: "wasted GPUs, share of all", show: percent },
        curves,
        heights_px: [340, 320],
        is_filled: false,
        remark: None,
    };
    PageBlock::Figure(Figure {
        id: "waste-against-faults",
        svg: plot.svg(),
        caption: format!(
            "Waste at TP-{} while nodes are out independently of each other, mean of {} snapshots a point. Near the bottom, \
             faults cost hardly more than themselves; a steep line multiplies them.",
            comparison.tp, comparison.snapshots
        ),
        data: vec![ratio_table(comparison)],
    })
}

fn ratio_table(comparison: &Comparison) -> FigureTable {
    let mut table =
        FigureTable::new("waste_against_faults", "Waste by share of nodes out").words("design");
    let ratios = comparison.curves.first().map_or(&[][..], |curve| &curve.points);
    for point in ratios {
        table = table.numbers(&percent(point.node_fault_ratio));
    }
    for curve in &comparison.curves {
        let points = curve.points.iter().map(|point| Cell::share(point.waste_mean));
        table.row(std::iter::once(Cell::text(&curve.arch)).chain(points));
    }
    table
}

fn jobs_section(comparison: &Comparison, own: Option<Named<'_>>) -> PageSection {
    let conclusion = own.map_or(
        "The largest job is what the cluster carries at its worst moment.".to_owned(),
        |(arch, figures)| {
            format!(
                "On {arch} a job of {} never waits for faulty nodes; one of {} waits for at most 1 % of the time.",
                ShownQuantity::new(f64::from(figures.max_job_gpus), ShownUnit::Gpus).show(),
                ShownQuantity::new(f64::from(figures.max_job_gpus_waiting_1pct), ShownUnit::Gpus).show(),
            )
        },
    );
    let mut section =
        PageSection::new("jobs", "How large a job, and how long it waits", conclusion);
    let sizes: Vec<u32> = held(&comparison.rows).next().map_or(Vec::new(), |(_, figures)| {
        figures.waiting_share.iter().map(|waiting| waiting.job_gpus).collect()
    });
    let title = format!("Share of the time that a job waits, by its GPUs, at TP-{}", comparison.tp);
    let mut table = FigureTable::new("waiting", title)
        .words("design")
        .defined("never waits", "max_job_gpus")
        .defined("waits 1 %", "max_job_gpus");
    for size in sizes {
        table = table.defined(&fixed(f64::from(size), 0), "waiting_share");
    }
    for (arch, figures) in held(&comparison.rows) {
        let largest = [figures.max_job_gpus, figures.max_job_gpus_waiting_1pct];
        let cells = largest.into_iter().map(|gpus| Cell::number(f64::from(gpus), ShownUnit::Gpus));
        let waiting = figures.waiting_share.iter().map(|waiting| Cell::share(waiting.share));
        table.row(std::iter::once(Cell::text(arch)).chain(cells).chain(waiting));
    }
    section.blocks.push(PageBlock::Table(table));
    section
}
