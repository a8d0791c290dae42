// SPDX-License-Identifier: Apache-2.0

use crate::wire::codes;

codes! {
    /// Why a request was refused. The module is unchanged, except possibly after [`RequestRefusal::BusFailed`].
    RequestRefusal {
        /// The command code is unknown.
        UnknownCommand = 1,
        /// The payload has the wrong length or an invalid field.
        Malformed = 2,
        /// The transaction of the fire request is not armed.
        NotArmed = 3,
        /// The module is still switching, or a register write is in progress.
        Busy = 4,
        /// The module's state does not allow the request.
        WrongState = 5,
        /// The password is wrong.
        Locked = 6,
        /// The frame's protocol version is not supported.
        Version = 7,
        /// A register does not exist or is not writable.
        NoSuchRegister = 8,
        /// The agent does not have this module. Since 1.3.
        NoSuchModule = 9,
        /// The module has been replaced, or its serial number is ambiguous. Since 1.3.
        OtherModule = 10,
        /// The agent permits only reads. Since 1.3.
        ReadOnly = 11,
        /// The agent's bus does not respond. The request may have been executed. Since 1.3.
        BusFailed = 12,
        /// The module has accepted a request from a later epoch. Since 1.4.
        EarlierEpoch = 13,
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
