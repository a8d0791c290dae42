// SPDX-License-Identifier: Apache-2.0
//! The parts of `et_def.proto` that a task graph needs.

use prost::{Message, Oneof};

pub(super) const METADATA_NODE: i32 = 1;
pub(super) const COMP_NODE: i32 = 4;
pub(super) const COMM_SEND_NODE: i32 = 5;
pub(super) const COMM_RECV_NODE: i32 = 6;
pub(super) const COMM_COLL_NODE: i32 = 7;

#[derive(Clone, PartialEq, Message)]
pub(super) struct GlobalMetadata {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) attr: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChakraNode {
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
    #[prost(uint64, tag = "7")]
    pub(super) duration_micros: u64,
    #[prost(message, repeated, tag = "10")]
    pub(super) attr: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(oneof = "AttributeValue", tags = "7, 9, 11, 13, 27, 29")]
    pub(super) value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum AttributeValue {
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

pub(super) fn attribute(name: &str, value: AttributeValue) -> Attribute {
    Attribute { name: name.to_owned(), value: Some(value) }
}

pub(super) fn number(attributes: &[Attribute], name: &str) -> Option<u64> {
    let attribute = attributes.iter().find(|attribute| attribute.name == name)?;
    match attribute.value.as_ref()? {
        AttributeValue::Int32(value) => u64::try_from(*value).ok(),
        AttributeValue::Int64(value) => u64::try_from(*value).ok(),
        AttributeValue::Uint32(value) => Some((*value).into()),
        AttributeValue::Uint64(value) => Some(*value),
        AttributeValue::Bool(_) | AttributeValue::Text(_) => None,
    }
}

pub(super) fn text(attributes: &[Attribute], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.name == name)?;
    match attribute.value.as_ref()? {
        AttributeValue::Text(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_has_the_fields_of_et_def_proto() {
        let attributes: [&[u8]; 3] =
            [b"\x0a\x01a\x38\x05", b"\x0a\x01b\x48\x80\x80\x40", b"\x0a\x01c\xea\x01\x02xy"];
        let mut message =
            b"\x08\x2a\x12\x02n1\x18\x07\x22\x02\x01\x02\x28\x03\x28\x04\x30\x63\x38\x0c".to_vec();
        for attribute in attributes {
            message.extend([0x52, attribute.len() as u8]);
            message.extend(attribute);
        }
        message.extend(b"\xd1\x05\0\0\0\0\0\0\0\0");
        let node = ChakraNode::decode(&*message).unwrap();
        assert_eq!(
            (node.id, &*node.name, node.kind, node.duration_micros),
            (42, "n1", COMM_COLL_NODE, 12)
        );
        assert_eq!((node.ctrl_deps, node.data_deps), (vec![1, 2], vec![3, 4]));
        assert_eq!((number(&node.attr, "a"), number(&node.attr, "b")), (Some(5), Some(1 << 20)));
        assert_eq!(text(&node.attr, "c").as_deref(), Some("xy"));
    }

    #[test]
    fn rejects_truncated_messages_without_reading_beyond() {
        let node =
            ChakraNode { id: 300, name: "n".into(), data_deps: vec![1], ..ChakraNode::default() };
        let whole = node.encode_length_delimited_to_vec();
        for length in 0..whole.len() {
            assert!(
                ChakraNode::decode_length_delimited(&whole[..length]).is_err(),
                "{length} bytes"
            );
        }
    }
}
