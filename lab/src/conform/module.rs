// SPDX-License-Identifier: Apache-2.0
//! The suite for transceivers with an integrated switch (docs/firmware-api.md).

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lightloom_firmware_api::cmis::page00;
use lightloom_firmware_api::frame::{ENCODED_BYTES_MAX, Frame, FrameKind, Reassembler};
use lightloom_firmware_api::message::command;

use super::ANSWER_WITHIN;
use super::case::{
    Case, CaseResult, CaseVerdict, PUT_BACK, SuiteResults, SuiteSession, Tested, case, found,
    holds, misbehaves, run_all, tested, tested_as,
};
use super::link::{ExchangeError, Link};
use super::target::Options;

const SILENCE: Duration = Duration::from_millis(50);
/// Time limit for replies other than those to a fire, excluding transmission.
const PROMPT: Duration = Duration::from_millis(10);
/// Transmission time of 151 bytes each way at 921,600 bit/s, plus a margin for scheduling.
const LINE: Duration = Duration::from_millis(15);
const LOOPBACK: u8 = 15;
const DARK: u8 = 0;
const HOT: u8 = 2;
/// Outcome code of a move to a path with too little light.
const POWER_LOW: u8 = 130;

/// Attempts for a request, because a line can damage it or its reply. All requests may be repeated.
const ATTEMPTS: u32 = 4;
const LINE_CASE: Case = case(
    "line",
    "firmware-api 1.1",
    "every request is answered, and every frame arrives undamaged",
);

const UNTESTABLE: [(&str, &str); 5] = [
    (
        "Set default, Reset, power-on path",
        "the test would wear out flash memory, and a restart may interrupt traffic",
    ),
    ("registers over I2C, CDB", "the suite uses only the serial line"),
    ("events", "the suite cannot interrupt incoming light"),
    (
        "a fire command takes effect only once across a restart",
        "the suite does not restart a module",
    ),
    ("settle time and power at the tap", "testing this requires a light source and a power meter"),
];

pub struct ModuleSuite {
    link: Box<dyn Link>,
    reassembler: Reassembler,
    next_sequence: u16,
    /// Requests without a reply, so that a late reply is not matched to another request.
    unanswered: BTreeSet<u16>,
    requests: u32,
    repeated: u32,
    damaged: u32,
    next_transaction: u32,
    external_paths: u8,
    groups: usize,
    has_loopback: bool,
    has_dark: bool,
    dwell: Duration,
    commit_max: Duration,
    group: Option<(usize, u8)>,
    rounds: u32,
    set_ups: Vec<Duration>,
}

#[derive(Clone, Debug)]
struct Reply {
    version: u8,
    sequence: u16,
    status: u8,
    payload: Vec<u8>,
    took: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StatusFields {
    boots: u16,
    uptime: u32,
    armed: u32,
    fired: u32,
    generation: u32,
    busy: u8,
    active: [u8; 8],
}

pub fn run(
    link: Box<dyn Link>,
    plan: &Options,
    results: &mut SuiteResults,
) -> Result<String, ExchangeError> {
    run_but(&[], link, plan, results)
}

pub(super) fn run_but(
    left_out: &[(&str, &str)],
    link: Box<dyn Link>,
    plan: &Options,
    results: &mut SuiteResults,
) -> Result<String, ExchangeError> {
    let mut module = ModuleSuite {
        link,
        reassembler: Reassembler::new(),
        next_sequence: u16::try_from(results.draw() >> 48).unwrap_or(1),
        unanswered: BTreeSet::new(),
        requests: 0,
        repeated: 0,
        damaged: 0,
        next_transaction: u32::try_from(results.draw() >> 34).unwrap_or(1) | 1,
        external_paths: 0,
        groups: 0,
        has_loopback: false,
        has_dark: false,
        dwell: Duration::ZERO,
        commit_max: Duration::ZERO,
        group: None,
        rounds: plan.rounds,
        set_ups: Vec::new(),
    };
    let hello = module.ask(command::HELLO, &[])?;
    let [vendor, part, serial] = [2, 18, 34].map(|from: usize| {
        let bytes = hello.payload.get(from..from + 16).unwrap_or(&[]);
        page00::characters(bytes).collect::<String>().trim().to_owned()
    });
    let said = format!("{vendor} {part} {serial}");
    results.untestable.extend(UNTESTABLE);
    let why_not: BTreeMap<&str, &str> = left_out.iter().copied().collect();
    let (left_out, still): (Vec<_>, Vec<_>) =
        cases::STILL.iter().copied().partition(|(case, _)| why_not.contains_key(&*case.id()));
    run_all(&mut module, &still, results);
    for (case, _) in left_out {
        results.skip(case, why_not.get(&*case.id()).copied().unwrap_or_default());
    }
    match module.choose(plan) {
        Some(why) => cases::MOVING.iter().for_each(|(case, _)| results.skip(*case, &*why)),
        None => {
            run_all(&mut module, cases::MOVING, results);
            module.put_back(results);
        }
    }
    results.note(LINE_CASE, Ok(module.line()));
    results.set_ups = module.set_ups;
    Ok(said)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

impl ModuleSuite {
    fn frame(&mut self, version: u8, command: u8, payload: &[u8]) -> Vec<u8> {
        self.next_sequence = self.next_sequence.wrapping_add(1);
        let sequence = self.next_sequence;
        let frame =
            Frame { version, kind: FrameKind::Request, sequence, command, status: 0, payload };
        let mut line = [0; ENCODED_BYTES_MAX];
        let length = frame.encode(&mut line);
        line[..length].to_vec()
    }

    fn hear(&mut self, within: Duration) -> Result<Option<Reply>, ExchangeError> {
        let began = self.link.now();
        loop {
            let left = (began + within).saturating_sub(self.link.now());
            if left.is_zero() {
                return Ok(None);
            }
            let arrived = self.link.receive(left)?;
            for byte in arrived {
                let completed = self.reassembler.push(byte);
                self.damaged += u32::from(matches!(completed, Some(Err(_))));
                if let Some(Ok(frame)) = completed
                    && frame.kind == FrameKind::Reply
                {
                    let own = self.next_sequence;
                    if frame.sequence != own && self.unanswered.remove(&frame.sequence) {
                        continue;
                    }
                    self.unanswered.remove(&own);
                    let took = self.link.now().saturating_sub(began);
                    let payload = frame.payload.to_vec();
                    let (version, sequence, status) = (frame.version, frame.sequence, frame.status);
                    return Ok(Some(Reply { version, sequence, status, payload, took }));
                }
            }
        }
    }

    fn send(
        &mut self,
        version: u8,
        command: u8,
        payload: &[u8],
    ) -> Result<Option<Reply>, ExchangeError> {
        self.requests += 1;
        for attempt in 0..ATTEMPTS {
            let line = self.frame(version, command, payload);
            self.unanswered.insert(self.next_sequence);
            self.link.send(&line)?;
            if let Some(reply) = self.hear(ANSWER_WITHIN)? {
                self.repeated += u32::from(attempt > 0);
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// A line that damages frames is a fault of the line. A device that is silent on an undamaged line drops requests.
    fn line(&self) -> CaseVerdict {
        let Self { requests, repeated, damaged, .. } = *self;
        match (repeated, damaged) {
            (0, 0) => CaseVerdict::Passed,
            (_, 0) => CaseVerdict::Misbehaves(format!(
                "{repeated} of {requests} requests were answered only when repeated, and no damaged frame arrived"
            )),
            _ => CaseVerdict::Fault(format!(
                "{damaged} damaged frames arrived, and {repeated} of {requests} requests were repeated: check the cable and \
                 the bit rate"
            )),
        }
    }

    fn ask(&mut self, command: u8, payload: &[u8]) -> Result<Reply, ExchangeError> {
        let reply = self.send(1, command, payload)?;
        reply.ok_or_else(|| ExchangeError::Silent(format!("no reply to command {command:02X}h")))
    }

    fn status(&mut self) -> Result<StatusFields, ExchangeError> {
        let reply = self.ask(command::STATUS, &[])?;
        if reply.status != 0 || reply.payload.len() != 84 {
            let why = format!(
                "the status has {} bytes and refusal code {}",
                reply.payload.len(),
                reply.status
            );
            return Err(ExchangeError::Nonsense(why));
        }
        let bytes = &reply.payload;
        let mut active = [0; 8];
        active.copy_from_slice(&bytes[20..28]);
        Ok(StatusFields {
            boots: u16_at(bytes, 0),
            uptime: u32_at(bytes, 2),
            armed: u32_at(bytes, 7),
            fired: u32_at(bytes, 11),
            generation: u32_at(bytes, 15),
            busy: bytes[19],
            active,
        })
    }

    fn read(&mut self, page: u8, offset: u8, length: u8) -> Result<Vec<u8>, ExchangeError> {
        let reply = self.ask(command::READ, &[0, page, offset, length])?;
        if reply.status != 0 || reply.payload.len() != usize::from(length) {
            let why = format!(
                "page {page:02X}h, {offset}: {} bytes, refusal code {}",
                reply.payload.len(),
                reply.status
            );
            return Err(ExchangeError::Nonsense(why));
        }
        Ok(reply.payload)
    }

    fn transaction(&mut self) -> u32 {
        self.next_transaction = self.next_transaction.wrapping_add(2);
        self.next_transaction
    }

    fn arm(&mut self, transaction: u32, path: u8) -> Result<Reply, ExchangeError> {
        let mut paths = self.status()?.active;
        if let Some((group, _)) = self.group {
            paths[group] = path;
        }
        let mut payload = transaction.to_be_bytes().to_vec();
        payload.push(HOT);
        payload.extend(paths);
        self.ask(command::ARM, &payload)
    }

    fn fire(&mut self, transaction: u32) -> Result<Reply, ExchangeError> {
        let group = self.group.map_or(0, |(group, _)| group);
        let mut payload = transaction.to_be_bytes().to_vec();
        payload.push(1 << group);
        self.ask(command::FIRE, &payload)
    }

    fn dwell(&mut self) -> Result<(), ExchangeError> {
        let end = self.link.now() + self.dwell + Duration::from_millis(2);
        while self.link.now() < end {
            let left = end.saturating_sub(self.link.now());
            self.link.receive(left)?;
        }
        Ok(())
    }

    fn elsewhere(&self, path: u8) -> u8 {
        match path {
            1 if self.external_paths > 1 => 2,
            1 => LOOPBACK,
            _ => 1,
        }
    }

    /// Returns the chosen group and another path than its own.
    fn target(&self) -> (usize, u8) {
        let (group, home) = self.group.unwrap_or((0, LOOPBACK));
        (group, self.elsewhere(home))
    }

    fn moved(&mut self, path: u8) -> Result<(u32, Reply), ExchangeError> {
        self.dwell()?;
        let group = self.group.map_or(0, |(group, _)| group);
        let transaction = self.transaction();
        let armed = self.arm(transaction, path)?;
        let outcome = armed.payload.get(4 + group).copied();
        if armed.status != 0 || outcome != Some(1) {
            return Err(misbehaves(format!(
                "an arm command for path {path} is refused with {}, outcome {outcome:?}",
                armed.status
            )));
        }
        let fired = self.fire(transaction)?;
        if fired.status != 0 || fired.payload.len() != 24 {
            return Err(misbehaves(format!("a fire command is refused with {}", fired.status)));
        }
        let outcome = fired.payload[8 + group];
        let ended = format!("the switch to path {path} ended in outcome {outcome}");
        Err(ExchangeError::Judged(match outcome {
            1 => return Ok((transaction, fired)),
            POWER_LOW => CaseVerdict::Fault(format!(
                "{ended}: too little light arrives there, because of a fault of the far end or of \
                    this path"
            )),
            128.. => CaseVerdict::Fault(ended),
            _ => CaseVerdict::Misbehaves(ended),
        }))
    }

    fn choose(&mut self, plan: &Options) -> Option<String> {
        let [port] = &plan.may_move[..] else {
            return Some(
                "read-only; to permit changes, use --may-move with one of the module's groups, such as 0".into(),
            );
        };
        let Some(group) = port.parse::<usize>().ok().filter(|group| *group < 8) else {
            return Some(format!("--may-move: `{port}` is not a group from 0 to 7"));
        };
        let status = match self.status() {
            Ok(status) => status,
            Err(trouble) => return Some(trouble.to_string()),
        };
        if status.armed != 0 && status.armed != status.fired {
            return Some(format!("transaction {} from another host is armed", status.armed));
        }
        if group >= self.groups {
            return Some(format!("--may-move: the module has no group {group}"));
        }
        self.group = Some((group, status.active[group]));
        None
    }

    fn put_back(&mut self, results: &mut SuiteResults) {
        self.link.shield();
        let cleared = self.clear().or_else(|_| self.reconnect().and_then(|()| self.clear()));
        let before = self.group;
        let judged = cleared.and_then(|()| self.status()).map(|status| match before {
            Some((group, path)) if status.active[group] != path => CaseVerdict::Misbehaves(
                format!("group {group} was at path {path} and is now at {}", status.active[group]),
            ),
            _ => CaseVerdict::Passed,
        });
        results.note(PUT_BACK, judged);
    }
}

impl SuiteSession for ModuleSuite {
    fn reconnect(&mut self) -> Result<(), ExchangeError> {
        self.link.open()?;
        self.reassembler.reset();
        self.ask(command::HELLO, &[]).map(drop)
    }

    fn clear(&mut self) -> Result<(), ExchangeError> {
        let Some((group, home)) = self.group else { return Ok(()) };
        if self.status()?.active[group] != home {
            self.moved(home).map_err(|trouble| match trouble {
                ExchangeError::Judged(_) => ExchangeError::Nonsense(trouble.to_string()),
                trouble => trouble,
            })?;
        }
        let status = self.status()?;
        if status.armed != 0 {
            self.ask(command::DISARM, &status.armed.to_be_bytes())?;
        }
        Ok(())
    }
}
