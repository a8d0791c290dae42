//! The result of a run for people: collectives beside their bound, faults and what felt them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lightloom_emulator::scenario::{FaultResult, Outcome as Run};
use lightloom_fabric::id::GroupId;
use lightloom_fabric::units::Picoseconds;

use crate::table::Table;

/// The whole result.
pub(crate) fn describe(result: &Run) -> String {
    let mut text =
        format!("\nrun `{}`, seed {}\n\n{}", result.scenario, result.seed.0, collectives(result));
    for fault in &result.faults {
        text.push_str(&describe_fault(result, fault));
    }
    let packets = &result.packets;
    let _ = writeln!(
        text,
        "\npackets: {} sent, {} delivered, {} dropped, {} lost on dark links, {} sent again, {} marked",
        packets.sent,
        packets.delivered,
        packets.dropped,
        packets.lost,
        packets.retransmitted,
        packets.marked,
    );
    let _ = writeln!(
        text,
        "flows: {} ended (median {}, P99 {}, longest {}), {} given up for a restart",
        result.flows.count,
        result.flows.fct_p50,
        result.flows.fct_p99,
        result.flows.fct_max,
        result.flows.cancelled,
    );
    let _ = writeln!(
        text,
        "simulated {} in {:.2} s: {} packet-hops, {:.1} million a second{}",
        result.simulated,
        result.wall_seconds,
        result.packet_hops,
        result.packet_hops_per_second / 1e6,
        if result.faults.is_empty() { "" } else { " (the run without faults comes on top)" },
    );
    for expectation in &result.expectations {
        let verdict = if expectation.passed { "passed" } else { "FAILED" };
        let _ = writeln!(text, "{verdict}: {} ({})", expectation.expect, expectation.value);
    }
    text
}

/// One line for each collective of the scenario, over all groups.
fn collectives(result: &Run) -> String {
    let mut table = Table::new([
        "collective",
        "kind",
        "size",
        "runs",
        "groups",
        "fastest",
        "median",
        "slowest",
        "lower bound",
        "bus GB/s",
        "restarts",
    ]);
    let mut names: Vec<&str> = result.collectives.iter().map(|c| c.name.as_str()).collect();
    names.dedup();
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let all: Vec<_> = result.collectives.iter().filter(|c| c.name == name).collect();
        let mut times: Vec<Picoseconds> =
            all.iter().filter_map(|c| c.end.map(|end| end.since(c.start))).collect();
        times.sort_unstable();
        let groups: BTreeSet<_> = all.iter().filter_map(|c| c.group).collect();
        let undisturbed = all.iter().filter(|c| c.restarts == 0).map(|c| c.busbw_bytes_per_s);
        let show = |time: Option<&Picoseconds>| time.map_or("-".to_owned(), ToString::to_string);
        table.row([
            name.to_owned(),
            all[0].kind.to_owned(),
            all[0].bytes.to_string(),
            all.len().to_string(),
            if groups.is_empty() { "all".to_owned() } else { groups.len().to_string() },
            show(times.first()),
            show(times.get(times.len() / 2)),
            show(times.last()),
            all[0].ideal.to_string(),
            format!("{:.1}", undisturbed.fold(0.0, f64::max) / 1e9),
            all.iter().map(|c| c.restarts).sum::<u32>().to_string(),
        ]);
    }
    table.to_string()
}

fn describe_fault(result: &Run, fault: &FaultResult) -> String {
    let mut text = format!("\nfault: {fault}\n");
    let all: BTreeSet<_> = result.collectives.iter().filter_map(|c| c.group).collect();
    let moved = |group: &&GroupId| {
        result.collectives.iter().any(|c| c.group == Some(**group) && c.end != c.end_without_faults)
    };
    let felt = |group: &&GroupId| fault.groups_affected.contains(group);
    let unmoved = all.iter().filter(|group| !moved(group) && !felt(group)).count();
    let _ = writeln!(
        text,
        "the other {unmoved} groups ended every collective at the same picosecond as without the fault",
    );
    text
}
