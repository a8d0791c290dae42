// SPDX-License-Identifier: Apache-2.0
//! `lightloom ctl`: the client of `lightloomd`, over its Unix socket or mutual TLS. The exit status
//! is 0 only if the daemon executed the request.

mod address;
mod client;
mod commission;
mod page;
mod patience;
mod phase;
mod show;
pub(crate) mod slurm;
mod time;
mod wanted;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use lightloom_daemon_api::answer::Answer;
use lightloom_daemon_api::body::{AdoptBody, DevicesBody, ResumeBody, TxnBody};
use lightloom_daemon_api::diff::Diff;
use lightloom_daemon_api::drift::DriftReport;
use serde::Serialize;
use serde::de::DeserializeOwned;

use address::{Certificates, DaemonAddress};
use client::{DaemonClient, Response};
use commission::CommissionArguments;
use lightloom::output::{self, VerbOutcome, WrongUsage};
use lightloom::result::ResultFormat;
use show::{DoneAtOnce, PreviewStyle};
use slurm::SlurmArguments;
use wanted::{ApplyArguments, FaultArguments, RollbackArguments, Wanted};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom ctl status
  lightloom ctl apply plan.json --dry-run
  lightloom ctl apply plan.json --confirm-within 5m
  lightloom ctl confirm 7")]
pub(crate) struct Arguments {
    /// Socket of the daemon or `https://HOST:PORT`; several daemons are separated by commas, and
    /// the leader is used [default: $LIGHTLOOM_SOCKET, else /run/lightloom/lightloomd.sock].
    // Clap would show the variable's value in the help if it read it.
    #[arg(long, global = true, display_order = 800, value_name = "PATH", value_delimiter = ',')]
    socket: Vec<String>,
    #[command(flatten)]
    certificates: Certificates,
    /// Output format; only status, drift, journal and commission support `csv` and `markdown`.
    #[arg(
        long,
        global = true,
        display_order = 800,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    format: ResultFormat,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show alarms with their remedies, then devices and recent transactions.
    #[command(after_help = "Examples:\n  lightloom ctl status\n  lightloom ctl status --check")]
    Status {
        /// Exit with status 1 unless all is well.
        #[arg(long)]
        check: bool,
    },
    /// Preview a plan's changes to devices, rings and circuits: every move, then the bytes.
    #[command(
        after_help = "Examples:\n  lightloom ctl diff plan.json\n  lightloom ctl diff plan.json --phase weights"
    )]
    Diff(Wanted),
    /// Apply a plan and wait for the result.
    #[command(
        after_help = "Examples:\n  lightloom ctl apply plan.json --confirm-within 5m\n  lightloom ctl apply --again"
    )]
    Apply(ApplyArguments),
    /// Request a phase of the plan in force and wait for its light; without a name, show the phases.
    #[command(after_help = "Examples:\n  lightloom ctl phase\n  \
                      lightloom ctl phase weights --in 40ms --for 800ms --lease 5s")]
    Phase(phase::Phase),
    /// Confirm a pending transaction.
    #[command(after_help = "Example:\n  lightloom ctl confirm 7")]
    Confirm {
        /// Transaction number.
        txn: u32,
    },
    /// Undo a transaction and all later ones, but keep bypassing faults found since.
    #[command(
        after_help = "Examples:\n  lightloom ctl rollback 7 --dry-run\n  lightloom ctl rollback 7"
    )]
    Rollback(RollbackArguments),
    /// Drain traffic from devices, or from all devices of a node, and keep them drained.
    #[command(after_help = "Example:\n  lightloom ctl drain n17")]
    Drain(Devices),
    /// Release drained traffic.
    #[command(after_help = "Example:\n  lightloom ctl undrain n17")]
    Undrain(Devices),
    /// Re-enable automatic changes after ten of them within an hour.
    #[command(after_help = "Example:\n  lightloom ctl resume")]
    Resume,
    /// Show crossed cables and positions that differ from the journal; exit status 1 if there are
    /// any, or if a device or the journal cannot be read.
    #[command(after_help = "Example:\n  lightloom ctl drift")]
    Drift,
    /// Take over the current circuits of devices without switching them.
    #[command(
        after_help = "Examples:\n  lightloom ctl adopt n17/b0 ocs0\n  lightloom ctl adopt all"
    )]
    Adopt {
        #[command(flatten)]
        devices: Devices,
        /// Adopt even if this overrides the plan's positions.
        #[arg(long)]
        against_plan: bool,
    },
    /// Report failed or repaired parts: the daemon replans and applies the bypass.
    #[command(after_help = "Examples:\n  lightloom ctl fault n17 --dry-run\n  \
                      lightloom ctl fault n9,n10\n  lightloom ctl fault --repaired n17")]
    Fault(FaultArguments),
    /// Show a transceiver's firmware, state and power-on path.
    #[command(after_help = "Example:\n  lightloom ctl module n17/b0")]
    Module {
        /// Transceiver, such as `n17/b0`.
        device: String,
    },
    /// Check modules and cables against the fabric file by lighting ends without a circuit, and
    /// save the findings; exit status 1 if anything differs.
    #[command(after_help = "Examples:\n  lightloom ctl commission fabric.yaml\n  \
                      lightloom ctl commission fabric.yaml --inventory modules.csv --cabling cables.csv")]
    Commission(CommissionArguments),
    /// Show past transactions, newest first.
    #[command(after_help = "Example:\n  lightloom ctl journal --last 50")]
    Journal {
        /// Number of entries.
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: usize,
        /// Show the raw journal records instead, oldest first, and any corruption.
        #[arg(long)]
        records: bool,
    },
    /// Redraw the status with each change until interrupted, even while the daemon is down.
    #[command(after_help = "Example:\n  lightloom ctl watch")]
    Watch,
    /// Wait until the daemon is up and has read every device, except bypassed ones.
    #[command(after_help = "Examples:\n  lightloom ctl wait --for 2m\n  lightloom ctl wait n17")]
    Wait {
        /// Wait only for these devices, or the devices of nodes such as `n17`, even if bypassed.
        devices: Vec<String>,
        /// Time limit; exit status 1 after that.
        #[arg(long = "for", value_name = "TIME", value_parser = time::duration, default_value = "30s")]
        within: Duration,
    },
    /// Keep Slurm in sync with the plan until interrupted: load rings as topology, drain nodes
    /// that have failed or are not in a ring, and resume them later.
    #[command(after_help = "Examples:
  lightloom ctl slurm fabric.yaml --topology /etc/slurm/topology.conf --dry-run
  lightloom ctl slurm fabric.yaml --topology /etc/slurm/topology.conf --hostname 'gpu{:04}'")]
    Slurm(SlurmArguments),
    /// Serve the live status page to browsers on this machine, read-only.
    #[command(after_help = "Example:\n  lightloom ctl page --listen 127.0.0.1:8420")]
    Page {
        /// Address and port on the loopback interface.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8420")]
        listen: SocketAddr,
    },
}

#[derive(Debug, Args)]
struct Devices {
    /// Devices, or nodes such as `n17`; with adopt, `all` selects every reachable device.
    #[arg(required = true)]
    devices: Vec<String>,
}

pub(crate) fn read_at<T: DeserializeOwned>(socket: &Path, path: &str) -> anyhow::Result<T> {
    DaemonClient::new(vec![DaemonAddress::Socket(socket.to_owned())]).get(path)?.granted()
}

const SOCKET: &str = "/run/lightloom/lightloomd.sock";

fn named(arguments: &Arguments) -> Vec<String> {
    if !arguments.socket.is_empty() {
        return arguments.socket.clone();
    }
    let named = std::env::var("LIGHTLOOM_SOCKET").ok().filter(|paths| !paths.is_empty());
    named.as_deref().unwrap_or(SOCKET).split(',').map(str::to_owned).collect()
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let is_table = matches!(
        arguments.verb,
        Verb::Status { .. } | Verb::Drift | Verb::Journal { .. } | Verb::Commission(_)
    );
    if matches!(arguments.format, ResultFormat::Csv | ResultFormat::Markdown) && !is_table {
        let why = "only status, drift, journal and commission support csv and markdown";
        return Err(WrongUsage(why.into()).into());
    }
    let addresses = DaemonAddress::all(&named(arguments), &arguments.certificates)?;
    let client = DaemonClient::new(addresses);
    let session = CtlSession { client, format: arguments.format };
    match &arguments.verb {
        Verb::Status { check } => session.status(*check),
        Verb::Drift => session.drift(),
        Verb::Journal { last, records: true } => {
            session.look(&format!("/v1/log?last={last}"), show::records)
        }
        Verb::Journal { last, records: false } => {
            session.look("/v1/journal", |all: &Vec<_>| show::transactions(all, *last))
        }
        Verb::Module { device } => session.look(&format!("/v1/module/{device}"), show::module),
        Verb::Commission(wanted) => commission::run(&session, wanted),
        Verb::Watch => session.watch(),
        Verb::Wait { devices, within } => session.wait(&wanted::listed(devices), *within),
        Verb::Slurm(wanted) => slurm::run(&session, wanted),
        Verb::Page { listen } => page::serve(&session.client, *listen),
        Verb::Diff(wanted) => {
            let preview = PreviewStyle { by_device: true, ..wanted.preview() };
            session.diff("diff", &wanted.body()?, preview)
        }
        Verb::Apply(ApplyArguments { wanted, dry_run: true, .. }) => {
            session.diff("diff", &wanted.body()?, wanted.preview())
        }
        Verb::Apply(apply) => session.apply(apply),
        Verb::Phase(phase) => phase::run(&session, phase),
        Verb::Confirm { txn } => {
            let body = TxnBody { request_id: fresh_id("confirm"), txn: *txn };
            session.change("confirm", &body, &DoneAtOnce::Confirmed(*txn))
        }
        Verb::Rollback(back) if back.dry_run => {
            session.diff("rollback/diff", &back.body(String::new())?, back.preview())
        }
        Verb::Rollback(back) => session.rollback(back),
        Verb::Drain(devices) => {
            let body = devices.body("drain");
            session.change("drain", &body, &DoneAtOnce::Drained(&body.devices))
        }
        Verb::Undrain(devices) => {
            let body = devices.body("undrain");
            session.change("undrain", &body, &DoneAtOnce::Undrained(&body.devices))
        }
        Verb::Resume => {
            let body = ResumeBody { request_id: fresh_id("resume") };
            session.change("resume", &body, &DoneAtOnce::Resumed)
        }
        Verb::Adopt { devices, against_plan } => {
            let DevicesBody { request_id, devices } = devices.body("adopt");
            let body = AdoptBody { request_id, devices, against_plan: *against_plan };
            session.change("adopt", &body, &DoneAtOnce::Adopted)
        }
        Verb::Fault(fault) if fault.dry_run => {
            session.diff("faults/diff", &fault.body(String::new())?, fault.preview())
        }
        Verb::Fault(fault) => {
            session.change("faults", &fault.body(fresh_id("faults"))?, &DoneAtOnce::Moved)
        }
    }
}

impl Devices {
    fn body(&self, verb: &str) -> DevicesBody {
        let devices = wanted::listed(&self.devices).into_iter().map(str::to_owned).collect();
        DevicesBody { request_id: fresh_id(verb), devices }
    }
}

pub(crate) struct CtlSession {
    client: DaemonClient,
    format: ResultFormat,
}

impl CtlSession {
    fn look<T: DeserializeOwned + Serialize>(
        &self,
        path: &str,
        text: impl Fn(&T) -> String,
    ) -> anyhow::Result<VerbOutcome> {
        let response = self.client.get(path)?;
        self.show(&response, text)
    }

    fn show<T: DeserializeOwned + Serialize>(
        &self,
        response: &Response,
        text: impl Fn(&T) -> String,
    ) -> anyhow::Result<VerbOutcome> {
        self.show_rows(response, "", text)
    }

    fn show_rows<T: DeserializeOwned + Serialize>(
        &self,
        response: &Response,
        rows: &str,
        text: impl Fn(&T) -> String,
    ) -> anyhow::Result<VerbOutcome> {
        if !response.is_good() {
            return self.refused(response);
        }
        match self.format {
            ResultFormat::Text => print(&text(&response.read()?))?,
            ResultFormat::Json => output::print_json(&response.body)?,
            table => table.print(&response.read::<T>()?, rows, String::new)?,
        }
        Ok(VerbOutcome::Good)
    }

    fn refused(&self, response: &Response) -> anyhow::Result<VerbOutcome> {
        if self.format == ResultFormat::Json {
            output::print_json(&response.body)?;
        }
        output::note(&show::refusal(&response.body));
        Ok(VerbOutcome::Bad)
    }

    fn status(&self, check: bool) -> anyhow::Result<VerbOutcome> {
        let response = self.client.get("/v1/status")?;
        let shown = self.show_rows(&response, "devices", show::status)?;
        let is_bad = check && response.is_good() && !show::all_is_well(&response.read()?);
        Ok(if is_bad { VerbOutcome::Bad } else { shown })
    }

    /// Reports an absence of drift only if every device has been read and the journal is intact.
    fn drift(&self) -> anyhow::Result<VerbOutcome> {
        let response = self.client.get("/v1/drift")?;
        let shown = self.show_rows(&response, "slots", show::drift)?;
        if !response.is_good() {
            return Ok(shown);
        }
        let DriftReport { slots, crossed, complete, .. } = response.read()?;
        let is_none = slots.is_empty() && crossed.is_empty() && complete;
        Ok(if is_none { shown } else { VerbOutcome::Bad })
    }

    fn diff(
        &self,
        path: &str,
        body: &impl Serialize,
        preview: PreviewStyle,
    ) -> anyhow::Result<VerbOutcome> {
        let response = self.client.post(&format!("/v1/{path}"), body)?;
        self.show(&response, |diff| preview.page(diff))
    }

    /// Returns `None` if the daemon refuses; the later request then returns the reason.
    fn previewed(&self, path: &str, body: &impl Serialize) -> anyhow::Result<Option<Diff>> {
        let response = self.client.post(&format!("/v1/{path}"), body)?;
        response.is_good().then(|| response.read()).transpose()
    }

    fn apply(&self, apply: &ApplyArguments) -> anyhow::Result<VerbOutcome> {
        let body = apply.body(fresh_id)?;
        let cuts = match apply.cut_light {
            true => None,
            false => self.previewed("diff", &apply.wanted.body()?)?.and_then(light_cut_by),
        };
        match cuts {
            Some(cuts) => self.refused_to_cut(&cuts),
            None => self.change("apply", &body, &DoneAtOnce::Moved),
        }
    }

    fn rollback(&self, back: &RollbackArguments) -> anyhow::Result<VerbOutcome> {
        // A rollback to a plan is expected to cut light, but a rollback to no plan is not.
        let cuts = match back.cut_light {
            true => None,
            false => self
                .previewed("rollback/diff", &back.body(String::new())?)?
                .filter(|diff| diff.no_plan_after)
                .and_then(light_cut_by),
        };
        let body = back.body(fresh_id("rollback"))?;
        match cuts {
            Some(cuts) => self.refused_to_cut(&cuts),
            None => self.change("rollback", &body, &DoneAtOnce::Moved),
        }
    }

    fn refused_to_cut(&self, cuts: &BTreeSet<String>) -> anyhow::Result<VerbOutcome> {
        let answer = Answer::Refused { reasons: vec![show::cuts(cuts)] };
        if self.format == ResultFormat::Json {
            output::print_json(&answer)?;
        }
        output::note(&show::refusal(&serde_json::to_value(answer)?));
        Ok(VerbOutcome::Bad)
    }

    fn change(
        &self,
        verb: &str,
        body: &impl Serialize,
        done: &DoneAtOnce<'_>,
    ) -> anyhow::Result<VerbOutcome> {
        let response = self.client.post(&format!("/v1/{verb}"), body)?;
        match response.read() {
            Ok(Answer::Accepted { txn }) if response.is_good() => self.wait_for(txn),
            _ => self.show(&response, |answer| show::done(done, answer)),
        }
    }
}

fn light_cut_by(diff: Diff) -> Option<BTreeSet<String>> {
    let cuts = diff.moves.into_iter().filter(|one| one.cuts_light);
    let cuts: BTreeSet<String> = cuts.filter_map(|one| one.goes_dark).collect();
    (!cuts.is_empty()).then_some(cuts)
}

fn print(page: &str) -> anyhow::Result<()> {
    if output::coloured_on(&std::io::stdout()) {
        output::print(&show::painted(page))
    } else {
        output::print(page)
    }
}

fn fresh_id(verb: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{verb}-{}-{}", now.as_nanos(), std::process::id())
}
