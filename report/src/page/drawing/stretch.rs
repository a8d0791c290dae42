// SPDX-License-Identifier: Apache-2.0
//! A section of the line, node by node: boxes for nodes, arcs for fibres with light, a bar for each
//! ring. It shows the location with the most failed nodes, for any size of fabric.

use std::fmt::Write;

use super::escaped;
use super::states::{Line, State};

/// Number of nodes on wide and on narrow screens.
const SHOWN: [u32; 2] = [20, 7];
const NODE_PX: u32 = 48;
const BOX_PX: u32 = 30;
const HEIGHT_PX: u32 = 172;
const TOP_PX: u32 = 84;

pub(in super::super) fn draw(line: &Line<'_>) -> String {
    let shown = SHOWN.map(|shown| shown.min(line.nodes()));
    let of = |name, shown| variant(line, name, worst(line, shown), shown);
    of("wide", shown[0]) + &of("narrow", shown[1])
}

/// Returns the start of the section of this length with the most failed nodes, centred on them.
fn worst(line: &Line<'_>, length: u32) -> u32 {
    let broken = |place: u32| line.states[place as usize] == State::Faulty;
    let mut count = (0..length).filter(|place| broken(*place)).count();
    let mut best = (count, 0, 0);
    for start in 1..=line.nodes() - length {
        count -= usize::from(broken(start - 1));
        count += usize::from(broken(start + length - 1));
        // While the count stays equal, the window may move on: keep the last start with this count.
        if count > best.0 {
            best = (count, start, start);
        } else if count == best.0 && start == best.2 + 1 {
            best.2 = start;
        }
    }
    if best.0 == 0 { 0 } else { best.1.midpoint(best.2) }
}

fn variant(line: &Line<'_>, name: &str, start: u32, length: u32) -> String {
    let width = NODE_PX * length + 20;
    let mut body = String::new();
    bows(&mut body, line, start, length);
    for offset in 0..length {
        node(&mut body, line, start + offset, offset);
    }
    rings(&mut body, line, start, length);
    format!(
        "<svg class=\"stretch {name}\" viewBox=\"0 0 {width} {HEIGHT_PX}\" role=\"img\" data-marks=\".node\">\n{body}</svg>\n"
    )
}

fn node(out: &mut String, line: &Line<'_>, place: u32, offset: u32) {
    let left = 10 + NODE_PX * offset + (NODE_PX - BOX_PX) / 2;
    let middle = left + BOX_PX / 2;
    let state = line.states[place as usize];
    let _ = write!(
        out,
        r#"<g class="node"><title>{}</title><rect class="{}" x="{left}" y="{TOP_PX}" width="{BOX_PX}" height="{BOX_PX}" rx="4"/>"#,
        escaped(&line.describe(place)),
        state.class(),
    );
    if state == State::Faulty {
        let (right, bottom) = (left + BOX_PX - 9, TOP_PX + BOX_PX - 9);
        let (l, t) = (left + 9, TOP_PX + 9);
        let _ = write!(
            out,
            r#"<path class="cross" d="M{l},{t}L{right},{bottom}M{right},{t}L{l},{bottom}"/>"#
        );
    }
    let _ = writeln!(
        out,
        r#"<text class="small" x="{middle}" y="{}" text-anchor="middle">{}</text></g>"#,
        TOP_PX + BOX_PX + 14,
        line.node(place),
    );
}

/// Draws fibres with light that end in the section, emphasising those that skip a node.
fn bows(out: &mut String, line: &Line<'_>, start: u32, length: u32) {
    let x = |place: u32| 10 + NODE_PX * (place - start) + NODE_PX / 2;
    let inside = |place: u32| (start..start + length).contains(&place);
    for lit in &line.lit {
        let to = lit.from + lit.hops;
        if !inside(lit.from) || !inside(to) {
            continue;
        }
        let (class, rise) = if lit.hops >= 2 { ("bypass", 26 * lit.hops) } else { ("fibre", 22) };
        let (a, b) = (x(lit.from), x(to));
        let peak = i64::from(TOP_PX) - i64::from(rise.min(76)) * 4 / 3;
        let _ = writeln!(
            out,
            r#"<path class="{class}" d="M{a},{y}C{c1},{peak} {c2},{peak} {b},{y}"><title>lit fibre {} – {}, {} places</title></path>"#,
            line.node(lit.from),
            line.node(to),
            lit.hops,
            y = TOP_PX - 2,
            c1 = a + (b - a) / 5,
            c2 = b - (b - a) / 5,
        );
    }
}

/// Draws a bar below the nodes of each ring of GPUs.
fn rings(out: &mut String, line: &Line<'_>, start: u32, length: u32) {
    let y = TOP_PX + BOX_PX + 24;
    // A ring may skip failed and idle nodes, wrap around a closed line, and interleave with another
    // ring: draw one bar per run without another ring in between.
    let mut runs: Vec<(_, u32, u32)> = Vec::new();
    for place in start..start + length {
        let Some(group) = line.groups[place as usize] else { continue };
        match runs.last_mut() {
            Some((same, _, last)) if *same == group => *last = place,
            _ => runs.push((group, place, place)),
        }
    }
    for (group, place, last) in runs {
        let (left, right) =
            (10 + NODE_PX * (place - start) + 6, 10 + NODE_PX * (last - start + 1) - 6);
        let state = line.states[place as usize];
        let _ = writeln!(
            out,
            r#"<path class="bar {}" d="M{left},{y}H{right}"/><text class="small" x="{}" y="{}" text-anchor="middle">{group}</text>"#,
            state.class(),
            left.midpoint(right),
            y + 18,
        );
    }
}
