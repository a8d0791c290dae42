// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use lightloom_firmware_api::cmis::cdb::{self, CdbStatus};
use lightloom_firmware_api::cmis::{Coded, RegisterAddress, lower};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BusError(pub String);

/// A call must not cross the boundary between lower and upper memory.
pub trait ModuleMemory: Send {
    fn read(&mut self, at: RegisterAddress, out: &mut [u8]) -> Result<(), BusError>;

    /// After an error, some of the bytes may be in the module.
    fn write(&mut self, at: RegisterAddress, bytes: &[u8]) -> Result<(), BusError>;

    fn pause(&mut self, span: Duration);

    fn now(&self) -> Duration;
}

pub(crate) const POLL: Duration = Duration::from_millis(1);

pub fn command(
    memory: &mut dyn ModuleMemory,
    id: u16,
    payload: &[u8],
    within: Duration,
) -> Result<Vec<u8>, BusError> {
    let page = cdb::request(id, payload)
        .ok_or_else(|| BusError(format!("a payload of {} bytes is too long", payload.len())))?;
    let message = RegisterAddress::page(cdb::PAGE, 128);
    let body = RegisterAddress::page(cdb::PAGE, 130);
    memory.write(body, &page[2..cdb::HEADER_BYTES + payload.len()])?;
    memory.write(message, &page[..2])?;
    let until = memory.now() + within;
    let status_at = lower::CDB_STATUS.at;
    loop {
        let mut status = [0];
        memory.read(status_at, &mut status)?;
        match CdbStatus::from_code(status[0]) {
            Some(CdbStatus::Success) => break,
            Some(status) if !status.is_busy() => {
                return Err(BusError(format!("CDB command {id:04x}h: {status:?}")));
            }
            _ if memory.now() > until => {
                let last = status[0];
                return Err(BusError(format!(
                    "CDB command {id:04x}h did not finish: last status {last:02x}h"
                )));
            }
            _ => memory.pause(POLL),
        }
    }
    let mut reply = [0; cdb::MESSAGE_BYTES];
    memory.read(message, &mut reply)?;
    cdb::parse_reply(&reply)
        .map(<[u8]>::to_vec)
        .ok_or_else(|| BusError(format!("CDB command {id:04x}h: wrong check code in the reply")))
}
