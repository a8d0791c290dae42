// SPDX-License-Identifier: Apache-2.0
//! Compares measured collectives with the closed form of a library.
//!
//! Results of nccl-tests are compared with constants that are fitted without their accelerator. Other rows are grouped by
//! source and hardware; the name of a group determines whether it is used for fitting or testing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub use lightloom_collective::{
    Algorithm, CollectiveKind, Delivery, Launch, LibraryTime, Protocol, Shape, Site,
};
use lightloom_collective::{ExpertExchange, ExpertKernel, Generation};
use serde::{Deserialize, Serialize};

use super::cards::{self, Accelerator};

/// Assumed size of a row that reports a plateau.
const PLATEAU: f64 = 17_179_869_184.0;
const MEBIBYTE: f64 = 1_048_576.0;

#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgedCollective {
    pub id: String,
    pub source: String,
    pub hardware: String,
    pub collective: &'static str,
    pub gpus: u64,
    pub domains: u64,
    pub bytes: f64,
    /// `fit`, `test` or `left out`, if the constants are fitted without the accelerator.
    pub used_to: &'static str,
    pub class: String,
    pub measured_seconds: f64,
    pub algorithm: Option<Algorithm>,
    pub protocol: Option<Protocol>,
    pub seconds: f64,
    /// `(ours − measured) / measured`, in percent.
    pub error_percent: f64,
}

/// A result of nccl-tests inside a domain.
#[derive(Deserialize)]
struct BackToBack {
    accelerator: String,
    nccl: String,
    collective: String,
    gpus: u64,
    bytes: f64,
    microseconds: f64,
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

#[derive(Deserialize)]
struct Expert {
    accelerator: String,
    software: String,
    mode: String,
    nodes: f64,
    hidden: f64,
    tokens_per_gpu: f64,
    top_k: f64,
    experts: f64,
    sms: Option<f64>,
    dispatch_us: f64,
    combine_us: f64,
}

/// Returns the generation of an accelerator that constants are fitted to.
fn left_out(card: &Accelerator) -> Option<Generation> {
    card.generation().filter(|_| ["a100", "h200", "gb200"].contains(&&*card.name))
}

impl BackToBack {
    fn judged(self) -> Option<JudgedCollective> {
        let kind = CollectiveKind::of_name(&self.collective)?;
        let card = cards::accelerator(&self.accelerator).ok()?;
        let site = Site {
            left_out: left_out(&card),
            ..Site::of_domain(card.generation()?, self.gpus, card.network().domain_rate)
        };
        let ours = site.choose(kind, self.bytes, |_, _| true)?;
        Some(JudgedCollective {
            source: format!("nccl-tests with NCCL {}", self.nccl),
            hardware: self.accelerator,
            class: SMALL[SMALL_LIMITS.partition_point(|limit| *limit < self.bytes)].to_owned(),
            used_to: "left out",
            ..JudgedCollective::of(&site, kind, self.bytes, 1e-6 * self.microseconds, ours)
        })
    }
}

impl Row {
    /// Returns `None` unless the row is a library collective on a switch with a known rate.
    fn judged(self) -> Option<JudgedCollective> {
        let kind = CollectiveKind::of_name(&self.collective)?;
        let named = ["A100", "H100", "H200", "GB200", "B200"];
        let card = named.into_iter().find(|name| self.hardware.contains(name))?;
        let generation = cards::accelerator(&card.to_lowercase()).ok()?.generation()?;
        let is_one = self.hardware.contains("NVL72");
        let is_efa = self.fabric.contains("EFA");
        let site = Site {
            domains: if is_one { 1 } else { self.nodes? },
            card_rate: 1e9 * self.card.unwrap_or(0.0),
            delivery: if is_efa { Delivery::Unordered } else { Delivery::Ordered },
            launch: Launch::Host,
            ..Site::of_domain(generation, self.gpus?, 1e9 * self.link?)
        };
        let bytes = self.size_bytes.unwrap_or(PLATEAU);
        let factor = kind.bus_factor(usize::try_from(site.ranks).ok()?);
        let measured_seconds = factor * bytes / (1e9 * self.bus?);
        let algorithm = self.algo.to_lowercase();
        let ours = site.choose(kind, bytes, |way, _| says(&algorithm, way))?;
        Some(JudgedCollective {
            id: self.id,
            source: self.source,
            hardware: self.hardware,
            class: class(site.domains, bytes),
            ..JudgedCollective::of(&site, kind, bytes, measured_seconds, ours)
        })
    }
}

impl JudgedCollective {
    fn of(
        site: &Site,
        kind: CollectiveKind,
        bytes: f64,
        measured_seconds: f64,
        ours: LibraryTime,
    ) -> Self {
        Self {
            gpus: site.ranks,
            domains: site.domains,
            bytes,
            used_to: "fit",
            algorithm: Some(ours.algorithm),
            protocol: Some(ours.protocol),
            ..Self::timed(kind.name(), measured_seconds, ours.seconds)
        }
    }

    fn timed(collective: &'static str, measured_seconds: f64, seconds: f64) -> Self {
        let error_percent = 100.0 * (seconds / measured_seconds - 1.0);
        Self { collective, measured_seconds, seconds, error_percent, ..Self::default() }
    }
}

impl Expert {
    fn judged(self) -> Option<[JudgedCollective; 2]> {
        let card = cards::accelerator(&self.accelerator).ok()?;
        let network = card.network();
        let [dispatch, combine] = if self.mode == "normal" {
            [ExpertKernel::Dispatch, ExpertKernel::Combine]
        } else {
            [ExpertKernel::LowLatencyDispatch, ExpertKernel::LowLatencyCombine]
        };
        let exchange = ExpertExchange {
            kernel: dispatch,
            tokens: self.tokens_per_gpu,
            hidden: self.hidden,
            top_k: self.top_k,
            experts: self.experts,
            nodes: self.nodes,
            // The nodes of an NVL72 have four GPUs.
            gpus_per_node: if card.domain_gpus > 8 { 4.0 } else { 8.0 },
            sms: self.sms.unwrap_or(1.0),
            generation: card.generation().unwrap_or(Generation::Hopper),
            domain_rate: network.domain_rate,
            card_rate: network.scale_out_rate,
            left_out: left_out(&card),
        };
        let place =
            if self.mode == "normal" { (self.nodes as usize).ilog2().div_ceil(2) } else { 3 };
        let both =
            [("dispatch", dispatch, self.dispatch_us), ("combine", combine, self.combine_us)];
        Some(both.map(|(name, kernel, measured)| {
            let ours = ExpertExchange { kernel, ..exchange }.seconds();
            JudgedCollective {
                source: self.software.clone(),
                hardware: self.accelerator.clone(),
                domains: self.nodes as u64,
                bytes: self.tokens_per_gpu * self.hidden,
                used_to: "left out",
                class: EXPERTS[place as usize].to_owned(),
                ..JudgedCollective::timed(name, 1e-6 * measured, ours)
            }
        }))
    }
}

/// Whether a row may have used algorithm `way`, which it states or the library could choose.
fn says(algorithm: &str, way: Algorithm) -> bool {
    match algorithm {
        "nvlstree" => way == Algorithm::NvlsTree,
        "ib sharp" => way == Algorithm::Sharp,
        "nvls/sharp" => way == Algorithm::Nvls,
        "nvlink" => way == Algorithm::Ring,
        _ if algorithm.starts_with("ring") => way == Algorithm::Ring,
        _ => way != Algorithm::Sharp,
    }
}

/// Classes of exchanges with experts.
const EXPERTS: [&str; 4] =
    ["normal, 1 node", "normal, 2 to 4 nodes", "normal, 8 nodes", "low latency"];
/// Sizes of back-to-back collectives, up to each limit and above.
const SMALL: [&str; 4] = ["up to 64 KiB", "up to 1 MiB", "up to 64 MiB", "above 64 MiB"];
const SMALL_LIMITS: [f64; 3] = [65_536.0, MEBIBYTE, 64.0 * MEBIBYTE];
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
        let mut reader = csv::Reader::from_reader(table.as_bytes());
        let names = reader.headers()?.clone();
        let [is_back_to_back, is_expert] =
            ["nccl", "dispatch_us"].map(|column| names.iter().any(|name| name == column));
        for row in reader.records() {
            let row = row?;
            let found: Vec<JudgedCollective> = if is_expert {
                let both = row.deserialize::<Expert>(Some(&names))?.judged();
                both.into_iter().flatten().collect()
            } else if is_back_to_back {
                row.deserialize::<BackToBack>(Some(&names))?.judged().into_iter().collect()
            } else {
                row.deserialize::<Row>(Some(&names))?.judged().into_iter().collect()
            };
            without += usize::from(found.is_empty());
            judged.extend(found);
        }
    }
    for over in [false, true] {
        let mut of_name: BTreeMap<_, Vec<&mut JudgedCollective>> = BTreeMap::new();
        for one in &mut judged {
            if (one.domains > 1) == over && one.used_to == "fit" {
                of_name.entry((one.source.clone(), one.hardware.clone())).or_default().push(one);
            }
        }
        // Every second name tests.
        for one in of_name.into_values().skip(1).step_by(2).flatten() {
            one.used_to = "test";
        }
    }
    Ok((judged, without))
}

/// Mean absolute error in percent of a class of a use, and the number of rows. `of` is an accelerator or a collective,
/// or empty for all.
pub fn error(judged: &[JudgedCollective], class: &str, used_to: &str, of: &str) -> (f64, usize) {
    let these: Vec<f64> = judged
        .iter()
        .filter(|one| one.class == class && one.used_to == used_to)
        .filter(|one| of.is_empty() || [&one.hardware, one.collective].contains(&of))
        .map(|one| one.error_percent.abs())
        .collect();
    (these.iter().sum::<f64>() / these.len().max(1) as f64, these.len())
}

pub fn classes() -> impl Iterator<Item = String> {
    PLACES.iter().flat_map(|place| SIZES.iter().map(move |size| format!("{place}, {size}")))
}

const HEAD: &str = "\
# Collectives compared with published measurements

Mean absolute errors in percent, from `lightloom reproduce collectives --format markdown --runs` with every table of measured collectives; `--format csv` prints rows.

## Back to back inside a domain

Results of nccl-tests, with constants fitted without the row's accelerator.

";

const EXCHANGES: &str = "
## DeepEP

Also without the row's accelerator; normal kernels on eight nodes are never fitted to.

";

const OTHERS: &str = "
## Launched by the host, and over domains

Groups of one source and hardware alternate between fitting and testing. We knew all rows when we chose this rule and the form of the model. That EFA uses rings with
Simple is assumed.

| class | test rows | error | fitting rows | theirs |
| --- | --- | --- | --- | --- |
";

/// Returns a table of the errors of rows whose accelerator is left out: all, by accelerator and by collective.
fn left_out_table(judged: &[JudgedCollective], classes: [&str; 4]) -> String {
    let rows = judged.iter().filter(|one| classes.contains(&&*one.class));
    let accelerators: BTreeSet<_> = rows.clone().map(|one| &*one.hardware).collect();
    let collectives: BTreeSet<_> = rows.map(|one| one.collective).collect();
    let mut table =
        format!("| rows | {} |\n| --- | --- | --- | --- | --- |\n", classes.join(" | "));
    for of in [""].into_iter().chain(accelerators).chain(collectives) {
        let cells = classes.map(|class| match error(judged, class, "left out", of) {
            (_, 0) => "–".to_owned(),
            (error, _) => format!("{error:.1}"),
        });
        let name = if of.is_empty() { "all" } else { of };
        let _ = writeln!(table, "| {name} | {} |", cells.join(" | "));
    }
    table
}

pub fn page(judged: &[JudgedCollective], without: usize) -> String {
    let tables = [SMALL, EXPERTS].map(|classes| left_out_table(judged, classes));
    let mut page = format!("{HEAD}{}{EXCHANGES}{}{OTHERS}", tables[0], tables[1]);
    for class in classes() {
        let [test, fit] = ["test", "fit"].map(|used_to| match error(judged, &class, used_to, "") {
            (_, 0) => "0 | –".to_owned(),
            (error, rows) => format!("{rows} | {error:.1} %"),
        });
        let _ = writeln!(page, "| {class} | {test} | {fit} |");
    }
    let _ = write!(
        page,
        "\n{without} of {} rows are not collectives on a switch or lack a rate.\n",
        without + judged.iter().filter(|one| one.used_to != "left out").count()
    );
    page
}
