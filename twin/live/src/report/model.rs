// SPDX-License-Identifier: Apache-2.0
//! Simulates the same fault packet by packet, with the shipped daemon and with assumed delays.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::fault::InjectedFault;
use crate::record::Folder;
use crate::up::Programs;

#[derive(Clone, Debug, Serialize)]
pub struct Modelled {
    /// `lightloomd` or `assumed`, as in a scenario.
    pub control: &'static str,
    /// Time in milliseconds from the fault until the new light has settled; `None` if the model does not report it.
    pub switched_ms: Option<f64>,
    /// Time in milliseconds from the fault until the groups may continue; `None` if they never can.
    pub restored_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Outcome {
    faults: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    at_ps: u64,
    restored_ps: Option<u64>,
    #[serde(default)]
    timeline: Vec<Stage>,
}

#[derive(Deserialize)]
struct Stage {
    stage: String,
    end_ps: u64,
}

pub(super) fn both(
    folder: &Folder,
    name: &str,
    fault: &InjectedFault,
    programs: &Programs,
) -> Result<Vec<Modelled>, Error> {
    let words = [("lightloomd", "control: lightloomd\n"), ("assumed", "")];
    words
        .into_iter()
        .map(|(control, key)| one(folder, name, fault, programs, control, key))
        .collect()
}

fn one(
    folder: &Folder,
    name: &str,
    fault: &InjectedFault,
    programs: &Programs,
    control: &'static str,
    key: &str,
) -> Result<Modelled, Error> {
    let file = folder.file("log").join(name).join(format!("{control}.yaml"));
    let fabric = serde_json::to_string(&folder.file("fabric.yaml").to_string_lossy());
    let scenario = format!(
        "kind: scenario\nversion: 2\nname: twin\non: {{fabric: {}}}\nseed: 1\n{key}\
         collectives:\n  - all_reduce: {{name: ring, bytes: 4MiB, repeat: 4}}\n\
         faults:\n  - {{part: {}, at: 50us}}\n",
        fabric.unwrap_or_default(),
        fault.part
    );
    fs::write(&file, scenario).map_err(Error::cannot(format!("write {}", file.display())))?;
    let mut command = Command::new(&programs.lightloom);
    command.arg("emulate").arg(&file).args(["--format", "json"]);
    let output = command.output().map_err(Error::cannot("run lightloom emulate"))?;
    let outcome: Outcome = serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Error::Refused(format!("`lightloom emulate {}`: {said}", file.display()))
    })?;
    let Some(run) = outcome.faults.first() else {
        return Err(Error::Refused(format!("{}: no fault in the result", file.display())));
    };
    let switched = run.timeline.iter().find(|stage| stage.stage == "switched");
    Ok(Modelled {
        control,
        switched_ms: switched.map(|stage| stage.end_ps.saturating_sub(run.at_ps) as f64 / 1e9),
        restored_ms: run.restored_ps.map(|at| at.saturating_sub(run.at_ps) as f64 / 1e9),
    })
}
