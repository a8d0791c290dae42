// SPDX-License-Identifier: Apache-2.0
//! What the twin starts itself: no user types these.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use clap::Subcommand;
use lightloom_fabric::plan::Plan;
use lightloom_live::ranks::Ranks;
use serde::Deserialize;

use super::{Dir, check, hold, up};
use lightloom::output::VerbOutcome;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Holds the namespaces of a twin.
    #[command(hide = true, after_help = "Example: started by `lightloom twin up`")]
    Hold(Dir),
    /// The first process inside.
    #[command(hide = true, after_help = "Example: started by `lightloom twin hold`")]
    Init(Dir),
    /// Tries what the kernel allows.
    #[command(hide = true, after_help = "Example: started by `lightloom twin up`")]
    Probe,
    /// Hears of a change of lightloomd, on standard input, and writes the ranks.
    #[command(hide = true, after_help = "Example: started by lightloomd")]
    Committed(Dir),
}

#[derive(Deserialize)]
struct Hook {
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

/// A line of the journal that has a plan.
#[derive(Deserialize)]
struct Kept {
    plan: KeptPlan,
}

#[derive(Deserialize)]
struct KeptPlan {
    plan: Plan,
}

/// The plan of this digest, which the journal has before the first change that names it.
fn plan_in(journal: &Path, sha256: &str) -> anyhow::Result<Option<Plan>> {
    let text = std::fs::read_to_string(journal)
        .with_context(|| format!("cannot read {}", journal.display()))?;
    let of_plan = format!("{{\"plan\":{{\"sha256\":\"{sha256}\"");
    // Number and hash come before what a line says.
    let mut bodies = text.lines().rev().filter_map(|line| line.splitn(3, ' ').nth(2));
    let Some(line) = bodies.find(|body| body.starts_with(&of_plan)) else { return Ok(None) };
    let kept: Kept = serde_json::from_str(line).context("the plan is not understood")?;
    Ok(Some(kept.plan.plan))
}

fn committed(dir: &Dir) -> anyhow::Result<()> {
    let folder = dir.folder()?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let hook: Hook = serde_json::from_str(&text).context("the change is not understood")?;
    let journal = folder.path().join("state/journal.log");
    let plan = plan_in(&journal, &hook.transaction.plan_sha256)?;
    // Changes without a plan move no ring.
    if let Some(plan) = plan {
        Ranks::write(&folder, &plan)?;
    }
    Ok(())
}
