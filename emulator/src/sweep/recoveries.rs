// SPDX-License-Identifier: Apache-2.0
//! Computes recovery times by kind of fault over all seeds in a sweep, as a basis for guarantees.

use std::collections::BTreeMap;

use lightloom_fabric::fault::Part;
use lightloom_units::Picoseconds;
use lightloom_units::seed::Seed;
use serde::{Deserialize, Serialize};

use super::SeedRun;
use crate::nearest_rank::percentile;
use crate::outcome::{FaultResult, NotRestored};

/// The time from a fault of one kind until everything that it hit has resumed, with percentiles by
/// nearest rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recoveries {
    /// The kind, which consists of the broken part, the effect, and whether another part was already broken.
    pub kind: String,
    /// The number of faults of this kind.
    pub faults: u64,
    /// The number of faults from which the run recovered. The others hit nothing that waits for
    /// recovery, or had no recovery.
    pub recovered: u64,
    /// The number of faults without recovery for which groups or flows still wait.
    pub never: u64,
    /// Number of these faults by reason.
    #[serde(default)]
    pub never_because: BTreeMap<NotRestored, u64>,
    /// The median.
    #[serde(rename = "p50_ps")]
    pub p50: Option<Picoseconds>,
    /// The 90th percentile.
    #[serde(rename = "p90_ps")]
    pub p90: Option<Picoseconds>,
    /// The 99th percentile.
    #[serde(rename = "p99_ps")]
    pub p99: Option<Picoseconds>,
    /// The maximum.
    #[serde(rename = "max_ps")]
    pub max: Option<Picoseconds>,
    /// The seed with the longest recovery, or with one that never came.
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
    let broken = |other: &&FaultResult| {
        let over = other.repaired.into_iter().chain(other.restored).min();
        !std::ptr::eq(*other, fault)
            && other.at.is_some_and(|began| began <= at)
            && over.is_none_or(|over| over > at)
    };
    // The first word of the effect, so that `{late: 20ms}` becomes `late`.
    let effect = fault.effect.split([':', ' ', '{']).find(|word| !word.is_empty()).unwrap_or("");
    let beside = others.iter().find(broken).and_then(|other| other.parts.first());
    Some(match beside {
        Some(other) => format!("{what} {effect}, {} broken", part(other)),
        None => format!("{what} {effect}"),
    })
}

struct Ended {
    took: Option<u64>,
    /// Whether something still waits for a recovery that never came.
    waits: bool,
    why: Option<NotRestored>,
    seed: Seed,
}

/// Returns each kind of fault in these runs, sorted by name.
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
    // Among equal recoveries, the first seed counts as the worst.
    took.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.0.cmp(&a.1.0)));
    let at = |per_cent| percentile(&took, per_cent).map(|(time, _)| Picoseconds(time));
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
        p50: at(50),
        p90: at(90),
        p99: at(99),
        max: at(100),
        worst_seed: never.first().map(|fault| fault.seed).or(took.last().map(|(_, seed)| *seed)),
        kind,
    }
}
