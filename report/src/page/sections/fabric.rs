// SPDX-License-Identifier: Apache-2.0
//! The installed fabric and its plan.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Shape;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::Verdict;
use lightloom_units::Picoseconds;

use super::super::compose::{Used, headline};
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::drawing::states::Line;
use super::super::drawing::{ring, stretch, tree};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::Subject;

pub(in super::super) fn add(report: &mut PageDocument, used: &mut Used, subject: &Subject<'_>) {
    match subject {
        Subject::Fabric { fabric, plan, .. } if fabric.circuits_alone().is_some() => {
            circuits(report, used, (fabric, plan), ("fabric", "The fabric and its plan"));
        }
        Subject::Fabric { fabric, plan, verdict, .. } => {
            plan_headlines(report, used, plan);
            if fabric.hbd.ring().is_some() {
                cost_headlines(report, plan);
                parts(used, fabric);
                report.sections.push(ring_section(fabric, plan, *verdict));
            } else {
                report.sections.push(islands_section(fabric, plan, *verdict));
            }
            circuits(report, used, (fabric, plan), ("network", "The network and its circuits"));
        }
        Subject::PlanAlone { plan } => {
            plan_headlines(report, used, plan);
            cost_headlines(report, plan);
            let conclusion = plan_conclusion(plan);
            let mut section = PageSection::new("fabric", "The plan", conclusion);
            section.blocks.push(PageBlock::Table(jobs(plan)));
            report.sections.push(section);
        }
        Subject::None => {}
    }
}

/// Adds the circuits of the plan, if it has any.
fn circuits(
    report: &mut PageDocument,
    used: &mut Used,
    (fabric, plan): (&Fabric, &Plan),
    (id, title): (&'static str, &str),
) {
    let metrics = &plan.metrics;
    let (Some(network), Some(step), Some(dark)) =
        (fabric.dcn.circuits(), metrics.step_time_ps, metrics.dark_port_time_share)
    else {
        return;
    };
    let times = StepTimes { step, fixed: metrics.static_step_time_ps.unwrap_or(step), dark };
    tree_headlines(report, used, plan, times);
    let section = tree_section(network, plan, times);
    report.sections.push(PageSection { id, title: title.to_owned(), ..section });
}

/// Communication time of a step, also with one topology for all phases, and the dark share of port
/// time.
#[derive(Clone, Copy)]
struct StepTimes {
    step: Picoseconds,
    fixed: Picoseconds,
    dark: f64,
}

/// Describes a fabric in a sentence.
pub(in super::super) fn lead(fabric: &Fabric, faults: &str) -> String {
    let hbd = &fabric.hbd;
    if let Some(network) = fabric.circuits_alone() {
        let spec = network.spec();
        return format!(
            "A reconfigurable fat-tree of {} GPUs: {} leaves of {}, {} optical switches beside a packet core.",
            fixed(f64::from(spec.leaves * spec.gpus_per_leaf), 0),
            spec.leaves,
            spec.gpus_per_leaf,
            network.switches(),
        );
    }
    if hbd.ring().is_none() {
        let domain = match hbd.grouping() {
            Grouping::Anywhere => "without a high-bandwidth domain".to_owned(),
            _ => format!("each in a {}", hbd.name()),
        };
        return format!(
            "{} GPUs: {} nodes of {}, {domain}, over a network: {}. {faults}",
            fixed(hbd.gpus() as f64, 0),
            fixed(f64::from(hbd.nodes()), 0),
            hbd.gpus_per_node(),
            fabric.dcn.name(),
        );
    }
    let shape = match hbd.shape() {
        Shape::Ring => "ring",
        Shape::Line => "line",
    };
    format!(
        "A {}-hop {shape} of {} GPUs: {} nodes of {}, each cabled to its {} nearest on either side through \
         transceivers with an optical switch inside. {faults}",
        hbd.k(),
        fixed(hbd.gpus() as f64, 0),
        fixed(f64::from(hbd.nodes()), 0),
        hbd.gpus_per_node(),
        hbd.k(),
    )
}

fn plan_headlines(report: &mut PageDocument, used: &mut Used, plan: &Plan) {
    let metrics = &plan.metrics;
    let total = metrics.gpus_total as f64;
    let of = |count: u64| format!("{} of {} GPUs", fixed(count as f64, 0), fixed(total, 0));
    let share = |count: u64| count as f64 / total;
    headline(
        report,
        "GPUs at work",
        (share(metrics.gpus_used), ShownUnit::Share),
        of(metrics.gpus_used),
        "gpus_used",
    );
    let bound = ShownQuantity::share(metrics.waste_ratio_lower_bound).show();
    headline(
        report,
        "GPUs wasted",
        (metrics.waste_ratio, ShownUnit::Share),
        if let Some(passing) = metrics.gpus_passing.filter(|passing| *passing > 0) {
            format!(
                "bound {bound}; {} are spare in their rings (N + 1) and pass light on",
                of(passing)
            )
        } else if keeps_reserve(plan) {
            format!("bound {bound}; keeping ranks under one ToR makes the rest a reserve")
        } else {
            format!("lower bound {bound}")
        },
        "waste_ratio",
    );
    headline(
        report,
        "traffic that crosses ToRs",
        (metrics.cross_tor_share, ShownUnit::Share),
        match metrics.cross_tor_share_lower_bound {
            Some(bound) => {
                format!("of inner data-parallel hops; bound {}", ShownQuantity::share(bound).show())
            }
            None => "of inner data-parallel hops".to_owned(),
        },
        "cross_tor_share",
    );
    used.push(("gpus_used", of(metrics.gpus_used)));
    used.push(("gpus_spare", of(metrics.gpus_spare)));
    used.push(("gpus_faulty", of(metrics.gpus_faulty)));
    used.push((
        "waste_ratio",
        format!(
            "{} ÷ {} = {}",
            fixed(metrics.gpus_wasted as f64, 0),
            fixed(total, 0),
            ShownQuantity::share(metrics.waste_ratio).show()
        ),
    ));
    used.push(("waste_ratio_lower_bound", bound));
    used.push(("cross_tor_share", ShownQuantity::share(metrics.cross_tor_share).show()));
}

/// Adds cost and power if the fabric file specifies the parts, which only ring designs have.
fn cost_headlines(report: &mut PageDocument, plan: &Plan) {
    let metrics = &plan.metrics;
    headline(
        report,
        "interconnect",
        (metrics.cost_per_gpu_usd.unwrap_or_default().0, ShownUnit::Usd),
        "for each GPU, prices of the fabric file".to_owned(),
        "cost_per_gpu_usd",
    );
    headline(
        report,
        "interconnect power",
        (metrics.power_per_gpu_w.unwrap_or_default().0, ShownUnit::Watts),
        "for each GPU".to_owned(),
        "power_per_gpu_w",
    );
}

/// Adds the derivation of the fabric's cost and power with its numbers.
fn parts(used: &mut Used, fabric: &Fabric) {
    let (k, r) = (fabric.hbd.k(), fabric.hbd.gpus_per_node());
    let parts = &fabric.parts;
    let cables = 2 * (u32::from(r) - u32::from(k));
    used.push((
        "cost_per_gpu_usd",
        format!(
            "(8·{k} ÷ {r}) × ({} + {}) + ({cables} ÷ {r}) × {} = {}",
            parts.ocstrx,
            parts.fibre,
            parts.dac,
            fabric.cost_per_gpu()
        ),
    ));
    used.push((
        "power_per_gpu_w",
        format!(
            "(8·{k} ÷ {r}) × {} + ({cables} ÷ {r}) × {} = {}",
            parts.ocstrx_power,
            parts.dac_power,
            fabric.power_per_gpu()
        ),
    ));
}

/// Returns whether working nodes are idle because equal ranks are kept below one ToR.
fn keeps_reserve(plan: &Plan) -> bool {
    let metrics = &plan.metrics;
    metrics.waste_ratio > metrics.waste_ratio_lower_bound
        && plan.jobs.iter().any(|job| job.gpus_wanted.is_some())
}

fn plan_conclusion(plan: &Plan) -> String {
    let metrics = &plan.metrics;
    let gpus = |count: u64| ShownQuantity::new(count as f64, ShownUnit::Gpus).show();
    if plan.jobs.is_empty() {
        return format!(
            "The fabric file names no job, so no ring is lit: {} stand idle and {} are out of service.",
            gpus(metrics.gpus_wasted),
            gpus(metrics.gpus_faulty)
        );
    }
    let rings = plan.groups.iter().filter(|group| group.job.is_some()).count();
    let jobs = if plan.jobs.len() == 1 {
        "one job".to_owned()
    } else {
        format!("{} jobs", plan.jobs.len())
    };
    let reason = if keeps_reserve(plan) {
        " Working nodes beside broken ones stay idle where equal ranks are kept under one ToR: the reserve that bypasses \
         draw on."
    } else {
        ""
    };
    let out = match (metrics.gpus_faulty, plan.faults.len()) {
        (0, 0) => "Nothing is out of service".to_owned(),
        (0, 1) => "One part is broken, and no node as a whole".to_owned(),
        (0, parts) => format!("{parts} parts are broken, and no node as a whole"),
        (faulty, _) => format!("{} are out of service", gpus(faulty)),
    };
    format!(
        "{out}; {} work for {jobs} in {} rings, {} stand ready in spare rings, and {} are wasted.{reason}",
        gpus(metrics.gpus_used),
        fixed(rings as f64, 0),
        gpus(metrics.gpus_spare),
        gpus(metrics.gpus_wasted),
    )
}

/// Returns the section for groups in islands or anywhere in the network, where there is no line of
/// nodes to draw.
fn islands_section(fabric: &Fabric, plan: &Plan, verdict: Verdict) -> PageSection {
    let mut section = PageSection::new("fabric", "The fabric and its plan", plan_conclusion(plan));
    section.blocks.push(PageBlock::Table(gpus(plan)));
    section.blocks.push(PageBlock::Table(jobs(plan)));
    section.blocks.push(PageBlock::Note(format!(
        "Proven by a checker that shares no code with the planner: {} groups over {} GPUs, each where a {} lets it be.",
        fixed(plan.groups.len() as f64, 0),
        fixed(verdict.gpus as f64, 0),
        match fabric.hbd.grouping() {
            Grouping::Anywhere => "network".to_owned(),
            _ => fabric.hbd.name(),
        },
    )));
    section
}

fn ring_section(fabric: &Fabric, plan: &Plan, verdict: Verdict) -> PageSection {
    let line = Line::new(fabric, plan);
    let mut section = PageSection::new("fabric", "The fabric and its plan", plan_conclusion(plan));
    let (svg, per_wedge) = ring::draw(&line);
    let bypasses = line.bypasses().count();
    let breaks = line.breaks().len();
    let scale = if per_wedge == 1 {
        "Every wedge is a node; inside, bows are lit bypasses; outside, marks are nodes out of service.".to_owned()
    } else {
        format!(
            "Every wedge stands for {per_wedge} nodes and shows their shares; spikes outside count nodes out of service, \
             spikes inside count lit bypasses."
        )
    };
    let caption = format!(
        "The line of nodes, clockwise from the top. {scale} {} bypasses lead past broken or idle nodes; {}.",
        fixed(bypasses as f64, 0),
        match breaks {
            0 => "nowhere does the line fall apart".to_owned(),
            1 => "at one place the line falls apart".to_owned(),
            count => format!("at {count} places the line falls apart"),
        },
    );
    section.blocks.push(PageBlock::Figure(Figure {
        id: "ring",
        svg: format!("<div class=\"beside\">{svg}{}</div>", legend(plan)),
        caption,
        data: vec![gpus(plan)],
    }));
    section.blocks.push(PageBlock::Figure(Figure {
        id: "stretch",
        svg: stretch::draw(&line),
        caption: "The stretch with the most broken nodes, node by node. Bows are lit fibres, the high ones bypasses; bars \
                  below are the rings that the nodes belong to."
            .to_owned(),
        data: vec![],
    }));
    section.blocks.push(PageBlock::Table(jobs(plan)));
    section.blocks.push(PageBlock::Note(format!(
        "Proven by a checker that shares no code with the planner: {} rings are single cycles over {} GPUs, {} circuits are \
         selected at both ends, {} bundles set.",
        fixed(verdict.rings as f64, 0),
        fixed(verdict.gpus as f64, 0),
        fixed(verdict.circuits as f64, 0),
        fixed(verdict.bundles as f64, 0),
    )));
    section
}

/// Returns the colour legend with counts.
fn legend(plan: &Plan) -> String {
    let metrics = &plan.metrics;
    let mut rows: Vec<(String, String, u64)> = plan
        .jobs
        .iter()
        .enumerate()
        .map(|(index, job)| {
            (format!("used-{}", index % 4), format!("job {} (TP-{})", job.name, job.tp), job.gpus)
        })
        .collect();
    rows.push(("spare".to_owned(), "spare rings".to_owned(), metrics.gpus_spare));
    rows.push(("idle".to_owned(), "idle".to_owned(), metrics.gpus_wasted));
    rows.push(("faulty".to_owned(), "out of service".to_owned(), metrics.gpus_faulty));
    let row = |(class, name, gpus): &(String, String, u64)| {
        format!(
            "<li><i class=\"key {class}\"></i><span>{}</span><b>{}</b></li>",
            super::super::drawing::escaped(name),
            ShownQuantity::new(*gpus as f64, ShownUnit::Gpus).show()
        )
    };
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<ul class=\"legend\">{rows}<li><i class=\"key bypass-key\"></i><span>lit bypass</span><b></b></li></ul>"
    )
}

fn gpus(plan: &Plan) -> FigureTable {
    let metrics = &plan.metrics;
    let total = metrics.gpus_total as f64;
    let mut table = FigureTable::new("gpus", "What the GPUs do")
        .words("GPUs")
        .numbers("count")
        .numbers("share");
    for (what, count) in [
        ("all", metrics.gpus_total),
        ("at work", metrics.gpus_used),
        ("spare", metrics.gpus_spare),
        ("wasted", metrics.gpus_wasted),
        ("out of service", metrics.gpus_faulty),
    ] {
        table.row([
            Cell::text(what),
            Cell::number(count as f64, ShownUnit::Gpus),
            Cell::share(count as f64 / total),
        ]);
    }
    table
}

fn jobs(plan: &Plan) -> FigureTable {
    let mut table = FigureTable::new("jobs", "Jobs")
        .words("job")
        .numbers("TP")
        .numbers("GPUs")
        .numbers("rings")
        .defined("crosses ToRs", "cross_tor_share")
        .numbers("lower bound");
    for (index, job) in (0..).zip(&plan.jobs) {
        let rings = plan.groups.iter().filter(|group| group.job == Some(index)).count();
        table.row([
            Cell::text(&job.name),
            Cell::number(f64::from(job.tp), ShownUnit::Count),
            Cell::number(job.gpus as f64, ShownUnit::Gpus),
            Cell::number(rings as f64, ShownUnit::Count),
            Cell::share(job.cross_tor_share),
            job.cross_tor_share_lower_bound.map_or_else(|| Cell::text("–"), Cell::share),
        ]);
    }
    table
}

fn seconds(time: Picoseconds) -> f64 {
    time.as_secs_f64()
}

fn tree_headlines(report: &mut PageDocument, used: &mut Used, plan: &Plan, times: StepTimes) {
    let gap = plan.phases.iter().map(|phase| phase.gap).fold(0.0, f64::max);
    let fixed_step = ShownQuantity::new(seconds(times.fixed), ShownUnit::Seconds).show();
    headline(
        report,
        "communication a step",
        (seconds(times.step), ShownUnit::Seconds),
        format!("{fixed_step} with one topology for all phases"),
        "step_time_ps",
    );
    headline(
        report,
        "gap to the bound",
        (gap, ShownUnit::Share),
        "of the worst phase".to_owned(),
        "gap",
    );
    headline(
        report,
        "ports dark",
        (times.dark, ShownUnit::Share),
        "of port time over a step".to_owned(),
        "dark_port_time_share",
    );
    used.push((
        "step_time_ps",
        "sum over the phases of 1 ÷ lambda, and the switching that no slack hides".to_owned(),
    ));
    used.push(("gap", "1 − lambda ÷ its upper bound, largest over the phases".to_owned()));
    used.push((
        "dark_port_time_share",
        "port time spent dark ÷ port time of a step, slack included".to_owned(),
    ));
}

fn tree_section(fabric: &ReconfigurableFatTree, plan: &Plan, times: StepTimes) -> PageSection {
    let faster = seconds(times.fixed) / seconds(times.step).max(f64::MIN_POSITIVE);
    let conclusion = format!(
        "Circuits that follow the {} phases of a step let it communicate in {}; the best single topology takes {}: {} as long.",
        plan.phases.len(),
        ShownQuantity::new(seconds(times.step), ShownUnit::Seconds).show(),
        ShownQuantity::new(seconds(times.fixed), ShownUnit::Seconds).show(),
        ShownQuantity::new(faster, ShownUnit::Times).show(),
    );
    let mut section = PageSection::new("fabric", "The fabric and its plan", conclusion);
    let circuits = plan.phases.first().map_or(&[][..], |phase| &phase.circuits);
    let first = plan.phases.first().map_or("", |phase| phase.name.as_str());
    section.blocks.push(PageBlock::Figure(Figure {
        id: "tree",
        svg: format!("<div class=\"scroll\">{}</div>", tree::tree(fabric.spec(), circuits)),
        caption: format!("Leaves, banks of optical switches and the packet core. Lines are as wide as the circuits of phase {first} that end there."),
        data: vec![],
    }));
    let circles: String = plan
        .phases
        .iter()
        .take(12)
        .map(|phase| tree::circle(fabric.spec(), &phase.name, &phase.circuits))
        .collect();
    section.blocks.push(PageBlock::Figure(Figure {
        id: "phases-drawn",
        svg: format!("<div class=\"multiples\">{circles}</div>"),
        caption: "What each phase makes of the leaves: chords are circuits, wider where there are more between two leaves.".to_owned(),
        data: vec![],
    }));
    section.blocks.push(PageBlock::Table(phases(plan)));
    if !plan.transitions.is_empty() {
        section.blocks.push(PageBlock::Table(transitions(plan)));
    }
    section
}

fn phases(plan: &Plan) -> FigureTable {
    let mut table = FigureTable::new("phases", "Phases")
        .words("phase")
        .words("topology for")
        .numbers("circuits")
        .numbers("sends")
        .defined("time", "step_time_ps")
        .numbers("served a second")
        .numbers("bound")
        .defined("gap", "gap");
    let rate = |rate: f64| Cell::Shown {
        value: Some(rate),
        unit: "1/s",
        text: format!("{}\u{a0}/s", fixed(rate, 3)),
    };
    for phase in &plan.phases {
        table.row([
            Cell::text(&phase.name),
            Cell::text(&phase.topology),
            Cell::number(phase.circuits.len() as f64, ShownUnit::Count),
            Cell::number(phase.demand_bytes.0 as f64, ShownUnit::Bytes),
            Cell::number(seconds(phase.duration_ps), ShownUnit::Seconds),
            rate(phase.lambda),
            rate(phase.lambda_upper_bound),
            Cell::share(phase.gap),
        ]);
    }
    table
}

fn transitions(plan: &Plan) -> FigureTable {
    let mut table = FigureTable::new("transitions", "Changes between phases")
        .words("from")
        .words("to")
        .numbers("stages")
        .numbers("circuits kept")
        .numbers("dark")
        .numbers("of it not hidden")
        .numbers("least rate left");
    for change in &plan.transitions {
        table.row([
            Cell::text(&change.from),
            Cell::text(&change.to),
            Cell::number(change.stages.len() as f64, ShownUnit::Count),
            Cell::number(change.circuits_kept as f64, ShownUnit::Count),
            Cell::number(seconds(change.dark_time_ps), ShownUnit::Seconds),
            Cell::number(seconds(change.exposed_ps), ShownUnit::Seconds),
            Cell::share(change.floor),
        ]);
    }
    table
}
