// SPDX-License-Identifier: Apache-2.0
//! Phase sequences on reconfigurable circuits: packets compared with the models, and the effects of
//! faults.

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, RunStart, Scenario};
use lightloom_emulator::{EmulateError, emulate};
use lightloom_engine::steady::Stage;
use lightloom_units::Picoseconds;

/// Sixteen leaves with eight circuits each, two phases, two failure domains. Each phase sends most bytes between other pairs
/// of leaves, so that circuit changes pay off although traffic may pass through other leaves.
const FABRIC: &str = "
kind: fabric
version: 2
name: small
dcn:
  reconfigurable_fat_tree:
    leaves: 16
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 320Gbps, oversubscription: 1}
    banks:
      - {name: core, switches: 4, ports_per_switch: 32, ports_per_leaf: 2, insertion_loss_db: 1.0}
    timing: {control: 1ms, switching: 2ms, bring_up: BRING_UP}
    failure_domains: 2
jobs:
  - name: small
    step:
      phases:
        - {name: experts, slack: SLACK, demand: {matrix: [EXPERTS]}}
        - {name: sync, slack: SLACK, demand: {matrix: [SYNC]}}
";

fn fabric(slack: &str, bring_up: &str) -> String {
    let matrix = |bytes: &dyn Fn(usize, usize) -> u64| {
        let row = |from: usize| {
            let cell = |to: usize| if from == to { 0 } else { bytes(from, to) };
            let cells: Vec<String> = (0..16).map(|to| cell(to).to_string()).collect();
            format!("[{}]", cells.join(", "))
        };
        (0..16).map(row).collect::<Vec<_>>().join(", ")
    };
    // Some bytes still cross the circuits of the other phase when they change.
    let experts = matrix(&|from, to| match from ^ to {
        1 => 16_000_000_000,
        8 => 800_000_000,
        _ => 50_000_000,
    });
    let sync = matrix(&|from, to| match from ^ to {
        8 if to > from => 8_000_000_000,
        1 => 800_000_000,
        _ => 50_000_000,
    });
    let text = FABRIC.replace("EXPERTS", &experts).replace("SYNC", &sync);
    text.replace("SLACK", slack).replace("BRING_UP", bring_up)
}

fn load(fabric: &str, phases: &str, faults: &str) -> Scenario {
    let text = format!(
        "name: small\non: {{fabric: fabric.yaml}}\nphases: {{{phases}}}\nfaults: [{faults}]\n"
    );
    let read =
        &mut |name: &str| Ok(NamedFile { name: name.into(), bytes: fabric.as_bytes().to_vec() });
    let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), read);
    scenario.unwrap_or_else(|| panic!("{mistakes:?}"))
}

fn run(phases: &str, faults: &str) -> Outcome {
    emulate(&load(&fabric("5ms", "1ms"), phases, faults), 1, &mut ()).unwrap()
}

fn start() -> RunStart {
    scenario::plan(&load(&fabric("5ms", "1ms"), "scale: 10", "")).unwrap()
}

fn seconds(time: Option<Picoseconds>) -> f64 {
    time.expect("every byte arrives").as_secs_f64()
}

#[test]
fn packet_times_match_the_fluid_model_within_four_percent() {
    let result = run("scale: 10", "");
    assert_eq!(result.phases.len(), 2);
    for phase in &result.phases {
        let ratio = seconds(phase.times.packets) / seconds(phase.times.fluid);
        assert!((0.99..1.04).contains(&ratio), "{}: {ratio}", phase.name);
        assert!(phase.transition > Picoseconds::ZERO, "{} has its own circuits", phase.name);
        assert_eq!(phase.circuits_up, phase.circuits_planned);
    }
}

/// A leaf that sends to many others over its loaded uplink also acknowledges their data. If these
/// acknowledgements queue behind its data, the senders' windows stall although their own links are
/// idle.
#[test]
fn acknowledgements_queued_behind_data_slow_weight_sync() {
    let fabric = include_str!("../../../topologies/rfabric-moe.yaml");
    let slower = |acknowledgements: &str| {
        let phases = format!("scale: 300, acknowledgements: {acknowledgements}");
        let result = emulate(&load(fabric, &phases, ""), 1, &mut ()).unwrap();
        let sync = result.phases.iter().find(|phase| phase.name == "weight-sync").unwrap();
        seconds(sync.times.packets) / seconds(sync.times.fluid)
    };
    let (first, in_turn) = (slower("first"), slower("in_turn"));
    assert!((0.99..1.02).contains(&first), "with a priority of their own: {first}");
    assert!(in_turn > 1.15, "behind data: {in_turn}");
}

#[test]
fn flow_records_use_fabric_bytes_and_time() {
    let scenario = load(&fabric("5ms", "1ms"), "scale: 10", "");
    let start = scenario::plan(&scenario).unwrap();
    let settings = lightloom_emulator::RunSettings {
        threads: 1,
        watch: lightloom_engine::capture::Watch::default(),
        sharing: lightloom_emulator::run::IslandReuse::Reuse,
        series: None,
    };
    let finished = lightloom_emulator::emulate_from(&scenario, &start, settings, &mut ()).unwrap();
    let run = &finished.outcome;
    let sent: u64 =
        run.flow_records.iter().filter(|flow| flow.end.is_some()).map(|f| f.size.0).sum();
    let phases = &start.circuits.as_ref().unwrap().phases;
    let demanded: u64 = phases.iter().map(|phase| phase.demand.total().0).sum();
    assert!((sent as f64 / demanded as f64 - 1.0).abs() < 0.05, "{sent} of {demanded}");
    let last = run.flow_records.iter().filter_map(|flow| flow.end).max().expect("a flow ended");
    assert!(last <= run.head.simulated && last.0 > run.head.simulated.0 / 2, "{last:?}");
    let links = 0..finished.engine.network().links().len();
    let links: Vec<_> = links.map(lightloom_engine::LinkId::from_index).collect();
    let carried = |name: &str| {
        let link = links.iter().find(|link| finished.substrate.link_name(**link) == name);
        finished.engine.port_count(*link.expect(name))
    };
    let bytes = |name: &str| carried(name).bytes;
    assert!(bytes("leaf0/gpus→leaf0") > bytes("leaf0→leaf0/gpus"), "data goes up there");
    assert!(bytes("leaf15/gpus→leaf15") < bytes("leaf15→leaf15/gpus"), "and down here");
    assert!(carried("leaf0→core").packets > 0);
    let is_circuit =
        |link: &&lightloom_engine::LinkId| finished.substrate.link_name(**link).contains(" ocs");
    assert!(links.iter().filter(is_circuit).any(|l| finished.engine.port_count(*l).packets > 0));
}

#[test]
fn scale_changes_the_time_only_by_round_trips() {
    let dense = FABRIC
        .replace("{matrix: [EXPERTS]}", "{shape: {moe: {seed: 1}}}")
        .replace("{matrix: [SYNC]}", "{shape: {weight_sync: {seed: 1}}}");
    let dense = dense.replace("SLACK", "5ms").replace("BRING_UP", "1ms");
    let step = |scale: u64| {
        let scenario = load(&dense, &format!("scale: {scale}"), "");
        seconds(emulate(&scenario, 1, &mut ()).unwrap().steps.of_phases()[0].times.packets)
    };
    let full = step(4);
    // Scaling does not shorten the round trips at the start and end of a phase, which cost a fifth
    // of a per cent here.
    for (scale, tolerance) in [(16, 0.025), (64, 0.13)] {
        let ratio = step(scale) / full;
        assert!((ratio - 1.0).abs() < tolerance, "divided by {scale}: {ratio}");
    }
}

const BOARD: &str = "{part: ocs0/p0..p7, phase: experts, at: 12ms}";

/// By default the planned time determines when a step is late, because its slack may be longer than
/// 10 s.
#[test]
fn time_limit_includes_the_slack_of_each_step() {
    let short = load(&fabric("5ms", "1ms"), "scale: 10", "").time_limit;
    let long = load(&fabric("30s", "1ms"), "scale: 10, steps: 2", "").time_limit;
    assert!(long.0 > 2 * 30 * 1_000_000_000_000 && short < long, "{short:?} {long:?}");
}

#[test]
fn result_does_not_depend_on_thread_count() {
    let scenario = load(&fabric("5ms", "1ms"), "scale: 40", BOARD);
    let one = emulate(&scenario, 1, &mut ()).unwrap();
    let mut three = emulate(&scenario, 3, &mut ()).unwrap();
    three.head.threads = 1;
    assert_eq!(one, three);
}

#[test]
fn switching_circuits_loses_or_drains_packets_in_flight() {
    // Without slack, circuits change during traffic.
    let fabric = fabric("0ms", "1ms");
    let drained = emulate(&load(&fabric, "scale: 10", ""), 1, &mut ()).unwrap();
    assert_eq!(drained.head.packets.lost, 0);
    let lossy = load(&fabric, "scale: 10, in_flight: lose", "");
    let lossy = emulate(&lossy, 1, &mut ()).unwrap();
    assert!(lossy.head.packets.lost > 0);
    assert!(lossy.steps.of_phases()[0].times.packets.is_some(), "what is lost is sent again");
}

#[test]
fn driver_board_fault_reroutes_traffic_of_its_circuits() {
    let result = run("scale: 10", BOARD);
    let impact = result.faults[0].phases.as_ref().unwrap();
    assert!(impact.circuits_lost >= 4, "{impact:?}");
    assert!(impact.packets_lost > 0 && !impact.leaves_affected.is_empty(), "{impact:?}");
    assert!(impact.phases_slowed.contains(&"0/experts".to_owned()), "{impact:?}");
    assert!(result.phases[0].circuits_up < result.phases[0].circuits_planned);
    assert!(result.ports.unwrap().fault_share > 0.0);
    assert!(
        result.steps.of_phases()[0].times.packets.is_some(),
        "the core and other circuits carry it"
    );
    let repaired = run("scale: 10", &BOARD.replace("12ms", "12ms, lasts: 1ms"));
    let delay = repaired.faults[0].phases.as_ref().unwrap().delay;
    assert!(delay < impact.delay);
    assert_eq!(repaired.phases[1].circuits_up, repaired.phases[1].circuits_planned);
}

#[test]
fn port_fault_removes_exactly_its_circuits() {
    let start = start();
    let plan = &start.circuits.as_ref().unwrap().plan;
    let new = plan.transitions.iter().find(|change| change.to == "sync").expect("a change");
    let added = new.stages[0].add[0];
    for effect in ["fails_test", "stuck"] {
        let fault = format!(
            "{{part: {}/p{}, effect: {effect}, phase: experts, at: 8ms}}",
            added.ocs, added.a_port
        );
        let result = run("scale: 10", &fault);
        let impact = result.faults[0].phases.as_ref().unwrap();
        assert_eq!(impact.circuits_lost, 1, "{effect}");
        assert_eq!(impact.leaves_affected, [added.a, added.b], "{effect}");
        assert_eq!(result.phases[1].circuits_up, result.phases[1].circuits_planned - 1, "{effect}");
        assert_eq!(result.phases[0].circuits_up, result.phases[0].circuits_planned, "{effect}");
    }
}

#[test]
fn missing_controller_changes_no_circuits_and_traffic_continues() {
    let result = run("scale: 10", "{part: control, phase: experts, at: 12ms}");
    let impact = result.faults[0].phases.as_ref().unwrap();
    assert_eq!(impact.changes_missed, 1);
    let [experts, sync] = &result.phases[..] else { panic!("two phases") };
    assert!(sync.change_missed && sync.transition == Picoseconds::ZERO);
    assert_eq!(sync.circuits_up, experts.circuits_up, "the old circuits stay");
    assert!(seconds(sync.times.packets) > seconds(sync.times.packets_without_faults));
    assert_eq!(impact.packets_lost, 0);
}

#[test]
fn slow_link_training_keeps_circuits_dark_longer() {
    let scenario = load(&fabric("5ms", "20ms"), "scale: 20", "");
    let start = scenario::plan(&scenario).unwrap();
    let plan = &start.circuits.as_ref().unwrap().plan;
    let result = emulate(&scenario, 1, &mut ()).unwrap();
    for (phase, planned) in result.phases.iter().zip(&plan.phases) {
        let stages = plan
            .transitions
            .iter()
            .find(|change| change.to == planned.name)
            .map_or(0, |change| change.stages.len() as u64);
        assert_eq!(phase.transition, Picoseconds::from_millis(23) * stages);
    }
}

#[test]
fn rejects_scale_that_leaves_no_bytes_in_a_phase() {
    let scenario = load(&fabric("5ms", "1ms"), "scale: 1000000", "");
    let error = emulate(&scenario, 1, &mut ()).expect_err("too small");
    assert!(matches!(error, EmulateError::TooSmall { .. }));
    let error = error.to_string();
    assert!(error.contains("20 round trips") && error.contains("at most"), "{error}");
}
