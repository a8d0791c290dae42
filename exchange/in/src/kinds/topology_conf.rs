// SPDX-License-Identifier: Apache-2.0
//! Reads Slurm's `topology.conf`, `scontrol show topology`, and GPU nodes as in `slurm.conf` and `scontrol show node`.
//!
//! The format is documented in topology.conf(5) of Slurm 22.05 and 25.05. Lines contain
//! `SwitchName=` with `Switches=` or `Nodes=`, or `BlockName=` with `Nodes=`. Keys ignore case,
//! blanks may surround `=`, values may be quoted, `#` begins a comment, and `\` at the end
//! continues a line. `scontrol` also lists all nodes below a switch that connects switches.

use std::collections::{BTreeMap, BTreeSet};

use super::LogKind;
use crate::host_list::expand_hosts;
use crate::logs::{HostRecord, LogFile, Logs};
use crate::problem::{LogPlace, RECORD_SKIPPED};

pub(super) const KIND: LogKind = LogKind {
    name: "Slurm topology.conf",
    from: "/etc/slurm/topology.conf",
    is: |text| keyed_lines(text).any(|(_, keys)| keys.iter().any(|(key, _)| names_unit(key))),
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

pub(super) const NODES: LogKind = LogKind {
    name: "Slurm nodes",
    from: "scontrol show node, or /etc/slurm/slurm.conf",
    is: |text| keyed_lines(text).any(|(_, keys)| keys.iter().any(|(key, _)| key == "nodename")),
    read: |files, logs| files.iter().for_each(|file| read_nodes(file, logs)),
};

/// `NodeName=gpu[1-4] … Gres=gpu:h100:8(S:0-1)`, on one line or on several.
fn read_nodes(file: &LogFile<'_>, logs: &mut Logs) {
    let mut nodes = Vec::new();
    for (line, keys) in keyed_lines(&file.text()) {
        for (key, value) in keys {
            let place = file.line(line);
            if key == "nodename" {
                nodes = hosts(&value, &place, logs);
            } else if key == "gres" && value.starts_with("gpu:") {
                let listed = value.split(',').filter_map(|one| one.strip_prefix("gpu:"));
                let listed = listed.map(|one| one.split('(').next().unwrap_or_default());
                let listed: Vec<(&str, &str)> =
                    listed.map(|one| one.rsplit_once(':').unwrap_or(("", one))).collect();
                let gpus = listed.iter().filter_map(|(_, count)| count.parse::<u32>().ok()).sum();
                let product = listed.first().map(|(name, _)| (*name).to_owned());
                let product = product.filter(|name| !name.is_empty());
                for host in nodes.iter().filter(|host| *host != "DEFAULT") {
                    let (gpus, product, place) = (Some(gpus), product.clone(), place.clone());
                    let found =
                        HostRecord { gpus, product, place: Some(place), ..HostRecord::default() };
                    logs.host(host, found);
                }
            }
        }
    }
}

fn names_unit(key: &str) -> bool {
    key == "switchname" || key == "blockname"
}

fn keyed_lines(text: &str) -> impl Iterator<Item = (usize, Vec<(String, String)>)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (number, first) = lines.next()?;
        let mut line = said(first).to_owned();
        while line.ends_with('\\') {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line = line + " " + said(next);
        }
        Some((number + 1, keys(&line)))
    })
}

fn said(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim_end()
}

fn keys(mut line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    while let Some((before, after)) = line.split_once('=') {
        let key = before.split_whitespace().next_back().unwrap_or_default().to_ascii_lowercase();
        let after = after.trim_start();
        let (value, rest) = match after.strip_prefix('"').and_then(|text| text.split_once('"')) {
            Some(quoted) => quoted,
            None => after.split_once(char::is_whitespace).unwrap_or((after, "")),
        };
        found.push((key, value.to_owned()));
        line = rest;
    }
    found
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let text = file.text();
    let mut units = Vec::new();
    for (line, keys) in keyed_lines(&text) {
        let [nodes, switches, block, switch] = ["nodes", "switches", "blockname", "switchname"]
            .map(|wanted| {
                keys.iter().find(|(key, _)| key == wanted).map_or("", |(_, value)| value)
            });
        let place = file.line(line);
        let [nodes, switches] = [nodes, switches].map(|list| hosts(list, &place, logs));
        let (is_block, name) = match (block, switch) {
            ("", switch) => (false, switch),
            (block, _) => (true, block),
        };
        if !name.is_empty() {
            let name = name.to_owned();
            units.push(TopologyUnit { place, name, is_block, nodes, switches });
        }
    }
    place(units, logs);
}

pub(super) fn hosts(list: &str, place: &LogPlace, logs: &mut Logs) -> Vec<String> {
    expand_hosts(list).unwrap_or_else(|error| {
        logs.problem(place.clone(), error, RECORD_SKIPPED);
        Vec::new()
    })
}

pub(super) struct TopologyUnit {
    pub(super) place: LogPlace,
    pub(super) name: String,
    pub(super) is_block: bool,
    pub(super) nodes: Vec<String>,
    pub(super) switches: Vec<String>,
}

pub(super) fn place(units: Vec<TopologyUnit>, logs: &mut Logs) {
    let mut parents: BTreeMap<String, String> = BTreeMap::new();
    let switches: BTreeSet<&String> =
        units.iter().filter(|unit| !unit.is_block).map(|unit| &unit.name).collect();
    for unit in &units {
        for below in &unit.switches {
            parents.insert(below.clone(), unit.name.clone());
            if !switches.contains(below) {
                let trouble = format!("switch {below} is referenced but not defined");
                let still = "everything below it is assigned to the switch that references it";
                logs.problem(unit.place.clone(), trouble, still);
            }
        }
    }
    let (leaves, others): (Vec<_>, Vec<_>) =
        units.into_iter().partition(|unit| unit.switches.is_empty());
    let of_leaves: BTreeSet<String> =
        leaves.iter().filter(|unit| !unit.is_block).flat_map(|unit| &unit.nodes).cloned().collect();
    for unit in leaves.into_iter().chain(others) {
        let is_leaf = unit.switches.is_empty();
        let place = Some(unit.place);
        let above = if unit.is_block { Vec::new() } else { above(&unit.name, &parents) };
        for host in unit.nodes.into_iter().filter(|host| is_leaf || !of_leaves.contains(host)) {
            let (switches, place) = (above.clone(), place.clone());
            let domain = unit.is_block.then(|| unit.name.clone());
            logs.host(&host, HostRecord { switches, domain, place, ..HostRecord::default() });
        }
    }
}

fn above(switch: &str, parents: &BTreeMap<String, String>) -> Vec<String> {
    let mut switches = vec![switch.to_owned()];
    while let Some(parent) = switches.last().and_then(|switch| parents.get(switch)) {
        if switches.contains(parent) {
            break;
        }
        switches.push(parent.clone());
    }
    switches
}
