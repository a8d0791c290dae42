// SPDX-License-Identifier: Apache-2.0
//! The journal, the audit log and its key must survive a crash. The shipping code writes them to a
//! disk that stops at any operation and loses unsynced data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::world::CrashAt;
use crate::world::disk::Disk;
use crate::world::ring::{plan_around, ring, two_fibres};
use lightloom_control::change::Mode;
use lightloom_control::drive::{DeviceEnd, Verdict};
use lightloom_control::kept_plan::KeptPlan;
use lightloom_control::ledger::Ledger;
use lightloom_control::record::{
    Asked, Cause, Failed, Intent, Lease, OnFailure, Record, TxnResult,
};
use lightloom_control::state::{Micros, Now, Position, Slot, SwitchState, Txn};
use lightloom_daemon::audit::{Entry, key};
use lightloom_daemon::disk::make_folders;
use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::journal::{Journal, Key, read_all, read_keyed};
use lightloom_fabric::fault::Part;
use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use rand::RngExt;

const AUDIT: &str = "/state/audit.log";
const KEY: &str = "/state/audit.key";

fn now() -> Now {
    Now { mono: Micros::from_secs(5), wall_ms: 1_700_000_000_000, boot: "b".into() }
}

fn asked(id: &str) -> Asked {
    Asked { actor: "alice".into(), request: id.into(), digest: id.into() }
}

fn intent(txn: u32, cause: Cause, plan: &KeptPlan) -> Record {
    let target = SwitchState::from([("n0/b0".into(), [(Slot(0), Position(txn % 3))].into())]);
    let resolves = match cause {
        Cause::Bypass => ["n3".to_owned()].into(),
        _ => BTreeSet::new(),
    };
    Record::Intent(Box::new(Intent {
        txn: Txn(txn),
        asked: asked(&format!("r{txn}")),
        cause,
        plan_sha256: plan.sha256().into(),
        mode: Mode::Safe,
        before: SwitchState::new(),
        after: target.clone(),
        goal: target,
        owned_before: SwitchState::new(),
        confirm_within: None,
        on_failure: OnFailure::Rollback,
        wall_ms: 0,
        failed: None,
        phase: None,
        stages: Vec::new(),
        resolves,
    }))
}

fn end(txn: u32) -> Record {
    let ends = [("n0/b0".into(), DeviceEnd::new(Verdict::Applied, String::new()))].into();
    let (txn, result) = (Txn(txn), TxnResult::Committed);
    Record::End { txn, result, ends, pending: None, wall_ms: 0 }
}

/// Batches of records, which become durable one at a time. An empty batch restarts the journal.
fn batches() -> Vec<Vec<Record>> {
    let installed = ring(8, 2).1.installed.unwrap();
    let plan = |broken: &[Part]| KeptPlan::new(plan_around(&installed, broken).unwrap());
    let broken: Part = "n3".parse().unwrap();
    let (first, around) = (plan(&[]), plan(&[broken]));
    let said = Failed { wall_ms: 1, why: "alice said so".into(), ..Failed::default() };
    let reported = |part: &str| Record::Reported {
        asked: asked(part),
        parts: BTreeMap::from([(part.to_owned(), said.clone())]),
        wall_ms: 1,
    };
    let lease = Lease {
        actor: "job".into(),
        job: "train".into(),
        since: now(),
        within: Micros::from_secs(60),
    };
    vec![
        vec![Record::Started { daemon: "x".into(), wall_ms: 1 }],
        vec![Record::Plan(first.clone()), intent(1, Cause::Apply, &first)],
        vec![end(1)],
        vec![Record::Leased { asked: asked("l"), lease: Some(lease), wall_ms: 1 }],
        vec![reported("n5")],
        vec![reported("n3"), Record::Plan(around.clone()), intent(2, Cause::Bypass, &around)],
        vec![end(2)],
        Vec::new(),
        vec![intent(3, Cause::Apply, &first)],
        vec![end(3)],
        Vec::new(),
        vec![reported("n6")],
    ]
}

fn entry(number: usize) -> Entry {
    Entry {
        unix_ms: number as u64,
        actor: "alice".into(),
        verb: "apply".into(),
        ..Entry::default()
    }
}

/// Records that had been acknowledged, and those still being written, when the machine stopped.
#[derive(Default)]
struct Said {
    ledger: Ledger,
    next: Vec<Record>,
    entries: usize,
    keyed: bool,
}

/// Writes the daemon's files until all batches are written or the machine stops.
fn live(disk: &Disk, said: &mut Said) -> Result<(), Box<dyn std::error::Error>> {
    make_folders(disk, Path::new("/state"), 0o750)?;
    let (mut journal, _) = Journal::<Record, _>::open(disk.journal()?)?;
    let secret = Key::new([7; 32]);
    key::make(disk, Path::new(KEY), &secret)?;
    said.keyed = true;
    let audit = FileStorage::open_on(disk.clone(), Path::new(AUDIT))?;
    let (mut audit, _) = Journal::<Entry, _>::open_keyed(audit, Some(secret))?;
    for (number, batch) in batches().into_iter().enumerate() {
        audit.append([&entry(number)])?;
        said.entries += 1;
        if batch.is_empty() {
            journal.restart(&said.ledger.begun_anew(journal.head().to_owned()))?;
            continue;
        }
        said.next.clone_from(&batch);
        match number % 2 {
            0 => journal.append(&batch)?,
            _ => journal.begin(&batch, 1 << 16)?,
        };
        batch.iter().for_each(|record| said.ledger.apply(record));
        said.next.clear();
    }
    Ok(())
}

fn judge(disk: &Disk, said: &Said, when: &str) {
    make_folders(disk, Path::new("/state"), 0o750).unwrap();
    let journal = disk.journal().unwrap();
    let (mut journal, opened) = Journal::<Record, _>::open(journal).unwrap();
    assert!(opened.damage.is_none(), "{when}: {:?}", opened.damage);
    let found = Ledger::fold(&opened.records);
    let mut may = said.ledger.clone();
    let mut holds = found == may;
    for record in &said.next {
        may.apply(record);
        holds |= found == may;
    }
    assert!(holds, "{when}: {:?} is not {:?}", found.version, said.ledger.version);
    for name in found.plans_needed() {
        assert!(found.plan_named(name).is_some(), "{when}: the plan {name} is lost");
    }
    journal.append([&Record::Started { daemon: "y".into(), wall_ms: 2 }]).unwrap();
    let (again, _, damage) = read_all::<Record>(&disk.bytes());
    assert!(damage.is_none() && again.len() == opened.records.len() + 1, "{when}");

    let text = String::from_utf8(disk.read(KEY)).unwrap();
    assert!(!said.keyed || text.len() == 65, "{when}: the key is gone");
    assert!(text.is_empty() || text.len() == 65, "{when}: half a key: {text:?}");
    let read = read_keyed::<Entry>(&disk.read(AUDIT), Key::from_hex(text.trim()));
    assert!(read.damage.is_none(), "{when}: {:?}", read.damage);
    assert!(read.records.len() >= said.entries, "{when}: {} lines", read.records.len());
}

#[test]
fn power_loss_at_any_file_operation_loses_no_acknowledged_change() {
    let whole = Disk::default();
    whole.stop_after(None);
    live(&whole, &mut Said::default()).unwrap();
    let operations = whole.operations();
    let mut lost = 0;
    for stop in 0..=operations {
        for how in 0..9 {
            let (disk, mut said) = (Disk::default(), Said::default());
            disk.stop_after(Some(stop));
            let over = live(&disk, &mut said);
            assert_eq!(over.is_ok(), stop == operations, "{over:?}");
            disk.stop_after(None);
            match how {
                0 => disk.lose_all(),
                how => disk.lose_power(&mut Seed(stop).stream("power", how)),
            }
            judge(&disk, &said, &format!("stopped after operation {stop}, way {how}"));
            lost += 1;
        }
    }
    println!(
        "power lost after each of {operations} operations on journal, audit log and key, {lost} times in all: 0 \
         plans, reports, leases and lines lost"
    );
}

#[test]
fn any_subset_of_unsynced_pages_loses_no_acknowledged_change() {
    let whole = Disk::bare();
    whole.stop_after(None);
    live(&whole, &mut Said::default()).unwrap();
    let most = cases(6, 12);
    let (mut tried, mut most_unsynced, mut drawn) = (0, 0, 0);
    for stop in 0..=whole.operations() {
        let (disk, mut said) = (Disk::bare(), Said::default());
        disk.stop_after(Some(stop));
        let _stopped = live(&disk, &mut said);
        disk.stop_after(None);
        let unsynced = disk.unsynced();
        most_unsynced = most_unsynced.max(unsynced);
        let all = 1_u64 << unsynced.min(most);
        let mut rng = Seed(stop).stream("kept", 0);
        for number in 0..all {
            let kept = if unsynced > most { rng.random() } else { number };
            drawn += u64::from(unsynced > most);
            let (disk, mut left) = (disk.copied(), kept);
            disk.lose_power_but(|| {
                let keeps = left & 1 == 1;
                left = left.rotate_right(1);
                keeps
            });
            judge(&disk, &said, &format!("stopped after operation {stop}, {kept:b} is kept"));
            tried += 1;
        }
    }
    println!(
        "power lost after each of {} operations, at most {most_unsynced} pages, lengths and names not synced, {tried} subsets of \
         them, {drawn} of these drawn: nothing acknowledged is lost",
        whole.operations()
    );
}

#[test]
fn full_disk_completes_or_refuses_each_change() {
    let installed = ring(8, 2).1.installed.unwrap();
    let plan = KeptPlan::new(plan_around(&installed, &[]).unwrap());
    let disk = Disk::default();
    let (mut journal, _) = Journal::<Record, _>::open(disk.journal().unwrap()).unwrap();
    let first = [Record::Plan(plan.clone()), intent(1, Cause::Apply, &plan)];
    journal.begin(&first, 1 << 16).unwrap();
    disk.fill(true);
    journal.append([&end(1)]).unwrap();
    let mut begun = 1;
    let refused = loop {
        let txn = begun + 1;
        if let Err(error) = journal.begin([&intent(txn, Cause::Bypass, &plan)], 1 << 16) {
            break error.to_string();
        }
        begun = txn;
        journal.append([&end(txn)]).unwrap();
    };
    assert!(begun > 100, "{begun}: what was set aside is used");
    assert!(refused.starts_with("the disk is full"), "{refused}");
    assert!(journal.short_of_space().is_some(), "it is said");
    assert!(journal.failure().is_none(), "nothing was written, so nothing has failed");
    disk.lose_all();
    disk.fill(false);
    let (mut journal, opened) = Journal::<Record, _>::open(disk.journal().unwrap()).unwrap();
    let ledger = Ledger::fold(&opened.records);
    assert!(opened.damage.is_none() && ledger.open.is_none());
    assert_eq!(ledger.last_txn, Txn(begun), "what was refused is not done later");
    journal.begin([&intent(begun + 1, Cause::Bypass, &plan)], 1 << 16).unwrap();
    println!("{begun} changes on a full disk, each to its end; the next one refused");
}

#[test]
fn journal_is_rewritten_in_place_after_a_failed_write() {
    for lost in [false, true] {
        let disk = Disk::default();
        let (mut journal, _) = Journal::<Record, _>::open(disk.journal().unwrap()).unwrap();
        let started = |daemon: &str| Record::Started { daemon: daemon.into(), wall_ms: 1 };
        journal.append([&started("a")]).unwrap();
        disk.fail_syncs(true);
        assert!(journal.append([&started("b")]).is_err());
        disk.fail_syncs(false);
        disk.fill(true);
        assert_eq!(journal.reopen().unwrap().0, [started("a")], "on a full disk, too");
        journal.append([&started("c")]).unwrap();
        if lost {
            disk.lose_all();
        }
        let (_, opened) = Journal::<Record, _>::open(disk.journal().unwrap()).unwrap();
        assert_eq!(opened.records, [started("a"), started("c")]);
    }
}

#[test]
fn plan_record_with_wrong_digest_is_damage() {
    let installed = ring(8, 2).1.installed.unwrap();
    let plan = KeptPlan::new(plan_around(&installed, &[]).unwrap());
    let text = serde_json::to_string(&Record::Plan(plan)).unwrap();
    let read = serde_json::from_str::<Record>(&text.replacen(
        "\"name\":\"ring\"",
        "\"name\":\"other\"",
        1,
    ));
    let why = read.unwrap_err().to_string();
    assert!(why.contains("does not match its digest"), "{why}");
    assert!(serde_json::from_str::<Record>(&text).is_ok());
}

#[test]
fn s1_plan_and_report_survive_a_crash_at_every_point() {
    let run = |point: Option<u64>| {
        let mut world = two_fibres(1);
        let before = world.counts.points;
        world.crash_at = point.map(|point| CrashAt { point: before + point });
        world.say("bob", "reported", vec!["n1".parse().unwrap()], Vec::new());
        world.run_for(Micros::from_millis(40));
        let points = world.counts.points - before;
        if point.is_some() {
            world.run_for(Micros::from_secs(20));
        }
        (world, points)
    };
    let (committed, points) = run(None);
    assert!(
        committed.control().unwrap().facts().is_bypassed("n1".parse().unwrap()),
        "its end is in it"
    );
    let mut bypassed = 0;
    for point in 1..=points {
        let (world, _) = run(Some(point));
        world.check_at_rest();
        let control = world.control().unwrap();
        let is_lost = !control.ledger().plan_sha256.is_empty() && control.plan_in_force().is_none();
        assert!(!is_lost, "point {point}");
        let acknowledged = world.answers.iter().any(|(asked, _)| asked.request == "reported");
        let known = control.facts().failed_parts().contains_key("n1");
        assert!(known || !acknowledged, "point {point}: what was acknowledged is forgotten");
        bypassed += u32::from(control.facts().is_bypassed("n1".parse().unwrap()));
    }
    println!(
        "S1: a plan and a report over a crash at each of {points} points: {bypassed} bypassed"
    );
    assert!(bypassed > 0);
}

/// Measures the time to read a journal with four large plans, and its size after a restart of the
/// journal. `LIGHTLOOM_PLAN_NODES=32768` selects the 131,072 GPUs of docs/reliability.md.
#[test]
fn reads_a_journal_of_large_plans_quickly_and_keeps_needed_ones() {
    let nodes = std::env::var("LIGHTLOOM_PLAN_NODES").ok().and_then(|nodes| nodes.parse().ok());
    let nodes: u32 = nodes.unwrap_or(2048);
    let installed = ring(nodes, nodes / 4).1.installed.unwrap();
    let plan = |broken: &str| {
        let broken: Vec<Part> = broken.split_whitespace().map(|b| b.parse().unwrap()).collect();
        KeptPlan::new(plan_around(&installed, &broken).unwrap())
    };
    let plans = [plan(""), plan("n3"), plan("n3 n9"), plan("n3 n9 n70")];
    let disk = Disk::default();
    let (mut journal, _) = Journal::<Record, _>::open(disk.journal().unwrap()).unwrap();
    let started = std::time::Instant::now();
    for (txn, plan) in (1..).zip(&plans) {
        let cause = if txn == 1 { Cause::Apply } else { Cause::Bypass };
        journal.begin(&[Record::Plan(plan.clone()), intent(txn, cause, plan)], 1 << 16).unwrap();
        journal.append([&end(txn)]).unwrap();
    }
    let (written, bytes) = (started.elapsed() / 4, disk.bytes().len());
    let started = std::time::Instant::now();
    let (mut journal, opened) = Journal::<Record, _>::open(disk.journal().unwrap()).unwrap();
    let ledger = Ledger::fold(&opened.records);
    let read = started.elapsed();
    assert!(opened.damage.is_none());
    for needed in [&plans[0], &plans[2], &plans[3]] {
        assert!(ledger.plans.contains_key(needed.sha256()), "applied, before, and now");
    }
    let after = journal.head().to_owned();
    journal.restart(&ledger.begun_anew(after)).unwrap();
    let anew = disk.bytes().len();
    let (records, _, _) = read_all::<Record>(&disk.bytes());
    assert_eq!(Ledger::fold(&records), ledger);
    println!(
        "plans of {} GPUs: {:.1} MB each, written in {written:.2?}; a journal with four of them, {:.1} MB, read in \
         {read:.2?}, begins anew with {:.1} MB",
        4 * nodes,
        bytes as f64 / 4e6,
        bytes as f64 / 1e6,
        anew as f64 / 1e6
    );
    assert!(read.as_secs() < 20, "{read:?}");
}
