// SPDX-License-Identifier: Apache-2.0
//! Internal verbs, which only the twin itself starts.

use std::io::Read;

use anyhow::Context;
use clap::Subcommand;
use lightloom_fabric::plan::{Plan, PlanChange};
use lightloom_live::ranks::Ranks;
use serde::Deserialize;

use super::{Dir, check, hold, up};
use lightloom::output::VerbOutcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Hold the namespaces of a twin.
    #[command(hide = true, after_help = "Example: started by `lightloom twin up`")]
    Hold(Dir),
    /// Run as the first process inside.
    #[command(hide = true, after_help = "Example: started by `lightloom twin hold`")]
    Init(Dir),
    /// Test the kernel's permissions.
    #[command(hide = true, after_help = "Example: started by `lightloom twin up`")]
    Probe,
    /// Read a change by lightloomd from standard input, and write the ranks.
    #[command(hide = true, after_help = "Example: started by lightloomd")]
    Committed(Dir),
}

#[derive(Deserialize)]
struct CommittedHook {
    transaction: Transaction,
}

#[derive(Deserialize)]
struct Transaction {
    plan_sha256: String,
}

pub(crate) fn run(verb: &Verb) -> anyhow::Result<VerbOutcome> {
    match verb {
        Verb::Hold(dir) => hold::hold(&dir.folder()?, &up::Programs::find()?.own)?,
        Verb::Init(dir) => {
            let programs = up::Programs::find()?;
            hold::init(&dir.folder()?, &programs.own, &programs.daemon)?;
        }
        Verb::Probe => check::probe()?,
        Verb::Committed(dir) => committed(dir)?,
    }
    Ok(VerbOutcome::Good)
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kept {
    Plan { plan: Box<Plan> },
    PlanAfter { after: String, change: PlanChange },
}

/// Finds a plan in the journal, which contains it before the first change that refers to it.
fn plan_in(journal: &str, sha256: &str) -> anyhow::Result<Option<Plan>> {
    let whole = format!("{{\"plan\":{{\"sha256\":\"{sha256}\"");
    let digest = format!("\",\"sha256\":\"{sha256}\",\"change\":");
    let mut bodies = journal.lines().rev().filter_map(|line| line.splitn(3, ' ').nth(2));
    let line = bodies.find(|body| {
        body.starts_with(&whole) || (body.starts_with("{\"plan-after\":") && body.contains(&digest))
    });
    let Some(line) = line else { return Ok(None) };
    match serde_json::from_str(line).context("cannot parse the plan")? {
        Kept::Plan { plan } => Ok(Some(*plan)),
        Kept::PlanAfter { after, change } => {
            let before = plan_in(journal, &after)?.context("the previous plan is missing")?;
            change.of(&before).map(Some).context("the previous plan does not match")
        }
    }
}

fn committed(dir: &Dir) -> anyhow::Result<()> {
    let folder = dir.folder()?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let hook: CommittedHook = serde_json::from_str(&text).context("cannot parse the change")?;
    let journal = folder.path().join("state/journal.log");
    let journal = std::fs::read_to_string(&journal)
        .with_context(|| format!("cannot read {}", journal.display()))?;
    let plan = plan_in(&journal, &hook.transaction.plan_sha256)?;
    if let Some(plan) = plan {
        Ranks::write(&folder, &plan)?;
    }
    Ok(())
}
