// SPDX-License-Identifier: Apache-2.0
//! A Linux switch as the daemon's file describes it: what is to be set up, and between what traffic
//! moves.

use std::net::Ipv4Addr;

use lightloom_units::id::NodeId;
use lightloom_units::{BitsPerSecond, Text};
use schemars::JsonSchema;
use serde::Deserialize;

/// What is to be set up, and between what traffic moves.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxFile {
    /// Our number in the kernel's `protocol` field [default: 177].
    #[serde(default = "usual_protocol")]
    pub protocol: u8,
    /// The first of the 65,536 nexthop ids that are ours [default: 1000000].
    #[serde(default = "usual_first_id")]
    pub first_id: u32,
    /// veth pairs to make, for emulation.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// Links to have up.
    #[serde(default)]
    pub links: Vec<LinkFile>,
    /// Nexthop groups, by slot.
    #[serde(default)]
    pub groups: Vec<GroupFile>,
    /// Routes through the groups.
    #[serde(default)]
    pub routes: Vec<RouteFile>,
}

fn usual_protocol() -> u8 {
    177
}
fn usual_first_id() -> u32 {
    1_000_000
}

/// One link.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkFile {
    /// Its name.
    pub name: String,
    /// An address, such as `10.0.0.1/24`.
    #[serde(default)]
    pub address: Option<Prefix>,
    /// The rate it is held to.
    #[serde(default)]
    pub rate: Option<Text<BitsPerSecond>>,
    /// The node whose network interface is plugged in here, such as `n9`: that none of its links is up is a witness
    /// of its death.
    #[serde(default)]
    pub node: Option<NodeId>,
}

/// One nexthop group.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupFile {
    /// Its slot.
    pub slot: u16,
    /// Where traffic goes at position 1, 2, …
    pub alternatives: Vec<Vec<Nexthop>>,
    /// Where traffic goes while it is drained [default: nowhere].
    #[serde(default)]
    pub drained: Vec<Nexthop>,
}

/// One way out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nexthop {
    /// The neighbour.
    #[schemars(with = "String")]
    pub via: Ipv4Addr,
    /// The link.
    pub dev: String,
    /// Its share, 1 to 256 [default: 1].
    #[serde(default = "one")]
    pub weight: u16,
}

fn one() -> u16 {
    1
}

/// One route.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteFile {
    /// Where to.
    pub to: Prefix,
    /// Through the group of this slot.
    pub group: u16,
}

/// `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// The address.
    pub address: Ipv4Addr,
    /// Its length, 0 to 32.
    pub length: u8,
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = text.split_once('/').and_then(|(address, length)| {
            let length = length.parse().ok().filter(|length| *length <= 32)?;
            Some(Self { address: address.parse().ok()?, length })
        });
        parsed.ok_or_else(|| {
            serde::de::Error::custom(format!(
                "`{text}` is not a prefix: write it like `10.0.0.0/8`"
            ))
        })
    }
}

impl JsonSchema for Prefix {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Prefix".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": ["10.0.0.0/8"] })
    }
}
