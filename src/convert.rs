// SPDX-License-Identifier: Apache-2.0
//! `lightloom convert`: a fabric file or a plan of version 1 as one of version 2.

use std::path::{Path, PathBuf};

use anyhow::Context;
use lightloom_fabric::file;
use lightloom_fabric::plan;
use lightloom_fabric::provenance;

use crate::files;
use crate::output::{self, VerbOutcome};

/// Rewrites a fabric file or a plan of version 1 as one of version 2.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom convert old.yaml -o new.yaml
  lightloom convert old-plan.json --fabric old.yaml -o new-plan.json

Comments and layout of a fabric file stay. A plan is rewritten for the converted fabric file, and proven on it.")]
pub struct Arguments {
    /// The fabric file or plan.
    file: PathBuf,
    /// For a plan: the fabric file that it was made from, old or converted.
    #[arg(long, value_name = "FILE")]
    fabric: Option<PathBuf>,
    /// Where to write what comes out [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Rewrites a file.
///
/// # Errors
/// If it cannot be read, has mistakes or would not mean the same.
pub fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let bytes = read(&arguments.file)?;
    let converted = if plan::is_plan(&bytes) {
        of_plan(arguments, &bytes)?
    } else {
        if arguments.fabric.is_some() {
            let message = "`--fabric` is for a plan; this is a fabric file";
            return Err(output::WrongUsage(message.into()).into());
        }
        match of_fabric(&arguments.file, &bytes)? {
            Some(text) => text,
            None => {
                output::note(&format!("{} is of version 2 already", arguments.file.display()));
                bytes
            }
        }
    };
    match &arguments.output {
        Some(path) => files::write(path, &converted)?,
        None => output::print(std::str::from_utf8(&converted)?)?,
    }
    Ok(VerbOutcome::Good)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// A fabric file of version 2. `None` if it is one already.
fn of_fabric(path: &Path, bytes: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let name = || path.display().to_string();
    let before = crate::fabric::of_any_version(path, bytes)?;
    let text = std::str::from_utf8(bytes).with_context(name)?;
    let Some(converted) = file::convert(text).with_context(name)? else { return Ok(None) };
    let mut after = crate::fabric::of_document(path, Ok(converted.clone().into_bytes()))?;
    after.sha256.clone_from(&before.sha256);
    anyhow::ensure!(
        after == before,
        "{} would not mean the same: write `kind: fabric` and `version: 2` by hand",
        name()
    );
    Ok(Some(converted.into_bytes()))
}

fn of_plan(arguments: &Arguments, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let Some(path) = &arguments.fabric else {
        let message = "a plan is for a fabric: name the file that it was made from with `--fabric`";
        return Err(output::WrongUsage(message.into()).into());
    };
    let before = read(path)?;
    let converted = of_fabric(path, &before)?.unwrap_or_else(|| before.clone());
    let fabric = crate::fabric::of_document(path, Ok(converted))?;
    let plan = lightloom_planner::convert::convert(bytes, &fabric, &provenance::sha256(&before))
        .with_context(|| arguments.file.display().to_string())?;
    let mut text = serde_json::to_vec(&plan)?;
    text.push(b'\n');
    Ok(text)
}
