// SPDX-License-Identifier: Apache-2.0
//! Module memory through the `eeprom` file of the `optoe` driver, at linear offsets.
//!
//! Lower memory is at 0 to 127. Bytes 128 to 255 of page p start at 128 · (p + 1)
//! (`optoe_translate_offset` in `optoe.c` of opencomputeproject/oom). The driver supports only bank
//! 0. The file disappears when the module is pulled, so it is opened for each transfer.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lightloom_firmware_api::cmis::RegisterAddress;

use crate::memory::{BusError, ModuleMemory};

#[derive(Debug)]
pub struct Eeprom {
    path: PathBuf,
    began: Instant,
}

impl Eeprom {
    pub fn new(path: PathBuf) -> Self {
        Self { path, began: Instant::now() }
    }

    fn failed(&self, what: &str, at: RegisterAddress, error: &io::Error) -> BusError {
        let (page, offset) = (at.page, at.offset);
        BusError(format!("{}: {what} {page:02x}h:{offset}: {error}", self.path.display()))
    }
}

fn linear(at: RegisterAddress) -> io::Result<u64> {
    match (at.bank, at.offset) {
        (_, 0..128) => Ok(u64::from(at.offset)),
        (0, _) => Ok(128 * u64::from(at.page) + u64::from(at.offset)),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "the driver supports only bank 0")),
    }
}

impl ModuleMemory for Eeprom {
    fn read(&mut self, at: RegisterAddress, out: &mut [u8]) -> Result<(), BusError> {
        let opened = OpenOptions::new().read(true).open(&self.path);
        let read = opened.and_then(|file| file.read_exact_at(out, linear(at)?));
        read.map_err(|error| self.failed("read", at, &error))
    }

    fn write(&mut self, at: RegisterAddress, bytes: &[u8]) -> Result<(), BusError> {
        let opened = OpenOptions::new().write(true).open(&self.path);
        let written = opened.and_then(|file| file.write_all_at(bytes, linear(at)?));
        written.map_err(|error| self.failed("write", at, &error))
    }

    fn pause(&mut self, span: Duration) {
        std::thread::sleep(span);
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_match_the_driver() {
        let at = |page, offset| linear(RegisterAddress { bank: 0, page, offset }).unwrap();
        assert_eq!((at(0, 0), at(7, 127)), (0, 127), "every page contains the lower memory");
        assert_eq!((at(0, 128), at(0, 255)), (128, 255));
        assert_eq!((at(1, 128), at(2, 128)), (256, 384));
        assert_eq!((at(0xb0, 136), at(0xff, 255)), (128 * 0xb1 + 8, 128 * 257 - 1));
        assert!(linear(RegisterAddress { bank: 1, page: 0x11, offset: 128 }).is_err());
    }

    #[test]
    fn missing_eeprom_file_is_named() {
        let mut eeprom = Eeprom::new("/nowhere/eeprom".into());
        let error = eeprom.read(RegisterAddress::page(0xb0, 192), &mut [0]).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/eeprom: read b0h:192: No such file"));
    }
}
