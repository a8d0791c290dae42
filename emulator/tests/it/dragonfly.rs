// SPDX-License-Identifier: Apache-2.0
//! Routes on a dragonfly (Kim, Dally, Scott, Abts: "Technology-driven, highly-scalable dragonfly
//! topology", ISCA 2008), compared with bounds from counting cables. If every group sends to the
//! next one, minimal routes share one cable. Through a third group, every cable between groups is
//! used twice, which leaves about a half.

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;

/// p = h = 2, a = 4: nine groups of eight hosts, so `shift: 8` leads to the same place of the next
/// group.
fn run(routes: &str, balance: &str, work: &str, more: &str) -> Outcome {
    let text = format!(
        "
name: dragonfly
on: {{dragonfly: {{hosts_per_router: 2, routers_per_group: 4, global_per_router: 2, routes: {routes}}}}}
switches: {{queue: 64MiB, mark_from: 64MiB}}
transport: {{balance: {balance}, recovery: {{selective_repeat: {{reordering: 60000}}}}, timeout: 1s}}
seed: 1
traffic: [{{name: a, run: {work}, bytes: 4MiB}}]
{more}
"
    );
    let read = &mut |_: &str| -> Result<NamedFile, String> { unreachable!("no other file") };
    let (scenario, mistakes) = scenario::file::load("dragonfly.yaml", text.as_bytes(), read);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

const SPRAY: &str = "{spray: {paths: 256}}";

fn throughput(outcome: &Outcome) -> f64 {
    let seconds = outcome.workloads[0].end.unwrap().since(Default::default()).as_secs_f64();
    4.0 * 1_048_576.0 * 8.0 * 4_096.0 / 4_032.0 / seconds / 400e9
}

#[test]
fn valiant_beats_minimal_routes_between_adjacent_groups() {
    let minimal = throughput(&run("minimal", SPRAY, "{shift: 8}", ""));
    // Eight hosts share the cable between their group and the next: 1/(a·p), which is 1/(a·h) here.
    assert!((0.95 / 8.0..=1.0 / 8.0).contains(&minimal), "{minimal}");
    // Each of a group's a·h - 1 cables to third groups carries its share of a·p hosts twice, for
    // its own group and for the one that passes through it: (a·h - 1)/(2·a·p), which is a half in
    // large dragonflies.
    let bound = 7.0 / 16.0;
    let valiant = throughput(&run("valiant", SPRAY, "{shift: 8}", ""));
    println!("adversarial: minimal {minimal:.4}, Valiant {valiant:.4}");
    assert!((0.75 * bound..=bound).contains(&valiant), "{valiant}");
}

#[test]
fn valiant_halves_throughput_of_uniform_traffic() {
    let uniform = "{all_to_all: at_once}, hosts: [h0..h71]";
    let minimal = throughput(&run("minimal", SPRAY, uniform, ""));
    let valiant = throughput(&run("valiant", SPRAY, uniform, ""));
    println!("uniform: minimal {minimal:.4}, Valiant {valiant:.4}");
    assert!(minimal > 0.85, "{minimal}");
    // 64 of 71 destinations are in other groups.
    let bound = 0.5 * 71.0 / 64.0;
    assert!((0.85 * bound..=bound).contains(&valiant), "{valiant}");
}

#[test]
fn flows_avoid_dark_links_without_waiting() {
    let faults = "
faults: [{part: any switch, at: 5us}, {part: any cable, at: 10us, lasts: 100us}]
control: {reroute_delay: 20us}
";
    let outcome = run("valiant", "per_flow", "permutation", faults);
    let traffic = outcome.faults[0].traffic.as_ref().unwrap();
    // The two hosts of the router are out of service; every other flow finds a path.
    assert_eq!(outcome.faults[0].gpus_lost, 2, "{traffic:?}");
    assert_eq!(traffic.flows_given_up, 4, "{traffic:?}");
    let (count, given_up) = (outcome.flows.count, outcome.flows.cancelled);
    assert_eq!((count, given_up), (68, 4));
}

#[test]
fn rejects_adaptive_balancing_on_valiant_routes() {
    let text = "
name: dragonfly
on: {dragonfly: {hosts_per_router: 2, routers_per_group: 4, global_per_router: 2, routes: valiant}}
transport: {balance: adaptive}
traffic: [{name: a, run: permutation, bytes: 1KiB}]
";
    let read = &mut |_: &str| -> Result<NamedFile, String> { unreachable!("no other file") };
    let (scenario, mistakes) = scenario::file::load("dragonfly.yaml", text.as_bytes(), read);
    assert!(scenario.is_none());
    assert!(mistakes[0].to_string().starts_with("dragonfly.yaml:3:"), "{mistakes:?}");
}
