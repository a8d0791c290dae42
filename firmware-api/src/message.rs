// SPDX-License-Identifier: Apache-2.0
//! Requests and replies inside a frame.
//!
//! Every request may be repeated if its reply was lost, because reads change nothing, writes and arms
//! set the same values again, and a fire acts only once per transaction (see [`Request::Fire`]).
//! Multi-byte fields are big-endian, as in CMIS. docs/firmware-api.md lists the offsets.
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

pub use crate::cmis::RegisterAddress;
pub use event::{Event, EventKind, EventsReport};
pub use refusal::RequestRefusal;
pub use reply::Reply;
pub use report::{
    ArmReport, Capabilities, FireReport, Identity, LinkName, LinksReport, Neighbour, Power,
    StatusReport,
};
pub use request::{Arm, Request};

/// Maximum size of a register read or write in one message, which is half of the 256-byte window.
pub const REGISTER_BYTES_MAX: usize = 128;

/// Maximum length of a module's name at an agent.
pub const MODULE_NAME_BYTES_MAX: usize = 64;

/// Buffer for the payload of any message.
pub type PayloadBuffer = [u8; PAYLOAD_BYTES_MAX];

/// The host's identifier for one change of paths.
///
/// The host must not reuse a number on a module while the earlier change could still arrive. It can
/// use a counter or a hash of plan and step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u32);

impl TransactionId {
    /// No change.
    pub const NONE: Self = Self(0);
}

/// The term of a leading host, whose successor uses a larger number. Since 1.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Command codes in frames.
pub mod command {
    /// Flag in the command code, which means that the payload begins with the host's [`super::Epoch`]. Since 1.4.
    pub const IN_EPOCH: u8 = 0x80;
    /// [`super::Request::Hello`].
    pub const HELLO: u8 = 0x01;
    /// [`super::Request::Read`].
    pub const READ: u8 = 0x02;
    /// [`super::Request::Write`].
    pub const WRITE: u8 = 0x03;
    /// [`super::Request::Arm`].
    pub const ARM: u8 = 0x10;
    /// [`super::Request::Fire`].
    pub const FIRE: u8 = 0x11;
    /// [`super::Request::Disarm`].
    pub const DISARM: u8 = 0x12;
    /// [`super::Request::Status`].
    pub const STATUS: u8 = 0x13;
    /// [`super::Request::SetDefault`].
    pub const SET_DEFAULT: u8 = 0x14;
    /// [`super::Request::Reset`].
    pub const RESET: u8 = 0x15;
    /// [`super::Request::Links`].
    pub const LINKS: u8 = 0x16;
    /// [`super::Request::Events`].
    pub const EVENTS: u8 = 0x17;
    /// [`super::Request::Go`].
    pub const GO: u8 = 0x18;
    /// [`super::Event`] and its acknowledgement.
    pub const EVENT: u8 = 0x20;
    /// [`super::Request::Module`].
    pub const MODULE: u8 = 0x30;
}
