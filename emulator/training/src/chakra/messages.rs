// SPDX-License-Identifier: Apache-2.0
//! The messages of `et_def.proto`, as far as a task graph needs them.

use prost::Message;

/// Kinds of nodes.
pub(super) const METADATA_NODE: i32 = 1;
pub(super) const COMP_NODE: i32 = 4;
pub(super) const COMM_SEND_NODE: i32 = 5;
pub(super) const COMM_RECV_NODE: i32 = 6;
pub(super) const COMM_COLL_NODE: i32 = 7;

/// `GlobalMetadata` of `et_def.proto`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GlobalMetadata {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) attr: Vec<Attribute>,
}

/// `Node` of `et_def.proto`, without tensors and storage.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(int32, tag = "3")]
    pub(super) kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) ctrl_deps: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub(super) data_deps: Vec<u64>,
    #[prost(uint64, tag = "6")]
    pub(super) start_time_micros: u64,
    #[prost(uint64, tag = "7")]
    pub(super) duration_micros: u64,
    #[prost(message, repeated, tag = "10")]
    pub(super) attr: Vec<Attribute>,
}

/// `AttributeProto`: the scalar kinds that carry numbers and names.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(oneof = "Value", tags = "7, 9, 11, 13, 27, 29")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Value {
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(uint32, tag = "11")]
    Uint32(u32),
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(string, tag = "29")]
    Text(String),
}

pub(super) fn attribute(name: &str, value: Value) -> Attribute {
    Attribute { name: name.to_owned(), value: Some(value) }
}

pub(super) fn number(attributes: &[Attribute], name: &str) -> Option<u64> {
    let attribute = attributes.iter().find(|attribute| attribute.name == name)?;
    match attribute.value.as_ref()? {
        Value::Int32(value) => u64::try_from(*value).ok(),
        Value::Int64(value) => u64::try_from(*value).ok(),
        Value::Uint32(value) => Some((*value).into()),
        Value::Uint64(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

pub(super) fn text(attributes: &[Attribute], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.name == name)?;
    match attribute.value.as_ref()? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}
