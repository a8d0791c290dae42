// SPDX-License-Identifier: Apache-2.0
//! Every kind of log, recognised by its content: a file each, and a line in [`KINDS`].

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

/// A kind of log.
#[derive(Clone, Copy, Debug)]
pub struct LogKind {
    /// What it is called.
    pub name: &'static str,
    /// How an operator gets one.
    pub from: &'static str,
    /// Whether a file is one.
    pub(crate) is: fn(&LogFile<'_>) -> bool,
    /// Notes what all files of the kind say.
    pub(crate) read: fn(&[LogFile<'_>], &mut Logs),
}

/// Every kind, the most particular first.
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

/// Reads the files of an operator, each as what its content says it is, and holds them against each other.
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
