// SPDX-License-Identifier: Apache-2.0
//! The reconfigurable fat-tree: leaves at the bottom, banks of optical switches above, the packet
//! core at the top; and circles of leaves with the circuits of each phase.

use std::collections::BTreeMap;
use std::fmt::Write;

use lightloom_fabric::fat_tree::{CrossConnect, FatTreeSpec};

use super::{escaped, polar, px, wedge};

const WIDTH: f64 = 960.0;
const MOST_BOXES: u32 = 32;
const MOST_SECTORS: u32 = 64;

/// Returns the tree, with line widths proportional to the circuits of the first phase.
pub(in super::super) fn tree(spec: &FatTreeSpec, circuits: &[CrossConnect]) -> String {
    let tree = Tree::new(spec, circuits);
    let below = [tree.uplinks(), tree.circuits(), tree.banks(), tree.leaves(), tree.legend()];
    let body = below.concat();
    format!(
        "<svg class=\"tree\" viewBox=\"0 0 {WIDTH} 276\" role=\"img\" data-marks=\".node rect\">\n{CORE}{body}</svg>\n"
    )
}

/// Positions of leaf boxes and the circuits that end in them.
struct Tree<'a> {
    spec: &'a FatTreeSpec,
    /// Leaves per box, and number of boxes.
    per_box: u32,
    boxes: u32,
    /// For each box and bank, the number of circuits that end there.
    ends: BTreeMap<(u32, usize), u32>,
}

const CORE: &str = concat!(
    r#"<g class="node"><rect class="core" x="300" y="6" width="360" height="34" rx="5"/>"#,
    r#"<text class="label" x="480" y="23" dy=".34em" text-anchor="middle">packet core, always up</text></g>"#,
    "\n"
);

impl<'a> Tree<'a> {
    fn new(spec: &'a FatTreeSpec, circuits: &[CrossConnect]) -> Self {
        let per_box = spec.leaves.div_ceil(MOST_BOXES);
        let boxes = spec.leaves.div_ceil(per_box);
        let mut ends: BTreeMap<(u32, usize), u32> = BTreeMap::new();
        for circuit in circuits {
            let bank = bank_of(spec, circuit.ocs.0);
            for leaf in [circuit.a, circuit.b] {
                *ends.entry((leaf.0 / per_box, bank)).or_default() += 1;
            }
        }
        Self { spec, per_box, boxes, ends }
    }

    /// Returns the width of a box including its spacing.
    fn step(&self) -> f64 {
        WIDTH / f64::from(self.boxes)
    }

    fn box_middle(&self, index: u32) -> f64 {
        self.step() * (f64::from(index) + 0.5)
    }

    fn bank_middle(&self, bank: usize) -> f64 {
        WIDTH * (bank as f64 + 0.5) / self.spec.banks.len() as f64
    }

    fn uplinks(&self) -> String {
        let line = |index| {
            let x = self.box_middle(index);
            format!("M{},226L{},40", px(x), px(320.0 + 320.0 * x / WIDTH))
        };
        let lines: String = (0..self.boxes).map(line).collect();
        format!("<path class=\"uplink\" d=\"{lines}\"/>\n")
    }

    fn circuits(&self) -> String {
        let most = self.ends.values().copied().max().unwrap_or(1).max(1);
        let mut body = String::new();
        for (&(index, bank), &count) in &self.ends {
            let width = 0.6 + 4.4 * f64::from(count) / f64::from(most);
            let beside = (f64::from(index) - f64::from(self.boxes) / 2.0) * 4.0;
            let _ = writeln!(
                body,
                r#"<path class="link bank-{}" stroke-width="{}" d="M{},226L{},126"/>"#,
                bank % 4,
                px(width),
                px(self.box_middle(index)),
                px(self.bank_middle(bank) + beside),
            );
        }
        body
    }

    fn banks(&self) -> String {
        let mut body = String::new();
        for (bank, spec) in self.spec.banks.iter().enumerate() {
            let x = self.bank_middle(bank);
            let _ = writeln!(
                body,
                r#"<g class="node"><rect class="bank-{}" x="{}" y="84" width="290" height="42" rx="5"/><text class="on-colour" x="{}" y="105" dy=".34em" text-anchor="middle">{}: {} optical switches</text></g>"#,
                bank % 4,
                px(x - 145.0),
                px(x),
                escaped(&spec.name),
                spec.switches,
            );
        }
        body
    }

    fn leaves(&self) -> String {
        let mut body = String::new();
        for index in 0..self.boxes {
            let first = index * self.per_box;
            let last = ((index + 1) * self.per_box).min(self.spec.leaves) - 1;
            let name = if first == last {
                format!("leaf{first}")
            } else {
                format!("leaf{first} to leaf{last}")
            };
            let banks = 0..self.spec.banks.len();
            let held: u32 = banks.filter_map(|bank| self.ends.get(&(index, bank))).sum();
            let _ = writeln!(
                body,
                r#"<g class="node"><title>{name}: {} GPUs, {held} circuit ends</title><rect class="used-0" x="{}" y="226" width="{}" height="22" rx="2"/></g>"#,
                (last - first + 1) * self.spec.gpus_per_leaf,
                px(self.step() * f64::from(index) + 2.0),
                px(self.step() - 4.0),
            );
        }
        body
    }

    fn legend(&self) -> String {
        let per_box = self.per_box;
        let leaves_a_box = if per_box == 1 { String::new() } else { format!(", {per_box} a box") };
        format!(
            "<text class=\"label\" x=\"480\" y=\"268\" text-anchor=\"middle\">{} leaves of {} GPUs{leaves_a_box}</text>\n",
            self.spec.leaves, self.spec.gpus_per_leaf,
        )
    }
}

fn bank_of(spec: &FatTreeSpec, switch: u32) -> usize {
    let mut first = 0;
    for (index, bank) in spec.banks.iter().enumerate() {
        first += bank.switches;
        if switch < first {
            return index;
        }
    }
    spec.banks.len().saturating_sub(1)
}

/// Returns the circuits of one phase: leaves on a circle, chords as wide as the circuits between
/// them.
pub(in super::super) fn circle(
    spec: &FatTreeSpec,
    name: &str,
    circuits: &[CrossConnect],
) -> String {
    const SIZE: f64 = 240.0;
    const MIDDLE: f64 = SIZE / 2.0;
    const RADIUS: f64 = 98.0;
    let per_sector = spec.leaves.div_ceil(MOST_SECTORS);
    let sectors = spec.leaves.div_ceil(per_sector);
    let turns = |sector: u32| f64::from(sector) / f64::from(sectors);
    let mut pairs: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for circuit in circuits {
        let (a, b) = (circuit.a.0 / per_sector, circuit.b.0 / per_sector);
        *pairs.entry((a.min(b), a.max(b))).or_default() += 1;
    }
    let most = pairs.values().copied().max().unwrap_or(1).max(1);
    let mut body = String::new();
    for (&(a, b), &count) in &pairs {
        let middle = 0.5 / f64::from(sectors);
        let width = 0.4 + 2.6 * f64::from(count) / f64::from(most);
        let _ = writeln!(
            body,
            r#"<path class="chord" stroke-width="{}" d="M{}Q{MIDDLE},{MIDDLE} {}"><title>leaf{} – leaf{}: {count} circuits</title></path>"#,
            px(width),
            polar(MIDDLE, RADIUS, turns(a) + middle),
            polar(MIDDLE, RADIUS, turns(b) + middle),
            a * per_sector,
            b * per_sector,
        );
    }
    for sector in 0..sectors {
        let gap = 0.12 / f64::from(sectors);
        let _ = writeln!(
            body,
            r#"<path class="used-0" d="{}"><title>leaf{}</title></path>"#,
            wedge(
                MIDDLE,
                [RADIUS + 2.0, RADIUS + 9.0],
                [turns(sector) + gap, turns(sector + 1) - gap]
            ),
            sector * per_sector,
        );
    }
    format!(
        "<figure class=\"small\"><svg class=\"circle\" viewBox=\"0 0 {SIZE} {SIZE}\" role=\"img\" data-marks=\"path\">\n{body}</svg><figcaption>{}</figcaption></figure>\n",
        escaped(name)
    )
}
