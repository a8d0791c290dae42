// SPDX-License-Identifier: Apache-2.0
//! What a step that names leaves sends, phase by phase.

use lightloom_fabric::document::{Check, Diagnostic, codes};
use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::file::{RlFile, StepFile};
use lightloom_units::id::LeafId;

pub use super::lower::Mistake;
use super::lower::{find_model, lower_phases, lower_rl, seated_rl};
use crate::rfabric::phases::Phase;
use crate::rfabric::workload::card::ModelCard;
use crate::rfabric::workload::place::Seats;

/// The phases of a job whose step names leaves; none for a job without such a step.
///
/// # Errors
/// Everything that is wrong with the step.
pub fn phases(fabric: &Fabric, job: &Job) -> Result<Vec<Phase>, Vec<Mistake>> {
    let mut read = |name: &str| fabric.neighbour(name);
    let Some(step) = &job.step else { return Ok(Vec::new()) };
    if let StepFile::Search(_) = step {
        let place = "/search".to_owned();
        let message =
            "its mapping has to be found first, which this program does not do".to_owned();
        let fix = "write the step that `lightloom plan` found: it prints it".to_owned();
        return Err(vec![Mistake { place, message, fix }]);
    }
    if let (StepFile::Rl(rl), true) = (step, job.is_placed()) {
        // Where its GPUs are is not known yet; whether they divide is.
        let nowhere = |gpus: u32| Seats(vec![LeafId(0).into(); gpus as usize]);
        let seats = [nowhere(rl.trainer_gpus), nowhere(rl.generation_gpus)];
        return seated_rl(rl, seats, 1, &mut read).map(|_| Vec::new());
    }
    let Some(network) = fabric.dcn.circuits() else {
        let message = "a step that names leaves needs optical switches between them".to_owned();
        let fix = "write `dcn: {reconfigurable_fat_tree: …}`, or `step: {training: …}`".to_owned();
        return match step.names_leaves() {
            true => Err(vec![Mistake { place: String::new(), message, fix }]),
            false => Ok(Vec::new()),
        };
    };
    match step {
        StepFile::Training(_) | StepFile::Search(_) => Ok(Vec::new()),
        StepFile::Rl(rl) => match beside(fabric, job) {
            Some(other) => Err(vec![beside_gpus(other)]),
            None => lower_rl(rl, network.spec().gpus_per_leaf, network.leaves(), &mut read),
        },
        StepFile::Phases(phases) => lower_phases(phases, network, &mut read),
    }
}

/// The phases of a step of reinforcement learning whose GPUs sit there: those that train, those that generate.
///
/// # Errors
/// Everything that is wrong with the step.
pub fn rl_phases(
    fabric: &Fabric,
    rl: &RlFile,
    seats: [Seats; 2],
) -> Result<Vec<Phase>, Vec<Mistake>> {
    let leaves = fabric.dcn.leaves(fabric.hbd.nodes()) as usize;
    seated_rl(rl, seats, leaves, &mut |name: &str| fabric.neighbour(name))
}

/// That an RL step and another job would have the same GPUs.
fn beside_gpus(other: &Job) -> Mistake {
    let message = format!(
        "an RL step fills the first leaves with its GPUs, and job `{}` is given GPUs there, too",
        other.name
    );
    let fix = "plan it on a fabric file of its own, or write what it sends as `phases`".to_owned();
    Mistake { place: "/rl".to_owned(), message, fix }
}

/// Another job that needs GPUs of its own.
fn beside<'a>(fabric: &'a Fabric, job: &Job) -> Option<&'a Job> {
    let needs = |other: &&Job| other.is_placed() || matches!(other.step, Some(StepFile::Rl(_)));
    fabric.jobs.iter().filter(|other| other.name != job.name).find(needs)
}

/// The model that a job trains. `None` if it trains none.
///
/// # Errors
/// Why there is no such model.
pub fn model(fabric: &Fabric, job: &Job) -> Result<Option<ModelCard>, Vec<Mistake>> {
    let Some(StepFile::Training(training)) = &job.step else { return Ok(None) };
    find_model(&training.model, &mut |name| fabric.neighbour(name)).map(Some).map_err(|mistakes| {
        let place = "/training/model".to_owned();
        mistakes.into_iter().map(|mistake| Mistake { place: place.clone(), ..mistake }).collect()
    })
}

/// The model of this name, shipped or beside the fabric file.
///
/// # Errors
/// Why there is no such model.
pub fn named_model(fabric: &Fabric, name: &str) -> Result<ModelCard, Vec<Mistake>> {
    find_model(name, &mut |name| fabric.neighbour(name))
}

/// Reads a fabric file: the fabric, or every mistake in it and in its steps. `file` is what the user calls it;
/// `read` gives the text of the matrix and model files it names.
pub fn load(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> (Option<Fabric>, Vec<Diagnostic>) {
    load_with(file, bytes, read, |_, _| ())
}

/// As [`load`], once `search` has found the mappings that the file leaves to be searched for.
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

/// As [`load`], of version 1 too: for converting a file, and for a daemon whose plan in force names it.
pub fn load_any_version(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> (Option<Fabric>, Vec<Diagnostic>) {
    lightloom_fabric::file::load_any_version(file, bytes, read, |fabric, found| {
        report(fabric, found)
    })
}

/// Reports everything that is wrong with the steps of a fabric file, and keeps nothing.
fn report(fabric: &Fabric, found: &mut Check<'_>) {
    let _ = check(fabric, found);
}

/// Reports everything that is wrong with the steps of a fabric file. Returns the phases of its steps that
/// name leaves.
pub fn check(fabric: &Fabric, check: &mut Check<'_>) -> Option<Vec<Phase>> {
    let mut all = Some(Vec::new());
    for (at, job) in fabric.jobs.iter().enumerate() {
        let path = format!("/jobs/{at}/step");
        let path = if check.is_written(&path) { path } else { "/step".to_owned() };
        let found = phases(fabric, job).and_then(|phases| model(fabric, job).map(|_| phases));
        match found {
            Ok(phases) => all = all.map(|all: Vec<Phase>| all.into_iter().chain(phases).collect()),
            Err(mistakes) => {
                all = None;
                for Mistake { place, message, fix } in mistakes {
                    let code = if place.ends_with("/model") {
                        codes::UNKNOWN_WORD
                    } else {
                        codes::BAD_VALUE
                    };
                    let report = check.error(code, &format!("{path}{place}"), message);
                    if !fix.is_empty() {
                        report.help(fix);
                    }
                }
            }
        }
    }
    all
}
