// SPDX-License-Identifier: Apache-2.0

use std::path::Path as Folder;
use std::sync::Arc;
use std::time::Duration;

use lightloom_agent::memory::ModuleMemory as _;
use lightloom_agent::module::{AgentState, ServedModule};
use lightloom_agent::moves::MoveLog;
use lightloom_agent::watch::LOOK_EVERY;
use lightloom_devices::EmulatedDevice;
use lightloom_firmware_api::message::{
    Arm, EventKind, FireReport, Reply, Request, RequestRefusal, StatusReport, TransactionId,
};
use lightloom_firmware_api::path::{DataPathPolicy, GroupOutcome, Groups, Path};

use crate::bench::{Held, shipped};

fn shared(folder: &Folder, allow_moves: bool) -> Arc<AgentState> {
    Arc::new(AgentState::new(MoveLog::open(folder).unwrap(), allow_moves))
}

fn module(name: &str, memory: &Held, shared: &Arc<AgentState>) -> ServedModule {
    let profile = Arc::new(shipped("registers", &[]).unwrap());
    ServedModule::new(name.into(), None, profile, Box::new(memory.clone()), Arc::clone(shared))
}

fn go(transaction: u32, number: u8) -> Request<'static> {
    let mut paths = [Path::DARK; 8];
    paths[0] = Path::external(number).unwrap();
    let transaction = TransactionId(transaction);
    Request::Go { arm: Arm { transaction, policy: DataPathPolicy::Hot, paths }, groups: Groups(1) }
}

fn ask(
    module: &mut ServedModule,
    request: &Request<'_>,
) -> Result<Option<FireReport>, RequestRefusal> {
    match module.answer(request, &mut [0; 128]) {
        Reply::Refused(refusal) => Err(refusal),
        Reply::Fired(report) => Ok(Some(report)),
        _ => Ok(None),
    }
}

fn status(module: &mut ServedModule) -> StatusReport {
    match module.answer(&Request::Status, &mut [0; 128]) {
        Reply::Status(status) => status,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn executes_a_repeated_change_once() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Held::new("A1");
    let moves = shared(folder.path(), true);
    let mut first = module("m", &memory, &moves);
    assert_eq!(ask(&mut first, &go(1, 1)), Err(RequestRefusal::OtherModule), "there was no hello");
    ask(&mut first, &Request::Hello).unwrap();
    let report = ask(&mut first, &go(1, 1)).unwrap().unwrap();
    assert_eq!((report.outcomes[0], report.generation), (GroupOutcome::Success, 1));
    let seen = status(&mut first);
    assert_eq!((seen.active[0].code(), seen.fired, seen.module_state), (1, TransactionId(1), 3));
    assert!(seen.taps[0].0 > 1_000 && seen.received[0].0 > 500, "{seen:?}");
    drop((first, moves));
    // Another program switches the module before the next agent receives the same change again.
    let mut next = module("m", &memory, &shared(folder.path(), true));
    ask(&mut next, &Request::Hello).unwrap();
    assert_eq!(status(&mut next).fired, TransactionId(1), "it is known after the agent's end");
    let again = ask(&mut next, &go(1, 1)).unwrap().unwrap();
    assert_eq!((again.outcomes[0], again.generation), (GroupOutcome::Success, 0));
    ask(&mut next, &go(2, 2)).unwrap();
    let late = ask(&mut next, &go(2, 2)).unwrap().unwrap();
    assert_eq!((late.generation, memory.path()), (1, Some(2)));
}

#[test]
fn set_up_stays_within_module_time_budget() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Held::new("A1");
    let mut module = module("m", &memory, &shared(folder.path(), true));
    ask(&mut module, &Request::Hello).unwrap();
    let took = |module: &mut ServedModule, request: &Request<'_>| {
        let began = memory.now();
        ask(module, request).unwrap();
        memory.now() - began
    };
    let (status, set_up) = (took(&mut module, &Request::Status), took(&mut module, &go(1, 1)));
    println!("a status takes {status:?}, a set-up {set_up:?} of the module's time");
    // The times include the module's page changes and hold-offs.
    assert!(set_up.as_millis() <= 70 && status.as_millis() <= 40, "{status:?} {set_up:?}");
}

#[test]
fn refuses_moves_of_read_only_and_foreign_modules() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Held::new("A1"), Held::new("A1"));
    let moves = shared(folder.path(), false);
    let mut first = module("m1", &one, &moves);
    ask(&mut first, &Request::Hello).unwrap();
    assert_eq!(ask(&mut first, &go(1, 1)), Err(RequestRefusal::ReadOnly));
    let fire = Request::Fire { transaction: TransactionId(1), groups: Groups(1) };
    assert_eq!(ask(&mut first, &fire), Err(RequestRefusal::ReadOnly));
    let mut second = module("m2", &other, &moves);
    assert_eq!(
        ask(&mut second, &Request::Hello),
        Err(RequestRefusal::OtherModule),
        "a serial twice"
    );
    let write = Request::Write {
        address: lightloom_firmware_api::cmis::RegisterAddress::page(0x10, 128),
        bytes: &[0xff],
    };
    assert_eq!(ask(&mut first, &write), Err(RequestRefusal::NoSuchRegister));
    assert_eq!((one.path(), other.path()), (Some(15), Some(15)));
}

#[test]
fn refuses_to_move_a_module_replaced_after_hello() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Held::new("A1");
    let mut module = module("m", &memory, &shared(folder.path(), true));
    ask(&mut module, &Request::Hello).unwrap();
    let boots = status(&mut module).boots;
    let other = Held::new("B2");
    std::mem::swap(&mut *memory.0.lock().unwrap(), &mut *other.0.lock().unwrap());
    assert_eq!(ask(&mut module, &go(1, 1)), Err(RequestRefusal::OtherModule));
    assert_eq!(memory.path(), Some(15), "the new one is where it was");
    ask(&mut module, &Request::Hello).unwrap();
    assert_ne!(status(&mut module).boots, boots);
    assert!(ask(&mut module, &go(2, 1)).is_ok());
}

#[test]
fn bus_failure_leaves_the_outcome_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Held::new("A1");
    let mut module = module("m", &memory, &shared(folder.path(), true));
    ask(&mut module, &Request::Hello).unwrap();
    let fault = |words: &str| {
        let mut bench = memory.0.lock().unwrap();
        let now = bench.now;
        bench.module.apply(now, words.parse().unwrap(), &mut Vec::new());
    };
    fault("dead");
    assert_eq!(ask(&mut module, &go(1, 1)), Err(RequestRefusal::BusFailed));
    assert_eq!(ask(&mut module, &Request::Status), Err(RequestRefusal::BusFailed));
}

/// A move without arriving light must succeed, because the daemon checks the light itself.
#[test]
fn accepts_a_move_into_a_dark_fibre() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Held::new("A1");
    let mut module = module("m", &memory, &shared(folder.path(), true));
    ask(&mut module, &Request::Hello).unwrap();
    let mut bench = memory.0.lock().unwrap();
    let now = bench.now;
    bench.module.apply(now, "unplug 2".parse().unwrap(), &mut Vec::new());
    drop(bench);
    let report = ask(&mut module, &go(1, 2)).unwrap().unwrap();
    assert_eq!((report.outcomes[0], report.generation), (GroupOutcome::PowerLow, 1));
    assert_eq!(status(&mut module).generation, 1);
}

#[test]
fn unknown_path_code_is_not_reported_as_dark() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Held::new("A1");
    let profile = shipped("registers", &[("loopback: 15", "loopback: 7")]).unwrap();
    let shared = shared(folder.path(), true);
    let mut module =
        ServedModule::new("m".into(), None, Arc::new(profile), Box::new(memory.clone()), shared);
    ask(&mut module, &Request::Hello).unwrap();
    assert_eq!(ask(&mut module, &Request::Status), Err(RequestRefusal::BusFailed));
    assert!(module.trouble().unwrap().contains("code 15"), "{:?}", module.trouble());
}

/// The agent reports loss of light within the flag time plus one poll, and its return after one
/// flag time without a flag. It sends no events for its own moves, and only one event at a time.
#[test]
fn reports_lost_and_returned_light_without_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Held::new("A1");
    let mut module = module("m", &memory, &shared(folder.path(), true));
    ask(&mut module, &Request::Hello).unwrap();
    ask(&mut module, &go(1, 1)).unwrap();
    ask(&mut module, &Request::Events { enabled: true, debounce_us: 0 }).unwrap();
    let mut clock = memory.clone();
    let mut heard = |module: &mut ServedModule| {
        let began = clock.now();
        while clock.now() - began < Duration::from_secs(2) {
            if let Some((number, event)) = module.look() {
                let took = (clock.now() - began).as_millis();
                return Some((number, event.kind, event.active.code(), took));
            }
            clock.pause(LOOK_EVERY);
        }
        None
    };
    let fault = |words: &str| {
        let mut bench = memory.0.lock().unwrap();
        let now = bench.now;
        bench.module.apply(now, words.parse().unwrap(), &mut Vec::new());
    };
    assert_eq!(heard(&mut module), None, "light arrives, as before");
    fault("unplug 1");
    let (number, kind, path, took) = heard(&mut module).unwrap();
    assert_eq!((number, kind, path), (1, EventKind::LightLost, 1));
    assert!(took <= 250, "{took} ms");
    fault("clear");
    // An event waits at most one second for the acknowledgement of the previous one.
    let (number, kind, _, took) = heard(&mut module).unwrap();
    assert_eq!((number, kind), (2, EventKind::LightBack));
    assert!((900..=1_200).contains(&took), "{took} ms");
    module.acknowledged(number);
    fault("unplug 1");
    assert_eq!(heard(&mut module).unwrap().1, EventKind::LightLost);
    module.acknowledged(3);
    fault("clear");
    let (_, kind, _, took) = heard(&mut module).unwrap();
    assert!(kind == EventKind::LightBack && took <= 550, "{took} ms");
    module.acknowledged(4);
    fault("unplug 2");
    ask(&mut module, &go(2, 2)).unwrap();
    assert_eq!(heard(&mut module), None);
}
