// SPDX-License-Identifier: Apache-2.0

use super::{
    Epoch, MODULE_NAME_BYTES_MAX, PayloadBuffer, REGISTER_BYTES_MAX, RequestRefusal, TransactionId,
    command,
};
use crate::cmis::RegisterAddress;
use crate::path::{DataPathPolicy, Groups, Path, Paths};
use crate::wire::{Reader, Writer};

/// A request from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Queries the identity; answered by [`Reply::Identity`](super::Reply::Identity).
    Hello,
    /// Reads registers; answered by [`Reply::Registers`](super::Reply::Registers).
    Read {
        /// First register.
        address: RegisterAddress,
        /// Number of registers, 1 to [`REGISTER_BYTES_MAX`], within one half of the window.
        length: u8,
    },
    /// Writes registers; answered by [`Reply::Done`](super::Reply::Done).
    Write {
        /// First register.
        address: RegisterAddress,
        /// 1 to [`REGISTER_BYTES_MAX`] values.
        bytes: &'a [u8],
    },
    /// Checks and stores target paths; answered by [`Reply::Armed`](super::Reply::Armed).
    Arm(Arm),
    /// Switches groups as armed; answered by [`Reply::Fired`](super::Reply::Fired) when the light has settled
    /// or timed out. The host's timeout is the maximum commit time plus the line delay. A retry of a
    /// completed transaction returns the same reply without switching.
    Fire {
        /// The armed transaction.
        transaction: TransactionId,
        /// Groups to switch.
        groups: Groups,
    },
    /// Discards an armed change; answered by [`Reply::Done`](super::Reply::Done).
    Disarm {
        /// Transaction to discard. Other transactions remain armed.
        transaction: TransactionId,
    },
    /// Queries paths and outcomes; answered by [`Reply::Status`](super::Reply::Status).
    Status,
    /// Queries the link names of both ends; answered by [`Reply::Links`](super::Reply::Links). Requires
    /// [`Capabilities::NEIGHBOURS`](super::Capabilities::NEIGHBOURS).
    Links,
    /// Enables or disables events; answered by [`Reply::Events`](super::Reply::Events). Requires
    /// [`Capabilities::EVENTS`](super::Capabilities::EVENTS).
    Events {
        /// Enables events.
        enabled: bool,
        /// Debounce time in µs; 0 selects the module's default.
        debounce_us: u16,
    },
    /// Arms and fires in one round trip, with the same reply and retries as a fire. Requires
    /// [`Capabilities::GO`](super::Capabilities::GO).
    Go {
        /// Change to arm.
        arm: Arm,
        /// Groups to switch.
        groups: Groups,
    },
    /// Stores the power-on paths; answered by [`Reply::Done`](super::Reply::Done).
    SetDefault {
        /// Host password of the module.
        password: u32,
        /// Path of each group.
        paths: Paths,
    },
    /// Restarts the firmware after [`Reply::Done`](super::Reply::Done).
    Reset,
    /// Selects a module of an agent. Must be the first request on a connection. Answered by
    /// [`Reply::Done`](super::Reply::Done). Since 1.3.
    Module {
        /// Module name at the agent, 1 to [`MODULE_NAME_BYTES_MAX`] bytes.
        name: &'a [u8],
    },
}

/// The target paths of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arm {
    /// Transaction id, which must not be [`TransactionId::NONE`].
    pub transaction: TransactionId,
    /// Required data-path state at the time of the fire.
    pub policy: DataPathPolicy,
    /// Path of each group.
    pub paths: Paths,
}

impl<'a> Request<'a> {
    /// Returns the command code.
    pub const fn command(&self) -> u8 {
        match self {
            Self::Hello => command::HELLO,
            Self::Read { .. } => command::READ,
            Self::Write { .. } => command::WRITE,
            Self::Arm(_) => command::ARM,
            Self::Fire { .. } => command::FIRE,
            Self::Disarm { .. } => command::DISARM,
            Self::Status => command::STATUS,
            Self::SetDefault { .. } => command::SET_DEFAULT,
            Self::Reset => command::RESET,
            Self::Links => command::LINKS,
            Self::Events { .. } => command::EVENTS,
            Self::Go { .. } => command::GO,
            Self::Module { .. } => command::MODULE,
        }
    }

    /// Encodes the payload, and returns its length. Panics if a write exceeds [`REGISTER_BYTES_MAX`] bytes or a
    /// name exceeds [`MODULE_NAME_BYTES_MAX`].
    pub fn encode(&self, out: &mut PayloadBuffer) -> usize {
        let mut writer = Writer::new(out);
        match self {
            Self::Hello | Self::Status | Self::Reset | Self::Links => {}
            Self::Read { address, length } => {
                address.encode(&mut writer);
                writer.u8(*length);
            }
            Self::Write { address, bytes } => {
                assert!(bytes.len() <= REGISTER_BYTES_MAX, "register writes are bounded");
                address.encode(&mut writer);
                writer.slice(bytes);
            }
            Self::Module { name } => {
                assert!(name.len() <= MODULE_NAME_BYTES_MAX, "module names are bounded");
                writer.slice(name);
            }
            Self::Arm(arm) => {
                writer.u32(arm.transaction.0).u8(arm.policy.code()).codes(&arm.paths, Path::code);
            }
            Self::Go { arm, groups } => {
                writer.u32(arm.transaction.0).u8(arm.policy.code()).codes(&arm.paths, Path::code);
                writer.u8(groups.0);
            }
            Self::Events { enabled, debounce_us } => {
                writer.u8(u8::from(*enabled)).u16(*debounce_us);
            }
            Self::Fire { transaction, groups } => {
                writer.u32(transaction.0).u8(groups.0);
            }
            Self::Disarm { transaction } => {
                writer.u32(transaction.0);
            }
            Self::SetDefault { password, paths } => {
                writer.u32(*password).codes(paths, Path::code);
            }
        }
        writer.length()
    }

    /// Decodes a request and its optional epoch. Fails like [`Request::decode`].
    pub fn decode_in_epoch(
        code: u8,
        payload: &'a [u8],
    ) -> Result<(Option<Epoch>, Self), RequestRefusal> {
        if code & command::IN_EPOCH == 0 {
            return Ok((None, Self::decode(code, payload)?));
        }
        let mut reader = Reader(payload);
        let epoch =
            reader.array().map(u64::from_be_bytes).map(Epoch).ok_or(RequestRefusal::Malformed)?;
        Ok((Some(epoch), Self::decode(code & !command::IN_EPOCH, reader.0)?))
    }

    /// Decodes a request without an epoch. Fails with [`RequestRefusal::UnknownCommand`] or
    /// [`RequestRefusal::Malformed`], which the device sends as its reply.
    pub fn decode(command: u8, payload: &'a [u8]) -> Result<Self, RequestRefusal> {
        let mut reader = Reader(payload);
        let request = match command {
            command::HELLO => Some(Self::Hello),
            command::READ => Self::decode_read(&mut reader),
            command::WRITE => Self::decode_write(&mut reader),
            command::ARM => Self::decode_arm(&mut reader).map(Self::Arm),
            command::GO => Self::decode_go(&mut reader),
            command::EVENTS => Self::decode_events(&mut reader),
            command::FIRE => Self::decode_fire(&mut reader),
            command::DISARM => {
                reader.u32().map(|id| Self::Disarm { transaction: TransactionId(id) })
            }
            command::STATUS => Some(Self::Status),
            command::SET_DEFAULT => Self::decode_set_default(&mut reader),
            command::RESET => Some(Self::Reset),
            command::LINKS => Some(Self::Links),
            command::MODULE => {
                let named = (1..=MODULE_NAME_BYTES_MAX).contains(&payload.len());
                reader.slice(payload.len()).filter(|_| named).map(|name| Self::Module { name })
            }
            _ => return Err(RequestRefusal::UnknownCommand),
        };
        request.and_then(|request| reader.done(request)).ok_or(RequestRefusal::Malformed)
    }

    fn decode_read(reader: &mut Reader<'a>) -> Option<Self> {
        let (address, length) = (RegisterAddress::decode(reader)?, reader.u8()?);
        address.holds(usize::from(length)).then_some(Self::Read { address, length })
    }

    fn decode_write(reader: &mut Reader<'a>) -> Option<Self> {
        let address = RegisterAddress::decode(reader)?;
        let bytes = reader.slice(reader.0.len())?;
        address.holds(bytes.len()).then_some(Self::Write { address, bytes })
    }

    fn decode_arm(reader: &mut Reader<'a>) -> Option<Arm> {
        Some(Arm {
            transaction: TransactionId(reader.u32().filter(|&id| id != 0)?),
            policy: DataPathPolicy::from_code(reader.u8()?)?,
            paths: reader.codes(Path::from_code)?,
        })
    }

    fn decode_go(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self::Go { arm: Self::decode_arm(reader)?, groups: Groups(reader.u8()?) })
    }

    fn decode_events(reader: &mut Reader<'a>) -> Option<Self> {
        let enabled = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self::Events { enabled, debounce_us: reader.u16()? })
    }

    fn decode_fire(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self::Fire {
            transaction: TransactionId(reader.u32().filter(|&id| id != 0)?),
            groups: Groups(reader.u8()?),
        })
    }

    fn decode_set_default(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self::SetDefault { password: reader.u32()?, paths: reader.codes(Path::from_code)? })
    }
}

impl RegisterAddress {
    fn encode(self, writer: &mut Writer<'_>) {
        writer.u8(self.bank).u8(self.page).u8(self.offset);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { bank: reader.u8()?, page: reader.u8()?, offset: reader.u8()? })
    }

    fn holds(self, length: usize) -> bool {
        let half_end = if self.offset < 128 { 128 } else { 256 };
        (1..=REGISTER_BYTES_MAX).contains(&length) && usize::from(self.offset) + length <= half_end
    }
}
