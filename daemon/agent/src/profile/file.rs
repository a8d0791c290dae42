// SPDX-License-Identifier: Apache-2.0
//! A profile as people write it.

use std::fmt;
use std::str::FromStr;

use lightloom_firmware_api::cmis::RegisterAddress;
use lightloom_firmware_api::path::GroupOutcome;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// How the optical switch of a kind of module is set.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// What it is called in messages.
    pub name: String,
    /// The modules that it fits, by their page 00h.
    #[serde(rename = "match")]
    pub fits: MatchFile,
    /// The custom pages that it touches, such as `B0h`: B0h to FFh.
    #[serde(default)]
    pub pages: Vec<CustomPage>,
    /// Bytes that a module has to show before anything is written to it.
    #[serde(default)]
    pub marks: Vec<MarkFile>,
    /// Switch groups, 1 to 8: lanes that one switch element moves.
    pub groups: u8,
    /// Where light can go, and the code of each.
    pub paths: PathCodesFile,
    /// The code of the path of each group, as the module senses it.
    pub active: CodeSourceFile,
    /// Prepares a change and moves nothing.
    #[serde(default)]
    pub arm: Vec<ProfileStepFile>,
    /// How that ended, for each group.
    #[serde(default)]
    pub armed: Option<OutcomeFile>,
    /// MoveLog the light.
    #[serde(rename = "move")]
    pub moves: Vec<ProfileStepFile>,
    /// How that ended, for each group; where nothing is written, the light is awaited at its path.
    #[serde(default)]
    pub moved: Option<OutcomeFile>,
    /// Power on each external path, two bytes each, 0.1 µW [default: that of the lanes, for the path in use].
    #[serde(default)]
    pub taps: Option<Register>,
    /// The name that the module sends over its light, and the one that arrives.
    #[serde(default)]
    pub links: Option<LinkNamesFile>,
    /// Times.
    pub limits: ModuleTimesFile,
}

/// Which modules a profile fits.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchFile {
    /// The vendor's name.
    pub vendor: String,
    /// The part number [default: any of the vendor].
    #[serde(default)]
    pub part: Option<String>,
}

/// Bytes that have to be there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkFile {
    /// Where.
    pub at: Register,
    /// What.
    pub bytes: Vec<u8>,
}

/// The codes of paths.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathCodesFile {
    /// No light leaves [default: the module cannot].
    #[serde(default)]
    pub dark: Option<u8>,
    /// The light comes back [default: the module cannot].
    #[serde(default)]
    pub loopback: Option<u8>,
    /// The external fibres, the first one first; up to eight.
    pub external: Vec<u8>,
}

/// Where a code for each group is read.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeSourceFile {
    /// The register of group 0, or its byte in the reply of `command`.
    #[serde(default)]
    pub at: Option<Register>,
    /// A CDB command whose reply has it.
    #[serde(default)]
    pub command: Option<CommandId>,
    /// Its byte there.
    #[serde(default)]
    pub offset: Option<u8>,
    /// Bits a group: 8, or 4 with group 0 in the low half [default: 8].
    #[serde(default = "eight")]
    pub bits: u8,
    /// The bits of it that count [default: all].
    #[serde(default = "all_bits")]
    pub mask: u8,
}

fn eight() -> u8 {
    8
}

fn all_bits() -> u8 {
    0xff
}

/// One step; each is written by its one key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProfileStepFile {
    /// Writes registers that follow one another.
    Write {
        /// The first.
        at: Register,
        /// Their values.
        bytes: Vec<ItemFile>,
        /// The bits that change, of a single byte [default: all].
        #[serde(default = "all_bits")]
        mask: u8,
    },
    /// Gives a CDB command, and waits until it has succeeded.
    Command {
        /// Its code, from 8000h on.
        id: CommandId,
        /// Its payload.
        #[serde(default)]
        bytes: Vec<ItemFile>,
        /// How long it may take.
        within: Text<Picoseconds>,
    },
    /// Reads a register until it has one of these values.
    Wait {
        /// Which.
        at: Register,
        /// The bits that count [default: all].
        #[serde(default = "all_bits")]
        mask: u8,
        /// The values.
        is: Vec<u8>,
        /// How long that may take.
        within: Text<Picoseconds>,
    },
    /// Waits.
    Pause(Text<Picoseconds>),
}

/// A byte, or what a word stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ItemFile {
    /// As it is.
    Byte(u8),
    /// Of the change.
    Word(Word),
}

/// What a word stands for in the bytes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// The code of the wanted path of each group, a byte each.
    Paths,
    /// The groups that move, bit n is group n.
    Groups,
    /// The number of the change, four bytes.
    Transaction,
    /// Its lower two bytes.
    TransactionLow,
    /// What must hold of the data paths: 0 deactivated, 1 muted, 2 nothing.
    Policy,
    /// FFh less the low eight bits of the sum of the bytes before it.
    Check,
}

/// Outcomes of groups.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeFile {
    /// Where they are read.
    pub from: CodeSourceFile,
    /// What codes mean; other codes are a hardware fault.
    pub means: Vec<MeansFile>,
}

/// What a code means.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeansFile {
    /// The code.
    pub code: u8,
    /// Its meaning.
    pub is: OutcomeMeaning,
}

/// What an outcome can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeMeaning {
    /// Nothing was asked of this group.
    None,
    /// Armed, or at its path.
    Success,
    /// Not over.
    InProgress,
    /// Not now.
    Rejected,
    /// There is no such path.
    Invalid,
    /// The data paths are in a state that forbids it.
    InconsistentWithDataPath,
    /// At another path.
    HardwareFault,
    /// Not at rest in time.
    SettleTimeout,
    /// At its path, and too weak.
    PowerLow,
}

impl OutcomeMeaning {
    pub(super) const fn outcome(self) -> GroupOutcome {
        match self {
            Self::None => GroupOutcome::None,
            Self::Success => GroupOutcome::Success,
            Self::InProgress => GroupOutcome::InProgress,
            Self::Rejected => GroupOutcome::Rejected,
            Self::Invalid => GroupOutcome::Invalid,
            Self::InconsistentWithDataPath => GroupOutcome::InconsistentWithDataPath,
            Self::HardwareFault => GroupOutcome::HardwareFault,
            Self::SettleTimeout => GroupOutcome::SettleTimeout,
            Self::PowerLow => GroupOutcome::PowerLow,
        }
    }
}

/// ModuleNames over the light.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkNamesFile {
    /// Where the host writes four bytes for the module's own name.
    pub own: Register,
    /// Where the name that arrives for group 0 is read: four bytes, and the path of its sender.
    pub neighbour: Register,
}

/// Times of a module.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModuleTimesFile {
    /// From the move to an outcome at most.
    pub within: Text<Picoseconds>,
    /// From the outcome until position and power are to be trusted.
    pub settle: Text<Picoseconds>,
    /// Between two moves at least.
    pub dwell: Text<Picoseconds>,
    /// Below this power a path counts as dark, 0.1 µW.
    pub power_low: u16,
}

/// A register: `64` of the lower memory, or `B0h:136` of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub RegisterAddress);

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.offset {
            offset @ 0..128 => write!(f, "{offset}"),
            offset => write!(f, "{:02X}h:{offset}", self.0.page),
        }
    }
}

impl FromStr for Register {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no register: write `64` (lower memory) or `B0h:136`");
        let number = |text: &str| text.parse::<u8>().map_err(|_| wrong());
        match text.split_once(':') {
            None => match number(text)? {
                offset @ 0..128 => Ok(Self(RegisterAddress::lower(offset))),
                _ => Err(wrong()),
            },
            Some((page, offset)) => match number(offset)? {
                0..128 => Err(wrong()),
                offset => Ok(Self(RegisterAddress::page(page.parse::<CustomPage>()?.0, offset))),
            },
        }
    }
}

/// A page, such as `B0h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomPage(pub u8);

impl FromStr for CustomPage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_suffix('h').filter(|digits| digits.len() == 2);
        let page = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        page.map(Self).ok_or_else(|| format!("`{text}` is no page: write it like `B0h`"))
    }
}

/// A CDB command, such as `8001h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u16);

impl FromStr for CommandId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_suffix('h').filter(|digits| digits.len() == 4);
        let code = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        code.map(Self).ok_or_else(|| format!("`{text}` is no CDB command: write it like `8001h`"))
    }
}

macro_rules! spelled {
    ($type:ty, $name:literal, $about:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $about })
            }
        }
    };
}
spelled!(Register, "Register", "A register: `64` of the lower memory, or `B0h:136` of a page.");
spelled!(CustomPage, "CustomPage", "A page, such as `B0h`.");
spelled!(CommandId, "CommandId", "A CDB command, such as `8001h`.");
