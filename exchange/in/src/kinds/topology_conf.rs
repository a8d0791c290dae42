// SPDX-License-Identifier: Apache-2.0
//! Slurm's `topology.conf`: switches and their children, or blocks of hosts.
//!
//! Source: topology.conf(5) of Slurm 22.05 and 25.05: a line `SwitchName=` with `Switches=` or
//! `Nodes=`, or a line `BlockName=` with `Nodes=`; keys in any case, `#` begins a comment, `\` at
//! the end of a line continues it.

use std::collections::{BTreeMap, BTreeSet};

use super::LogKind;
use crate::host_list::expand;
use crate::logs::{HostRecord, LogFile, Logs};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "Slurm topology.conf",
    from: "/etc/slurm/topology.conf",
    is: |file| {
        keyed_lines(&file.head()).any(|(_, keys)| keys.iter().any(|(key, _)| names_unit(key)))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

fn names_unit(key: &str) -> bool {
    key == "switchname" || key == "blockname"
}

/// Returns logical lines with the number of their first line and their lower-case keys.
fn keyed_lines(text: &str) -> impl Iterator<Item = (usize, Vec<(String, &str)>)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (number, first) = lines.next()?;
        let mut pieces = vec![first];
        while pieces.last().is_some_and(|piece| piece.trim_end().ends_with('\\')) {
            let Some((_, next)) = lines.next() else { break };
            pieces.push(next);
        }
        let words = pieces.into_iter().flat_map(|piece| {
            let said = piece.split('#').next().unwrap_or_default();
            said.trim_end().trim_end_matches('\\').split_whitespace()
        });
        let keys = words.filter_map(|word| word.split_once('='));
        Some((number + 1, keys.map(|(key, value)| (key.to_ascii_lowercase(), value)).collect()))
    })
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let text = String::from_utf8_lossy(file.bytes);
    let mut parents: BTreeMap<String, String> = BTreeMap::new();
    let mut defined: BTreeSet<String> = BTreeSet::new();
    let mut named: Vec<(usize, String)> = Vec::new();
    let mut leaves: Vec<(usize, String, Vec<String>)> = Vec::new();
    for (line, keys) in keyed_lines(&text) {
        let value =
            |wanted: &str| keys.iter().find(|(key, _)| key == wanted).map(|(_, value)| *value);
        let mut list = |wanted: &str| {
            expand(value(wanted).unwrap_or_default()).unwrap_or_else(|error| {
                logs.problem(file.line(line), LogTrouble::Malformed(error));
                Vec::new()
            })
        };
        let (nodes, switches) = (list("nodes"), list("switches"));
        if let Some(block) = value("blockname") {
            for host in nodes {
                let place = Some(file.line(line));
                let domain = Some(block.to_owned());
                logs.host(&host, HostRecord { domain, place, ..HostRecord::default() });
            }
        } else if let Some(switch) = value("switchname") {
            defined.insert(switch.to_owned());
            for below in switches {
                parents.insert(below.clone(), switch.to_owned());
                named.push((line, below));
            }
            leaves.push((line, switch.to_owned(), nodes));
        }
    }
    for (line, switch) in named.into_iter().filter(|(_, switch)| !defined.contains(switch)) {
        logs.problem(file.line(line), LogTrouble::NoSwitch(switch));
    }
    for (line, switch, nodes) in leaves {
        let switches = above(switch, &parents);
        for host in nodes {
            let place = Some(file.line(line));
            let switches = switches.clone();
            logs.host(&host, HostRecord { switches, place, ..HostRecord::default() });
        }
    }
}

/// Returns a switch and its ancestors, stopping at a cycle.
fn above(switch: String, parents: &BTreeMap<String, String>) -> Vec<String> {
    let mut switches = vec![switch];
    while let Some(parent) = switches.last().and_then(|switch| parents.get(switch)) {
        if switches.contains(parent) {
            break;
        }
        switches.push(parent.clone());
    }
    switches
}
