// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Code;

use crate::kinds::{self, KINDS, Reader};
use crate::output::{self, VerbOutcome, WrongUsage};
use crate::table::TextTable;

/// Explain the code of a diagnostic, such as LL0203
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom explain LL0203
  lightloom explain")]
pub struct Arguments {
    /// Code as printed by `lightloom validate` [default: list all codes]
    #[arg(value_name = "CODE")]
    code: Option<String>,
}

pub fn run(arguments: &Arguments, readers: &[Reader]) -> anyhow::Result<VerbOutcome> {
    let codes = kinds::all_codes(readers)?;
    let Some(wanted) = &arguments.code else {
        let mut table = TextTable::new(["code", "means", "in files of kind"]).verbatim();
        for code in &codes {
            table.row([
                code.id.to_owned(),
                code.title.to_owned(),
                kind_of(*code, readers).to_owned(),
            ]);
        }
        output::print(&table.to_string())?;
        return Ok(VerbOutcome::Good);
    };
    let Some(code) = codes.iter().find(|code| code.id.eq_ignore_ascii_case(wanted)) else {
        let message =
            format!("no diagnostic has the code `{wanted}`: `lightloom explain` lists all codes");
        return Err(WrongUsage(message).into());
    };
    let kind = kind_of(*code, readers);
    let about = kinds::named(kind).map_or(String::new(), |kind| format!(" ({})", kind.about));
    output::print(&format!(
        "{}: {}\nin files of kind: {kind}{about}\n`lightloom validate FILE` shows the place and the fix; \
         `lightloom schema KIND` prints all keys.\n",
        code.id, code.title
    ))?;
    Ok(VerbOutcome::Good)
}

fn kind_of(code: Code, readers: &[Reader]) -> &'static str {
    let of_readers = readers.iter().map(|reader| (reader.kind, reader.codes));
    let mut kinds = KINDS.iter().map(|kind| (kind.name, kind.codes())).chain(of_readers);
    kinds.find(|(_, codes)| codes.contains(&code)).map_or("any", |(name, _)| name)
}
