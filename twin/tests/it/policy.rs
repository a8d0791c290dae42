// SPDX-License-Identifier: Apache-2.0
//! Compares policies: how long a failed node interrupts a group, and how many slow modules are
//! bypassed by mistake.

use crate::scenes;
use scenes::{ring, run, scene};

const SEEDS: u64 = 6;

/// The median in milliseconds over failures at various points of the polling interval.
fn lost(control: &str, seeds: u64) -> f64 {
    let fabric = ring(32, 96);
    let mut all = Vec::new();
    for seed in 0..seeds {
        let dead = format!("{{part: n{}, at: 100us}}", seed * 7 % 32);
        let outcome = run(&fabric, &scene(seed, 20, control, &dead), 1);
        let fault = &outcome.faults[0];
        all.extend(fault.restored.map(|at| at.since(fault.at.unwrap()).get() as f64 / 1e9));
    }
    all.sort_by(f64::total_cmp);
    if all.is_empty() { f64::NAN } else { all[all.len() / 2] }
}

/// Conditions in which a working module appears failed although its light is good except for short
/// losses.
#[derive(Clone, Copy, Debug)]
enum Doubt {
    /// Both lines of a node are 80 ms late, and a fibre of the node briefly loses light.
    LateAndBlinks,
    /// A line is silent for 4 s.
    SilentLine,
    /// A line is silent for 4 s, and each flush takes 50 ms.
    SilentLineSlowDisk,
    /// A module falsely reports a move, and one of its fibres briefly loses light.
    LiesAndBlinks,
}

const DOUBTS: [Doubt; 4] =
    [Doubt::LateAndBlinks, Doubt::SilentLine, Doubt::SilentLineSlowDisk, Doubt::LiesAndBlinks];

fn doubt(doubt: Doubt, node: u64) -> String {
    let blink = format!(
        "{{part: n{node}/b0.1, effect: {{flapping: {{down: 3ms, up: 400ms, times: 3}}}}, at: 100us}}"
    );
    // Replies this late do not arrive until the line works again.
    let silent = format!("{{part: n{node}/b0, effect: {{late: 10s}}, at: 1ms, lasts: 4s}}");
    match doubt {
        Doubt::LateAndBlinks => {
            let late =
                [0, 1].map(|b| format!("{{part: n{node}/b{b}, effect: {{late: 80ms}}, at: 0us}}"));
            format!("{}, {blink}", late.join(", "))
        }
        Doubt::SilentLine => silent,
        Doubt::SilentLineSlowDisk => {
            format!("{silent}, {{part: control, effect: {{slow_disk: 50ms}}, at: 0us}}")
        }
        Doubt::LiesAndBlinks => format!("{{part: n{node}/b0, effect: lies, at: 0us}}, {blink}"),
    }
}

fn false_bypasses(control: &str, of: Doubt, seeds: u64) -> u64 {
    let fabric = ring(32, 96);
    let run = |seed: u64| {
        let node = seed * 7 % 32;
        // Keep the run going until the last fault has started.
        let far = (node + 16) % 32;
        let last = format!("{{part: n{far}/b0, effect: {{late: 1ms}}, at: 10s}}");
        let faults = format!("{}, {last}", doubt(of, node));
        let daemon = run(&fabric, &scene(seed, 20, control, &faults), 1).lightloomd.unwrap();
        assert!(daemon.violations.is_empty(), "{:?}", daemon.violations);
        daemon.false_bypasses
    };
    (0..seeds).map(run).sum()
}

/// A dead line must not cause a bypass while the light is good, however short the heartbeat is.
#[test]
fn unresponsive_line_causes_no_bypass_of_a_healthy_module() {
    let of = |heartbeat: &str| {
        let control = format!("{{lightloomd: {{heartbeat: {heartbeat}}}}}");
        false_bypasses(&control, Doubt::SilentLine, 2)
    };
    assert_eq!((of("100ms"), of("5s")), (0, 0));
}

#[test]
#[ignore = "prints the table of docs/twin.md"]
fn measures_losses_and_false_bypasses_of_each_policy() {
    println!(
        "| loss of light | poll | heartbeat | readings | answer within | dead node to group | false: {DOUBTS:?} |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (events, poll, heartbeat, samples, within) in [
        (true, "1s", "5s", 3, "default"),
        (true, "1s", "5s", 1, "default"),
        (true, "1s", "1s", 3, "default"),
        (true, "1s", "100ms", 3, "default"),
        (true, "1s", "20ms", 3, "50ms"),
        (false, "1s", "5s", 3, "default"),
        (false, "100ms", "5s", 3, "default"),
        (false, "100ms", "100ms", 3, "50ms"),
        (false, "20ms", "20ms", 3, "50ms"),
    ] {
        let reply = match within {
            "default" => String::new(),
            within => format!(", reply_within: {within}"),
        };
        let control = format!(
            "{{lightloomd: {{events: {events}, poll_every: {poll}, heartbeat: {heartbeat}, \
             power_samples: {samples}{reply}}}}}"
        );
        let word = if events { "reported" } else { "polled" };
        let falsely = DOUBTS.map(|of| false_bypasses(&control, of, SEEDS).to_string()).join(", ");
        let lost = lost(&control, SEEDS);
        println!(
            "| {word} | {poll} | {heartbeat} | {samples} | {within} | {lost:.1} ms | {falsely} |"
        );
    }
}
