// SPDX-License-Identifier: Apache-2.0
//! Module memory on an I2C bus without a driver, following the CMIS 5.x rules for hosts.
//!
//! Bank and page are changed in one two-byte write at 126, which takes effect when byte 127 is
//! written. The selection is read back before each transfer of the upper half, because another bus
//! master may have changed it, and a module selects page 0 if a page does not exist.

use std::time::Duration;

use lightloom_firmware_api::cmis::RegisterAddress;

use crate::memory::{BusError, ModuleMemory, POLL};

const TRANSFER_BYTES_MAX: usize = 8;
const BANK_SELECT: u8 = 126;
/// CMIS allows 80 ms for non-volatile memory.
const HOLD_OFF_MAX: Duration = Duration::from_millis(120);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferError {
    NotAcknowledged,
    Failed(String),
}

pub trait I2cWire: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError>;

    fn read(&mut self, offset: u8, out: &mut [u8]) -> Result<(), TransferError>;

    fn pause(&mut self, span: Duration);

    fn now(&self) -> Duration;
}

#[derive(Debug)]
pub struct I2c<W> {
    wire: W,
}

impl<W: I2cWire> I2c<W> {
    pub const fn new(wire: W) -> Self {
        Self { wire }
    }

    pub const fn wire(&self) -> &W {
        &self.wire
    }

    fn patiently(
        &mut self,
        at: RegisterAddress,
        mut transfer: impl FnMut(&mut W) -> Result<(), TransferError>,
    ) -> Result<(), BusError> {
        let until = self.wire.now() + HOLD_OFF_MAX;
        loop {
            let why = match transfer(&mut self.wire) {
                Ok(()) => return Ok(()),
                Err(TransferError::NotAcknowledged) if self.wire.now() < until => {
                    self.wire.pause(POLL);
                    continue;
                }
                Err(TransferError::NotAcknowledged) => "it does not acknowledge".to_owned(),
                Err(TransferError::Failed(why)) => why,
            };
            return Err(BusError(format!("{:02x}h:{}: {why}", at.page, at.offset)));
        }
    }

    fn select(&mut self, at: RegisterAddress) -> Result<(), BusError> {
        if at.offset < 128 || self.selected(at)? == [at.bank, at.page] {
            return Ok(());
        }
        self.patiently(at, |wire| wire.write(&[BANK_SELECT, at.bank, at.page]))?;
        match self.selected(at)? {
            now if now == [at.bank, at.page] => Ok(()),
            [bank, page] => {
                let (wanted, of) = (at.page, at.bank);
                Err(BusError(format!(
                    "it has no page {wanted:02x}h in bank {of}: it selected {page:02x}h in bank \
                        {bank}"
                )))
            }
        }
    }

    fn selected(&mut self, at: RegisterAddress) -> Result<[u8; 2], BusError> {
        let mut now = [0; 2];
        self.patiently(at, |wire| wire.read(BANK_SELECT, &mut now))?;
        Ok(now)
    }
}

impl<W: I2cWire> ModuleMemory for I2c<W> {
    fn read(&mut self, at: RegisterAddress, out: &mut [u8]) -> Result<(), BusError> {
        self.select(at)?;
        for (index, piece) in out.chunks_mut(TRANSFER_BYTES_MAX).enumerate() {
            let offset = at.offset + (index * TRANSFER_BYTES_MAX) as u8;
            self.patiently(at, |wire| wire.read(offset, piece))?;
        }
        Ok(())
    }

    fn write(&mut self, at: RegisterAddress, bytes: &[u8]) -> Result<(), BusError> {
        self.select(at)?;
        for (index, piece) in bytes.chunks(TRANSFER_BYTES_MAX).enumerate() {
            let offset = at.offset + (index * TRANSFER_BYTES_MAX) as u8;
            let transfer = [&[offset], piece].concat();
            self.patiently(at, |wire| wire.write(&transfer))?;
        }
        Ok(())
    }

    fn pause(&mut self, span: Duration) {
        self.wire.pause(span);
    }

    fn now(&self) -> Duration {
        self.wire.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Recorded {
        script: std::vec::IntoIter<(&'static str, Result<&'static [u8], TransferError>)>,
        now: Duration,
    }

    impl Recorded {
        fn next(&mut self, asked: &str) -> Result<&'static [u8], TransferError> {
            let (expected, answer) = self.script.next().expect("no more transfers were recorded");
            assert_eq!(asked, expected);
            answer
        }
    }

    impl I2cWire for Recorded {
        fn write(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
            self.next(&format!("w {bytes:?}")).map(|_| ())
        }

        fn read(&mut self, offset: u8, out: &mut [u8]) -> Result<(), TransferError> {
            let bytes = self.next(&format!("r {offset} {}", out.len()))?;
            out.copy_from_slice(bytes);
            Ok(())
        }

        fn pause(&mut self, span: Duration) {
            self.now += span;
        }

        fn now(&self) -> Duration {
            self.now
        }
    }

    type Script = Vec<(&'static str, Result<&'static [u8], TransferError>)>;

    fn i2c(script: Script) -> I2c<Recorded> {
        I2c::new(Recorded { script: script.into_iter(), now: Duration::ZERO })
    }

    fn all_used(i2c: &I2c<Recorded>) {
        assert_eq!(i2c.wire.script.len(), 0, "some expected transfers did not take place");
    }

    const NAK: Result<&[u8], TransferError> = Err(TransferError::NotAcknowledged);

    #[test]
    fn writes_bank_and_page_together_and_reads_them_back() {
        let mut i2c = i2c(vec![
            ("r 126 2", Ok(&[0, 0])),
            ("w [126, 0, 176]", Ok(&[])),
            ("r 126 2", NAK),
            ("r 126 2", NAK),
            ("r 126 2", Ok(&[0, 176])),
            ("w [136, 1, 2]", Ok(&[])),
            ("r 126 2", NAK),
            ("r 126 2", Ok(&[0, 176])),
            ("r 184 8", Ok(&[1; 8])),
            ("r 192 2", Ok(&[7, 8])),
            ("r 68 1", Ok(&[2])),
        ]);
        i2c.write(RegisterAddress::page(0xb0, 136), &[1, 2]).unwrap();
        let mut out = [0; 10];
        i2c.read(RegisterAddress::page(0xb0, 184), &mut out).unwrap();
        assert_eq!(out, [1, 1, 1, 1, 1, 1, 1, 1, 7, 8]);
        i2c.read(RegisterAddress::lower(68), &mut out[..1]).unwrap();
        assert_eq!((out[0], i2c.now()), (2, Duration::from_millis(3)));
        all_used(&i2c);
    }

    #[test]
    fn missing_page_is_named_and_not_written() {
        let mut i2c = i2c(vec![
            ("r 126 2", Ok(&[0, 0x11])),
            ("w [126, 0, 177]", Ok(&[])),
            ("r 126 2", Ok(&[0, 0])),
        ]);
        let error = i2c.write(RegisterAddress::page(0xb1, 136), &[1]).unwrap_err();
        assert_eq!(error.0, "it has no page b1h in bank 0: it selected 00h in bank 0");
        all_used(&i2c);
    }

    #[test]
    fn gives_up_on_a_failing_or_unresponsive_bus() {
        let mut naks: Script = vec![("r 3 1", NAK); 121];
        naks.push(("r 3 1", Err(TransferError::Failed("arbitration lost".into()))));
        let mut i2c = i2c(naks);
        let error = i2c.read(RegisterAddress::lower(3), &mut [0]).unwrap_err();
        assert_eq!(error.0, "00h:3: it does not acknowledge");
        let error = i2c.read(RegisterAddress::lower(3), &mut [0]).unwrap_err();
        assert_eq!(error.0, "00h:3: arbitration lost");
        all_used(&i2c);
    }
}
