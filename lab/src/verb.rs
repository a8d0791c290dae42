// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use anyhow::Context;
use clap::{Args, ValueEnum};
use lightloom_daemon::protocol::secret;
use lightloom_lab::conform;
use lightloom_lab::conform::link::{ExchangeError, RealDevice};
use lightloom_lab::conform::profile::ProfileLink;
use lightloom_lab::conform::report::SuiteReport;
use lightloom_lab::conform::target::{self, Options, Protocol, Target, Tls};

use crate::signals;
use lightloom::output::{self, VerbOutcome, WrongUsage};

/// Test whether a device follows its protocol.
///
/// Reads only, unless `--may-move` lists ports.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom conform gnmi://ocs0.example:9339 --ca site.pem
  lightloom conform gnmi://ocs0.example:9339 --ca site.pem --user me --password-file secret
  lightloom conform gnmi://127.0.0.1:9339 --plaintext --may-move in-2,in-3,out-2,out-3
  lightloom conform scpi://10.0.0.9:5025 --may-move 2,3,26,27 --format junit -o conform.xml
  lightloom conform tl1://10.0.0.9:3082 --user admin --password-file secret
  lightloom conform serial:/dev/ttyUSB0 --may-move 0
  lightloom conform eeprom:/sys/bus/i2c/devices/11-0050/eeprom --profile maker.yaml --may-move 0

The suite leaves other circuits unchanged and restores those that it switched, even after Ctrl-C.
Exit status: 0 no finding, 1 the device misbehaves, has a fault or does not answer, 2 wrong usage.")]
pub(crate) struct Arguments {
    /// gnmi://HOST:PORT, scpi://HOST:PORT, scpi:///dev/TTY, tl1://HOST:PORT, serial:/dev/TTY or
    /// eeprom:/PATH/eeprom.
    target: Target,
    /// Dark ports for new circuits: two inputs and two outputs, or one group of a transceiver.
    #[arg(long, value_name = "PORTS", value_delimiter = ',')]
    may_move: Vec<String>,
    /// Random seed; it also sets the order of these ports.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of circuits to create when measuring set-up times.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = lightloom::number::whole::<u32>(1..=10_000))]
    rounds: u32,
    /// SCPI and TL1: shell command that restarts the device and returns once it has stopped; its last
    /// argument is `warm` (only the control software) or `cold`.
    #[arg(long, value_name = "COMMAND", requires = "may_move")]
    restart: Option<String>,
    #[command(flatten)]
    tls: Tls,
    /// TL1 and gNMI: account name.
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// TL1 and gNMI: file with the password, which must not be world-readable.
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// eeprom: module profile (YAML) with the registers of the module's optical switch.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Bit rate of a serial device [default: 921600; SCPI: 38400].
    #[arg(long, value_name = "RATE")]
    bits_per_second: Option<u32>,
    /// Output format.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: RunFormat,
    /// File to write [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum RunFormat {
    /// Text for a terminal.
    #[default]
    Text,
    /// A JSON document.
    Json,
    /// JUnit XML, for continuous integration.
    Junit,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let Target { protocol, .. } = arguments.target;
    if arguments.profile.is_some() != (protocol == Protocol::Eeprom) {
        let why = "--profile is required for `eeprom:` targets, and applies only to them";
        return Err(WrongUsage(why.into()).into());
    }
    let is_module = matches!(protocol, Protocol::Serial | Protocol::Eeprom);
    let groups = &arguments.may_move;
    let is_one = groups.len() == 1 && groups[0].parse::<u8>().is_ok_and(|group| group < 8);
    if is_module && !groups.is_empty() && !is_one {
        let why = "--may-move takes one group of a transceiver, from 0 to 7";
        return Err(WrongUsage(why.into()).into());
    }
    if arguments.restart.is_some() && !matches!(protocol, Protocol::Scpi | Protocol::Tl1) {
        return Err(WrongUsage("--restart applies only to scpi:// and tl1://".into()).into());
    }
    let address = target::address(&arguments.target, &arguments.tls, arguments.bits_per_second)
        .map_err(|error| WrongUsage(format!("{error:#}")))?;
    let login = match (&arguments.user, &arguments.password_file) {
        (Some(_), _) if !matches!(protocol, Protocol::Tl1 | Protocol::Gnmi) => {
            let why = "--user and --password-file apply only to tl1:// and gnmi://";
            return Err(WrongUsage(why.into()).into());
        }
        (Some(_), _) if arguments.tls.plaintext => {
            let why = "the password would be sent in plain text: use --ca instead of --plaintext";
            return Err(WrongUsage(why.into()).into());
        }
        (Some(user), Some(file)) => Some((user.clone(), secret(file)?)),
        _ if protocol == Protocol::Tl1 => {
            let why = "a TL1 switch requires a login: use --user and --password-file";
            return Err(WrongUsage(why.into()).into());
        }
        _ => None,
    };
    let options = Options {
        target: arguments.target.text.clone(),
        may_move: arguments.may_move.clone(),
        seed: arguments.seed,
        rounds: arguments.rounds,
        login,
        restart: arguments.restart.clone(),
        started: UNIX_EPOCH.elapsed().unwrap_or_default().as_secs(),
    };
    let interrupted = watch_for_interrupts()?;
    let report = match &arguments.profile {
        Some(profile) => {
            let link = ProfileLink::open(Path::new(&arguments.target.at), profile, interrupted)?;
            conform::run_profile(link, &options)
        }
        None => conform::run(protocol, Box::new(RealDevice::new(address, interrupted)), &options),
    };
    let advice = match report {
        Err(ExchangeError::Lost(_)) => {
            "; check that the device is on, and its address (usual ports: SCPI 5025, TL1 3082, gNMI 9339)"
        }
        _ => "",
    };
    let report =
        report.map_err(|trouble| anyhow::anyhow!("{}: {trouble}{advice}", options.target))?;
    show(&report, arguments)?;
    Ok(if report.is_good() { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn show(report: &SuiteReport, arguments: &Arguments) -> anyhow::Result<()> {
    let text = match arguments.format {
        RunFormat::Text => report.text(),
        RunFormat::Json => output::json(report)?,
        RunFormat::Junit => report.junit(),
    };
    match &arguments.output {
        None => output::print(&text),
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
    }
}

fn watch_for_interrupts() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    signals::watch(&signals::STOPS, move || {
        set.store(true, Ordering::Relaxed);
        output::note("stopping: restoring the moved circuits");
    })?;
    Ok(flag)
}
