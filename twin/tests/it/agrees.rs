// SPDX-License-Identifier: Apache-2.0
//! Compares the virtual run with the live daemon on ptys, and prints figures for 64 and 720 nodes.

use crate::scenes;
use cpu_time::ProcessTime;
use lightloom_emulator::outcome::{FaultResult, StageName};
use scenes::{ring, run, scene, took};

/// As in `tests/it/dead_node.rs`: lines take no time, and the journal is in memory.
const PTYS: &str = "{lightloomd: {line_time: false, flush: 0us}}";

fn milliseconds(fault: &FaultResult, stages: &[StageName]) -> f64 {
    stages.iter().filter_map(|stage| took(fault, *stage)).map(|took| took.get() as f64 / 1e9).sum()
}

fn show(name: &str, mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let median = all[all.len() / 2];
    println!(
        "  {name}: median {median:.2} ms, least {:.2}, most {:.2} of {}",
        all[0],
        all[all.len() - 1],
        all.len()
    );
    median
}

fn deaths(nodes: u32, gpus: u32, count: u64, control: &str) -> f64 {
    use StageName::{Detected, Journalled, Noticed, Planned, Qualified, Sent, Switched};
    let fabric = ring(nodes, gpus);
    let mut faults = Vec::new();
    for kill in 0..count {
        let node = kill * 7 % u64::from(nodes);
        let dead = format!("{{part: n{node}, at: 100us}}");
        let outcome = run(&fabric, &scene(kill, 20, control, &dead), 1);
        assert!(outcome.lightloomd.as_ref().unwrap().violations.is_empty());
        faults.extend(outcome.faults.into_iter().filter(|fault| !fault.timeline.is_empty()));
    }
    println!("{nodes} nodes, {control}:");
    let of =
        |stages: &[StageName]| faults.iter().map(|fault| milliseconds(fault, stages)).collect();
    show("detection, plan, check", of(&[Noticed, Detected, Planned]));
    show("journal, sent", of(&[Journalled, Sent]));
    show("light, read-back, end", of(&[Switched, Qualified]));
    show(
        "dead to bypassed",
        of(&[Noticed, Detected, Planned, Journalled, Sent, Switched, Qualified]),
    )
}

/// Prints figures to compare with those of `cargo test --test it 10_ms -- --ignored --nocapture`
/// (see docs/twin.md).
#[test]
fn faults_at_32_nodes_are_detected_sooner_without_transfer_time() {
    let ptys = deaths(32, 96, 20, PTYS);
    let lines = deaths(32, 96, 20, "lightloomd");
    assert!(ptys < lines, "bytes on a line take their time");
    assert!((1.0..=20.0).contains(&ptys), "{ptys} ms");
}

/// Cluster sizes for which the cost model was not fitted. `cargo test --test it among -- --ignored`
/// runs them live.
#[test]
#[ignore = "prints figures of docs/twin.md"]
fn faults_at_64_and_720_nodes() {
    deaths(64, 192, 20, PTYS);
    deaths(720, 2_160, 5, PTYS);
}

#[test]
fn simulating_64_nodes_takes_less_than_ten_cpu_seconds() {
    let began = ProcessTime::now();
    run(&ring(64, 240), &scene(1, 40, "lightloomd", "{part: n9, at: 100us}"), 1);
    let took = began.elapsed().as_secs_f64();
    println!("64 nodes: {took:.2} s of processor time");
    assert!(took <= 10.0);
}

#[test]
#[ignore = "measures time"]
fn simulating_720_nodes_takes_less_than_a_cpu_minute() {
    let began = ProcessTime::now();
    let outcome = run(&ring(720, 2_816), &scene(1, 40, "lightloomd", "{part: n300, at: 100us}"), 1);
    let took = began.elapsed().as_secs_f64();
    println!("720 nodes: {took:.2} s of processor time, {:?}", outcome.faults[0].restored);
    assert!(outcome.lightloomd.unwrap().violations.is_empty());
    assert!(took <= 60.0);
}
