// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, bail};
use lightloom_fabric::document::{self, Style};
use lightloom_fabric::fabric::Fabric;
use lightloom_units::seed::Seed;
use tokio::sync::{mpsc, watch};

use crate::api::Shared;
use crate::audit::{self, Audit, Entry};
use crate::clock::Clock;
use crate::cluster::{JournalPlace, LeaderSeat, Leadership};
use crate::config::{self, Chances, Config};
use crate::disk::{self, make_folders};
use crate::driver::Endpoint;
use crate::driver::chaos::Chaos;
use crate::fence::Fence;
use crate::file_storage::FileStorage;
use crate::hooks::Hooks;
use crate::journal::{Journal, Storage};
use crate::metrics::Metrics;
use crate::protocol::Place;
use crate::runtime::{Parts, Runtime};
use crate::tend::{FromDevice, ToDevice, tend};
use crate::traces::Traces;
use crate::view::lost_plans;
use lightloom_control::ledger::Ledger;
use lightloom_control::policy::{Control, Setup};
use lightloom_control::record::Record;
use lightloom_control::state::DeviceName;

const FILE_BYTES_MAX: u64 = 64 << 20;

pub fn read_files(path: &Path) -> anyhow::Result<(Config, Option<Fabric>)> {
    let config = checked(path, config::load)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let Some(file) = config.file.fabric.as_ref().map(|fabric| folder.join(fabric)) else {
        return Ok((config, None));
    };
    let beside = file.parent().unwrap_or(Path::new("."));
    let installed = checked(&file, |shown, bytes| {
        lightloom_planner::load(shown, bytes, &mut |name: &str| {
            fs::read_to_string(beside.join(name))
                .map_err(|error| format!("cannot read {name}: {error}"))
        })
    })?;
    let mut config = checked(path, |shown, bytes| config::load_for(shown, bytes, &installed))?;
    // Make the path absolute, because the commands in messages may be run from another directory.
    config.file.fabric = Some(std::path::absolute(file)?);
    Ok((config, Some(installed)))
}

fn checked<T>(
    path: &Path,
    load: impl FnOnce(&str, &[u8]) -> (Option<T>, Vec<document::Diagnostic>),
) -> anyhow::Result<T> {
    let shown = path.display().to_string();
    let size = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if size > FILE_BYTES_MAX {
        bail!("{shown} is larger than {FILE_BYTES_MAX} bytes");
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    let (value, mistakes) = load(&shown, &bytes);
    value.with_context(|| document::render(&mistakes, Style::Plain).trim_end().to_owned())
}

pub fn check_journal(config: &Config) -> anyhow::Result<(usize, Ledger)> {
    let place = JournalPlace::of(config);
    let read = match place.read() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok((0, Ledger::default()));
        }
        read => read.with_context(|| format!("cannot read {place}"))?,
    };
    match read {
        (records, None) => {
            let ledger = Ledger::fold(&records);
            match lost_plans(&ledger).into_iter().next() {
                Some(lost) => bail!("{} is lost: {}; {}", lost.what, lost.why, lost.next),
                None => Ok((records.len(), ledger)),
            }
        }
        (_, Some(damage)) => bail!("{place}: {damage}; {}", place.after_damage(&damage)),
    }
}

pub struct Daemon {
    pub runtime: Runtime,
    pub calls: mpsc::Receiver<crate::runtime::Call>,
    pub events: mpsc::UnboundedReceiver<crate::tend::FromDevice>,
    pub shared: Shared,
}

pub fn start(config: Config, installed: Option<Fabric>) -> anyhow::Result<Daemon> {
    start_on(config, installed, |file| Ok(Box::new(FileStorage::open(file)?)))
}

pub fn start_on(
    config: Config,
    installed: Option<Fabric>,
    open: impl FnOnce(&Path) -> io::Result<Box<dyn Storage + Send>>,
) -> anyhow::Result<Daemon> {
    begin(config, installed, None, open)
}

pub fn lead(
    config: Config,
    installed: Option<Fabric>,
    seat: &LeaderSeat,
) -> anyhow::Result<Daemon> {
    begin(config, installed, Some(seat), |_| Ok(Box::new(seat.journal()?)))
}

fn begin(
    mut config: Config,
    installed: Option<Fabric>,
    seat: Option<&LeaderSeat>,
    open: impl FnOnce(&Path) -> io::Result<Box<dyn Storage + Send>>,
) -> anyhow::Result<Daemon> {
    if let Some(installed) = &installed {
        config.inventory.cable(installed, &config.bundles);
    }
    let folder = config.file.state_dir.clone();
    make_folders(&disk::Real, &folder, 0o750)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let drivers = drivers(&config, seat)?;
    let storage = open(&config.journal_file())?;
    let (mut journal, opened) = Journal::<Record, _>::open(storage)?;
    if opened.torn_bytes > 0 {
        tracing::warn!(bytes = opened.torn_bytes, "removed a torn tail from the journal");
    }
    let damage = opened.damage;
    let clock = Clock::new();
    let metrics = Metrics::new()?;
    let mut ledger = Ledger::fold(&opened.records);
    let audited = FileStorage::open(&config.file.state_dir.join(audit::key::AUDIT_FILE))?;
    let journal_gone = opened.records.is_empty() && damage.is_none() && audited.has_bytes();
    // A shared journal does not record the audit key, because each host has its own.
    let is_alone = seat.is_none();
    let known = ledger.audit_key.clone().filter(|_| is_alone);
    let (audit, key) = open_audit(&config, audited, known.as_deref())?;
    if let Some(sha256) = key.filter(|_| damage.is_none() && is_alone) {
        let record = Record::AuditKey { sha256, wall_ms: clock.now().wall_ms };
        // If this fails, the next start retries it.
        if journal.append([&record]).is_ok() {
            ledger.apply(&record);
        }
    }
    let inventory = config.inventory.clone();
    let (control, first) =
        Control::start(inventory, setup(&config, installed), ledger, &clock.now());
    // Do not complete an open change if the journal is damaged.
    let first = if damage.is_some() { Vec::new() } else { first };
    let (events_in, events) = mpsc::unbounded_channel();
    let fence = seat.map_or_else(Fence::default, |seat| seat.fence.clone());
    let devices = tend_all(drivers, &events_in, &metrics, &fence);
    let (calls_in, calls) = mpsc::channel(1024);
    let (changes, changes_out) = watch::channel(0);
    let instance = seat.map_or_else(|| claimant(&config, None), |seat| seat.name.clone());
    let (traces, parents) = Traces::start(config.file.traces.as_ref(), &instance, &metrics)?;
    let hooks = Hooks::start(config.file.hooks.clone(), &metrics);
    let shared = Shared {
        hooks: hooks.clone(),
        parents,
        calls: calls_in,
        audit: audit.clone(),
        metrics: metrics.clone(),
        changes: changes_out,
        clock: clock.clone(),
        devices: devices.clone(),
    };
    let parts = Parts {
        control,
        first,
        place: JournalPlace::of(&config),
        leadership: seat.map(leadership),
        journal,
        audit,
        damage,
        proof: opened.proof,
        journal_gone,
        config,
        clock,
        metrics,
        devices,
        changes,
        hooks,
        traces,
    };
    Ok(Daemon { runtime: Runtime::new(parts), calls, events, shared })
}

fn setup(config: &Config, installed: Option<Fabric>) -> Setup {
    Setup {
        installed,
        modules: config.bundles.clone(),
        switches: config.numbered_switches(),
        on_fault: config.file.policies.on_fault,
        may_move: config.file.policies.may_move(),
        heal: config.file.policies.heal_policy(),
        heartbeat: config::micros(config.file.policies.heartbeat),
    }
}

fn leadership(seat: &LeaderSeat) -> Leadership {
    Leadership { name: seat.name.clone(), epoch: seat.epoch, standbys: seat.standbys.clone() }
}

fn tend_all(
    drivers: BTreeMap<DeviceName, Endpoint>,
    events: &mpsc::UnboundedSender<FromDevice>,
    metrics: &Metrics,
    fence: &Fence,
) -> BTreeMap<DeviceName, mpsc::UnboundedSender<ToDevice>> {
    let mut devices = BTreeMap::new();
    for (name, driver) in drivers {
        let (sender, receiver) = mpsc::unbounded_channel();
        let took = metrics.operation_seconds.clone();
        tokio::spawn(tend(name.clone(), driver, receiver, events.clone(), took, fence.clone()));
        devices.insert(name, sender);
    }
    devices
}

fn open_audit(
    config: &Config,
    storage: FileStorage,
    known: Option<&str>,
) -> anyhow::Result<(Audit, Option<String>)> {
    let key_file = audit::key::path(config);
    let has_lines = storage.has_bytes();
    let found = audit::key::read(&key_file)?;
    if let Some(wrong) =
        audit::key::not_the_one(&key_file, found.as_ref(), known).filter(|_| has_lines)
    {
        // Do not create a new key, because the existing log could then no longer be verified.
        tracing::error!(wrong, "the audit log is damaged: changes are refused");
        let mut journal = Journal::<Entry, _>::open_unread(storage);
        journal.distrust(format!(
            "{wrong}; restore the key from a backup, or {}",
            audit::key::WHAT_TO_DO
        ));
        return Ok((Audit::new(journal), None));
    }
    let (key, is_new) = audit::key::read_or_make(&key_file)?;
    let sha256 = key.sha256();
    let (mut journal, opened) = Journal::<Entry, _>::open_keyed(storage, Some(key))?;
    let lines = journal.length();
    let without_key = lines > 0 && journal.keyed_from().is_none() && opened.damage.is_none();
    if let Some(damage) = opened.damage {
        let why = format!("{damage}; {}", audit::key::WHAT_TO_DO);
        tracing::error!(why, "the audit log is damaged: changes are refused");
        journal.distrust(why);
    } else if without_key && is_new {
        journal.append([&Entry {
            unix_ms: Clock::new().now().wall_ms,
            actor: "lightloomd".into(),
            verb: "audit-key".into(),
            result: format!("keyed from here on; lines 1 to {lines} are not"),
            ..Entry::default()
        }])?;
        tracing::warn!(lines, "earlier lines of the audit log are unkeyed, new lines are keyed");
    } else if without_key {
        let why = audit::key::unkeyed(lines, &key_file);
        tracing::error!(why, "the audit log is damaged: changes are refused");
        journal.distrust(why);
    }
    let news = known != Some(sha256.as_str()) && journal.failure().is_none();
    Ok((Audit::new(journal), news.then_some(sha256)))
}

fn drivers(
    config: &Config,
    seat: Option<&LeaderSeat>,
) -> anyhow::Result<BTreeMap<DeviceName, Endpoint>> {
    let mut drivers = BTreeMap::new();
    let (claimant, wall_ms) = (claimant(config, seat), Clock::new().now().wall_ms);
    let epoch_from = config.file.etcd.as_ref().map_or(0, |etcd| etcd.epoch_from);
    let epoch = seat.map(|seat| seat.epoch.saturating_add(epoch_from));
    for (index, (name, (file, chances))) in config.drivers.iter().enumerate() {
        let ports = config.ports.get(name).copied();
        let place = Place { device: name.as_str(), ports, claimant: &claimant, wall_ms, epoch };
        let driver = file.protocol().endpoint(&place).with_context(|| format!("device {name}"))?;
        drivers.insert(name.clone(), with_chaos(driver, *chances, index as u64));
    }
    Ok(drivers)
}

fn with_chaos(driver: Endpoint, chances: Option<Chances>, index: u64) -> Endpoint {
    match chances {
        Some(chances) => {
            let draws = Seed(0).stream("chaos", index);
            let conversation = Box::new(Chaos::new(driver.conversation, chances, draws));
            Endpoint { conversation, ..driver }
        }
        None => driver,
    }
}

/// Returns the name under which this daemon claims devices. All daemons of a cluster use the same
/// name, so that a new leader inherits the claims.
fn claimant(config: &Config, seat: Option<&LeaderSeat>) -> String {
    if let (Some(etcd), Some(_)) = (&config.file.etcd, seat) {
        return format!("lightloomd@etcd:{}", etcd.prefix).replace(' ', "_");
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let folder = std::path::absolute(&config.file.state_dir);
    let folder = folder.unwrap_or_else(|_| config.file.state_dir.clone());
    format!("lightloomd@{}:{}", host.trim(), folder.display()).replace(' ', "_")
}

pub fn socket_path(config: &Config) -> PathBuf {
    config.file.socket.clone().unwrap_or_else(|| config.file.state_dir.join("lightloomd.sock"))
}
