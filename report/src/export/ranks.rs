// SPDX-License-Identifier: Apache-2.0
//! Exports the ranks of one job as Open MPI's rankfile and hostfile, and as a table.
//!
//! Ranks are numbered as in Megatron-LM (`tp-cp-ep-dp-pp`, with tensor ranks changing fastest) from 0 without gaps, so
//! that a job that has lost a ring still starts. The files follow the sections "Rankfiles" and "Hostfile" of mpirun(1)
//! and orte_hosts(7) in Open MPI 4.1.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use lightloom_fabric::plan::Rank;
use lightloom_units::id::NodeId;

use super::write::ANY_TEXT;
use super::{Export, ExportError, ExportFormat, ExportedFile, RingPlan};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "ranks",
    about: "Ranks of one job: Open MPI rankfile and hostfile, a table (CSV)",
    ring: Ok(export),
    fat_tree: Err("the fabric file describes leaves, not the hosts below them"),
};

fn export(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let ranks = plan.chosen_ranks();
    if ranks.is_empty() {
        return Err(ExportError::NoRing { format: FORMAT.name });
    }
    let files = [
        ("rankfile", rank_file(plan, &ranks)),
        ("hostfile", host_file(plan, &ranks)),
        ("ranks.csv", table(plan, &ranks)),
    ];
    let files = files.map(|(name, text)| ExportedFile { name: name.to_owned(), text });
    Ok(Export { files: files.into(), lost: lost(plan) })
}

fn rank_file(plan: &RingPlan<'_>, ranks: &[&Rank]) -> String {
    let mut text = String::new();
    for (number, rank) in ranks.iter().enumerate() {
        let host = plan.name(rank.gpu.node);
        writeln!(text, "rank {number}={host} slot={}", rank.gpu.gpu).expect(ANY_TEXT);
    }
    text
}

fn host_file(plan: &RingPlan<'_>, ranks: &[&Rank]) -> String {
    let mut slots: BTreeMap<NodeId, u32> = BTreeMap::new();
    for rank in ranks {
        *slots.entry(rank.gpu.node).or_default() += 1;
    }
    let mut text = String::new();
    for node in hosts(ranks) {
        writeln!(text, "{} slots={}", plan.name(node), slots[&node]).expect(ANY_TEXT);
    }
    text
}

fn hosts(ranks: &[&Rank]) -> Vec<NodeId> {
    let mut seen = BTreeSet::new();
    ranks.iter().map(|rank| rank.gpu.node).filter(|node| seen.insert(*node)).collect()
}

fn table(plan: &RingPlan<'_>, ranks: &[&Rank]) -> String {
    let mut text = "rank,host,gpu,group,tp,cp,ep,dp,pp\n".to_owned();
    for (number, rank) in ranks.iter().enumerate() {
        let Rank { gpu, group, tp, pp, dp, cp, ep, .. } = **rank;
        let host = plan.name(gpu.node);
        writeln!(text, "{number},{host},{},{group},{tp},{cp},{ep},{dp},{pp}", gpu.gpu)
            .expect(ANY_TEXT);
    }
    text
}

fn lost(plan: &RingPlan<'_>) -> Vec<String> {
    let mut lost = vec![
        "each rank's GPU, because the slots of a rank file are the processor cores to which Open MPI binds ranks; ranks.csv lists the GPUs"
            .to_owned(),
    ];
    let others = plan.plan.jobs.len().saturating_sub(1);
    if others > 0 {
        lost.push(format!(
            "{others} other jobs: the format describes one job (choose it with `--job`)"
        ));
    }
    lost
}
