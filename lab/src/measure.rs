// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Context;
use lightloom_fabric::provenance::Inputs;
use lightloom_training::cards::{self, Accelerator};
use lightloom_training::operators::result::{GpuResult, ResultError};
use serde::Serialize;

use crate::cards::card;
use lightloom::files;
use lightloom::output::{self, VerbOutcome};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The script needs PyTorch and one NVIDIA GPU for about five minutes, and no network.

Examples:
  lightloom measure > measure.py
  python3 measure.py result.json
  lightloom measure --from result.json --output mine.yaml
  lightloom mfu --model llama-3.1-8b --gpus 8 --accelerator mine.yaml --why"
)]
pub(crate) struct Arguments {
    /// Result of the script.
    #[arg(long, value_name = "RESULT.json")]
    from: Option<PathBuf>,
    /// Accelerator to describe, whose operators are scaled from the measured ones by roofline
    /// [default: the measured GPU].
    #[arg(long, value_name = "NAME|FILE", requires = "from")]
    accelerator: Option<String>,
    /// Describe software that runs norms and activations as separate kernels, such as PyTorch
    /// without `torch.compile`.
    #[arg(long, requires = "from")]
    eager: bool,
    /// Accelerator file to write [default: standard output].
    #[arg(short, long, value_name = "CARD.yaml", requires = "from", value_parser = files::destination)]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let Some(from) = &arguments.from else {
        output::print(include_str!("measure/measure.py"))?;
        return Ok(VerbOutcome::Good);
    };
    let bytes = files::read_result(from)?;
    let place = from.display().to_string();
    let result = GpuResult::read(&String::from_utf8_lossy(&bytes)).context(place.clone())?;
    for error in &result.errors {
        output::note(&format!("not measured: {error}"));
    }
    let (shipped, read) = (cards::accelerator, cards::read_accelerator);
    let named = arguments.accelerator.as_ref();
    let target = named.map(|name| card("accelerator", name, shipped, read, &mut Inputs::new()));
    let target = target.transpose()?;
    let gpu = &result.env.gpu;
    let measured = measured_card(gpu)
        .or_else(|| target.clone())
        .ok_or_else(|| ResultError::UnknownGpu(gpu.clone()))
        .context(place.clone())?;
    let mut card = result.card(&measured, arguments.eager).context(place)?;
    if let Some(target) = target {
        let source = format!("{}; operators measured on {gpu}", target.source);
        card = Accelerator { operators: card.operators, source, ..target };
    }
    if !arguments.eager {
        output::note("assumed: norms and activations run as fused kernels; otherwise use --eager");
    }
    let text = yaml(&card)?;
    match &arguments.output {
        Some(path) => files::write(path, text.as_bytes())?,
        None => output::print(&text)?,
    }
    Ok(VerbOutcome::Good)
}

/// Returns the shipped accelerator whose name consists of words of the GPU's.
fn measured_card(gpu: &str) -> Option<Accelerator> {
    let [_, accelerators, _] = cards::all_names();
    let name = gpu.to_lowercase();
    let words: Vec<&str> = name.split(|letter: char| !letter.is_alphanumeric()).collect();
    // Cards with PCIe are slower than the shipped ones.
    if words.contains(&"pcie") {
        return None;
    }
    let known = accelerators
        .into_iter()
        .filter(|name| name.split('-').all(|part| words.contains(&part)))
        .max_by_key(|name| name.len());
    cards::accelerator(known?).ok()
}

/// Writes one line for each measured point.
fn yaml(card: &Accelerator) -> anyhow::Result<String> {
    let mut text = scalars("", card)?;
    let Some(operators) = &card.operators else { return Ok(text) };
    write!(text, "operators:\n{}  products:\n", scalars("  ", operators)?)?;
    for product in &operators.products {
        writeln!(text, "  - {}", serde_json::to_string(product)?)?;
    }
    writeln!(text, "  attention:{}", if operators.attention.is_empty() { " []" } else { "" })?;
    for core in &operators.attention {
        writeln!(text, "  - {}", serde_json::to_string(core)?)?;
    }
    Ok(text)
}

fn scalars(indent: &str, value: &impl Serialize) -> anyhow::Result<String> {
    let mut text = String::new();
    for (key, value) in serde_json::to_value(value)?.as_object().into_iter().flatten() {
        if !value.is_array() && key != "operators" {
            writeln!(text, "{indent}{key}: {value}")?;
        }
    }
    Ok(text)
}
