// SPDX-License-Identifier: Apache-2.0
//! Models, accelerators and measured runs, as options name them.

use std::path::Path;

use anyhow::Context;
use lightloom_fabric::document::Diagnostic;
use lightloom_fabric::provenance::{Input, Inputs};
use lightloom_training::architecture::with_rates;
use lightloom_training::calibration::Precision;
use lightloom_training::cards::Accelerator;
use lightloom_training::network::Network;
use lightloom_units::Picoseconds;

use lightloom::choice::OptionValue;
use lightloom::{files, kinds, output};

pub(crate) const PRECISIONS: &[OptionValue<Precision>] = &[
    (Precision::Bf16, "bf16", "Sixteen bits"),
    (Precision::Fp8, "fp8", "Eight bits, with one scale per tensor"),
    (Precision::Mxfp8, "mxfp8", "Eight bits, with one scale per block"),
    (Precision::Nvfp4, "nvfp4", "Four bits"),
];

/// Options of replicas that generate tokens.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Decoding {
    /// Domain instead of the accelerator's: khop:K, nvl:36|72|576, dgx, tpuv4, big-switch.
    #[arg(long, value_name = "ARCH")]
    pub(crate) arch: Option<String>,
    /// Maximum number of requests or samples that a replica decodes together.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=4096))]
    pub(crate) batch: u32,
    /// Software overhead per decode step.
    #[arg(long, default_value = "0s", value_name = "TIME")]
    host: Picoseconds,
}

impl Decoding {
    pub(crate) fn network(&self, card: &Accelerator) -> anyhow::Result<Network> {
        let own = card.network();
        Ok(match &self.arch {
            Some(arch) => with_rates(arch, [own.domain_rate, own.scale_out_rate])?,
            None => own,
        })
    }

    pub(crate) fn host_seconds(&self) -> f64 {
        self.host.as_secs_f64()
    }
}

type CardReader<T> = fn(&str, &[u8]) -> (Option<T>, Vec<Diagnostic>);

pub(crate) fn card<T, E: std::error::Error + Send + Sync + 'static>(
    role: &str,
    name: &str,
    shipped: fn(&str) -> Result<T, E>,
    read: CardReader<T>,
    inputs: &mut Inputs,
) -> anyhow::Result<T> {
    let path = Path::new(name);
    let is_file = path
        .extension()
        .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known));
    if !is_file {
        return Ok(shipped(name)?);
    }
    let (card, mistakes) = match files::read_document(path) {
        Ok(bytes) => {
            inputs.insert(role.to_owned(), Input::of(name, &bytes));
            read(name, &bytes)
        }
        Err(mistake) => (None, vec![*mistake]),
    };
    output::diagnostics(&mistakes);
    card.ok_or(output::InputRefused.into())
}

/// Reads a table of measured runs.
pub(crate) fn read_runs(path: &Path, place: usize, inputs: &mut Inputs) -> anyhow::Result<String> {
    let bytes = files::read_result(path)?;
    let help = "`lightloom calibrate --help` lists its columns";
    kinds::expect(path, &bytes, "a CSV of measured runs", help)?;
    inputs.insert(format!("runs-{}", place + 1), Input::of(files::name(path), &bytes));
    String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8 text", path.display()))
}
