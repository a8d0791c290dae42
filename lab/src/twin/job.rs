// SPDX-License-Identifier: Apache-2.0
//! `lightloom twin report` shows a fault's effect on a job.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lightloom::junit::{self, JunitCase, JunitEnd, Suite};
use lightloom::output::{self, Format, FormatArgument, VerbOutcome};
use lightloom_live::report::{self, GroupReport};
use lightloom_live::up;

use super::Dir;

/// Show how a fault affected a job: the dark time and the job's gap.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lightloom twin report --name job --dir /tmp/twin

Requires a run of `lightloom twin exec --all --name job` with an injected fault, in which the job prints each step
as a line of JSON: {\"group\": \"g0\", \"step\": 7, \"unix_us\": 1798675200000000, \"step_us\": 1200}.")]
pub(crate) struct JobReport {
    /// Name of the run.
    #[arg(long, value_name = "NAME", default_value = "job")]
    name: String,
    /// Maximum gap of a group, such as 2s; a longer gap sets exit status 1.
    #[arg(long, value_name = "TIME", value_parser = super::time)]
    within: Option<Duration>,
    /// Write a JUnit file with one case per group, which fails if its gap is longer than --within.
    #[arg(long, value_name = "FILE", requires = "within")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    dir: Dir,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn report(arguments: &JobReport) -> anyhow::Result<VerbOutcome> {
    let folder = arguments.dir.folder()?;
    let report = report::of(&folder, &arguments.name, &up::Programs::find()?)?;
    match arguments.format.format {
        Format::Json => output::print_document("lightloom.twin-job/v1", &report)?,
        Format::Text => output::print(&report.text())?,
    }
    let Some(within) = arguments.within else { return Ok(VerbOutcome::Good) };
    if let Some(file) = &arguments.junit {
        std::fs::write(file, junit(&report, within))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let late = report.groups.iter().filter(|group| is_late(group, within));
    let late: Vec<_> = late.map(|group| group.group.as_str()).collect();
    if late.is_empty() {
        return Ok(VerbOutcome::Good);
    }
    let (late, within) = (late.join(", "), within.as_secs_f64());
    output::note(&format!("the gap of {late} exceeded the limit of {within:.3} s"));
    Ok(VerbOutcome::Bad)
}

fn is_late(group: &GroupReport, within: Duration) -> bool {
    group.gap_ms > within.as_secs_f64() * 1e3
}

fn junit(report: &report::FaultReport, within: Duration) -> String {
    let mut suite = Suite::new(format!("{} {}", report.part, report.fault));
    for group in &report.groups {
        let limit = within.as_secs_f64() * 1e3;
        let ended = match is_late(group, within) {
            true => JunitEnd::Failed(
                format!("no step for {:.2} ms; the limit is {limit:.2} ms", group.gap_ms),
                String::new(),
            ),
            false => JunitEnd::Well,
        };
        let took = Duration::from_secs_f64(group.gap_ms / 1e3);
        suite.add(JunitCase::new(group.group.clone(), "lightloom.twin", ended).took(took));
    }
    junit::document("lightloom twin", &[suite])
}
