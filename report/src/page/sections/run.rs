// SPDX-License-Identifier: Apache-2.0
//! An emulator run: collectives with their bounds, and the effects of each fault.

use super::super::bars::{Bar, Bars};
use super::super::document::{Cell, Figure, FigureTable, PageBlock, PageDocument, PageSection};
use super::super::quantity::{ShownQuantity, ShownUnit, fixed};
use super::super::results::{
    EmulatedCollective, EmulatedFault, EmulatedRun, EmulatedStep, EmulatedWhy,
};
use super::timeline;

const SECONDS_PER_PS: f64 = 1e-12;

pub(in super::super) fn add(report: &mut PageDocument, run: &EmulatedRun, index: usize) {
    let mut section = PageSection::new(
        if index == 0 { "run" } else { "another-run" },
        format!("Packets: {}", run.scenario),
        conclusion(run),
    );
    if !run.workloads.is_empty() {
        section.blocks.push(against_bound(run));
        section.blocks.push(PageBlock::Table(collectives(run)));
    }
    if steps_of_jobs(run).next().is_some() {
        section.blocks.push(PageBlock::Table(steps(run)));
    }
    if !run.faults.is_empty() {
        let worst = run.faults.iter().max_by_key(|fault| fault.delay_ps);
        section.blocks.extend(worst.and_then(|fault| timeline::of_worst("run-fault", fault, "")));
        section.blocks.push(PageBlock::Table(faults(&run.faults)));
    }
    if !run.expectations.is_empty() {
        section.blocks.push(PageBlock::Table(expectations(run)));
    }
    let packets = &run.packets;
    section.blocks.push(PageBlock::Note(format!(
        "Packets: {} sent, {} delivered, {} dropped, {} lost on links, {} sent again. Seed {}; simulated {}.",
        fixed(packets.sent as f64, 0),
        fixed(packets.delivered as f64, 0),
        fixed(packets.dropped as f64, 0),
        fixed(packets.lost as f64, 0),
        fixed(packets.retransmitted as f64, 0),
        run.seed,
        ShownQuantity::new(run.simulated_ps as f64 * SECONDS_PER_PS, ShownUnit::Seconds).show(),
    )));
    report.sections.push(section);
}

fn conclusion(run: &EmulatedRun) -> String {
    let at_work = || run.groups.iter().filter_map(|group| group.unaffected);
    let (groups, unaffected) = (at_work().count(), at_work().filter(|same| *same).count());
    let failed = run.expectations.iter().filter(|expectation| !expectation.passed).count();
    let verdict = match (run.expectations.len(), failed) {
        (0, _) => String::new(),
        (all, 0) => format!(" All {all} expectations came true."),
        (all, failed) => format!(" {failed} of {all} expectations did not come true."),
    };
    if run.faults.is_empty() {
        return format!("{} groups ran without a fault.{verdict}", fixed(groups as f64, 0));
    }
    let faults = match run.faults.len() {
        1 => "the fault".to_owned(),
        count => format!("{count} faults"),
    };
    format!(
        "Groups unaffected by {faults}: {} of {}.{verdict}",
        fixed(unaffected as f64, 0),
        fixed(groups as f64, 0),
    )
}

fn steps_of_jobs(run: &EmulatedRun) -> impl Iterator<Item = (&str, &EmulatedStep)> {
    run.steps.iter().filter_map(|step| Some((step.job.as_deref()?, step)))
}

/// Returns the steps of jobs with a breakdown of their time.
fn steps(run: &EmulatedRun) -> FigureTable {
    let mut table = FigureTable::new("steps", "Steps of jobs, and where their time went")
        .words("job")
        .numbers("step")
        .numbers("took")
        .numbers("closed form")
        .numbers("MFU")
        .numbers("compute")
        .numbers("generation")
        .numbers("exchange")
        .numbers("contention")
        .numbers("circuits")
        .numbers("fault")
        .numbers("done again");
    for (job, step) in steps_of_jobs(run) {
        let seconds = |ps: u64| ps as f64 * SECONDS_PER_PS;
        let took = step.end_ps.map(|end| seconds(end.saturating_sub(step.start_ps)));
        let part = |of: fn(&EmulatedWhy) -> u64| {
            Cell::maybe(step.why.as_ref().map(|why| seconds(of(why))), ShownUnit::Seconds)
        };
        table.row([
            Cell::text(job),
            Cell::number(f64::from(step.index), ShownUnit::Count),
            Cell::maybe(took, ShownUnit::Seconds),
            Cell::number(seconds(step.closed_form_ps), ShownUnit::Seconds),
            Cell::maybe(step.mfu, ShownUnit::Share),
            part(|why| why.compute_ps),
            part(|why| why.generation_ps),
            part(|why| why.exposed_ps.values().sum()),
            part(|why| why.contention_ps),
            part(|why| why.transition_ps),
            part(|why| why.fault_ps),
            part(|why| why.restart_ps),
        ]);
    }
    table
}

/// Groups collectives by name and bound, in order of first appearance. Groups of several sizes have
/// several bounds; an ambiguous name is extended with the ranks, or else with the bound.
fn alike(run: &EmulatedRun) -> Vec<(String, Vec<&EmulatedCollective>)> {
    let mut sets: Vec<Vec<&EmulatedCollective>> = Vec::new();
    for collective in &run.workloads {
        let is_alike = |set: &&mut Vec<&EmulatedCollective>| {
            (&set[0].name, set[0].ideal_ps) == (&collective.name, collective.ideal_ps)
        };
        match sets.iter_mut().find(is_alike) {
            Some(set) => set.push(collective),
            None => sets.push(vec![collective]),
        }
    }
    let named = |set: &Vec<&EmulatedCollective>| {
        let of = set[0];
        let same: Vec<_> = sets.iter().filter(|other| other[0].name == of.name).collect();
        let are_sized = same.iter().filter(|other| other[0].ranks == of.ranks).count() == 1;
        match of.ranks {
            _ if same.len() == 1 => of.name.clone(),
            Some(ranks) if are_sized => format!("{} ({ranks} ranks)", of.name),
            _ => {
                let bound = of.ideal_ps as f64 * SECONDS_PER_PS;
                let bound = ShownQuantity::new(bound, ShownUnit::Seconds).show();
                format!("{} (bound {bound})", of.name)
            }
        }
    };
    let names: Vec<String> = sets.iter().map(named).collect();
    names.into_iter().zip(sets).collect()
}

/// Returns the sorted durations of the collectives in seconds.
fn times(all: &[&EmulatedCollective]) -> Vec<f64> {
    let took = |c: &&EmulatedCollective| {
        Some(c.end_ps?.saturating_sub(c.start_ps) as f64 * SECONDS_PER_PS)
    };
    let mut times: Vec<f64> = all.iter().filter_map(took).collect();
    times.sort_by(f64::total_cmp);
    times
}

fn against_bound(run: &EmulatedRun) -> PageBlock {
    let mut bars = Vec::new();
    for (name, all) in alike(run) {
        let ideal = all[0].ideal_ps as f64 * SECONDS_PER_PS;
        let times = times(&all);
        let mut bar = |what: &str, ink, seconds: f64| {
            bars.push(Bar {
                name: format!("{name}: {what}"),
                ink,
                start: 0.0,
                value: seconds,
                spread: None,
                label: ShownQuantity::new(seconds, ShownUnit::Seconds).show(),
            });
        };
        if let (Some(&fastest), Some(&slowest)) = (times.first(), times.last()) {
            bar("fastest", 1, fastest);
            bar("slowest", 4, slowest);
        }
        bar("bound", 9, ideal);
    }
    let bars = Bars { title: "time of a collective", unit: ShownUnit::Seconds, bars };
    PageBlock::Figure(Figure {
        id: "run-collectives",
        svg: format!("<div class=\"pair\">{}</div>", bars.svg()),
        caption: "Each collective's fastest and slowest group beside the closed form of its messages on these links.".to_owned(),
        data: vec![],
    })
}

fn collectives(run: &EmulatedRun) -> FigureTable {
    let mut table = FigureTable::new("collectives", "Collectives")
        .words("collective")
        .words("kind")
        .numbers("size")
        .numbers("runs")
        .numbers("fastest")
        .numbers("median")
        .numbers("slowest")
        .numbers("bound")
        .numbers("bus bandwidth")
        .numbers("restarts");
    for (name, all) in alike(run) {
        let times = times(&all);
        let seconds = |time: Option<&f64>| Cell::maybe(time.copied(), ShownUnit::Seconds);
        let bandwidth =
            all.iter().filter(|c| c.restarts == 0).map(|c| c.busbw_bytes_per_s).fold(0.0, f64::max);
        table.row([
            Cell::text(name),
            Cell::text(&all[0].kind),
            Cell::number(all[0].bytes as f64, ShownUnit::Bytes),
            Cell::number(all.len() as f64, ShownUnit::Count),
            seconds(times.first()),
            seconds(times.get(times.len() / 2)),
            seconds(times.last()),
            Cell::number(all[0].ideal_ps as f64 * SECONDS_PER_PS, ShownUnit::Seconds),
            Cell::number(bandwidth / 1e9, ShownUnit::Bandwidth),
            Cell::number(all.iter().map(|c| f64::from(c.restarts)).sum(), ShownUnit::Count),
        ]);
    }
    table
}

fn faults(faults: &[EmulatedFault]) -> FigureTable {
    let mut table = FigureTable::new("faults", "Faults and what followed, time since the fault")
        .words("what broke")
        .numbers("at")
        .numbers("detected")
        .numbers("replanned")
        .numbers("restored")
        .numbers("affected rings")
        .numbers("their GPUs")
        .numbers("out of service");
    for fault in faults {
        let since = |at: Option<u64>| {
            Cell::maybe(
                at.zip(fault.at_ps)
                    .map(|(at, began)| at.saturating_sub(began) as f64 * SECONDS_PER_PS),
                ShownUnit::Seconds,
            )
        };
        table.row([
            Cell::text(fault.parts.join(", ")),
            Cell::maybe(fault.at_ps.map(|at| at as f64 * SECONDS_PER_PS), ShownUnit::Seconds),
            since(fault.detected_ps),
            since(fault.replanned_ps),
            since(fault.restored_ps),
            Cell::number(fault.groups_affected.len() as f64, ShownUnit::Count),
            Cell::number(fault.gpus_affected as f64, ShownUnit::Gpus),
            Cell::number(fault.gpus_lost as f64, ShownUnit::Gpus),
        ]);
    }
    table
}

fn expectations(run: &EmulatedRun) -> FigureTable {
    let mut table = FigureTable::new("expectations", "Expectations")
        .words("expected")
        .words("found")
        .words("verdict");
    for expectation in &run.expectations {
        table.row([
            Cell::text(&expectation.expect),
            Cell::text(&expectation.value),
            Cell::text(if expectation.passed { "passed" } else { "FAILED" }),
        ]);
    }
    table
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
        alike(run).into_iter().map(|(name, _)| name).collect()
    }

    /// Training groups have steps but no separate collectives.
    #[test]
    fn run_of_steps_counts_its_groups_and_has_no_empty_chart() {
        let mut of_steps = run(&[]);
        let step = serde_json::json!({"job": "rl", "index": 0, "start_ps": 0, "end_ps": 9, "closed_form_ps": 8, "mfu": 0.1,
            "why": {"compute_ps": 3, "exposed_ps": {"tp": 1, "weights": 2}, "restart_ps": 3}});
        of_steps.steps = vec![serde_json::from_value(step).unwrap()];
        let group = |name: &str, unaffected| EmulatedGroup { group: name.into(), unaffected };
        of_steps.groups =
            vec![group("g0", Some(true)), group("g1", Some(false)), group("g2", None)];
        let fault = serde_json::json!({"parts": ["n1"], "groups_affected": ["g1"], "gpus_affected": 8, "gpus_lost": 4});
        of_steps.faults = vec![serde_json::from_value(fault).unwrap()];
        let said = conclusion(&of_steps);
        assert!(said.starts_with("Groups unaffected by the fault: 1 of 2."), "{said}");
        let phases: EmulatedStep =
            serde_json::from_value(serde_json::json!({"step": 1, "times": {}})).unwrap();
        of_steps.steps = vec![phases];
        assert_eq!(steps_of_jobs(&of_steps).count(), 0);
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
}
