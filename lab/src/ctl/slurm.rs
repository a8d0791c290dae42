// SPDX-License-Identifier: Apache-2.0
//! `lightloom ctl slurm` keeps Slurm in agreement with the plan in force and the known faults.
//!
//! Each pass computes the difference between desired and observed state and applies it. Passes do
//! not share state, so a restart is safe. It changes nothing while the daemon is unreachable, does
//! not know its plan, or sends a response that is older than a previous one.

pub(crate) mod agree;
pub(crate) mod read;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::Command as Process;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use clap::Args;
use lightloom_daemon_api::status::Status;
use lightloom_daemon_api::text::count;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::{Plan, digest};
use lightloom_planner::khop;
use lightloom_report::export::ExportNames;
use serde_json::{Value, json};

use self::agree::{Desired, Observed, SchedulerChanges, SchedulerCommand};
use super::CtlSession;
use crate::host_names::HostNames;
use lightloom::output::{self, VerbOutcome};
use lightloom::result::ResultFormat;
use lightloom::{files, plan};

/// Time limit for a long poll of the daemon, shorter than the client's timeout.
const CHANGE_WITHIN_MS: u64 = 800;
const ASK_EVERY: Duration = Duration::from_millis(50);
const TRY_EVERY: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// One pass each to drain and load, to resume, and to check, plus a spare one.
const ROUNDS_MAX: usize = 4;

#[derive(Debug, Args)]
pub(super) struct SlurmArguments {
    /// Fabric file of the daemon.
    fabric: PathBuf,
    /// The file `topology.conf` that slurmctld reads; it is overwritten.
    #[arg(long, value_name = "FILE", required_unless_present = "starts")]
    topology: Option<PathBuf>,
    #[command(flatten)]
    names: HostNames,
    /// Reconcile once and exit, with status 1 if differences remain.
    #[arg(long)]
    once: bool,
    /// Show the changes, but do not make them.
    #[arg(long)]
    dry_run: bool,
    /// Interval in seconds between readings of Slurm while the daemon reports no change.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = lightloom::number::whole::<u64>(1..=3600))]
    every: u64,
    /// For PrologSlurmctld: exit with status 1 if no job may start on these nodes; change nothing.
    #[arg(long, value_name = "NODES", conflicts_with_all = ["topology", "once", "dry_run"])]
    starts: Option<String>,
    /// Path of `scontrol`, which changes Slurm.
    #[arg(long, value_name = "PROGRAM", default_value = "scontrol")]
    scontrol: PathBuf,
}

const UNCHANGED: &str = "slurmctld loaded a different topology: is --topology the file that it reads, and does \
    slurm.conf have `TopologyPlugin=topology/tree`?";

/// Returns the reason if a difference remains.
fn agree(
    desired: &Desired,
    mut observe: impl FnMut() -> anyhow::Result<Observed>,
    mut change: impl FnMut(&SchedulerCommand) -> anyhow::Result<()>,
) -> anyhow::Result<Option<String>> {
    let mut is_loaded = false;
    for _ in 0..ROUNDS_MAX {
        let SchedulerChanges { commands, blocked } = agree::changes(desired, &observe()?);
        if commands.is_empty() {
            return Ok(blocked);
        }
        for command in &commands {
            if let SchedulerCommand::Load { .. } = command {
                ensure!(!is_loaded, UNCHANGED);
                is_loaded = true;
            }
            change(command)?;
        }
    }
    Ok(Some("another program keeps changing Slurm".to_owned()))
}

struct Scontrol<'a>(&'a SlurmArguments);

impl Scontrol<'_> {
    fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let shown = format!("{} {}", self.0.scontrol.display(), arguments.join(" "));
        let output = Process::new(&self.0.scontrol).args(arguments).output();
        let output = output.with_context(|| shown.clone())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{shown}` failed: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn observe(&self) -> anyhow::Result<Observed> {
        let nodes = self.run(&["--all", "--oneliner", "show", "node"])?;
        let rings = read::rings(&self.run(&["show", "topology"])?);
        Ok(Observed { nodes: read::nodes(&nodes).collect(), rings })
    }

    fn change(&self, command: &SchedulerCommand, desired: &Desired) -> anyhow::Result<()> {
        let (nodes, what) = match command {
            SchedulerCommand::Drain { nodes, reason } => {
                (nodes, vec!["state=drain".to_owned(), format!("reason={reason}")])
            }
            SchedulerCommand::Explain { nodes, reason } => {
                (nodes, vec![format!("reason={reason}")])
            }
            // `undrain` ends only the drain, so a node that is also down stays down.
            SchedulerCommand::Resume { nodes } => (nodes, vec!["state=undrain".to_owned()]),
            SchedulerCommand::Load { .. } => {
                let file = self.0.topology.as_deref().context("--topology FILE is missing")?;
                files::write(file, desired.topology.as_bytes())?;
                return self.run(&["reconfigure"]).map(drop);
            }
        };
        let nodes = format!("nodename={}", nodes.join(","));
        let what = what.iter().map(String::as_str);
        let arguments: Vec<&str> = ["update", &nodes].into_iter().chain(what).collect();
        self.run(&arguments).map(drop)
    }
}

#[derive(Default)]
struct DaemonPlan {
    last: (u64, u64),
    plan: Option<(String, Plan)>,
}

pub(super) fn run(session: &CtlSession, arguments: &SlurmArguments) -> anyhow::Result<VerbOutcome> {
    let fabric = lightloom::fabric::read(&arguments.fabric)?;
    let names = arguments.names.read("n", fabric.hbd.nodes())?;
    if let Some(nodes) = &arguments.starts {
        let desired = status(session, "/v1/status")
            .and_then(|status| DaemonPlan::default().wanted(session, &fabric, &names, &status));
        let why = match desired {
            Ok(desired) => agree::objection(&desired, &read::hosts(nodes)),
            Err(error) => {
                output::note(&format!("not checked: {error:#}"));
                None
            }
        };
        return Ok(why.map_or(VerbOutcome::Good, |why| {
            output::note(&format!("job refused on {nodes}: {why}"));
            VerbOutcome::Bad
        }));
    }
    follow(session, &Scontrol(arguments), &fabric, &names)
}

fn follow(
    session: &CtlSession,
    slurm: &Scontrol<'_>,
    fabric: &Fabric,
    names: &ExportNames,
) -> anyhow::Result<VerbOutcome> {
    let how = slurm.0;
    let mut known = DaemonPlan::default();
    if how.once || how.dry_run {
        let desired = known.wanted(session, fabric, names, &status(session, "/v1/status")?)?;
        return match how.dry_run {
            true => preview(session, slurm, &desired),
            false => once(session, slurm, &desired),
        };
    }
    let every = Duration::from_secs(how.every);
    let mut said = String::new();
    let (mut last, mut look_at, mut retry) = (None, Instant::now(), TRY_EVERY);
    let mut ask = "/v1/status".to_owned();
    loop {
        let status = status(session, &ask);
        let since = status.as_ref().map_or(0, |status| status.changes);
        ask = format!("/v1/status?wait_ms={CHANGE_WITHIN_MS}&since={since}");
        let desired = status.and_then(|status| known.wanted(session, fabric, names, &status));
        let desired = match desired {
            Ok(desired) => desired,
            Err(error) => {
                note_once(&mut said, format!("Slurm is left unchanged: {error:#}"));
                std::thread::sleep(TRY_EVERY);
                // Reread Slurm, which may have been changed while the daemon was down.
                (ask, last) = ("/v1/status".to_owned(), None);
                continue;
            }
        };
        let is_news = last.as_ref() != Some(&desired);
        if is_news || Instant::now() >= look_at {
            let ended = pass(session, slurm, &desired);
            let left = ended.unwrap_or_else(|error| Some(format!("{error:#}")));
            retry = if left.is_some() && !is_news { (retry * 2).min(RETRY_MAX) } else { TRY_EVERY };
            look_at = Instant::now() + if left.is_some() { retry } else { every };
            let text = match left {
                Some(why) => format!("Slurm does not match the plan yet: {why}"),
                None => agreed(&desired),
            };
            note_once(&mut said, text);
            last = Some(desired);
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Prints `text` unless it was the last to be printed.
fn note_once(said: &mut String, text: String) {
    if *said != text {
        output::note(&text);
        *said = text;
    }
}

fn status(session: &CtlSession, path: &str) -> anyhow::Result<Status> {
    session.present(path)?.granted()
}

fn pass(
    session: &CtlSession,
    slurm: &Scontrol<'_>,
    desired: &Desired,
) -> anyhow::Result<Option<String>> {
    agree(
        desired,
        || slurm.observe(),
        |command| {
            slurm.change(command, desired)?;
            did(session, command, desired)
        },
    )
}

fn once(
    session: &CtlSession,
    slurm: &Scontrol<'_>,
    desired: &Desired,
) -> anyhow::Result<VerbOutcome> {
    let left = pass(session, slurm, desired)?;
    let is_good = left.is_none();
    output::note(&left.unwrap_or_else(|| agreed(desired)));
    Ok(if is_good { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn preview(
    session: &CtlSession,
    slurm: &Scontrol<'_>,
    desired: &Desired,
) -> anyhow::Result<VerbOutcome> {
    let SchedulerChanges { commands, blocked } = agree::changes(desired, &slurm.observe()?);
    commands.iter().try_for_each(|command| did(session, command, desired))?;
    let shown = if commands.is_empty() { agreed(desired) } else { "nothing was changed".into() };
    output::note(&blocked.unwrap_or(shown));
    Ok(VerbOutcome::Good)
}

fn did(session: &CtlSession, command: &SchedulerCommand, desired: &Desired) -> anyhow::Result<()> {
    if session.format == ResultFormat::Text {
        let (did, nodes, why) = match command {
            SchedulerCommand::Drain { nodes, reason } => {
                ("drained", nodes.join(","), reason.as_str())
            }
            SchedulerCommand::Explain { nodes, reason } => {
                ("still drained", nodes.join(","), reason.as_str())
            }
            SchedulerCommand::Load { rings } => {
                ("loaded", format!("{rings} rings"), plan_line(desired))
            }
            SchedulerCommand::Resume { nodes } => ("resumed", nodes.join(","), plan_line(desired)),
        };
        return output::print(&format!("{did} {nodes}: {why}\n"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut line = serde_json::to_value(command)?;
    line["unix_ms"] = json!(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    line["plan"] = Value::from(plan_line(desired).trim_start_matches("plan "));
    output::print(&format!("{line}\n"))
}

fn plan_line(desired: &Desired) -> &str {
    desired.topology.lines().next().unwrap_or_default().trim_start_matches("# ")
}

fn agreed(desired: &Desired) -> String {
    let (rings, drained) = (desired.rings.len(), desired.drained.len());
    format!(
        "Slurm agrees with {}: {}, {} drained or to be drained",
        plan_line(desired),
        count(rings, "ring"),
        count(drained, "node")
    )
}

impl DaemonPlan {
    fn wanted(
        &mut self,
        ctl: &CtlSession,
        fabric: &Fabric,
        names: &ExportNames,
        status: &Status,
    ) -> anyhow::Result<Desired> {
        let plan = self.plan_of(ctl, fabric, status)?;
        agree::desired(fabric, plan, &status.plan_sha256, names, &status.broken_parts)
    }

    fn plan_of(
        &mut self,
        ctl: &CtlSession,
        fabric: &Fabric,
        status: &Status,
    ) -> anyhow::Result<&Plan> {
        let epoch = status.leadership.as_ref().map_or(0, |leads| leads.epoch);
        let now = (epoch, status.version);
        ensure!(now >= self.last, "the daemon's answer is older than its previous one");
        self.last = now;
        if let Some(other) = &status.other_fabric {
            bail!("{other}");
        }
        ensure!(!status.plan_sha256.is_empty(), "no plan is in force");
        if self.plan.as_ref().is_none_or(|(name, _)| *name != status.plan_sha256) {
            let found: Plan = ctl.present("/v1/plan")?.granted()?;
            ensure!(digest(&found) == status.plan_sha256, "the plan is changing");
            let (_, faults) = khop::from_document(fabric, &found)?;
            plan::prove(fabric, &faults, &found)?;
            self.plan = Some((status.plan_sha256.clone(), found));
        }
        self.plan.as_ref().map(|(_, plan)| plan).context("a plan was just read")
    }
}
