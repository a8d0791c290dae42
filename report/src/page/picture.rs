// SPDX-License-Identifier: Apache-2.0
//! Draws fabrics with the nodes in line order, and the circuits between leaves.

use std::collections::BTreeMap;
use std::fmt::Write;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::{CrossConnect, FatTreeSpec};
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{GroupId, NodeId};

use super::document::{Drawing, LegendRow, Picture, PictureKind};
use super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::templates::escaped;

const COLUMNS: usize = 40;
const CELL: usize = 20;
const STEP: usize = 24;
const ROW: usize = 32;
/// Larger fabrics are drawn with at most [`MOST_SQUARES`] squares.
const MOST_NODES_ALONE: usize = 1_024;
const MOST_SQUARES: usize = 480;
const MOST_SECTORS: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Used(u32),
    Spare,
    Idle,
    Faulty,
}

impl State {
    fn class(self) -> String {
        match self {
            Self::Used(job) => format!("used-{}", job % 4),
            Self::Spare => "spare".to_owned(),
            Self::Idle => "idle".to_owned(),
            Self::Faulty => "faulty".to_owned(),
        }
    }
}

#[derive(Clone, Debug)]
struct LineNode {
    id: NodeId,
    state: State,
    group: Option<GroupId>,
    broken_parts: u32,
}

fn line(fabric: &Fabric, plan: &Plan) -> Vec<LineNode> {
    let hbd = &fabric.hbd;
    let ids = (0..hbd.nodes()).map(NodeId);
    let nodes = ids.map(|id| LineNode { id, state: State::Idle, group: None, broken_parts: 0 });
    let mut line: Vec<LineNode> = nodes.collect();
    line.sort_by_key(|node| hbd.position_of(node.id).index());
    for group in &plan.groups {
        for &node in &group.nodes {
            let node = &mut line[hbd.position_of(node).index()];
            node.state = group.job.map_or(State::Spare, State::Used);
            node.group = Some(group.id);
        }
    }
    for part in &plan.faults {
        let Some(node) = part.node() else { continue };
        let place = &mut line[hbd.position_of(node).index()];
        match part {
            // Drained nodes count as idle, because they work.
            Part::Node(node) if fabric.drained.nodes.contains(node) => {}
            Part::Node(_) => place.state = State::Faulty,
            _ => place.broken_parts += 1,
        }
    }
    line
}

fn bypasses(fabric: &Fabric, plan: &Plan) -> Vec<(usize, usize)> {
    let nodes = fabric.hbd.nodes() as usize;
    let lit = plan.circuits.iter().map(|circuit| {
        let [a, b] =
            [circuit.a, circuit.b].map(|port| fabric.hbd.position_of(port.bundle.node).index());
        let (low, hops) = (a.min(b), a.abs_diff(b));
        if hops <= nodes - hops { (low, hops) } else { (a.max(b), nodes - hops) }
    });
    lit.filter(|(_, hops)| *hops >= 2).collect()
}

pub(super) fn nodes(fabric: &Fabric, plan: &Plan) -> Picture {
    let line = line(fabric, plan);
    let per_square = match line.len() {
        0..=MOST_NODES_ALONE => 1,
        nodes => nodes.div_ceil(MOST_SQUARES),
    };
    let squares = line.len().div_ceil(per_square);
    let bypasses = bypasses(fabric, plan);
    let mut body = String::new();
    for (index, nodes) in line.chunks(per_square).enumerate() {
        square(&mut body, index, nodes, plan);
    }
    if per_square == 1 && !bypasses.is_empty() {
        let bows = bypasses.iter().map(|(from, hops)| bow(*from, *hops));
        let _ = write!(body, r#"<path class="bypass" d="{}"/>"#, bows.collect::<String>());
    }
    let (width, height) = (STEP * squares.min(COLUMNS), ROW * squares.div_ceil(COLUMNS));
    let svg = format!(
        r#"<svg class="nodes" viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img" data-marks="path" preserveAspectRatio="xMinYMin">{body}</svg>"#
    );
    Picture {
        id: "nodes".to_owned(),
        caption: caption(fabric, &line, per_square, bypasses.len()),
        kind: PictureKind::Drawn {
            drawings: vec![Drawing { caption: String::new(), svg }],
            legend: legend(plan),
        },
    }
}

fn square(out: &mut String, index: usize, nodes: &[LineNode], plan: &Plan) {
    let (x, mut y) = (index % COLUMNS * STEP + 2, index / COLUMNS * ROW + 2);
    let title = match nodes {
        [node] => describe(node, plan),
        nodes => {
            let out = nodes.iter().filter(|node| node.state == State::Faulty).count();
            let [first, last] = [&nodes[0], &nodes[nodes.len() - 1]].map(|node| node.id);
            format!("{first} to {last}: {out} of {} nodes out of service", nodes.len())
        }
    };
    let mut states: Vec<State> = nodes.iter().map(|node| node.state).collect();
    states.sort_unstable();
    let _ = write!(out, "<g><title>{}</title>", escaped(&title));
    let bottom = y + CELL;
    let mut left = states.len();
    for equal in states.chunk_by(|a, b| a == b) {
        let height = ((bottom - y) * equal.len() / left).max(1);
        left -= equal.len();
        let shade = match nodes[0].group {
            Some(group) if nodes.len() == 1 && group.0 % 2 == 1 => " odd",
            _ => "",
        };
        let class = equal[0].class();
        let _ =
            write!(out, r#"<path class="{class}{shade}" d="M{x},{y}h{CELL}v{height}h-{CELL}z"/>"#);
        y = (y + height).min(bottom - 1);
    }
    if let [LineNode { broken_parts: 1.., .. }] = nodes {
        let (x, y) = (x + 6, bottom - CELL + 6);
        let _ = write!(out, r#"<path class="faulty" d="M{x},{y}h8v8h-8z"/>"#);
    }
    out.push_str("</g>");
}

fn bow(from: usize, hops: usize) -> String {
    let (x, y) = (from % COLUMNS * STEP + 2 + CELL / 2, from / COLUMNS * ROW + 2 + CELL);
    let across = (hops * STEP).min(COLUMNS * STEP - x);
    format!("M{x},{y}v5h{across}v-5")
}

fn describe(node: &LineNode, plan: &Plan) -> String {
    let state = match node.state {
        State::Used(job) => plan.jobs.get(job as usize).map_or("?", |job| job.name.as_str()),
        State::Spare => "spare",
        State::Idle => "idle",
        State::Faulty => "out of service",
    };
    let group = node.group.map_or(String::new(), |group| format!(", {group}"));
    let parts = match node.broken_parts {
        0 => String::new(),
        count => format!(", {count} failed bundles or fibres"),
    };
    format!("{}: {state}{group}{parts}", node.id)
}

fn caption(fabric: &Fabric, line: &[LineNode], per_square: usize, bypasses: usize) -> String {
    let squares = match per_square {
        1 => "Each square represents a node; a red dot marks failed bundles or fibres.".to_owned(),
        _ => format!("Each square represents {per_square} nodes, divided by state."),
    };
    if fabric.hbd.ring().is_none() {
        return squares;
    }
    let runs = line.chunk_by(|a, b| (a.state == State::Faulty) == (b.state == State::Faulty));
    let wide = usize::from(fabric.hbd.k());
    let cuts = runs.filter(|run| run[0].state == State::Faulty && run.len() >= wide);
    let cuts = match cuts.count() {
        0 => "no gap cuts the line".to_owned(),
        1 => "1 gap is wider than a fibre and cuts the line".to_owned(),
        count => format!("{count} gaps are wider than a fibre and cut the line"),
    };
    format!(
        "The line of nodes, row by row. {squares} {} lit bypasses skip failed or idle nodes; {cuts}.",
        fixed(bypasses as f64, 0)
    )
}

fn legend(plan: &Plan) -> Vec<LegendRow> {
    let metrics = &plan.metrics;
    let jobs = (0..).zip(&plan.jobs).map(|(index, job)| {
        (State::Used(index), format!("job {} (TP-{})", job.name, job.tp), job.gpus)
    });
    let others = [
        (State::Spare, "spare".to_owned(), metrics.gpus_spare),
        (State::Idle, "idle or drained".to_owned(), metrics.gpus_wasted),
        (State::Faulty, "out of service".to_owned(), metrics.gpus_faulty),
    ];
    let rows = jobs.chain(others).filter(|(.., gpus)| *gpus > 0);
    rows.map(|(state, name, gpus)| LegendRow {
        class: state.class(),
        name,
        gpus: ShownQuantity::new(gpus as f64, ShownUnit::Gpus).show(),
    })
    .collect()
}

pub(super) fn circuits(spec: &FatTreeSpec, circuits: &[CrossConnect]) -> String {
    let per_sector = spec.leaves.div_ceil(MOST_SECTORS);
    let sectors = spec.leaves.div_ceil(per_sector);
    let mut pairs: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for circuit in circuits {
        let (a, b) = (circuit.a.0 / per_sector, circuit.b.0 / per_sector);
        *pairs.entry((a, b)).or_default() += 1;
        if !spec.banks[0].one_way {
            *pairs.entry((b, a)).or_default() += 1;
        }
    }
    let most = pairs.values().copied().max().unwrap_or(1);
    let mut by_count: BTreeMap<usize, String> = BTreeMap::new();
    for ((a, b), count) in pairs {
        let _ = write!(by_count.entry(count).or_default(), "M{a},{b}h1v1h-1z");
    }
    let mut body = format!(r#"<path class="frame" d="M0,0h{sectors}v{sectors}h-{sectors}z"/>"#);
    for (count, cells) in by_count {
        let opacity = 0.25 + 0.75 * count as f64 / most as f64;
        let _ = write!(body, r#"<path class="used-0" fill-opacity="{opacity:.2}" d="{cells}"/>"#);
    }
    format!(
        r#"<svg class="matrix" viewBox="0 0 {sectors} {sectors}" role="img" data-marks="path">{body}</svg>"#
    )
}
