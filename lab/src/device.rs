// SPDX-License-Identifier: Apache-2.0

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use lightloom_devices as device;
use lightloom_devices::serve::{Options, ServedAddress, Server};
use serde_json::json;

use crate::signals;
use lightloom::files;
use lightloom::output::{self, Format, FormatArgument, InputRefused, VerbOutcome};

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
    /// Serve the devices in a list until stopped.
    Serve(Serve),
    /// Inject a fault into a running emulated device.
    Fault(InjectArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  lightloom device serve topologies/devices/ring-32.yaml --links /tmp/modules")]
struct Serve {
    /// Device list (YAML); see docs/devices.md.
    file: PathBuf,
    /// Folder for links to the ptys, named after the devices (`n3/b0` becomes `n3-b0`).
    #[arg(long, value_name = "FOLDER")]
    links: Option<PathBuf>,
    /// Unix socket that accepts faults at run time.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Mount each module's memory as a file in this folder, as on a Linux host (requires root).
    #[arg(long, value_name = "FOLDER")]
    eeproms: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgument,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom device fault --control /tmp/faults n3/b0 reboot-in-commit
  lightloom device fault --control /tmp/faults n3/b0 clear

Faults: lose 1%, duplicate 1%, garble 1%, late 5ms, half-open, dead, unplug PATH,
cross PATH PORT, stuck [PORT], lie, misdirect, slow TIMES, droop DECIBELS, defer TIME, reboot, warm-restart,
reboot-in-commit, misbehave NAME, clear. docs/conformance.csv lists the misbehaviours.")]
struct InjectArguments {
    /// Control socket of the running `device serve`.
    #[arg(long, value_name = "SOCKET")]
    control: PathBuf,
    /// Device, such as `n3/b0`.
    device: String,
    /// Fault with its arguments.
    #[arg(required = true, value_name = "FAULT")]
    fault: Vec<String>,
    #[command(flatten)]
    format: FormatArgument,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    match &arguments.verb {
        Verb::Serve(arguments) => serve(arguments),
        Verb::Fault(arguments) => fault(arguments),
    }
}

fn serve(arguments: &Serve) -> anyhow::Result<VerbOutcome> {
    let file = &arguments.file;
    let (list, mistakes) = match files::read_document(file) {
        Ok(bytes) => {
            let name = files::name(file);
            device::load_beside(&name, &bytes, &mut |name| files::text_beside(file, name))
        }
        Err(mistake) => (None, vec![*mistake]),
    };
    output::diagnostics(&mistakes);
    let list = list.ok_or(InputRefused)?;
    if let Some(folder) = &arguments.links {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    let options = Options {
        links: arguments.links.clone(),
        control: arguments.control.clone(),
        eeproms: arguments.eeproms.clone(),
    };
    let mut server = Server::start(list, &options).context("cannot serve the devices")?;
    if arguments.eeproms.is_some() {
        // Stop cleanly on a signal, so that the folder is unmounted.
        let stopper = server.stopper();
        signals::watch(&signals::STOPS, move || stopper.stop())?;
    }
    show(server.addresses(), arguments.format.format)?;
    server.run().context("the server stopped")?;
    Ok(VerbOutcome::Good)
}

fn show(addresses: &[ServedAddress], format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => {
            output::print_document("lightloom.devices/v1", &json!({ "devices": addresses }))
        }
        Format::Text => {
            let rows = addresses.iter().map(|a| [a.name.as_str(), a.kind, a.speaks, a.at.as_str()]);
            let rows: Vec<_> =
                [["device", "kind", "speaks", "at"]].into_iter().chain(rows).collect();
            let [a, b, c] = [0, 1, 2].map(|column: usize| {
                rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
            });
            let lines = rows.iter().map(|[name, kind, speaks, at]| {
                format!("{name:a$}  {kind:b$}  {speaks:c$}  {at}\n")
            });
            output::print(&lines.collect::<String>())
        }
    }
}

fn fault(arguments: &InjectArguments) -> anyhow::Result<VerbOutcome> {
    let socket = UnixStream::connect(&arguments.control).with_context(|| {
        let at = arguments.control.display();
        format!(
            "no device server listens on the control socket {at}; start one with `lightloom device serve FILE --control {at}`"
        )
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
                let injected = json!({ "device": device, "fault": fault });
                output::print_document("lightloom.device-fault/v1", &injected)?;
            }
            Ok(VerbOutcome::Good)
        }
        http if http.starts_with("HTTP/") => anyhow::bail!(
            "{} is the socket of lightloomd, not of the devices: use the socket of `lightloom device serve \
                --control`",
            arguments.control.display()
        ),
        "" => anyhow::bail!("the device server stopped before it answered"),
        wrong => anyhow::bail!("{}", wrong.trim_start_matches("error: ")),
    }
}
