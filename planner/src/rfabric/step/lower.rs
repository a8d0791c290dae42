// SPDX-License-Identifier: Apache-2.0
//! Validates a parsed step and reports every mistake with its location.

use lightloom_fabric::document;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::model::{MODEL_FILES, read_model};
use lightloom_units::Bytes;
use lightloom_units::id::LeafId;
use lightloom_units::seed::Seed;

use super::super::demand::Demand;
use super::super::mistake::Mistake;
use super::super::phases::Phase;
use super::super::plan::Options;
use super::super::rings;
use super::super::workload::card::ModelCard;
use super::super::workload::place::Seats;
use super::super::workload::rl_step::{RlStep, leaf_after_leaf};
use super::super::workload::shapes;
use super::lower_workload;
use super::{AllReduceFile, DemandFile, LeavesFile, PhaseFile, RlFile, ShapeFile, TransferFile};

pub(super) fn lower_rl(
    raw: &RlFile,
    gpus_per_leaf: u32,
    leaves: usize,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Vec<Phase>, Vec<Mistake>> {
    let seats = leaf_after_leaf([raw.trainer_gpus, raw.generation_gpus], gpus_per_leaf, leaves);
    let mut phases = seated_rl(raw, seats?, leaves, read)?;
    phases.retain(|phase| phase.demand.total().0 > 0);
    Ok(phases)
}

pub(super) fn seated_rl(
    raw: &RlFile,
    [trainer, pool]: [Seats; 2],
    leaves: usize,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Vec<Phase>, Vec<Mistake>> {
    let card =
        find_model(&raw.model, read).map_err(|mistakes| Mistake::within("/rl/model", mistakes))?;
    RlStep { card, trainer, pool, raw: raw.clone() }.phases(leaves)
}

pub(super) fn find_model(
    name: &str,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<ModelCard, Vec<Mistake>> {
    if let Some(card) = ModelCard::named(name) {
        return Ok(card);
    }
    let known: Vec<&str> = MODEL_FILES.iter().map(|(known, _)| *known).collect();
    let one_of = format!(
        "use one of {}, or the path of a model file (.yaml or .json) relative to this file",
        known.join(", ")
    );
    if ![".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end)) {
        let nearest = document::closest(name, known.iter().copied());
        let fix = nearest.map_or(one_of, |nearest| format!("did you mean `{nearest}`?"));
        return Err(Mistake::of_whole(format!("model `{name}` does not exist"), fix));
    }
    let text = read(name).map_err(|error| Mistake::of_whole(error, one_of))?;
    let (model, mistakes) = read_model(name, text.as_bytes());
    let Some(model) = model else {
        let mut found = Vec::new();
        for mistake in mistakes {
            let message = mistake.to_string();
            let other = format!("run `lightloom validate --kind model {name}` for the location");
            found.extend(Mistake::of_whole(message, mistake.help.unwrap_or(other)));
        }
        return Err(found);
    };
    let card = ModelCard::from(&model);
    let is_planned = card.parameters <= PARAMETERS_MAX
        && card.layers <= LAYERS_MAX
        && card.hidden.max(card.cache_elements_per_layer) <= WIDTH_MAX;
    is_planned.then_some(card).ok_or_else(|| {
        let message = format!("{name}: the model is too large for byte counts of 64 bits");
        let fix = format!(
            "the limits are {LAYERS_MAX} layers, a width and a cache of {WIDTH_MAX} elements, and {PARAMETERS_MAX} weights"
        );
        Mistake::of_whole(message, fix)
    })
}

/// These limits keep byte counts within 64 bits.
const PARAMETERS_MAX: u64 = 100_000_000_000_000;
const LAYERS_MAX: u32 = 1_000;
const WIDTH_MAX: u32 = 131_072;

pub(super) fn lower_phases(
    raw: &[PhaseFile],
    fabric: &ReconfigurableFatTree,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Vec<Phase>, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    if raw.is_empty() {
        let none = Mistake::of_whole("the step has no phases", "add at least one");
        mistakes.extend(Mistake::within("/phases", none));
    }
    let mut phases: Vec<Phase> = Vec::new();
    for (at, phase) in raw.iter().enumerate() {
        let place = format!("/phases/{at}");
        if phases.iter().any(|other| other.name == phase.name) {
            let same = Mistake::of_whole(format!("two phases have the name `{}`", phase.name), "");
            mistakes.extend(Mistake::within(&format!("{place}/name"), same));
        }
        match lower_demand(phase.demand.clone(), phase.times, fabric, read) {
            Ok(demand) => {
                let slack = phase.slack.0;
                phases.push(Phase { job: None, name: phase.name.clone(), demand, slack });
            }
            Err(found) => mistakes.extend(Mistake::within(&format!("{place}/demand"), found)),
        }
    }
    if mistakes.is_empty() { Ok(phases) } else { Err(mistakes) }
}

/// Locates the mistakes of a file at the key that refers to it.
fn in_file(key: &str, file: &str, mut mistakes: Vec<Mistake>) -> Vec<Mistake> {
    for mistake in &mut mistakes {
        mistake.place = format!("/{key}");
        mistake.message.insert_str(0, &format!("{file}: "));
    }
    mistakes
}

fn lower_demand(
    raw: DemandFile,
    times: u32,
    fabric: &ReconfigurableFatTree,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Demand, Vec<Mistake>> {
    let leaves = fabric.leaves();
    let demand = match raw {
        DemandFile::Csv(file) => {
            let fix = "use a text file with one row of comma-separated bytes per line, relative to this file";
            let text = read(&file).map_err(|error| Mistake::of_whole(error, fix))?;
            Demand::from_csv(&text).map_err(|errors| in_file("csv", &file, errors))?
        }
        DemandFile::Json(file) => {
            let fix = "use a text file with an array of rows of bytes, relative to this file";
            let text = read(&file).map_err(|error| Mistake::of_whole(error, fix))?;
            Demand::from_json(&text).map_err(|errors| in_file("json", &file, errors))?
        }
        DemandFile::Matrix(rows) => {
            Demand::from_numbers(&rows).map_err(|mistakes| Mistake::within("/matrix", mistakes))?
        }
        DemandFile::Workload(workload) => {
            let name = workload.key();
            lower_workload::lower(&workload, fabric, read)
                .map_err(|mistakes| Mistake::within(&format!("/workload/{name}"), mistakes))?
        }
        DemandFile::Transfers(transfers) => lower_transfers(&transfers, fabric)?,
        DemandFile::AllReduce(all_reduce) => lower_all_reduce(&all_reduce, fabric)?,
        DemandFile::Shape(ShapeFile::Moe(from)) => shapes::moe(leaves, Seed(from.seed)),
        DemandFile::Shape(ShapeFile::WeightSync(from)) => {
            shapes::weight_sync(leaves, Seed(from.seed))
        }
        DemandFile::Shape(ShapeFile::Dense(from)) => shapes::dense(leaves, Seed(from.seed)),
    };
    demand.must_fit(leaves).map_err(|mistake| vec![mistake])?;
    if demand.total().0 == 0 {
        let fix = "remove it and add its slack to the next";
        return Err(Mistake::of_whole("the phase has no traffic", fix));
    }
    Ok(demand.times(times))
}

fn lower_transfers(
    raw: &[TransferFile],
    fabric: &ReconfigurableFatTree,
) -> Result<Demand, Vec<Mistake>> {
    let mut demand = Demand::none(fabric.leaves());
    for (at, TransferFile { from, to, bytes }) in raw.iter().enumerate() {
        let place = format!("/transfers/{at}");
        let from = members(*from, 1, fabric)
            .map_err(|found| Mistake::within(&format!("{place}/from"), found))?;
        let to = members(*to, 1, fabric)
            .map_err(|found| Mistake::within(&format!("{place}/to"), found))?;
        if let Some(both) = to.iter().find(|leaf| from.contains(leaf)) {
            let message = format!("{both} is both a sender and a receiver");
            let found = Mistake::of_whole(message, "use disjoint sets of senders and receivers");
            return Err(Mistake::within(&format!("{place}/to"), found));
        }
        let each = Bytes(bytes.0.0 / (from.len() * to.len()) as u64);
        for from in from {
            to.iter().for_each(|to| demand.add(from, *to, each));
        }
    }
    Ok(demand)
}

fn members(
    LeavesFile { first_leaf, leaves }: LeavesFile,
    least: u32,
    fabric: &ReconfigurableFatTree,
) -> Result<Vec<LeafId>, Vec<Mistake>> {
    let there = fabric.spec().leaves;
    if leaves < least || u64::from(first_leaf.0) + u64::from(leaves) > u64::from(there) {
        let s = if least == 1 { "leaf" } else { "leaves" };
        return Err(Mistake::of_whole(
            format!("the fabric has fewer than {leaves} leaves starting at {first_leaf}"),
            format!("use at least {least} {s} from leaf0 to leaf{}", there - 1),
        ));
    }
    Ok((first_leaf.0..first_leaf.0 + leaves).map(LeafId).collect())
}

fn lower_all_reduce(
    raw: &AllReduceFile,
    fabric: &ReconfigurableFatTree,
) -> Result<Demand, Vec<Mistake>> {
    let AllReduceFile { first_leaf, leaves, bytes } = *raw;
    let members = members(LeavesFile { first_leaf, leaves }, 2, fabric)?;
    let none = Demand::none(fabric.leaves());
    let (strides, _) = rings::plan(fabric, &none, &members, bytes.0, Options::default().effort);
    Ok(rings::demand(fabric.leaves(), &members, bytes.0, &strides))
}
