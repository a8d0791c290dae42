// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};

use crate::files;
use crate::kinds::{self, KINDS};
use crate::output::{self, FormatArgument, VerbOutcome};

/// Print the JSON Schema of a file kind, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  lightloom schema fabric > fabric.schema.json
  # and at the top of fabric.yaml, for editors with a YAML language server:
  # yaml-language-server: $schema=fabric.schema.json")]
pub struct Arguments {
    /// File kind
    #[arg(value_name = "KIND", value_parser = kind_name())]
    kind: String,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Accepted for consistency; a schema is JSON in either format.
    #[command(flatten)]
    _format: FormatArgument,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let kind = kinds::named(&arguments.kind).expect("the argument parser knows the kinds");
    match &arguments.output {
        Some(path) => files::write(path, kind.schema.as_bytes())?,
        None => output::print(kind.schema)?,
    }
    Ok(VerbOutcome::Good)
}

/// Returns the parser of a file kind's name.
pub fn kind_name() -> PossibleValuesParser {
    PossibleValuesParser::new(
        KINDS.iter().map(|kind| PossibleValue::new(kind.name).help(kind.about)),
    )
}
