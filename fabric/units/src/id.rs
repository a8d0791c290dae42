// SPDX-License-Identifier: Apache-2.0
//! Typed ids are dense indices with one type per kind of part. They are written as `n17` for a
//! node, `n17/g2` for a GPU, `n17/b0` for an OCSTrx bundle, `t3` for a ToR and `g12` for a group.

use std::fmt;
use std::str::FromStr;

/// Error of parsing an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {kind}; expected the form `{example}`")]
pub struct IdError {
    text: String,
    kind: &'static str,
    example: &'static str,
}

impl IdError {
    fn of(text: &str, kind: &'static str, example: &'static str) -> Self {
        Self { text: text.to_owned(), kind, example }
    }
}

/// Parses digits without a sign.
fn number(digits: &str) -> Option<u32> {
    Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// Implements `Display` for enums without data by the names that serde writes.
#[macro_export]
macro_rules! display_as_serialized {
    ($($name:ty),+ $(,)?) => {$(
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::serde::Serialize::serialize(self, f)
            }
        }
    )+};
}

/// Serializes a type with `Display` and `FromStr` as text, and describes it in schemas.
#[macro_export]
macro_rules! text_serde {
    ($name:ident, $description:literal, $pattern:expr, [$($example:literal),+ $(,)?]) => {
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(::serde::de::Error::custom)
            }
        }
        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({
                    "type": "string",
                    "description": $description,
                    "pattern": $pattern,
                    "examples": [$($example),+],
                })
            }
        }
    };
}

macro_rules! index_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// Returns the id as an array index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
            /// Panics if the index does not fit in 32 bits.
            pub fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("fabrics are bounded far below 2^32 parts"))
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix)
                    .and_then(number)
                    .map(Self)
                    .ok_or_else(|| IdError::of(text, $kind, $example))
            }
        }
        text_serde!($name, $kind, concat!("^", $prefix, "[0-9]+$"), [$example]);
    };
}

index_id! {
    /// A node (a baseboard with R GPUs). Nodes are numbered rack by rack and slot by slot.
    NodeId, "n", "a node", "n17"
}
index_id! {
    /// A top-of-rack switch of the data-centre network.
    TorId, "t", "a ToR", "t3"
}
index_id! {
    /// A group of GPUs that form one ring.
    GroupId, "g", "a group", "g12"
}
index_id! {
    /// An optical circuit switch.
    OcsId, "ocs", "an optical switch", "ocs4"
}
index_id! {
    /// A leaf of a reconfigurable fat-tree, which is a ToR or a rail switch.
    LeafId, "leaf", "a leaf", "leaf5"
}

macro_rules! part_id {
    ($(#[$doc:meta])* $name:ident { $field:ident, $prefix:literal }, $kind:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            pub node: NodeId,
            /// Index within the node, from 0.
            pub $field: u8,
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}/", $prefix, "{}"), self.node, self.$field)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.split_once('/')
                    .and_then(|(node, part)| {
                        let digits = part.strip_prefix($prefix)?;
                        Some(Self { node: node.parse().ok()?, $field: digits.parse().ok()? })
                    })
                    .ok_or_else(|| IdError::of(text, $kind, $example))
            }
        }
        text_serde!($name, $kind, concat!("^n[0-9]+/", $prefix, "[0-9]+$"), [$example]);
    };
}

part_id! {
    /// A GPU of a node.
    GpuId { gpu, "g" }, "a GPU", "n17/g2"
}
part_id! {
    /// An OCSTrx bundle of a node, with eight modules that switch together.
    BundleId { bundle, "b" }, "a bundle", "n17/b0"
}

/// A port of an optical switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OcsPortId {
    pub ocs: OcsId,
    /// Port number, from 0.
    pub port: u32,
}
impl fmt::Display for OcsPortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/p{}", self.ocs, self.port)
    }
}
impl FromStr for OcsPortId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.split_once("/p")
            .and_then(|(ocs, port)| Some(Self { ocs: ocs.parse().ok()?, port: number(port)? }))
            .ok_or_else(|| IdError::of(text, "a port of a switch", "ocs3/p17"))
    }
}

text_serde!(OcsPortId, "a port of an optical switch", "^ocs[0-9]+/p[0-9]+$", ["ocs3/p17"]);

macro_rules! range_of_ids {
    ($(#[$doc:meta])* $name:ident, $id:ident, $kind:literal, $pattern:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            /// The first one.
            pub first: $id,
            /// The last one.
            pub last: $id,
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let (first, last) = text.split_once("..").unwrap_or((text, text));
                Ok(Self { first: first.parse()?, last: last.parse()? })
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.first == self.last {
                    true => self.first.fmt(f),
                    false => write!(f, "{}..{}", self.first, self.last),
                }
            }
        }
        text_serde!($name, $kind, $pattern, [$example]);
    };
}

range_of_ids! {
    /// Consecutive leaves, such as `leaf0..leaf7`, or one leaf.
    LeafRange, LeafId, "a leaf or consecutive leaves", "^leaf[0-9]+([.][.]leaf[0-9]+)?$", "leaf0..leaf7"
}
range_of_ids! {
    /// Consecutive nodes, such as `n0..n7`, or one node.
    NodeRange, NodeId, "a node or consecutive nodes", "^n[0-9]+([.][.]n[0-9]+)?$", "n0..n7"
}

/// An uplink of a leaf (a port to the packet switches above it), such as `l5/up2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UplinkId {
    pub leaf: LeafId,
    /// Uplink number, from 0.
    pub uplink: u32,
}
impl fmt::Display for UplinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}/up{}", self.leaf.0, self.uplink)
    }
}
impl FromStr for UplinkId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        text.split_once("/up")
            .and_then(|(leaf, uplink)| {
                let leaf = leaf.strip_prefix("leaf").or_else(|| leaf.strip_prefix('l'))?;
                Some(Self { leaf: LeafId(number(leaf)?), uplink: number(uplink)? })
            })
            .ok_or_else(|| IdError::of(text, "an uplink of a leaf", "l5/up2"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_through_text() {
        let gpu = GpuId { node: NodeId(17), gpu: 2 };
        assert_eq!(gpu.to_string(), "n17/g2");
        assert_eq!("n17/g2".parse(), Ok(gpu));
        assert_eq!("ocs4".parse(), Ok(OcsId(4)));
    }

    #[test]
    fn invalid_id_error_shows_the_format() {
        for text in ["17", "n", "n-1", "n+1", "n1x", "x17", "n99999999999"] {
            let error = text.parse::<NodeId>().unwrap_err();
            assert!(error.to_string().contains("`n17`"), "{error}");
        }
        assert!("n1/b300".parse::<BundleId>().is_err());
    }
}
