// SPDX-License-Identifier: Apache-2.0
//! Files of version 1 must still give the same plans. The test compares SHA-256 digests over
//! transceiver paths, lit fibres and the cross-connects of every phase.
//!
//! The digests come from the last release that read version 1, with four exceptions. The first
//! five in [`BETTER`] were updated when jobs were first placed together and aggregation domains
//! were ignored, those of `explicit-8` when small fabrics were first searched exactly, the digest of
//! `rfabric-moe` when expert gradients were limited to ranks with the same experts, and those in
//! [`FASTER`] when routes through other leaves were first taken wherever they shorten a phase. The
//! plans in [`BETTER`] must not cross more ToRs or waste more GPUs than before, and those in
//! [`FASTER`] must be faster.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use lightloom_fabric::document::{Style, render};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::Plan;
use lightloom_fabric::provenance::sha256;
use lightloom_planner::check::check;
use lightloom_planner::{Options, load, plan};
use lightloom_units::Picoseconds;

/// Cross-ToR share and waste in version 1, for plans that changed.
const BETTER: &[(&str, f64, f64)] = &[
    ("ring-32.yaml n3,n7/b0", 0.0, 0.093_75),
    ("ring-2880.yaml", 0.0, 0.022_23),
    ("ring-2880.yaml n17,n42/b1,n7/b0.2", 0.0, 0.043_06),
    ("line-with-every-key.yaml", 0.0, 0.0),
    ("line-with-every-key.yaml n4", 0.111_2, 0.0),
    ("explicit-8.yaml", 0.0, 0.0),
    ("explicit-8.yaml n3", 0.0, 0.125),
];

/// Milliseconds of a step before, for plans that changed.
const FASTER: &[(&str, u64)] = &[("rfabric-shapes.yaml", 79), ("rfabric-workloads.yaml", 2_337)];

fn settings(plan: &Plan) -> String {
    let mut text = String::new();
    for set in &plan.transceivers {
        let path = serde_json::to_value(set.path).expect("a path is text");
        let _ = writeln!(text, "{} {}", set.bundle, path.as_str().expect("a path is text"));
    }
    for circuit in &plan.circuits {
        let _ = writeln!(text, "{} {}", circuit.a, circuit.b);
    }
    for phase in &plan.phases {
        let _ = writeln!(text, "{}", phase.name);
        for at in &phase.circuits {
            let _ = writeln!(text, "{} {} {}", at.ocs, at.a_port, at.b_port);
        }
    }
    text
}

#[test]
fn version_1_files_give_unchanged_plans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let known = std::fs::read_to_string(folder.join("tests/data/plans-of-version-1.json")).unwrap();
    let known: BTreeMap<String, String> = serde_json::from_str(&known).unwrap();
    let topologies = folder.join("../topologies");
    let mut found = BTreeMap::new();
    for case in known.keys() {
        let (name, broken) = case.split_once(' ').unwrap_or((case, ""));
        let bytes = std::fs::read(topologies.join(name)).unwrap();
        let mut read = |file: &str| {
            std::fs::read_to_string(topologies.join(file)).map_err(|error| error.to_string())
        };
        let (fabric, mistakes) = load(name, &bytes, &mut read);
        let fabric = fabric.unwrap_or_else(|| panic!("{}", render(&mistakes, Style::Plain)));
        let parts = broken.split(',').filter(|part| !part.is_empty());
        let faults = FaultSet::of(&fabric, parts.map(|part| part.parse().unwrap())).unwrap();
        let options = Options { compare: false, ..Options::default() };
        let plan = plan(&fabric, &faults, options).unwrap();
        assert_eq!(check(&fabric, &faults, &plan).map(|_| ()), Ok(()), "{case}");
        if let Some((_, crossing, waste)) = BETTER.iter().find(|(name, ..)| name == case) {
            let now = &plan.metrics;
            assert!(now.cross_tor_share <= *crossing, "{case} crosses {}", now.cross_tor_share);
            assert!(now.waste_ratio <= *waste, "{case} wastes {}", now.waste_ratio);
        }
        if let Some((_, before)) = FASTER.iter().find(|(name, _)| name == case) {
            let step = plan.metrics.step_time_ps.expect("phases take time");
            assert!(step < Picoseconds::from_millis(*before), "{case}: {step}");
        }
        found.insert(case.clone(), sha256(settings(&plan).as_bytes()));
    }
    assert_eq!(found, known);
}
