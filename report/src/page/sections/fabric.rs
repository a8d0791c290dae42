// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Shape;
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_planner::check::Verdict;
use serde_json::json;

use super::super::document::{
    Bar, Cell, Drawing, FirstScreen, Headline, PageBlock, PageDocument, PageSection, Picture,
    PictureKind, Tone,
};
use super::super::picture;
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{Comparison, Subject};
use super::super::tables;
use super::waste::own_figures;

const MOST_DRAWN: usize = 12;

pub(in super::super) fn add(
    report: &mut PageDocument,
    subject: &Subject<'_>,
    comparison: Option<&Comparison>,
) {
    match subject {
        Subject::Fabric { fabric, plan, verdict, faults } => {
            if fabric.circuits_alone().is_none() {
                let picture = Some(picture::nodes(fabric, plan));
                let mut section = PageSection::new("fabric", "The fabric and its plan");
                tables(&mut section, plan, groups_name(fabric));
                proof(&mut section, fabric, plan, *verdict);
                let figures = figures(plan, comparison);
                report.add(
                    FirstScreen { verdict: conclusion(plan, faults), figures, picture },
                    section,
                );
            }
            if let Some(network) = fabric.dcn.circuits() {
                circuits(report, network, plan);
            }
        }
        Subject::PlanAlone { plan } => {
            let mut section = PageSection::new("fabric", "The plan");
            tables(&mut section, plan, "groups");
            let faults = format!("with {} failed parts", plan.faults.len());
            let verdict = conclusion(plan, &faults);
            let figures = figures(plan, comparison);
            report.add(FirstScreen { verdict, figures, picture: None }, section);
        }
        Subject::None => {}
    }
}

pub(in super::super) fn lead(fabric: &Fabric) -> String {
    let hbd = &fabric.hbd;
    if let Some(network) = fabric.circuits_alone() {
        let spec = network.spec();
        return format!(
            "A reconfigurable fat-tree of {} GPUs: {} leaves of {}, {} optical switches next to a packet core.",
            fixed(f64::from(spec.leaves * spec.gpus_per_leaf), 0),
            spec.leaves,
            spec.gpus_per_leaf,
            network.switches(),
        );
    }
    let [gpus, nodes] =
        [fabric.gpus() as f64, fabric.installed().count() as f64].map(|count| fixed(count, 0));
    if hbd.ring().is_none() {
        let domain = match hbd.grouping() {
            Grouping::Anywhere => "without a high-bandwidth domain".to_owned(),
            _ => format!("each in a {}", hbd.name()),
        };
        return format!(
            "{gpus} GPUs: {nodes} nodes of {}, {domain}, over a network: {}.",
            hbd.gpus_per_node(),
            fabric.dcn.name(),
        );
    }
    let shape = match hbd.shape() {
        Shape::Ring => "ring",
        Shape::Line => "line",
    };
    format!(
        "A {k}-hop {shape} of {gpus} GPUs: {nodes} nodes of {}, each cabled to its {k} nearest on either side through \
         transceivers with an optical switch inside.",
        hbd.gpus_per_node(),
        k = hbd.k(),
    )
}

fn groups_name(fabric: &Fabric) -> &'static str {
    if fabric.hbd.ring().is_some() { "rings" } else { "groups" }
}

fn gpus(count: u64) -> String {
    ShownQuantity::new(count as f64, ShownUnit::Gpus).show()
}

fn conclusion(plan: &Plan, faults: &str) -> String {
    let metrics = &plan.metrics;
    if plan.jobs.is_empty() {
        return format!(
            "The fabric file contains no job: {} are idle {faults}.",
            gpus(metrics.gpus_wasted)
        );
    }
    let used = metrics.gpus_used as f64 / metrics.gpus_total.max(1) as f64;
    format!(
        "{} of {} work {faults}; {} are wasted (lower bound {}).",
        ShownQuantity::share(used).show(),
        gpus(metrics.gpus_total),
        ShownQuantity::share(metrics.waste_ratio).show(),
        ShownQuantity::share(metrics.waste_ratio_lower_bound).show(),
    )
}

fn figures(plan: &Plan, comparison: Option<&Comparison>) -> Vec<Headline> {
    let metrics = &plan.metrics;
    let of_all = format!("{} of {}", fixed(metrics.gpus_used as f64, 0), gpus(metrics.gpus_total));
    let used = metrics.gpus_used as f64 / metrics.gpus_total.max(1) as f64;
    let share = ShownQuantity::share;
    let third = match comparison.and_then(own_figures) {
        Some(own) => Headline::new(
            "wasted over the trace",
            share(own.waste_mean),
            format!("mean; an ideal switch {}", share(own.lower_bound_mean).show()),
            Some("waste_mean"),
        ),
        None => Headline::new(
            "traffic that crosses ToRs",
            share(metrics.cross_tor_share),
            match metrics.cross_tor_share_lower_bound {
                Some(bound) => {
                    format!("of inner data-parallel hops; bound {}", share(bound).show())
                }
                None => "of inner data-parallel hops".to_owned(),
            },
            Some("cross_tor_share"),
        ),
    };
    let bound = format!("lower bound {}", share(metrics.waste_ratio_lower_bound).show());
    vec![
        Headline::new("GPUs at work", share(used), of_all, Some("gpus_used")),
        Headline::new("GPUs wasted", share(metrics.waste_ratio), bound, Some("waste_ratio")),
        third,
    ]
}

fn tables(section: &mut PageSection, plan: &Plan, groups: &'static str) {
    let metrics = &plan.metrics;
    if metrics.waste_ratio > metrics.waste_ratio_lower_bound {
        if let Some(passing) = metrics.gpus_passing.filter(|passing| *passing > 0) {
            section.note(format!(
                "{} are spares in their rings (N + 1) and pass light through.",
                gpus(passing)
            ));
        } else if plan.jobs.iter().any(|job| job.gpus_wanted.is_some()) {
            section.note(
                "Working nodes next to failed ones remain idle where data-parallel peers share a ToR; bypasses use this reserve.",
            );
        }
    }
    match (metrics.gpus_faulty, plan.faults.len()) {
        (0, 0) => {}
        (0, 1) => section.note("One part has failed, but no whole node."),
        (0, parts) => section.note(format!("{parts} parts have failed, but no whole node.")),
        (faulty, _) => section.note(format!("{} are out of service.", gpus(faulty))),
    }
    let counts = [
        ("all", metrics.gpus_total),
        ("at work", metrics.gpus_used),
        ("spare", metrics.gpus_spare),
        ("wasted", metrics.gpus_wasted),
        ("out of service", metrics.gpus_faulty),
    ];
    let total = metrics.gpus_total as f64;
    let rows = counts
        .map(|(what, count)| json!({"what": what, "count": count, "share": count as f64 / total}));
    section.table(tables::table("gpus", rows));
    let mut table = tables::table("jobs", &plan.jobs);
    table.column(groups.to_owned(), None);
    for (index, row) in (0..).zip(&mut table.rows) {
        let groups = plan.groups.iter().filter(|group| group.job == Some(index)).count();
        row.push(Cell::count(groups as u64));
    }
    section.table(table);
}

fn proof(section: &mut PageSection, fabric: &Fabric, plan: &Plan, verdict: Verdict) {
    let checked = match fabric.hbd.ring() {
        Some(_) => format!(
            "{} rings are single cycles over {} GPUs, {} circuits are selected at both ends, {} bundles set",
            fixed(verdict.rings as f64, 0),
            fixed(verdict.gpus as f64, 0),
            fixed(verdict.circuits as f64, 0),
            fixed(verdict.bundles as f64, 0),
        ),
        None => format!(
            "{} groups over {} GPUs, each placed as the {} permits",
            fixed(plan.groups.len() as f64, 0),
            fixed(verdict.gpus as f64, 0),
            match fabric.hbd.grouping() {
                Grouping::Anywhere => "network".to_owned(),
                _ => fabric.hbd.name(),
            },
        ),
    };
    section.note(format!("Verified by a checker that shares no code with the planner: {checked}."));
}

fn circuits(report: &mut PageDocument, network: &ReconfigurableFatTree, plan: &Plan) {
    let metrics = &plan.metrics;
    let (Some(step), Some(dark)) = (metrics.step_time_ps, metrics.dark_port_time_share) else {
        return;
    };
    let fixed_step = metrics.static_step_time_ps.unwrap_or(step);
    let [follow, stay] = [step, fixed_step].map(|time| ShownQuantity::time(time.0));
    let times =
        ShownQuantity::new(stay.value / follow.value.max(f64::MIN_POSITIVE), ShownUnit::Times);
    let verdict = format!(
        "Circuits that follow the {} phases of a step let it communicate in {}; the best single topology takes {}, {} as long.",
        plan.phases.len(),
        follow.show(),
        stay.show(),
        times.show(),
    );
    let gap = plan.phases.iter().map(|phase| phase.gap).fold(0.0, f64::max);
    let beside = format!("{} with one topology for all phases", stay.show());
    let figures = vec![
        Headline::new("communication a step", follow, beside, Some("step_time_ps")),
        Headline::new(
            "gap to the bound",
            ShownQuantity::share(gap),
            "of the worst phase",
            Some("gap"),
        ),
        Headline::new(
            "ports dark",
            ShownQuantity::share(dark),
            "of port time over a step",
            Some("dark_port_time_share"),
        ),
    ];
    let bars = [
        ("circuits follow the phases", Tone::Own, follow),
        ("one topology for all", Tone::Other, stay),
    ];
    let bars = bars.map(|(name, tone, time)| Bar::new(name, tone, time));
    let caption = "Communication between leaves in a step of all jobs.";
    let picture = Picture::bars("step-bars", "time of a step's communication", bars, caption);
    let mut section = PageSection::new("network", "The network and its circuits");
    section.blocks.extend(drawn(network, &plan.phases).map(PageBlock::Picture));
    section.table(tables::table("phases", &plan.phases));
    section.table(tables::table("transitions", &plan.transitions));
    report.add(FirstScreen { verdict, figures, picture }, section);
}

fn drawn(network: &ReconfigurableFatTree, phases: &[PhasePlan]) -> Option<Picture> {
    let mut distinct: Vec<(&PhasePlan, Vec<&str>)> = Vec::new();
    for phase in phases.iter().filter(|phase| !phase.circuits.is_empty()) {
        match distinct.iter_mut().find(|(first, _)| first.circuits == phase.circuits) {
            Some((_, names)) => names.push(&phase.name),
            None => distinct.push((phase, vec![&phase.name])),
        }
    }
    let drawings = distinct.iter().take(MOST_DRAWN).map(|(phase, names)| Drawing {
        caption: format!("{}: {} circuits", names.join(", "), phase.circuits.len()),
        svg: picture::circuits(network.spec(), &phase.circuits),
    });
    let drawings: Vec<Drawing> = drawings.collect();
    (!drawings.is_empty()).then(|| Picture {
        id: "phases-drawn".to_owned(),
        caption: "A matrix of leaves: a filled cell marks a pair with circuits, and a darker cell more of them. Phases with equal circuits share a picture."
            .to_owned(),
        kind: PictureKind::Drawn { drawings, legend: Vec::new() },
    })
}
