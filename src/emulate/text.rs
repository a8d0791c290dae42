// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lightloom_emulator::outcome::{
    ExpectationResult, FaultResult, FlowFigures, Outcome as Run, Stop, listed,
};
use lightloom_emulator::scenario::{Collective, Expectation};
use lightloom_emulator::substrate::Substrate;
use lightloom_units::Picoseconds;

use super::months::count;
use super::{daemon, phases, steps};
use crate::table::{TextTable, rounded, separated};

pub(super) fn expectations(results: &[ExpectationResult]) -> String {
    let mut text = String::new();
    for expectation in results {
        let verdict = if expectation.passed { "passed" } else { "FAILED" };
        let _ = writeln!(text, "{verdict}: {} ({})", expectation.expect, found(expectation));
    }
    text
}

pub(crate) fn describe(result: &Run, fabric: &str) -> String {
    let mut text = format!(
        "{}\n{fabric}\nsimulated {} in {:.2} s, seed {}\n\n{}",
        answer(result),
        rounded(Picoseconds(result.head.simulated.0)),
        result.head.wall_seconds,
        result.head.seed.0,
        expectations(&result.expectations),
    );
    let tables = [workloads(result), phases::describe(result), steps::describe(result)];
    for table in tables.iter().filter(|table| !table.is_empty()) {
        let _ = write!(text, "{}{table}", if text.ends_with("\n\n") { "" } else { "\n" });
    }
    for fault in &result.faults {
        text.push_str(&describe_fault(result, fault));
    }
    if let Some(unaffected) = unaffected_groups(result) {
        let _ = writeln!(text, "\n{unaffected}");
    }
    text.push_str(&daemon::describe(result));
    let _ = writeln!(text, "\n{}\n{}", links(result), traffic(result));
    if !result.faults.is_empty() {
        let _ = writeln!(
            text,
            "availability {}, goodput {}",
            percent(result.metrics.availability),
            percent(result.metrics.goodput)
        );
    }
    if let Some(stop) = &result.stop {
        let _ = writeln!(text, "stopped at {stop} with work left:");
        for sentence in &result.waiting {
            let _ = writeln!(text, "  {sentence}");
        }
    }
    text
}

fn answer(result: &Run) -> String {
    let (all, failed) = (
        result.expectations.len(),
        result.expectations.iter().filter(|expectation| !expectation.passed).count(),
    );
    let expectations = count(all as u64, "expectation");
    let verdict = match (all, failed) {
        _ if result.never_ended => "DID NOT END".to_owned(),
        (0, _) => "ended".to_owned(),
        (_, 0) => format!("passed, {all} of {expectations}"),
        _ => format!("FAILED, {failed} of {expectations}"),
    };
    let unaffected = result.groups.iter().filter_map(|group| group.unaffected);
    let (working, unaffected) = unaffected.fold((0, 0), |(working, unaffected), is_unaffected| {
        (working + 1, unaffected + u64::from(is_unaffected))
    });
    let groups = count(working, "group");
    let faults = match result.faults.len() {
        0 => String::new(),
        _ if working == 0 => String::new(),
        1 => format!("; 1 fault affects {} of {groups}", working - unaffected),
        faults => format!("; {faults} faults affect {} of {groups}", working - unaffected),
    };
    separated(&format!("{}: {verdict}{}{faults}", result.head.scenario, longest(result)))
}

fn longest(result: &Run) -> String {
    let of_jobs = result.steps.of_jobs();
    let of_jobs = of_jobs.iter().filter_map(|step| Some((step.took()?, step.closed_form)));
    let of_phases = result.steps.of_phases();
    let of_phases =
        of_phases.iter().filter_map(|step| Some((step.times.packets?, step.times.closed_form)));
    let collectives = result
        .workloads
        .iter()
        .filter_map(|one| Some((one.end?.since(one.start), one.lower_bound)));
    let (what, reference, longest) = match (of_jobs.chain(of_phases).max(), collectives.max()) {
        (Some(step), _) => ("step", "closed form", step),
        (None, Some(collective)) => ("collective", "lower bound", collective),
        (None, None) => return String::new(),
    };
    let (took, expected) = longest;
    let ratio = took.0 as f64 / expected.0.max(1) as f64;
    format!("; longest {what} {}, {ratio:.3} × its {reference}", rounded(took))
}

fn traffic(result: &Run) -> String {
    let packets = &result.head.packets;
    let counts = [
        (packets.sent, "sent"),
        (packets.delivered, "delivered"),
        (packets.dropped, "dropped"),
        (packets.lost, "lost on links"),
        (packets.in_flight, "in flight at the end"),
        (packets.retransmitted, "sent again"),
        (packets.marked, "marked"),
        (packets.trimmed, "trimmed"),
    ];
    let mut text = format!("packets: {}\n", nonzero(&counts));
    let first = result.flows.first_with_duplicates;
    if let Some(first) = first.filter(|_| packets.duplicates > 0) {
        let flow = &result.flow_records[first as usize];
        let _ = writeln!(
            text,
            "warning: {} packets were resent although they had arrived, the first in flow {first} ({} → {})",
            packets.duplicates, flow.source, flow.destination,
        );
    }
    text.push_str(&queues(result));
    let FlowFigures { count, cancelled, fct_p50, fct_p99, fct_max, .. } = &result.flows;
    let _ = writeln!(text, "flows: {}", nonzero(&[(*count, "ended"), (*cancelled, "given up")]));
    if *count > 0 {
        let [median, p99, longest] = [fct_p50, fct_p99, fct_max].map(|time| rounded(*time));
        let _ =
            writeln!(text, "flow completion time: median {median}, P99 {p99}, longest {longest}");
    }
    let _ = writeln!(
        text,
        "speed: {} packet-hops, {:.1} million per second{}",
        result.head.packet_hops,
        result.head.packet_hops_per_second / 1e6,
        if result.faults.is_empty() { "" } else { " (excluding the run without faults)" },
    );
    if let Some(reuse) = result.reuse.as_ref().filter(|reuse| reuse.islands > reuse.simulated) {
        let _ = writeln!(
            text,
            "{1} of {0} independent islands were simulated; {2} reused the result of an identical one",
            reuse.islands,
            reuse.simulated,
            reuse.islands - reuse.simulated
        );
    }
    if let Some(reuse) = result.reuse.as_ref().filter(|reuse| reuse.leapt_packet_hops > 0) {
        let _ = writeln!(
            text,
            "{} of these packet-hops were skipped, because the packets repeat earlier ones",
            reuse.leapt_packet_hops
        );
    }
    separated(&text)
}

fn nonzero(counts: &[(u64, &str)]) -> String {
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

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
    let pauses = Some(result.head.packets.pauses).filter(|pauses| *pauses > 0);
    let pauses = pauses.map(|pauses| format!("{pauses} pauses requested"));
    let drops = drops.map(|(priority, drops)| format!("{drops} drops on priority {priority}"));
    let events: Vec<String> = pauses.into_iter().chain(drops).collect();
    if events.is_empty() { String::new() } else { format!("switches: {}\n", events.join(", ")) }
}

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
        "the scenario was stopped at {stop}: it may never end (add `time_limit` if it should end there){}",
        waiting.concat()
    )
}

pub(crate) fn network(substrate: &Substrate) -> String {
    let (hosts, all) = (substrate.hosts.len(), substrate.network.vertex_count());
    format!(
        "network: {hosts} hosts, {} switches, {} cables{}",
        all - hosts,
        substrate.network.links().len() / 2,
        match substrate.patched.len() {
            0 => String::new(),
            circuits => format!(", {circuits} optical switches"),
        },
    )
}

fn links(result: &Run) -> String {
    let table = TextTable::of(&result.links)
        .column("links", |class| class.class.to_owned())
        .column("used", |class| format!("{} of {}", class.links_used, class.links))
        .column("mean use", |class| percent(class.utilisation_mean))
        .column("highest use", |class| percent(class.utilisation_max))
        .column("busiest", |class| {
            class.busiest.first().map_or(String::new(), |link| link.link.clone())
        })
        .column("queue P50", |class| class.queue.p50_bytes)
        .column("queue P99", |class| class.queue.p99_bytes)
        .column("longest", |class| class.queue.max_bytes)
        .table();
    table.to_string()
}

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
    let mut kinds: Vec<(&str, u32)> = Vec::new();
    for collective in &result.workloads {
        let kind = (collective.name.as_str(), collective.ranks);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for (name, ranks) in kinds {
        let all: Vec<_> =
            result.workloads.iter().filter(|c| c.name == name && c.ranks == ranks).collect();
        let mut times: Vec<Picoseconds> =
            all.iter().filter_map(|c| c.end.map(|end| end.since(c.start))).collect();
        times.sort_unstable();
        let groups: BTreeSet<_> = all.iter().filter_map(|c| c.group).collect();
        let undisturbed = all.iter().filter(|c| c.restarts == 0).map(|c| c.busbw_bytes_per_s);
        let [fastest, median, slowest] = [times.first(), times.get(times.len() / 2), times.last()]
            .map(|time| time.map_or("-".to_owned(), |time| rounded(*time)));
        table.row([
            name.to_owned(),
            all[0].kind.to_owned(),
            all[0].bytes.to_string(),
            ranks.to_string(),
            all.len().to_string(),
            match groups.len() {
                0 if all[0].kind == Collective::BETWEEN_GROUPS => "all".to_owned(),
                0 => "-".to_owned(),
                count => count.to_string(),
            },
            fastest,
            median,
            slowest,
            match all[0].lower_bound_of.as_str() {
                "path" => rounded(all[0].lower_bound),
                of => format!("{} ({of})", rounded(all[0].lower_bound)),
            },
            format!("{:.1}", undisturbed.fold(0.0, f64::max) / 1e9),
            match all.iter().map(|c| c.restarts).sum::<u32>() {
                0 => "-".to_owned(),
                restarts => restarts.to_string(),
            },
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
    let table = TextTable::of(with_flows.iter().take(MOST_WORKLOADS))
        .column("flows of", |(one, _)| one.name.clone())
        .column("ended", |(_, flows)| flows.count)
        .column("given up", |(_, flows)| match flows.cancelled {
            0 => "-".to_owned(),
            cancelled => cancelled.to_string(),
        })
        .column("FCT P50", |(_, flows)| rounded(flows.fct_p50))
        .column("P99", |(_, flows)| rounded(flows.fct_p99))
        .column("longest", |(_, flows)| rounded(flows.fct_max))
        .table();
    let more = match with_flows.len().saturating_sub(MOST_WORKLOADS) {
        0 => String::new(),
        more => format!("and {more} more in `--format json`\n"),
    };
    format!("\n{table}{more}")
}

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
        1 => "; 1 group has no work in this run".to_owned(),
        idle => format!("; {idle} groups have no work in this run"),
    };
    Some(format!(
        "groups unaffected by faults: {} of {}{names_listed}{without_work}",
        names.len(),
        at_work.len()
    ))
}
