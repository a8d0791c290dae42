// SPDX-License-Identifier: Apache-2.0
//! `lightloom twin ring` runs an elastic job, and `lightloom twin report` shows a fault's effect.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lightloom::junit::{self, JunitCase, JunitEnd, Suite};
use lightloom::output::{self, Format, FormatArgument, VerbOutcome, WrongUsage};
use lightloom_live::report::{self, GroupReport};
use lightloom_live::{ring, up};

use super::Dir;

/// Take part in an all-reduce over the circuits of this node's group, and print each step as a line of
/// JSON.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lightloom twin exec --all --name ring --timeout 60s --dir /tmp/twin -- lightloom twin ring --steps 500

Runs in the node $LIGHTLOOM_NODE. If a neighbour is lost, it waits for the next ranks.json and continues.")]
pub(crate) struct JobRing {
    /// Number of steps in the job.
    #[arg(long, value_name = "N", default_value_t = 200)]
    steps: u64,
    /// Size of the vector that each step sums, such as 1MiB.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    size: usize,
    /// Pause between two steps, which represents computation.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = super::time)]
    pause: Duration,
    /// Node that takes part.
    #[arg(long, value_name = "NODE", env = "LIGHTLOOM_NODE")]
    node: String,
    #[command(flatten)]
    dir: Dir,
}

/// Show how a fault affected a run of `twin ring`: the dark time and the job's gap.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lightloom twin report --name ring --dir /tmp/twin

Requires a run of `lightloom twin exec --all --name ring -- lightloom twin ring` with an injected fault.")]
pub(crate) struct JobReport {
    /// Name of the run.
    #[arg(long, value_name = "NAME", default_value = "ring")]
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

fn size(text: &str) -> Result<usize, String> {
    let bytes: lightloom_units::Bytes =
        text.parse().map_err(|error| format!("{error}: expected a size such as 1MiB"))?;
    let bytes = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
    if (4..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err("expected 4B to 1GiB".to_owned()) }
}

pub(crate) fn ring(arguments: &JobRing) -> anyhow::Result<VerbOutcome> {
    if arguments.steps == 0 {
        return Err(
            WrongUsage("a job must have at least one step: use --steps 1 or more".into()).into()
        );
    }
    let options =
        ring::Options { steps: arguments.steps, bytes: arguments.size, pause: arguments.pause };
    ring::run(&arguments.dir.folder()?, &arguments.node, &options, &|step| {
        let mut stdout = std::io::stdout().lock();
        let line = serde_json::to_string(step).unwrap_or_default();
        // Ignore errors, because the ring must continue even if the output has no reader.
        let _unread = writeln!(stdout, "{line}");
    })?;
    Ok(VerbOutcome::Good)
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
