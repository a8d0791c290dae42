// SPDX-License-Identifier: Apache-2.0
//! Runs the cases of the serial protocol on a module behind an `eeprom` file, with its profile as
//! in an agent, and checks which registers the profile writes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lightloom_agent::eeprom::Eeprom;
use lightloom_agent::frames::{AskedFrame, encode};
use lightloom_agent::memory::{BusError, ModuleMemory};
use lightloom_agent::module::{AgentState, ServedModule};
use lightloom_agent::moves::MoveLog;
use lightloom_agent::profile;
use lightloom_firmware_api::cmis::{RegisterAddress, cdb};
use lightloom_firmware_api::frame::{FrameKind, Reassembler, VERSION};
use lightloom_firmware_api::message::{REGISTER_BYTES_MAX, Reply, Request, RequestRefusal};

use super::case::{Case, SuiteResults, case, holds};
use super::link::{ExchangeError, Link};
use super::module;
use super::target::Options;

/// Cases that apply only to lightloom's firmware, with the reason to skip them.
pub(super) const NOT_OF_A_PROFILE: [(&str, &str); 4] = [
    ("prompt", "the response time depends on the bus"),
    ("read-only", "an agent does not write registers for clients"),
    ("checksums", "the vendor defines page B0h"),
    ("discovery", "the vendor defines page B0h"),
];

const WRITES: Case = case(
    "writes",
    "hardware, profiles",
    "the agent writes only custom pages, lower memory 64 to 84 and CDB messages",
);

type WrittenPlaces = Arc<Mutex<Vec<RegisterAddress>>>;

struct WatchedMemory {
    memory: Eeprom,
    written: WrittenPlaces,
}

impl ModuleMemory for WatchedMemory {
    fn read(&mut self, at: RegisterAddress, out: &mut [u8]) -> Result<(), BusError> {
        self.memory.read(at, out)
    }

    fn write(&mut self, at: RegisterAddress, bytes: &[u8]) -> Result<(), BusError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let last =
            RegisterAddress { offset: at.offset.saturating_add(bytes.len() as u8 - 1), ..at };
        written.extend([at, last]);
        drop(written);
        self.memory.write(at, bytes)
    }

    fn pause(&mut self, span: Duration) {
        self.memory.pause(span);
    }

    fn now(&self) -> Duration {
        self.memory.now()
    }
}

pub struct ProfileLink {
    module: ServedModule,
    written: WrittenPlaces,
    reassembler: Reassembler,
    said: Vec<u8>,
    began: Instant,
    interrupted: Arc<AtomicBool>,
    is_shielded: bool,
}

impl ProfileLink {
    pub fn open(
        eeprom: &Path,
        profile: &Path,
        interrupted: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let profile = Arc::new(profile::read(profile)?);
        let shared = Arc::new(AgentState::new(MoveLog::forgetful(), true));
        let written = WrittenPlaces::default();
        let memory =
            WatchedMemory { memory: Eeprom::new(eeprom.to_owned()), written: Arc::clone(&written) };
        let module = ServedModule::new("module".into(), None, profile, Box::new(memory), shared);
        let mut module = module;
        let mut registers = [0; REGISTER_BYTES_MAX];
        let is_refused =
            matches!(module.answer(&Request::Hello, &mut registers), Reply::Refused(_));
        if is_refused {
            anyhow::bail!(
                "{}: {}",
                eeprom.display(),
                module.trouble().unwrap_or("it does not answer")
            );
        }
        let (reassembler, said, began) = (Reassembler::new(), Vec::new(), Instant::now());
        let is_shielded = false;
        Ok(Self { module, written, reassembler, said, began, interrupted, is_shielded })
    }
}

impl Link for ProfileLink {
    fn open(&mut self) -> Result<(), ExchangeError> {
        self.reassembler.reset();
        self.said.clear();
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        for byte in bytes {
            let Some(Ok(frame)) = self.reassembler.push(*byte) else { continue };
            if frame.kind != FrameKind::Request {
                continue;
            }
            let (sequence, command) = (frame.sequence, frame.command);
            let version = frame.version;
            let asked = AskedFrame { sequence, command, payload: frame.payload.to_vec() };
            let mut registers = [0; REGISTER_BYTES_MAX];
            let reply = match Request::decode(command, &asked.payload) {
                _ if version != VERSION => Reply::Refused(RequestRefusal::Version),
                Ok(request) => self.module.answer(&request, &mut registers),
                Err(refusal) => Reply::Refused(refusal),
            };
            self.said.extend(encode(&asked, &reply));
        }
        Ok(())
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, ExchangeError> {
        if !self.is_shielded && self.interrupted.load(Ordering::Relaxed) {
            return Err(ExchangeError::Interrupted);
        }
        if self.said.is_empty() {
            std::thread::sleep(within.min(Duration::from_millis(50)));
        }
        Ok(std::mem::take(&mut self.said))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn shield(&mut self) {
        self.is_shielded = true;
    }
}

pub fn run(
    link: ProfileLink,
    plan: &Options,
    results: &mut SuiteResults,
) -> Result<String, ExchangeError> {
    let written = Arc::clone(&link.written);
    let said = module::run_but(&NOT_OF_A_PROFILE, Box::new(link), plan, results)?;
    let written = written.lock().unwrap_or_else(PoisonError::into_inner);
    let stranger = written.iter().find(|at| !is_vendors(at));
    let judged = holds(stranger.is_none(), || {
        let at = stranger.expect("one was found");
        format!("the profile wrote page {:02X}h, byte {}", at.page, at.offset)
    });
    results.note(WRITES, judged);
    Ok(said)
}

fn is_vendors(at: &RegisterAddress) -> bool {
    match at.offset {
        0..128 => (64..=84).contains(&at.offset),
        _ => at.page >= 0xb0 || (0xa0..=0xaf).contains(&at.page) || at.page == cdb::PAGE,
    }
}
