// SPDX-License-Identifier: Apache-2.0
//! Drafts `fault-trace.json`, the host outages in days since the start of the logs.

use std::collections::BTreeMap;

use lightloom_fabric::trace::{Fault, FaultKind, FaultTrace, ServerId, TraceTime, public_json};

use super::cluster::ClusterDraft;
use super::{Draft, DraftFile, Guess, Sourced};
use crate::checks::{is_unnamed, watched};
use crate::logs::{HostOutage, Logs};

pub(super) const NAME: &str = "fault-trace.json";

/// Duration assumed for outages whose end was not logged.
const USUAL_OUTAGE_S: i64 = 20 * 3600;

pub(super) fn write(logs: &Logs, cluster: &ClusterDraft, draft: &mut Draft) -> Option<u32> {
    let ((from, to), watched) = watched(logs)?;
    let outages: Vec<&HostOutage> =
        logs.outages.iter().filter(|outage| watched.contains(&*outage.place.file)).collect();
    let seconds = (to - from).max(1);
    let days = u32::try_from((seconds as u64).div_ceil(86_400)).unwrap_or(36_500).clamp(1, 36_500);
    let window = TraceTime::from_days(f64::from(days));
    let open = outages.iter().filter(|outage| outage.end.is_none()).count();
    let mut servers: BTreeMap<&str, ServerId> = BTreeMap::new();
    let mut names = Vec::new();
    let mut kinds: Vec<FaultKind> = Vec::new();
    let mut faults = Vec::new();
    let mut unnamed = 0;
    for outage in &outages {
        unnamed += usize::from(is_unnamed(outage));
        let host: &str = &outage.host;
        if names.len() as u32 == cluster.nodes.value && !servers.contains_key(host) {
            continue;
        }
        let next = ServerId(names.len() as u32);
        let server = *servers.entry(host).or_insert(next);
        if server == next {
            names.push(host.to_owned());
        }
        let kind = kind_of(&mut kinds, &outage.class, &outage.description);
        let end = outage.end.unwrap_or(outage.start + USUAL_OUTAGE_S).max(outage.start);
        let [start, end] = [outage.start, end]
            .map(|seconds| TraceTime((seconds - from).max(0).unsigned_abs() * 1000).min(window));
        faults.push(Fault { start, end, server, kind });
    }
    faults.sort();
    let trace = FaultTrace {
        servers: cluster.nodes.value,
        gpus_per_server: cluster.gpus_per_node.value,
        window,
        faults,
        kinds,
        names,
        open_faults: 0,
    };
    let mut files: Vec<&str> = outages.iter().map(|outage| &*outage.place.file).collect();
    files.sort_unstable();
    files.dedup();
    let source = format!("lightloom init, from {}", files.join(", "));
    draft.files.push(DraftFile { name: NAME, text: public_json(&trace, &source) });
    let count = trace.faults.len();
    let mut known = vec![
        ("outages", Sourced::stated(count.to_string(), files.join(", "))),
        (
            "days",
            Sourced::derived(days.to_string(), "from the first to the last record of these files"),
        ),
    ];
    if open > 0 {
        let why = format!("no log contains the end of {open} of these outages");
        let end = Sourced::assumed(format!("{} h later", USUAL_OUTAGE_S / 3600), why);
        known.push(("fault_end", end));
    }
    if unnamed > 0 {
        let why = "faults without a host name";
        known.push(("node_id", Sourced::assumed(unnamed.to_string(), why)));
    }
    draft.guesses.extend(known.into_iter().map(|(key, known)| {
        let Sourced { value, confidence, why } = known;
        Guess { file: NAME, key, value, confidence, why }
    }));
    Some(days)
}

fn kind_of(kinds: &mut Vec<FaultKind>, class: &str, description: &str) -> u32 {
    let kind = FaultKind {
        level: "Hardware Failure".to_owned(),
        class: class.to_owned(),
        description: description.lines().next().unwrap_or_default().chars().take(120).collect(),
    };
    let known = kinds.iter().position(|known| *known == kind);
    let index = known.unwrap_or_else(|| {
        kinds.push(kind);
        kinds.len() - 1
    });
    index as u32
}
