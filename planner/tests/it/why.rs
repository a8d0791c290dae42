// SPDX-License-Identifier: Apache-2.0
//! On drawn fabrics, every wasted GPU has a cause, and each remedy gains what it says when it is applied to the file.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_planner::why::{WasteCause, WasteChange, WastedGpus, wasted};
use lightloom_planner::{Options, load, plan};
use lightloom_testkit::cases;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

/// A fabric file before its numbers are filled in.
#[derive(Clone)]
struct Drawn {
    hbd: &'static str,
    nodes: u32,
    per_node: u32,
    k: u32,
    spares: u32,
    tp: u32,
    gpus: String,
    faults: Vec<String>,
    drained: Vec<String>,
}

impl Drawn {
    fn new(random: &mut Stream) -> Self {
        let pick = |random: &mut Stream, all: &[u32]| *all.choose(random).unwrap();
        let hbd = *["ring", "line", "lines", "switch", "none"].choose(random).unwrap();
        let (nodes, per_node) = (random.random_range(8..20), pick(random, &[4, 8]));
        let is_line = matches!(hbd, "ring" | "line" | "lines");
        let groups = if is_line { &[3, 4, 8, 16, 32][..] } else { &[3, 4, 8, 16][..] };
        let tp = pick(random, groups);
        let tp = if tp > per_node { tp / per_node * per_node } else { tp };
        let share = random.random_range(1..5);
        let all = tp * (nodes * per_node / tp * share / 8);
        let gpus = if share > 2 || all == 0 { "all".to_owned() } else { all.to_string() };
        let spares = u32::from(hbd == "line" && tp >= per_node && random.random_bool(0.5));
        let mut faults: Vec<String> = Vec::new();
        for _ in 0..random.random_range(0..6) {
            let node = random.random_range(0..nodes);
            let part = match random.random_range(0..6) {
                0 if is_line => format!("n{node}/b0"),
                1 if is_line => format!("n{node}/b0.1"),
                2 => format!("n{}", (node + 1) % nodes),
                _ => format!("n{node}"),
            };
            faults.push(part);
        }
        let drained = match random.random_bool(0.3) {
            true => vec![format!("n{}", random.random_range(0..nodes))],
            false => Vec::new(),
        };
        let k = pick(random, &[2, 3]);
        Self { hbd, nodes, per_node, k, spares, tp, gpus, faults, drained }
    }

    fn load(&self) -> Fabric {
        let Self { nodes, per_node, k, spares, .. } = self;
        let hbd = match self.hbd {
            "switch" => format!("switch: {{nodes: {nodes}, gpus_per_node: {per_node}, gpus: 16}}"),
            "none" => format!("none: {{nodes: {nodes}, gpus_per_node: {per_node}}}"),
            "lines" => format!(
                "khop: {{lines: [{}, {}], gpus_per_node: {per_node}, k: {k}, shape: line}}",
                nodes / 3,
                nodes - nodes / 3
            ),
            shape => format!(
                "khop: {{nodes: {nodes}, gpus_per_node: {per_node}, k: {k}, shape: {shape}, spare_per_ring: {spares}}}"
            ),
        };
        let text = format!(
            "kind: fabric\nversion: 2\nname: drawn\nhbd: {{{hbd}}}\nstart: {{drained: [{}]}}\n\
             jobs: [{{name: train, gpus: {}, tp: {}}}]\n",
            self.drained.join(", "),
            self.gpus,
            self.tp
        );
        let (fabric, mistakes) = load("drawn.yaml", text.as_bytes(), &mut |_| Err(String::new()));
        fabric.unwrap_or_else(|| panic!("{text}: {mistakes:?}"))
    }

    fn faults(&self, fabric: &Fabric) -> FaultSet {
        let mut faults = fabric.start.clone();
        for part in &self.faults {
            let _ = faults.insert(fabric, part.parse().unwrap());
        }
        faults
    }

    /// Applies a change to the file, as a user would.
    fn with(&self, change: &WasteChange) -> Self {
        let mut changed = self.clone();
        match change {
            WasteChange::Repair { .. } | WasteChange::IgnoreTors => {}
            WasteChange::NoSpares => changed.spares = 0,
            WasteChange::GroupSize { tp, .. } => changed.tp = *tp,
            WasteChange::Reach { k } => changed.k = u32::from(*k),
        }
        changed
    }
}

fn in_groups(drawn: &Drawn, repaired: &[Part], options: Options) -> u64 {
    let fabric = drawn.load();
    let mut faults = drawn.faults(&fabric);
    for part in repaired {
        assert_eq!(faults.remove(&fabric, *part), Ok(true), "{part} had failed");
    }
    let metrics = plan(&fabric, &faults, options).unwrap().metrics;
    metrics.gpus_used + metrics.gpus_spare
}

fn explained(drawn: &Drawn) -> Option<(u64, Vec<WastedGpus>)> {
    let fabric = drawn.load();
    let faults = drawn.faults(&fabric);
    let planned = plan(&fabric, &faults, Options::default()).ok()?;
    Some((planned.metrics.gpus_wasted, wasted(&fabric, &faults, &planned, Options::default())))
}

#[test]
fn every_wasted_gpu_has_a_cause_and_each_remedy_gains_what_it_says() {
    let mut random = Seed(1).stream("why", 0);
    let (mut fabrics, mut remedies, mut causes) = (0, 0, [0; 4]);
    while fabrics < cases(6, 50) {
        let drawn = Drawn::new(&mut random);
        let Some((gpus, rows)) = explained(&drawn).filter(|(gpus, _)| *gpus > 0) else { continue };
        fabrics += 1;
        assert_eq!(rows.iter().map(|row| row.gpus_wasted).sum::<u64>(), gpus, "{rows:?}");
        let before = in_groups(&drawn, &[], Options::default());
        for row in &rows {
            causes[row.cause as usize] += row.gpus_wasted;
            for remedy in &row.remedies {
                remedies += 1;
                let parts = match &remedy.change {
                    WasteChange::Repair { parts } => parts.clone(),
                    _ => Vec::new(),
                };
                let separately = remedy.change == WasteChange::IgnoreTors;
                let options = Options { separately, ..Options::default() };
                let after = in_groups(&drawn.with(&remedy.change), &parts, options);
                assert_eq!(after - before, remedy.gpus_gained, "{remedy:?}, {:?}", drawn.faults);
            }
        }
    }
    println!(
        "{fabrics} fabrics, {remedies} remedies, GPUs by fault, drained, limit, shape: {causes:?}"
    );
    let all = cases(1, 4);
    assert!(causes.iter().filter(|gpus| **gpus > 0).count() >= all && remedies > 10, "{causes:?}");
}

fn line(nodes: u32, tp: u32, faults: &[&str]) -> Drawn {
    let faults = faults.iter().map(|part| (*part).to_owned()).collect();
    let gpus = "all".to_owned();
    Drawn { hbd: "line", nodes, per_node: 4, k: 2, spares: 0, tp, gpus, faults, drained: vec![] }
}

#[test]
fn cause_follows_from_the_change_that_helps() {
    let cause = |drawn: &Drawn| {
        let rows = explained(drawn).unwrap().1;
        assert_eq!(rows.len(), 1, "{rows:?}");
        (rows[0].cause, rows[0].remedies.first().map(|remedy| remedy.change.clone()))
    };
    let repair = |part: &str| WasteChange::Repair { parts: vec![part.parse().unwrap()] };
    // One node is missing for the fourth ring.
    assert_eq!(cause(&line(16, 16, &["n5"])), (WasteCause::Fault, Some(repair("n5"))));
    assert_eq!(
        cause(&line(18, 16, &[])),
        (WasteCause::Shape, Some(WasteChange::GroupSize { job: "train".into(), tp: 8 }))
    );
    let inside = Drawn { hbd: "none", per_node: 8, ..line(12, 3, &[]) };
    assert_eq!(cause(&inside).0, WasteCause::Shape);
}
