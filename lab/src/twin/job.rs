// SPDX-License-Identifier: Apache-2.0
//! `lightloom twin ring`, a small elastic job, and `lightloom twin report`, what a fault did to it.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use lightloom_live::{report, ring};

use super::Dir;
use crate::cli::{Format, FormatArgument};
use crate::output::{self, Outcome, WrongUsage};

/// Takes part in an all-reduce over the light of this node's group, and prints each step as a line of JSON.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lightloom twin exec --all --name ring --timeout 60s --dir /tmp/twin -- lightloom twin ring --steps 500

It runs in a node, which LIGHTLOOM_NODE names. When a neighbour is lost it waits for the next ranks.json and goes on.")]
pub(crate) struct Ring {
    /// Steps of the job.
    #[arg(long, value_name = "N", default_value_t = 200)]
    steps: u64,
    /// What is summed in each step, such as 1MiB.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size)]
    size: usize,
    /// The pause between two steps, for the computing of the job.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = super::time)]
    pause: Duration,
    /// The node.
    #[arg(long, value_name = "NODE", env = "LIGHTLOOM_NODE")]
    node: String,
    #[command(flatten)]
    dir: Dir,
}

/// Shows what a fault did to a run of `twin ring`: how long light was away, and the job's gap.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  lightloom twin report --name ring --dir /tmp/twin

After `lightloom twin exec --all --name ring -- lightloom twin ring` and a `lightloom twin fault` in its middle.")]
pub(crate) struct Report {
    /// What the run was called.
    #[arg(long, value_name = "NAME", default_value = "ring")]
    name: String,
    #[command(flatten)]
    dir: Dir,
    #[command(flatten)]
    format: FormatArgument,
}

fn size(text: &str) -> Result<usize, String> {
    let bytes: lightloom_units::Bytes =
        text.parse().map_err(|error| format!("{error}: write it like 1MiB"))?;
    let bytes = usize::try_from(bytes.get()).unwrap_or(usize::MAX);
    if (4..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err("write 4B to 1GiB".to_owned()) }
}

pub(crate) fn ring(arguments: &Ring) -> anyhow::Result<Outcome> {
    if arguments.steps == 0 {
        return Err(WrongUsage("a job has at least one step: write --steps 1".into()).into());
    }
    let options =
        ring::Options { steps: arguments.steps, bytes: arguments.size, pause: arguments.pause };
    let show = |step: &ring::Step| {
        let mut stdout = std::io::stdout().lock();
        let line = serde_json::to_string(step).unwrap_or_default();
        // Nobody may read it any more; the ring goes on for the others.
        let _unread = writeln!(stdout, "{line}");
    };
    ring::run(&arguments.dir.folder()?, &arguments.node, &options, &show)?;
    Ok(Outcome::Good)
}

pub(crate) fn report(arguments: &Report) -> anyhow::Result<Outcome> {
    let folder = arguments.dir.folder()?;
    let report = report::of(&folder, &arguments.name)?;
    match arguments.format.format {
        Format::Json => output::print_json(&report)?,
        Format::Text => output::print(&report.text())?,
    }
    Ok(Outcome::Good)
}
