// SPDX-License-Identifier: Apache-2.0
//! Policies held against each other: what a dead node costs the group it is in, and how often a module is bypassed
//! that works and is only late.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

mod scenes;

use scenes::{ring, run, scene};

/// Runs of each kind.
const SEEDS: u64 = 6;

/// Milliseconds from the fault until the group goes on, at the median, for nodes that die at any moment of a poll.
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

/// Bypasses of modules that are late by 30 ms beside a fibre that blinks for 3 ms, and work.
fn false_bypasses(control: &str, seeds: u64) -> u64 {
    let fabric = ring(32, 96);
    let of = |seed: u64| {
        let node = seed * 7 % 32;
        let late =
            [0, 1].map(|b| format!("{{part: n{node}/b{b}, effect: {{late: 30ms}}, at: 0us}}"));
        let blink = format!(
            "{{part: n{node}/b0.1, effect: {{flapping: {{down: 3ms, up: 400ms, times: 3}}}}, at: 100us}}"
        );
        // The run goes on until the last fault has begun.
        let far = (node + 16) % 32;
        let last = format!("{{part: n{far}/b0, effect: {{late: 1ms}}, at: 3s}}");
        let faults = format!("{}, {blink}, {last}", late.join(", "));
        run(&fabric, &scene(seed, 20, control, &faults), 1).lightloomd.unwrap().false_bypasses
    };
    (0..seeds).map(of).sum()
}

#[test]
#[ignore = "prints the table of docs/twin.md"]
fn what_each_policy_loses_and_bypasses_for_nothing() {
    println!("| lost light | poll | heartbeat | readings | dead node to group | false bypasses |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (events, poll, heartbeat, samples) in [
        (true, "1s", "5s", 3),
        (true, "1s", "5s", 1),
        (true, "1s", "20ms", 3),
        (false, "1s", "5s", 3),
        (false, "100ms", "5s", 3),
        (false, "100ms", "20ms", 3),
        (false, "20ms", "5s", 3),
    ] {
        let control = format!(
            "{{lightloomd: {{events: {events}, poll_every: {poll}, heartbeat: {heartbeat}, \
             power_samples: {samples}}}}}"
        );
        let word = if events { "reported" } else { "polled" };
        let (lost, falsely) = (lost(&control, SEEDS), false_bypasses(&control, SEEDS));
        println!("| {word} | {poll} | {heartbeat} | {samples} | {lost:.1} ms | {falsely} |");
    }
}
