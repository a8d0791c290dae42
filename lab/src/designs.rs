// SPDX-License-Identifier: Apache-2.0
//! Designs and what they are judged by, as options and files give them: cluster, faults, prices and purchases.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_fabric::trace::{FaultTrace, Observation};
use lightloom_study::FabricDesign;
use lightloom_study::architecture::{Architecture, Cluster, is_fabric_file, parse};
use lightloom_study::buy::{FaultModel, PlannedSteps, Question, load_buy, refuse_buy};
use lightloom_study::compare::FaultSource;
use lightloom_study::cost::{PriceList, read_prices};
use lightloom_training::calibration::Precision;
use lightloom_training::cards;
use serde::Serialize;

use lightloom::output::{self, InputRefused, WrongUsage};
use lightloom::{files, shipped, trace};

/// Size of a cluster that no fabric file describes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ClusterSize {
    /// Number of GPUs in the cluster, if no file describes it.
    #[arg(long, value_name = "N", default_value_t = 2880, value_parser = lightloom::number::whole::<u32>(1..=1 << 24))]
    gpus: u32,
    /// Number of GPUs per node; a node fails as a whole.
    #[arg(long, value_name = "R", default_value_t = 4, value_parser = lightloom::number::whole::<u32>(1..=64))]
    gpus_per_node: u32,
}

impl ClusterSize {
    pub(crate) fn cluster(self) -> anyhow::Result<Cluster> {
        let Self { gpus, gpus_per_node } = self;
        if !gpus.is_multiple_of(gpus_per_node) {
            let text = format!(
                "--gpus {gpus} must be from {gpus_per_node} to 16777216 and a multiple of \
                 --gpus-per-node {gpus_per_node}"
            );
            return Err(WrongUsage(text).into());
        }
        Ok(Cluster { nodes: gpus / gpus_per_node, gpus_per_node })
    }
}

pub(crate) fn read_fabric(path: &Path, inputs: &mut Inputs) -> anyhow::Result<Fabric> {
    let document = files::read_document(path);
    if let Ok(bytes) = &document {
        files::note_input(inputs, "fabric", &files::name(path), bytes);
    }
    lightloom::fabric::of_document(path, document)
}

pub(crate) fn designs(
    names: &[String],
    prices: &PriceList,
    inputs: &mut Inputs,
) -> anyhow::Result<Vec<Box<dyn Architecture>>> {
    let designs = names.iter().map(|name| match is_fabric_file(name) {
        true => fabric_design(Path::new(name), prices, inputs),
        false => parse(name).map_err(|error| WrongUsage(format!("--arch: {error}")).into()),
    });
    designs.collect()
}

pub(crate) fn fabric_design(
    path: &Path,
    prices: &PriceList,
    inputs: &mut Inputs,
) -> anyhow::Result<Box<dyn Architecture>> {
    Ok(Box::new(FabricDesign::new(read_fabric(path, inputs)?, prices)))
}

pub(crate) fn fault_source(
    text: &str,
    servers: Option<u32>,
    inputs: &mut Inputs,
) -> anyhow::Result<FaultSource> {
    if text == "synthetic" {
        return Ok(FaultSource::Synthetic);
    }
    if let Some(ratio) = text.strip_prefix("iid:") {
        let ratio = ratio.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio = ratio.ok_or_else(|| {
            WrongUsage(format!("--faults {text}: expected a probability, such as `iid:0.05`"))
        })?;
        return Ok(FaultSource::Independent(ratio));
    }
    let observation = Observation { servers, ..Observation::default() };
    Ok(FaultSource::Trace(trace::read(&PathBuf::from(text), observation, inputs)?))
}

pub(crate) fn prices(path: Option<&Path>, inputs: &mut Inputs) -> anyhow::Result<PriceList> {
    let read = match path {
        None => Ok((shipped::PRICES.as_bytes().to_vec(), "shipped".to_owned())),
        Some(path) => files::read_document(path).map(|bytes| (bytes, files::name(path))),
    };
    let (list, mistakes) = match read {
        Ok((bytes, name)) => {
            let read = read_prices(if path.is_some() { &name } else { "prices.yaml" }, &bytes);
            inputs.insert("prices".to_owned(), Input::of(name, &bytes));
            read
        }
        Err(mistake) => (None, vec![*mistake]),
    };
    output::diagnostics(&mistakes);
    let list = list.ok_or(InputRefused)?;
    // The mean length of a month in seconds.
    let months = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 2_629_746;
    let old = list.older_than_two_years(1970 * 12 + 1 + months);
    for (old, file) in old.iter().flat_map(|old| path.map(|file| (old, file.display()))) {
        output::note(&format!("{file}: {old} is older than two years: update it"));
    }
    Ok(list)
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StepTaken {
    pub(crate) from: String,
    pub(crate) model: String,
    pub(crate) gpus: u32,
}

#[derive(Debug)]
pub(crate) struct BuyAsked {
    pub(crate) question: Question,
    pub(crate) trace: Option<FaultTrace>,
    pub(crate) step: Option<StepTaken>,
}

/// Reads a buy file and the files that it names.
pub(crate) fn read_buy(
    path: &Path,
    bytes: &[u8],
    prices: &PriceList,
    inputs: &mut Inputs,
) -> anyhow::Result<BuyAsked> {
    let name = files::name(path);
    files::note_input(inputs, "buy", &name, bytes);
    let folder = path.parent().unwrap_or(Path::new(""));
    let (question, mistakes) = load_buy(&name, bytes, &mut |file: &str| {
        fabric_design(&folder.join(file), prices, inputs).map_err(|error| error.to_string())
    });
    output::diagnostics(&mistakes);
    let mut question = question.ok_or(InputRefused)?;
    let mut step = None;
    if let Some(file) = question.step_from.clone() {
        let from = folder.join(&file);
        step = match take_step(&mut question, &file, &from, inputs) {
            Ok(taken) => Some(taken),
            Err(why) => {
                let message = format!("{}: {why}", from.display());
                let mistakes = refuse_buy(&name, bytes, "/workload/step/from", message);
                output::diagnostics(&mistakes);
                return Err(InputRefused.into());
            }
        };
    }
    let trace = match &question.faults {
        FaultModel::Trace(file) if !folder.join(file).is_file() => {
            let message = format!("file {} does not exist", folder.join(file).display());
            output::diagnostics(&refuse_buy(&name, bytes, "/faults/trace", message));
            return Err(InputRefused.into());
        }
        FaultModel::Trace(file) => {
            Some(trace::read(&folder.join(file), Observation::default(), inputs)?)
        }
        _ => None,
    };
    Ok(BuyAsked { question, trace, step })
}

fn take_step(
    question: &mut Question,
    file: &str,
    path: &Path,
    inputs: &mut Inputs,
) -> Result<StepTaken, String> {
    let bytes = files::read_document(path).map_err(|mistake| mistake.message)?;
    let steps: PlannedSteps =
        serde_json::from_slice(&bytes).map_err(|mistake| mistake.to_string())?;
    files::note_input(inputs, "step", file, &bytes);
    let step = steps.rows.first().ok_or("it is empty")?;
    let card = cards::accelerator(&steps.accelerator).ok();
    if let Some(peak) = card.and_then(|card| card.peak_flops(Precision::Bf16)) {
        let (theirs, ours) = (peak / 1e12, question.peak_tflops);
        if (theirs / ours - 1.0).abs() > 0.01 {
            return Err(format!(
                "the step's MFU refers to {theirs:.0} TFLOP/s ({}), but `workload.peak_tflops` is {ours}",
                steps.accelerator
            ));
        }
    }
    question.take_step(step)?;
    Ok(StepTaken { from: file.to_owned(), model: steps.model.clone(), gpus: step.gpus })
}
