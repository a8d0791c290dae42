// SPDX-License-Identifier: Apache-2.0
//! All log kinds, which are detected by content. Each has one file and one line in [`KINDS`].

mod flight_recorder;
mod infragraph;
mod inspector;
mod kineto;
mod kubernetes_events;
mod kubernetes_nodes;
mod mlperf;
mod nccl_topology;
mod nvsentinel;
mod sacct;
mod topograph;
mod topology_conf;
mod topology_yaml;

use std::borrow::Cow;

use super::logs::{LogFile, Logs, ReadLog};
use super::problem::FILE_SKIPPED;
use super::{checks, mentions};

#[derive(Clone, Copy, Debug)]
pub struct LogKind {
    pub name: &'static str,
    pub from: &'static str,
    pub(crate) is: fn(&str) -> bool,
    pub(crate) read: fn(&[LogFile<'_>], &mut Logs),
}

pub const KINDS: &[LogKind] = &[
    topology_conf::KIND,
    topology_conf::NODES,
    topology_yaml::KIND,
    topograph::MODEL,
    topograph::GRAPH,
    infragraph::KIND,
    nccl_topology::KIND,
    kubernetes_nodes::KIND,
    sacct::KIND,
    sacct::ACME,
    kubernetes_events::KIND,
    nvsentinel::KIND,
    kineto::KIND,
    flight_recorder::KIND,
    inspector::KIND,
    mlperf::KIND,
];

/// Most kinds are identified by the first bytes, and others by the whole text.
const HEAD: usize = 1 << 16;

pub fn read(files: &[LogFile<'_>]) -> Logs {
    let mut logs = Logs::default();
    let plain: Vec<Cow<'_, [u8]>> = files.iter().map(|file| plain(file.bytes)).collect();
    let mut of_kind: Vec<Vec<LogFile<'_>>> = vec![Vec::new(); KINDS.len()];
    let mut others = Vec::new();
    for (file, bytes) in files.iter().zip(&plain) {
        let file = LogFile { name: file.name, bytes };
        if let Some(kind) = kind_of(&file) {
            logs.read.push(ReadLog { file: file.name.to_owned(), kind: KINDS[kind].name });
            of_kind[kind].push(file);
        } else {
            let known = KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
            let trouble = format!("not recognised as any of: {known}");
            logs.problem(file.whole(), trouble, FILE_SKIPPED);
            others.push(file);
        }
    }
    for (kind, files) in KINDS.iter().zip(&of_kind) {
        if !files.is_empty() {
            (kind.read)(files, &mut logs);
        }
        // Profiles are long, and all their relevant fields are read.
        if kind.name != kineto::KIND.name {
            others.extend(files);
        }
    }
    logs.mentions = mentions::of(&others);
    checks::check(&mut logs);
    logs
}

fn kind_of(file: &LogFile<'_>) -> Option<usize> {
    let head = String::from_utf8_lossy(&file.bytes[..file.bytes.len().min(HEAD)]);
    kind_in(&head).or_else(|| (file.bytes.len() > HEAD).then(|| kind_in(&file.text()))?)
}

fn kind_in(text: &str) -> Option<usize> {
    KINDS.iter().position(|kind| (kind.is)(text))
}

/// Removes a byte order mark and decodes UTF-16, which Windows PowerShell writes.
fn plain(bytes: &[u8]) -> Cow<'_, [u8]> {
    let read = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        [0xef, 0xbb, 0xbf, text @ ..] => return Cow::Borrowed(text),
        _ => return Cow::Borrowed(bytes),
    };
    let units = bytes[2..].chunks_exact(2).map(|pair| read([pair[0], pair[1]]));
    let text: String = char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')).collect();
    Cow::Owned(text.into_bytes())
}
