// SPDX-License-Identifier: Apache-2.0

use std::net::Ipv4Addr;

use lightloom_units::id::NodeId;
use lightloom_units::{BitsPerSecond, Text};
use schemars::JsonSchema;
use serde::Deserialize;

/// Objects to create on a Linux switch, including nexthop groups with their alternatives.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinuxFile {
    /// Value of the kernel's `protocol` field that marks objects of this daemon [default: 177].
    #[serde(default = "usual_protocol")]
    pub protocol: u8,
    /// First of the 65,536 nexthop ids reserved for this daemon [default: 1000000].
    #[serde(default = "usual_first_id")]
    pub first_id: u32,
    /// veth pairs to create, for emulation.
    #[serde(default)]
    pub pairs: Vec<[String; 2]>,
    /// Links to bring up.
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

/// A link.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkFile {
    /// Interface name.
    pub name: String,
    /// Address, such as `10.0.0.1/24`.
    #[serde(default)]
    pub address: Option<Prefix>,
    /// Rate limit.
    #[serde(default)]
    pub rate: Option<Text<BitsPerSecond>>,
    /// Node whose network interface is connected here, such as `n9`. If all links to the node are
    /// down, the daemon treats this as evidence that the node has failed.
    #[serde(default)]
    pub node: Option<NodeId>,
}

/// A nexthop group.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupFile {
    /// Slot number.
    pub slot: u16,
    /// Nexthops for positions 1, 2, …
    pub alternatives: Vec<Vec<Nexthop>>,
    /// Nexthops while drained [default: none].
    #[serde(default)]
    pub drained: Vec<Nexthop>,
}

/// A nexthop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nexthop {
    /// Address of the neighbour.
    #[schemars(with = "String")]
    pub via: Ipv4Addr,
    /// Interface.
    pub dev: String,
    /// Weight, 1 to 256 [default: 1].
    #[serde(default = "one")]
    pub weight: u16,
}

fn one() -> u16 {
    1
}

/// A route.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteFile {
    /// Destination.
    pub to: Prefix,
    /// Slot of the group.
    pub group: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    pub address: Ipv4Addr,
    /// Prefix length, 0 to 32.
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
                "`{text}` is not a prefix; expected the form `10.0.0.0/8`"
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
