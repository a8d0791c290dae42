// SPDX-License-Identifier: Apache-2.0

use std::fmt;
use std::str::FromStr;

use lightloom_firmware_api::cmis::RegisterAddress;
use lightloom_firmware_api::path::GroupOutcome;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// A module profile, which describes how to set the optical switch of a type of module.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileFile {
    /// Name used in messages.
    pub name: String,
    /// Modules that this profile matches, by their identity on page 00h.
    #[serde(rename = "match")]
    pub fits: MatchFile,
    /// Custom pages that it uses, from `B0h` to `FFh`.
    #[serde(default)]
    pub pages: Vec<CustomPage>,
    /// Bytes that the agent must find in a module before it writes to it.
    #[serde(default)]
    pub marks: Vec<MarkFile>,
    /// Number of switch groups, 1 to 8. One switch element switches all lanes of a group.
    pub groups: u8,
    /// Paths and their codes.
    pub paths: PathCodesFile,
    /// Location of each group's path code as reported by the module.
    pub active: CodeSourceFile,
    /// Steps that prepare a change without switching the module.
    #[serde(default)]
    pub arm: Vec<ProfileStepFile>,
    /// Where the module reports the outcome of each group after the `arm` steps.
    #[serde(default)]
    pub armed: Option<OutcomeFile>,
    /// Steps that switch the module.
    #[serde(rename = "move")]
    pub moves: Vec<ProfileStepFile>,
    /// Where the module reports the outcome of each group after the `moves` steps. If omitted, the
    /// agent waits until each group is at its path.
    #[serde(default)]
    pub moved: Option<OutcomeFile>,
    /// First register of the powers on the external paths, two bytes each, in 0.1 µW [default: use
    /// the power of the lanes for the current path].
    #[serde(default)]
    pub taps: Option<Register>,
    /// Registers for the name that the module sends over its light and the name that it receives.
    #[serde(default)]
    pub links: Option<LinkNamesFile>,
    /// Time limits.
    pub limits: ModuleTimesFile,
}

/// The modules that a profile matches.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchFile {
    /// Vendor name.
    pub vendor: String,
    /// Part number [default: any part of the vendor].
    #[serde(default)]
    pub part: Option<String>,
}

/// Bytes that must be present.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MarkFile {
    /// Register.
    pub at: Register,
    /// Expected bytes.
    pub bytes: Vec<u8>,
}

/// Path codes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathCodesFile {
    /// Code of the dark path, without outgoing light [default: not supported].
    #[serde(default)]
    pub dark: Option<u8>,
    /// Code of the loopback path [default: not supported].
    #[serde(default)]
    pub loopback: Option<u8>,
    /// Codes of the external paths in order, at most eight.
    pub external: Vec<u8>,
}

/// Location of one code per group as reported by the module.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeSourceFile {
    /// Register with the code of group 0. Specify either this or `command`.
    #[serde(default)]
    pub at: Option<Register>,
    /// CDB command whose reply contains the codes.
    #[serde(default)]
    pub command: Option<CommandId>,
    /// Byte offset in that reply.
    #[serde(default)]
    pub offset: Option<u8>,
    /// Bits per group: 8, or 4 with group 0 in the low half [default: 8].
    #[serde(default = "eight")]
    pub bits: u8,
    /// Relevant bits [default: all].
    #[serde(default = "all_bits")]
    pub mask: u8,
}

fn eight() -> u8 {
    8
}

fn all_bits() -> u8 {
    0xff
}

/// A step. Its key determines the kind of step.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProfileStepFile {
    /// Write consecutive registers.
    Write {
        at: Register,
        bytes: Vec<ItemFile>,
        /// Bits to change, for a single byte [default: all].
        #[serde(default = "all_bits")]
        mask: u8,
    },
    /// Issue a CDB command and wait for its success.
    Command {
        /// Command code, from 8000h.
        id: CommandId,
        #[serde(default)]
        bytes: Vec<ItemFile>,
        within: Text<Picoseconds>,
    },
    /// Read a register until it has one of these values.
    Wait {
        at: Register,
        /// Relevant bits [default: all].
        #[serde(default = "all_bits")]
        mask: u8,
        is: Vec<u8>,
        within: Text<Picoseconds>,
    },
    /// Wait for this time.
    Pause(Text<Picoseconds>),
}

/// A literal byte, or a word that the agent replaces with a value of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ItemFile {
    /// A literal byte.
    Byte(u8),
    /// A value of the change.
    Word(Word),
}

/// A word that represents a value of the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// Code of the target path of each group, one byte each.
    Paths,
    /// Bit mask of the groups that move; bit n is group n.
    Groups,
    /// Transaction number, four bytes.
    Transaction,
    /// Lower two bytes of the transaction number.
    TransactionLow,
    /// State required of the data paths: 0 deactivated, 1 muted, 2 none.
    Policy,
    /// FFh minus the low eight bits of the sum of the preceding bytes.
    Check,
}

/// Outcomes of groups.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeFile {
    /// Location of the outcome codes.
    pub from: CodeSourceFile,
    /// Meaning of each code. Codes that are not listed indicate a hardware fault.
    pub means: Vec<MeansFile>,
}

/// Meaning of a code.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeansFile {
    /// Code.
    pub code: u8,
    /// Meaning.
    pub is: OutcomeMeaning,
}

/// A possible outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeMeaning {
    /// The group was not part of the change.
    None,
    /// The group is armed, or at its path.
    Success,
    /// The change is still in progress.
    InProgress,
    /// The change was rejected, but may be retried later.
    Rejected,
    /// The path does not exist.
    Invalid,
    /// The state of the data paths does not permit the change.
    InconsistentWithDataPath,
    /// The group is at the wrong path.
    HardwareFault,
    /// The light did not settle in time.
    SettleTimeout,
    /// The group is at its path, but the optical power is too low.
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

/// Registers for the names that modules send over their light.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkNamesFile {
    /// Register for the module's own name, four bytes, written by the host.
    pub own: Register,
    /// Register with the name that group 0 receives, four bytes, followed by the sender's path.
    pub neighbour: Register,
}

/// Time limits of a module.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModuleTimesFile {
    /// Maximum time from the start of a move to its outcome.
    pub within: Text<Picoseconds>,
    /// Time from the outcome until position and power readings are valid.
    pub settle: Text<Picoseconds>,
    /// Minimum time between two moves.
    pub dwell: Text<Picoseconds>,
    /// Optical power below which a path is treated as dark, in 0.1 µW.
    pub power_low: u16,
}

/// A register, such as `64` in lower memory or `B0h:136` on a page.
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
        let (page, offset) =
            text.split_once(':').map_or((None, text), |(page, offset)| (Some(page), offset));
        let address = match (page, offset.parse::<u8>()) {
            (None, Ok(offset @ 0..128)) => RegisterAddress::lower(offset),
            (Some(page), Ok(offset @ 128..)) => {
                RegisterAddress::page(page.parse::<CustomPage>()?.0, offset)
            }
            _ => {
                return Err(format!(
                    "`{text}` is not a register; expected the form `64` (lower memory) or \
                     `B0h:136`"
                ));
            }
        };
        Ok(Self(address))
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
        page.map(Self).ok_or_else(|| format!("`{text}` is not a page; expected the form `B0h`"))
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
        code.map(Self)
            .ok_or_else(|| format!("`{text}` is not a CDB command; expected the form `8001h`"))
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
spelled!(Register, "Register", "A register, such as `64` in lower memory or `B0h:136` on a page.");
spelled!(CustomPage, "CustomPage", "A page, such as `B0h`.");
spelled!(CommandId, "CommandId", "A CDB command, such as `8001h`.");
