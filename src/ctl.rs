//! `lightloom ctl`: talks to `lightloomd` over its Unix socket.
//!
//! A change is sent once under a request id, waited for, and shown device by device. The exit status
//! is 0 only when the daemon did what was asked.

mod client;
mod page;
mod show;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::cli::Format;
use crate::output::{self, Outcome, WrongUsage};
use client::{Client, Response};

/// Talks to the daemon: looks, previews, applies, confirms, rolls back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom ctl status
  lightloom ctl apply plan.json --dry-run
  lightloom ctl apply plan.json --confirm-within 5m
  lightloom ctl confirm 7")]
pub(crate) struct Arguments {
    /// The daemon's socket.
    #[arg(
        long,
        global = true,
        env = "LIGHTLOOM_SOCKET",
        default_value = "/run/lightloom/lightloomd.sock",
        value_name = "PATH"
    )]
    socket: PathBuf,
    /// How to show the result.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Shows devices, the transaction on its way, the pending confirm and the last transactions.
    Status,
    /// Shows what applying a plan would do, down to the bytes. Changes nothing.
    Diff(Wanted),
    /// Applies a plan and waits for the end.
    Apply(Apply),
    /// Keeps a transaction that waits for its confirm.
    Confirm {
        /// The transaction.
        txn: u32,
    },
    /// Undoes a transaction and everything after it.
    Rollback {
        /// The transaction.
        txn: u32,
    },
    /// Takes traffic off devices, or off all devices of a node, and holds it off.
    Drain(Devices),
    /// Lets traffic back.
    Undrain(Devices),
    /// Shows what stands elsewhere than the journal says; exit status 1 when anything does.
    Drift,
    /// Takes what is lit on devices as ours. Moves nothing.
    Adopt(Devices),
    /// Reports parts as broken or repaired: the daemon replans and applies the bypass.
    Fault {
        /// What broke: `n17`, `n17/b0`, `n17/b0.2`.
        broken: Vec<String>,
        /// What works again.
        #[arg(long, value_name = "PART", value_delimiter = ',')]
        repaired: Vec<String>,
    },
    /// Shows past transactions, newest first.
    Journal {
        /// How many.
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: usize,
    },
    /// Shows the status again with each change, until interrupted.
    Watch,
    /// Waits until the daemon answers and has read every device.
    Wait {
        /// How long at most; exit status 1 after that.
        #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "30s")]
        within: Duration,
    },
    /// Serves the live page to browsers of this machine, to look only.
    Page {
        /// Address and port, on the loopback interface.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8420")]
        listen: SocketAddr,
    },
}

#[derive(Debug, Args)]
struct Devices {
    /// Devices; for adopt `all`, for drain and undrain nodes such as `n17`.
    #[arg(required = true)]
    devices: Vec<String>,
}

#[derive(Debug, Args)]
struct Wanted {
    /// The plan, or a JSON file `{"target": {"ocs0": {"1": 25}}}`.
    plan: PathBuf,
    /// Which phase of a plan with phases.
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,
    /// How much it may disturb.
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,
}

#[derive(Debug, Args)]
struct Apply {
    #[command(flatten)]
    wanted: Wanted,
    /// Show what would be sent, and send nothing.
    #[arg(long)]
    dry_run: bool,
    /// Roll back unless confirmed within this time, such as `5m` or `90s`.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    confirm_within: Option<Duration>,
    /// Refuse unless the daemon is at this version.
    #[arg(long, value_name = "N")]
    version_is: Option<u64>,
    /// For mode overwrite: the words that the dry run shows.
    #[arg(long, value_name = "WORDS")]
    confirmation: Option<String>,
    /// Act once under this id, however often it is sent [default: a fresh one].
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Mode {
    /// Refuse when anything stands elsewhere than the journal says.
    #[default]
    Safe,
    /// Move what the plan names from wherever it stands.
    Update,
    /// Make devices exactly the plan: everything else on them goes dark.
    Overwrite,
}

/// How long the end of a transaction is waited for at a time.
const WAIT_MS: u64 = 30_000;
/// How long a daemon that died in the middle of a transaction may take to be back.
const DAEMON_BACK_WITHIN: Duration = Duration::from_secs(60);
/// The largest plan file.
const PLAN_BYTES_MAX: u64 = 64 << 20;

/// Runs the verb.
///
/// # Errors
/// When the daemon cannot be reached or a file cannot be read.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let client = Client::new(&arguments.socket);
    let session = Session { client, format: arguments.format };
    match &arguments.verb {
        Verb::Status => session.look("/v1/status", show::status),
        Verb::Drift => session.drift(),
        Verb::Journal { last } => {
            session.look("/v1/journal", |journal| show::transactions(journal, *last))
        }
        Verb::Watch => session.watch(),
        Verb::Wait { within } => session.wait(*within),
        Verb::Page { listen } => page::serve(&session.client, *listen),
        Verb::Diff(wanted) => session.diff(wanted),
        Verb::Apply(apply) if apply.dry_run => session.diff(&apply.wanted),
        Verb::Apply(apply) => session.apply(apply),
        Verb::Confirm { txn } => session.change("confirm", json!({"txn": txn})),
        Verb::Rollback { txn } => session.change("rollback", json!({"txn": txn})),
        Verb::Drain(Devices { devices }) => session.change("drain", json!({"devices": devices})),
        Verb::Undrain(Devices { devices }) => {
            session.change("undrain", json!({"devices": devices}))
        }
        Verb::Adopt(Devices { devices }) => session.change("adopt", json!({"devices": devices})),
        Verb::Fault { broken, repaired } if broken.is_empty() && repaired.is_empty() => {
            Err(WrongUsage("name a part that broke or works again".into()).into())
        }
        Verb::Fault { broken, repaired } => {
            session.change("faults", json!({"broken": broken, "repaired": repaired}))
        }
    }
}

struct Session {
    client: Client,
    format: Format,
}

impl Session {
    fn look(&self, path: &str, text: impl Fn(&Value) -> String) -> anyhow::Result<Outcome> {
        let response = self.client.get(path)?;
        self.show(&response, text)
    }

    fn show(
        &self,
        response: &Response,
        text: impl Fn(&Value) -> String,
    ) -> anyhow::Result<Outcome> {
        if !response.is_good() {
            return self.refused(response);
        }
        match self.format {
            Format::Json => output::print_json(&response.body)?,
            Format::Text => print(&text(&response.body))?,
        }
        Ok(Outcome::Good)
    }

    fn refused(&self, response: &Response) -> anyhow::Result<Outcome> {
        if let Format::Json = self.format {
            output::print_json(&response.body)?;
        }
        output::note(&show::refusal(&response.body));
        Ok(Outcome::Bad)
    }

    fn drift(&self) -> anyhow::Result<Outcome> {
        let response = self.client.get("/v1/drift")?;
        let shown = self.show(&response, show::drift)?;
        let drifted = response.body.as_array().is_some_and(|slots| !slots.is_empty());
        Ok(if drifted { Outcome::Bad } else { shown })
    }

    fn watch(&self) -> anyhow::Result<Outcome> {
        let mut wait_ms = 0;
        loop {
            let response = self.client.get(&format!("/v1/status?wait_ms={wait_ms}"))?;
            if !response.is_good() {
                return self.refused(&response);
            }
            match self.format {
                Format::Json => output::print(&format!("{}\n", response.body))?,
                // Home, draw, clear what is left below.
                Format::Text => {
                    let page = show::status(&response.body);
                    print(&format!("\u{1b}[H\u{1b}[2J{page}"))?;
                }
            }
            wait_ms = WAIT_MS;
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// A daemon that has only just been started has no socket yet.
    fn wait(&self, within: Duration) -> anyhow::Result<Outcome> {
        let until = Instant::now() + within;
        loop {
            let status = self.client.get("/v1/status");
            let devices = status.as_ref().ok().and_then(|status| status.body["devices"].as_array());
            let unseen = |device: &&Value| device["state"] == "unseen";
            let left = devices.map(|devices| devices.iter().filter(unseen).count());
            if left == Some(0) {
                return Ok(Outcome::Good);
            }
            if Instant::now() >= until {
                let status = status?;
                let left = left.context("the daemon gives no status")?;
                output::note(&format!("{left} devices have not been read yet"));
                return self.show(&status, show::status).map(|_| Outcome::Bad);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn diff(&self, wanted: &Wanted) -> anyhow::Result<Outcome> {
        let response = self.client.post("/v1/diff", &body(wanted)?)?;
        self.show(&response, show::diff)
    }

    fn apply(&self, apply: &Apply) -> anyhow::Result<Outcome> {
        let mut body = body(&apply.wanted)?;
        if let Some(within) = apply.confirm_within {
            body["confirm_within_ms"] = json!(u64::try_from(within.as_millis())?);
        }
        if let Some(version) = apply.version_is {
            body["expected_version"] = json!(version);
        }
        if let Some(words) = &apply.confirmation {
            body["confirmation"] = json!(words);
        }
        if let Some(id) = &apply.request_id {
            body["request_id"] = json!(id);
        }
        self.change("apply", body)
    }

    fn change(&self, verb: &str, mut body: Value) -> anyhow::Result<Outcome> {
        if body.get("request_id").is_none() {
            body["request_id"] = json!(fresh_id(verb));
        }
        let response = self.client.post(&format!("/v1/{verb}"), &body)?;
        match response.body.get("txn").and_then(Value::as_u64) {
            Some(txn) if response.is_good() => self.wait_for(txn),
            _ => self.show(&response, |_| "done\n".to_owned()),
        }
    }

    /// The transaction is journalled: a daemon that dies meanwhile brings it to an end when it is
    /// started again, so that is waited for.
    fn wait_for(&self, txn: u64) -> anyhow::Result<Outcome> {
        output::note(&format!("transaction {txn} is on its way"));
        let mut gone_since: Option<Instant> = None;
        loop {
            let path = format!("/v1/transactions/{txn}?wait_ms={WAIT_MS}");
            let response = match self.client.get(&path) {
                Ok(response) => response,
                Err(error) => {
                    if gone_since.is_none() {
                        let promise = "it is journalled and comes to its end with the daemon";
                        output::note(&format!("{error:#}; transaction {txn}: {promise}"));
                    }
                    if gone_since.get_or_insert_with(Instant::now).elapsed() > DAEMON_BACK_WITHIN {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            gone_since = None;
            if response.code == 404 {
                continue;
            }
            let shown = self.show(&response, show::transaction)?;
            let committed = response.body["result"] == "committed";
            return Ok(if committed { shown } else { Outcome::Bad });
        }
    }
}

/// Prints for people, in colours where they see them.
fn print(page: &str) -> anyhow::Result<()> {
    if output::coloured_on(&std::io::stdout()) {
        output::print(&show::painted(page))
    } else {
        output::print(page)
    }
}

fn body(wanted: &Wanted) -> anyhow::Result<Value> {
    let document = read_json(&wanted.plan)?;
    let mode = match wanted.mode {
        Mode::Safe => "safe",
        Mode::Update => "update",
        Mode::Overwrite => "overwrite",
    };
    let mut body = match document.get("target") {
        Some(target) => json!({"target": target}),
        None => json!({"plan": document}),
    };
    body["mode"] = json!(mode);
    body["phase"] = json!(wanted.phase);
    Ok(body)
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let shown = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if size > PLAN_BYTES_MAX {
        bail!("{shown} is larger than {PLAN_BYTES_MAX} bytes");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{shown} is not JSON"))
}

/// An id that no other request has: the time and the process.
fn fresh_id(verb: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{verb}-{}-{}", now.as_nanos(), std::process::id())
}

/// `5m`, `90s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().map_err(|_| format!("`{text}` is not like `5m` or `90s`"))?;
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("`{unit}` is not one of ms, s, m, h")),
    };
    Ok(Duration::from_millis(count.saturating_mul(unit_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_a_unit() {
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("5").is_err());
        assert!(duration("m").is_err());
    }
}
