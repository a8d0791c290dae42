// SPDX-License-Identifier: Apache-2.0
//! Reads the traffic of each phase of a job's step, if the step is given per leaf.
//!
//! docs/rfabric.md describes the format.

mod lower;
mod lower_workload;

use lightloom_fabric::document::{Check, Diagnostic, codes};
use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::file::*;
use lightloom_units::id::LeafId;

pub use super::mistake::Mistake;
use crate::rfabric::phases::Phase;
use crate::rfabric::workload::card::ModelCard;
use crate::rfabric::workload::place::Seats;
use lower::{find_model, lower_phases, lower_rl, seated_rl};

/// Returns the phases of a job whose step is given per leaf. Empty for other jobs.
pub fn phases(fabric: &Fabric, job: &Job) -> Result<Vec<Phase>, Vec<Mistake>> {
    let mut read = |name: &str| fabric.neighbour(name);
    let Some(step) = &job.step else { return Ok(Vec::new()) };
    if let StepFile::Search(_) = step {
        let message = "the step has no mapping, and this command does not search for one";
        let fix = "run `lightloom plan` and copy the step that it prints";
        return Err(Mistake::within("/search", Mistake::of_whole(message, fix)));
    }
    if let (StepFile::Rl(rl), true) = (step, job.is_placed()) {
        // The job's GPUs are not placed yet, so only divisibility can be checked.
        let seats = [rl.trainer_gpus, rl.generation_gpus]
            .map(|gpus| Seats(vec![LeafId(0).into(); gpus as usize]));
        return seated_rl(rl, seats, 1, &mut read).map(|_| Vec::new());
    }
    let Some(network) = fabric.dcn.circuits() else {
        let message = "a step given per leaf requires optical switches between leaves";
        let fix = "use `dcn: {reconfigurable_fat_tree: …}` or `step: {training: …}`";
        return match step.names_leaves() {
            true => Err(Mistake::of_whole(message, fix)),
            false => Ok(Vec::new()),
        };
    };
    match step {
        StepFile::Training(_) | StepFile::Search(_) => Ok(Vec::new()),
        StepFile::Rl(rl) => match beside(fabric, job) {
            Some(other) => {
                let message = format!(
                    "an RL step uses the first leaves, but job `{}` has GPUs there",
                    other.name
                );
                let fix = "plan it in a separate fabric file, or describe its traffic as `phases`";
                Err(Mistake::within("/rl", Mistake::of_whole(message, fix)))
            }
            None => lower_rl(rl, network.spec().gpus_per_leaf, network.leaves(), &mut read),
        },
        StepFile::Phases(phases) => lower_phases(phases, network, &mut read),
    }
}

/// Returns the phases of a reinforcement-learning step on these training and generating GPUs.
pub fn rl_phases(
    fabric: &Fabric,
    rl: &RlFile,
    seats: [Seats; 2],
) -> Result<Vec<Phase>, Vec<Mistake>> {
    let leaves = fabric.dcn.leaves(fabric.hbd.nodes()) as usize;
    seated_rl(rl, seats, leaves, &mut |name: &str| fabric.neighbour(name))
}

fn beside<'a>(fabric: &'a Fabric, job: &Job) -> Option<&'a Job> {
    let mut others = fabric.jobs.iter().filter(|other| other.name != job.name);
    others.find(|other| other.is_placed() || matches!(other.step, Some(StepFile::Rl(_))))
}

/// Returns the model that a job trains, if any.
pub fn model(fabric: &Fabric, job: &Job) -> Result<Option<ModelCard>, Vec<Mistake>> {
    let Some(StepFile::Training(training)) = &job.step else { return Ok(None) };
    let card = named_model(fabric, &training.model);
    card.map(Some).map_err(|mistakes| Mistake::within("/training/model", mistakes))
}

/// Returns the named model, either shipped or in the folder of the fabric file.
pub fn named_model(fabric: &Fabric, name: &str) -> Result<ModelCard, Vec<Mistake>> {
    find_model(name, &mut |name| fabric.neighbour(name))
}

/// Parses a fabric file. Returns the fabric, or all mistakes in the file and its steps. `file` is
/// the name in messages; `read` returns the text of referenced matrix and model files.
pub fn load(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> (Option<Fabric>, Vec<Diagnostic>) {
    load_with(file, bytes, read, |_, _| ())
}

/// Like [`load`], but first calls `search` to find mappings that the file leaves open.
pub fn load_with(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    search: impl FnOnce(&mut Fabric, &mut Check<'_>),
) -> (Option<Fabric>, Vec<Diagnostic>) {
    lightloom_fabric::file::load_with(file, bytes, read, |fabric, found| {
        search(fabric, found);
        report(fabric, found);
    })
}

fn report(fabric: &Fabric, check: &mut Check<'_>) {
    for (at, job) in fabric.jobs.iter().enumerate() {
        let path = format!("/jobs/{at}/step");
        let found = phases(fabric, job).and_then(|_| model(fabric, job));
        for Mistake { place, message, fix } in found.err().into_iter().flatten() {
            let is_model = place.ends_with("/model");
            let code = if is_model { codes::UNKNOWN_WORD } else { codes::BAD_VALUE };
            let report = check.error(code, &format!("{path}{place}"), message);
            if !fix.is_empty() {
                report.help(fix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joint;
    use lightloom_units::Picoseconds;

    fn phases_of(fabric: &Fabric) -> Vec<Phase> {
        joint::phases(fabric, &[]).expect("a sound step")
    }

    const SOUND: &str = "
kind: fabric
version: 2
name: example
dcn:
  reconfigurable_fat_tree:
    leaves: 16
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 3.2Tbps, oversubscription: 8}
    banks:
      - {name: core, switches: 4, ports_per_switch: 32, ports_per_leaf: 2, insertion_loss_db: 1.5}
    timing: {switching: 10ms}
jobs:
  - name: example
    step:
      phases:
        - {name: train, demand: {shape: {moe: {}}}}
        - {name: sync, slack: 200ms, demand: {csv: sync.csv}}
";

    fn matrix(leaves: usize) -> String {
        let row = |from| {
            (0..leaves).map(|to| if from == to { "0" } else { "5" }).collect::<Vec<_>>().join(",")
        };
        (0..leaves).map(row).collect::<Vec<_>>().join("\n")
    }

    fn mistakes(text: &str, matrix: &str) -> String {
        let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Ok(matrix.to_owned()));
        assert!(fabric.is_none());
        let lines = mistakes
            .iter()
            .map(|mistake| format!("{mistake} ({})", mistake.help.as_deref().unwrap_or_default()));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn reads_a_valid_file_with_its_matrices() {
        let (fabric, mistakes) = load("f.yaml", SOUND.as_bytes(), &mut |name| {
            assert_eq!(name, "sync.csv");
            Ok(matrix(16))
        });
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let phases = phases_of(&fabric.unwrap());
        assert_eq!(phases[1].demand.total().0, 16 * 15 * 5);
        assert_eq!(phases[1].slack, Picoseconds::from_millis(200));
    }

    #[test]
    fn all_reduce_is_spread_over_rings_of_coprime_strides() {
        let text = SOUND
            .replace("{csv: sync.csv}", "{all_reduce: {first_leaf: leaf1, leaves: 7, bytes: 7GB}}");
        let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Err(String::new()));
        assert!(mistakes.is_empty(), "{mistakes:?}");
        let demand = &phases_of(&fabric.unwrap())[1].demand;
        // Each of the seven ranks sends 2·6/7 of 7 GB, whatever the number of rings.
        assert!(demand.total().0.abs_diff(7 * 12_000_000_000) < 1_000, "{}", demand.total());
        assert!(
            demand.flows().all(|(from, to, _)| (1..8).contains(&from.0) && (1..8).contains(&to.0))
        );
    }

    #[test]
    fn rejects_an_impossible_step_at_its_field() {
        let rl = "jobs:\n  - name: example\n    step:\n      rl: {model: gpt-9, trainer_gpus: 64, generation_gpus: 64, tp: 8, pp: 2, \
                  samples: 64, tokens_per_sample: 1000, replica_gpus: 16}\n";
        let text = SOUND.split("jobs:").next().unwrap().to_owned() + rl;
        assert!(mistakes(&text, "").contains("model `gpt-9` does not exist"));
        let text = text.replace("gpt-9", "qwen2.5-72b").replace("tp: 8", "tp: 7");
        let wrong = mistakes(&text, "");
        assert!(wrong.contains("f.yaml:17:") && wrong.contains("multiple of 14"), "{wrong}");
    }
}
