// SPDX-License-Identifier: Apache-2.0
//! Compares measured collectives with the closed form of a library.
//!
//! Rows are grouped by source and hardware. A group's name determines whether it is used for fitting or testing.

use std::collections::BTreeSet;
use std::fmt::Write;

pub use lightloom_collective::{Algorithm, CollectiveKind, LibraryTime, Protocol, Shape, Site};
use serde::{Deserialize, Serialize};

use super::cards;

/// Assumed size of a row that reports a plateau.
const PLATEAU: f64 = 17_179_869_184.0;
const MEBIBYTE: f64 = 1_048_576.0;

#[derive(Clone, Debug, Serialize)]
pub struct JudgedCollective {
    pub id: String,
    pub source: String,
    pub hardware: String,
    pub collective: String,
    pub gpus: u64,
    pub domains: u64,
    pub bytes: f64,
    pub used_to: &'static str,
    pub class: String,
    pub measured_seconds: f64,
    #[serde(flatten)]
    pub ours: LibraryTime,
    /// `(ours − measured) / measured`, in percent.
    pub error_percent: f64,
}

#[derive(Deserialize)]
struct Row {
    id: String,
    source: String,
    hardware: String,
    fabric: String,
    nodes: Option<u64>,
    gpus: Option<u64>,
    #[serde(rename = "link_GBps_per_gpu")]
    link: Option<f64>,
    #[serde(rename = "nic_GBps_per_gpu")]
    card: Option<f64>,
    collective: String,
    algo: String,
    size_bytes: Option<f64>,
    #[serde(rename = "busbw_GBps")]
    bus: Option<f64>,
}

impl Row {
    /// Returns `None` unless the row is a library collective on a switch with a known rate.
    fn judged(self) -> Option<JudgedCollective> {
        let kind = match &self.collective[..] {
            "all_reduce" => CollectiveKind::AllReduce,
            "all_gather" => CollectiveKind::AllGather,
            "reduce_scatter" => CollectiveKind::ReduceScatter,
            "all_to_all" => CollectiveKind::AllToAll,
            _ => return None,
        };
        let named = ["A100", "H100", "H200", "GB200", "B200"];
        let card = named.into_iter().find(|name| self.hardware.contains(name))?;
        let generation = cards::accelerator(&card.to_lowercase()).ok()?.generation()?;
        let is_one = self.hardware.contains("NVL72");
        let domains = if is_one { 1 } else { self.nodes? };
        let site = Site {
            generation,
            ranks: self.gpus?,
            domains,
            shape: Shape::Switch,
            domain_rate: 1e9 * self.link?,
            card_rate: 1e9 * self.card.unwrap_or(0.0),
            is_queued: false,
        };
        let bytes = self.size_bytes.unwrap_or(PLATEAU);
        let factor = kind.bus_factor(usize::try_from(site.ranks).ok()?);
        let measured_seconds = factor * bytes / (1e9 * self.bus?);
        let (fabric, algorithm) = (self.fabric, self.algo.to_lowercase());
        let ours =
            site.choose(kind, bytes, |way, protocol| says(&algorithm, &fabric, way, protocol))?;
        let error_percent = 100.0 * (ours.seconds / measured_seconds - 1.0);
        Some(JudgedCollective {
            class: class(domains, bytes),
            id: self.id,
            source: self.source,
            hardware: self.hardware,
            collective: kind.name().to_owned(),
            gpus: site.ranks,
            domains,
            bytes,
            used_to: "fit",
            measured_seconds,
            ours,
            error_percent,
        })
    }
}

/// Whether a row may have used algorithm `way`, which it states or the library could choose.
fn says(algorithm: &str, fabric: &str, way: Algorithm, protocol: Protocol) -> bool {
    match algorithm {
        "nvlstree" => way == Algorithm::NvlsTree,
        "ib sharp" => way == Algorithm::Sharp,
        "nvls/sharp" => way == Algorithm::Nvls,
        "nvlink" => way == Algorithm::Ring,
        _ if algorithm.starts_with("ring") => way == Algorithm::Ring,
        // An assumption: the times of these rows suggest a ring in Simple, but no source states it.
        _ if fabric.contains("EFA") => (way, protocol) == (Algorithm::Ring, Protocol::Simple),
        _ => way != Algorithm::Sharp,
    }
}

const SIZES: [&str; 3] = ["up to 1 MiB", "up to 64 MiB", "from 64 MiB"];
const PLACES: [&str; 2] = ["inside a domain", "over domains"];

fn class(domains: u64, bytes: f64) -> String {
    let size = if bytes <= MEBIBYTE {
        0
    } else if bytes < 64.0 * MEBIBYTE {
        1
    } else {
        2
    };
    format!("{}, {}", PLACES[usize::from(domains > 1)], SIZES[size])
}

/// Returns the compared rows and the number of rows without a prediction.
///
/// Groups of one source and hardware alternate by name between fitting and testing. Fails if a column is missing or a
/// cell is not a number.
pub fn judge(tables: &[&str]) -> Result<(Vec<JudgedCollective>, usize), csv::Error> {
    let (mut judged, mut without) = (Vec::new(), 0);
    for table in tables {
        for row in csv::Reader::from_reader(table.as_bytes()).into_deserialize::<Row>() {
            match row?.judged() {
                Some(one) => judged.push(one),
                None => without += 1,
            }
        }
    }
    let name = |one: &JudgedCollective| (one.source.clone(), one.hardware.clone());
    for over in [false, true] {
        let within = |one: &&mut JudgedCollective| (one.domains > 1) == over;
        let names: BTreeSet<_> = judged.iter_mut().filter(within).map(|one| name(one)).collect();
        for one in judged.iter_mut().filter(within) {
            if names.iter().position(|other| *other == name(one)).is_some_and(|at| at % 2 == 1) {
                one.used_to = "test";
            }
        }
    }
    Ok((judged, without))
}

/// Mean absolute error in percent for a class and use, and the number of rows.
#[must_use]
pub fn error(judged: &[JudgedCollective], class: &str, used_to: &str) -> (f64, usize) {
    let these: Vec<f64> = judged
        .iter()
        .filter(|one| one.class == class && one.used_to == used_to)
        .map(|one| one.error_percent.abs())
        .collect();
    (these.iter().sum::<f64>() / these.len().max(1) as f64, these.len())
}

pub fn classes() -> impl Iterator<Item = String> {
    PLACES.iter().flat_map(|place| SIZES.iter().map(move |size| format!("{place}, {size}")))
}

const HEAD: &str = "\
# Collectives compared with published measurements

This page is generated by `lightloom reproduce collectives --runs collectives_measured.csv,collectives_measured_2.csv --format markdown`; `--format csv`
prints every row. Predictions are computed like `lightloom workload collective`, using the published algorithm if there is one and otherwise the one that lightloom selects.

Measurements are grouped by source and hardware, separately within and across domains. In alphabetical order, groups are used alternately for fitting and testing,
starting with fitting. We knew all rows when we chose this rule and the form of the model, so errors may be larger for rows published later.
Rows on EFA are modelled as rings with the Simple protocol, which is consistent with their times but not stated by any source. The fitted values are at the top of
`emulator/collective/src/library.rs`; all others are NCCL's.

| class | test rows | mean absolute error | fitting rows | theirs |
| --- | --- | --- | --- | --- |
";

#[must_use]
pub fn page(judged: &[JudgedCollective], without: usize) -> String {
    let mut page = String::from(HEAD);
    let cell = |(error, rows): (f64, usize)| {
        let error = if rows == 0 { "–".to_owned() } else { format!("{error:.1} %") };
        format!("{rows} | {error}")
    };
    for class in classes() {
        let [test, fit] = ["test", "fit"].map(|used_to| cell(error(judged, &class, used_to)));
        let _ = writeln!(page, "| {class} | {test} | {fit} |");
    }
    let _ = write!(
        page,
        "\n{without} of {} rows have no prediction, because they are not collectives on a switch or lack a rate. Not validated are all-gather and reduce-scatter over\n\
         domains, all-to-all below its plateau, and sizes up to 1 MiB over domains, for which all rows are used for fitting.\n",
        judged.len() + without
    );
    page
}
