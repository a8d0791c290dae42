// SPDX-License-Identifier: Apache-2.0
//! Recognises the input files of a report by their content.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use lightloom_emulator::months::MONTHS_SCHEMA;
use lightloom_emulator::sweep::SWEEP_SCHEMA;
use lightloom_fabric::document;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::plan::{Plan, SCHEMA, digest};
use lightloom_fabric::provenance;
use lightloom_fabric::trace::{FaultTrace, MAX_TRACE_BYTES, Observation};
use lightloom_report::page::{
    Billed, EmulatedRun, LIVE_SCHEMA, LiveRun, SourceFile, Swept, TrainingResult,
};
use lightloom_study::cost::{PriceList, read_prices};
use lightloom_study::results::{COMPARE_SCHEMA, COST_SCHEMA, REPRODUCE_SCHEMA};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::designs::{BuyAsked, prices, read_buy};
use lightloom::output::{self, InputRefused};
use lightloom::{files, kinds};

#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) fabric: Option<(String, Fabric)>,
    pub(super) plan: Option<(String, Plan)>,
    pub(super) trace: Option<(String, FaultTrace)>,
    pub(super) prices: Option<(String, PriceList)>,
    pub(super) buy: Option<BuyAsked>,
    pub(super) runs: Vec<EmulatedRun>,
    pub(super) sweeps: Vec<Swept>,
    pub(super) bills: Vec<Billed>,
    pub(super) live: Option<LiveRun>,
    pub(super) training: Vec<TrainingResult>,
    pub(super) sources: Vec<SourceFile>,
}

/// Keys that distinguish the types of result files.
#[derive(Deserialize)]
struct Marks {
    schema: Option<String>,
    events: Option<IgnoredAny>,
    packet_hops: Option<IgnoredAny>,
    mappings_tried: Option<IgnoredAny>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputKind {
    Fabric,
    Plan,
    Trace,
    Prices,
    Buy,
    Run,
    Sweep,
    Months,
    Training,
    Live,
}

impl InputKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Fabric => "fabric",
            Self::Plan => "plan",
            Self::Trace => "fault trace",
            Self::Prices => "prices",
            Self::Buy => "buy file",
            Self::Run => "result of `emulate`",
            Self::Sweep => "result of `emulate` under many seeds",
            Self::Months => "result of `emulate` over months",
            Self::Training => "result of `mfu`",
            Self::Live => "live demonstration",
        }
    }
}

const READABLE: &str = "a report reads fabric, price and buy files, fault traces, plans, and the JSON results of `emulate` \
                        and `mfu`";

impl Inputs {
    pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut inputs = Self::default();
        for path in paths {
            inputs.add(path)?;
        }
        Ok(inputs)
    }

    pub(super) fn circuits_alone(&self) -> Option<(&Fabric, &ReconfigurableFatTree)> {
        let (_, fabric) = self.fabric.as_ref()?;
        fabric.circuits_alone().map(|network| (fabric, network))
    }

    pub(super) fn has_results_alone(&self) -> bool {
        let is_else = self.fabric.is_some() || self.plan.is_some() || self.trace.is_some();
        let is_run = !self.bills.is_empty() || !self.runs.is_empty() || !self.sweeps.is_empty();
        (is_run || !self.training.is_empty())
            && !is_else
            && self.prices.is_none()
            && self.buy.is_none()
    }

    pub(super) fn must_be_of_one_cluster(&self) -> anyhow::Result<()> {
        let runs = self.runs.iter().map(|run| (&run.scenario, &run.fabric_sha256));
        let sweeps = self.sweeps.iter().map(|swept| &swept.subject);
        let sweeps = sweeps.map(|subject| (&subject.scenario, &subject.fabric_sha256));
        let bills = self.bills.iter().map(|billed| (&billed.scenario, &billed.fabric_sha256));
        let mut results = runs.chain(sweeps).chain(bills).peekable();
        let own = self.fabric.as_ref().map(|(_, fabric)| &fabric.sha256);
        let Some(of) = own.or_else(|| results.peek().map(|(_, sha256)| *sha256)).cloned() else {
            return Ok(());
        };
        match results.find(|(_, sha256)| **sha256 != of) {
            Some((scenario, _)) => bail!(
                "the result of scenario `{scenario}` belongs to another fabric: write a separate report for each cluster"
            ),
            None => Ok(()),
        }
    }

    fn add(&mut self, path: &Path) -> anyhow::Result<()> {
        let name = files::name(path);
        let bytes = files::read_result(path)?;
        let kind = recognise(&name, &bytes)?;
        match kind {
            InputKind::Fabric => {
                let fabric = lightloom::fabric::of_document(path, Ok(bytes.clone()))?;
                once(&mut self.fabric, (name.clone(), fabric), kind, &name)?;
            }
            InputKind::Plan => {
                once(&mut self.plan, (name.clone(), json(&name, &bytes, kind)?), kind, &name)?
            }
            InputKind::Trace => {
                ensure!(bytes.len() <= MAX_TRACE_BYTES, "{name} is too large for a fault trace");
                let trace = FaultTrace::read(&bytes, Observation::default())
                    .map_err(|errors| lightloom::trace::refused(path, &bytes, &errors))?;
                once(&mut self.trace, (name.clone(), trace), kind, &name)?;
            }
            InputKind::Prices => {
                let (prices, mistakes) = read_prices(&name, &bytes);
                output::diagnostics(&mistakes);
                once(&mut self.prices, (name.clone(), prices.ok_or(InputRefused)?), kind, &name)?;
            }
            InputKind::Buy => {
                let prices = prices(None, &mut Default::default())?;
                let asked = read_buy(path, &bytes, &prices, &mut Default::default())?;
                once(&mut self.buy, asked, kind, &name)?;
            }
            InputKind::Run => self.runs.push(json(&name, &bytes, kind)?),
            InputKind::Sweep => self.sweeps.push(json(&name, &bytes, kind)?),
            InputKind::Months => self.bills.push(json(&name, &bytes, kind)?),
            InputKind::Training => self.training.push(json(&name, &bytes, kind)?),
            InputKind::Live => once(&mut self.live, json(&name, &bytes, kind)?, kind, &name)?,
        }
        let plan = match kind {
            InputKind::Plan => Some(digest(&json::<Value>(&name, &bytes, kind)?)),
            _ => None,
        };
        let (sha256, size) = (provenance::sha256(&bytes), bytes.len() as u64);
        self.sources.push(SourceFile { name, kind: kind.name(), sha256, bytes: size, plan });
        Ok(())
    }
}

fn once<T>(place: &mut Option<T>, value: T, kind: InputKind, name: &str) -> anyhow::Result<()> {
    ensure!(place.is_none(), "{name} is a second {}: a report accepts one", kind.name());
    *place = Some(value);
    Ok(())
}

fn json<'b, T: Deserialize<'b>>(name: &str, bytes: &'b [u8], kind: InputKind) -> anyhow::Result<T> {
    serde_json::from_slice(bytes)
        .with_context(|| format!("{name} looks like a {} but is not valid", kind.name()))
}

fn recognise(name: &str, bytes: &[u8]) -> anyhow::Result<InputKind> {
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => bail!("{name} is empty; {READABLE}"),
        Some(b'[') => return Ok(InputKind::Trace),
        Some(b'{') => {
            let marks: Marks = serde_json::from_slice(bytes)
                .with_context(|| format!("{name} is not valid JSON"))?;
            match marks.schema.as_deref() {
                Some(SCHEMA) => return Ok(InputKind::Plan),
                Some(COMPARE_SCHEMA | COST_SCHEMA | REPRODUCE_SCHEMA) => {
                    bail!(
                        "the report computes the result in {name} itself: pass the fabric and the trace instead"
                    )
                }
                Some(SWEEP_SCHEMA) => return Ok(InputKind::Sweep),
                Some(MONTHS_SCHEMA) => return Ok(InputKind::Months),
                Some(LIVE_SCHEMA) => return Ok(InputKind::Live),
                _ if marks.packet_hops.is_some() => return Ok(InputKind::Run),
                _ if marks.mappings_tried.is_some() => return Ok(InputKind::Training),
                _ if marks.events.is_some() => return Ok(InputKind::Trace),
                Some(other) => bail!("{name} uses the schema `{other}`; {READABLE}"),
                None => {}
            }
        }
        Some(_) => {}
    }
    match kinds::of_keys(&document::top_keys(bytes)).map(|kind| kind.name) {
        Some("fabric") => Ok(InputKind::Fabric),
        Some("prices") => Ok(InputKind::Prices),
        Some("buy") => Ok(InputKind::Buy),
        Some("scenario") => bail!(
            "{name} is a scenario: run it with `lightloom emulate {name} --format json > run.json` and pass run.json"
        ),
        Some(other) => bail!("{name} is a {other} file; {READABLE}"),
        None => Err(match document::other_kind(name, bytes, "an input of a report", READABLE) {
            Some(other) => other.into(),
            None => anyhow::anyhow!("unknown kind of file {name}; {READABLE}"),
        }),
    }
}
