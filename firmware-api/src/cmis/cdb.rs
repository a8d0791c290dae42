// SPDX-License-Identifier: Apache-2.0
//! CDB messages, which are commands with check codes on page 9Fh.
//!
//! The host writes the body first and the command id last, which starts the command. Lower memory byte 37
//! shows that the module is busy, and then the result.

use super::field::{Coded, RegisterAddress};
use crate::wire::codes;

/// Page of header and local payload.
pub const PAGE: u8 = 0x9f;
/// Address of the command id, which is written last.
pub const COMMAND: RegisterAddress = RegisterAddress::page(PAGE, 128);
/// Header: command id, extended length, local length, check code, reply length, reply check code.
pub const HEADER_BYTES: usize = 8;
/// Maximum size of the local payload.
pub const PAYLOAD_BYTES_MAX: usize = 120;
/// Size of header and payload, which together fill the page.
pub const MESSAGE_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX;
/// Factory default of the host password.
pub const DEFAULT_PASSWORD: u32 = 0x0000_1011;

/// Commands of this project's modules.
pub mod command {
    /// Queries the CDB status.
    pub const STATUS: u16 = 0x0000;
    /// Enters the password.
    pub const PASSWORD: u16 = 0x0001;
    /// Aborts a command.
    pub const ABORT: u16 = 0x0004;
    /// Queries the CDB features of the module.
    pub const MODULE_FEATURES: u16 = 0x0040;
    /// Queries the firmware update features.
    pub const FIRMWARE_FEATURES: u16 = 0x0041;
    /// Queries the running firmware.
    pub const FIRMWARE_INFO: u16 = 0x0100;
    /// Vendor-specific: reads the capabilities, B0h:192 to 206. Other vendors use 8000h differently.
    pub const PATH_CAPABILITIES: u16 = 0x8000;
    /// Vendor-specific: arms, with the payload of the serial request.
    pub const PATH_ARM: u16 = 0x8001;
    /// Vendor-specific: fires the armed change, and completes when the module has accepted it.
    pub const PATH_FIRE: u16 = 0x8002;
    /// Vendor-specific: disarms, with the payload of the serial request.
    pub const PATH_DISARM: u16 = 0x8003;
    /// Vendor-specific: returns the status, as on the serial line.
    pub const PATH_STATUS: u16 = 0x8004;
}

/// Value of lower memory byte 37.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CdbStatus {
    /// The module has not received a command since reset.
    Idle,
    /// The command was accepted, but is not processed yet.
    Captured,
    /// The command is being checked.
    Checking,
    /// The command is being executed.
    Executing,
    /// The command has succeeded.
    Success,
    /// The command has failed.
    Failed(CdbFailure),
}

codes! {
    /// Reason for a failed command.
    CdbFailure {
        /// The command is unknown.
        UnknownCommand = 1,
        /// A parameter is invalid.
        Parameter = 2,
        /// The host aborted the command.
        Aborted = 3,
        /// The check timed out.
        CheckTimeout = 4,
        /// The check code is wrong.
        CheckCode = 5,
        /// The password has not been entered.
        Password = 6,
        /// The module's state does not allow the command.
        WrongState = 7,
    }
}

impl Coded for CdbStatus {
    fn from_code(code: u8) -> Option<Self> {
        match code {
            0x00 => Some(Self::Idle),
            0x01 => Some(Self::Success),
            0x81 => Some(Self::Captured),
            0x82 => Some(Self::Checking),
            0x83 => Some(Self::Executing),
            _ if code & 0xc0 == 0x40 => CdbFailure::from_code(code & 0x3f).map(Self::Failed),
            _ => None,
        }
    }
    fn code(self) -> u8 {
        match self {
            Self::Idle => 0x00,
            Self::Success => 0x01,
            Self::Captured => 0x81,
            Self::Checking => 0x82,
            Self::Executing => 0x83,
            Self::Failed(failure) => 0x40 | failure.code(),
        }
    }
}

impl CdbStatus {
    /// Returns whether a command is running.
    pub const fn is_busy(self) -> bool {
        matches!(self, Self::Captured | Self::Checking | Self::Executing)
    }
}

fn check_code(bytes: impl Iterator<Item = u8>) -> u8 {
    0xff - bytes.fold(0, u8::wrapping_add)
}

/// Returns the page to write: header, payload and zero padding. `None` if the payload exceeds [`PAYLOAD_BYTES_MAX`].
///
/// ```
/// use lightloom_firmware_api::cmis::cdb;
/// // Query status: check code as in the header's own definition, 0xFF − 0.
/// let page = cdb::request(cdb::command::STATUS, &[]).expect("no payload is not too long");
/// assert_eq!(page[..8], [0, 0, 0, 0, 0, 0xff, 0, 0]);
/// // First write page[2..] at 9Fh:130, then page[..2] at 9Fh:128.
/// ```
pub fn request(command: u16, payload: &[u8]) -> Option<[u8; MESSAGE_BYTES]> {
    let mut page = [0; MESSAGE_BYTES];
    page[..2].copy_from_slice(&command.to_be_bytes());
    page[4] = u8::try_from(payload.len()).ok()?;
    page.get_mut(HEADER_BYTES..HEADER_BYTES + payload.len())?.copy_from_slice(payload);
    page[5] = check_code(page[..5].iter().chain(payload).copied());
    Some(page)
}

/// Device side: validates a request. Fails with [`CdbFailure::Parameter`] for invalid lengths and
/// [`CdbFailure::CheckCode`] for a wrong check code.
pub fn parse_request(page: &[u8; MESSAGE_BYTES]) -> Result<(u16, &[u8]), CdbFailure> {
    let payload_bytes = usize::from(page[4]);
    let payload =
        page.get(HEADER_BYTES..HEADER_BYTES + payload_bytes).ok_or(CdbFailure::Parameter)?;
    if page[5] != check_code(page[..5].iter().chain(payload).copied()) {
        return Err(CdbFailure::CheckCode);
    }
    Ok((u16::from_be_bytes([page[0], page[1]]), payload))
}

/// Device side: writes the reply's length, check code and payload. Panics if the payload exceeds [`PAYLOAD_BYTES_MAX`].
pub fn put_reply(page: &mut [u8; MESSAGE_BYTES], payload: &[u8]) {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "replies are bounded");
    page[6] = payload.len() as u8;
    page[7] = check_code(payload.iter().copied());
    page[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
}

/// Host side: returns the payload if length and check code are valid.
pub fn parse_reply(page: &[u8; MESSAGE_BYTES]) -> Option<&[u8]> {
    let payload = page.get(HEADER_BYTES..HEADER_BYTES + usize::from(page[6]))?;
    (page[7] == check_code(payload.iter().copied())).then_some(payload)
}
