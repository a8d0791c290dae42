// SPDX-License-Identifier: Apache-2.0
//! `lightloom device`: emulated transceivers and optical switches on ptys and TCP ports.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use lightloom_devices as device;
use lightloom_devices::serve::{Address, Options, Server};
use serde_json::json;

use crate::cli::{Format, FormatArgument};
use crate::files;
use crate::output::{self, Outcome, Refused};
use crate::plan_rfabric;
use crate::table::Table;

/// Emulated transceivers and optical switches, with their faults.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom device serve topologies/devices/ring-32.yaml --links /tmp/modules --control /tmp/faults
  lightloom device fault --control /tmp/faults n3/b0 lose 1%")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serves the devices of a list until it is stopped.
    Serve(Serve),
    /// Lets something go wrong with a device that is being served.
    Fault(Fault),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  lightloom device serve topologies/devices/ring-32.yaml --links /tmp/modules")]
struct Serve {
    /// The device list (YAML): see docs/devices.md.
    file: PathBuf,
    /// Folder for links to the ptys, named after the devices (`n3/b0` becomes `n3-b0`).
    #[arg(long, value_name = "FOLDER")]
    links: Option<PathBuf>,
    /// Unix socket that takes faults at run time.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgument,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom device fault --control /tmp/faults n3/b0 reboot-in-commit
  lightloom device fault --control /tmp/faults n3/b0 clear

Faults: lose 1%, duplicate 1%, garble 1%, late 5ms, half-open, dead, unplug PATH,
cross PATH PORT, stuck [PORT], lie, misdirect, slow TIMES, droop DECIBELS, defer TIME, reboot, warm-restart,
reboot-in-commit, clear.")]
struct Fault {
    /// The socket that `device serve` was given.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// The device, or a node such as `n17` for all of its devices.
    device: String,
    /// What goes wrong: a word and its argument.
    #[arg(required = true, value_name = "FAULT")]
    fault: Vec<String>,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    match &arguments.verb {
        Verb::Serve(arguments) => serve(arguments),
        Verb::Fault(arguments) => fault(arguments),
    }
}

fn serve(arguments: &Serve) -> anyhow::Result<Outcome> {
    let (list, mistakes) = match files::read_document(&arguments.file) {
        Ok(bytes) => {
            let mut read = |name: &str| plan_rfabric::read_beside(&arguments.file, name);
            device::load_beside(&files::name(&arguments.file), &bytes, &mut read)
        }
        Err(mistake) => (None, vec![*mistake]),
    };
    output::diagnostics(&mistakes);
    let list = list.ok_or(Refused)?;
    if let Some(folder) = &arguments.links {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let options = Options { links: arguments.links.clone(), control: arguments.control.clone() };
    let mut server = Server::start(list, &options).context("cannot serve the devices")?;
    show(server.addresses(), arguments.format.format)?;
    server.run().context("cannot go on serving")?;
    Ok(Outcome::Good)
}

fn show(addresses: &[Address], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::print_json(&json!({ "devices": addresses })),
        Format::Text => {
            let mut table = Table::new(["device", "kind", "speaks", "at"]);
            for address in addresses {
                let Address { name, kind, speaks, at } = address;
                table.row([name.clone(), (*kind).to_owned(), (*speaks).to_owned(), at.clone()]);
            }
            output::print(&table.to_string())
        }
    }
}

fn fault(arguments: &Fault) -> anyhow::Result<Outcome> {
    let socket = UnixStream::connect(&arguments.control).with_context(|| {
        format!("nobody serves devices with the control socket {}", arguments.control.display())
    })?;
    let mut socket = BufReader::new(socket);
    let (device, fault) = (&arguments.device, arguments.fault.join(" "));
    let line = format!("{device} {fault}\n");
    socket.get_mut().write_all(line.as_bytes())?;
    let mut answer = String::new();
    socket.read_line(&mut answer)?;
    match answer.trim_end() {
        "ok" => {
            if let Format::Json = arguments.format.format {
                output::print_json(&json!({ "device": device, "fault": fault }))?;
            }
            Ok(Outcome::Good)
        }
        http if http.starts_with("HTTP/") => anyhow::bail!(
            "{} is the socket of lightloomd, not of the devices: name the one that `lightloom device serve \
             --control` was given",
            arguments.control.display()
        ),
        "" => anyhow::bail!("the devices were stopped before they answered"),
        wrong => anyhow::bail!("{}", wrong.trim_start_matches("error: ")),
    }
}
