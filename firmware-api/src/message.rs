//! Requests and replies inside a frame.
//!
//! Every request may be sent again when its reply was lost: reads change nothing, writes and arms
//! set the same values again, and a fire acts once per transaction (see [`Request::Fire`]).
//! Multi-byte fields are big-endian, as in CMIS. Offsets are listed in docs/firmware-api.md.

use crate::frame::PAYLOAD_BYTES_MAX;
use crate::path::{GROUPS_MAX, Groups, Outcome, Outcomes, Path, Paths, Policy};
use crate::wire::{Reader, Writer};

pub use crate::cmis::Address;

/// Longest register read or write in one message: half of the 256-byte window.
pub const REGISTER_BYTES_MAX: usize = 128;

/// Room for the payload of any message.
pub type PayloadBuffer = [u8; PAYLOAD_BYTES_MAX];

/// The host's name for one change of paths. Zero names none.
///
/// The host chooses numbers that it does not reuse on this module while the change could still
/// arrive: a counter, or a hash of its plan and step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transaction(pub u32);

impl Transaction {
    /// No change.
    pub const NONE: Self = Self(0);
}

/// What a host asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Who are you? Answered by [`Reply::Identity`].
    Hello,
    /// Read registers without touching the page select of the I2C side. Answered by
    /// [`Reply::Registers`].
    Read {
        /// First register.
        address: Address,
        /// How many, 1 to [`REGISTER_BYTES_MAX`], not past the end of the half.
        length: u8,
    },
    /// Write registers. Answered by [`Reply::Done`].
    Write {
        /// First register.
        address: Address,
        /// 1 to [`REGISTER_BYTES_MAX`] values.
        bytes: &'a [u8],
    },
    /// Store the wanted paths and check them; nothing moves. Answered by [`Reply::Armed`].
    Arm(Arm),
    /// Move the light as armed. Answered by [`Reply::Fired`] when the light has settled or failed
    /// to, so the host's timeout is the maximum commit time plus the line.
    ///
    /// Sent again for a transaction that already moved, it moves nothing and answers the same.
    Fire {
        /// Must be the armed transaction.
        transaction: Transaction,
        /// Which groups move.
        groups: Groups,
    },
    /// Forget what is armed. Answered by [`Reply::Done`], also when nothing was.
    Disarm {
        /// Only this transaction is forgotten; another one stays armed.
        transaction: Transaction,
    },
    /// Where is the light, and how did the last change end? Clears nothing. Answered by
    /// [`Reply::Status`].
    Status,
    /// What are you called, and who is at the far ends? Answered by [`Reply::Links`]. Only of modules
    /// with [`Capabilities::NEIGHBOURS`].
    Links,
    /// Store the paths taken at power-on. Answered by [`Reply::Done`].
    SetDefault {
        /// The module's host password.
        password: u32,
        /// One path a group.
        paths: Paths,
    },
    /// Restart the module's firmware. Answered by [`Reply::Done`] before it restarts.
    Reset,
}

/// The wanted paths of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arm {
    /// The change. Not [`Transaction::NONE`].
    pub transaction: Transaction,
    /// What must hold of the data paths when it is fired.
    pub policy: Policy,
    /// One path a group.
    pub paths: Paths,
}

/// What a device answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// To [`Request::Hello`].
    Identity(Identity),
    /// To [`Request::Read`].
    Registers(&'a [u8]),
    /// To requests without a result.
    Done,
    /// To [`Request::Arm`].
    Armed(ArmReport),
    /// To [`Request::Fire`].
    Fired(FireReport),
    /// To [`Request::Status`].
    Status(StatusReport),
    /// To [`Request::Links`].
    Links(LinksReport),
    /// To any request: nothing was changed.
    Refused(Refusal),
}

/// Who a module is and what it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Oldest and newest protocol version it speaks.
    pub versions: (u8, u8),
    /// CMIS page 00h vendor name, padded with spaces.
    pub vendor: [u8; 16],
    /// CMIS page 00h part number.
    pub part: [u8; 16],
    /// CMIS page 00h serial number.
    pub serial: [u8; 16],
    /// Major and minor version of the running firmware.
    pub firmware: (u8, u8),
    /// Layout version of page B0h, major and minor nibble.
    pub layout: u8,
    /// How many groups switch on their own.
    pub groups: u8,
    /// How many external paths each has.
    pub external_paths: u8,
    /// Capability bits of B0h:199.
    pub capabilities: Capabilities,
    /// Time from fire to the light being at its new path, typical.
    pub switch_us: u16,
    /// Time from there until power is to be trusted.
    pub settle_us: u16,
    /// Least time between two changes of one group.
    pub dwell_us: u16,
    /// Most time from fire to an outcome.
    pub commit_max_us: u32,
    /// Below this tap power a path counts as dark.
    pub power_low: Power,
}

/// Capability bits of register B0h:199.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u8);

impl Capabilities {
    /// A group can be dark.
    pub const DARK: Self = Self(1);
    /// A group can loop back.
    pub const LOOPBACK: Self = Self(2);
    /// [`Policy::Hot`] is allowed.
    pub const HOT: Self = Self(4);
    /// Fire without paging, lower memory 64 to 67.
    pub const FAST_FIRE: Self = Self(8);
    /// Each external path has a power tap.
    pub const TAPS: Self = Self(16);
    /// It sends its link name over its light and shows the one that arrives.
    pub const NEIGHBOURS: Self = Self(32);

    /// Whether all of `others` are present.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

/// Optical power in tenths of a microwatt, the unit of every CMIS power monitor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Power(pub u16);

/// How an arm ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmReport {
    /// What is armed now.
    pub transaction: Transaction,
    /// [`Outcome::Success`] for each group that can be fired.
    pub outcomes: Outcomes,
}

/// How a fire ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FireReport {
    /// The change.
    pub transaction: Transaction,
    /// Completed switches since power-on, this one included.
    pub generation: u32,
    /// How it ended, for each group asked for.
    pub outcomes: Outcomes,
    /// Where the light of each group is, by the module's own sensor.
    pub active: Paths,
}

/// Everything a host checks after a change, in one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusReport {
    /// Restarts since manufacture, modulo 2¹⁶: a change means that arms were lost.
    pub boots: u16,
    /// Milliseconds since the last restart.
    pub uptime_ms: u32,
    /// CMIS module state code (1 low power, 2 power-up, 3 ready, 4 power-down, 5 fault).
    pub module_state: u8,
    /// What is armed, or [`Transaction::NONE`].
    pub armed: Transaction,
    /// The last change fired, or [`Transaction::NONE`].
    pub fired: Transaction,
    /// Completed switches since power-on.
    pub generation: u32,
    /// Groups whose light is moving.
    pub busy: Groups,
    /// Where the light of each group is.
    pub active: Paths,
    /// What the last arm found.
    pub arm_outcomes: Outcomes,
    /// How the last fire ended.
    pub fire_outcomes: Outcomes,
    /// CMIS data-path state code of each lane.
    pub data_paths: [u8; 8],
    /// Light arriving on each external path.
    pub taps: [Power; 8],
    /// Light received by each lane.
    pub received: [Power; 8],
}

/// The name that a host gave to a module, as it is sent over the light. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(pub u32);

impl LinkName {
    /// No name, or nothing that arrives.
    pub const NONE: Self = Self(0);
}

/// Who sends the light that arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name; [`LinkName::NONE`] while nothing that can be read arrives.
    pub name: LinkName,
    /// The external path over which it sends.
    pub path: u8,
}

/// A module's own name, and who is at the far end of each group's selected path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinksReport {
    /// Its own, as the host wrote it since the last restart.
    pub name: LinkName,
    /// One a group.
    pub neighbours: [Neighbour; GROUPS_MAX],
}

/// Why a request was refused. Nothing was changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The command code has no meaning here.
    UnknownCommand,
    /// The payload has the wrong length or a field without a meaning.
    Malformed,
    /// The fire names another transaction than the armed one, or nothing is armed.
    NotArmed,
    /// The light of an earlier change is still moving, or a register write is still being taken.
    Busy,
    /// The module is not in a state that allows this.
    WrongState,
    /// The password is wrong.
    Locked,
    /// A frame of a protocol version that is not spoken.
    Version,
    /// A register that does not exist or cannot be written.
    NoSuchRegister,
}

impl Refusal {
    const CODES: [(u8, Self); 8] = [
        (1, Self::UnknownCommand),
        (2, Self::Malformed),
        (3, Self::NotArmed),
        (4, Self::Busy),
        (5, Self::WrongState),
        (6, Self::Locked),
        (7, Self::Version),
        (8, Self::NoSuchRegister),
    ];

    /// The status byte of the frame.
    #[must_use]
    pub fn code(self) -> u8 {
        let (code, _) = Self::CODES
            .iter()
            .find(|(_, refusal)| *refusal == self)
            .expect("every refusal has a code");
        *code
    }

    /// The refusal of a status byte.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::CODES.iter().find(|(known, _)| *known == code).map(|&(_, refusal)| refusal)
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::UnknownCommand => "the module does not know this command",
            Self::Malformed => "the module could not read the request",
            Self::NotArmed => "another change or none is armed",
            Self::Busy => "the module is still busy with an earlier request",
            Self::WrongState => "the module's state does not allow it",
            Self::Locked => "the password is wrong",
            Self::Version => "the module speaks another protocol version",
            Self::NoSuchRegister => "no such register, or it cannot be written",
        })
    }
}

impl core::error::Error for Refusal {}

/// Command codes on the wire.
pub mod command {
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
        }
    }

    /// Writes the payload and returns its length.
    ///
    /// # Panics
    /// If a write holds more than [`REGISTER_BYTES_MAX`] bytes.
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
            Self::Arm(arm) => {
                writer.u32(arm.transaction.0).u8(arm.policy.code()).codes(&arm.paths, Path::code);
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

    /// Reads a request.
    ///
    /// # Errors
    /// [`Refusal::UnknownCommand`] or [`Refusal::Malformed`], for the device to answer.
    pub fn decode(command: u8, payload: &'a [u8]) -> Result<Self, Refusal> {
        let mut reader = Reader(payload);
        let request = match command {
            command::HELLO => Some(Self::Hello),
            command::READ => Self::decode_read(&mut reader),
            command::WRITE => Self::decode_write(&mut reader),
            command::ARM => Self::decode_arm(&mut reader),
            command::FIRE => Self::decode_fire(&mut reader),
            command::DISARM => reader.u32().map(|id| Self::Disarm { transaction: Transaction(id) }),
            command::STATUS => Some(Self::Status),
            command::SET_DEFAULT => Self::decode_set_default(&mut reader),
            command::RESET => Some(Self::Reset),
            command::LINKS => Some(Self::Links),
            _ => return Err(Refusal::UnknownCommand),
        };
        request.and_then(|request| reader.done(request)).ok_or(Refusal::Malformed)
    }

    fn decode_read(reader: &mut Reader<'a>) -> Option<Self> {
        let (address, length) = (Address::decode(reader)?, reader.u8()?);
        address.holds(usize::from(length)).then_some(Self::Read { address, length })
    }

    fn decode_write(reader: &mut Reader<'a>) -> Option<Self> {
        let address = Address::decode(reader)?;
        let bytes = reader.slice(reader.0.len())?;
        address.holds(bytes.len()).then_some(Self::Write { address, bytes })
    }

    fn decode_arm(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self::Arm(Arm {
            transaction: Transaction(reader.u32().filter(|&id| id != 0)?),
            policy: Policy::from_code(reader.u8()?)?,
            paths: reader.codes(Path::from_code)?,
        }))
    }

    fn decode_fire(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self::Fire {
            transaction: Transaction(reader.u32().filter(|&id| id != 0)?),
            groups: Groups(reader.u8()?),
        })
    }

    fn decode_set_default(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self::SetDefault { password: reader.u32()?, paths: reader.codes(Path::from_code)? })
    }
}

impl Address {
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

impl<'a> Reply<'a> {
    /// Writes the payload and returns the status byte and its length.
    pub fn encode(&self, out: &mut PayloadBuffer) -> (u8, usize) {
        let mut writer = Writer::new(out);
        let mut status = 0;
        match self {
            Self::Identity(identity) => identity.encode(&mut writer),
            Self::Registers(bytes) => {
                writer.slice(bytes);
            }
            Self::Done => {}
            Self::Armed(report) => {
                writer.u32(report.transaction.0).codes(&report.outcomes, Outcome::code);
            }
            Self::Fired(report) => {
                writer.u32(report.transaction.0).u32(report.generation);
                writer.codes(&report.outcomes, Outcome::code).codes(&report.active, Path::code);
            }
            Self::Status(report) => report.encode(&mut writer),
            Self::Links(report) => report.encode(&mut writer),
            Self::Refused(refusal) => status = refusal.code(),
        }
        (status, writer.length())
    }

    /// Reads the reply to `command`. `None` if it is no reply that this version knows.
    #[must_use]
    pub fn decode(command: u8, status: u8, payload: &'a [u8]) -> Option<Self> {
        if status != 0 {
            return Refusal::from_code(status).map(Self::Refused);
        }
        let mut reader = Reader(payload);
        let reply = match command {
            command::HELLO => Self::Identity(Identity::decode(&mut reader)?),
            command::READ if payload.len() <= REGISTER_BYTES_MAX => {
                Self::Registers(reader.slice(payload.len())?)
            }
            command::WRITE | command::DISARM | command::SET_DEFAULT | command::RESET => Self::Done,
            command::ARM => Self::Armed(ArmReport {
                transaction: Transaction(reader.u32()?),
                outcomes: reader.codes(Outcome::from_code)?,
            }),
            command::FIRE => Self::Fired(FireReport {
                transaction: Transaction(reader.u32()?),
                generation: reader.u32()?,
                outcomes: reader.codes(Outcome::from_code)?,
                active: reader.codes(Path::from_code)?,
            }),
            command::STATUS => Self::Status(StatusReport::decode(&mut reader)?),
            command::LINKS => Self::Links(LinksReport::decode(&mut reader)?),
            _ => return None,
        };
        reader.done(reply)
    }
}

impl Identity {
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u8(self.versions.0).u8(self.versions.1);
        writer.slice(&self.vendor).slice(&self.part).slice(&self.serial);
        writer.u8(self.firmware.0).u8(self.firmware.1).u8(self.layout);
        writer.u8(self.groups).u8(self.external_paths).u8(self.capabilities.0);
        writer.u16(self.switch_us).u16(self.settle_us).u16(self.dwell_us);
        writer.u32(self.commit_max_us).u16(self.power_low.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            versions: (reader.u8()?, reader.u8()?),
            vendor: reader.array()?,
            part: reader.array()?,
            serial: reader.array()?,
            firmware: (reader.u8()?, reader.u8()?),
            layout: reader.u8()?,
            groups: reader.u8().filter(|&groups| usize::from(groups) <= GROUPS_MAX)?,
            external_paths: reader.u8()?,
            capabilities: Capabilities(reader.u8()?),
            switch_us: reader.u16()?,
            settle_us: reader.u16()?,
            dwell_us: reader.u16()?,
            commit_max_us: reader.u32()?,
            power_low: Power(reader.u16()?),
        })
    }
}

impl LinksReport {
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.name.0);
        for neighbour in &self.neighbours {
            writer.u32(neighbour.name.0).u8(neighbour.path);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let name = LinkName(reader.u32()?);
        let mut neighbours = [Neighbour::default(); GROUPS_MAX];
        for neighbour in &mut neighbours {
            *neighbour = Neighbour { name: LinkName(reader.u32()?), path: reader.u8()? };
        }
        Some(Self { name, neighbours })
    }
}

impl StatusReport {
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u16(self.boots).u32(self.uptime_ms).u8(self.module_state);
        writer.u32(self.armed.0).u32(self.fired.0).u32(self.generation).u8(self.busy.0);
        writer.codes(&self.active, Path::code);
        writer.codes(&self.arm_outcomes, Outcome::code);
        writer.codes(&self.fire_outcomes, Outcome::code);
        writer.slice(&self.data_paths);
        for power in self.taps.iter().chain(&self.received) {
            writer.u16(power.0);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let powers = |reader: &mut Reader<'_>| {
            let mut powers = [Power::default(); 8];
            for power in &mut powers {
                *power = Power(reader.u16()?);
            }
            Some(powers)
        };
        Some(Self {
            boots: reader.u16()?,
            uptime_ms: reader.u32()?,
            module_state: reader.u8()?,
            armed: Transaction(reader.u32()?),
            fired: Transaction(reader.u32()?),
            generation: reader.u32()?,
            busy: Groups(reader.u8()?),
            active: reader.codes(Path::from_code)?,
            arm_outcomes: reader.codes(Outcome::from_code)?,
            fire_outcomes: reader.codes(Outcome::from_code)?,
            data_paths: reader.array()?,
            taps: powers(reader)?,
            received: powers(reader)?,
        })
    }
}
