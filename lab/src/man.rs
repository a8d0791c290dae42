// SPDX-License-Identifier: Apache-2.0

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use lightloom::files;
use lightloom::output::{self, VerbOutcome};

use crate::cli;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  lightloom man --folder ~/.local/share/man/man1 && man lightloom-emulate")]
pub(crate) struct Arguments {
    /// Output folder, created if missing.
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let folder = &arguments.folder;
    anyhow::ensure!(!folder.is_file(), "{} is a file: name a folder", folder.display());
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut program = cli::command();
    program.build();
    let mut commands = vec![program];
    let mut pages = 0;
    while let Some(command) = commands.pop() {
        let page = clap_mangen::Man::new(command.clone());
        let mut text = Vec::new();
        page.render(&mut text)?;
        files::write(&folder.join(page.get_filename()), &text)?;
        pages += 1;
        commands.extend(command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned());
    }
    output::note(&format!("wrote {pages} pages to {}", folder.display()));
    Ok(VerbOutcome::Good)
}
