// SPDX-License-Identifier: Apache-2.0
//! Messages inside frames.
//!
//! All requests may be retried if a reply was lost: reads have no side effects, writes and arms set the same
//! values again, and a fire takes effect only once per transaction. Multi-byte fields are big-endian, as in
//! CMIS. docs/firmware-api.md lists the offsets.
//!
//! ```text
//!   host ── Request ──▶ module        Hello, Read, Write, Arm, Fire, Disarm, Status, Links, …
//!   host ◀── Reply ──── module        the requested report, Done, or a Refusal
//!   host ◀── Event ──── module        unsolicited, repeated until acknowledged (since 1.2)
//!   host ── in epoch ─▶ module        any request, refused after one of a later epoch (since 1.4)
//! ```

mod event;
mod refusal;
mod reply;
mod report;
mod request;

use crate::frame::PAYLOAD_BYTES_MAX;
use crate::wire::fields;

pub use crate::cmis::RegisterAddress;
pub use event::{Event, EventKind, EventsReport};
pub use refusal::RequestRefusal;
pub use reply::Reply;
pub use report::{
    ArmReport, Capabilities, FireReport, Identity, LinkName, LinksReport, Neighbour, Power,
    StatusReport,
};
pub use request::{Arm, Request};

/// Maximum number of registers per read or write, which is half of the 256-byte window.
pub const REGISTER_BYTES_MAX: usize = 128;

/// Maximum length of a module name at an agent.
pub const MODULE_NAME_BYTES_MAX: usize = 64;

/// Buffer for any payload.
pub type PayloadBuffer = [u8; PAYLOAD_BYTES_MAX];

/// Id of a change of paths, such as a counter or a hash of plan and step. The host must not reuse it on a
/// module while requests of the earlier change could still arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u32);

fields!(TransactionId { 0 });

impl TransactionId {
    /// Represents no change.
    pub const NONE: Self = Self(0);
}

/// Epoch of the leading host. Each successor uses a larger number. Since 1.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

fields!(Epoch { 0 });

/// Command codes in frames.
#[expect(missing_docs, reason = "each code belongs to the request of the same name")]
pub mod command {
    /// Flag that indicates that the payload begins with the host's [`super::Epoch`]. Since 1.4.
    pub const IN_EPOCH: u8 = 0x80;
    pub const HELLO: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE: u8 = 0x03;
    pub const ARM: u8 = 0x10;
    pub const FIRE: u8 = 0x11;
    pub const DISARM: u8 = 0x12;
    pub const STATUS: u8 = 0x13;
    pub const SET_DEFAULT: u8 = 0x14;
    pub const RESET: u8 = 0x15;
    pub const LINKS: u8 = 0x16;
    pub const EVENTS: u8 = 0x17;
    pub const GO: u8 = 0x18;
    /// Command code of an [`super::Event`] and its acknowledgement.
    pub const EVENT: u8 = 0x20;
    pub const MODULE: u8 = 0x30;
}
