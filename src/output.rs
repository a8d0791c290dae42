// SPDX-License-Identifier: Apache-2.0
//! Writes results to standard output and everything else to standard error, and sets the exit status.
//!
//! Only this module prints. A closed pipe (`| head`) ends the program silently; other write failures are errors.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Context;
use lightloom_fabric::document::{self, Diagnostic, Style};
use lightloom_fabric::provenance::Inputs;
use serde::Serialize;

use crate::result::ResultDocument;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbOutcome {
    /// Exit status 0.
    Good,
    /// Exit status 1. The verb has already reported the reason.
    Bad,
    Status(u8),
}

/// Invalid arguments that the parser cannot detect, with exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);

/// The errors have already been printed, and the exit status is 1.
#[derive(Debug, thiserror::Error)]
#[error("the input was rejected")]
pub struct InputRefused;

/// Flatten this into a verb's arguments.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct FormatArgument {
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned tables with units
    #[default]
    Text,
    /// One JSON document
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`
    #[default]
    Auto,
    Always,
    Never,
}

static COLOUR: OnceLock<Colour> = OnceLock::new();

/// Must be called once, before any output.
pub fn set_colour(colour: Colour) {
    COLOUR.set(colour).expect("the colour is set once, by main");
}

pub fn coloured() -> bool {
    coloured_on(&io::stderr())
}

pub fn coloured_on(stream: &impl IsTerminal) -> bool {
    match COLOUR.get().copied().unwrap_or_default() {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            stream.is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
        }
    }
}

pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    printed.context("cannot write to standard output")
}

pub fn print_json(result: &impl Serialize) -> anyhow::Result<()> {
    print(&json(result)?)
}

pub fn print_document(schema: &'static str, result: &impl Serialize) -> anyhow::Result<()> {
    print_json(&ResultDocument::new(schema, Inputs::new(), result))
}

pub fn json(result: &impl Serialize) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(result)?;
    text.push('\n');
    Ok(text)
}

pub fn diagnostics(diagnostics: &[Diagnostic]) {
    let style = if coloured() { Style::Coloured } else { Style::Plain };
    let _ = io::stderr().lock().write_all(document::render(diagnostics, style).as_bytes());
}

/// Ignores write failures.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

pub fn conclude(end: anyhow::Result<VerbOutcome>) -> ExitCode {
    match end {
        Ok(VerbOutcome::Good) => ExitCode::SUCCESS,
        Ok(VerbOutcome::Bad) => ExitCode::from(1),
        Ok(VerbOutcome::Status(status)) => ExitCode::from(status),
        Err(error) if error.is::<InputRefused>() => ExitCode::from(1),
        Err(error) if reader_went_away(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("{} {error:#}", error_label()));
            ExitCode::from(if error.is::<WrongUsage>() { 2 } else { 1 })
        }
    }
}

fn error_label() -> &'static str {
    if coloured() { "\u{1b}[1m\u{1b}[91merror\u{1b}[0m:" } else { "error:" }
}

fn reader_went_away(error: &anyhow::Error) -> bool {
    error
        .root_cause()
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
