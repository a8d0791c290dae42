// SPDX-License-Identifier: Apache-2.0
//! Drafts `scenario.yaml`. In compressed time, the job communicates while hosts fail as in the fault trace.

use super::cluster::ClusterDraft;
use super::{Draft, DraftPage, Sourced, fabric, trace};
use crate::logs::Logs;
use crate::mentions::Fact;

pub(super) const NAME: &str = "scenario.yaml";

/// Simulated duration of a day, short enough to run a month.
const DAY_TAKES_US: u32 = 50;
const MOST_DAYS: u32 = 30;
/// Bytes per microsecond that a rank sends and receives in both ring directions together, at 3.6
/// Tb/s per direction without headers.
const BYTES_PER_US: u64 = 829_000;
const ROUNDS: u64 = 100;

pub(super) fn write(logs: &Logs, cluster: &ClusterDraft, days: Option<u32>, draft: &mut Draft) {
    let mut page = DraftPage::new(
        NAME,
        "The job on its cluster, with the host failures from the logs. Run it with: lightloom \
         emulate scenario.yaml",
    );
    page.put(&format!(
        "kind: scenario\nversion: 2\nname: own-cluster\non: {{fabric: {}}}\nseed: 1",
        fabric::NAME
    ));
    let run_us = u64::from(DAY_TAKES_US * days.unwrap_or(1).min(MOST_DAYS));
    match days {
        Some(days) => {
            let to =
                Sourced::derived(days.min(MOST_DAYS), format!("of {days} days in the fault trace"));
            page.guess("replay.to_day", &to);
            page.put(
                "# The seed assigns hosts in the trace to nodes in the fabric. A day takes 50 us.",
            );
            page.put(&format!(
                "replay: {{trace: {}, from_day: 0, to_day: {}, day_takes: {DAY_TAKES_US}us}}",
                trace::NAME,
                to.value
            ));
        }
        None => {
            let fault =
                Sourced::assumed("any node", logs.lacks(Fact::Faults, "no log contains a fault"));
            page.guess("faults[0].part", &fault);
            page.put("faults:\n  - {part: any node, at: 20us}");
        }
    }
    page.put("# Delays in compressed time: 1 us is half an hour of the trace.");
    let delay = Sourced::assumed("1us each", "detection and planning times are not read from logs");
    page.guess("control", &delay);
    page.put("control: {detection_delay: 1us, planning_delay: 1us}");
    collectives(logs, cluster, run_us, &mut page);
    page.put("# Conditions for CI: expect: [groups_lost == 0, availability > 0.99]");
    page.end(draft);
}

fn collectives(logs: &Logs, cluster: &ClusterDraft, run_us: u64, page: &mut DraftPage) {
    let tp = cluster.tp.value;
    let measured = logs.profiles.iter().find_map(|profile| {
        let bytes = profile.exchanged.get(&tp).copied().filter(|bytes| *bytes > 0)?;
        Some((bytes, &profile.place))
    });
    // In an all-reduce, each of n ranks sends 2(n - 1)/n of the buffer.
    let ranks = u64::from(tp.max(2));
    let sent = run_us * BYTES_PER_US / ROUNDS;
    let fill = (sent * ranks / (2 * (ranks - 1))).max(4096).next_multiple_of(4096);
    let bytes = match measured {
        Some((bytes, place)) if bytes / 4 <= fill && bytes * 64 >= fill => Sourced::derived(
            bytes,
            format!("bytes exchanged per step in groups of {tp} ranks, {place}"),
        ),
        Some((bytes, place)) => {
            let why = format!(
                "chosen to fill the run: in {place} groups of {tp} ranks exchange {bytes} B per step"
            );
            Sourced::assumed(fill, why)
        }
        None => Sourced::assumed(
            fill,
            format!(
                "chosen to fill the run, because no log contains the bytes that groups of {tp} \
                 ranks exchange"
            ),
        ),
    };
    page.guess("collectives[0].bytes", &bytes);
    let repeat = (fill * ROUNDS).div_ceil(bytes.value.max(1)).clamp(1, 1000);
    // Groups of one rank do not exchange anything, so the replicas communicate instead.
    let kind = if tp > 1 { "all_reduce" } else { "data_parallel_all_reduce" };
    page.put(&format!(
        "collectives:\n  - {kind}: {{name: exchange, bytes: {}B, repeat: {repeat}}}",
        bytes.value
    ));
}
