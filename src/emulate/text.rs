// SPDX-License-Identifier: Apache-2.0
//! Text output of a run: workloads with their bounds, phases, faults and their effects.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lightloom_emulator::outcome::{
    ExpectationResult, FaultResult, FlowFigures, Outcome as Run, Stop, WorkloadResult, listed,
};
use lightloom_emulator::scenario::{CollectiveOperation, Expectation};
use lightloom_emulator::substrate::Substrate;
use lightloom_units::Picoseconds;

use super::{daemon, phases, steps};
use crate::table::TextTable;

pub(super) fn expectations(results: &[ExpectationResult]) -> String {
    let mut text = String::new();
    for expectation in results {
        let verdict = if expectation.passed { "passed" } else { "FAILED" };
        let _ = writeln!(text, "{verdict}: {} ({})", expectation.expect, found(expectation));
    }
    text
}

pub(crate) fn describe(result: &Run) -> String {
    let mut text = format!(
        "\nrun `{}`, seed {}\n\n{}{}",
        result.head.scenario,
        result.head.seed.0,
        workloads(result),
        phases::describe(result) + &steps::describe(result),
    );
    for fault in &result.faults {
        text.push_str(&describe_fault(result, fault));
    }
    if let Some(unaffected) = unaffected_groups(result) {
        let _ = writeln!(text, "\n{unaffected}");
    }
    text.push_str(&daemon::describe(result));
    let packets = &result.head.packets;
    let _ = writeln!(
        text,
        "\npackets: {} sent, {} delivered, {} dropped, {} lost on links, {} in flight at the end; \
         {} sent again, {} marked",
        packets.sent,
        packets.delivered,
        packets.dropped,
        packets.lost,
        packets.in_flight,
        packets.retransmitted,
        packets.marked,
    );
    let first = result.flows.first_with_duplicates;
    if let Some(first) = first.filter(|_| packets.duplicates > 0) {
        let flow = &result.flow_records[first as usize];
        let _ = writeln!(
            text,
            "warning: {} packets were sent again although they had arrived, the first of flow {first} ({} → {})",
            packets.duplicates, flow.source, flow.destination,
        );
    }
    if !result.drops_by_priority.is_empty() {
        let _ = writeln!(text, "{}", queues(result));
    }
    let FlowFigures { count, cancelled, fct_p50, fct_p99, fct_max, .. } = &result.flows;
    let _ = match count {
        0 => writeln!(text, "flows: none ended, {cancelled} given up"),
        _ => writeln!(
            text,
            "flows: {count} ended (median {fct_p50}, P99 {fct_p99}, longest {fct_max}), {cancelled} given up",
        ),
    };
    let _ = writeln!(
        text,
        "simulated {} in {:.2} s: {} packet-hops, {:.1} million a second{}",
        result.head.simulated,
        result.head.wall_seconds,
        result.head.packet_hops,
        result.head.packet_hops_per_second / 1e6,
        if result.faults.is_empty() { "" } else { " (excluding the run without faults)" },
    );
    if let Some(reuse) = &result.reuse {
        let _ = writeln!(
            text,
            "{1} of {0} independent islands were simulated; {2} reused the result of an identical one",
            reuse.islands,
            reuse.simulated,
            reuse.islands - reuse.simulated
        );
        if reuse.leapt_packet_hops > 0 {
            let _ = writeln!(
                text,
                "{} of these packet-hops were skipped, because the packets repeat the previous one",
                reuse.leapt_packet_hops
            );
        }
    }
    let _ = writeln!(
        text,
        "availability {}, goodput {}",
        percent(result.metrics.availability),
        percent(result.metrics.goodput)
    );
    if let Some(stop) = &result.stop {
        let _ = writeln!(text, "stopped at {stop} with work left:");
        for sentence in &result.waiting {
            let _ = writeln!(text, "  {sentence}");
        }
    }
    text.push_str(&format!("\n{}{}", links(result), expectations(&result.expectations)));
    text
}

/// Returns the actual value, with fractions as percentages.
fn found(result: &ExpectationResult) -> String {
    let figure = match result.expect.parse() {
        Ok(Expectation::Figure { figure, .. }) if figure.is_share() => figure,
        _ => return result.value.clone(),
    };
    let share = result.value.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    share.map_or(result.value.clone(), |share| format!("{} = {}", figure.name(), percent(share)))
}

fn percent(share: f64) -> String {
    format!("{:.3} %", share * 100.0)
}

fn queues(result: &Run) -> String {
    let drops = result.drops_by_priority.iter().enumerate().filter(|(_, drops)| **drops > 0);
    let drops: Vec<String> =
        drops.map(|(priority, drops)| format!("{drops} on priority {priority}")).collect();
    format!(
        "switches: {} pauses asked, {} packets trimmed, {}",
        result.head.packets.pauses,
        result.head.packets.trimmed,
        if drops.is_empty() {
            "no drops".to_owned()
        } else {
            format!("drops: {}", drops.join(", "))
        },
    )
}

/// Returns why a run without a time limit was stopped.
pub(crate) fn never_ended(result: &Run) -> String {
    let stop = result.stop.as_ref().map(ToString::to_string).unwrap_or_default();
    if let Some(Stop::Deadlock { .. }) = &result.stop {
        return format!("the scenario ran into {stop}");
    }
    let waiting: Vec<String> = result.waiting.iter().map(|line| format!("\n  {line}")).collect();
    if let Some(Stop::Standstill) = &result.stop {
        return format!("the scenario reached {stop} with work left:{}", waiting.concat());
    }
    format!(
        "the scenario was stopped at {stop}: it may never end (write `time_limit` if it should end there){}",
        waiting.concat()
    )
}

pub(crate) fn network(substrate: &Substrate) -> String {
    let (hosts, all) = (substrate.hosts.len(), substrate.network.vertex_count());
    format!(
        "network: {hosts} hosts, {} switches, {} cables{}\n",
        all - hosts,
        substrate.network.links().len() / 2,
        match substrate.patched.len() {
            0 => String::new(),
            circuits => format!(", {circuits} optical switches"),
        },
    )
}

fn links(result: &Run) -> String {
    let mut table = TextTable::new([
        "links",
        "used",
        "mean use",
        "highest use",
        "busiest",
        "queue P50",
        "queue P99",
        "longest",
    ]);
    for class in &result.links {
        table.row([
            class.class.to_owned(),
            format!("{} of {}", class.links_used, class.links),
            percent(class.utilisation_mean),
            percent(class.utilisation_max),
            class.busiest.first().map_or(String::new(), |link| link.link.clone()),
            class.queue.p50_bytes.to_string(),
            class.queue.p99_bytes.to_string(),
            class.queue.max_bytes.to_string(),
        ]);
    }
    format!("{table}\n")
}

/// Returns one line per workload of the scenario, over all groups and repetitions.
fn workloads(result: &Run) -> String {
    if result.workloads.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new([
        "collective",
        "kind",
        "size",
        "ranks",
        "runs",
        "groups",
        "fastest",
        "median",
        "slowest",
        "lower bound",
        "bus GB/s",
        "restarts",
    ]);
    let between_groups = CollectiveOperation::DataParallelAllReduce.name();
    // Groups of different sizes have different bounds, so each size gets a row.
    let mut kinds: Vec<(&str, u32)> = Vec::new();
    for collective in &result.workloads {
        let kind = (collective.name.as_str(), collective.ranks);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (name, ranks) in kinds {
        let is_of_kind = |c: &&WorkloadResult| c.name == name && c.ranks == ranks;
        let all: Vec<_> = result.workloads.iter().filter(is_of_kind).collect();
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
            ranks.to_string(),
            all.len().to_string(),
            match groups.len() {
                0 if all[0].kind == between_groups => "all".to_owned(),
                0 => "-".to_owned(),
                count => count.to_string(),
            },
            show(times.first()),
            show(times.get(times.len() / 2)),
            show(times.last()),
            match all[0].lower_bound_of.as_str() {
                "path" => all[0].lower_bound.to_string(),
                of => format!("{} ({of})", all[0].lower_bound),
            },
            format!("{:.1}", undisturbed.fold(0.0, f64::max) / 1e9),
            all.iter().map(|c| c.restarts).sum::<u32>().to_string(),
        ]);
    }
    format!("{table}{}", flows_of(result))
}

fn flows_of(result: &Run) -> String {
    let with_flows = result.workloads.iter().filter_map(|one| Some((one, one.flows?)));
    let with_flows: Vec<_> = with_flows.collect();
    if with_flows.len() < 2 {
        return String::new();
    }
    let mut table = TextTable::new(["flows of", "ended", "given up", "FCT P50", "P99", "longest"]);
    for (one, flows) in with_flows.iter().take(MOST_WORKLOADS) {
        table.row([
            one.name.clone(),
            flows.count.to_string(),
            flows.cancelled.to_string(),
            flows.fct_p50.to_string(),
            flows.fct_p99.to_string(),
            flows.fct_max.to_string(),
        ]);
    }
    let more = match with_flows.len().saturating_sub(MOST_WORKLOADS) {
        0 => String::new(),
        more => format!("and {more} more in `--format json`\n"),
    };
    format!("\n{table}{more}")
}

/// Maximum number of workloads and repetitions in text output.
const MOST_WORKLOADS: usize = 12;

fn describe_fault(result: &Run, fault: &FaultResult) -> String {
    let mut text = format!("\nfault: {fault}\n");
    text.push_str(&daemon::stages(&fault.timeline));
    for loss in &fault.losses {
        let _ = writeln!(text, "{loss}");
    }
    if let Some(free) = fault.groups_unaffected.as_ref().filter(|_| result.faults.len() > 1) {
        let all = result.groups.iter().filter(|group| group.unaffected.is_some()).count();
        let count = free.len();
        let names = if count == 0 { String::new() } else { format!(" ({})", listed(free)) };
        let _ = writeln!(text, "groups unaffected by this fault: {count} of {all}{names}");
    }
    text
}

/// Returns the number of groups that faults did not affect, out of all groups with work; `None`
/// without either.
fn unaffected_groups(result: &Run) -> Option<String> {
    let at_work: Vec<_> = result.groups.iter().filter(|group| group.unaffected.is_some()).collect();
    if at_work.is_empty() || result.faults.is_empty() {
        return None;
    }
    let unaffected = at_work.iter().filter(|group| group.unaffected == Some(true));
    let names: Vec<_> = unaffected.map(|group| group.group).collect();
    let names_listed = if names.is_empty() { "" } else { &format!(" ({})", listed(&names)) };
    let without_work = match result.groups.len() - at_work.len() {
        0 => String::new(),
        count => format!("; {count} groups have no work in this run"),
    };
    Some(format!(
        "groups unaffected by faults: {} of {}{names_listed}{without_work}",
        names.len(),
        at_work.len()
    ))
}
