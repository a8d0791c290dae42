// SPDX-License-Identifier: Apache-2.0

/// Reason for refusing a request. After any reason except [`RequestRefusal::BusFailed`], nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestRefusal {
    /// The command code is unknown.
    UnknownCommand,
    /// The payload has the wrong length or an invalid field.
    Malformed,
    /// The fire does not name the armed transaction, or nothing is armed.
    NotArmed,
    /// The light of an earlier change is still moving, or a register write is in progress.
    Busy,
    /// The module's state does not allow the request.
    WrongState,
    /// The password is wrong.
    Locked,
    /// The frame's protocol version is not supported.
    Version,
    /// The register does not exist or is not writable.
    NoSuchRegister,
    /// An agent has no module with this name. Since 1.3.
    NoSuchModule,
    /// The agent's module was replaced, or its serial number is not unique. Since 1.3.
    OtherModule,
    /// The agent permits only reads, not switching. Since 1.3.
    ReadOnly,
    /// The agent's bus does not answer, and the request may have been executed. Since 1.3.
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
    #[must_use]
    pub fn code(self) -> u8 {
        let (code, _) = Self::CODES
            .iter()
            .find(|(_, refusal)| *refusal == self)
            .expect("every refusal has a code");
        *code
    }

    /// Returns the refusal that a status byte represents.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::CODES.iter().find(|(known, _)| *known == code).map(|&(_, refusal)| refusal)
    }
}

impl core::fmt::Display for RequestRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::UnknownCommand => "the module does not know this command",
            Self::Malformed => "the module could not read the request",
            Self::NotArmed => "another change is armed, or none",
            Self::Busy => "the module is still busy with an earlier request",
            Self::WrongState => "the module's state does not allow it",
            Self::Locked => "the password is wrong",
            Self::Version => "the module speaks another protocol version",
            Self::NoSuchRegister => "no such register, or it cannot be written",
            Self::NoSuchModule => "the agent has no module of this name",
            Self::OtherModule => {
                "the module in this place has changed, or two modules of the agent have its serial number: \
                 the agent's log names both"
            }
            Self::ReadOnly => "the agent moves no light: its file does not say `allow_moves: true`",
            Self::BusFailed => "the module's bus does not answer",
            Self::EarlierEpoch => "another daemon has since become leader",
        })
    }
}

impl core::error::Error for RequestRefusal {}
