// SPDX-License-Identifier: Apache-2.0
//! `lightloom ctl`: talks to `lightloomd` at its Unix socket, or over the network with mutual TLS.
//!
//! A change is sent once under a request id, waited for, and shown device by device. The exit status
//! is 0 only when the daemon did what was asked.

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
use slurm::kubernetes::KubernetesArguments;
use wanted::{ApplyArguments, FaultArguments, RollbackArguments, Wanted};

/// Looks at the daemon, previews, applies, confirms, rolls back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom ctl status
  lightloom ctl apply plan.json --dry-run
  lightloom ctl apply plan.json --confirm-within 5m
  lightloom ctl confirm 7")]
pub(crate) struct Arguments {
    /// The daemon's socket or `https://HOST:PORT`, or those of several with commas between: the one that leads is asked
    /// [default: what LIGHTLOOM_SOCKET says, or else /run/lightloom/lightloomd.sock].
    // Read here and not by clap, which shows what the environment gave as if it had to be typed.
    #[arg(long, global = true, value_name = "PATH", value_delimiter = ',')]
    socket: Vec<String>,
    #[command(flatten)]
    certificates: Certificates,
    /// How to show the result; `csv` and `markdown` are for status (its devices), drift, journal and commission.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    format: ResultFormat,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Shows what is wrong and what to type, then devices and the last transactions.
    #[command(after_help = "Examples:\n  lightloom ctl status\n  lightloom ctl status --check")]
    Status {
        /// Exit status 1 unless all is well.
        #[arg(long)]
        check: bool,
    },
    /// Shows what a plan would change on each device, in both halves: every move, then the very bytes. Moves no light.
    #[command(
        after_help = "Examples:\n  lightloom ctl diff plan.json\n  lightloom ctl diff plan.json --phase weights"
    )]
    Diff(Wanted),
    /// Applies a plan and waits for the end.
    #[command(
        after_help = "Examples:\n  lightloom ctl apply plan.json --confirm-within 5m\n  lightloom ctl apply --again"
    )]
    Apply(ApplyArguments),
    /// Asks for a phase of the plan on the devices, as a job does, and waits until it has light; without a name
    /// shows the phases.
    #[command(after_help = "Examples:\n  lightloom ctl phase\n  \
                      lightloom ctl phase weights --in 40ms --for 800ms --lease 5s")]
    Phase(phase::Phase),
    /// Keeps a transaction that waits for its confirm.
    #[command(after_help = "Example:\n  lightloom ctl confirm 7")]
    Confirm {
        /// The transaction.
        txn: u32,
    },
    /// Undoes a transaction and everything after it, but for what was found broken since.
    #[command(
        after_help = "Examples:\n  lightloom ctl rollback 7 --dry-run\n  lightloom ctl rollback 7"
    )]
    Rollback(RollbackArguments),
    /// Takes traffic off devices, or off all devices of a node, and holds it off.
    #[command(after_help = "Example:\n  lightloom ctl drain n17")]
    Drain(Devices),
    /// Lets traffic back.
    #[command(after_help = "Example:\n  lightloom ctl undrain n17")]
    Undrain(Devices),
    /// Lets the daemon change things without being asked again, after it did so ten times within the hour.
    #[command(after_help = "Example:\n  lightloom ctl resume")]
    Resume,
    /// Shows what stands elsewhere than the journal says or is lit by another than the fabric says; exit
    /// status 1 when anything is, or when a device or the journal cannot be read.
    #[command(after_help = "Example:\n  lightloom ctl drift")]
    Drift,
    /// Takes what is lit on devices as ours. Moves nothing.
    #[command(
        after_help = "Examples:\n  lightloom ctl adopt n17/b0 ocs0\n  lightloom ctl adopt all"
    )]
    Adopt {
        #[command(flatten)]
        devices: Devices,
        /// Adopt also where that takes positions away from the plan.
        #[arg(long)]
        against_plan: bool,
    },
    /// Reports parts as broken or repaired: the daemon replans and applies the bypass.
    #[command(after_help = "Examples:\n  lightloom ctl fault n17 --dry-run\n  \
                      lightloom ctl fault n9,n10\n  lightloom ctl fault --repaired n17")]
    Fault(FaultArguments),
    /// Shows what a transceiver says about itself: firmware, state, where its light goes at power-on.
    #[command(after_help = "Example:\n  lightloom ctl module n17/b0")]
    Module {
        /// The transceiver.
        device: String,
    },
    /// Finds out whether modules and cables are where the fabric has them: moves light on ends without a circuit
    /// alone, names what is wrong, keeps what it found. Exit status 1 unless all is as planned.
    #[command(after_help = "Examples:\n  lightloom ctl commission fabric.yaml\n  \
                      lightloom ctl commission fabric.yaml --inventory modules.csv --cabling cables.csv")]
    Commission(CommissionArguments),
    /// Shows past transactions, newest first.
    #[command(after_help = "Example:\n  lightloom ctl journal --last 50")]
    Journal {
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: usize,
        /// The journal's own records instead, oldest first, and where it is damaged.
        #[arg(long)]
        records: bool,
    },
    /// Shows the status again with each change, until interrupted, also while the daemon is away.
    #[command(after_help = "Example:\n  lightloom ctl watch")]
    Watch,
    /// Waits until the daemon answers and has read every device, but for what is dead and gone around.
    #[command(after_help = "Examples:\n  lightloom ctl wait --for 2m\n  lightloom ctl wait n17")]
    Wait {
        /// Only these devices, or those of nodes such as `n17`; also where they are gone around.
        devices: Vec<String>,
        /// How long at most; exit status 1 after that.
        #[arg(long = "for", value_name = "TIME", value_parser = time::duration, default_value = "30s")]
        within: Duration,
    },
    /// Makes Slurm agree with the plan until interrupted: drains what is broken or in no ring, loads the rings as its
    /// topology, resumes what it drained once that is back.
    #[command(after_help = "Examples:
  lightloom ctl slurm fabric.yaml --topology /etc/slurm/topology.conf --dry-run
  lightloom ctl slurm fabric.yaml --topology /etc/slurm/topology.conf --hostname 'gpu{:04}'")]
    Slurm(SlurmArguments),
    /// Makes Kubernetes agree with the plan until interrupted: labels nodes with their ring and place, cordons what is
    /// broken or in no ring, and takes its own cordons back.
    #[command(after_help = "Examples:
  lightloom ctl kubernetes --rbac
  lightloom ctl kubernetes fabric.yaml --api http://127.0.0.1:8001 --dry-run")]
    Kubernetes(KubernetesArguments),
    /// Serves the live page to browsers of this machine, to look only.
    #[command(after_help = "Example:\n  lightloom ctl page --listen 127.0.0.1:8420")]
    Page {
        /// Address and port, on the loopback interface.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8420")]
        listen: SocketAddr,
    },
}

#[derive(Debug, Args)]
struct Devices {
    /// Devices, or nodes such as `n17`, with spaces or commas between them; for adopt `all` that answer.
    #[arg(required = true)]
    devices: Vec<String>,
}

/// What the daemon at this socket answers.
///
/// # Errors
/// It does not answer, or refuses.
pub(crate) fn read_at<T: DeserializeOwned>(socket: &Path, path: &str) -> anyhow::Result<T> {
    let response = DaemonClient::new(vec![DaemonAddress::Socket(socket.to_owned())]).get(path)?;
    anyhow::ensure!(response.is_good(), show::refusal(&response.body));
    response.read()
}

/// Where the daemon listens by default.
const SOCKET: &str = "/run/lightloom/lightloomd.sock";

fn named(arguments: &Arguments) -> Vec<String> {
    if !arguments.socket.is_empty() {
        return arguments.socket.clone();
    }
    let named = std::env::var("LIGHTLOOM_SOCKET").ok().filter(|paths| !paths.is_empty());
    named.as_deref().unwrap_or(SOCKET).split(',').map(str::to_owned).collect()
}

/// Runs the verb.
///
/// # Errors
/// When the daemon cannot be reached or a file cannot be read.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let is_table = matches!(
        arguments.verb,
        Verb::Status { .. } | Verb::Drift | Verb::Journal { .. } | Verb::Commission(_)
    );
    if matches!(arguments.format, ResultFormat::Csv | ResultFormat::Markdown) && !is_table {
        let why = "csv and markdown hold tables: those of status, drift, journal and commission";
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
        Verb::Commission(wanted) => session.commission(wanted),
        Verb::Watch => session.watch(),
        Verb::Wait { devices, within } => session.wait(&wanted::listed(devices), *within),
        Verb::Slurm(wanted) => session.slurm(wanted),
        Verb::Kubernetes(wanted) => session.kubernetes(wanted),
        Verb::Page { listen } => page::serve(&session.client, *listen),
        Verb::Diff(wanted) => {
            let preview = PreviewStyle { by_device: true, ..wanted.preview() };
            session.diff("diff", &wanted.body()?, preview)
        }
        Verb::Apply(ApplyArguments { wanted, dry_run: true, .. }) => {
            session.diff("diff", &wanted.body()?, wanted.preview())
        }
        Verb::Apply(apply) => {
            let body = apply.body(fresh_id)?;
            let cuts = || {
                let diff = session.previewed("diff", &apply.wanted.body()?)?;
                anyhow::Ok(diff.and_then(light_cut_by))
            };
            match if apply.cut_light { None } else { cuts()? } {
                Some(cuts) => session.refused_to_cut(&cuts),
                None => session.change("apply", &body, &DoneAtOnce::Moved),
            }
        }
        Verb::Phase(phase) => session.phase(phase),
        Verb::Confirm { txn } => {
            let body = TxnBody { request_id: fresh_id("confirm"), txn: *txn };
            session.change("confirm", &body, &DoneAtOnce::Confirmed(*txn))
        }
        Verb::Rollback(back) if back.dry_run => {
            session.diff("rollback/diff", &back.body(String::new())?, back.preview())
        }
        Verb::Rollback(back) => {
            // Going back to a plan is what a rollback is for; to none is what few expect.
            let cuts = || {
                let diff = session.previewed("rollback/diff", &back.body(String::new())?)?;
                anyhow::Ok(diff.filter(|diff| diff.no_plan_after).and_then(light_cut_by))
            };
            match if back.cut_light { None } else { cuts()? } {
                Some(cuts) => session.refused_to_cut(&cuts),
                None => session.change(
                    "rollback",
                    &back.body(fresh_id("rollback"))?,
                    &DoneAtOnce::Moved,
                ),
            }
        }
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

    /// Shows what the daemon sent: as it came to a program, its `rows` to a spreadsheet, as `text` to people.
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
            // Columns stand as the type has them, not by their names.
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

    /// No slots are no drift only where every device was read and the journal can be trusted.
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

    /// What a change would do. None where the daemon refuses it: it says why when it is asked for it.
    fn previewed(&self, path: &str, body: &impl Serialize) -> anyhow::Result<Option<Diff>> {
        let response = self.client.post(&format!("/v1/{path}"), body)?;
        response.is_good().then(|| response.read()).transpose()
    }

    /// A change by hand cuts light only where that is said.
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

/// The circuits that carry light and that a change would cut.
fn light_cut_by(diff: Diff) -> Option<BTreeSet<String>> {
    let cuts = diff.moves.into_iter().filter(|one| one.cuts_light);
    let cuts: BTreeSet<String> = cuts.filter_map(|one| one.goes_dark).collect();
    (!cuts.is_empty()).then_some(cuts)
}

/// Prints for people, in colours where they see them.
fn print(page: &str) -> anyhow::Result<()> {
    if output::coloured_on(&std::io::stdout()) {
        output::print(&show::painted(page))
    } else {
        output::print(page)
    }
}

/// An id that no other request has: the time and the process.
fn fresh_id(verb: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{verb}-{}-{}", now.as_nanos(), std::process::id())
}
