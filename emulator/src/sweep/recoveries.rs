// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_fabric::fault::Part;
use lightloom_units::Picoseconds;
use lightloom_units::seed::Seed;
use serde::{Deserialize, Serialize};

use super::SeedRun;
use crate::nearest_rank::percentile;
use crate::outcome::{FaultResult, NotRestored};

/// Times from a fault until all affected work has resumed, by nearest rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recoveries {
    /// The failed part, the effect, and any part that had already failed.
    pub kind: String,
    /// Number of faults of this kind.
    pub faults: u64,
    /// Number of faults with a recovery. Other faults had no effect or no recovery.
    pub recovered: u64,
    /// Number of faults after which groups or flows are still waiting.
    pub never: u64,
    /// Number of such faults by reason.
    #[serde(default)]
    pub never_because: BTreeMap<NotRestored, u64>,
    /// Median.
    #[serde(rename = "p50_ps")]
    pub p50: Option<Picoseconds>,
    /// 90th percentile.
    #[serde(rename = "p90_ps")]
    pub p90: Option<Picoseconds>,
    /// 99th percentile.
    #[serde(rename = "p99_ps")]
    pub p99: Option<Picoseconds>,
    /// Maximum.
    #[serde(rename = "max_ps")]
    pub max: Option<Picoseconds>,
    /// Seed with the longest recovery, or with one that never completed.
    pub worst_seed: Option<Seed>,
}

fn part(name: &str) -> &'static str {
    match name.parse::<Part>() {
        _ if name == "control" => "daemon",
        Ok(Part::Node(_)) => "node",
        Ok(Part::Bundle(_)) => "bundle",
        Ok(Part::Fibre(_)) => "fibre",
        Ok(Part::Ocs(_)) => "optical switch",
        Ok(Part::OcsPort(_)) => "port of an optical switch",
        Ok(Part::Uplink(_)) => "uplink",
        Err(_) => "part of the packet network",
    }
}

fn kind(fault: &FaultResult, others: &[FaultResult]) -> Option<String> {
    let at = fault.at?;
    let what = part(fault.parts.first()?);
    let broken = others.iter().find(|other| {
        let over = other.repaired.into_iter().chain(other.restored).min();
        !std::ptr::eq(*other, fault)
            && other.at.is_some_and(|began| began <= at)
            && over.is_none_or(|over| over > at)
    });
    // Keep the first word, so that `{late: 20ms}` becomes `late`.
    let effect = fault.effect.split([':', ' ', '{']).find(|word| !word.is_empty()).unwrap_or("");
    let beside = broken.and_then(|other| other.parts.first());
    Some(match beside {
        Some(other) => format!("{what} {effect}, {} broken", part(other)),
        None => format!("{what} {effect}"),
    })
}

struct Ended {
    took: Option<u64>,
    waits: bool,
    why: Option<NotRestored>,
    seed: Seed,
}

pub(super) fn of(runs: &[SeedRun]) -> Vec<Recoveries> {
    let mut kinds: BTreeMap<String, Vec<Ended>> = BTreeMap::new();
    for run in runs {
        for fault in &run.faults {
            let Some(kind) = kind(fault, &run.faults) else { continue };
            let took = fault.restored.zip(fault.at).map(|(restored, at)| restored.since(at).0);
            let waits = took.is_none() && fault.delay.is_none();
            let (why, seed) = (fault.not_restored, run.seed);
            kinds.entry(kind).or_default().push(Ended { took, waits, why, seed });
        }
    }
    kinds.into_iter().map(|(kind, faults)| recoveries(kind, &faults)).collect()
}

fn recoveries(kind: String, faults: &[Ended]) -> Recoveries {
    let mut took: Vec<(u64, Seed)> =
        faults.iter().filter_map(|fault| Some((fault.took?, fault.seed))).collect();
    // If recovery times tie, the first seed is the worst.
    took.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.0.cmp(&a.1.0)));
    let [p50, p90, p99, max] = [50, 90, 99, 100]
        .map(|per_cent| percentile(&took, per_cent).map(|(time, _)| Picoseconds(time)));
    let never: Vec<&Ended> = faults.iter().filter(|fault| fault.waits).collect();
    let mut never_because = BTreeMap::new();
    for why in never.iter().filter_map(|fault| fault.why) {
        *never_because.entry(why).or_default() += 1;
    }
    Recoveries {
        faults: faults.len() as u64,
        recovered: took.len() as u64,
        never: never.len() as u64,
        never_because,
        p50,
        p90,
        p99,
        max,
        worst_seed: never.first().map(|fault| fault.seed).or(took.last().map(|(_, seed)| *seed)),
        kind,
    }
}
