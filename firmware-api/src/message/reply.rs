// SPDX-License-Identifier: Apache-2.0

use super::{
    ArmReport, EventsReport, FireReport, Identity, LinksReport, PayloadBuffer, REGISTER_BYTES_MAX,
    RequestRefusal, StatusReport, command,
};
use crate::path::GROUPS_MAX;
use crate::wire::{Reader, Wire, Writer};

/// A device's reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Reply to [`Request::Hello`](super::Request::Hello).
    Identity(Identity),
    /// Reply to [`Request::Read`](super::Request::Read).
    Registers(&'a [u8]),
    /// Reply to a successful request that does not return a result.
    Done,
    /// Reply to [`Request::Arm`](super::Request::Arm).
    Armed(ArmReport),
    /// Reply to [`Request::Fire`](super::Request::Fire) and [`Request::Go`](super::Request::Go).
    Fired(FireReport),
    /// Reply to [`Request::Status`](super::Request::Status).
    Status(StatusReport),
    /// Reply to [`Request::Links`](super::Request::Links).
    Links(LinksReport),
    /// Reply to [`Request::Events`](super::Request::Events).
    Events(EventsReport),
    /// Refusal of a request.
    Refused(RequestRefusal),
}

impl<'a> Reply<'a> {
    /// Encodes the payload, and returns the status byte and the payload length.
    pub fn encode(&self, out: &mut PayloadBuffer) -> (u8, usize) {
        let mut writer = Writer::new(out);
        let mut status = 0;
        match self {
            Self::Identity(identity) => identity.write(&mut writer),
            Self::Registers(bytes) => _ = writer.slice(bytes),
            Self::Done => {}
            Self::Armed(report) => report.write(&mut writer),
            Self::Fired(report) => report.write(&mut writer),
            Self::Status(report) => report.write(&mut writer),
            Self::Links(report) => report.write(&mut writer),
            Self::Events(report) => report.write(&mut writer),
            Self::Refused(refusal) => status = refusal.code(),
        }
        (status, writer.length())
    }

    /// Returns `None` for replies that this version does not know.
    pub fn decode(command: u8, status: u8, payload: &'a [u8]) -> Option<Self> {
        if status != 0 {
            return RequestRefusal::from_code(status).map(Self::Refused);
        }
        let mut reader = Reader(payload);
        let reply = match command & !command::IN_EPOCH {
            command::HELLO => Self::Identity(
                reader.get().filter(|own: &Identity| usize::from(own.groups) <= GROUPS_MAX)?,
            ),
            command::READ if payload.len() <= REGISTER_BYTES_MAX => {
                Self::Registers(reader.slice(payload.len())?)
            }
            command::WRITE
            | command::DISARM
            | command::SET_DEFAULT
            | command::RESET
            | command::MODULE => Self::Done,
            command::ARM => Self::Armed(reader.get()?),
            command::FIRE | command::GO => Self::Fired(reader.get()?),
            command::STATUS => Self::Status(reader.get()?),
            command::LINKS => Self::Links(reader.get()?),
            command::EVENTS => Self::Events(reader.get()?),
            _ => return None,
        };
        reader.done(reply)
    }
}
