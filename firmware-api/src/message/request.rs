// SPDX-License-Identifier: Apache-2.0

use super::{
    Epoch, MODULE_NAME_BYTES_MAX, PayloadBuffer, REGISTER_BYTES_MAX, RequestRefusal, TransactionId,
    command,
};
use crate::cmis::RegisterAddress;
use crate::path::{DataPathPolicy, Groups, Paths};
use crate::wire::{Reader, Wire, Writer, fields};

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

fields!(Arm { transaction, policy, paths });

impl Arm {
    fn is_named(&self) -> bool {
        self.transaction != TransactionId::NONE
    }
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
        match *self {
            Self::Hello | Self::Status | Self::Reset | Self::Links => {}
            Self::Read { address, length } => _ = writer.put(address).put(length),
            Self::Write { address, bytes } => {
                assert!(bytes.len() <= REGISTER_BYTES_MAX, "register writes are bounded");
                writer.put(address).slice(bytes);
            }
            Self::Module { name } => {
                assert!(name.len() <= MODULE_NAME_BYTES_MAX, "module names are bounded");
                writer.slice(name);
            }
            Self::Arm(arm) => arm.write(&mut writer),
            Self::Go { arm, groups } => _ = writer.put(arm).put(groups),
            Self::Events { enabled, debounce_us } => _ = writer.put(enabled).put(debounce_us),
            Self::Fire { transaction, groups } => _ = writer.put(transaction).put(groups),
            Self::Disarm { transaction } => transaction.write(&mut writer),
            Self::SetDefault { password, paths } => _ = writer.put(password).put(paths),
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
        let epoch = reader.get().ok_or(RequestRefusal::Malformed)?;
        Ok((Some(epoch), Self::decode(code & !command::IN_EPOCH, reader.0)?))
    }

    /// Decodes a request without an epoch. Fails with [`RequestRefusal::UnknownCommand`] or
    /// [`RequestRefusal::Malformed`], which the device sends as its reply.
    pub fn decode(command: u8, payload: &'a [u8]) -> Result<Self, RequestRefusal> {
        let mut reader = Reader(payload);
        let request = match command {
            command::HELLO => Some(Self::Hello),
            command::READ => {
                let read = reader.get::<(RegisterAddress, u8)>();
                let read = read.filter(|(address, length)| address.holds(usize::from(*length)));
                read.map(|(address, length)| Self::Read { address, length })
            }
            command::WRITE => reader.get::<RegisterAddress>().and_then(|address| {
                let bytes = reader.slice(reader.0.len())?;
                address.holds(bytes.len()).then_some(Self::Write { address, bytes })
            }),
            command::ARM => reader.get().filter(Arm::is_named).map(Self::Arm),
            command::GO => {
                let go = reader.get::<(Arm, Groups)>().filter(|(arm, _)| arm.is_named());
                go.map(|(arm, groups)| Self::Go { arm, groups })
            }
            command::EVENTS => {
                reader.get().map(|(enabled, debounce_us)| Self::Events { enabled, debounce_us })
            }
            command::FIRE => {
                let fire = reader.get().filter(|(id, _)| *id != TransactionId::NONE);
                fire.map(|(transaction, groups)| Self::Fire { transaction, groups })
            }
            command::DISARM => reader.get().map(|transaction| Self::Disarm { transaction }),
            command::STATUS => Some(Self::Status),
            command::SET_DEFAULT => {
                reader.get().map(|(password, paths)| Self::SetDefault { password, paths })
            }
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
}

impl RegisterAddress {
    fn holds(self, length: usize) -> bool {
        let half_end = if self.offset < 128 { 128 } else { 256 };
        (1..=REGISTER_BYTES_MAX).contains(&length) && usize::from(self.offset) + length <= half_end
    }
}
