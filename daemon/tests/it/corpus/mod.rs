// SPDX-License-Identifier: Apache-2.0
//! Functions of the daemon's fuzz targets. `replay.rs` tests them with the stored corpus.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use lightloom_control::desired::{self, circuits::Switches};
use lightloom_control::ledger::Ledger;
use lightloom_control::record::Record;
use lightloom_control::state::{Neighbours, Op, Outcome, SwitchState as Positions};
use lightloom_daemon::api::{self, PlanDocument, Shared};
use lightloom_daemon::audit::Audit;
use lightloom_daemon::clock::Clock;
use lightloom_daemon::config;
use lightloom_daemon::config::Role;
use lightloom_daemon::file_storage::FileStorage;
use lightloom_daemon::hooks::Hooks;
use lightloom_daemon::journal::{Journal, read_all};
use lightloom_daemon::metrics::Metrics;
use lightloom_daemon::serve::{Client, connection};
use lightloom_drivers::conversation::Conversation;
use lightloom_drivers::scpi::Scpi;
use lightloom_drivers::tl1::Tl1;
use lightloom_drivers::{Dialect, Reached, Session};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) fn daemon_file(bytes: &[u8]) {
    let (config, mistakes) = config::load("fuzz.yaml", bytes);
    assert!(config.is_some() || !mistakes.is_empty());
}

/// Parses the bytes as a plan. An accepted plan must only contain devices that exist.
pub(crate) fn plan(bytes: &[u8]) {
    let Ok(PlanDocument(Ok(plan))) = serde_json::from_slice(bytes) else { return };
    let fabric =
        b"kind: fabric\nversion: 2\nname: r\nhbd: {khop: {nodes: 4, gpus_per_node: 4, k: 2}}\n";
    let installed = lightloom_fabric::file::load("fabric.yaml", fabric).0;
    let file = b"state_dir: /nowhere\nmodules: [{nodes: [0, 3], bundles: 2, serial: x}]\n";
    let config = config::load("daemon.yaml", file).0.expect("the file is good");
    let (none, nothing) = (Switches::new(), Positions::new());
    let wanted = desired::prove(&plan, installed.as_ref())
        .and_then(|()| desired::wanted(&plan, None, &config.bundles, &none, &nothing));
    match wanted {
        Ok(wanted) => {
            assert!(wanted.target.keys().all(|device| config.drivers.contains_key(device)))
        }
        Err(reasons) => assert!(!reasons.is_empty()),
    }
}

pub(crate) fn journal(bytes: &[u8]) {
    let (records, good_bytes, _) = read_all::<Record>(bytes);
    let again = read_all::<Record>(&bytes[..good_bytes]);
    assert_eq!((&again.0, again.1), (&records, good_bytes));
    assert!(again.2.is_none());
    Ledger::fold(&records);
}

pub(crate) fn scpi_reply(bytes: &[u8]) {
    heard(Scpi::new(true), bytes);
}

pub(crate) fn tl1_reply(bytes: &[u8]) {
    heard(Tl1::new("user", "secret", true), bytes);
}

fn heard(dialect: impl Dialect + Clone, bytes: &[u8]) {
    let mut session = Session::new(dialect);
    let mut out = Vec::new();
    session.connected(&mut out);
    for piece in bytes.chunks(7) {
        let reached = session.received(piece, &mut out);
        if let Some(Reached::Ended(Outcome::Done(Some(seen)))) = &reached {
            let mut held: Vec<_> = seen.positions.values().collect();
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len(), seen.positions.len());
        }
        if reached.is_some() {
            session
                .start(&Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual }, &mut out);
        }
    }
}

/// Sends the bytes to the API, which must respond or close the connection.
pub(crate) fn api(bytes: &[u8]) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime can be built");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let storage = FileStorage::open(&folder.path().join("audit.log")).expect("a new file");
        let (audit, _) = Journal::open(storage).expect("a new journal");
        let (calls, nobody) = tokio::sync::mpsc::channel(1);
        let (_, changes) = tokio::sync::watch::channel(0);
        let metrics = Metrics::new().expect("names differ");
        let (audit, clock) = (Audit::new(audit), Clock::new());
        drop(nobody);
        let devices = std::collections::BTreeMap::new();
        let router = api::router(Shared {
            calls,
            audit,
            metrics,
            changes,
            clock,
            devices,
            hooks: Hooks::default(),
            parents: lightloom_daemon::traces::Parents::default(),
        });
        let roles = [Role::Read, Role::Plan, Role::Apply, Role::Confirm, Role::Firmware];
        let client = Client { name: "fuzz".into(), roles: roles.into() };
        let (mut ours, theirs) = tokio::io::duplex(1 << 16);
        let serving =
            tokio::spawn(connection(theirs, router, client, Arc::new(AtomicUsize::new(0))));
        let talk = async {
            let _ = ours.write_all(bytes).await;
            let _ = ours.shutdown().await;
            let mut answer = Vec::new();
            let _ = ours.read_to_end(&mut answer).await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
        };
        let ended = tokio::time::timeout(Duration::from_secs(300), talk).await;
        assert!(ended.is_ok(), "a connection ends");
        serving.abort();
    });
}
