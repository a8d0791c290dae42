// SPDX-License-Identifier: Apache-2.0
//! Tests the table of faults in docs/scenario-faults.csv: every cell becomes part of a scenario and
//! must have an effect.

use crate::fabric;
use fabric::FABRIC;
use lightloom_emulator::outcome::{FaultResult, Outcome};
use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;

fn read(name: &str) -> Result<NamedFile, String> {
    if name == "fabric.yaml" {
        return Ok(NamedFile { name: name.into(), bytes: FABRIC.as_bytes().to_vec() });
    }
    let bytes = std::fs::read(name).map_err(|error| error.to_string())?;
    Ok(NamedFile { name: name.to_owned(), bytes })
}

/// Runs rings, and a reduction between them over switches that pause, with these faults.
fn on_fabric(faults: &str) -> Outcome {
    on_fabric_drawn(faults, 7)
}

fn on_fabric_drawn(faults: &str, seed: u64) -> Outcome {
    let text = format!(
        "
name: fabric
on: {{fabric: fabric.yaml}}
seed: {seed}
collectives:
  - all_reduce: {{name: tensor, bytes: 1MiB, repeat: 10}}
  - data_parallel_all_reduce: {{name: gradients, bytes: 1MiB, priority: 3}}
switches: {{pause: {{priorities: [3], above: 64KiB}}}}
control: {{detection_delay: 20us, planning_delay: 10us}}
time_limit: 20ms
{faults}
"
    );
    let (loaded, mistakes) = scenario::file::load("fabric scenario", text.as_bytes(), &mut read);
    let loaded = loaded.unwrap_or_else(|| panic!("{faults}: {mistakes:?}"));
    lightloom_emulator::emulate(&loaded, 1, &mut ()).unwrap()
}

fn on_network(faults: &str) -> Outcome {
    let (network, run) = if faults.contains("ocs") {
        ("tpu_cubes: {cubes: [1, 1, 2]}", "{all_reduce: torus}, bytes: 1MiB")
    } else {
        (
            "leaf_spine: {leaves: 4, spines: 4, hosts_per_leaf: 4, nics: 2}",
            "{all_to_all: pairwise}, bytes: 8MiB, priority: 3",
        )
    };
    // Traffic within cubes and plain transfers cross no switch.
    let pause = "switches: {pause: {priorities: [3], above: 64KiB}}";
    let switches = if network.starts_with("leaf_spine") { pause } else { "" };
    let text = format!(
        "
name: network
on: {{{network}}}
seed: 5
{switches}
traffic: [{{name: all, run: {run}}}]
control: {{reroute_delay: 20us}}
time_limit: 20ms
{faults}
"
    );
    let (scenario, mistakes) = scenario::file::load("network scenario", text.as_bytes(), &mut read);
    let scenario = scenario.unwrap_or_else(|| panic!("{faults}: {mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

fn in_phases(fault: &str) -> Outcome {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/");
    let fault = fault.replacen('{', "{phase: experts, at: 1ms, ", 1);
    let text = format!(
        "
name: phases
on: {{fabric: {folder}rfabric-shapes.yaml}}
phases: {{scale: 40, steps: 2}}
faults: [{fault}]
"
    );
    let (scenario, mistakes) = scenario::file::load("phase scenario", text.as_bytes(), &mut read);
    let scenario = scenario.unwrap_or_else(|| panic!("{fault}: {mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

/// Returns the table: the broken part, and the fault as written for each kind of file, or `None` if
/// it does not apply.
fn table() -> Vec<(String, Vec<Option<String>>)> {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scenario-faults.csv");
    let reader = csv::Reader::from_path(table).unwrap();
    let cell = |cell: &str| (!cell.is_empty()).then(|| cell.to_owned());
    let row = |row: csv::StringRecord| (row[0].to_owned(), row.iter().skip(1).map(cell).collect());
    reader.into_records().map(|record| row(record.unwrap())).collect()
}

fn faults(cell: &str, more: &str) -> String {
    if cell == "replay" {
        let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/traces/synthetic.json");
        return format!(
            "replay: {{trace: {trace}, from_day: 60, to_day: 120, day_takes: 5us{more}}}"
        );
    }
    format!("faults: [{}]", cell.replacen('{', "{at: 20us, ", 1))
}

fn restored(run: fn(&str) -> Outcome, part: &str, control: &str) -> [Option<u64>; 2] {
    let first = format!("{{part: {part}, at: 50us}}");
    let control = control.replacen('{', "{at: 20us, ", 1);
    [format!("faults: [{first}, {control}]"), format!("faults: [{first}]")].map(|faults| {
        let fault: &FaultResult = &run(&faults).faults[0];
        fault.restored.map(|restored| restored.since(fault.at.unwrap()).0)
    })
}

fn require_delayed_by_control(run: fn(&str) -> Outcome, part: &str, cell: &str) {
    let [with, without] = restored(run, part, cell);
    let without = without.unwrap();
    assert!(with.is_none_or(|with| with > without), "{cell}: {with:?} after {without}");
    assert_eq!(with.is_some(), cell.contains("slower"), "{cell}");
}

#[test]
fn every_listed_fault_affects_a_fabric() {
    let mut wrong = Vec::new();
    for (what, cells) in table() {
        let Some(cell) = &cells[0] else { continue };
        if cell.contains("control") {
            require_delayed_by_control(on_fabric, "n4", cell);
            continue;
        }
        if cell.contains("stuck") {
            // The fault is noticed at the next command, which the bypass of a neighbour sends.
            let found = (1..12).any(|node| {
                let both = format!(
                    "{}, {{part: n{node}, at: 40us}}]",
                    faults(cell, "").trim_end_matches(']')
                );
                on_fabric(&both).faults[0].detected.is_some()
            });
            assert!(found, "{what}: {cell}");
            continue;
        }
        // The seed may draw a node that no ring uses.
        let seeds = if cell.contains("any node") { 7..17 } else { 7..8 };
        let is_affected = |seed| {
            let outcome = on_fabric_drawn(&faults(cell, ""), seed);
            outcome.faults.iter().any(|fault| !fault.groups_affected.is_empty())
        };
        if !seeds.into_iter().any(is_affected) {
            wrong.push(format!("{what}: {cell}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_listed_fault_affects_a_network() {
    for (what, cells) in table() {
        let Some(cell) = &cells[1] else { continue };
        if cell.contains("control") {
            require_delayed_by_control(on_network, "h3/nic1", cell);
            continue;
        }
        let outcome = on_network(&faults(cell, ", gpus_per_host: 8"));
        let moved = |fault: &FaultResult| fault.traffic.as_ref().unwrap().flows_moved;
        assert!(outcome.faults.iter().any(|fault| moved(fault) > 0), "{what}: {cell}: {outcome:?}");
    }
}

#[test]
fn every_listed_fault_affects_a_phase_sequence() {
    let calm = in_phases("{part: ocs0/p31}");
    for (what, cells) in table() {
        let Some(cell) = &cells[2] else { continue };
        let outcome = in_phases(cell);
        let [fault] = outcome.faults.as_slice() else { panic!("{cell}") };
        let impact = fault.phases.as_ref().unwrap();
        let is_affected = impact.circuits_lost > 0
            || impact.changes_missed > 0
            || impact.delay.is_some_and(|delay| delay.0 > 0);
        assert!(is_affected, "{what}: {cell}: {fault:?} {:?}", calm.faults);
    }
}

#[test]
fn mismatched_replay_is_rejected() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/traces/synthetic.json");
    let text = |more: &str| {
        format!(
            "name: x\non: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 4}}}}\n\
             traffic: [{{name: a, run: permutation, bytes: 1KiB}}]\n\
             replay: {{trace: {trace}, from_day: 1, to_day: 2, day_takes: 1us{more}}}\n"
        )
    };
    let load = |text: &str| scenario::file::load("t.yaml", text.as_bytes(), &mut read);
    assert!(load(&text("")).0.is_some());
    let (scenario, mistakes) = load(&text(", gpus_per_host: 3"));
    let [mistake] = mistakes.as_slice() else { panic!("{mistakes:?}") };
    assert!(scenario.is_none() && mistake.to_string().starts_with("t.yaml:4:17"), "{mistake}");
}

#[test]
fn wrong_fault_keys_report_their_location_and_fix() {
    let wrong = [
        ("{part: h3-s0, towards: s1}", "`h3-s0` has no cable to `s1`", "use one of"),
        ("{part: any cable, towards: s0}", "its ends are unknown", "use a specific cable"),
        (
            "{part: control, effect: {slower: 10}, towards: s0}",
            "cannot be limited to one direction",
            "leave it out",
        ),
        ("{part: h3, effect: {reboots: 1s}}", "only a packet switch such as", ""),
        ("{part: s0, effect: {reboots: 0s}}", "restart time must be positive", "use `90s`"),
        (
            "{part: s0, effect: {reboots: 1ms}, lasts: 1ms}",
            "`reboots` already defines its duration",
            "change `reboots`",
        ),
        ("{part: h3-s0, effect: {packet_loss: 1.5}}", "between 0 and 1", "or `down`"),
        ("{part: h3-s0, effect: {jitter: 20ms}}", "at most 10 ms", "use `2us`"),
    ];
    for (fault, what, fix) in wrong {
        let text = format!(
            "name: x\non: {{leaf_spine: {{leaves: 2, spines: 2, hosts_per_leaf: 4}}}}\n\
             traffic: [{{name: a, run: permutation, bytes: 1KiB}}]\n\
             faults: [{}]\n",
            fault.replacen('{', "{at: 1us, ", 1)
        );
        let (scenario, mistakes) = scenario::file::load("t.yaml", text.as_bytes(), &mut read);
        let named = |mistake: &_| {
            let text = format!("{mistake} {mistake:?}");
            text.contains("t.yaml:4:") && text.contains(what) && text.contains(fix)
        };
        assert!(scenario.is_none() && mistakes.iter().any(named), "{fault}: {mistakes:#?}");
    }
}
