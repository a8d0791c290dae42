// SPDX-License-Identifier: Apache-2.0
//! Tests of switches in scenarios: queues that are too small drop packets, pauses lose nothing,
//! drops are reported by priority, and expectations that would always hold are rejected.

use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::Diagnostic;
use lightloom_units::Picoseconds;

/// Two groups of 16 GPUs below eight top-of-rack switches with uplinks for a quarter of the traffic
/// from below.
const FABRIC: &str = "
kind: fabric
version: 2
name: narrow
hbd: {khop: {nodes: 8, gpus_per_node: 4, k: 3}}
dcn: {fat_tree: {nodes_per_tor: 1, tors_per_domain: 8, oversubscription: 4}}
jobs: [{name: train, gpus: 32, tp: 16}]
";

const SCENARIO: &str = "
name: gradients
on: {fabric: fabric.yaml}
collectives:
  - data_parallel_all_reduce: {name: gradients, bytes: 4MiB, priority: 3}
";

fn load(text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    let read = &mut |name: &str| {
        Ok(NamedFile { name: name.to_owned(), bytes: FABRIC.as_bytes().to_vec() })
    };
    scenario::file::load("scenario.yaml", text.as_bytes(), read)
}

/// Returns the scenario with these keys. It sets a priority only if the switches have priority
/// queues.
fn with(more: &str) -> String {
    let has_priorities =
        ["schedule", "pause", "trim", "buffer"].iter().any(|key| more.contains(key));
    let base = SCENARIO.replace(", priority: 3", if has_priorities { ", priority: 3" } else { "" });
    format!("{base}{more}")
}

fn run(more: &str) -> Outcome {
    let (loaded, mistakes) = load(&with(more));
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

fn verdicts(outcome: &Outcome) -> Vec<bool> {
    outcome.expectations.iter().map(|expectation| expectation.passed).collect()
}

#[test]
fn small_queues_drop_and_pauses_do_not() {
    let small = "switches: {queue: 16KiB, mark_from: 16KiB, schedule: strict}\n";
    let expect = "expect: [no drops, no drops on priority 3, drops < 1000000]\n";
    let lossy = run(&format!("{small}{expect}"));
    assert!(lossy.head.packets.dropped > 0, "{:?}", lossy.head.packets);
    assert_eq!(lossy.drops_by_priority[3], lossy.head.packets.dropped, "only priority 3 is sent");
    assert_eq!(verdicts(&lossy), [false, false, true]);
    assert!(!lossy.passed());

    let pause = "switches: {mark_from: 16KiB, pause: {priorities: [3], above: 16KiB}}\n";
    let lossless =
        run(&format!("{pause}expect: [no drops, no drops on priority 3, no deadlock]\n"));
    assert!(lossless.head.packets.pauses > 0, "{:?}", lossless.head.packets);
    assert_eq!((lossless.head.packets.dropped, lossless.head.packets.retransmitted), (0, 0));
    assert_eq!(verdicts(&lossless), [true, true, true]);
}

#[test]
fn rising_marking_chance_marks_fewer_than_a_threshold() {
    let all = run("switches: {queue: 1MiB, mark_from: 16KiB}\n");
    let ramp = run(
        "switches: {queue: 1MiB, mark_from: 16KiB, mark_ramp: {all_from: 512KiB, percent: 10}}\n",
    );
    let (all, ramp) = (all.head.packets.marked, ramp.head.packets.marked);
    assert!(ramp > 0 && ramp * 5 < all * 4, "{ramp} of {all}");
}

#[test]
fn trimmed_packets_are_counted_and_resent() {
    let trimming = run("switches: {queue: 16KiB, mark_from: 16KiB, trim: true}\n");
    assert!(trimming.head.packets.trimmed > 0, "{:?}", trimming.head.packets);
    assert!(trimming.workloads.iter().all(|collective| collective.end.is_some()));
}

#[test]
fn cut_through_and_host_delay_follow_their_closed_forms() {
    let ideal = |more: &str| {
        let outcome = run(&format!("switches: {{queue: 64MiB, mark_from: 64MiB{more}\n"));
        for collective in &outcome.workloads {
            let took = collective.end.unwrap().since(collective.start);
            assert!(took >= collective.ideal, "{more}: {took} beats {}", collective.ideal);
        }
        outcome.workloads[0].ideal
    };
    let plain = ideal("}");
    assert!(ideal(", cut_through: true}") < plain);
    assert!(ideal(", cut_through: true, schedule: strict}") < plain);
    // An all-reduce between two groups takes two steps, and each ends in a host.
    assert_eq!(ideal("}\ntransport: {host_delay: 3us}"), plain + Picoseconds::from_micros(6));
}

#[test]
fn file_selects_congestion_control_and_spraying() {
    let fixed = run("");
    for congestion in ["dctcp", "dcqcn", "swift", "nscc"] {
        let other = run(&format!("transport: {{congestion: {congestion}, window_percent: 200}}\n"));
        assert!(other.workloads.iter().all(|collective| collective.end.is_some()));
        assert_ne!(other.head.packet_hops, 0);
        assert_ne!(other.head.simulated, fixed.head.simulated, "{congestion} changes nothing");
    }
    for balance in ["{spray: {paths: 8}}", "{entropy: {}}", "adaptive"] {
        let other = run(&format!("transport: {{balance: {balance}}}\n"));
        assert!(other.workloads.iter().all(|collective| collective.end.is_some()), "{balance}");
    }
}

#[test]
fn rejects_meaningless_settings_with_location() {
    for (more, code, help) in [
        ("expect: [no drops on priority 3]\n", "LL0309", "schedule: strict"),
        ("expect: [no deadlock]\n", "LL0309", "pause"),
        ("expect: [no drops on priority 9]\n", "LL0301", "0 to 6"),
        ("switches: {queue: 1KiB}\n", "LL0313", "1MiB"),
        ("switches: {mark_ramp: {all_from: 16KiB, percent: 10}}\n", "LL0313", "mark_from"),
        ("switches: {schedule: {weighted: []}}\n", "LL0313", "weighted"),
        (
            "switches: {pause: {priorities: [3], above: 16KiB, resume_at: 17KiB}}\n",
            "LL0313",
            "above",
        ),
        ("transport: {window_percent: 100, window_packets: 4}\n", "LL0304", "either"),
    ] {
        let (loaded, mistakes) = load(&with(more));
        let [mistake] = mistakes.as_slice() else { panic!("{more}: {mistakes:?}") };
        assert!(loaded.is_none());
        assert_eq!(mistake.code.id, code, "{mistake:?}");
        assert!(format!("{mistake:?}").contains(help), "{mistake:?}");
    }
}

/// Regression: four values for sixteen paths took 2.3 times the bound without a warning.
#[test]
fn warns_about_fewer_entropy_values_than_paths() {
    let drawn = |on: &str, balance: &str| {
        let text = format!(
            "name: x\non: {on}\ntransport: {{balance: {{{balance}}}}}\n\
             traffic: [{{name: all, run: permutation, bytes: 64KiB}}]\n"
        );
        let (scenario, said) = load(&text);
        assert!(scenario.is_some(), "{said:?}");
        said.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>()
    };
    let said = |on: &str, entropy: &str| drawn(on, &format!("entropy: {entropy}"));
    let tree = "{fat_tree: {radix: 8}}";
    let [few] = &said(tree, "{values: 4}")[..] else { panic!("one warning") };
    for words in ["LL0325", "4 entropy values for 16 paths", "write 16"] {
        assert!(few.contains(words), "{words}: {few}");
    }
    assert!(said(tree, "{values: 16}").is_empty());
    assert!(said(tree, "{}").is_empty(), "as many as there are paths");
    let planes = "{leaf_spine: {leaves: 8, spines: 32, hosts_per_leaf: 32, planes: 8}}";
    let [few] = &said(planes, "{values: 128}")[..] else { panic!("one warning") };
    assert!(few.contains("128 entropy values for 256 paths"), "{few}");
    assert!(said("{ring: {hosts: 8}}", "{values: 4}").is_empty(), "one path or two");
    let [few] = &drawn(tree, "spray: {paths: 4}")[..] else { panic!("one warning") };
    assert!(few.contains("4 random paths for 16 paths"), "{few}");
    assert!(drawn(tree, "spray: {paths: 16}").is_empty());
    assert!(drawn("{fat_tree: {radix: 32}}", "spray: {paths: 64}").is_empty(), "64 of 256");
}

/// A queue that pauses instead of dropping grows beyond the usual 1 MiB and may mark there.
#[test]
fn pausing_switches_may_mark_above_their_queue() {
    let marking = |more: &str| load(&with(&format!("switches: {{mark_from: 2MiB{more}}}\n")));
    let (scenario, said) = marking(", pause: {priorities: [3], above: 2MiB}");
    assert!(scenario.is_some() && said.is_empty(), "{said:?}");
    let (scenario, said) = marking("");
    assert!(scenario.is_none(), "{said:?}");
}

/// Regression: at 200 Mb/s, a network without losses resent 5,890 packets.
#[test]
fn warns_about_a_timeout_shorter_than_a_round_trip() {
    let said = |rate: &str, timeout: &str| {
        load(&format!(
            "name: x\non: {{fat_tree: {{radix: 4}}}}\nlinks: {{rate: {rate}}}\ntransport: {{window_percent: 100{timeout}}}\n\
             traffic: [{{name: all, run: permutation, bytes: 64KiB}}]\n"
        ))
        .1
    };
    let [slow] = &said("200Mbps", ", timeout: 500us")[..] else { panic!("one warning") };
    let slow = format!("{slow:?}");
    assert!(
        slow.contains("LL0326")
            && slow.contains("over four links of 200 Mb/s")
            && slow.contains("use `14ms`"),
        "{slow}"
    );
    assert!(said("200Mbps", ", timeout: 20ms").is_empty());
    assert!(said("200Mbps", "").is_empty(), "round trips are measured");
    assert!(said("400Gbps", "").is_empty());
}

#[test]
fn warns_about_slow_dcqcn_steps() {
    let (scenario, said) = load(
        "name: x\non: {fat_tree: {radix: 4}}\ntransport:\n  congestion: dcqcn\n  dcqcn: {alpha_timer: 1us, timer: 900us, \
         additive: 50Mbps, hyper: 100Mbps, notification_interval: 4us, fast_steps: 1}\n\
         traffic: [{name: all, run: permutation, bytes: 64KiB}]\n",
    );
    assert!(scenario.is_some(), "{said:?}");
    let [slow] = &said[..] else { panic!("one warning: {said:?}") };
    assert!(format!("{slow:?}").contains("LL0314"), "{slow:?}");
}
