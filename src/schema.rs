// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

use clap::builder::PossibleValue;

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
    #[arg(value_name = "KIND", value_parser = KindName)]
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

#[derive(Clone, Copy)]
pub struct KindName;

impl clap::builder::TypedValueParser for KindName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let names = KINDS.iter().map(|kind| kind.name);
        clap::builder::PossibleValuesParser::new(names).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(KINDS.iter().map(|kind| PossibleValue::new(kind.name).help(kind.about))))
    }
}
