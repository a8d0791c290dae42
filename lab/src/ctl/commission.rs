// SPDX-License-Identifier: Apache-2.0
//! `lightloom ctl commission` checks modules and cables against the fabric file by lighting ends
//! without circuits. Each round is a transaction in probe mode, in which the daemon refuses to move
//! slots that may carry a circuit. Findings are saved after each round.

mod papers;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use lightloom_control::commission::{
    CablingFinding, Commission, FibreEnds, LightSource, findings, swaps,
};
use lightloom_control::controller::end_name;
use lightloom_control::state::{
    DeviceName, FibreEnd, Observation, Position, Slot, SwitchState as Positions,
};
use lightloom_daemon_api::answer::Answer;
use lightloom_daemon_api::body::{ApplyBody, Mode, RawValue};
use lightloom_daemon_api::device::{DeviceState, DeviceStatus};
use lightloom_daemon_api::module::ModuleView;
use lightloom_daemon_api::status::Status;
use lightloom_daemon_api::transaction::{Transaction, TransactionResult};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::khop::Port;
use lightloom_fabric::provenance::Inputs;

use self::report::{CommissionReport, ModuleCheck};
use super::{CtlSession, fresh_id, show};
use lightloom::files;
use lightloom::output::{self, VerbOutcome};
use lightloom::progress::Progress;
use lightloom::result::ResultDocument;

const ROUNDS_MAX: usize = 2_000;
/// Maximum number of retries of a round, each without the modules that have failed.
const TRIES_MAX: usize = 16;
const OTHERS_WITHIN: Duration = Duration::from_secs(30);
/// Lower power than this is treated as no light.
const LEAST_DBM: f64 = -14.0;

#[derive(Debug, Args)]
pub(super) struct CommissionArguments {
    /// Fabric file that defines the fibres.
    fabric: PathBuf,
    /// Inventory of modules: a CSV file with the columns `module` and `serial`.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// Cabling record: a CSV file with columns `a` and `b` of ends such as `n0/b0.1` or `SERIAL.1`.
    #[arg(long, value_name = "FILE")]
    cabling: Option<PathBuf>,
    /// File for the findings, which a later call continues from [default: commission.json].
    #[arg(long, value_name = "FILE", default_value = "commission.json", hide_default_value = true)]
    state: PathBuf,
    /// Discard earlier findings and test all ends again.
    #[arg(long)]
    again: bool,
    /// Switch nothing: compare serial numbers and records, and show earlier findings.
    #[arg(long)]
    dry_run: bool,
    /// Tolerated loss beyond the fabric's `optics`, in dB.
    #[arg(long, value_name = "DB", default_value_t = 2.0, value_parser = margin)]
    margin: f64,
}

struct CommissionSite {
    fabric: Fabric,
    planned: Vec<(FibreEnd, FibreEnd)>,
    modules: BTreeMap<String, DeviceStatus>,
}

pub(super) fn run(
    session: &CtlSession,
    wanted: &CommissionArguments,
) -> anyhow::Result<VerbOutcome> {
    let site = site(session, wanted)?;
    let mut report = CommissionReport::load(&wanted.state)?;
    if wanted.again {
        report.found.clear();
    }
    report.begin(&site.fabric)?;
    report.modules = site.checked_modules();
    report.take_lit(&site.modules);
    let inventory = wanted.inventory.as_deref().map(papers::inventory).transpose()?;
    let serials = serials(session, &site, inventory.is_some() || wanted.cabling.is_some())?;
    report.serials = inventory.map(|inventory| papers::compare_serials(&inventory, &serials));
    let record = wanted.cabling.as_deref().map(papers::cabling).transpose()?;
    report.record = record.map(|record| papers::compare_record(&record, &serials, &site.fibres()));
    let mut way = Ok(());
    if !wanted.dry_run {
        way = try_light(session, &site, &mut report, &wanted.state);
    }
    report.conclude(&site, wanted.margin);
    report.save(&wanted.state)?;
    let document = ResultDocument::new("lightloom.commission/v1", Inputs::new(), &report);
    session.format.print(&document, "fibres", || report.text(&wanted.state))?;
    way?;
    Ok(if report.is_good() { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn site(session: &CtlSession, wanted: &CommissionArguments) -> anyhow::Result<CommissionSite> {
    let fabric = lightloom::fabric::read(&wanted.fabric)?;
    let both = fabric.hbd.fibres().map(|fibre| fabric.hbd.ports(fibre));
    let planned: Vec<_> = both.map(|(a, b)| (fibre_end(a), fibre_end(b))).collect();
    anyhow::ensure!(
        !planned.is_empty(),
        "{} contains no transceivers with an internal switch, so there are no ends to test",
        wanted.fabric.display()
    );
    let status: Status = session.client.get("/v1/status")?.granted()?;
    let named: BTreeSet<&str> =
        planned.iter().flat_map(|(a, b)| [a.0.as_str(), b.0.as_str()]).collect();
    let modules = status.devices.into_iter().map(|device| (device.name.clone(), device));
    let modules: BTreeMap<_, _> =
        modules.filter(|(name, _)| named.contains(name.as_str())).collect();
    anyhow::ensure!(
        !modules.is_empty(),
        "the daemon drives none of the modules in {}: does another daemon drive this fabric?",
        wanted.fabric.display()
    );
    Ok(CommissionSite { fabric, planned, modules })
}

fn serials(
    session: &CtlSession,
    site: &CommissionSite,
    asked: bool,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut serials = BTreeMap::new();
    let present: Vec<&String> =
        site.modules.iter().filter(|(_, m)| m.up && asked).map(|(name, _)| name).collect();
    let progress = Progress::new("serial numbers", present.len() as u64);
    for name in present {
        let response = session.client.get(&format!("/v1/module/{name}"))?;
        if response.is_good() {
            let module: ModuleView = response.read()?;
            serials.insert(name.clone(), module.serial.trim().to_owned());
        }
        progress.advance(1);
    }
    Ok(serials)
}

fn try_light(
    session: &CtlSession,
    site: &CommissionSite,
    report: &mut CommissionReport,
    state: &std::path::Path,
) -> anyhow::Result<()> {
    report.remember_rest(&site.modules);
    let free: Vec<&DeviceStatus> = site.modules.values().filter(|module| is_free(module)).collect();
    let rest = report.rest(&free);
    let mut commission = Commission::new(site.ends(&free), &site.planned, &rest);
    commission.resume(&report.found);
    let (mut known, ends) = commission.progress();
    let progress = Progress::new("ends", ends as u64);
    progress.advance(known as u64);
    // An earlier call may have left modules on a test path.
    let mut lit = site.modules.values().any(|module| !module.probed.is_empty());
    report.save(state)?;
    while let Some(round) = commission.next_round() {
        anyhow::ensure!(
            commission.rounds() <= ROUNDS_MAX,
            "some ends are still unknown after {ROUNDS_MAX} rounds"
        );
        lit = true;
        let read = probe(session, round, &mut commission)?;
        commission.heard(&read, mdbm(LEAST_DBM));
        report.rounds += 1;
        report.found.extend(commission.found());
        report.save(state)?;
        let now = commission.progress().0;
        progress.advance((now - known) as u64);
        known = now;
    }
    report.found.extend(commission.found());
    report.leave_out(&commission);
    drop(progress);
    if lit {
        let back = commission.at_rest();
        probe(session, back, &mut commission)?;
    }
    Ok(())
}

/// Returns the reading of each module after the round, without modules that failed.
fn probe(
    session: &CtlSession,
    round: Positions,
    commission: &mut Commission,
) -> anyhow::Result<BTreeMap<DeviceName, Observation>> {
    let mut round = round;
    for _ in 0..TRIES_MAX {
        let target = round.iter().map(|(name, to)| {
            (name.to_string(), to.iter().map(|(slot, to)| (slot.0, to.0)).collect())
        });
        let body: ApplyBody<Box<RawValue>> = ApplyBody {
            request_id: fresh_id("probe"),
            target: Some(target.collect()),
            mode: Mode::Probe,
            ..ApplyBody::default()
        };
        let txn = begun(session, &body)?;
        let past = transaction(session, txn)?;
        if past.result == TransactionResult::Committed {
            return seen(session, &round);
        }
        let failed = past.devices.iter().filter(|device| !device.detail.is_empty());
        let failed: Vec<_> = failed.collect();
        anyhow::ensure!(
            !failed.is_empty(),
            "transaction {txn} did not complete: see `lightloom ctl journal`"
        );
        for device in failed {
            let name = DeviceName::from(device.device.as_str());
            output::note(&format!("{name} is skipped: {}", device.detail));
            commission.leave_out(&name, &device.detail);
            round.remove(&name);
        }
    }
    anyhow::bail!("the test was abandoned because modules keep failing: see `lightloom ctl status`")
}

/// Waits until another open change has ended, then starts the round.
fn begun(session: &CtlSession, body: &ApplyBody<Box<RawValue>>) -> anyhow::Result<u32> {
    let until = Instant::now() + OTHERS_WITHIN;
    loop {
        let response = session.client.post("/v1/apply", body)?;
        match response.read() {
            Ok(Answer::Accepted { txn }) if response.is_good() => return Ok(txn),
            Ok(Answer::Conflict { .. }) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(200));
            }
            _ => anyhow::bail!("{}", show::refusal(&response.body)),
        }
    }
}

fn transaction(session: &CtlSession, txn: u32) -> anyhow::Result<Transaction> {
    loop {
        let response = session.client.get(&format!("/v1/transactions/{txn}?wait_ms=5000"))?;
        if response.code != 404 {
            return response.granted();
        }
    }
}

fn seen(
    session: &CtlSession,
    round: &Positions,
) -> anyhow::Result<BTreeMap<DeviceName, Observation>> {
    let status: Status = session.client.get("/v1/status")?.granted()?;
    let named =
        status.devices.iter().map(|device| (DeviceName::from(device.name.as_str()), device));
    let read = named.filter(|(name, device)| round.contains_key(name) && device.up);
    read.map(|(name, device)| Ok((name, observation(device)?))).collect()
}

impl CommissionSite {
    fn fibres(&self) -> Vec<FibreEnds> {
        self.planned.iter().map(|(a, b)| FibreEnds { a: end_name(a), b: end_name(b) }).collect()
    }

    fn ends(&self, free: &[&DeviceStatus]) -> Vec<FibreEnd> {
        let paths: BTreeSet<Position> = self.planned.iter().flat_map(|(a, b)| [a.2, b.2]).collect();
        let ends = free.iter().flat_map(|module| {
            let name = DeviceName::from(module.name.as_str());
            paths.iter().map(move |path| (name.clone(), Slot(0), *path)).collect::<Vec<_>>()
        });
        ends.collect()
    }

    fn checked_modules(&self) -> Vec<ModuleCheck> {
        let names: BTreeSet<&str> =
            self.planned.iter().flat_map(|(a, b)| [a.0.as_str(), b.0.as_str()]).collect();
        let checks = names.into_iter().map(|name| {
            let why_not_tried = match self.modules.get(name) {
                None => Some("no device is configured for it".to_owned()),
                Some(module) => why_not(module),
            };
            ModuleCheck { module: name.to_owned(), why_not_tried }
        });
        checks.collect()
    }

    /// Returns the minimum power expected at a fibre's ends. `None` without a specified loss.
    fn least_mdbm(&self, fibre: &FibreEnds, margin_db: f64) -> Option<i32> {
        let light = self.fabric.transceiver.light.as_ref()?;
        let at = self.planned.iter().position(|(a, _)| end_name(a) == fibre.a)?;
        let hops = self.fabric.hbd.fibres().nth(at)?.hops;
        let should = light.hops_dbm.get(usize::from(hops).checked_sub(1)?)?;
        #[expect(clippy::cast_possible_truncation, reason = "a power in 1/1000 dBm")]
        Some(((should - margin_db).max(light.sensitivity_dbm) * 1000.0).round() as i32)
    }
}

fn margin(text: &str) -> Result<f64, String> {
    let margin = text.parse().ok().filter(|margin| (0.0..=30.0).contains(margin));
    margin.ok_or_else(|| "expected a number of dB from 0 to 30".to_owned())
}

fn is_free(module: &DeviceStatus) -> bool {
    why_not(module).is_none()
}

fn fibre_end(port: Port) -> FibreEnd {
    let device = DeviceName::from(port.bundle.to_string().as_str());
    (device, Slot(0), Position(u32::from(port.path)))
}

fn why_not(module: &DeviceStatus) -> Option<String> {
    let inside = [Position::DARK.0, Position::LOOPBACK.0];
    let carries = module.slots.values().any(|at| !inside.contains(at)) && module.probed.is_empty();
    let mut drift = module.drift.iter();
    let moved =
        drift.any(|slot| !inside.contains(&slot.ledger) || !inside.contains(&slot.device_says));
    match module.state {
        _ if !module.up => Some(module.trouble.clone().unwrap_or("it does not answer".into())),
        DeviceState::Unseen => Some("it has not been read".into()),
        DeviceState::Moving => Some("it is being switched".into()),
        DeviceState::Attention => Some("an operator must inspect it first".into()),
        _ if carries => Some("it carries a circuit".into()),
        _ if moved => Some("its position differs from the journal".into()),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a power in 1/1000 dBm")]
fn mdbm(dbm: f64) -> i32 {
    (dbm * 1000.0).round() as i32
}

fn observation(device: &DeviceStatus) -> anyhow::Result<Observation> {
    let positions = device.slots.iter().map(|(s, to)| Ok((slot(s)?, Position(*to))));
    let powers = device.power_dbm.iter().map(|(s, dbm)| Ok((slot(s)?, mdbm(*dbm))));
    let neighbours = device.neighbours.iter().map(|(s, name)| Ok((slot(s)?, name.clone())));
    Ok(Observation {
        positions: positions.collect::<anyhow::Result<_>>()?,
        power_mdbm: powers.collect::<anyhow::Result<_>>()?,
        neighbours: neighbours.collect::<anyhow::Result<_>>()?,
        ..Observation::default()
    })
}

fn slot(text: &str) -> anyhow::Result<Slot> {
    text.parse().map(Slot).context("a slot is a number")
}
