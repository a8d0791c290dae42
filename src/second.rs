// SPDX-License-Identifier: Apache-2.0
//! Runs the second program, `lightloom-lab`, which is installed next to the first. It contains the verbs that need
//! prices, pages, the daemon, devices or servers, so that planning and emulation compile without them.
//!
//! The first program knows these verbs by name ([`VERBS`]). It hands over these verbs, and its own
//! commands that turn out to need the second program ([`Needed`]).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::files;
use crate::output::VerbOutcome;

pub const PROGRAM: &str = "lightloom-lab";

#[derive(Clone, Copy, Debug)]
pub struct Verb {
    pub name: &'static str,
    pub about: &'static str,
    pub example: &'static str,
}

const fn verb(name: &'static str, about: &'static str, example: &'static str) -> Verb {
    Verb { name, about, example }
}

/// In help order.
pub const VERBS: &[Verb] = &[
    verb("demo", "Plan 2,880 GPUs, fail a node, and open the report", "lightloom demo"),
    verb(
        "report",
        "Write one page about a design: plan, waste, cost and power",
        "lightloom report topologies/ring-2880.yaml plan.json run.json mfu.json prices.yaml -o report.html",
    ),
    verb(
        "export",
        "Convert a plan for another program, and list lost information",
        "lightloom export --list",
    ),
    verb(
        "compare",
        "Compare designs under faults: wasted GPUs, job scale, waiting",
        "lightloom compare --faults fault_trace.json --tp 32 --samples 100",
    ),
    verb("cost", "Compute cost and power of the interconnect from a price file", "lightloom cost"),
    verb(
        "buy",
        "Compare designs by the cost of useful compute over months",
        "lightloom buy topologies/buy-pretraining.yaml",
    ),
    verb(
        "reproduce",
        "Recompute the claims of a paper: claim, published, ours, verdict",
        "lightloom reproduce opus",
    ),
    verb(
        "mfu",
        "Compute training-step time and MFU, and find the best mapping",
        "lightloom mfu --model llama-3.1-70b --gpus 2048 --fabric topologies/pod-2048.yaml",
    ),
    verb(
        "rl",
        "Compute a reinforcement-learning step, and size its replicas",
        "lightloom rl --model qwen2.5-14b --gpus 32,32 --samples 2048",
    ),
    verb(
        "serve",
        "Find the GPU layout that serves requests within latency limits",
        "lightloom serve --model llama-3.1-70b --gpus 64 --per-minute 1000",
    ),
    verb(
        "calibrate",
        "Refit the constants of `lightloom mfu` to measured steps",
        "lightloom calibrate runs.csv --out ours.json",
    ),
    verb(
        "measure",
        "Print a script that measures one GPU, and convert its result",
        "lightloom measure --from result.json --output mine.yaml",
    ),
    verb(
        "workload",
        "Run training steps that other tools described or recorded",
        "lightloom workload run topologies/workloads/simai-layer.txt --arch dgx",
    ),
    verb(
        "ctl",
        "Show, preview, apply, confirm and roll back the daemon's changes",
        "lightloom ctl status",
    ),
    verb(
        "device",
        "Emulate transceivers and optical switches, with their faults",
        "lightloom device serve topologies/devices/ring-32.yaml --links /tmp/modules --control /tmp/faults",
    ),
    verb(
        "conform",
        "Test whether a device follows its protocol",
        "lightloom conform gnmi://127.0.0.1:9339 --plaintext --may-move in-2,in-3,out-2,out-3",
    ),
    verb(
        "twin",
        "Run real programs on emulated light, with one namespace per node",
        "lightloom twin up topologies/ring-32.yaml --dir /tmp/twin",
    ),
    verb(
        "completions",
        "Print the completion script for a shell",
        "lightloom completions bash > /etc/bash_completion.d/lightloom",
    ),
    verb(
        "man",
        "Write the manual pages of the program and of each verb",
        "lightloom man --folder ~/.local/share/man/man1 && man lightloom-emulate",
    ),
];

impl Verb {
    pub(crate) fn command(&self) -> clap::Command {
        let rest = clap::Arg::new("arguments")
            .value_name("ARGUMENTS")
            .help(format!("See `lightloom {} --help`", self.name))
            .num_args(0..)
            .trailing_var_arg(true)
            .allow_hyphen_values(true)
            .value_parser(clap::value_parser!(OsString));
        clap::Command::new(self.name)
            .about(self.about)
            .after_help(format!("Example:\n  {}", self.example))
            .disable_help_flag(true)
            .disable_version_flag(true)
            .arg(rest)
    }
}

pub(crate) fn has(name: &str) -> bool {
    VERBS.iter().any(|verb| verb.name == name)
}

#[derive(Debug, thiserror::Error)]
#[error("this is run by {PROGRAM}")]
pub struct Needed;

pub(crate) fn hand_over(verb: &str) -> anyhow::Result<VerbOutcome> {
    // Without /proc, as in a bare chroot, the path of the executable is unknown, so use the search path.
    let own = std::env::current_exe().unwrap_or_default();
    let program = own.with_file_name(PROGRAM);
    if own.is_absolute() && !program.is_file() {
        bail!(
            "`lightloom {verb}` needs {PROGRAM}, which is not next to {}: the archive, the wheel and the Debian package \
                include it; in the source folder `cargo build --release --locked -p {PROGRAM}` builds it, and \
                `cargo install --locked --path lab` installs it",
            own.display()
        );
    }
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1));
    if let Some(read) = files::standard_input() {
        command.stdin(again(read).context("cannot pass on standard input")?);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Makes consumed standard input readable again, through an unlinked temporary file.
fn again(read: &[u8]) -> std::io::Result<Stdio> {
    let path: PathBuf = std::env::temp_dir().join(format!(".lightloom.{}", std::process::id()));
    let mut file = File::create_new(&path)?;
    let written = file.write_all(read).and_then(|()| File::open(&path));
    fs::remove_file(&path)?;
    Ok(Stdio::from(written?))
}
