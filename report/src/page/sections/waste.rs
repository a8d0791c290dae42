// SPDX-License-Identifier: Apache-2.0

use lightloom_study::compare::{Figures, Row, RowOutcome};
use serde_json::json;

use super::super::document::{
    Bar, Cell, FigureTable, FirstScreen, Headline, PageBlock, PageDocument, PageSection, Picture,
    Tone,
};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::Comparison;
use super::super::tables;

const BOUND: &str = "big-switch";

pub(in super::super) fn add(report: &mut PageDocument, comparison: &Comparison) {
    let mut section = PageSection::new("waste", "GPUs wasted under faults");
    let mut table = tables::table("waste", held_rows(comparison));
    let gpus = fixed(f64::from(comparison.cluster.gpus()), 0);
    table.title = format!("Waste at TP-{} on {gpus} GPUs", comparison.tp);
    section.table(table);
    section.table(against_ratio(comparison));
    section.table(waiting(comparison));
    for row in &comparison.rows {
        if let RowOutcome::CannotHold { cannot_hold } = &row.outcome {
            section.note(format!("{}: never: {cannot_hold}", row.arch));
        }
    }
    section.note(rests_on(comparison));
    section.blocks.push(PageBlock::Data(over_time(comparison)));
    let (verdict, figures, picture) = (verdict(comparison), figures(comparison), bars(comparison));
    report.add(FirstScreen { verdict, figures, picture }, section);
}

type Named<'a> = (&'a str, &'a Figures);

fn held(rows: &[Row]) -> impl Iterator<Item = Named<'_>> {
    rows.iter().filter_map(|row| match &row.outcome {
        RowOutcome::Held(figures) => Some((row.arch.as_str(), figures.as_ref())),
        RowOutcome::CannotHold { .. } => None,
    })
}

fn held_rows(comparison: &Comparison) -> impl Iterator<Item = &Row> {
    comparison.rows.iter().filter(|row| matches!(row.outcome, RowOutcome::Held(_)))
}

pub(super) fn own_figures(comparison: &Comparison) -> Option<&Figures> {
    let own = comparison.own.as_deref()?;
    held(&comparison.rows).find(|(arch, _)| *arch == own).map(|(_, figures)| figures)
}

fn ranked(comparison: &Comparison) -> Vec<Named<'_>> {
    let mut designs: Vec<Named<'_>> =
        held(&comparison.rows).filter(|(arch, _)| *arch != BOUND).collect();
    designs.sort_by(|a, b| {
        let waste = a.1.waste_mean.total_cmp(&b.1.waste_mean);
        let [a, b] = [a.0, b.0].map(|arch| comparison.own.as_deref() != Some(arch));
        a.cmp(&b).then(waste)
    });
    designs
}

fn verdict(comparison: &Comparison) -> String {
    let (tp, days) = (comparison.tp, fixed(comparison.window.as_days(), 0));
    let ranked = ranked(comparison);
    let Some((arch, figures)) = ranked.first() else {
        return format!("None of the listed designs can hold groups of {tp} GPUs.");
    };
    let [waste, bound] = [figures.waste_mean, figures.lower_bound_mean]
        .map(|share| ShownQuantity::share(share).show());
    let others = ranked[1..].iter().max_by(|a, b| a.1.waste_mean.total_cmp(&b.1.waste_mean));
    let most = others.map_or(String::new(), |(worst, most)| {
        format!(", {worst} {}", ShownQuantity::share(most.waste_mean).show())
    });
    format!(
        "{arch} wastes {waste} of its GPUs over {days} days of faults at TP-{tp}; an ideal switch wastes {bound}{most}."
    )
}

fn figures(comparison: &Comparison) -> Vec<Headline> {
    let ranked = ranked(comparison);
    let Some((arch, figures)) = ranked.first() else { return Vec::new() };
    let share = ShownQuantity::share;
    let job = ShownQuantity::new(f64::from(figures.max_job_gpus), ShownUnit::Gpus);
    let bound =
        format!("{arch}, mean; {} with an ideal switch", share(figures.lower_bound_mean).show());
    vec![
        Headline::new("GPUs wasted", share(figures.waste_mean), bound, Some("waste_mean")),
        Headline::new("99 % of the time", share(figures.waste_p99), "at most", Some("waste_p99")),
        Headline::new(
            "largest job",
            job,
            "that never waits for faulty nodes",
            Some("max_job_gpus"),
        ),
    ]
}

fn bars(comparison: &Comparison) -> Option<Picture> {
    let ranked = ranked(comparison);
    let (_, first) = ranked.first()?;
    let designs = ranked.iter().enumerate().map(|(place, (arch, figures))| {
        (*arch, if place == 0 { Tone::Own } else { Tone::Other }, figures.waste_mean)
    });
    let bars = designs.chain([("ideal switch", Tone::Bound, first.lower_bound_mean)]);
    let bars = bars.map(|(name, tone, waste)| Bar::new(name, tone, ShownQuantity::share(waste)));
    let caption = "Mean over time and all samples, as a share of all GPUs.";
    Picture::bars("waste-bars", "GPUs wasted under faults", bars, caption)
}

fn rests_on(comparison: &Comparison) -> String {
    let ratio = comparison.node_fault_ratio;
    let shares = [ratio.mean, ratio.p50, ratio.p99, ratio.max];
    let [mean, p50, p99, max] = shares.map(|share| ShownQuantity::share(share).show());
    let trace = comparison.trace.as_ref().map_or(String::new(), |trace| {
        format!(
            " The trace contains {} faults on {} of {} servers.",
            fixed(f64::from(trace.faults), 0),
            fixed(f64::from(trace.servers_affected), 0),
            fixed(f64::from(trace.servers), 0)
        )
    });
    format!(
        "Faults: {}; {} samples of {} days, weighted by time. Nodes out of service: mean {mean}, half of the time at most {p50}, \
         99 % of the time at most {p99}, never more than {max}.{trace} The CSV contains every change of the first sample.",
        comparison.faults,
        comparison.samples,
        fixed(comparison.window.as_days(), 0),
    )
}

fn over_time(comparison: &Comparison) -> FigureTable {
    let changes = comparison.histories.iter().flat_map(|history| {
        history.moments.iter().map(|moment| {
            json!({"arch": history.arch, "from": moment.from.as_days(), "nodes_faulty": moment.nodes_faulty,
                "gpus_wasted": moment.gpus_wasted})
        })
    });
    tables::table("waste_over_time", changes)
}

fn against_ratio(comparison: &Comparison) -> FigureTable {
    let points = comparison.curves.iter().flat_map(|curve| {
        curve.points.iter().map(|point| {
            json!({"arch": curve.arch, "node_fault_ratio": point.node_fault_ratio, "waste_mean": point.waste_mean})
        })
    });
    let mut table = tables::table("by_fault_ratio", points);
    table.title += &format!(": mean of {} snapshots", comparison.snapshots);
    table
}

fn waiting(comparison: &Comparison) -> FigureTable {
    let mut table = tables::table("waiting", held_rows(comparison));
    let sizes = held(&comparison.rows).next().map(|(_, figures)| &figures.waiting_share);
    for waiting in sizes.into_iter().flatten() {
        table.column(fixed(f64::from(waiting.job_gpus), 0), Some("waiting_share"));
    }
    for (row, (_, figures)) in table.rows.iter_mut().zip(held(&comparison.rows)) {
        row.extend(figures.waiting_share.iter().map(|waiting| Cell::share(waiting.share)));
    }
    table
}
