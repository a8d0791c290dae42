// SPDX-License-Identifier: Apache-2.0
//! An open network with its file, its run and the program's open orders.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use lightloom_emulator::called::{Caller, PreparedProgram, ProgramOrder, ProgramSession};
use lightloom_emulator::scenario::file::{NamedFile, load_called};
use lightloom_emulator::scenario::{RunStart, Scenario, plan};
use lightloom_fabric::document::{self, Diagnostic, Severity};
use lightloom_fabric::trace::MAX_TRACE_BYTES;
use lightloom_units::SimTime;

use crate::desk::{OrderDesk, ProgramCall};
use crate::failure::{CallFailure, ErrorCode};

pub(crate) struct OpenNetwork {
    pub(crate) ranks: u32,
    pub(crate) desk: Rc<RefCell<OrderDesk>>,
    run: RefCell<OwnedRun>,
    pub(crate) is_broken: Cell<bool>,
}

/// A run together with the values that it borrows.
struct OwnedRun {
    session: Option<ProgramSession<'static>>,
    prepared: *mut PreparedProgram<'static>,
    start: *mut RunStart,
    scenario: *mut Scenario,
}

impl OwnedRun {
    fn begin(
        scenario: Scenario,
        start: RunStart,
        desk: &Rc<RefCell<OrderDesk>>,
    ) -> Result<Self, CallFailure> {
        let (scenario, start) = (Box::into_raw(Box::new(scenario)), Box::into_raw(Box::new(start)));
        let mut running = Self { session: None, prepared: std::ptr::null_mut(), start, scenario };
        // SAFETY: both pointers come from boxes that only `drop` frees, and only after everything that
        // borrows from them.
        let (scenario, start) = unsafe { (&*scenario, &*start) };
        let prepared = PreparedProgram::new(scenario, start)
            .map_err(|error| CallFailure::new(ErrorCode::Failed, error.to_string()))?;
        running.prepared = Box::into_raw(Box::new(prepared));
        // SAFETY: as above.
        let prepared = unsafe { &*running.prepared };
        let program = Box::new(Program { desk: desk.clone() });
        let session = ProgramSession::open(prepared, program)
            .map_err(|error| CallFailure::new(ErrorCode::Failed, error.to_string()))?;
        running.session = Some(session);
        Ok(running)
    }
}

impl Drop for OwnedRun {
    fn drop(&mut self) {
        self.session = None;
        // SAFETY: each pointer came from a box in `begin` or is null, and its borrowers have
        // already been dropped.
        unsafe {
            if !self.prepared.is_null() {
                drop(Box::from_raw(self.prepared));
            }
            drop(Box::from_raw(self.start));
            drop(Box::from_raw(self.scenario));
        }
    }
}

struct Program {
    desk: Rc<RefCell<OrderDesk>>,
}

impl Caller for Program {
    fn is_over(&mut self, now: SimTime, number: u64) {
        let calls = self.desk.borrow_mut().is_over(now, number);
        for ProgramCall { callback, argument } in calls.into_iter().flatten() {
            // SAFETY: the program guarantees that its callback may be called with this argument.
            unsafe { callback(argument) };
        }
    }

    fn take_orders(&mut self, _: SimTime, orders: &mut VecDeque<ProgramOrder>) {
        orders.append(&mut self.desk.borrow_mut().orders);
    }
}

impl OpenNetwork {
    pub(crate) fn open(path: &str) -> Result<Self, CallFailure> {
        let there = Path::new(path);
        let folder = there.parent().unwrap_or(Path::new(""));
        let bytes = read(there, document::Limits::default().bytes)
            .map_err(|error| CallFailure::new(ErrorCode::BadFile, error))?;
        let is_scenario = document::top_keys(&bytes).iter().any(|key| key == "on");
        if is_scenario {
            return Self::read(path, &bytes, folder);
        }
        let name = there.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("name: {name:?}\non: {{fabric: {name:?}}}\n");
        Self::read(&format!("the network of {path}"), text.as_bytes(), folder)
    }

    pub(crate) fn read(name: &str, bytes: &[u8], folder: &Path) -> Result<Self, CallFailure> {
        let (scenario, mistakes) = load_called(name, bytes, &mut |named: &str| {
            let there = folder.join(named);
            let bytes = read(&there, MAX_TRACE_BYTES)?;
            Ok(NamedFile { name: there.display().to_string(), bytes })
        });
        let scenario =
            scenario.ok_or_else(|| CallFailure::new(ErrorCode::BadFile, listed(&mistakes)))?;
        let start = plan(&scenario)
            .map_err(|error| CallFailure::new(ErrorCode::BadFile, format!("{name}: {error}")))?;
        let ranks = u32::try_from(start.substrate.hosts.len()).unwrap_or(u32::MAX);
        let desk = Rc::new(RefCell::new(OrderDesk::default()));
        let run = OwnedRun::begin(scenario, start, &desk)?;
        Ok(Self { ranks, desk, run: RefCell::new(run), is_broken: Cell::new(false) })
    }

    pub(crate) fn run(&self) -> Result<(), CallFailure> {
        let Ok(mut running) = self.run.try_borrow_mut() else { return Err(CallFailure::runs()) };
        let Some(session) = &mut running.session else { return Err(CallFailure::broken()) };
        // Unwinding would leave the run in an inconsistent state.
        self.is_broken.set(true);
        let ended = session
            .run()
            .map_err(|error| CallFailure::new(ErrorCode::Failed, error.to_string()))?;
        self.is_broken.set(false);
        self.desk.borrow_mut().now = session.now();
        match ended {
            None => Ok(()),
            Some(stalled) => Err(CallFailure::new(ErrorCode::Stalled, stalled.to_string())),
        }
    }

    pub(crate) fn finish(&self) -> Result<(), CallFailure> {
        self.run()?;
        let waiting = self.desk.borrow().waiting();
        if waiting.is_empty() {
            return Ok(());
        }
        let mut text = String::from("receives are waiting for messages that were not sent:");
        for (stream, receives, missing) in waiting.iter().take(MOST_LISTED) {
            let _ = write!(
                text,
                "\n  rank {} from rank {}, tag {}: {receives}, the first lacks {missing} bytes",
                stream.destination, stream.source, stream.tag,
            );
        }
        if waiting.len() > MOST_LISTED {
            let _ = write!(text, "\n  and {} more", waiting.len() - MOST_LISTED);
        }
        Err(CallFailure::new(ErrorCode::Stalled, text))
    }

    pub(crate) fn ask<T>(
        &self,
        what: impl FnOnce(&ProgramSession<'static>) -> T,
    ) -> Result<T, CallFailure> {
        let Ok(running) = self.run.try_borrow() else { return Err(CallFailure::runs()) };
        running.session.as_ref().map(what).ok_or_else(CallFailure::broken)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.run.try_borrow_mut().is_err()
    }
}

const MOST_LISTED: usize = 10;

fn read(path: &Path, limit: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(bytes)
}

fn listed(mistakes: &[Diagnostic]) -> String {
    let mut text = String::new();
    for mistake in mistakes.iter().filter(|mistake| mistake.severity == Severity::Error) {
        let _ = writeln!(text, "{mistake}");
        if let Some(help) = &mistake.help {
            let _ = writeln!(text, "  help: {help}");
        }
    }
    text.truncate(text.trim_end().len());
    text
}
