// SPDX-License-Identifier: Apache-2.0
//! Reports how a fault affected a job in the twin. All figures are measured: light changes are in `wiring.jsonl`,
//! ranks come from the daemon's hook, and steps from the job's output. All timestamps come from one host's clock.

mod model;

pub use model::Modelled;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::fault::{self, InjectedFault};
use crate::ranks::{self, Ranks};
use crate::record::Folder;
use crate::up::Programs;
use crate::wiring::{self, Rewired};

#[derive(Clone, Debug, Serialize)]
pub struct FaultReport {
    pub schema: &'static str,
    pub part: String,
    pub fault: String,
    /// Milliseconds from the fault until packets can use the last new circuit; `None` if no circuit was switched.
    pub dark_ms: Option<f64>,
    /// Time in milliseconds from the fault until the daemon has committed and the rank file is
    /// complete; `None` if this did not happen.
    pub ranks_ms: Option<f64>,
    /// Time in milliseconds from the last request to rewire a device until the kernel executed it.
    pub rewired_ms: Option<f64>,
    /// Sorted by interruption, longest first.
    pub groups: Vec<GroupReport>,
    /// The same node failure in packet simulations. Empty for other faults.
    pub modelled: Vec<Modelled>,
}

#[derive(Clone, Debug, Serialize)]
pub struct GroupReport {
    pub group: String,
    pub steps: u64,
    /// Longest time in milliseconds after the fault without a completed step.
    pub gap_ms: f64,
    /// Median step time in milliseconds before the fault.
    pub before_ms: Option<f64>,
    /// Longest step in milliseconds after the fault. A restarted step is measured from its restart.
    pub during_ms: Option<f64>,
    /// Median step time in milliseconds after the interruption.
    pub after_ms: Option<f64>,
}

/// A step of a job, as the job prints it: one JSON object per line. Further keys are ignored.
#[derive(Clone, Debug, Deserialize)]
struct PrintedStep {
    group: String,
    step: u64,
    /// End of the step in microseconds since 1970.
    unix_us: u64,
    step_us: u64,
}

pub fn of(folder: &Folder, name: &str, programs: &Programs) -> Result<FaultReport, Error> {
    let faults: Vec<InjectedFault> = lines(folder, fault::FILE)?;
    let Some(fault) = faults.last() else {
        return Err(Error::Refused(
            "no fault was injected: run `lightloom twin fault NODE dead` while the job runs".into(),
        ));
    };
    let steps = steps(folder, name)?;
    if steps.is_empty() {
        return Err(Error::Refused(format!(
            "no steps in {}: run a job that prints a line of JSON for each step (docs/how-to/live-twin.md) with exec --all --name {name}",
            folder.file("log").join(name).display()
        )));
    }
    let rewired: Vec<Rewired> = lines(folder, wiring::FILE)?;
    let mut joined = rewired.iter().filter(|one| one.done_unix_us > fault.unix_us);
    let last = joined.rfind(|one| !one.joined.is_empty());
    let ranks: Option<Ranks> = folder.read(ranks::FILE)?;
    let since = |at: u64| (at >= fault.unix_us).then(|| milliseconds(at - fault.unix_us));
    let mut groups: Vec<_> = steps
        .into_iter()
        .map(|(group, steps)| group_report(group, &steps, fault.unix_us))
        .collect();
    groups.sort_by(|a, b| b.gap_ms.total_cmp(&a.gap_ms));
    let is_modelled = fault.fault == "dead" && !fault.part.contains('/');
    let modelled =
        if is_modelled { model::both(folder, name, fault, programs)? } else { Vec::new() };
    Ok(FaultReport {
        schema: "lightloom.live-report/v1",
        part: fault.part.clone(),
        fault: fault.fault.clone(),
        dark_ms: last.and_then(|one| since(one.done_unix_us)),
        ranks_ms: ranks.and_then(|ranks| since(ranks.unix_us)),
        rewired_ms: last.map(|one| milliseconds(one.paths_us)),
        groups,
        modelled,
    })
}

fn milliseconds(us: u64) -> f64 {
    us as f64 / 1e3
}

fn lines<T: DeserializeOwned>(folder: &Folder, name: &str) -> Result<Vec<T>, Error> {
    let file = folder.file(name);
    let text = fs::read_to_string(&file).unwrap_or_default();
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn steps(folder: &Folder, name: &str) -> Result<BTreeMap<String, Vec<PrintedStep>>, Error> {
    let logs = folder.file("log").join(name);
    let read = fs::read_dir(&logs).map_err(Error::cannot(format!("read {}", logs.display())))?;
    let mut last: BTreeMap<(String, u64), PrintedStep> = BTreeMap::new();
    for path in read.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "out") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        for step in text.lines().filter_map(|line| serde_json::from_str::<PrintedStep>(line).ok()) {
            let of = last.entry((step.group.clone(), step.step)).or_insert_with(|| step.clone());
            if step.unix_us > of.unix_us {
                *of = step;
            }
        }
    }
    let mut groups: BTreeMap<String, Vec<PrintedStep>> = BTreeMap::new();
    for ((group, _), step) in last {
        groups.entry(group).or_default().push(step);
    }
    Ok(groups)
}

fn group_report(group: String, steps: &[PrintedStep], fault_us: u64) -> GroupReport {
    let before = steps.iter().filter(|step| step.unix_us <= fault_us);
    let after: Vec<_> = steps.iter().filter(|step| step.unix_us > fault_us).collect();
    let ends = before.clone().next_back().into_iter().chain(after.iter().copied());
    let ends: Vec<u64> = ends.map(|step| step.unix_us).collect();
    let gaps = ends.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    let (gap, at) = gaps.zip(1..).max().unwrap_or_default();
    let end_of_gap = ends.get(at).copied().unwrap_or(fault_us);
    GroupReport {
        group,
        steps: steps.len() as u64,
        gap_ms: milliseconds(gap),
        before_ms: median(before.map(|step| step.step_us)),
        during_ms: after.iter().map(|step| step.step_us).max().map(milliseconds),
        after_ms: median(
            after.iter().filter(|step| step.unix_us > end_of_gap).map(|step| step.step_us),
        ),
    }
}

fn median(times: impl Iterator<Item = u64>) -> Option<f64> {
    let mut times: Vec<u64> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().map(milliseconds)
}

impl FaultReport {
    pub fn text(&self) -> String {
        let shown = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} ms"))
        };
        let mut text = format!("{} {}, from the fault until\n\n", self.part, self.fault);
        let modelled = |control: &str, of: fn(&Modelled) -> Option<f64>| {
            shown(self.modelled.iter().find(|one| one.control == control).and_then(of))
        };
        let gap = self.groups.first().map(|group| group.gap_ms);
        let switched: fn(&Modelled) -> Option<f64> = |one| one.switched_ms;
        let restored: fn(&Modelled) -> Option<f64> = |one| one.restored_ms;
        let nothing: fn(&Modelled) -> Option<f64> = |_| None;
        let rows = [
            ("the last circuit has moved", self.dark_ms, switched),
            ("groups can continue (ranks written)", self.ranks_ms, restored),
            ("the job continues (longest gap)", gap, nothing),
        ];
        let _never_fails = writeln!(
            text,
            "{:36}  {:>12}  {:>14}  {:>14}",
            "", "live", "lightloomd in", "assumed delays"
        );
        let _never_fails =
            writeln!(text, "{:36}  {:>12}  {:>14}  {:>14}", "", "", "packet run", "in packet run");
        for (what, live, of) in rows {
            let (virtual_twin, assumed) = (modelled("lightloomd", of), modelled("assumed", of));
            let live = shown(live);
            let _never_fails =
                writeln!(text, "{what:36}  {live:>12}  {virtual_twin:>14}  {assumed:>14}");
        }
        let _never_fails = writeln!(
            text,
            "\nshare of the kernel, from the device's last event to packets: {}",
            shown(self.rewired_ms)
        );
        let _never_fails = writeln!(
            text,
            "\n{:6}  {:>6}  {:>12}  {:>12}  {:>12}  {:>12}",
            "group", "steps", "longest gap", "step before", "longest step", "step after"
        );
        for group in &self.groups {
            let _never_fails = writeln!(
                text,
                "{:6}  {:>6}  {:>12}  {:>12}  {:>12}  {:>12}",
                group.group,
                group.steps,
                shown(Some(group.gap_ms)),
                shown(group.before_ms),
                shown(group.during_ms),
                shown(group.after_ms)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_is_counted_from_the_last_step_before_the_fault() {
        let step = |number, unix_us| PrintedStep {
            group: "g0".into(),
            step: number,
            unix_us,
            step_us: 900,
        };
        let ends = [1_000, 2_000, 3_000, 48_000, 49_000, 50_000];
        let steps: Vec<_> = (0..).zip(ends).map(|(number, at)| step(number, at)).collect();
        let report = group_report("g0".into(), &steps, 3_500);
        assert_eq!((report.steps, report.gap_ms), (6, 45.0));
        assert_eq!((report.before_ms, report.after_ms), (Some(0.9), Some(0.9)));
        let whole = group_report("g0".into(), &steps[..2], 3_500);
        assert_eq!((whole.gap_ms, whole.after_ms), (0.0, None), "it ended before the fault");
    }
}
