// SPDX-License-Identifier: Apache-2.0
//! A Linux I2C bus such as `/dev/i2c-11`. *Not tested on hardware*, because no bus was available.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use i2cdev::core::{I2CMessage, I2CTransfer};
use i2cdev::linux::{LinuxI2CBus, LinuxI2CError, LinuxI2CMessage};

use crate::i2c::{I2cWire, TransferError};

const NOT_ACKNOWLEDGED: [i32; 2] = [6, 121];

pub(crate) struct LinuxWire {
    bus: LinuxI2CBus,
    address: u16,
    began: Instant,
}

impl LinuxWire {
    pub(crate) fn open(bus: &Path, address: u16) -> io::Result<Self> {
        Ok(Self { bus: LinuxI2CBus::new(bus)?, address, began: Instant::now() })
    }
}

fn failed(error: LinuxI2CError) -> TransferError {
    let error = io::Error::from(error);
    match error.raw_os_error() {
        Some(code) if NOT_ACKNOWLEDGED.contains(&code) => TransferError::NotAcknowledged,
        _ => TransferError::Failed(error.to_string()),
    }
}

impl I2cWire for LinuxWire {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        let mut messages = [LinuxI2CMessage::write(bytes).with_address(self.address)];
        self.bus.transfer(&mut messages).map(|_| ()).map_err(failed)
    }

    fn read(&mut self, offset: u8, out: &mut [u8]) -> Result<(), TransferError> {
        let offset = [offset];
        let mut messages = [
            LinuxI2CMessage::write(&offset).with_address(self.address),
            LinuxI2CMessage::read(out).with_address(self.address),
        ];
        self.bus.transfer(&mut messages).map(|_| ()).map_err(failed)
    }

    fn pause(&mut self, span: Duration) {
        std::thread::sleep(span);
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}
