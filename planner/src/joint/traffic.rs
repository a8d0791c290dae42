// SPDX-License-Identifier: Apache-2.0
//! Derives the traffic between leaves from the jobs and the locations of their ranks.

use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::file::{MappingFile, RlFile, StepFile};
use lightloom_fabric::plan::Rank;
use lightloom_units::Picoseconds;
use lightloom_units::id::LeafId;
use lightloom_units::seed::Seed;

use super::PlanError;
use crate::rfabric::demand::{Demand, Seat};
use crate::rfabric::phases::Phase;
use crate::rfabric::step;
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

fn of_jobs<'a>(
    fabric: &'a Fabric,
    ranks: &[Rank],
    none: fn(usize) -> Demand,
) -> Result<Vec<Phase>, PlanError> {
    let mut by_job = Vec::new();
    for (index, job) in (0_u32..).zip(&fabric.jobs) {
        let refuse = |mistakes| PlanError::Step { job: job.name.clone(), mistakes };
        let phases = match &job.step {
            Some(StepFile::Training(raw)) => match step::model(fabric, job).map_err(refuse)? {
                Some(card) => training((fabric, none), ranks, (index, job.tp), raw, card),
                None => Vec::new(),
            },
            Some(StepFile::Rl(raw)) if job.is_placed() => {
                let seats = rl_seats(fabric, ranks, (index, job.tp), raw);
                match seats {
                    Some(seats) => step::rl_phases(fabric, raw, seats).map_err(refuse)?,
                    None => Vec::new(),
                }
            }
            Some(_) => step::phases(fabric, job).map_err(refuse)?,
            None => Vec::new(),
        };
        if !phases.is_empty() {
            by_job.push((job.name.as_str(), phases));
        }
    }
    let several = by_job.len() > 1;
    let own = |(job, phases): (&'a str, Vec<Phase>)| {
        phases.into_iter().map(move |phase| if several { of_job(job, phase) } else { phase })
    };
    Ok(by_job.into_iter().flat_map(own).collect())
}

fn of_job(job: &str, phase: Phase) -> Phase {
    Phase { name: format!("{job}/{}", phase.name), job: Some(job.to_owned()), ..phase }
}

fn rl_seats(
    fabric: &Fabric,
    ranks: &[Rank],
    (index, tp): (u32, u32),
    raw: &RlFile,
) -> Option<[Seats; 2]> {
    let own = (0_u32..).zip(ranks).filter(|(_, rank)| rank.job == Some(index));
    let mut own: Vec<(u32, &Rank)> = own.collect();
    own.sort_by_key(|(_, rank)| (rank.dp, rank.tp));
    let seat = |(place, rank): &(u32, &Rank)| Seat {
        leaf: fabric.dcn.leaf_of(rank.gpu),
        island: fabric.hbd.island_of(rank.gpu, rank.group.0),
        gpu: Some(*place),
    };
    let seats: Vec<Seat> = own.iter().map(seat).collect();
    let (trainer, pool) = seats.split_at_checked(raw.trainer_gpus as usize)?;
    let generating = generating_gpus(raw, tp, pool.len() as u64) as usize;
    (generating > 0).then(|| [Seats(trainer.to_vec()), Seats(pool[..generating].to_vec())])
}

pub(super) fn generating_gpus(raw: &RlFile, tp: u32, there: u64) -> u64 {
    let whole = [tp, raw.replica_gpus, raw.tail_replica_gpus.unwrap_or(raw.replica_gpus)];
    let unit = whole.into_iter().map(u64::from).fold(1, least_common_multiple);
    there.min(u64::from(raw.generation_gpus)) / unit * unit
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a.max(1), b.max(1));
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a.max(1) / divisor).saturating_mul(b.max(1))
}

fn training(
    (fabric, none): (&Fabric, fn(usize) -> Demand),
    ranks: &[Rank],
    (index, tp): (u32, u32),
    raw: &MappingFile,
    card: ModelCard,
) -> Vec<Phase> {
    let own = || (0_u32..).zip(ranks).filter(|(_, rank)| rank.job == Some(index));
    let count =
        |of: fn(&Rank) -> u32| own().map(|(_, rank)| of(rank)).max().map_or(0, |last| last + 1);
    let (pp, cp, dp) = (count(|rank| rank.pp), count(|rank| rank.cp), count(|rank| rank.dp));
    let nowhere = Seat { leaf: LeafId(0), island: None, gpu: None };
    let all = [tp, cp, dp, pp].iter().map(|ranks| *ranks as usize).product();
    let mut seats = vec![nowhere; all];
    for (place, rank) in own() {
        let island = fabric.hbd.island_of(rank.gpu, rank.group.0);
        let at = rank.tp + tp * (rank.cp + cp * (rank.dp + dp * rank.pp));
        seats[at as usize] = Seat { leaf: fabric.dcn.leaf_of(rank.gpu), island, gpu: Some(place) };
    }
    let leaves = fabric.dcn.leaves(fabric.hbd.nodes()) as usize;
    let slack = [raw.micro_batch_slack.0, raw.gradient_slack.0];
    if all == 0 {
        return named([none(leaves), none(leaves)], slack);
    }
    let training = of_step(raw, card, (tp, pp, cp, dp), seats);
    let micro_batches = training.micro_batch_traffic(none(leaves)).filling(raw.usable_share);
    let gradients = training.data_parallel_traffic(none(leaves)).filling(raw.gradient_share());
    named([micro_batches, gradients], slack)
}

fn of_step(
    raw: &MappingFile,
    card: ModelCard,
    (tp, pp, cp, dp): (u32, u32, u32, u32),
    seats: Vec<Seat>,
) -> Training {
    Training {
        card,
        seats: Seats(seats),
        tp,
        pp,
        cp,
        dp,
        ep: raw.ep,
        sharding: raw.sharding.into(),
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
    (pp, cp, dp): (u32, u32, u32),
) -> Result<Option<[Demand; 2]>, PlanError> {
    let Some(StepFile::Training(raw)) = &job.step else { return Ok(None) };
    let refuse = |mistakes| PlanError::Step { job: job.name.clone(), mistakes };
    let Some(card) = step::model(fabric, job).map_err(refuse)? else { return Ok(None) };
    let groups = (pp * cp * dp) as usize;
    let seat = |group| Seat {
        leaf: LeafId::from_index(group),
        island: u32::try_from(group).ok(),
        gpu: None,
    };
    let seats = (0..groups).flat_map(|group| std::iter::repeat_n(seat(group), job.tp as usize));
    let training = of_step(raw, card, (job.tp, pp, cp, dp), seats.collect());
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
