// SPDX-License-Identifier: Apache-2.0
//! All log kinds, detected by content: one file and one line in [`KINDS`] each.

mod acme;
mod flight_recorder;
mod infragraph;
mod inspector;
mod kineto;
mod kubernetes_events;
mod kubernetes_nodes;
mod nccl_topology;
mod nvsentinel;
mod sacct;
mod topology_conf;

use super::checks;
use super::logs::{LogFile, Logs, ReadLog};
use super::problem::LogTrouble;

#[derive(Clone, Copy, Debug)]
pub struct LogKind {
    pub name: &'static str,
    /// How to obtain such a log.
    pub from: &'static str,
    /// Detects a file of this kind.
    pub(crate) is: fn(&LogFile<'_>) -> bool,
    /// Records the content of all files of this kind.
    pub(crate) read: fn(&[LogFile<'_>], &mut Logs),
}

pub const KINDS: &[LogKind] = &[
    topology_conf::KIND,
    infragraph::KIND,
    nccl_topology::KIND,
    kubernetes_nodes::KIND,
    sacct::KIND,
    acme::KIND,
    kubernetes_events::KIND,
    nvsentinel::KIND,
    kineto::KIND,
    flight_recorder::KIND,
    inspector::KIND,
];

/// Reads an operator's files, each according to its content, and checks them against each other.
#[must_use]
pub fn read(files: &[LogFile<'_>]) -> Logs {
    let mut logs = Logs::default();
    let mut of_kind: Vec<Vec<LogFile<'_>>> = vec![Vec::new(); KINDS.len()];
    for file in files {
        if file.bytes.starts_with(&[0x1f, 0x8b]) {
            logs.problem(file.whole(), LogTrouble::Compressed);
        } else if let Some(kind) = KINDS.iter().position(|kind| (kind.is)(file)) {
            logs.read.push(ReadLog { file: file.name.to_owned(), kind: KINDS[kind].name });
            of_kind[kind].push(*file);
        } else {
            let known = KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
            logs.problem(file.whole(), LogTrouble::Unrecognised { known });
        }
    }
    for (kind, files) in KINDS.iter().zip(&of_kind) {
        if !files.is_empty() {
            (kind.read)(files, &mut logs);
        }
    }
    checks::check(&mut logs);
    logs
}
