// SPDX-License-Identifier: Apache-2.0
//! Planned times of each phase compared with packets, on 50 drawn fabrics that were not used to
//! choose any constant.
//!
//! ```text
//!   LIGHTLOOM_NIGHT=1 cargo test --release -p lightloom-emulator --test it every_phase_takes -- --nocapture
//! ```
//! Flows have at least 16 MiB, under one transport ([`TRANSPORT`]).

use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::Options;
use lightloom_testkit::cases;
use lightloom_units::Picoseconds;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use crate::plan_times::Case;

/// Packets of a flow rotate through 1,024 entropy values, and an overtaken packet does not count as
/// lost.
const TRANSPORT: &str = "
transport:
  payload: 8KiB
  window_percent: 400
  balance: {entropy: {values: 1024, paths: even, probe: 50us}}
  recovery: {selective_repeat: {reordering: 4096}}
  timeout: 20ms
  tail_probe: 10ms
";

const MIB: u64 = 1 << 20;

struct Job {
    pp: u32,
    dp: u32,
    /// Minimum size of a flow in bytes.
    flow: u64,
    layers: u32,
}

impl Job {
    fn drawn(draws: &mut Stream) -> Self {
        let (pp, dp) = (draws.random_range(1..=3_u32), draws.random_range(2..=4_u32));
        let flow = 16 * MIB * draws.random_range(1..=3_u64);
        // A layer has 32 MiB in BF16, and a rank holds a quarter of its stage's layers.
        let layers =
            u32::try_from(flow / MIB * 2 * u64::from(pp) / 16).unwrap().next_multiple_of(pp);
        Self { pp, dp, flow, layers }
    }

    fn nodes(&self) -> u32 {
        self.pp * self.dp
    }

    fn model(&self) -> String {
        format!(
            "name: small\nsource: drawn\nlayers: {}\nhidden: 1024\nvocabulary: 1024\n\
             attention: {{grouped: {{query_heads: 16, key_value_heads: 16, head_size: 64}}}}\n\
             feed_forward: {{width: 4096, activation: swiglu}}\n",
            self.layers
        )
    }

    fn text(&self, dcn: &str) -> String {
        // Changes of circuits end before the phase sends.
        let slack = match dcn.contains("circuit_rate") {
            true => ", micro_batch_slack: 1ms, gradient_slack: 1ms",
            false => "",
        };
        // 2 MiB of a micro-batch cross a boundary from rank to rank.
        format!(
            "jobs: [{{name: j, gpus: {}, tp: 4, step: {{training: {{model: small.yaml, pp: {}, dp: {}, tokens: 4096, \
             micro_batches: {}{slack}}}}}}}]\n",
            4 * self.nodes(),
            self.pp,
            self.dp,
            self.flow / (2 * MIB),
        )
    }
}

fn drawn(draws: &mut Stream, number: u32) -> Case {
    match number % 5 {
        0 => packets(draws, number),
        1 => cables(draws, number),
        2 => circuits(draws, number, 1),
        3 => circuits(draws, number, 2),
        _ => matrix(draws, number, 64 * MIB),
    }
}

fn rate_of(draws: &mut Stream) -> u32 {
    [100, 200, 400][draws.random_range(0..3_usize)]
}

fn broken(draws: &mut Stream, parts: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    if draws.random_range(0..2_u32) == 0 {
        out.push(parts[draws.random_range(0..parts.len())].clone());
    }
    out
}

fn case(
    (number, what): (u32, String),
    (nodes, job): (u32, &Job),
    dcn: &str,
    broken: Vec<String>,
) -> Case {
    let fabric = format!(
        "kind: fabric\nversion: 2\nname: drawn-{number}\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n\
         dcn: {dcn}\n{}",
        job.text(dcn)
    );
    let name = format!(
        "{number:>2} {what}, PP {} DP {}, {} MiB, {}",
        job.pp,
        job.dp,
        job.flow / MIB,
        if broken.is_empty() { "whole".to_owned() } else { broken.join(" ") },
    );
    Case { name, fabric, model: job.model(), broken }
}

fn packets(draws: &mut Stream, number: u32) -> Case {
    let job = Job::drawn(draws);
    let per_leaf = draws.random_range(1..=4_u32);
    let leaves = (job.nodes() + draws.random_range(1..=3_u32)).div_ceil(per_leaf).max(2);
    let nodes = leaves * per_leaf;
    let rate = rate_of(draws);
    let over = [1, 2, 4][draws.random_range(0..3_usize)];
    let dcn = match draws.random_range(0..2_u32) {
        0 => format!(
            "{{fat_tree: {{nodes_per_tor: {per_leaf}, oversubscription: {over}, link_rate: {rate}Gbps}}}}"
        ),
        _ => format!(
            "{{leaf_spine: {{nodes_per_leaf: {per_leaf}, oversubscription: {over}, link_rate: {rate}Gbps}}}}"
        ),
    };
    let parts = [
        format!("n{}", draws.random_range(0..nodes)),
        format!("l{}/up0", draws.random_range(0..leaves)),
    ];
    let out = broken(draws, &parts);
    let what = format!("packets {leaves} leaves of {per_leaf} at {rate}, {over}:1");
    case((number, what), (nodes, &job), &dcn, out)
}

fn cables(draws: &mut Stream, number: u32) -> Case {
    let job = Job::drawn(draws);
    let rate = rate_of(draws);
    let (leaves, what, dcn) = match draws.random_range(0..3_u32) {
        0 => {
            (9, "dragonfly", "dragonfly: {groups: 3, leaves_per_group: 3, cables_between_groups: 2")
        }
        1 => (8, "torus 2x4", "torus: {sides: [2, 4], cables: 2"),
        _ => (9, "torus 3x3", "torus: {sides: [3, 3]"),
    };
    let per_leaf = (job.nodes() + 1).div_ceil(leaves).max(1);
    let dcn = format!("{{{dcn}, nodes_per_leaf: {per_leaf}, link_rate: {rate}Gbps}}}}");
    let parts = [
        format!("n{}", draws.random_range(0..leaves * per_leaf)),
        format!("l{}/up0", draws.random_range(0..leaves)),
    ];
    let out = broken(draws, &parts);
    let what = format!("{what} of {per_leaf} at {rate}");
    case((number, what), (leaves * per_leaf, &job), &dcn, out)
}

fn optics(draws: &mut Stream, (leaves, per_leaf): (u32, u32), banks: u32) -> (String, String) {
    let rate = rate_of(draws);
    let core = [0, per_leaf * rate, 2 * per_leaf * rate][draws.random_range(0..3_usize)];
    let bank = |bank: u32, draws: &mut Stream| {
        format!(
            "{{name: b{bank}, switches: {}, ports_per_switch: {}, ports_per_leaf: 2, insertion_loss_db: {}}}",
            draws.random_range(1..=2_u32),
            2 * leaves,
            1 + bank
        )
    };
    let banks: Vec<String> = (0..banks).map(|number| bank(number, draws)).collect();
    // The last leaf's longer path exceeds the loss budget of the second bank.
    let dcn = format!(
        "{{reconfigurable_fat_tree: {{leaves: {leaves}, gpus_per_leaf: {}, circuit_rate: {rate}Gbps, \
         electrical: {{rate_per_leaf: {core}Gbps, oversubscription: 2}}, banks: [{}], timing: {{switching: 100us}}, \
         loss: {{budget_db: 4, path_db: 1, extra_db: [{{leaf: leaf{}, db: 1.5}}]}}}}}}",
        4 * per_leaf,
        banks.join(", "),
        leaves - 1,
    );
    (dcn, format!("{leaves} leaves of {per_leaf} at {rate}, core {core}, {} banks", banks.len()))
}

fn circuits(draws: &mut Stream, number: u32, banks: u32) -> Case {
    let job = Job::drawn(draws);
    let per_leaf = draws.random_range(1..=2_u32);
    let leaves = (job.nodes() + draws.random_range(1..=2_u32)).div_ceil(per_leaf).max(3);
    let (dcn, what) = optics(draws, (leaves, per_leaf), banks);
    let parts = [
        format!("n{}", draws.random_range(0..leaves * per_leaf)),
        "ocs0/p0".to_owned(),
        "ocs0/p3".to_owned(),
    ];
    let out = broken(draws, &parts);
    case((number, format!("circuits {what}")), (leaves * per_leaf, &job), &dcn, out)
}

/// Leaves joined by optical switches, with a traffic matrix between leaves. There are few ports, so
/// that traffic passes through other leaves.
fn matrix(draws: &mut Stream, number: u32, least: u64) -> Case {
    let leaves = draws.random_range(4..=7_u32);
    let banks = draws.random_range(1..=2_u32);
    let (dcn, what) = optics(draws, (leaves, 2), banks);
    let entry = |from: u32, to: u32, draws: &mut Stream| match from == to
        || draws.random_range(0..3_u32) == 0
    {
        true => "0".to_owned(),
        false => (least * draws.random_range(1..=6_u64)).to_string(),
    };
    let rows: Vec<String> = (0..leaves)
        .map(|from| (0..leaves).map(|to| entry(from, to, draws)).collect::<Vec<_>>().join(", "))
        .collect();
    let out = broken(draws, &["ocs0/p0".to_owned(), "ocs0/p3".to_owned()]);
    let fabric = format!(
        "kind: fabric\nversion: 2\nname: drawn-{number}\ndcn: {dcn}\njobs: [{{name: j, step: {{phases: [{{name: exchange, \
         demand: {{matrix: [[{}]]}}}}]}}}}]\n",
        rows.join("], [")
    );
    let name = format!(
        "{number:>2} matrix {what}, {}",
        if out.is_empty() { "whole".to_owned() } else { out.join(" ") }
    );
    Case { name, fabric, model: String::new(), broken: out }
}

/// Returns the name of each phase, with its seconds in the plan and in packets. `None` if no plan
/// can be made.
fn times(case: &Case) -> Option<Vec<(String, [f64; 2], usize)>> {
    let text = format!(
        "kind: scenario\nversion: 2\nname: x\non: {{fabric: fabric.yaml}}{TRANSPORT}broken: [{}]\nphases: {{scale: 1}}\n",
        case.broken.join(", "),
    );
    let (loaded, mistakes) = case.read(&text);
    let Some(scenario) = loaded else {
        let why = mistakes.first().map(ToString::to_string).unwrap_or_default();
        println!("{:96} {why}", case.name);
        return None;
    };
    let start = scenario::plan(&scenario).unwrap();
    let routes = |name: &str| {
        let phases = &start.plan.as_ref().unwrap().0.phases;
        phases.iter().find(|phase| phase.name == name).map_or(0, |phase| phase.routes.len())
    };
    let outcome = lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap();
    let seconds = |phase: &lightloom_emulator::outcome::PhaseResult| {
        let packets = phase.times.packets.map_or(f64::INFINITY, |time| time.as_secs_f64());
        [phase.times.closed_form.as_secs_f64(), packets]
    };
    Some(
        outcome
            .phases
            .iter()
            .map(|phase| (phase.name.clone(), seconds(phase), routes(&phase.name)))
            .collect(),
    )
}

fn rails(draws: &mut Stream, number: u32) -> Case {
    let job = Job::drawn(draws);
    let per_group = draws.random_range(2..=4_u32);
    let nodes = (job.nodes() + 1).next_multiple_of(per_group).max(2 * per_group);
    let rate = rate_of(draws);
    let (over, planes) = ([1, 2][draws.random_range(0..2_usize)], draws.random_range(1..=2_u32));
    let dcn = format!(
        "{{rails: {{nodes_per_group: {per_group}, planes: {planes}, oversubscription: {over}, link_rate: {rate}Gbps}}}}"
    );
    let what = format!("rails of {per_group} nodes, {planes} planes at {rate}, {over}:1");
    case((number, what), (nodes, &job), &dcn, Vec::new())
}

/// Regression test: the emulator had no cables for rails, so phases took 0 s and jobs never ended.
#[test]
fn phases_on_rails_take_their_planned_time_in_packets() {
    let mut draws = Seed(4111).stream("rails", 0);
    for number in 0..cases(4, 25) {
        let case = rails(&mut draws, number);
        for (name, [planned, packets], _) in times(&case).expect("a plan") {
            let ratio = planned / packets;
            println!(
                "{:96} {name:13} plan {planned:.6} s, packets {packets:.6} s: {ratio:.3}",
                case.name
            );
            assert!((ratio - 1.0).abs() < 0.05, "{} {name}: {ratio}", case.name);
        }
    }
}

#[test]
fn every_phase_takes_its_planned_time_in_packets() {
    let mut draws = Seed(9077).stream("phase times", 0);
    let mut apart = Vec::new();
    let (mut number, mut fabrics) = (0, 0);
    while fabrics < cases(8, 50) {
        let case = drawn(&mut draws, number);
        number += 1;
        let Some(phases) = times(&case) else { continue };
        fabrics += 1;
        for (name, [planned, packets], routes) in phases {
            let ratio = planned / packets;
            println!(
                "{:96} {name:13} {routes:>3} routes, plan {:8.3} ms, packets {:8.3} ms: {ratio:.3}",
                case.name,
                planned * 1e3,
                packets * 1e3
            );
            apart.push((ratio - 1.0).abs());
        }
    }
    apart.sort_by(f64::total_cmp);
    let (worst, median) = (apart[apart.len() - 1], apart[apart.len() / 2]);
    println!(
        "{fabrics} fabrics, {} phases: median {:.2} % apart, worst {:.2} %",
        apart.len(),
        100.0 * median,
        100.0 * worst
    );
    let far = apart.iter().filter(|apart| **apart > 0.05).count();
    assert!(worst <= 0.1 && far * 50 <= apart.len(), "{far} are apart, the worst {worst}");
}

/// Small flows shared circuits evenly with large ones, so that routes took up to 1.25 times the plan. Now senders pace each
/// route.
#[test]
fn routes_through_other_leaves_take_their_planned_time() {
    let mut draws = Seed(71).stream("routes", 0);
    let (mut all, mut routed, mut far) = (0, 0, 0);
    for number in 0..cases(10, 300) {
        let case = matrix(&mut draws, number, 16 * MIB);
        for (_, [planned, packets], routes) in times(&case).unwrap_or_default() {
            println!("{:96} {routes:>3} routes: {:.3}", case.name, packets / planned);
            all += 1;
            routed += usize::from(routes > 0);
            far += usize::from((packets / planned - 1.0).abs() > 0.05);
        }
    }
    assert!(routed > 5 && far * 50 <= all, "{far} of {all} are apart");
}

/// A plan whose routes beat the separate plan did not try the best order of ranks, and took 23.4 ms.
#[test]
fn routes_do_not_hide_a_better_placement() {
    let job = Job { pp: 2, dp: 3, flow: 32 * MIB, layers: 8 };
    let dcn = "{reconfigurable_fat_tree: {leaves: 4, gpus_per_leaf: 8, circuit_rate: 100Gbps, \
               electrical: {rate_per_leaf: 0Gbps, oversubscription: 2}, banks: [{name: b, switches: 1, \
               ports_per_switch: 8, ports_per_leaf: 2}], timing: {switching: 100us}}}";
    let case = case((0, "placement".into()), (8, &job), dcn, Vec::new());
    let text = "kind: scenario\nversion: 2\nname: x\non: {fabric: fabric.yaml}\nphases: {}\n";
    let (loaded, mistakes) = case.read(text);
    let start = scenario::plan(&loaded.unwrap_or_else(|| panic!("{mistakes:?}"))).unwrap();
    let step = start.plan.as_ref().unwrap().0.metrics.step_time_ps.unwrap();
    assert!(step < Picoseconds::from_micros(20_300), "{step}");
}

/// Switches that hash load some links more than others. The plan assumes even shares, and the fluid time is that of the
/// fullest link by the paths that the values got. When marks of a round all acted in the same part of the next one, 1,024
/// values took 1.25 times the plan.
#[test]
fn hashed_values_take_the_time_of_the_fullest_link() {
    let mut draws = Seed(64).stream("hashed", 0);
    for number in 0..cases(4, 24) {
        let case = packets(&mut draws, number);
        let text = format!(
            "kind: scenario\nversion: 2\nname: x\non: {{fabric: fabric.yaml}}{}broken: [{}]\nphases: {{scale: 1}}\n",
            TRANSPORT.replace("paths: even, ", ""),
            case.broken.join(", "),
        );
        let Some(scenario) = case.read(&text).0 else { continue };
        for phase in lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap().phases {
            let [fluid, packets] =
                [phase.times.fluid, phase.times.packets].map(|time| time.unwrap().as_secs_f64());
            let plan = phase.times.closed_form.as_secs_f64();
            let [plan, fluid] = [plan, fluid].map(|time| time / packets);
            println!("{:96} {:13} plan {plan:.3}, fullest link {fluid:.3}", case.name, phase.name);
            assert!(
                (0.8..=1.0).contains(&fluid) && plan < fluid + 0.01,
                "{}: {plan} {fluid}",
                case.name
            );
        }
    }
}

/// GPUs without a domain send over their own interfaces, rather than through one host per leaf with
/// their summed rate.
#[test]
fn gpus_without_a_domain_use_separate_interfaces() {
    for (leaves, below, ports, core, broken) in
        [(4, 3, 2, 0, ""), (4, 3, 4, 400, "n1"), (3, 4, 2, 800, ""), (6, 2, 2, 0, "ocs0/p1")]
    {
        let nodes = leaves * below;
        let fabric = format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{none: {{nodes: {nodes}, gpus_per_node: 1}}}}\n\
             dcn: {{reconfigurable_fat_tree: {{leaves: {leaves}, gpus_per_leaf: {below}, circuit_rate: 400Gbps, \
             gpu_rate: 200Gbps, electrical: {{rate_per_leaf: {core}Gbps, oversubscription: 2}}, banks: [{{name: b, \
             switches: 2, ports_per_switch: {}, ports_per_leaf: {ports}}}], timing: {{switching: 100us}}}}}}\n\
             jobs: [{{name: j, gpus: 10, tp: 1, step: {{training: {{model: small.yaml, pp: 2, dp: 5, tokens: 4096, \
             micro_batches: 8, micro_batch_slack: 1ms, gradient_slack: 1ms}}}}}}]\n",
            leaves * ports
        );
        let model = Job { pp: 2, dp: 5, flow: 16 * MIB, layers: 8 }.model();
        let name = format!("{leaves} leaves of {below} GPUs, core {core}, broken {broken:?}");
        let broken = broken.split_terminator(',').map(str::to_owned).collect();
        let phases = times(&Case { name: name.clone(), fabric, model, broken }).expect("a plan");
        assert!(!phases.is_empty(), "{name}");
        for (phase, [planned, packets], _) in phases {
            println!("{name}: {phase}: plan {planned:.6} s, packets {packets:.6} s");
            assert!((planned / packets - 1.0).abs() <= 0.05, "{name}: {phase}");
        }
    }
}

/// Returns the seconds of the gradients of a job on 16 GPUs in the plan, the phase and the step.
/// `share` is a share of a link in the file.
fn of_share(share: &str, accelerator: &str) -> [f64; 3] {
    let fabric = format!(
        "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: 5, gpus_per_node: 4, k: 2}}}}\n\
         dcn: {{leaf_spine: {{nodes_per_leaf: 1, link_rate: 100Gbps}}}}\n\
         jobs: [{{name: j, gpus: 16, tp: 4, step: {{training: {{model: small.yaml, dp: 4, tokens: 16{share}}}}}}}]\n"
    );
    let model = Job { pp: 1, dp: 4, flow: 32 * MIB, layers: 16 }.model();
    let run = |what: &str| {
        let text = format!(
            "kind: scenario\nversion: 2\nname: x\non: {{fabric: fabric.yaml}}{TRANSPORT}{what}\n"
        );
        let read = &mut |name: &str| {
            let text = if name == "fabric.yaml" { &fabric } else { &model };
            Ok(NamedFile { name: name.to_owned(), bytes: text.as_bytes().to_vec() })
        };
        let (loaded, mistakes) = scenario::file::load("scenario.yaml", text.as_bytes(), read);
        let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
        lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
    };
    let phases = run("phases: {scale: 1}").phases;
    let step = run(&format!("train: [{{job: j, accelerator: {accelerator}}}]"));
    let step = step.steps.of_jobs()[0].why.unwrap();
    let times = [phases[0].times.closed_form, phases[0].times.packets.unwrap(), step.exposed.dp];
    times.map(|time| time.as_secs_f64())
}

#[test]
fn plan_packets_and_steps_use_the_same_link_share() {
    for accelerator in ["h100", "a100"] {
        let [whole, _, least] = of_share(", usable_share: 1", accelerator);
        for (share, written) in
            [(0.96, ""), (0.5, ", usable_share: 0.5"), (1.0, ", usable_share: 1")]
        {
            let [planned, phase, step] = of_share(written, accelerator);
            // A step also has the delays of the library, which depend only on the number of collectives.
            let times = [planned, phase, step - least + whole];
            for (time, of) in times.iter().zip(["plan", "phase", "step"]) {
                let ratio = time / (whole / share);
                println!("{share} {accelerator} {of}: {ratio:.4}");
                assert!((0.97..1.05).contains(&ratio), "{share} {accelerator} {of}: {ratio}");
            }
        }
    }
}

/// Two nodes per group below leaves of four nodes, 4:1, so that traffic over the uplinks depends on
/// the groups that share a leaf.
const POD: &str = "
kind: fabric
version: 2
name: pod
hbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}
dcn: {leaf_spine: {nodes_per_leaf: 4, oversubscription: 4, link_rate: 100Gbps}}
jobs: [{name: j, gpus: 64, tp: 8, step: {training: {model: small.yaml, pp: 2, dp: 4, tokens: 4096, micro_batches: 32}}}]
";

#[test]
fn printed_gain_matches_packet_runs_of_both_plans() {
    let model = Job { pp: 2, dp: 4, flow: 32 * MIB, layers: 16 }.model();
    let text = format!(
        "kind: scenario\nversion: 2\nname: x\non: {{fabric: fabric.yaml}}{TRANSPORT}phases: {{scale: 1}}\n"
    );
    let read = &mut |name: &str| {
        let text = if name == "fabric.yaml" { POD } else { &model };
        Ok(NamedFile { name: name.to_owned(), bytes: text.as_bytes().to_vec() })
    };
    let (loaded, mistakes) = scenario::file::load("scenario.yaml", text.as_bytes(), read);
    let mut scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    let scenario::On::Fabric(fabric) = scenario.on.clone() else { panic!("a fabric") };
    let mut step_of = |separately: bool| {
        let options = Options { separately, ..Options::default() };
        let plan = lightloom_planner::plan(&fabric, &FaultSet::none(), options).unwrap();
        let (stated, gain) = (plan.metrics.step_time_ps.unwrap(), plan.metrics.orchestration_gain);
        scenario.plan = Some(std::sync::Arc::new(plan));
        let outcome = lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap();
        let packets: Picoseconds =
            outcome.phases.iter().map(|phase| phase.times.packets.unwrap()).sum();
        (stated.as_secs_f64(), packets.as_secs_f64(), gain)
    };
    let (together, alone) = (step_of(false), step_of(true));
    let gain = together.2.expect("a gain");
    println!("{together:?} {alone:?}");
    assert!(alone.2.is_none() && gain > 0.1, "{gain}");
    assert!((gain - (1.0 - together.0 / alone.0)).abs() < 1e-9, "{gain}: of the two plans");
    let shown = 1.0 - together.1 / alone.1;
    assert!((gain - shown).abs() < 0.05, "{gain} printed, {shown} in packets");
}
