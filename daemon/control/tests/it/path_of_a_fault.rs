// SPDX-License-Identifier: Apache-2.0
//! The eight stages of the path of a fault, as the front page of the crate describes them.

use std::collections::BTreeSet;

use lightloom_control::controller::{Action, Answer, ReplyTo};
use lightloom_control::ledger::{Ledger, Past};
use lightloom_control::record::{Asked, Cause, Record, TxnResult};
use lightloom_control::state::{DeviceName, Micros};
use lightloom_fabric::fault::Part;
use lightloom_units::id::{BundleId, NodeId};

use crate::lost_management::world::{SLOT, World, module};

#[test]
fn path_of_a_fault() {
    const STAGES: usize = 8;
    let mut world = World::new(16, 32, 16);
    let node = world.control.plan().unwrap().groups[0].nodes[1].0;
    let modules: [DeviceName; 2] = [0, 1].map(|bundle| module(node, bundle));
    let far: Vec<DeviceName> = modules.iter().filter_map(|m| world.looked_into_by(m)).collect();
    let (plan, before) = (world.control.ledger().plan_sha256.clone(), world.records.len());
    world.die(node);

    let (mut path, mut asked): (Vec<(&str, Micros)>, _) = (Vec::new(), BTreeSet::new());
    while path.len() < STAGES {
        world.run_for(Micros(50));
        asked.extend(modules.iter().filter(|name| world.is_asked_for_status(name)).cloned());
        let sightings = world.control.sightings();
        let is_dark = |far: &DeviceName| {
            sightings.reading(far).is_some_and(|read| read.power_mdbm[&SLOT] < -30_000)
        };
        let written = |is: fn(&Record) -> bool| world.records[before..].iter().any(is);
        let is_unreachable = |name| sightings.stays_unreachable(&world.now, name);
        let stages: [(&str, bool); STAGES] = [
            ("a reading without light", far.iter().any(is_dark)),
            ("status requests to the node", asked.len() == modules.len()),
            ("unreachable", modules.iter().all(is_unreachable)),
            ("failed", !world.bypassed.is_empty()),
            ("allowed", world.retry_in == Some(Micros::from_secs(1))),
            ("plan", written(|one| matches!(one, Record::Plan(_) | Record::PlanAfter(_)))),
            ("drive", written(is_bypass) && written(|one| matches!(one, Record::Fire { .. }))),
            ("committed", written(|one| matches!(one, Record::End { .. }))),
        ];
        let next = stages.iter().skip(path.len()).take_while(|(_, is_reached)| *is_reached);
        path.extend(next.map(|(stage, _)| (*stage, world.now.mono)));
        assert!(world.now.mono < Micros::from_secs(1_010), "the path ends after {path:?}");
    }
    println!("{path:?}");

    let parts = [0, 1].map(|bundle| Part::Bundle(BundleId { node: NodeId(node), bundle }));
    assert_eq!(world.bypassed.iter().map(|(_, parts)| parts.clone()).collect::<Vec<_>>(), [parts]);
    let ledger = world.control.ledger();
    let past = ledger.history.back().unwrap();
    assert_eq!((&past.cause, past.result), (&Cause::Bypass, TxnResult::Committed));
    assert_eq!(past.actor, "policy:fault");
    assert_ne!(ledger.plan_sha256, plan);
    for part in parts {
        let why = &ledger.failed[&part.to_string()].why;
        assert!(why.starts_with("unresponsive, and n") && why.contains("-40.0 dBm"), "{why}");
        assert!(world.control.facts().is_bypassed(part));
    }
    assert!(ledger.open.is_none() && world.wrongly_cut.is_empty() && world.lit_circuits() > 0);
    assert_eq!(world.control.controller().budget().spent(&world.now), 1);
    keeps_stored_words_of_failed_parts(ledger, &world.records[before..], &parts[0].to_string());
}

/// Journals call failed parts broken.
fn keeps_stored_words_of_failed_parts(ledger: &Ledger, records: &[Record], part: &str) {
    let past = ledger.history.back().unwrap();
    let next = Past { failed_before: past.failed_after.clone(), ..past.clone() };
    let stored = serde_json::to_string(&(ledger, records, next)).unwrap();
    for word in ["broken", "broken_before", "broken_after"] {
        assert!(stored.contains(&format!("\"{word}\":{{\"{part}\":{{")), "{word}: {stored}");
    }
    assert!(!stored.contains("\"failed"), "{stored}");
    let intent = records.iter().find(|record| is_bypass(record)).unwrap();
    let stored = serde_json::to_string(intent).unwrap();
    assert!(stored.contains(&format!("\"broken\":{{\"{part}\":{{")), "{stored}");
}

#[test]
fn node_that_is_not_installed_is_not_a_known_fault() {
    let mut world = World::with_absent(16, 32, 16, &["n3", "n9"]);
    assert!(world.control.plan().unwrap().faults.contains(&Part::Node(NodeId(3))));
    assert!(
        world.control.facts().failed_parts().is_empty(),
        "{:?}",
        world.control.facts().failed_parts()
    );
    assert!(world.control.ledger().failed.is_empty());
    let absent = Part::Node(NodeId(3));
    let asked = Asked { actor: "alice".into(), request: "f".into(), digest: "f".into() };
    let broken = [(absent, "no light".to_owned())];
    let actions = world.control.fault(&world.now, asked, &broken, &[], ReplyTo(7));
    let answer = actions.iter().find_map(|action| match action {
        Action::Answer(_, Answer::NothingToDo { reasons }) => Some(reasons.clone()),
        _ => None,
    });
    assert_eq!(answer, Some(vec!["n3 is not installed".to_owned()]));
}

fn is_bypass(record: &Record) -> bool {
    matches!(record, Record::Intent(intent) if intent.cause == Cause::Bypass)
}
