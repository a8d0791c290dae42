// SPDX-License-Identifier: Apache-2.0
//! Writes steps as traces of other tools.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use lightloom_training::graph::TaskGraph;
use lightloom_training::machine::Machine;
use lightloom_training::{chakra, chrome};
use lightloom_units::SimTime;

use lightloom::{files, output};

pub(crate) fn write_chakra(
    folder: &Path,
    graph: &TaskGraph,
    machine: &Machine,
) -> anyhow::Result<()> {
    let streams = chakra::export(graph, machine);
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    for (rank, stream) in streams.iter().enumerate() {
        files::write(&folder.join(format!("step.{rank}.et")), stream)?;
    }
    let groups: BTreeMap<String, Vec<u32>> = chakra::groups(graph, machine)
        .into_iter()
        .enumerate()
        .map(|(place, ranks)| (place.to_string(), ranks))
        .collect();
    let text = serde_json::to_string(&groups)?;
    files::write(&folder.join("comm_group.json"), text.as_bytes())?;
    output::note(&format!("{} traces written to {}", streams.len(), folder.display()));
    Ok(())
}

pub(crate) fn write_chrome(
    path: &Path,
    graph: &TaskGraph,
    machine: &Machine,
    spans: &[(SimTime, SimTime)],
) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(&chrome::trace(graph, machine, spans))?;
    text.push('\n');
    files::write(path, text.as_bytes())
}
