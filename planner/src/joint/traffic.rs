// SPDX-License-Identifier: Apache-2.0
//! What the jobs of a fabric send between leaves, from where their ranks are.
//!
//! A training step has two phases: its micro-batches (tensor, context, expert and pipeline parallelism) and its
//! gradients. What two ranks of one ring or island exchange is counted, and is no demand; neither is what
//! stays below one leaf.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::file::{MappingFile, StepFile};
use lightloom_fabric::plan::Rank;
use lightloom_units::Picoseconds;
use lightloom_units::id::LeafId;
use lightloom_units::seed::Seed;

use super::PlanError;
use crate::rfabric::demand::{Demand, Seat};
use crate::rfabric::file::step;
use crate::rfabric::phases::Phase;
use crate::rfabric::workload::card::ModelCard;
use crate::rfabric::workload::place::Seats;
use crate::rfabric::workload::training::Training;

/// The phases of the steps of `fabric` with its ranks where `ranks` has them, job after job. Where several jobs have a
/// step their phases are called after them, `JOB/PHASE`.
///
/// # Errors
/// If a step makes no sense on this fabric.
pub fn phases<'a>(fabric: &'a Fabric, ranks: &[Rank]) -> Result<Vec<Phase>, PlanError> {
    let mut by_job = Vec::new();
    for (index, job) in (0_u32..).zip(&fabric.jobs) {
        let refuse = |mistakes| PlanError::Step { job: job.name.clone(), mistakes };
        let phases = match &job.step {
            Some(StepFile::Training(raw)) => match step::model(fabric, job).map_err(refuse)? {
                Some(card) => training(fabric, ranks, (index, job.tp), raw, card),
                None => Vec::new(),
            },
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

fn training(
    fabric: &Fabric,
    ranks: &[Rank],
    (index, tp): (u32, u32),
    raw: &MappingFile,
    card: ModelCard,
) -> Vec<Phase> {
    let own = || ranks.iter().filter(|rank| rank.job == Some(index));
    let count = |of: fn(&Rank) -> u32| own().map(of).max().map_or(0, |last| last + 1);
    let (pp, cp, dp) = (count(|rank| rank.pp), count(|rank| rank.cp), count(|rank| rank.dp));
    let nowhere = Seat { leaf: LeafId(0), island: None };
    let all = [tp, cp, dp, pp].iter().map(|ranks| *ranks as usize).product();
    let mut seats = vec![nowhere; all];
    for rank in own() {
        let island = fabric.hbd.island_of(rank.gpu, rank.group.0);
        let at = rank.tp + tp * (rank.cp + cp * (rank.dp + dp * rank.pp));
        seats[at as usize] = Seat { leaf: fabric.dcn.leaf_of(rank.gpu), island };
    }
    let leaves = fabric.dcn.leaves(fabric.hbd.nodes()) as usize;
    let slack = [raw.micro_batch_slack.0, raw.gradient_slack.0];
    if all == 0 {
        // The job has lost all its groups.
        return named([Demand::none(leaves), Demand::none(leaves)], slack);
    }
    let training = Training {
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
    };
    named([training.micro_batch_traffic(leaves), training.data_parallel_traffic(leaves)], slack)
}

fn named(demands: [Demand; 2], slack: [Picoseconds; 2]) -> Vec<Phase> {
    let phases = ["micro-batches", "gradients"].into_iter().zip(demands).zip(slack);
    phases
        .map(|((name, demand), slack)| Phase { job: None, name: name.to_owned(), demand, slack })
        .collect()
}
