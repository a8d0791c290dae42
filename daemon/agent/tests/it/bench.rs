// SPDX-License-Identifier: Apache-2.0
//! An emulated module behind the driver's eeprom file, in virtual time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lightloom_agent::i2c::{I2cWire, TransferError};
use lightloom_agent::memory::{BusError, ModuleMemory};
use lightloom_agent::profile::{self, ModuleProfile};
use lightloom_devices::optoe::{AccessDone, Bus as _, EepromAccess, Optoe};
use lightloom_devices::{Faulty, Transceiver, TransceiverSpec};
use lightloom_firmware_api::cmis::RegisterAddress;
use lightloom_firmware_api::module::{Profile as Kind, padded};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

pub(crate) struct Bench {
    pub(crate) module: Faulty<Transceiver>,
    optoe: Optoe,
    pub(crate) now: SimTime,
}

#[derive(Clone)]
pub(crate) struct Held(pub(crate) Arc<Mutex<Bench>>);

impl Held {
    pub(crate) fn new(serial: &str) -> Self {
        let profile = Kind { serial: padded(serial), ..Kind::OCSTRX_800G };
        let spec = TransceiverSpec { profile, ..TransceiverSpec::default() };
        let module = Faulty::new(Transceiver::new(&spec, Seed(1), 0), Seed(1), 0);
        let bench = Bench { module, optoe: Optoe::default(), now: SimTime::START };
        Self(Arc::new(Mutex::new(bench)))
    }

    pub(crate) fn path(&self) -> Option<u8> {
        let bench = self.0.lock().unwrap();
        bench.module.device().true_path(bench.now, 0).map(|path| path.code())
    }
}

impl Bench {
    fn access(&mut self, access: EepromAccess) -> Result<AccessDone, BusError> {
        self.optoe.ask(1, access).map_err(|failed| BusError(format!("{failed:?}")))?;
        let mut ended = None;
        while ended.is_none() {
            let (delay, module) = (self.module.bus_delay(), &mut self.module);
            self.optoe.advance(self.now, delay, module, |_, done| ended = Some(done));
            if ended.is_none() {
                self.now = self.now.max(self.optoe.next_wakeup().unwrap());
            }
        }
        ended.unwrap().map_err(|failed| BusError(format!("{failed:?}")))
    }
}

fn linear(at: RegisterAddress) -> u64 {
    let page = if at.offset < 128 { 0 } else { 128 * u64::from(at.page) };
    page + u64::from(at.offset)
}

impl ModuleMemory for Held {
    fn read(&mut self, at: RegisterAddress, out: &mut [u8]) -> Result<(), BusError> {
        let access = EepromAccess::Read { offset: linear(at), length: out.len() };
        match self.0.lock().unwrap().access(access)? {
            AccessDone::Read(bytes) => out.copy_from_slice(&bytes),
            AccessDone::Written(_) => unreachable!("it was read"),
        }
        Ok(())
    }

    fn write(&mut self, at: RegisterAddress, bytes: &[u8]) -> Result<(), BusError> {
        let access = EepromAccess::Write { offset: linear(at), bytes: bytes.to_vec() };
        self.0.lock().unwrap().access(access).map(|_| ())
    }

    fn pause(&mut self, span: Duration) {
        let mut bench = self.0.lock().unwrap();
        bench.now = bench.now + Picoseconds::from_nanos(u64::try_from(span.as_nanos()).unwrap());
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.lock().unwrap().now.0 / 1_000)
    }
}

/// The same module on a bare bus, with instantaneous transfers.
pub(crate) struct Bare(pub(crate) Held);

impl I2cWire for Bare {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        let mut bench = self.0.0.lock().unwrap();
        let now = bench.now;
        bench.module.write(now, bytes[0], &bytes[1..]).map_err(|_| TransferError::NotAcknowledged)
    }

    fn read(&mut self, offset: u8, out: &mut [u8]) -> Result<(), TransferError> {
        let mut bench = self.0.0.lock().unwrap();
        let now = bench.now;
        bench.module.read(now, offset, out).map_err(|_| TransferError::NotAcknowledged)
    }

    fn pause(&mut self, span: Duration) {
        self.0.pause(span);
    }

    fn now(&self) -> Duration {
        ModuleMemory::now(&self.0)
    }
}

pub(crate) fn shipped(name: &str, changes: &[(&str, &str)]) -> Result<ModuleProfile, Vec<String>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../topologies/modules");
    let mut text = std::fs::read_to_string(format!("{folder}/{name}.yaml")).unwrap();
    for (before, after) in changes {
        assert!(text.contains(before), "{before}");
        text = text.replace(before, after);
    }
    let (profile, mistakes) = profile::load("profile.yaml", text.as_bytes());
    profile.ok_or_else(|| mistakes.iter().map(ToString::to_string).collect())
}
