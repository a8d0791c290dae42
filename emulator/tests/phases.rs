//! Phase sequences on reconfigurable circuits: packets against the models, and what faults do.

use lightloom_emulator::phases::{
    self, Acknowledgements, Fault, FaultKind, InFlight, Outcome, PhaseScenario,
};
use lightloom_emulator::scenario::Progress;
use lightloom_fabric::fat_tree::{
    ElectricalCore, FatTreeSpec, LossBudget, OcsBank, ReconfigurableFatTree, SwitchTiming,
};
use lightloom_planner::rfabric::file::{self as rfabric, RfabricInput};
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::rfabric::plan::Options;
use lightloom_planner::rfabric::workload::shapes;
use lightloom_planner::rfabric::{RfabricPlan, plan};
use lightloom_units::id::OcsId;
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Picoseconds, SimTime};

struct Silent;

impl Progress for Silent {
    fn tell(&mut self, _: SimTime, _: u64, _: f64) {}
}

/// Sixteen leaves with eight circuits each, two phases, two failure domains.
fn input(timing: SwitchTiming) -> RfabricInput {
    let spec = FatTreeSpec {
        leaves: 16,
        gpus_per_leaf: 8,
        gpu_rate: BitsPerSecond::from_gbps(400),
        circuit_rate: BitsPerSecond::from_gbps(400),
        electrical: ElectricalCore {
            rate_per_leaf: BitsPerSecond::from_gbps(320),
            oversubscription: 1.0,
        },
        banks: vec![OcsBank {
            name: "core".into(),
            switches: 4,
            ports_per_switch: 32,
            ports_per_leaf: 2,
            insertion_loss_db: 1.0,
        }],
        timing,
        loss: LossBudget { budget_db: 4.0, path_db: 1.0, extra_db: vec![] },
        forbidden: vec![],
        held: vec![],
        failure_domains: 2,
    };
    let phases =
        [("experts", shapes::moe(16, Seed(1))), ("sync", shapes::weight_sync(16, Seed(1)))];
    RfabricInput {
        name: "small".into(),
        sha256: String::new(),
        fabric: ReconfigurableFatTree::new(spec).expect("a sound fabric"),
        phases: phases
            .map(|(name, demand)| Phase {
                name: name.into(),
                demand,
                slack: Picoseconds::from_millis(5),
            })
            .to_vec(),
        options: Options::default(),
    }
}

fn quick() -> SwitchTiming {
    SwitchTiming {
        control: Picoseconds::from_millis(1),
        switching: Picoseconds::from_millis(2),
        bring_up: Picoseconds::from_millis(1),
    }
}

fn planned(input: &RfabricInput) -> RfabricPlan {
    plan(&input.fabric, &input.phases, &[], input.options).expect("a plan")
}

fn scenario(scale: u64, faults: Vec<Fault>) -> PhaseScenario {
    PhaseScenario { scale: Some(scale), faults, ..PhaseScenario::undisturbed("small") }
}

fn run(input: &RfabricInput, scenario: &PhaseScenario, threads: usize) -> Outcome {
    phases::run(input, &planned(input), scenario, threads, &mut Silent).expect("a run")
}

fn seconds(time: Option<Picoseconds>) -> f64 {
    time.expect("every byte arrives").as_secs_f64()
}

fn fault(kind: FaultKind, phase: usize, after_ms: u64) -> Fault {
    Fault {
        kind,
        phase,
        phase_name: ["experts", "sync"][phase].into(),
        step: 0,
        after: Picoseconds::from_millis(after_ms),
        within: Picoseconds::ZERO,
        probability: 1.0,
        repaired_after: None,
    }
}

#[test]
fn packets_take_what_the_fluid_model_says_within_four_per_cent() {
    let input = input(quick());
    let result = run(&input, &scenario(10, Vec::new()), 1);
    assert_eq!(result.phases.len(), 2);
    for phase in &result.phases {
        let ratio = seconds(phase.times.packets) / seconds(phase.times.fluid);
        assert!((0.99..1.04).contains(&ratio), "{}: {ratio}", phase.name);
        assert!(phase.transition > Picoseconds::ZERO, "{} has its own circuits", phase.name);
        assert_eq!(phase.circuits_up, phase.circuits_planned);
    }
}

/// A leaf that sends to many over its loaded uplink owes acknowledgements to others. Where they stand
/// behind its data, windows of those others run dry although their own links are free.
#[test]
fn acknowledgements_behind_data_are_what_slows_a_weight_synchronisation() {
    let file = include_bytes!("../../topologies/rfabric-moe.yaml");
    let (input, mistakes) = rfabric::load("rfabric-moe.yaml", file, &mut |_| Err(String::new()));
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let mut input = input.expect("a sound file");
    input.phases.retain(|phase| phase.name == "weight-sync");
    let slower = |acknowledgements| {
        let run = run(&input, &PhaseScenario { acknowledgements, ..scenario(300, vec![]) }, 1);
        seconds(run.phases[0].times.packets) / seconds(run.phases[0].times.fluid)
    };
    let (first, in_turn) = (slower(Acknowledgements::First), slower(Acknowledgements::InTurn));
    assert!((0.99..1.02).contains(&first), "with a priority of their own: {first}");
    assert!(in_turn > 1.25, "behind data: {in_turn}");
}

#[test]
fn flows_and_links_are_given_in_the_fabrics_bytes_and_time() {
    let input = input(quick());
    let run = run(&input, &scenario(10, Vec::new()), 1);
    let sent: u64 =
        run.flow_records.iter().filter(|flow| flow.end.is_some()).map(|f| f.size.0).sum();
    let demanded: u64 = input.phases.iter().map(|phase| phase.demand.total().0).sum();
    assert!((sent as f64 / demanded as f64 - 1.0).abs() < 0.05, "{sent} of {demanded}");
    let last = run.flow_records.iter().filter_map(|flow| flow.end).max().expect("a flow ended");
    assert!(last <= run.head.simulated && last.0 > run.head.simulated.0 / 2, "{last:?}");
    let carried =
        |name: &str| run.links.iter().find(|(link, _)| link == name).expect(name).1.packets;
    let bytes = |name: &str| run.links.iter().find(|(link, _)| link == name).expect(name).1.bytes;
    assert!(bytes("gpus>leaf0") > bytes("leaf0>gpus"), "data goes up there");
    assert!(bytes("gpus>leaf15") < bytes("leaf15>gpus"), "and down here");
    assert!(carried("leaf0>core") > 0 && carried("gpus>leaf0") > 0);
    assert!(run.links.iter().any(|(link, count)| link.contains(" ocs") && count.packets > 0));
}

#[test]
fn time_does_not_depend_on_the_scale() {
    let input = input(quick());
    let step = |scale| seconds(run(&input, &scenario(scale, Vec::new()), 1).steps[0].times.packets);
    let full = step(4);
    for (scale, tolerance) in [(16, 0.01), (64, 0.04)] {
        let ratio = step(scale) / full;
        assert!((ratio - 1.0).abs() < tolerance, "divided by {scale}: {ratio}");
    }
}

#[test]
fn a_run_does_not_depend_on_the_number_of_threads() {
    let input = input(quick());
    let board = FaultKind::DriverBoard { ocs: OcsId(0), first_port: 0, last_port: 7 };
    let scenario = scenario(40, vec![fault(board, 0, 12)]);
    let one = run(&input, &scenario, 1);
    let mut three = run(&input, &scenario, 3);
    three.head.threads = 1;
    assert_eq!(one, three);
}

#[test]
fn what_is_on_a_circuit_when_its_mirrors_move_is_lost_or_was_drained() {
    // Without slack the changes run under traffic.
    let mut input = input(quick());
    for phase in &mut input.phases {
        phase.slack = Picoseconds::ZERO;
    }
    let drained = run(&input, &scenario(10, Vec::new()), 1);
    assert_eq!(drained.head.packets.lost, 0);
    let lossy = PhaseScenario { in_flight: InFlight::Lose, ..scenario(10, Vec::new()) };
    let lossy = run(&input, &lossy, 1);
    assert!(lossy.head.packets.lost > 0);
    assert!(lossy.steps[0].times.packets.is_some(), "what is lost is sent again");
}

#[test]
fn one_driver_board_takes_many_circuits_and_their_traffic_goes_round() {
    let input = input(quick());
    let board = FaultKind::DriverBoard { ocs: OcsId(0), first_port: 0, last_port: 7 };
    let result = run(&input, &scenario(10, vec![fault(board, 0, 12)]), 1);
    let felt = &result.faults[0];
    assert!(felt.circuits_lost >= 4, "{felt:?}");
    assert!(felt.packets_lost > 0 && !felt.leaves_affected.is_empty(), "{felt:?}");
    assert!(felt.phases_slowed.contains(&"0/experts".to_owned()), "{felt:?}");
    assert!(result.phases[0].circuits_up < result.phases[0].circuits_planned);
    assert!(result.ports.fault_share > 0.0);
    assert!(result.steps[0].times.packets.is_some(), "the core and other circuits carry it");
    let repaired = Fault {
        repaired_after: Some(Picoseconds::from_millis(1)),
        ..fault(FaultKind::DriverBoard { ocs: OcsId(0), first_port: 0, last_port: 7 }, 0, 12)
    };
    let repaired = run(&input, &scenario(10, vec![repaired]), 1);
    assert!(repaired.faults[0].delay < felt.delay);
    assert_eq!(repaired.phases[1].circuits_up, repaired.phases[1].circuits_planned);
}

#[test]
fn a_port_that_fails_takes_exactly_the_circuits_that_need_it() {
    let input = input(quick());
    let plan = planned(&input);
    let new = plan.transitions.iter().find(|change| change.to == "sync").expect("a change");
    let added = new.stages[0].add[0];
    for kind in [
        FaultKind::FailsQualification { ocs: added.ocs, port: added.a_port },
        FaultKind::StuckMirror { ocs: added.ocs, port: added.a_port },
    ] {
        let result = run(&input, &scenario(10, vec![fault(kind, 0, 8)]), 1);
        let felt = &result.faults[0];
        assert_eq!(felt.circuits_lost, 1, "{kind}");
        assert_eq!(felt.leaves_affected, [added.a, added.b], "{kind}");
        assert_eq!(result.phases[1].circuits_up, result.phases[1].circuits_planned - 1, "{kind}");
        assert_eq!(result.phases[0].circuits_up, result.phases[0].circuits_planned, "{kind}");
    }
}

#[test]
fn without_a_controller_nothing_moves_and_traffic_goes_on() {
    let input = input(quick());
    let result = run(&input, &scenario(10, vec![fault(FaultKind::ControllerLoss, 0, 12)]), 1);
    assert_eq!(result.faults[0].changes_missed, 1);
    let [experts, sync] = &result.phases[..] else { panic!("two phases") };
    assert!(sync.change_missed && sync.transition == Picoseconds::ZERO);
    assert_eq!(sync.circuits_up, experts.circuits_up, "the old circuits stay");
    assert!(seconds(sync.times.packets) > seconds(sync.times.packets_without_faults));
    assert_eq!(result.faults[0].packets_lost, 0);
}

#[test]
fn slow_links_keep_the_circuits_dark_for_so_long() {
    let bring_up = Picoseconds::from_millis(20);
    let input = input(SwitchTiming { bring_up, ..quick() });
    let plan = planned(&input);
    let result =
        phases::run(&input, &plan, &scenario(20, Vec::new()), 1, &mut Silent).expect("runs");
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
fn a_scale_that_leaves_nothing_of_a_phase_is_refused() {
    let input = input(quick());
    let error = phases::run(&input, &planned(&input), &scenario(1_000_000, vec![]), 1, &mut Silent);
    let error = error.expect_err("too small").to_string();
    assert!(error.contains("twenty round trips") && error.contains("at most"), "{error}");
}
