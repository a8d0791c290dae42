// SPDX-License-Identifier: Apache-2.0
//! Shows the verdicts of emulator runs, collectives with their bounds, and the effects of faults.

use serde_json::json;

use super::super::document::{
    Bar, FigureTable, FirstScreen, Headline, PageBlock, PageDocument, PageSection, Picture, Tone,
};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{EmulatedCollective, EmulatedFault, EmulatedRun, Swept};
use super::super::tables;

pub(in super::super) fn add(report: &mut PageDocument, run: &EmulatedRun) {
    let title = format!("Run: {}", run.scenario);
    let mut section = PageSection::new("run", title);
    let sets = alike(&run.workloads);
    section.table(tables::table("expectations", &run.expectations));
    section.table(tables::table("faults", &run.faults));
    section.table(collectives(&sets));
    let of_jobs = run.steps.iter().filter(|step| step["job"].is_string());
    section.table(tables::table("steps", of_jobs));
    let packets = &run.packets;
    section.note(format!(
        "Packets: {} sent, {} delivered, {} dropped, {} lost on links, {} resent. Seed {}; \
         simulated {}.",
        fixed(packets.sent as f64, 0),
        fixed(packets.delivered as f64, 0),
        fixed(packets.dropped as f64, 0),
        fixed(packets.lost as f64, 0),
        fixed(packets.retransmitted as f64, 0),
        run.seed,
        ShownQuantity::time(run.simulated_ps).show(),
    ));
    let worst = run.faults.iter().max_by_key(|fault| fault.delay_ps);
    let timeline = worst.and_then(|fault| timeline("run-fault", fault, ""));
    let bounds = against_bound(&sets);
    let picture = match (timeline, bounds) {
        (Some(timeline), Some(bounds)) => {
            section.blocks.insert(0, PageBlock::Picture(bounds));
            Some(timeline)
        }
        (timeline, bounds) => timeline.or(bounds),
    };
    report.add(FirstScreen { verdict: verdict(run), figures: figures(run), picture }, section);
}

fn groups(run: &EmulatedRun) -> [usize; 2] {
    let at_work: Vec<bool> = run.groups.iter().filter_map(|group| group.unaffected).collect();
    [at_work.len(), at_work.iter().filter(|same| **same).count()]
}

fn verdict(run: &EmulatedRun) -> String {
    let failed = run.expectations.iter().filter(|one| one["passed"] != true).count();
    let (before, after) = match (run.expectations.len(), failed) {
        (0, _) => (String::new(), String::new()),
        (1, 0) => ("Passed: ".to_owned(), "; the expectation is met".to_owned()),
        (2, 0) => ("Passed: ".to_owned(), "; both expectations are met".to_owned()),
        (all, 0) => ("Passed: ".to_owned(), format!("; all {all} expectations are met")),
        (1, _) => ("FAILED: the expectation is not met; ".to_owned(), String::new()),
        (all, failed) => (format!("FAILED: {failed} of {all} expectations; "), String::new()),
    };
    let faults = effect(run);
    let simulated = ShownQuantity::time(run.simulated_ps).show();
    format!("{before}{faults}{after} (seed {}, {simulated} simulated).", run.seed)
}

fn effect(run: &EmulatedRun) -> String {
    let [all, unaffected] = groups(run);
    let groups = fixed(all as f64, 0);
    let cause = match &run.faults[..] {
        [] => return format!("{groups} groups ran without a fault"),
        [fault] if fault.parts.len() == 1 => {
            format!("with {} {}", fault.parts[0], fault.effect.replace('_', " "))
        }
        [_] => "with the fault".to_owned(),
        faults => format!("with {} faults", faults.len()),
    };
    let affected = match all - unaffected {
        0 => return format!("{cause}, none of {groups} groups is affected"),
        count => fixed(count as f64, 0),
    };
    match run.faults.iter().filter_map(|fault| fault.delay_ps).max().filter(|delay| *delay > 0) {
        Some(delay) => {
            let delay = ShownQuantity::time(delay).show();
            format!("{cause}, up to {delay} of waiting for {affected} of {groups} groups")
        }
        None => format!("{cause}, an effect on {affected} of {groups} groups"),
    }
}

fn figures(run: &EmulatedRun) -> Vec<Headline> {
    let [groups, unaffected] = groups(run);
    let packets = &run.packets;
    let sent = format!("of {} packets", fixed(packets.sent as f64, 0));
    let mut figures = Vec::new();
    if !run.faults.is_empty() {
        let beside = format!("of {} groups", fixed(groups as f64, 0));
        let unaffected = ShownQuantity::count(unaffected as u64);
        figures.push(Headline::new("groups unaffected", unaffected, beside, None));
    }
    let longest = run.faults.iter().filter_map(|fault| Some((fault.delay_ps?, fault)));
    if let Some((delay, fault)) = longest.max_by_key(|(delay, _)| *delay) {
        let beside = format!("after {} {}", named(&fault.parts), fault.effect);
        figures.push(Headline::new("longest wait", ShownQuantity::time(delay), beside, None));
    } else {
        let simulated = ShownQuantity::time(run.simulated_ps);
        figures.push(Headline::new("simulated", simulated, format!("seed {}", run.seed), None));
    }
    if run.faults.is_empty() {
        let dropped = ShownQuantity::count(packets.dropped);
        figures.push(Headline::new("packets dropped", dropped, sent.clone(), None));
    }
    let lost = ShownQuantity::count(packets.lost);
    figures.push(Headline::new("packets lost on links", lost, sent, None));
    figures
}

const NAMED_MAX: usize = 8;

fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Follows the group with the longest delay; `None` if the fault had no effect.
fn timeline(id: &str, fault: &EmulatedFault, of: &str) -> Option<Picture> {
    let began = fault.at_ps?;
    let ends = [
        ("detected", fault.detected_ps),
        ("planned", fault.replanned_ps),
        ("light restored", fault.restored_ps),
    ];
    let mut bars: Vec<Bar> = Vec::new();
    let mut start = 0;
    for (name, end) in ends {
        let Some(end) = end.map(|end| end.saturating_sub(began)) else { break };
        if end > start {
            bars.push(Bar { tone: Tone::Own, ..time_bar(name.to_owned(), start, end - start) });
            start = end;
        }
    }
    let mut caption = format!(
        "{} {} at {}{of}.",
        named(&fault.parts),
        fault.effect,
        ShownQuantity::time(began).show()
    );
    if let Some(late) = fault.delay_ps.filter(|late| *late > 0) {
        let name = match &fault.groups_affected[..] {
            [group] => format!("{group} waits"),
            groups => format!("{} groups wait", groups.len()),
        };
        bars.push(Bar { tone: Tone::Lost, ..time_bar(name, 0, late) });
        let late = ShownQuantity::time(late).show();
        caption +=
            &format!(" The longest wait is {late}; affected: {}.", named(&fault.groups_affected));
    }
    Picture::bars(id, "the fault with the longest wait", bars, caption)
}

pub(super) fn time_bar(name: String, start_ps: u64, length_ps: u64) -> Bar {
    let start = ShownQuantity::time(start_ps).value;
    Bar { start, ..Bar::new(name, Tone::Own, ShownQuantity::time(length_ps)) }
}

struct AlikeSet<'a> {
    name: String,
    all: Vec<&'a EmulatedCollective>,
    times_ps: Vec<u64>,
}

/// Groups collectives by name and bound, because groups of different sizes have different bounds.
/// Ambiguous names are extended with the ranks or, if these are equal, with the bound.
fn alike(collectives: &[EmulatedCollective]) -> Vec<AlikeSet<'_>> {
    let mut sets: Vec<AlikeSet<'_>> = Vec::new();
    for collective in collectives {
        match sets.iter_mut().find(|set: &&mut AlikeSet<'_>| {
            (&set.name, set.all[0].ideal_ps) == (&collective.name, collective.ideal_ps)
        }) {
            Some(set) => set.all.push(collective),
            None => sets.push(AlikeSet {
                name: collective.name.clone(),
                all: vec![collective],
                times_ps: Vec::new(),
            }),
        }
    }
    let names: Vec<String> = sets.iter().map(|set| unambiguous(set, &sets)).collect();
    for (set, name) in sets.iter_mut().zip(names) {
        set.name = name;
        let all = set.all.iter();
        let took = all.filter_map(|one| Some(one.end_ps?.saturating_sub(one.start_ps)));
        set.times_ps = took.collect();
        set.times_ps.sort_unstable();
    }
    sets
}

fn unambiguous(set: &AlikeSet<'_>, sets: &[AlikeSet<'_>]) -> String {
    let (name, of) = (&set.name, set.all[0]);
    let same: Vec<&AlikeSet<'_>> = sets.iter().filter(|other| other.name == *name).collect();
    match of.ranks {
        _ if same.len() == 1 => name.clone(),
        Some(ranks) if same.iter().filter(|other| other.all[0].ranks == of.ranks).count() == 1 => {
            format!("{name} ({ranks} ranks)")
        }
        _ => format!("{name} (bound {})", ShownQuantity::time(of.ideal_ps).show()),
    }
}

fn against_bound(sets: &[AlikeSet<'_>]) -> Option<Picture> {
    let bars = sets.iter().flat_map(|AlikeSet { name, all, times_ps }| {
        let bars = [
            ("fastest", Tone::Own, times_ps.first().copied()),
            ("slowest", Tone::Other, times_ps.last().copied()),
            ("bound", Tone::Bound, Some(all[0].ideal_ps)),
        ];
        bars.map(|(what, tone, ps)| {
            Some(Bar { tone, ..time_bar(format!("{name}: {what}"), 0, ps?) })
        })
    });
    let caption = "Fastest and slowest group of each collective, and the closed form of its messages on these links.";
    Picture::bars("run-collectives", "time of a collective", bars.flatten(), caption)
}

fn collectives(sets: &[AlikeSet<'_>]) -> FigureTable {
    let rows = sets.iter().map(|AlikeSet { name, all, times_ps: times }| {
        let undisturbed = all.iter().filter(|one| one.restarts == 0);
        let bandwidth = undisturbed.map(|one| one.busbw_bytes_per_s).fold(0.0, f64::max);
        json!({
            "name": name, "kind": all[0].kind, "bytes": all[0].bytes, "runs": all.len(), "fastest": times.first(),
            "median": times.get(times.len() / 2), "slowest": times.last(), "bound": all[0].ideal_ps,
            "bandwidth": bandwidth / 1e9, "restarts": all.iter().map(|one| one.restarts).sum::<u32>(),
        })
    });
    tables::table("collectives", rows)
}

pub(in super::super) fn add_sweep(report: &mut PageDocument, swept: &Swept) {
    let title = format!("Seeds: {}", swept.subject.scenario);
    let mut section = PageSection::new("seeds", title);
    section.table(tables::table("seeds-expectations", &swept.expectations));
    section.table(tables::table("seeds-recoveries", &swept.recoveries));
    if !swept.distributions.is_empty() {
        section.table(losses(swept));
        section.note(
            "Compared with the fault-free run with the same seed. P50, P90 and P99: 50, 90 and 99 \
             % of the seeds lose no more (nearest rank); `–` if a job never ends its steps.",
        );
    }
    let faults = swept.runs.iter().flat_map(|run| run.faults.iter().map(|fault| (run.seed, fault)));
    let picture = faults.max_by_key(|(_, fault)| fault.delay_ps).and_then(|(seed, fault)| {
        let of = format!(" under seed {seed}, the longest wait of {} seeds", swept.runs.len());
        timeline("seeds-fault", fault, &of)
    });
    let first =
        FirstScreen { verdict: sweep_verdict(swept), figures: sweep_figures(swept), picture };
    report.add(first, section);
}

fn seeds(swept: &Swept) -> [String; 2] {
    let passed = swept.runs.iter().filter(|run| run.passed).count();
    [swept.runs.len(), passed].map(|count| fixed(count as f64, 0))
}

fn sweep_verdict(swept: &Swept) -> String {
    let [all, passed] = seeds(swept);
    let verdict = format!("{passed} of {all} seeds passed");
    let Some(seed) = swept.worst_seed else { return verdict + "." };
    let of_seed = swept.expectations.iter().filter(|row| row["worst_seed"] == seed);
    let found = of_seed.max_by_key(|row| row["failed"].as_u64()).and_then(|row| {
        let [expected, value] = ["expect", "worst_value"].map(|key| row[key].as_str());
        Some(format!(": expected “{}”, and {}", expected?, value?))
    });
    let worst = if passed == all { "closest to failing" } else { "the worst" };
    format!("{verdict}; seed {seed} is {worst}{}.", found.unwrap_or_default())
}

fn sweep_figures(swept: &Swept) -> Vec<Headline> {
    let [all, _] = seeds(swept);
    let passed = swept.runs.iter().filter(|run| run.passed).count() as f64;
    let passed = ShownQuantity::new(passed, ShownUnit::Count);
    let mut figures = vec![Headline::new("seeds passed", passed, format!("of {all}"), None)];
    let slowest = swept.recoveries.iter().max_by_key(|row| row["max_ps"].as_u64());
    if let Some((row, longest)) = slowest.and_then(|row| Some((row, row["max_ps"].as_u64()?))) {
        let seed =
            row["worst_seed"].as_u64().map_or(String::new(), |seed| format!(", seed {seed}"));
        let beside = format!("after {}{seed}", row["kind"].as_str().unwrap_or_default());
        figures.push(Headline::new("longest recovery", ShownQuantity::time(longest), beside, None));
    }
    let lost = swept.distributions.iter().find(|row| row.figure == "time_lost_ps");
    if let Some((row, most)) = lost.and_then(|row| Some((row, row.max?))) {
        let beside = format!("of a job's time, seed {}", row.worst_seed);
        let most = ShownQuantity::new(most * 1e-12, ShownUnit::Seconds);
        figures.push(Headline::new("longest delay", most, beside, None));
    }
    let failed = swept.expectations.iter().filter(|row| row["failed"].as_u64() > Some(0)).count();
    let failed = ShownQuantity::new(failed as f64, ShownUnit::Count);
    let beside = format!("of {}, in any seed", swept.expectations.len());
    figures.push(Headline::new("expectations failed", failed, beside, None));
    figures.truncate(3);
    figures
}

fn losses(swept: &Swept) -> FigureTable {
    let rows = swept.distributions.iter().map(|row| {
        let (words, unit, factor) = match row.figure.as_str() {
            "time_lost_ps" => ("time in all steps", ShownUnit::Seconds, 1e-12),
            "worst_step_lost_ps" => ("time in one step", ShownUnit::Seconds, 1e-12),
            "goodput_lost" => ("goodput", ShownUnit::Share, 1.0),
            "groups_affected" => ("groups affected", ShownUnit::Count, 1.0),
            other => (other, ShownUnit::Count, 1.0),
        };
        let [p50, p90, p99, max] = [row.p50, row.p90, row.p99, row.max].map(|value| {
            let quantity = ShownQuantity::new(value? * factor, unit);
            Some((quantity.value, unit.name(), quantity.show()))
        });
        json!({"words": words, "p50": p50, "p90": p90, "p99": p99, "max": max, "worst_seed": row.worst_seed})
    });
    tables::table("seeds", rows)
}

#[cfg(test)]
mod tests {
    use super::super::super::results::EmulatedGroup;
    use super::*;

    fn run(collectives: &[(&str, Option<u64>, u64)]) -> EmulatedRun {
        let workload = |&(name, ranks, ideal_ps): &(&str, Option<u64>, u64)| {
            serde_json::json!({"name": name, "group": "g0", "ranks": ranks, "kind": "all-reduce", "bytes": 1, "start_ps": 0,
                "end_ps": ideal_ps, "ideal_ps": ideal_ps, "busbw_bytes_per_s": 1.0, "restarts": 0})
        };
        let workloads: Vec<_> = collectives.iter().map(workload).collect();
        let run = serde_json::json!({"scenario": "s", "fabric_sha256": "", "seed": 1, "simulated_ps": 1, "packet_hops": 1,
            "packets": {"sent": 1, "delivered": 1, "dropped": 0, "lost": 0, "retransmitted": 0},
            "workloads": workloads, "faults": [], "expectations": []});
        serde_json::from_value(run).unwrap()
    }

    fn names(run: &EmulatedRun) -> Vec<String> {
        alike(&run.workloads).into_iter().map(|set| set.name).collect()
    }

    #[test]
    fn run_of_steps_counts_its_groups_and_has_no_empty_chart() {
        let mut of_steps = run(&[]);
        let groups = [Some(true), Some(false), None];
        of_steps.groups = groups.map(|unaffected| EmulatedGroup { unaffected }).to_vec();
        let fault = serde_json::json!({"parts": ["n1"], "effect": "bit_errors", "groups_affected": ["g1"], "gpus_affected": 8, "gpus_lost": 4});
        of_steps.faults = vec![serde_json::from_value(fault).unwrap()];
        let said = verdict(&of_steps);
        assert!(said.starts_with("with n1 bit errors, an effect on 1 of 2 groups"), "{said}");
        assert!(against_bound(&alike(&of_steps.workloads)).is_none());
    }

    #[test]
    fn collectives_are_named_as_in_the_scenario() {
        let sizes =
            run(&[("tensor", Some(32), 19), ("tensor", Some(16), 14), ("data", Some(8), 5)]);
        assert_eq!(names(&sizes), ["tensor (32 ranks)", "tensor (16 ranks)", "data"]);
        let paths = run(&[("tensor", Some(32), 19_000_000), ("tensor", Some(32), 14_000_000)]);
        assert_eq!(names(&paths), ["tensor (bound 19.00\u{a0}µs)", "tensor (bound 14.00\u{a0}µs)"]);
        assert_eq!(names(&run(&[("tensor", None, 19)])), ["tensor"]);
    }

    #[test]
    fn sweep_leads_with_its_verdict_and_the_worst_seed() {
        let swept = serde_json::json!({"subject": {"scenario": "s", "fabric_sha256": "f"}, "worst_seed": 7, "runs": [
                {"seed": 6, "passed": true}, {"seed": 7, "passed": false}],
            "expectations": [
                {"expect": "goodput >= 0.98", "passed": 1, "failed": 1, "worst_seed": 7, "worst_value": "goodput = 0.91"},
                {"expect": "groups_lost == 0", "passed": 2, "failed": 0, "worst_seed": 7, "worst_value": "0"}]});
        let swept: Swept = serde_json::from_value(swept).unwrap();
        let said = sweep_verdict(&swept);
        let expected = "1 of 2 seeds passed; seed 7 is the worst: expected “goodput >= 0.98”, and goodput = 0.91.";
        assert_eq!(said, expected);
    }
}
