// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use lightloom_emulator::outcome::FaultResult;
use lightloom_emulator::sweep::{SeedRun, SweepSubject};

use super::{junit, summary};
use crate::files;

#[derive(Debug, clap::Args)]
pub struct Reports {
    /// Write JUnit XML: one case per expectation and per fault, with the command that replays it
    #[arg(long, value_name = "FILE", value_parser = files::destination)]
    junit: Option<PathBuf>,
    /// Write a Markdown summary; `--summary "$GITHUB_STEP_SUMMARY"` appends it to the page of a
    /// GitHub job
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
}

impl Reports {
    pub(super) fn is_asked_for(&self) -> bool {
        self.junit.is_some() || self.summary.is_some()
    }

    pub fn write(&self, subject: &SweepSubject, runs: &[SeedRun]) -> anyhow::Result<()> {
        if let Some(path) = &self.junit {
            files::write(path, junit::report(subject, runs).as_bytes())?;
        }
        if let Some(path) = &self.summary {
            write_summary(path, &summary::markdown(subject, runs))?;
        }
        Ok(())
    }
}

/// All steps of a GitHub job share the summary file, so append to it; replace any other file.
fn write_summary(path: &Path, markdown: &str) -> anyhow::Result<()> {
    let shared = std::env::var_os("GITHUB_STEP_SUMMARY").is_some_and(|of_job| path == of_job);
    let before =
        if shared { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
    files::write(path, format!("{before}{markdown}").as_bytes())
}

pub(super) fn replay_command(subject: &SweepSubject, run: &SeedRun) -> String {
    format!("lightloom emulate {} --seed {}", quoted(&subject.file), run.seed.0)
}

pub(super) fn when(fault: &FaultResult) -> String {
    fault.at.map_or("a time after the end of the run".to_owned(), |at| at.to_string())
}

fn quoted(file: &str) -> String {
    if !file.is_empty() && file.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        file.to_owned()
    } else {
        format!("'{}'", file.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_file_names_survive_the_shell() {
        assert_eq!(quoted("a/b-c.yaml"), "a/b-c.yaml");
        assert_eq!(quoted("my file's.yaml"), "'my file'\\''s.yaml'");
    }
}
