// SPDX-License-Identifier: Apache-2.0
//! Derives the traffic between leaves from the jobs and the locations of their ranks.

use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::file::{MappingFile, RlFile, StepFile};
use lightloom_fabric::plan::Rank;
use lightloom_units::id::LeafId;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, gcd};

use super::PlanError;
use crate::rfabric::demand::{Demand, Seat};
use crate::rfabric::phases::Phase;
use crate::rfabric::step::{self, Mistake};
use crate::rfabric::workload::card::ModelCard;
use crate::rfabric::workload::place::Seats;
use crate::rfabric::workload::training::Training;

/// Returns the phases of all jobs' steps, named `JOB/PHASE` if several jobs have a step.
///
/// # Errors
/// Fails if a step is invalid on this fabric.
pub fn phases(fabric: &Fabric, ranks: &[Rank]) -> Result<Vec<Phase>, PlanError> {
    of_jobs(fabric, ranks, Demand::none)
}

/// Like [`phases`], but training steps also record traffic between GPUs, by index in `ranks`.
///
/// # Errors
/// Fails if a step is invalid on this fabric.
pub fn phases_between_gpus(fabric: &Fabric, ranks: &[Rank]) -> Result<Vec<Phase>, PlanError> {
    of_jobs(fabric, ranks, Demand::between_gpus)
}

fn of_jobs(
    fabric: &Fabric,
    ranks: &[Rank],
    none: fn(usize) -> Demand,
) -> Result<Vec<Phase>, PlanError> {
    let mut by_job = Vec::new();
    for (index, job) in (0_u32..).zip(&fabric.jobs) {
        let phases = of_one_job(fabric, ranks, none, index)
            .map_err(|mistakes| PlanError::Step { job: job.name.clone(), mistakes })?;
        if !phases.is_empty() {
            by_job.push((job.name.as_str(), phases));
        }
    }
    let several = by_job.len() > 1;
    let mut all = Vec::new();
    for (job, phases) in by_job {
        let named = phases.into_iter().map(|phase| match several {
            true => of_job(job, phase),
            false => phase,
        });
        all.extend(named);
    }
    Ok(all)
}

fn of_one_job(
    fabric: &Fabric,
    ranks: &[Rank],
    none: fn(usize) -> Demand,
    index: u32,
) -> Result<Vec<Phase>, Vec<Mistake>> {
    let job = &fabric.jobs[index as usize];
    match &job.step {
        Some(StepFile::Training(raw)) => {
            let card = step::model(fabric, job)?;
            Ok(card.map_or_else(Vec::new, |card| training(fabric, ranks, none, index, raw, card)))
        }
        Some(StepFile::Rl(raw)) if job.is_placed() => match rl_seats(fabric, ranks, index, raw) {
            Some(seats) => step::rl_phases(fabric, raw, seats),
            None => Ok(Vec::new()),
        },
        Some(_) => step::phases(fabric, job),
        None => Ok(Vec::new()),
    }
}

fn of_job(job: &str, phase: Phase) -> Phase {
    Phase { name: format!("{job}/{}", phase.name), job: Some(job.to_owned()), ..phase }
}

fn rl_seats(fabric: &Fabric, ranks: &[Rank], index: u32, raw: &RlFile) -> Option<[Seats; 2]> {
    let tp = fabric.jobs[index as usize].tp;
    let mut own: Vec<(u32, &Rank)> = ranks_of(ranks, index).collect();
    own.sort_by_key(|(_, rank)| (rank.dp, rank.tp));
    let seats: Vec<Seat> = own.iter().map(|(place, rank)| seat(fabric, *place, rank)).collect();
    let (trainer, pool) = seats.split_at_checked(raw.trainer_gpus as usize)?;
    let generating = generating_gpus(raw, tp, pool.len() as u64) as usize;
    (generating > 0).then(|| [Seats(trainer.to_vec()), Seats(pool[..generating].to_vec())])
}

/// Returns the ranks of a job with their indices.
fn ranks_of(ranks: &[Rank], job: u32) -> impl Iterator<Item = (u32, &Rank)> {
    (0_u32..).zip(ranks).filter(move |(_, rank)| rank.job == Some(job))
}

fn seat(fabric: &Fabric, place: u32, rank: &Rank) -> Seat {
    let island = fabric.hbd.island_of(rank.gpu, rank.group.0);
    Seat { leaf: fabric.dcn.leaf_of(rank.gpu), island, gpu: Some(place) }
}

pub(super) fn generating_gpus(raw: &RlFile, tp: u32, there: u64) -> u64 {
    let whole = [tp, raw.replica_gpus, raw.tail_replica_gpus.unwrap_or(raw.replica_gpus)];
    let unit = whole
        .into_iter()
        .map(|gpus| u64::from(gpus).max(1))
        .fold(1, |all, gpus| (all / gcd(all, gpus)).saturating_mul(gpus));
    there.min(u64::from(raw.generation_gpus)) / unit * unit
}

fn training(
    fabric: &Fabric,
    ranks: &[Rank],
    none: fn(usize) -> Demand,
    index: u32,
    raw: &MappingFile,
    card: ModelCard,
) -> Vec<Phase> {
    let tp = fabric.jobs[index as usize].tp;
    let (mut pp, mut cp, mut dp) = (0, 0, 0);
    for (_, rank) in ranks_of(ranks, index) {
        (pp, cp, dp) = (pp.max(rank.pp + 1), cp.max(rank.cp + 1), dp.max(rank.dp + 1));
    }
    let nowhere = Seat { leaf: LeafId(0), island: None, gpu: None };
    let all = [tp, cp, dp, pp].iter().map(|ranks| *ranks as usize).product();
    let mut seats = vec![nowhere; all];
    for (place, rank) in ranks_of(ranks, index) {
        let at = rank.tp + tp * (rank.cp + cp * (rank.dp + dp * rank.pp));
        seats[at as usize] = seat(fabric, place, rank);
    }
    let leaves = fabric.dcn.leaves(fabric.hbd.nodes()) as usize;
    let slack = [raw.micro_batch_slack.0, raw.gradient_slack.0];
    if all == 0 {
        return named([none(leaves), none(leaves)], slack);
    }
    let training = of_step(raw, card, Seats(seats), tp, pp, cp, dp);
    let micro_batches = training.micro_batch_traffic(none(leaves)).filling(raw.usable_share);
    let gradients = training.data_parallel_traffic(none(leaves)).filling(raw.gradient_share());
    named([micro_batches, gradients], slack)
}

fn of_step(
    raw: &MappingFile,
    card: ModelCard,
    seats: Seats,
    tp: u32,
    pp: u32,
    cp: u32,
    dp: u32,
) -> Training {
    Training {
        card,
        seats,
        tp,
        pp,
        cp,
        dp,
        ep: raw.ep,
        sharding: raw.sharding,
        micro_batches: raw.micro_batches,
        tokens: raw.tokens,
        expert_skew: 0.0,
        seed: Seed(0),
    }
}

/// Returns the traffic between the groups of a training job in both phases of its step. Each group
/// counts as a leaf, numbered with the context rank changing fastest, then the data-parallel rank.
pub(super) fn between_groups(
    fabric: &Fabric,
    job: &Job,
    pp: u32,
    cp: u32,
    dp: u32,
) -> Result<Option<[Demand; 2]>, PlanError> {
    let Some(StepFile::Training(raw)) = &job.step else { return Ok(None) };
    let card = step::model(fabric, job)
        .map_err(|mistakes| PlanError::Step { job: job.name.clone(), mistakes })?;
    let Some(card) = card else { return Ok(None) };
    let groups = pp * cp * dp;
    let seats =
        (0..groups).map(|group| Seat { leaf: LeafId(group), island: Some(group), gpu: None });
    let seats = seats.flat_map(|seat| std::iter::repeat_n(seat, job.tp as usize)).collect();
    let training = of_step(raw, card, Seats(seats), job.tp, pp, cp, dp);
    let groups = groups as usize;
    Ok(Some([
        training.micro_batch_traffic(Demand::none(groups)).filling(raw.usable_share),
        training.data_parallel_traffic(Demand::none(groups)).filling(raw.gradient_share()),
    ]))
}

fn named(demands: [Demand; 2], slack: [Picoseconds; 2]) -> Vec<Phase> {
    let phases = ["micro-batches", "gradients"].into_iter().zip(demands).zip(slack);
    phases
        .map(|((name, demand), slack)| Phase { job: None, name: name.to_owned(), demand, slack })
        .collect()
}
