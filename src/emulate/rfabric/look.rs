//! Looking into a run of phases: a timeline for Perfetto, a table of all links.
//!
//! Single packets are not shown: in a run that is scaled down, each stands for many.

use std::collections::BTreeMap;

use lightloom_emulator::phases::Outcome as Run;
use lightloom_engine::capture::{Slice, Track, write_timeline};
use lightloom_units::id::LeafId;

use crate::emulate::look::{Look, links_csv};
use crate::files;
use crate::output::WrongUsage;

/// Refuses what a run of phases cannot show.
///
/// # Errors
/// If packets of single ports were asked for.
pub(super) fn refuse_packets(look: &Look) -> anyhow::Result<()> {
    if look.pcap.is_none() && look.pcap_port.is_empty() {
        return Ok(());
    }
    let message = "a run of phases is scaled down and each of its packets stands for many, so `--pcap` and \
                   `--pcap-port` would mislead: use `--timeline`, `--links-out` or `--flows-out`";
    Err(WrongUsage(message.into()).into())
}

/// Writes what was asked for.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn write(look: &Look, result: &Run) -> anyhow::Result<()> {
    if let Some(path) = &look.timeline {
        let mut bytes = Vec::new();
        write_timeline(&mut bytes, &tracks(result))?;
        files::write(path, &bytes)?;
    }
    if let Some(path) = &look.links_out {
        let rows = result.links.iter().map(|(name, count)| (name.clone(), *count));
        files::write(path, links_csv(rows).as_bytes())?;
    }
    Ok(())
}

/// Phases, changes of circuits, faults, and what each leaf sends, in the fabric's time.
fn tracks(result: &Run) -> Vec<Track> {
    let track = |process, name: &str, slices| Track { process, name: name.to_owned(), slices };
    let mut tracks = vec![
        track("phases", "phases", phases(result)),
        track("phases", "changes of circuits", changes(result)),
    ];
    for fault in result.faults.iter().filter(|fault| fault.at.is_some()) {
        let begin = fault.at.unwrap_or_default();
        let end = fault.repaired.unwrap_or(result.head.simulated).max(begin);
        let name = fault.what.to_string();
        tracks.push(track("faults", &name, vec![Slice { name: name.clone(), begin, end }]));
    }
    let mut leaves: BTreeMap<LeafId, Vec<Slice>> = BTreeMap::new();
    for (number, flow) in result.flow_records.iter().enumerate() {
        if let Some(end) = flow.end {
            let name = format!("flow {number} to {}", flow.destination);
            leaves.entry(flow.source).or_default().push(Slice { name, begin: flow.start, end });
        }
    }
    tracks.extend(
        leaves.into_iter().map(|(leaf, slices)| track("leaves", &leaf.to_string(), slices)),
    );
    tracks
}

/// From the end of the phase before, so with the slack.
fn phases(result: &Run) -> Vec<Slice> {
    let ends = result.phases.iter().skip(1).map(|phase| phase.start).chain([result.head.simulated]);
    let slice = |(phase, end): (&lightloom_emulator::phases::PhaseResult, _)| Slice {
        name: format!("{} of step {}", phase.name, phase.step),
        begin: phase.start,
        end,
    };
    result.phases.iter().zip(ends).map(slice).collect()
}

fn changes(result: &Run) -> Vec<Slice> {
    let changed = result.phases.iter().filter(|phase| phase.transition.0 > 0);
    let slice = |phase: &lightloom_emulator::phases::PhaseResult| Slice {
        name: format!("circuits of {}", phase.name),
        begin: phase.start,
        end: phase.start + phase.transition,
    };
    changed.map(slice).collect()
}
