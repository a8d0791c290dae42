// SPDX-License-Identifier: Apache-2.0

/// Why a request was refused. The module is unchanged, except possibly after [`RequestRefusal::BusFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestRefusal {
    /// The command code is unknown.
    UnknownCommand,
    /// The payload has the wrong length or an invalid field.
    Malformed,
    /// The transaction of the fire request is not armed.
    NotArmed,
    /// The module is still switching, or a register write is in progress.
    Busy,
    /// The module's state does not allow the request.
    WrongState,
    /// The password is wrong.
    Locked,
    /// The frame's protocol version is not supported.
    Version,
    /// A register does not exist or is not writable.
    NoSuchRegister,
    /// The agent does not have this module. Since 1.3.
    NoSuchModule,
    /// The module has been replaced, or its serial number is ambiguous. Since 1.3.
    OtherModule,
    /// The agent permits only reads. Since 1.3.
    ReadOnly,
    /// The agent's bus does not respond. The request may have been executed. Since 1.3.
    BusFailed,
    /// The module has accepted a request from a later epoch. Since 1.4.
    EarlierEpoch,
}

impl RequestRefusal {
    const CODES: [(u8, Self); 13] = [
        (1, Self::UnknownCommand),
        (2, Self::Malformed),
        (3, Self::NotArmed),
        (4, Self::Busy),
        (5, Self::WrongState),
        (6, Self::Locked),
        (7, Self::Version),
        (8, Self::NoSuchRegister),
        (9, Self::NoSuchModule),
        (10, Self::OtherModule),
        (11, Self::ReadOnly),
        (12, Self::BusFailed),
        (13, Self::EarlierEpoch),
    ];

    /// Returns the status byte.
    pub fn code(self) -> u8 {
        let (code, _) = Self::CODES
            .iter()
            .find(|(_, refusal)| *refusal == self)
            .expect("every refusal has a code");
        *code
    }

    /// Returns `None` for an unknown status byte.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::CODES.iter().find(|(known, _)| *known == code).map(|&(_, refusal)| refusal)
    }
}

impl core::fmt::Display for RequestRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::UnknownCommand => "the module does not support this command",
            Self::Malformed => "the module could not parse the request",
            Self::NotArmed => "no change with this transaction is armed",
            Self::Busy => "the module is still busy with an earlier request",
            Self::WrongState => "the state of the module does not allow this command",
            Self::Locked => "the password is wrong",
            Self::Version => "the module uses a different protocol version",
            Self::NoSuchRegister => "the register does not exist or is not writable",
            Self::NoSuchModule => "the agent has no module with this name",
            Self::OtherModule => {
                "the module was replaced, or two modules of the agent share its serial number: \
                 see the agent's log"
            }
            Self::ReadOnly => "the agent is read-only: its file does not set `allow_moves: true`",
            Self::BusFailed => "the module's bus does not answer",
            Self::EarlierEpoch => "another daemon has since become leader",
        })
    }
}

impl core::error::Error for RequestRefusal {}
