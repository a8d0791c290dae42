// SPDX-License-Identifier: Apache-2.0
//! What a host asks, and how it is written into a frame.

use super::{
    Epoch, MODULE_NAME_BYTES_MAX, PayloadBuffer, REGISTER_BYTES_MAX, RequestRefusal, TransactionId,
    command,
};
use crate::cmis::RegisterAddress;
use crate::path::{DataPathPolicy, Groups, Path, Paths};
use crate::wire::{Reader, Writer};

/// What a host asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Who are you? Answered by [`Reply::Identity`](super::Reply::Identity).
    Hello,
    /// Read registers without touching the page select of the I2C side. Answered by
    /// [`Reply::Registers`](super::Reply::Registers).
    Read {
        /// First register.
        address: RegisterAddress,
        /// How many, 1 to [`REGISTER_BYTES_MAX`], not past the end of the half.
        length: u8,
    },
    /// Write registers. Answered by [`Reply::Done`](super::Reply::Done).
    Write {
        /// First register.
        address: RegisterAddress,
        /// 1 to [`REGISTER_BYTES_MAX`] values.
        bytes: &'a [u8],
    },
    /// Store the wanted paths and check them; nothing moves. Answered by [`Reply::Armed`](super::Reply::Armed).
    Arm(Arm),
    /// Move the light as armed. Answered by [`Reply::Fired`](super::Reply::Fired) when the light has settled or failed
    /// to, so the host's timeout is the maximum commit time plus the line.
    ///
    /// Sent again for a transaction that already moved, it moves nothing and answers the same.
    Fire {
        /// Must be the armed transaction.
        transaction: TransactionId,
        /// Which groups move.
        groups: Groups,
    },
    /// Forget what is armed. Answered by [`Reply::Done`](super::Reply::Done), also when nothing was.
    Disarm {
        /// Only this transaction is forgotten; another one stays armed.
        transaction: TransactionId,
    },
    /// Where is the light, and how did the last change end? Clears nothing. Answered by
    /// [`Reply::Status`](super::Reply::Status).
    Status,
    /// What are you called, and who is at the far ends? Answered by [`Reply::Links`](super::Reply::Links).
    /// Only of modules with [`Capabilities::NEIGHBOURS`](super::Capabilities::NEIGHBOURS).
    Links,
    /// Send events from now on, or no more. Answered by [`Reply::Events`](super::Reply::Events).
    /// Only of modules with [`Capabilities::EVENTS`](super::Capabilities::EVENTS).
    Events {
        /// Send them.
        enabled: bool,
        /// How long light has to be gone, or back, before that is an event, in µs; 0 leaves it to the module.
        debounce_us: u16,
    },
    /// Arm and fire at once: a move that is to wait for no second request. Answered by
    /// [`Reply::Fired`](super::Reply::Fired), as a fire. Sent again, it moves nothing again and answers the same.
    /// Only of modules with [`Capabilities::GO`](super::Capabilities::GO).
    Go {
        /// What an arm would say.
        arm: Arm,
        /// Which groups move.
        groups: Groups,
    },
    /// Store the paths taken at power-on. Answered by [`Reply::Done`](super::Reply::Done).
    SetDefault {
        /// The module's host password.
        password: u32,
        /// One path a group.
        paths: Paths,
    },
    /// Restart the module's firmware. Answered by [`Reply::Done`](super::Reply::Done) before it restarts.
    Reset,
    /// To an agent, before anything else: which of its modules the rest of the connection is about. Answered by
    /// [`Reply::Done`](super::Reply::Done). A module on a line of its own does not know it. Since 1.3.
    Module {
        /// Its name at the agent, 1 to [`MODULE_NAME_BYTES_MAX`] bytes.
        name: &'a [u8],
    },
}

/// The wanted paths of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arm {
    /// The change. Not [`TransactionId::NONE`].
    pub transaction: TransactionId,
    /// What must hold of the data paths when it is fired.
    pub policy: DataPathPolicy,
    /// One path a group.
    pub paths: Paths,
}

impl<'a> Request<'a> {
    /// The command code.
    #[must_use]
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

    /// Writes the payload and returns its length.
    ///
    /// # Panics
    /// If a write holds more than [`REGISTER_BYTES_MAX`] bytes, or a name more than [`MODULE_NAME_BYTES_MAX`].
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
                assert!(name.len() <= MODULE_NAME_BYTES_MAX, "names of modules are bounded");
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

    /// Reads a request and the epoch that it is sent in, if any.
    ///
    /// # Errors
    /// Returns the errors of [`Request::decode`].
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

    /// Reads a request that is sent in no epoch.
    ///
    /// # Errors
    /// [`RequestRefusal::UnknownCommand`] or [`RequestRefusal::Malformed`], for the device to answer.
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

    /// Whether `length` registers from here stay within their half of the window.
    fn holds(self, length: usize) -> bool {
        let half_end = if self.offset < 128 { 128 } else { 256 };
        (1..=REGISTER_BYTES_MAX).contains(&length) && usize::from(self.offset) + length <= half_end
    }
}
