// SPDX-License-Identifier: Apache-2.0
//! Changes the numbers of a plan one at a time and removes the digest. The checker must reject each
//! change, except in the fields listed here.

use crate::joint_fabric;
use std::collections::{BTreeMap, BTreeSet};

use joint_fabric::{fabric, faults};
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::check;
use lightloom_planner::{Options, plan};
use serde_json::Value;

/// Fields that neither the document nor the fabric can contradict, with the reason.
const ALLOWED: [(&str, &str); 8] = [
    ("seed", "provenance: nothing is drawn from it"),
    ("jobs[].cross_tor_share_lower_bound", "needs a search: from 0 to the share is required"),
    ("metrics.cross_tor_share_lower_bound", "as above"),
    (
        "metrics.static_step_time_ps",
        "needs a search: no less than the bounds of its phases is required",
    ),
    ("metrics.orchestration_gain", "needs a plan of each half: within its bound is required"),
    (
        "metrics.orchestration_gain_upper_bound",
        "needs a plan of each half: from the gain to 1 is required",
    ),
    ("transitions[].floor", "needs a replay of the change: a share is required"),
    (
        "transitions[].exposed_ps",
        "slack is not in the plan: no more than the dark time is required",
    ),
];

fn numbers(value: &Value, at: &str, pointer: &str, found: &mut BTreeMap<String, Vec<String>>) {
    match value {
        Value::Number(_) => found.entry(at.to_owned()).or_default().push(pointer.to_owned()),
        Value::Array(all) => {
            let ends: BTreeSet<usize> = [0, all.len().saturating_sub(1)].into();
            for place in ends.into_iter().filter(|place| *place < all.len()) {
                numbers(&all[place], &format!("{at}[]"), &format!("{pointer}/{place}"), found);
            }
        }
        Value::Object(all) => {
            for (key, value) in all {
                let dot = if at.is_empty() { "" } else { "." };
                numbers(value, &format!("{at}{dot}{key}"), &format!("{pointer}/{key}"), found);
            }
        }
        _ => {}
    }
}

fn damages(value: &Value) -> Vec<Value> {
    match value.as_u64() {
        Some(number) => [number + 7 + number / 2, number / 2, 0]
            .into_iter()
            .filter(|other| *other != number)
            .map(Value::from)
            .collect(),
        None => {
            let number = value.as_f64().expect("a number");
            [number * 1.5 + 0.1, number * 0.5 - 0.1, -3.5].map(Value::from).to_vec()
        }
    }
}

fn accepted(text: &str) -> BTreeSet<String> {
    let fabric = fabric(text);
    let mut sound = plan(&fabric, &faults(&fabric, &[]), Options::default()).expect("a plan");
    sound.digest.clear();
    check(&fabric, &faults(&fabric, &[]), &sound).expect("it is sound");
    let whole = serde_json::to_value(&sound).expect("a document");
    let mut places = BTreeMap::new();
    numbers(&whole, "", "", &mut places);
    assert!(places.len() > 20, "{places:?}");
    let mut accepted = BTreeSet::new();
    for (at, pointers) in places {
        for pointer in &pointers {
            let value = whole.pointer(pointer).expect("it is there").clone();
            for damage in damages(&value) {
                let mut damaged = whole.clone();
                *damaged.pointer_mut(pointer).expect("it is there") = damage.clone();
                let Ok(damaged) = serde_json::from_value::<Plan>(damaged) else { continue };
                if damaged != sound && check(&fabric, &faults(&fabric, &[]), &damaged).is_ok() {
                    accepted.insert(at.clone());
                    println!("{pointer}: {value} -> {damage} is accepted");
                }
            }
        }
    }
    accepted
}

#[test]
fn detects_every_number_edited_by_hand() {
    let allowed: BTreeSet<&str> = ALLOWED.iter().map(|(at, _)| *at).collect();
    for text in [
        include_str!("../../../topologies/pod-64.yaml"),
        include_str!("../../../topologies/dragonfly-72.yaml"),
        include_str!("../../../topologies/job-64.yaml"),
        include_str!("../../../topologies/job-64-circuits.yaml"),
        include_str!("../../../topologies/ring-40-spare.yaml"),
    ] {
        let found = accepted(text);
        let wrong: Vec<_> = found.iter().filter(|at| !allowed.contains(at.as_str())).collect();
        assert!(wrong.is_empty(), "damaged and accepted: {wrong:?}");
    }
}

#[test]
fn claims_that_need_a_search_are_bounded() {
    let fabric = fabric(include_str!("../../../topologies/job-64-circuits.yaml"));
    let sound = plan(&fabric, &faults(&fabric, &[]), Options::default()).expect("a plan");
    let refused = |change: &dyn Fn(&mut Plan), name: &str| {
        let mut damaged = sound.clone();
        damaged.digest.clear();
        change(&mut damaged);
        let found = check(&fabric, &faults(&fabric, &[]), &damaged).expect_err(name);
        assert!(found.iter().any(|one| one.to_string().contains(name)), "{name}: {found:?}");
    };
    refused(&|plan| plan.metrics.orchestration_gain = Some(5.0), "orchestration_gain");
    refused(&|plan| plan.metrics.orchestration_gain_upper_bound = Some(-3.5), "orchestration_gain");
    refused(
        &|plan| plan.metrics.static_step_time_ps = Some(lightloom_units::Picoseconds(1)),
        "static",
    );
    refused(&|plan| plan.transitions[0].floor = 9.5, "floor");
    refused(&|plan| plan.transitions[0].without_ps = None, "unlimited, is wrong");
    refused(&|plan| plan.transitions[0].exposed_ps.0 = 1_000_000_000_000, "exposed_ps");
    refused(&|plan| plan.transitions[0].dark_time_ps.0 = 1, "dark_time_ps");
    refused(&|plan| plan.metrics.dark_port_time_share = Some(0.9), "dark_port_time_share");
}
