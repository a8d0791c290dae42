// SPDX-License-Identifier: Apache-2.0
//! S2: the journal's disk fails at any write or flush of a change. The daemon refuses new work,
//! answers queries and leaves the light on; after a restart, everything that it acknowledged is
//! present.

use crate::daemon_rig;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daemon_rig::ring::{NODES, faults, node_in_use, ring};
use daemon_rig::{Modules, Rig, first_plan, installed, on_a_runtime};
use lightloom_control::controller::{Answer, Apply, Request};
use lightloom_control::state::{DeviceName, Position, Positions, Slot, SwitchState};
use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::journal::Storage;
use lightloom_daemon::runtime::Runtime;
use lightloom_daemon::view;
use lightloom_fabric::fault::Part;
use lightloom_units::id::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Write(ErrorKind),
    Sync,
    Full,
}

/// The fault, and the number of writes or flushes that succeed before it.
pub(crate) type Plan = Arc<Mutex<Option<(Fault, u32)>>>;

pub(crate) struct Failing(FileStorage, Plan);

impl Failing {
    pub(crate) fn open(file: &Path, plan: Plan) -> io::Result<Box<dyn Storage + Send>> {
        Ok(Box::new(Self(FileStorage::open(file)?, plan)))
    }

    fn fails(&self, concerns: impl Fn(Fault) -> Option<ErrorKind>) -> io::Result<()> {
        let mut plan = self.1.lock().unwrap();
        let Some((fault, left)) = plan.as_mut() else { return Ok(()) };
        let Some(kind) = concerns(*fault) else { return Ok(()) };
        if *left == 0 {
            return Err(kind.into());
        }
        *left -= 1;
        Ok(())
    }

    fn fails_to_write(&self) -> io::Result<()> {
        self.fails(|fault| match fault {
            Fault::Write(kind) => Some(kind),
            Fault::Sync | Fault::Full => None,
        })
    }
}

impl Storage for Failing {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        self.0.load()
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fails_to_write()?;
        self.0.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.fails(|fault| (fault == Fault::Sync).then_some(ErrorKind::Other))?;
        self.0.sync()
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fails_to_write()?;
        self.fails(|fault| (fault == Fault::Sync).then_some(ErrorKind::Other))?;
        self.0.replace(bytes)
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.fails_to_write()?;
        self.0.truncate(length)
    }
    fn rewrite(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.fails_to_write()?;
        self.fails(|fault| (fault == Fault::Sync).then_some(ErrorKind::Other))?;
        self.0.rewrite(bytes)
    }
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        self.fails(|fault| (fault == Fault::Full).then_some(ErrorKind::StorageFull))?;
        self.0.make_room(bytes)
    }
}

async fn rig(switch: &str, folder: &Path, plan: &Plan) -> Rig {
    let file = format!(
        "policies: {{poll_every: 100ms}}\ndevices:\n- {{name: ocs0, driver: {{scpi: {{tcp: \"{switch}\"}}}}}}\n"
    );
    let plan = Arc::clone(plan);
    let open = |path: &Path| Failing::open(path, plan);
    Rig::on_disk(&file, folder, None, open).await
}

/// Runs the cases in parallel with separate switches and folders, because they mostly wait.
fn each_on_its_own<T: Copy + Sync, R: Send>(
    cases: &[T],
    attempt: impl Fn(T, &str, &Path) -> R + Sync,
) -> Vec<R> {
    let list =
        "switches:\n  - {name: ocs0, ingress: 8, egress: 8, scpi: '127.0.0.1:0', switching: 5ms}\n";
    let on_its_own = |case| {
        let folder = tempfile::tempdir().unwrap();
        let (_switch, at) = Modules::of_list(list, &folder.path().join("links"));
        attempt(case, &at[0], folder.path())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            cases.iter().map(|case| scope.spawn(move || on_its_own(*case))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn circuits(crosswise: bool) -> Positions {
    let to = if crosswise { [10, 9] } else { [9, 10] };
    [(Slot(1), Position(to[0])), (Slot(2), Position(to[1]))].into()
}

fn change(crosswise: bool) -> Request {
    let target = SwitchState::from([("ocs0".into(), circuits(crosswise))]);
    Request::Apply(Apply { target, ..Apply::default() })
}

fn stands(runtime: &Runtime) -> Positions {
    let seen = &runtime.control.sightings().devices()[&DeviceName::from("ocs0")];
    seen.observed().map(|read| read.positions.clone()).unwrap_or_default()
}

/// The fault hits the second change. Returns the switch's state after a restart, if the fault occurred.
async fn change_on(switch: &str, folder: &Path, fault: Fault, after: u32) -> Option<Positions> {
    let plan = Plan::default();
    let mut first = rig(switch, folder, &plan).await;
    let answer = first.ask(change(false), None).await;
    first.committed(&answer).await;
    *plan.lock().unwrap() = Some((fault, after));
    let _accepted_or_refused = first.ask(change(true), None).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let failed =
        first.look(|runtime: &Runtime| runtime.control.journal_failure().map(str::to_owned)).await;
    if failed.is_some() {
        let status = first.look(view::status).await;
        assert_eq!(status.journal_failure, failed, "who looks is answered");
        let open = first.look(|runtime: &Runtime| runtime.control.ledger().open.is_some()).await;
        let report = first.look(view::drift).await;
        assert!(report.complete && (open || report.slots.is_empty()), "reads go on: {report:?}");
        let stood = first.look(stands).await;
        let refused = first.ask(change(true), None).await;
        let Answer::Refused { reasons } = &refused else {
            panic!("{fault:?} {after}: {refused:?}")
        };
        assert!(
            reasons[0].starts_with("the journal has failed, so changes are refused"),
            "{reasons:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(first.look(stands).await, stood);
    }
    let requests = first.requests;
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    *plan.lock().unwrap() = None;
    let mut next = Rig { requests, ..rig(switch, folder, &plan).await };
    let over = |runtime: &Runtime| (!runtime.control.transactions().is_busy()).then_some(());
    next.find("what was open to end", over).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    let (stood, drifted) =
        next.look(|runtime: &Runtime| (stands(runtime), view::drift(runtime).slots.len())).await;
    assert_eq!(drifted, 0, "{fault:?} {after}");
    for crosswise in [true, false] {
        let answer = next.ask(change(crosswise), None).await;
        if !matches!(answer, Answer::Done) {
            next.committed(&answer).await;
        }
    }
    failed.map(|_| stood)
}

#[test]
fn s2_failing_disk_refuses_changes_serves_reads_and_leaves_no_mix() {
    let faults = [
        Fault::Write(ErrorKind::Other),
        Fault::Write(ErrorKind::StorageFull),
        Fault::Write(ErrorKind::ReadOnlyFilesystem),
        Fault::Sync,
    ];
    let ends = each_on_its_own(&faults, |fault, at, folder| {
        let (mut old, mut new) = (0, 0);
        on_a_runtime(async {
            for after in 0..10 {
                let folder = folder.join(after.to_string());
                std::fs::create_dir_all(&folder).unwrap();
                match change_on(at, &folder, fault, after).await {
                    Some(stood) if stood == circuits(false) => old += 1,
                    Some(stood) if stood == circuits(true) => new += 1,
                    Some(stood) => panic!("{fault:?} {after}: mixed: {stood:?}"),
                    None => break,
                }
            }
        });
        (old, new)
    });
    let (old, new) = ends.iter().fold((0, 0), |sum, end| (sum.0 + end.0, sum.1 + end.1));
    println!(
        "S2: {} faults at every write and flush of a change: {old} old, {new} new, none mixed",
        faults.len()
    );
    assert!(old > 3 && new > 0, "{old} {new}");
}

/// After a recovery, open work completes and changes are accepted without a restart.
#[test]
fn s2_writing_resumes_when_the_disk_recovers() {
    let kinds = [Fault::Write(ErrorKind::StorageFull), Fault::Sync];
    let cases: Vec<(Fault, u32)> =
        kinds.into_iter().flat_map(|fault| (0..4).map(move |after| (fault, after))).collect();
    let resumed = each_on_its_own(&cases, |(fault, after), at, folder| {
        let mut resumed = false;
        on_a_runtime(async { resumed = resumes_after(fault, after, at, folder).await });
        resumed
    });
    let resumed = resumed.into_iter().filter(|resumed| *resumed).count();
    println!("S2: writing resumed {resumed} times without a restart");
    assert!(resumed >= 4, "{resumed}");
}

async fn resumes_after(fault: Fault, after: u32, at: &str, folder: &Path) -> bool {
    let plan = Plan::default();
    let mut rig = rig(at, folder, &plan).await;
    let answer = rig.ask(change(false), None).await;
    rig.committed_or_done(&answer).await;
    *plan.lock().unwrap() = Some((fault, after));
    let _accepted_or_refused = rig.ask(change(true), None).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    if rig.look(|runtime: &Runtime| runtime.control.journal_failure().is_none()).await {
        return false;
    }
    let polled = rig.look(read_at).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(rig.look(read_at).await > polled, "devices are read on");
    assert!(rig.look(|runtime: &Runtime| runtime.control.journal_failure().is_some()).await);
    *plan.lock().unwrap() = None;
    let well = |runtime: &Runtime| {
        let well = runtime.control.journal_failure().is_none()
            && !runtime.control.transactions().is_busy();
        well.then_some(())
    };
    rig.find("writing again", well).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let drifted = rig.look(|runtime: &Runtime| view::drift(runtime).slots.len()).await;
    assert_eq!(drifted, 0, "{fault:?} {after}");
    for crosswise in [true, false] {
        let answer = rig.ask(change(crosswise), None).await;
        rig.committed_or_done(&answer).await;
    }
    true
}

fn read_at(runtime: &Runtime) -> lightloom_control::state::Micros {
    runtime.control.sightings().devices()[&DeviceName::from("ocs0")].read_at()
}

async fn on_a_ring(folder: &Path, plan: &Plan) -> Rig {
    let file = format!(
        "policies: {{on_fault: bypass, heartbeat: 20s, poll_every: 200ms}}\nmodules:\n\
         - {{nodes: [0, {}], bundles: 2, serial: \"{}/n{{node}}-b{{bundle}}\"}}\n",
        NODES - 1,
        folder.join("links").display()
    );
    let plan = Arc::clone(plan);
    let open = |path: &Path| Failing::open(path, plan);
    let mut rig = Rig::on_disk(&file, folder, Some(installed(NODES)), open).await;
    rig.adopt_all().await;
    rig.apply_plan(&first_plan(&installed(NODES))).await;
    rig
}

#[test]
fn s2_changes_refused_by_a_full_disk_are_not_executed_later() {
    let folder = tempfile::tempdir().unwrap();
    let _modules = ring(&folder.path().join("links"));
    on_a_runtime(async {
        let plan = Plan::default();
        let mut rig = on_a_ring(folder.path(), &plan).await;
        let known = |runtime: &Runtime| {
            let ledger = runtime.control.ledger();
            let sha256 = ledger.plan_sha256.clone();
            (
                sha256,
                ledger.last_txn,
                runtime.control.facts().failed_parts(),
                runtime.control.plan().is_some(),
            )
        };
        let before = rig.look(known).await;
        assert!(before.3);
        let faults_of_disk = [
            Fault::Full,
            Fault::Write(ErrorKind::StorageFull),
            Fault::Write(ErrorKind::Other),
            Fault::Sync,
        ];
        for fault in faults_of_disk {
            *plan.lock().unwrap() = Some((fault, 0));
            let nodes: Vec<Part> = (0..NODES).map(|node| Part::Node(NodeId(node))).collect();
            for part in &nodes {
                let answer = rig.fault(&[*part], &[]).await;
                assert!(matches!(answer, Answer::Refused { .. }), "{fault:?} {part}: {answer:?}");
            }
            for part in &nodes {
                let answer = rig.fault(&[], &[*part]).await;
                assert!(matches!(answer, Answer::Refused { .. }), "{fault:?} {part}: {answer:?}");
            }
            let status = rig.look(view::status).await;
            assert!(status.journal_failure.is_some(), "{fault:?}: it is said");
            *plan.lock().unwrap() = None;
            let well =
                |runtime: &Runtime| runtime.control.journal_failure().is_none().then_some(());
            rig.find("writing again", well).await;
            // The policy retries immediately and after a second.
            tokio::time::sleep(Duration::from_millis(2500)).await;
            assert_eq!(rig.look(known).await, before, "{fault:?}");
            let lost = rig.look(|runtime: &Runtime| view::status(runtime).lost).await;
            assert!(lost.is_empty(), "{fault:?}: {lost:?}");
        }
        let part = Part::Node(NodeId(node_in_use()));
        let answer = rig.fault(&[part], &[]).await;
        rig.committed(&answer).await;
        assert_eq!(rig.look(faults).await, [part]);
    });
}
