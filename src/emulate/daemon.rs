// SPDX-License-Identifier: Apache-2.0
//! Shows the daemon's response to a fault as a bar chart by stage, and the assumed delays.

use std::fmt::Write as _;

use lightloom_emulator::outcome::{DaemonResult, Outcome as Run, PhaseCounts, Stage};
use lightloom_emulator::scenario::SwitchLanguage;

use super::months::count;
use crate::table::TextTable;

const BAR: f64 = 40.0;

pub(super) fn stages(stages: &[Stage]) -> String {
    let Some(longest) = stages.iter().map(|stage| stage.took).max() else { return String::new() };
    let mut table = TextTable::new(["stage", "took", "", "ended at"]);
    for stage in stages {
        let share = stage.took.get() as f64 / longest.get().max(1) as f64;
        let bar = "#".repeat((share * BAR).round() as usize);
        table.row([stage.stage.to_string(), stage.took.to_string(), bar, stage.end.to_string()]);
    }
    table.to_string()
}

pub(super) fn describe(result: &Run) -> String {
    let Some(daemon) = &result.lightloomd else { return String::new() };
    let DaemonResult { bypasses, false_bypasses, committed, not_committed, .. } = **daemon;
    let bypasses = if bypasses == 1 { "1 bypass".into() } else { format!("{bypasses} bypasses") };
    let mut text = format!(
        "\nlightloomd: {} read every {}, loss of light is {}; {bypasses}, {false_bypasses} of them false; \
         {} committed, {not_committed} not; {}; {} bytes on serial lines, {} journal records\n\
         plan in force at the end: {}\n",
        devices(daemon),
        daemon.poll_every,
        if daemon.events { "reported" } else { "detected by polling" },
        count(committed, "change"),
        count(daemon.restarts, "restart"),
        daemon.line_bytes,
        daemon.journal_records,
        daemon.plan_sha256,
    );
    if !daemon.phases.is_none() {
        let PhaseCounts { asked, lit, kept, missed } = daemon.phases;
        let _ = writeln!(
            text,
            "phases: {asked} requested, {lit} lit, {kept} kept (too short for their transition), {missed} missed"
        );
    }
    let assumed = &daemon.assumed;
    let _ = writeln!(
        text,
        "assumed CPU time: {} per message and {} per transceiver, {} per bypass and {} per node, \
            {} per node at the end, {} from a serial line to its task, jitter up to {}",
        assumed.per_input,
        assumed.per_input_and_device,
        assumed.per_plan,
        assumed.per_plan_and_node,
        assumed.per_end_and_node,
        assumed.handoff,
        assumed.jitter,
    );
    let _ = writeln!(
        text,
        "assumed for the packet network: {} until flows are rerouted",
        daemon.reroute
    );
    match daemon.violations.len() {
        0 => text.push_str("invariants I1 to I9: all hold\n"),
        count => {
            let _ = writeln!(text, "INVARIANTS VIOLATED: {count}");
            daemon.violations.iter().for_each(|one| {
                let _ = writeln!(text, "  {one}");
            });
        }
    }
    text
}

fn devices(daemon: &DaemonResult) -> String {
    let transceivers = format!("{} transceivers", daemon.devices);
    let language = match daemon.switch_language {
        SwitchLanguage::Scpi => "SCPI",
        SwitchLanguage::Tl1 => "TL1",
        SwitchLanguage::Gnmi => "gNMI",
    };
    let switches = format!("{} optical switches ({language})", daemon.switches);
    match (daemon.devices, daemon.switches) {
        (_, 0) => transceivers,
        (0, _) => switches,
        _ => format!("{transceivers} and {switches}"),
    }
}
