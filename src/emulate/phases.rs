// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write as _;

use lightloom_emulator::outcome::{Outcome as Run, Times};
use lightloom_emulator::scenario::InFlight;
use lightloom_units::Picoseconds;

use crate::table::{TableColumns, TextTable, rounded};

pub(super) fn describe(result: &Run) -> String {
    if result.phases.is_empty() {
        return String::new();
    }
    let mut text = format!("{}\n{}\n{}", scale(result), phase_table(result), step_table(result));
    if let Some(ports) = &result.ports {
        let faults = match result.faults.is_empty() {
            true => String::new(),
            false => format!(", dark because of faults for {:.3} %", 100.0 * ports.fault_share),
        };
        let switching = 100.0 * ports.switching_share;
        let _ = writeln!(text, "optical ports: changing for {switching:.3} % of the time{faults}");
    }
    text.push_str(&undrained(result));
    text
}

fn undrained(result: &Run) -> String {
    let lost = result.head.packets.lost;
    if result.in_flight != Some(InFlight::Drain) || !result.faults.is_empty() || lost == 0 {
        return String::new();
    }
    format!(
        "{lost} packets were still in flight when mirrors moved, although their circuits were drained: the time from \
            the command to the mirrors is divided by {}, but the round trip is not; choose a smaller `scale`\n",
        result.scale
    )
}

fn scale(result: &Run) -> String {
    match result.scale {
        1 => "phases at full size".to_owned(),
        scale => format!(
            "phases scaled down: sizes and times are divided by {scale}; the figures below are scaled back"
        ),
    }
}

fn phase_table(result: &Run) -> TextTable {
    let table = TextTable::of(&result.phases)
        .column("step", |phase| phase.step)
        .column("phase", |phase| phase.name.clone())
        .column("bytes", |phase| phase.demand_bytes)
        .column("circuits", |phase| format!("{} of {}", phase.circuits_up, phase.circuits_planned))
        .column("change", |phase| {
            if phase.change_missed { "missed".to_owned() } else { time(Some(phase.transition)) }
        });
    times(table, result, |phase| &phase.times)
        .column("sent twice", |phase| match phase.resent_bytes.0 {
            0 => "-".to_owned(),
            _ => phase.resent_bytes.to_string(),
        })
        .table()
}

fn step_table(result: &Run) -> TextTable {
    let table = TextTable::of(result.steps.of_phases()).column("step", |step| step.step);
    times(table, result, |step| &step.times).table()
}

fn times<'r, R>(
    table: TableColumns<&'r R>,
    result: &Run,
    of: fn(&'r R) -> &'r Times,
) -> TableColumns<&'r R> {
    table
        .column("packets", |row| time(of(row).packets))
        .column("no faults", |row| match result.faults.is_empty() {
            true => "-".to_owned(),
            false => time(of(row).packets_without_faults),
        })
        .column("fluid", |row| fluid(result, of(row).fluid))
        .column("closed form", |row| time(Some(of(row).closed_form)))
        .column("÷", |row| ratio(of(row).packets, of(row).closed_form))
}

/// The fluid model does not apply if packet switches choose paths by queue length.
fn fluid(result: &Run, fluid: Option<Picoseconds>) -> String {
    if result.ports.is_some() || fluid.is_some() { time(fluid) } else { "-".to_owned() }
}

fn time(time: Option<Picoseconds>) -> String {
    time.map_or("never".to_owned(), rounded)
}

fn ratio(time: Option<Picoseconds>, reference: Picoseconds) -> String {
    time.map_or("-".to_owned(), |time| format!("{:.3}", time.0 as f64 / reference.0.max(1) as f64))
}
