// SPDX-License-Identifier: Apache-2.0

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::Plan;
use serde::Serialize;

use crate::ranks::Ranks;
use crate::record::{Folder, RECORD, Ready, Record};
use crate::{Error, address, check, environment, hold, wait_until};

const HOLDER_WITHIN: Duration = Duration::from_secs(60);
const CTL_WITHIN: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct Wanted {
    pub fabric: PathBuf,
    pub plan: Option<PathBuf>,
    pub nodes: Option<u32>,
    pub bytes_per_second: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Programs {
    pub own: PathBuf,
    pub lightloom: PathBuf,
    pub daemon: PathBuf,
}

impl Programs {
    pub fn find() -> Result<Self, Error> {
        let own = std::env::current_exe().map_err(Error::cannot("find this program"))?;
        let [lightloom, daemon] = ["lightloom", "lightloomd"].map(|name| {
            let program = own.with_file_name(name);
            if program.is_file() {
                return Ok(program);
            }
            Err(Error::Refused(format!(
                "{name} is not next to {}: the archive and the Debian package contain both; in the source folder \
                 `cargo build --release --workspace` builds them",
                own.display()
            )))
        });
        Ok(Self { lightloom: lightloom?, daemon: daemon?, own })
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct UpReport {
    pub folder: PathBuf,
    pub fabric: String,
    pub nodes: u32,
    pub transceivers: u32,
    pub circuits: usize,
    pub way: String,
    pub bytes_per_second: Option<u64>,
    pub daemon_socket: PathBuf,
    /// Time in milliseconds from the start until namespaces and interfaces existed.
    pub namespaces_ms: f64,
    pub devices_ms: f64,
    /// Time in milliseconds from the start until the daemon had read all transceivers.
    pub daemon_ms: f64,
    /// Time in milliseconds from the start until the circuits of the plan had light.
    pub total_ms: f64,
}

/// If this fails, everything that was created is removed.
pub fn up(folder: &Folder, wanted: &Wanted, programs: &Programs) -> Result<UpReport, Error> {
    let start = Instant::now();
    let bytes = fs::read(&wanted.fabric)
        .map_err(Error::cannot(format!("read {}", wanted.fabric.display())))?;
    let fabric = load(&wanted.fabric, &bytes)?;
    let record = record(&fabric, wanted)?;
    check::machine(folder, &record, &programs.own)?;
    let plan = plan(wanted, &fabric, programs)?;
    write_all(folder, &record, &bytes, &plan, programs)?;
    let made = make(folder, programs, start);
    let (ready, daemon_ms) = match made {
        Ok(made) => made,
        Err(error) => {
            let undone = hold::down(folder);
            return Err(undone.err().unwrap_or(error));
        }
    };
    Ok(UpReport {
        folder: folder.path().to_owned(),
        fabric: record.fabric.clone(),
        nodes: record.nodes,
        transceivers: record.fabric_nodes * u32::from(record.bundles),
        circuits: plan.circuits.len(),
        way: ready.way,
        bytes_per_second: record.bytes_per_second,
        daemon_socket: folder.daemon_socket(),
        namespaces_ms: ready.namespaces_ms,
        devices_ms: ready.devices_ms,
        daemon_ms,
        total_ms: start.elapsed().as_secs_f64() * 1e3,
    })
}

fn load(file: &Path, bytes: &[u8]) -> Result<Fabric, Error> {
    let name = file.display().to_string();
    let (fabric, mistakes) = lightloom_fabric::file::load(&name, bytes);
    fabric.ok_or_else(|| {
        let style = lightloom_fabric::document::Style::Plain;
        Error::Refused(format!(
            "the fabric file has errors:\n{}",
            lightloom_fabric::document::render(&mistakes, style)
        ))
    })
}

fn record(fabric: &Fabric, wanted: &Wanted) -> Result<Record, Error> {
    let all = fabric.hbd.nodes();
    if fabric.hbd.fibres().next().is_none() {
        return Err(Error::Refused(format!(
            "{} has no transceivers that switch light ({}): the twin needs a fabric with `hbd: {{khop: …}}`",
            fabric.name,
            fabric.hbd.name()
        )));
    }
    let nodes = wanted.nodes.unwrap_or(all);
    if nodes == 0 || nodes > all {
        return Err(Error::Refused(format!(
            "{} has {all} nodes: use 1 to {all} for --nodes",
            fabric.name
        )));
    }
    let bundles = fabric.hbd.k();
    if all > address::NODES_MAX || bundles > address::BUNDLES_MAX {
        return Err(Error::Refused(format!(
            "the twin has no addresses for {all} nodes with {bundles} bundles each: use at most \
             {} with {}",
            address::NODES_MAX,
            address::BUNDLES_MAX
        )));
    }
    let mut record = Record::new(&fabric.name, nodes, all, bundles);
    record.bytes_per_second = wanted.bytes_per_second;
    Ok(record)
}

fn plan(wanted: &Wanted, fabric: &Fabric, programs: &Programs) -> Result<Plan, Error> {
    let bytes = match &wanted.plan {
        Some(file) => fs::read(file).map_err(Error::cannot(format!("read {}", file.display())))?,
        None => {
            let mut command = Command::new(&programs.lightloom);
            command.arg("plan").arg(&wanted.fabric).args(["--format", "json"]);
            let output = command.output();
            let output = output.map_err(Error::cannot("plan the fabric"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(Error::Refused(format!("the fabric cannot be planned: {said}")));
            }
            output.stdout
        }
    };
    let file = wanted.plan.clone().unwrap_or_else(|| "the plan".into());
    let plan: Plan = serde_json::from_slice(&bytes)
        .map_err(|error| Error::File { file: file.clone(), error })?;
    if plan.fabric_sha256 != fabric.sha256 {
        return Err(Error::Refused(format!(
            "{} is a plan for a different fabric file: make a plan for {}",
            file.display(),
            wanted.fabric.display()
        )));
    }
    Ok(plan)
}

fn write_all(
    folder: &Folder,
    record: &Record,
    fabric: &[u8],
    plan: &Plan,
    programs: &Programs,
) -> Result<(), Error> {
    let folders = ["modules", "state", "log", "hostfiles", "done"].map(|name| folder.file(name));
    for path in iter::once(folder.path()).chain(folders.iter().map(PathBuf::as_path)) {
        fs::create_dir_all(path).map_err(Error::cannot(format!("make {}", path.display())))?;
    }
    folder.write(RECORD, record)?;
    let (last, bundle) = (record.fabric_nodes - 1, record.bundles - 1);
    let devices = format!(
        "seed: 1\nfabric: fabric.yaml\ntransceivers:\n  - {{names: \"n{{0..{last}}}/b{{0..{bundle}}}\", \
         powered_for: 2s, protocol: v1.2}}\n"
    );
    let daemon = format!(
        "# lightloomd of a live twin, with automatic bypasses and a hook after each change.\n\
         state_dir: {}\nsocket: {}\nfabric: {}\n\
         policies: {{on_fault: bypass, heartbeat: 5s, poll_every: 1s}}\n\
         hooks:\n  after: {{command: [{}, twin, committed, --dir, {}]}}\n\
         modules:\n  - {{nodes: [0, {last}], bundles: {}, serial: {}}}\n",
        quoted(&folder.file("state")),
        quoted(&folder.daemon_socket()),
        quoted(&folder.file("fabric.yaml")),
        quoted(&programs.own),
        quoted(folder.path()),
        record.bundles,
        quoted(&folder.file("modules/n{node}-b{bundle}")),
    );
    for (name, bytes) in [
        ("fabric.yaml", fabric),
        ("hosts", address::hosts(record.nodes, record.bundles).as_bytes()),
        ("devices.yaml", devices.as_bytes()),
        ("daemon.yaml", daemon.as_bytes()),
    ] {
        let file = folder.file(name);
        fs::write(&file, bytes).map_err(Error::cannot(format!("write {}", file.display())))?;
    }
    environment::write_agent(folder, &programs.own)?;
    folder.write("plan.json", plan)
}

fn quoted(path: &Path) -> String {
    serde_json::to_string(&path.to_string_lossy()).unwrap_or_default()
}

fn make(folder: &Folder, programs: &Programs, start: Instant) -> Result<(Ready, f64), Error> {
    let [log, errors] = folder.log("holder.log")?;
    let mut command = Command::new(&programs.own);
    command.args(["twin", "hold", "--dir"]).arg(folder.path());
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let mut holder = command.spawn().map_err(Error::cannot("start the holder"))?;
    let mut goes_on = |log: &str, what: &str| match holder.try_wait() {
        Ok(Some(_)) => Err(early(folder, log, what)),
        _ => Ok(()),
    };
    let what = "the namespaces were not created";
    let ready = wait_until(HOLDER_WITHIN, || {
        let ready = folder.read("ready.json")?;
        if ready.is_none() {
            goes_on("holder.log", what)?;
        }
        Ok(ready)
    });
    let ready = ready?.ok_or_else(|| early(folder, "holder.log", what))?;
    let (log, what) = ("lightloomd.log", "lightloomd did not start");
    let socket = folder.daemon_socket();
    let listens = wait_until(HOLDER_WITHIN, || match socket.exists() {
        true => Ok(Some(())),
        false => goes_on(log, what).map(|()| None),
    });
    listens?.ok_or_else(|| early(folder, log, what))?;
    ctl(folder, programs, &["wait"])?;
    let daemon_ms = start.elapsed().as_secs_f64() * 1e3;
    ctl(folder, programs, &["adopt", "all"])?;
    let plan = folder.file("plan.json");
    ctl(folder, programs, &["apply", &plan.to_string_lossy()])?;
    let ranks = wait_until(Duration::from_secs(10), || folder.read::<Ranks>(crate::ranks::FILE))?;
    ranks.ok_or_else(|| early(folder, "lightloomd.log", "no rank file within 10 s"))?;
    Ok((ready, daemon_ms))
}

fn early(folder: &Folder, log: &str, what: &str) -> Error {
    let text = fs::read_to_string(folder.file("log").join(log)).unwrap_or_default();
    let last: Vec<_> = text.lines().rev().take(5).collect();
    let last: Vec<_> = last.into_iter().rev().collect();
    Error::Refused(format!("{what}: {}", last.join("; ")))
}

fn ctl(folder: &Folder, programs: &Programs, words: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(&programs.lightloom);
    command.args(["ctl", "--socket"]).arg(folder.daemon_socket()).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = words.first().copied().unwrap_or_default();
    let started = Instant::now();
    let output = command.output().map_err(Error::cannot(format!("run ctl {what}")))?;
    if output.status.success() && started.elapsed() < CTL_WITHIN {
        return Ok(());
    }
    let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes));
    Err(Error::Refused(format!("`lightloom ctl {what}`: {}", said.concat().trim())))
}
