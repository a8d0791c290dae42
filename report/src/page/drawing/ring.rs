// SPDX-License-Identifier: Apache-2.0
//! The ring of a k-hop fabric, seen from above. Up to about a thousand nodes, each has its own
//! wedge; beyond that, a wedge covers several nodes and shows shares.
//!
//! ```text
//!   outside   sub-lines or aggregation domains; spikes: nodes out of service
//!   band      states of the nodes
//!   inside    bypasses: fibres with light that skip a node
//!   middle    GPUs in use
//! ```

use std::fmt::Write;

use lightloom_fabric::dcn::Order;
use lightloom_fabric::khop::Shape;

use super::states::{Line, State};
use super::{escaped, polar, px, wedge};

const SIZE: f64 = 640.0;
const MIDDLE: f64 = SIZE / 2.0;
const BAND: [f64; 2] = [206.0, 252.0];
const SPIKES: [f64; 2] = [256.0, 284.0];
const LABELS: f64 = 300.0;
/// Largest number of nodes with individual wedges.
const MOST_NODES_ALONE: u32 = 1_024;
/// Maximum number of wedges beyond that.
const MOST_WEDGES: u32 = 480;
/// Largest number of nodes that are all labelled, with every lit fibre drawn.
const MOST_LABELLED: u32 = 40;

/// Returns the drawing and the number of nodes per wedge.
pub(in super::super) fn draw(line: &Line<'_>) -> (String, u32) {
    let nodes = line.nodes();
    let per_wedge = if nodes <= MOST_NODES_ALONE { 1 } else { nodes.div_ceil(MOST_WEDGES) };
    let ring = Ring { line, gap: if line.fabric.hbd.shape() == Shape::Line { 0.012 } else { 0.0 } };
    let mut body = String::new();
    ring.sections(&mut body);
    if per_wedge == 1 {
        ring.single_nodes(&mut body)
    } else {
        ring.stretches(&mut body, per_wedge)
    }
    ring.breaks(&mut body);
    ring.middle(&mut body);
    let svg = format!(
        "<svg class=\"ring\" viewBox=\"0 0 {SIZE} {SIZE}\" role=\"img\" data-marks=\".band path\">\n{body}</svg>\n"
    );
    (svg, per_wedge)
}

struct Ring<'a> {
    line: &'a Line<'a>,
    /// Gap in turns at the top for an open line.
    gap: f64,
}

impl Ring<'_> {
    /// Returns the start of a position, in turns.
    fn turns(&self, place: f64) -> f64 {
        self.gap + place / f64::from(self.line.nodes()) * (1.0 - 2.0 * self.gap)
    }

    fn span(&self, from: u32, to: u32) -> [f64; 2] {
        [self.turns(f64::from(from)), self.turns(f64::from(to))]
    }

    fn single_nodes(&self, out: &mut String) {
        let nodes = self.line.nodes();
        out.push_str("<g class=\"band\">\n");
        for place in 0..nodes {
            let _ = writeln!(
                out,
                r#"<path class="{}" d="{}"><title>{}</title></path>"#,
                self.line.states[place as usize].class(),
                wedge(MIDDLE, BAND, self.span(place, place + 1)),
                escaped(&self.line.describe(place)),
            );
        }
        out.push_str("</g>\n");
        self.between_groups(out);
        for place in 0..nodes {
            if self.line.states[place as usize] == State::Faulty {
                let middle = self.turns(f64::from(place) + 0.5);
                let wide = (1.0 / f64::from(nodes)).clamp(0.003, 0.01);
                let turns = [middle - wide / 2.0, middle + wide / 2.0];
                let _ = writeln!(
                    out,
                    r#"<path class="faulty" d="{}"><title>{}</title></path>"#,
                    wedge(MIDDLE, [SPIKES[0], SPIKES[0] + 14.0], turns),
                    escaped(&self.line.describe(place)),
                );
            }
            if self.line.broken_parts[place as usize] > 0 {
                let at = polar(MIDDLE, SPIKES[0] + 8.0, self.turns(f64::from(place) + 0.5));
                let (x, y) = at.split_once(',').unwrap_or_default();
                let _ = writeln!(
                    out,
                    r#"<circle class="faulty" cx="{x}" cy="{y}" r="4"><title>{}</title></circle>"#,
                    escaped(&self.line.describe(place))
                );
            }
        }
        self.fibres(out);
        if nodes <= MOST_LABELLED {
            for place in 0..nodes {
                self.label(
                    out,
                    LABELS - 22.0,
                    f64::from(place) + 0.5,
                    &self.line.node(place).to_string(),
                );
            }
        }
    }

    /// Draws a thin line between adjacent rings of GPUs.
    fn between_groups(&self, out: &mut String) {
        let mut data = String::new();
        for place in 1..self.line.nodes() {
            let (before, here) =
                (self.line.groups[place as usize - 1], self.line.groups[place as usize]);
            if before != here {
                let turns = self.turns(f64::from(place));
                let _ = write!(
                    data,
                    "M{}L{}",
                    polar(MIDDLE, BAND[0], turns),
                    polar(MIDDLE, BAND[1], turns)
                );
            }
        }
        let _ = writeln!(out, r#"<path class="seam" d="{data}"/>"#);
    }

    /// Draws fibres with light as arcs inside the band: all of a small ring, only bypasses of a
    /// larger one.
    fn fibres(&self, out: &mut String) {
        let nodes = self.line.nodes();
        let (mut plain, mut bypass) = (String::new(), String::new());
        for lit in &self.line.lit {
            let is_bypass = lit.hops >= 2;
            if !is_bypass && nodes > 2 * MOST_LABELLED {
                continue;
            }
            let (from, to) = (f64::from(lit.from) + 0.5, f64::from(lit.from + lit.hops) + 0.5);
            let turns = [self.turns(from), self.turns(to)];
            // Long arcs extend further inwards; short ones on a large ring keep a visible depth.
            let depth = ((turns[1] - turns[0]) * 700.0).clamp(14.0, 110.0)
                + if is_bypass { 10.0 } else { 0.0 };
            let radius = BAND[0] - 2.0;
            let _ = write!(
                if is_bypass { &mut bypass } else { &mut plain },
                "M{}Q{} {}",
                polar(MIDDLE, radius, turns[0]),
                polar(MIDDLE, radius - depth, (turns[0] + turns[1]) / 2.0),
                polar(MIDDLE, radius, turns[1]),
            );
        }
        let _ = writeln!(
            out,
            r#"<path class="fibre" d="{plain}"/><path class="bypass" d="{bypass}"/>"#
        );
    }

    /// Draws wedges that cover several nodes: stacked shares of states, with failed nodes and
    /// bypasses as spikes.
    fn stretches(&self, out: &mut String, per_wedge: u32) {
        let nodes = self.line.nodes();
        let wedges = nodes.div_ceil(per_wedge) as usize;
        let mut bypasses = vec![0_u32; wedges];
        for lit in self.line.bypasses() {
            bypasses[(lit.from / per_wedge) as usize] += 1;
        }
        let range = |index: usize| {
            let from = index as u32 * per_wedge;
            from..(from + per_wedge).min(nodes)
        };
        let out_in = |index: usize| {
            self.line.states[range(index).start as usize..range(index).end as usize]
                .iter()
                .filter(|state| **state == State::Faulty)
                .count() as u32
        };
        let most_out = (0..wedges).map(out_in).max().unwrap_or(0).max(1);
        let most_bypasses = bypasses.iter().copied().max().unwrap_or(0).max(1);
        out.push_str("<g class=\"band\">\n");
        for (index, &bypasses) in bypasses.iter().enumerate() {
            let places = range(index);
            let [from, to] = self.span(places.start, places.end);
            // Overlap the wedges slightly, because the background would show through exactly
            // adjacent edges.
            let turns = [from, to + 0.000_4];
            let _ = writeln!(
                out,
                "<g><title>{}</title>",
                escaped(&self.describe(places.clone(), bypasses))
            );
            self.stack(out, places, turns);
            let spike = |class: &str, from: f64, to: f64| {
                let radii = [from.min(to), from.max(to)];
                format!(r#"<path class="{class}" d="{}"/>"#, wedge(MIDDLE, radii, turns))
            };
            let length = (SPIKES[1] - SPIKES[0]) * f64::from(out_in(index)) / f64::from(most_out);
            if length > 0.0 {
                out.push_str(&spike("faulty", SPIKES[0], SPIKES[0] + length));
            }
            let depth = 28.0 * f64::from(bypasses) / f64::from(most_bypasses);
            if depth > 0.0 {
                out.push_str(&spike("bypass-spike", BAND[0] - 4.0, BAND[0] - 4.0 - depth));
            }
            out.push_str("</g>\n");
        }
        out.push_str("</g>\n");
    }

    /// Draws the shares of states in a wedge, from the inside out.
    fn stack(&self, out: &mut String, places: std::ops::Range<u32>, turns: [f64; 2]) {
        let mut states = self.line.states[places.start as usize..places.end as usize].to_vec();
        states.sort_unstable();
        let per_node = (BAND[1] - BAND[0]) / states.len() as f64;
        let mut radius = BAND[0];
        for equal in states.chunk_by(|a, b| a == b) {
            let outer = radius + per_node * equal.len() as f64;
            let _ = write!(
                out,
                r#"<path class="{}" d="{}"/>"#,
                equal[0].class(),
                wedge(MIDDLE, [radius, outer], turns)
            );
            radius = outer;
        }
    }

    fn describe(&self, places: std::ops::Range<u32>, bypasses: u32) -> String {
        let states = &self.line.states[places.start as usize..places.end as usize];
        let count =
            |wanted: fn(&State) -> bool| states.iter().filter(|state| wanted(state)).count();
        format!(
            "places {} to {} ({} to {}): {} nodes at work, {} spare, {} idle, {} out; {bypasses} bypasses",
            places.start,
            places.end - 1,
            self.line.node(places.start),
            self.line.node(places.end - 1),
            count(|state| matches!(state, State::Used(_))),
            count(|state| *state == State::Spare),
            count(|state| *state == State::Idle),
            count(|state| *state == State::Faulty),
        )
    }

    /// Draws the sections of the line: sub-lines (one slot of every ToR) or aggregation domains.
    fn sections(&self, out: &mut String) {
        let nodes = self.line.nodes();
        let dcn = &self.line.fabric.dcn;
        let (name, length) = match self.line.fabric.order {
            Order::SubLines => ("slot", dcn.tors(nodes)),
            Order::Sequential => ("domain", dcn.nodes_per_tor() * dcn.tors_per_domain()),
        };
        let count = nodes.div_ceil(length.max(1));
        if nodes <= MOST_LABELLED || count > 24 {
            return;
        }
        for index in 0..count {
            let from = f64::from(index * length);
            let to = f64::from(((index + 1) * length).min(nodes));
            let [a, b] = [self.turns(from) + 0.002, self.turns(to) - 0.002];
            let _ = writeln!(
                out,
                r#"<path class="section" d="{}"/>"#,
                wedge(MIDDLE, [288.0, 289.5], [a, b])
            );
            self.label(out, LABELS + 2.0, f64::midpoint(from, to), &format!("{name} {index}"));
        }
    }

    /// Draws a label outside the band, aligned away from the ring.
    fn label(&self, out: &mut String, radius: f64, place: f64, text: &str) {
        let turns = self.turns(place);
        let at = polar(MIDDLE, radius, turns);
        let (x, y) = at.split_once(',').unwrap_or_default();
        let sine = (turns * std::f64::consts::TAU).sin();
        let anchor = match sine {
            sine if sine > 0.25 => "start",
            sine if sine < -0.25 => "end",
            _ => "middle",
        };
        let _ = writeln!(
            out,
            r#"<text class="ring-label" x="{x}" y="{y}" dy=".34em" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        );
    }

    /// Draws a line across the band where no fibre spans the failed nodes.
    fn breaks(&self, out: &mut String) {
        for places in self.line.breaks() {
            let turns = self.turns(f64::midpoint(f64::from(places.start), f64::from(places.end)));
            let _ = writeln!(
                out,
                r#"<path class="break" d="M{}L{}"><title>{} nodes in a row are out: no fibre spans them</title></path>"#,
                polar(MIDDLE, BAND[0] - 14.0, turns),
                polar(MIDDLE, BAND[1] + 4.0, turns),
                places.len(),
            );
        }
    }

    fn middle(&self, out: &mut String) {
        let metrics = &self.line.plan.metrics;
        let share = metrics.gpus_used as f64 / metrics.gpus_total.max(1) as f64;
        let lines = [
            ("ring-big", -22.0, format!("{:.1} %", 100.0 * share)),
            (
                "ring-small",
                12.0,
                format!("{} of {}", grouped(metrics.gpus_used), grouped(metrics.gpus_total)),
            ),
            ("ring-small", 36.0, "GPUs at work".to_owned()),
        ];
        for (class, shift, text) in lines {
            let _ = writeln!(
                out,
                r#"<text class="{class}" x="{MIDDLE}" y="{}" dy=".34em" text-anchor="middle">{text}</text>"#,
                px(MIDDLE + shift)
            );
        }
    }
}

fn grouped(count: u64) -> String {
    super::super::quantity::fixed(count as f64, 0)
}
