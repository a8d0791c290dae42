// SPDX-License-Identifier: Apache-2.0
//! Effects of each kind of fault: the affected and unaffected groups, and the end of the fault.

use std::path::Path;

use crate::fabric;

use fabric::FABRIC;
use lightloom_emulator::outcome::{Outcome, Stop};
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::Diagnostic;
use lightloom_units::{Picoseconds, SimTime};

fn load(fabric: &str, text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    let read = &mut |name: &str| match name {
        "fabric.yaml" => Ok(NamedFile { name: name.into(), bytes: fabric.as_bytes().to_vec() }),
        path => std::fs::read(path)
            .map(|bytes| NamedFile { name: path.to_owned(), bytes })
            .map_err(|error| error.to_string()),
    };
    scenario::file::load("scenario.yaml", text.as_bytes(), read)
}

fn run_on(fabric: &str, text: &str) -> Outcome {
    let (loaded, mistakes) = load(fabric, text);
    let scenario = loaded.unwrap_or_else(|| panic!("{mistakes:?}"));
    lightloom_emulator::emulate(&scenario, 1, &mut ()).unwrap()
}

fn with(faults: &str) -> Outcome {
    run_on(FABRIC, &text(faults, "all_reduce: {name: tensor, bytes: 1MiB, repeat: 40}"))
}

/// Runs ten all-reduces, about 0.12 ms: long enough for a bypass and short enough for many runs.
fn short_with(faults: &str) -> Outcome {
    run_on(FABRIC, &text(faults, "all_reduce: {name: tensor, bytes: 1MiB, repeat: 10}"))
}

fn text(faults: &str, collective: &str) -> String {
    format!(
        "
name: test
on: {{fabric: fabric.yaml}}
seed: 7
collectives: [{{{collective}}}]
faults: [{faults}]
control: {{detection_delay: 20us, planning_delay: 10us}}
"
    )
}

fn all_done(outcome: &Outcome) -> bool {
    outcome.workloads.iter().all(|collective| collective.end.is_some())
}

/// Returns the groups that ended something at another picosecond than without faults, computed only
/// from the collectives.
fn moved(outcome: &Outcome) -> Vec<String> {
    let moved = outcome.workloads.iter().filter(|c| c.end != c.end_without_faults);
    let mut groups: Vec<String> = moved.filter_map(|c| c.group).map(|g| g.to_string()).collect();
    groups.dedup();
    groups
}

#[test]
fn reported_moves_of_a_fault_are_the_actual_moves() {
    for faults in [
        "{part: n4, at: 50us}",
        "{part: n4/g1, at: 50us}",
        "{part: n4/nic1, at: 50us}",
        "{part: n4/b0, at: 50us}",
        "{part: n4/b0.1, at: 50us}",
        "{parts: [n4, n5], at: 50us}",
        "{part: rack t2, at: 50us}",
        "{part: n4/b0.1, at: 50us, effect: {flapping: {down: 10us, up: 5us, times: 4}}}",
        "{part: n4, at: 50us, lasts: 30us}",
        "{part: n4/b0.1, at: 50us, effect: {rate: 100Gbps}, lasts: 100us}",
        "{part: n4/b0.1, at: 50us, effect: {bit_errors: 1e-6}, lasts: 200us}",
        "{part: n4, at: 50us}, {part: n12, at: 50us}",
    ] {
        let outcome = with(faults);
        let mut said: Vec<String> = outcome
            .faults
            .iter()
            .flat_map(|fault| &fault.groups_affected)
            .map(ToString::to_string)
            .collect();
        said.sort();
        said.dedup();
        let mut moved = moved(&outcome);
        moved.sort();
        assert_eq!(said, moved, "{faults}");
        assert!(!moved.is_empty() && moved.len() <= 2, "{faults}: {moved:?}");
        assert!(all_done(&outcome) && outcome.stop.is_none(), "{faults}: everything goes on");
        assert!(outcome.faults.iter().all(|fault| fault.restored.is_some()), "{faults}");
    }
}

/// No ring of the job passes the last node: the judge is that every collective ends as without the fault.
#[test]
fn fault_without_effect_needs_no_restoration() {
    let fabric = include_str!("../../../topologies/ring-32.yaml");
    let text = text("{part: n31/b0.1, at: 5us}", "all_reduce: {name: a, bytes: 1MiB, repeat: 4}");
    let outcome = run_on(fabric, &format!("{text}expect: [restored within 1ns]\n"));
    assert!(moved(&outcome).is_empty());
    let fault = &outcome.faults[0];
    assert_eq!((fault.restored, fault.bundles_switched), (None, 0));
    assert!(fault.to_string().contains("no restoration needed"), "{fault}");
    let found = &outcome.expectations[0];
    assert!(found.passed && found.value == "no fault had an effect", "{found:?}");
}

#[test]
fn simultaneous_faults_are_attributed_separately() {
    let outcome = with("{part: n4, at: 50us}, {part: n12, at: 50us}");
    let groups: Vec<_> = outcome.faults.iter().map(|fault| &fault.groups_affected).collect();
    assert!(groups.iter().all(|groups| groups.len() == 1), "{groups:?}");
    assert_ne!(groups[0], groups[1], "n4 and n12 stand in different rings");
}

#[test]
fn slow_link_is_not_bypassed_and_delays_its_ring() {
    let slow = with("{part: n4/b0.1, at: 50us, effect: {rate: 100Gbps}, lasts: 100us}");
    let [fault] = slow.faults.as_slice() else { panic!("one fault") };
    assert_eq!((fault.detected, fault.replanned, fault.bundles_switched), (None, None, 0));
    assert_eq!(fault.restored, Some(SimTime(150_000_000)));
    // At a thirty-second of the rate, almost nothing is done during the fault.
    let delay = fault.delay.unwrap();
    assert!(delay > Picoseconds::from_micros(80), "{delay}");
    assert!(delay < Picoseconds::from_micros(105), "{delay}");
    assert_eq!(slow.head.packets.lost + slow.head.packets.dropped, 0);
}

#[test]
fn bit_errors_drop_the_expected_share_of_packets() {
    let outcome = with("{part: n4/b0.1, at: 0us, effect: {bit_errors: 1e-6}}");
    let group = outcome.faults[0].groups_affected[0];
    let steps = outcome.workloads.iter().filter(|c| c.group == Some(group)).count() as f64;
    // A ring of 16 passes 2 x 15/16 of the buffer over each link, half of it in each direction. A
    // chain of nodes is a ring that leaves over one cable of each bundle and returns over the
    // other: four links cross the fibre. 4,032 bytes of data are 4,096 on the wire, and resent
    // packets are lost as often; acknowledgements are too short to count.
    let data = steps * 4.0 * 15.0 / 16.0 * 1_048_576.0 / 4_032.0;
    let expected = (data + outcome.head.packets.retransmitted as f64) * 4_096.0 * 8.0 * 1e-6;
    let lost = outcome.head.packets.lost as f64;
    println!("expected {expected:.0} lost packets, found {lost}");
    assert!((lost / expected - 1.0).abs() < 0.1, "{lost} {expected}");
    assert!(outcome.head.packets.retransmitted > 0 && all_done(&outcome));
}

#[test]
fn stuck_transceiver_is_detected_on_its_next_command() {
    let quiet = with("{part: n4/b0, at: 0us, effect: stuck}");
    assert!(moved(&quiet).is_empty() && quiet.faults[0].detected.is_none());

    // Any bundle that the bypass of a failed node commands may be the stuck one.
    let mut found = 0;
    // Only nodes that a running ring uses.
    let is_used = |dead: &u32| {
        let outcome = short_with(&format!("{{part: n{dead}, at: 50us}}"));
        !outcome.faults[0].groups_affected.is_empty()
    };
    for dead in (0..24).filter(is_used) {
        for stuck in (0..24).filter(|node| *node != dead) {
            if found >= 2 {
                break;
            }
            for bundle in 0..3 {
                let stuck = format!("{{part: n{stuck}/b{bundle}, at: 0us, effect: stuck}}");
                let outcome = short_with(&format!("{{part: n{dead}, at: 50us}}, {stuck}"));
                assert!(all_done(&outcome), "{stuck}: a second plan goes without it");
                let Some(detected) = outcome.faults[1].detected else { continue };
                found += 1;
                assert!(detected.0 > outcome.faults[0].replanned.unwrap().0, "{stuck}");
                let [first, second] = [0, 1].map(|fault| &outcome.faults[fault].groups_affected);
                let is_restored = outcome.faults[1].restored.is_some();
                assert!(is_restored || second.is_empty(), "{stuck}");
                assert!(second.iter().all(|group| first.contains(group)), "{stuck}: {second:?}");
            }
        }
    }
    assert!(found >= 2, "a bypass commands some bundles of others: {found}");
}

#[test]
fn control_plane_outage_only_postpones_repairs() {
    let usual = with("{part: n4, at: 50us}");
    let gone = with("{part: n4, at: 50us}, {part: control, at: 40us, lasts: 1ms}");
    let slow = with("{part: n4, at: 50us}, {part: control, at: 40us, effect: {slower: 10}}");
    assert_eq!(moved(&gone), moved(&usual), "the same ring waits, and no other");
    let took = |outcome: &Outcome| {
        outcome.faults[0].restored.unwrap().since(outcome.faults[0].at.unwrap())
    };
    assert!(gone.faults[0].detected.unwrap() >= SimTime(1_040_000_000));
    // 20 us and 10 us take ten times as long; switching takes its usual time.
    let more = took(&slow).get() - took(&usual).get();
    assert_eq!(more, 9 * 30_000_000);
    let for_ever = with("{part: n4, at: 50us}, {part: control, at: 40us}");
    assert_eq!(for_ever.faults[0].detected, None);
    assert!(for_ever.never_ended, "the ring waits for a plan that never comes");
    let [waiting] = for_ever.waiting.as_slice() else { panic!("{:?}", for_ever.waiting) };
    // The fault began at 50 us; the group has stood still since.
    assert_eq!(waiting.since, Some(SimTime(50_000_000)), "{waiting}");
    let waiting = waiting.to_string();
    assert!(waiting.contains("`tensor`: waits for n4/"), "{waiting}");
    assert!(waiting.contains("the control plane is down"), "{waiting}");
}

#[test]
fn tor_failure_stops_crossing_traffic_until_repair() {
    let collective = "data_parallel_all_reduce: {name: gradients, bytes: 256KiB}";
    let outcome = run_on(FABRIC, &text("{part: t2, at: 10us, lasts: 2ms}", collective));
    let [gradients] = outcome.workloads.as_slice() else { panic!("one reduction") };
    assert!(gradients.end.unwrap() > SimTime(2_010_000_000), "it cannot end before");
    assert_eq!((gradients.restarts, outcome.faults[0].bundles_switched), (0, 0), "no plan helps");
    assert_eq!(outcome.faults[0].groups_affected.len(), 4);
    let rings = with("{part: t2, at: 10us, lasts: 2ms}");
    assert!(moved(&rings).is_empty(), "rings do not cross ToRs");
}

#[test]
fn repair_reforms_a_lost_group_that_finishes_its_work() {
    let full = FABRIC.replace("gpus: 64, tp: 16", "gpus: all, tp: 16");
    let faults = "{part: n4, at: 50us, lasts: 300us}";
    let ring = text(faults, "all_reduce: {name: tensor, bytes: 1MiB, repeat: 40}");
    let outcome = run_on(&full, &ring);
    assert!(all_done(&outcome), "the group takes its work up again");
    assert!(outcome.groups.iter().all(|group| !group.lost && group.end.is_some()));
    let late: Vec<_> = outcome.groups.iter().filter(|g| g.down > Picoseconds::ZERO).collect();
    assert_eq!(late.len(), 1, "one group was down");
    assert!(late[0].down > Picoseconds::from_micros(300), "as long as its node: {late:?}");
    assert!(outcome.faults[0].restored.unwrap() > SimTime(350_000_000));
    assert!(outcome.metrics.availability < 1.0 && outcome.metrics.goodput < 1.0);
    for fault in &outcome.faults {
        for at in [fault.at, fault.detected, fault.replanned, fault.restored] {
            assert!(
                at.unwrap() <= outcome.head.simulated,
                "the end is after everything: {fault:?}"
            );
        }
    }
}

#[test]
fn job_reduces_between_the_remaining_groups() {
    let full = FABRIC.replace("gpus: 64, tp: 16", "gpus: all, tp: 16");
    let collective = "data_parallel_all_reduce: {name: gradients, bytes: 1MiB}";
    let outcome = run_on(&full, &text("{part: n4, at: 20us}", collective));
    let [gradients] = outcome.workloads.as_slice() else { panic!("{:?}", outcome.workloads) };
    assert!(gradients.end.is_some(), "five groups end what six began: {gradients:?}");
    assert_eq!(outcome.groups.iter().filter(|group| group.lost).count(), 1);
}

#[test]
fn fault_free_fabric_has_full_availability_and_goodput() {
    let outcome = with("");
    assert!(
        (outcome.metrics.availability - 1.0).abs() < 1e-12
            && (outcome.metrics.goodput - 1.0).abs() < 1e-12
    );
}

#[test]
fn link_utilisation_matches_bytes_and_counts_queues() {
    let outcome = with("");
    let copper = outcome.links.iter().find(|class| class.class == "gpu-gpu").unwrap();
    assert!(copper.links_used > 0 && copper.utilisation_max <= 1.0);
    let busiest = &copper.busiest[0];
    let seconds = outcome.head.simulated.since(SimTime::START).as_secs_f64();
    let share = busiest.bytes.0 as f64 * 8.0 / 3.2e12 / seconds;
    assert!((share - busiest.utilisation).abs() < 1e-9, "{share} {busiest:?}");
    let counted: u64 = outcome.links.iter().map(|class| class.queue.packets).sum();
    assert_eq!(
        counted, outcome.head.packet_hops,
        "every packet came to one queue before each wire"
    );
    for class in &outcome.links {
        let rows: u64 = class.queue.histogram.iter().map(|row| row.packets).sum();
        assert_eq!(rows, class.queue.packets, "{}", class.class);
    }
}

#[test]
fn limits_stop_a_run() {
    let base = text("", "all_reduce: {name: tensor, bytes: 1MiB, repeat: 40}");
    let short = run_on(FABRIC, &format!("{base}time_limit: 50us\n"));
    assert!(matches!(short.stop, Some(Stop::Time { .. })) && !short.never_ended);
    assert_eq!(short.waiting.len(), 4, "every group was under way: {:?}", short.waiting);
    assert!(short.passed(), "it was asked for");
    let heavy = run_on(FABRIC, &format!("{base}packet_limit: 10000\n"));
    assert!(matches!(heavy.stop, Some(Stop::Packets { limit: 10_000 })) && heavy.never_ended);
    assert!(!heavy.passed());
}

#[test]
fn reports_all_unknown_names_with_their_location() {
    let (loaded, mistakes) = load(
        FABRIC,
        "name: bad
on: {fabric: fabric.yaml}
broken: [n99]
collectives: [{all_reduce: {name: tensor, bytes: 1MiB}}]
faults:
  - {part: n30, at: 1us}
  - {part: n3/g9, at: 1us}
  - {part: t40, at: 1us}
  - {part: n3, at: 1us, effect: stuck}
  - {part: n3, at: 5us, repaired_at: 1us}
  - {at: 5us}
expect:
  - wast_ratio < 1
",
    );
    assert!(loaded.is_none());
    let shown: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    for place in [
        "scenario.yaml:3:10: error[LL0307]",
        "scenario.yaml:6:12: error[LL0307]",
        "scenario.yaml:7:12: error[LL0307]",
        "scenario.yaml:8:12: error[LL0307]",
        "scenario.yaml:9:12: error[LL0308]",
        "scenario.yaml:10:38: error[LL0302]",
        "scenario.yaml:11:5: error[LL0308]",
        "scenario.yaml:13:5: error[LL0301]",
    ] {
        assert!(shown.iter().any(|line| line.starts_with(place)), "{place} in {shown:#?}");
    }
    assert_eq!(mistakes.len(), 8, "{shown:#?}");
}

#[test]
fn locates_unknown_groups_days_and_files() {
    let first = |text: &str| load(FABRIC, text).1.first().map(ToString::to_string).unwrap();
    let base = "name: bad\non: {fabric: fabric.yaml}\ncollectives: [{all_reduce: {name: t, bytes: 1MiB}}]\n";
    let group =
        first(&format!("{base}expect: [group g4 unaffected]\nfaults: [{{part: n3, at: 1us}}]\n"));
    assert!(group.starts_with("scenario.yaml:4:10: error[LL0307]: g4 does not exist"), "{group}");
    assert!(group.contains("g0 to g3"), "{group}");
    let nothing = first(&format!("{base}expect: [restored within 1ms]\n"));
    assert!(nothing.starts_with("scenario.yaml:4:10: error[LL0309]"), "{nothing}");
    let fabric = first(&base.replace("fabric.yaml", "none.yaml"));
    assert!(fabric.starts_with("scenario.yaml:2:14: error[LL0306]"), "{fabric}");
    let trace = first(&format!("{base}broken_by: {{trace: none.json, day: 1}}\n"));
    assert!(trace.starts_with("scenario.yaml:4:20: error[LL0306]"), "{trace}");
    let synthetic = concat!(env!("CARGO_MANIFEST_DIR"), "/../topologies/traces/synthetic.json");
    let day = first(&format!("{base}broken_by: {{trace: {synthetic}, day: 400}}\n"));
    assert!(day.contains("error[LL0307]: day 400 is outside the trace (days 0 to 348)"), "{day}");
    let wrong_fabric = load("name: x\nhbd: 3\nkind: fabric\nversion: 2\n", base).1;
    let lines: Vec<String> = wrong_fabric.iter().map(ToString::to_string).collect();
    assert!(lines.iter().any(|line| line.starts_with("fabric.yaml:2:")), "{lines:?}");
}

/// 348 days of the public trace at one millisecond per day, with every packet simulated.
#[test]
fn runs_the_public_348_day_trace_in_ten_seconds() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/fault_trace.json");
    if !Path::new(trace).exists() {
        println!("skipped: no ../shared/data");
        return;
    }
    let fabric = include_str!("../../../topologies/ring-256.yaml");
    let text = include_str!("../../../topologies/scenarios/trace-348-days.yaml")
        .replace("../ring-256.yaml", "fabric.yaml")
        .replace("../traces/synthetic.json", trace);
    let begun = cpu_time::ThreadTime::now();
    let outcome = run_on(fabric, &text);
    let seconds = begun.elapsed().as_secs_f64();
    let faults = outcome.faults.len();
    println!("{faults} faults, {} packet-hops, {seconds:.1} s", outcome.head.packet_hops);
    assert!(seconds < 10.0, "{seconds} s of processor time");
    assert!(faults > 20, "{faults}");
    assert!(all_done(&outcome), "every group ends its work");
    assert!(outcome.faults.iter().all(|fault| fault.replanned.is_some()));
}

/// There is light, but the receivers do not yet pass on bits, which lengthens a bypass by exactly
/// that time.
#[test]
fn receiver_relock_time_lengthens_a_bypass() {
    let run = |relock: &str| {
        // Two spare nodes are too few for a lit ring in reserve.
        let fabric = FABRIC
            .replace("software_delay: 20us", &format!("software_delay: 20us{relock}"))
            .replace("nodes: 24", "nodes: 22")
            .replace("tors_per_domain: 6", "tors_per_domain: 11")
            .replace("gpus: 64", "gpus: 80");
        run_on(
            &fabric,
            &text("{part: n4, at: 50us}", "all_reduce: {name: tensor, bytes: 1MiB, repeat: 40}"),
        )
    };
    let (at_once, late) = (run(""), run(", relock: 7ms"));
    let relock = Picoseconds::from_millis(7);
    let [one, other] = [&at_once, &late].map(|outcome| outcome.faults[0].clone());
    assert_eq!(other.restored.unwrap().since(one.restored.unwrap()), relock);
    assert_eq!(
        (one.dark, one.groups_affected.clone()),
        (other.dark, other.groups_affected.clone())
    );
    assert_eq!((one.relock, other.relock), (Some(Picoseconds::ZERO), Some(relock)));
    assert!(one.to_string().contains(" (relock 0 s)"), "{one}");
    assert!(other.to_string().contains(", then 7 ms to relock"), "{other}");
    let end = |outcome: &Outcome| outcome.workloads.iter().filter_map(|one| one.end).max().unwrap();
    let difference = end(&late).since(end(&at_once));
    assert!(
        difference.0.abs_diff(relock.0) < 1_000_000,
        "{difference}: the ring goes on as before"
    );
}

/// Steps run in packets of 60 KiB, so that one wrong bit loses fifteen times as much as in a frame.
#[test]
fn warns_about_bit_errors_in_large_packets() {
    let warned = |more: &str, share: &str| {
        let text = format!(
            "name: x\non: {{fabric: ../topologies/job-64.yaml}}\ntrain: [{{job: pretrain, steps: 1}}]\n{more}\
             faults: [{{part: n1/nic1, at: 1ms, effect: {{bit_errors: {share}}}}}]\n"
        );
        let (scenario, said) = load("", &text);
        assert!(scenario.is_some(), "{said:?}");
        said.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>()
    };
    let lost = |bytes: f64| 100.0 * (1.0 - (1.0 - 1e-6_f64).powf(8.0 * bytes));
    let [said] = &warned("", "1e-6")[..] else { panic!("one warning") };
    assert!(said.contains(&format!("{:.1} % of all packets", lost(61_440.0 + 64.0))), "{said}");
    assert!(said.contains(&format!("would lose {:.2} %", lost(4_096.0))), "{said}");
    assert!(warned("", "1e-9").is_empty(), "one packet in two thousand");
    assert!(warned("transport: {payload: 4032B}\n", "1e-6").is_empty(), "frames");
}

#[test]
fn node_with_all_bundles_failed_counts_once_as_out() {
    let gpus_lost = |faults: &str| -> Vec<u64> {
        short_with(faults).faults.iter().map(|fault| fault.gpus_lost).collect()
    };
    let by_name = gpus_lost("{part: n5, at: 20us}");
    assert!(by_name[0] > 0);
    let bundles = "{part: n5/b0, at: 20us}, {part: n5/b1, at: 20us}, {part: n5/b2, at: 20us}";
    assert_eq!(gpus_lost(bundles), [0, 0, by_name[0]]);
    let both = gpus_lost("{part: n5, at: 20us}, {part: n5, at: 30us}");
    assert_eq!(both, [by_name[0], 0]);
}
