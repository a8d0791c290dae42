// SPDX-License-Identifier: Apache-2.0
//! The messages of `et_def.proto`, limited to the fields that a task graph needs.

use super::wire::{self, WireError, Written};

/// Values of `NodeType`.
pub(super) const METADATA_NODE: i32 = 1;
pub(super) const COMP_NODE: i32 = 4;
pub(super) const COMM_SEND_NODE: i32 = 5;
pub(super) const COMM_RECV_NODE: i32 = 6;
pub(super) const COMM_COLL_NODE: i32 = 7;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GlobalMetadata {
    pub(super) version: String,
    pub(super) attr: Vec<Attribute>,
}

/// `Node` without tensors and storage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ChakraNode {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) kind: i32,
    pub(super) ctrl_deps: Vec<u64>,
    pub(super) data_deps: Vec<u64>,
    pub(super) start_time_micros: u64,
    pub(super) duration_micros: u64,
    pub(super) attr: Vec<Attribute>,
}

/// `AttributeProto`, limited to the scalar kinds for numbers and names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) value: Option<AttributeValue>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Int32(i32),
    Int64(i64),
    Uint32(u32),
    Uint64(u64),
    Bool(bool),
    Text(String),
}

impl GlobalMetadata {
    pub(super) fn read(stream: &mut &[u8]) -> Result<Self, WireError> {
        let mut read = Self::default();
        wire::fields(wire::message(stream)?, &mut |field, value| {
            match field {
                1 => read.version = value.text()?,
                2 => read.attr.push(Attribute::read(value.bytes()?)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(read)
    }

    /// Returns the message with its length prefix.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut message = Written::default();
        message.bytes(1, self.version.as_bytes());
        self.attr.iter().for_each(|attribute| message.put_bytes(2, &attribute.write()));
        message.behind_its_length()
    }
}

impl ChakraNode {
    pub(super) fn read(stream: &mut &[u8]) -> Result<Self, WireError> {
        let mut read = Self::default();
        wire::fields(wire::message(stream)?, &mut |field, value| {
            match field {
                1 => read.id = value.number()?,
                2 => read.name = value.text()?,
                3 => read.kind = value.number()? as i32,
                4 => value.add_to(&mut read.ctrl_deps)?,
                5 => value.add_to(&mut read.data_deps)?,
                6 => read.start_time_micros = value.number()?,
                7 => read.duration_micros = value.number()?,
                10 => read.attr.push(Attribute::read(value.bytes()?)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(read)
    }

    /// Returns the message with its length prefix.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut message = Written::default();
        message.number(1, self.id);
        message.bytes(2, self.name.as_bytes());
        message.number(3, i64::from(self.kind) as u64);
        message.numbers(4, &self.ctrl_deps);
        message.numbers(5, &self.data_deps);
        message.number(6, self.start_time_micros);
        message.number(7, self.duration_micros);
        self.attr.iter().for_each(|attribute| message.put_bytes(10, &attribute.write()));
        message.behind_its_length()
    }
}

impl Attribute {
    fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let mut read = Self::default();
        wire::fields(bytes, &mut |field, value| {
            let choice = match field {
                7 => AttributeValue::Int32(value.number()? as i32),
                9 => AttributeValue::Int64(value.number()? as i64),
                11 => AttributeValue::Uint32(value.number()? as u32),
                13 => AttributeValue::Uint64(value.number()?),
                27 => AttributeValue::Bool(value.number()? != 0),
                29 => AttributeValue::Text(value.text()?),
                1 => {
                    read.name = value.text()?;
                    return Ok(());
                }
                _ => return Ok(()),
            };
            read.value = Some(choice);
            Ok(())
        })?;
        Ok(read)
    }

    fn write(&self) -> Vec<u8> {
        let mut message = Written::default();
        message.bytes(1, self.name.as_bytes());
        match &self.value {
            None => {}
            Some(AttributeValue::Int32(value)) => message.put_number(7, i64::from(*value) as u64),
            Some(AttributeValue::Int64(value)) => message.put_number(9, *value as u64),
            Some(AttributeValue::Uint32(value)) => message.put_number(11, (*value).into()),
            Some(AttributeValue::Uint64(value)) => message.put_number(13, *value),
            Some(AttributeValue::Bool(value)) => message.put_number(27, (*value).into()),
            Some(AttributeValue::Text(text)) => message.put_bytes(29, text.as_bytes()),
        }
        message.into_bytes()
    }
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
    use prost::Message;

    /// The messages declared again for `prost`, an independent implementation of Protocol Buffers.
    mod judge {
        #[derive(Clone, PartialEq, prost::Message)]
        pub(super) struct Node {
            #[prost(uint64, tag = "1")]
            pub(super) id: u64,
            #[prost(string, tag = "2")]
            pub(super) name: String,
            #[prost(int32, tag = "3")]
            pub(super) kind: i32,
            #[prost(uint64, repeated, tag = "4")]
            pub(super) ctrl_deps: Vec<u64>,
            #[prost(uint64, repeated, packed = "false", tag = "5")]
            pub(super) data_deps: Vec<u64>,
            #[prost(uint64, tag = "7")]
            pub(super) duration_micros: u64,
            #[prost(message, repeated, tag = "10")]
            pub(super) attr: Vec<Attribute>,
            #[prost(double, tag = "90")]
            pub(super) unknown: f64,
        }

        #[derive(Clone, PartialEq, prost::Message)]
        pub(super) struct Attribute {
            #[prost(string, tag = "1")]
            pub(super) name: String,
            #[prost(oneof = "Value", tags = "7, 9, 27, 29")]
            pub(super) value: Option<Value>,
        }

        #[derive(Clone, PartialEq, prost::Oneof)]
        pub(super) enum Value {
            #[prost(int32, tag = "7")]
            Int32(i32),
            #[prost(int64, tag = "9")]
            Int64(i64),
            #[prost(bool, tag = "27")]
            Bool(bool),
            #[prost(string, tag = "29")]
            Text(String),
        }
    }

    #[test]
    fn messages_are_compatible_with_another_implementation() {
        let judges = |name: &str, value| judge::Attribute { name: name.into(), value: Some(value) };
        let theirs = judge::Node {
            id: u64::MAX,
            name: "übung".to_owned(),
            kind: -7,
            ctrl_deps: vec![0, 1, 127, 128, u64::MAX],
            data_deps: vec![3, 300],
            duration_micros: 12,
            attr: vec![
                judges("a", judge::Value::Int32(-1)),
                judges("b", judge::Value::Int64(i64::MIN)),
                judges("c", judge::Value::Bool(false)),
                judges("d", judge::Value::Text(String::new())),
                judges("", judge::Value::Int32(0)),
            ],
            unknown: 0.5,
        };
        let ours = ChakraNode {
            id: u64::MAX,
            name: "übung".to_owned(),
            kind: -7,
            ctrl_deps: theirs.ctrl_deps.clone(),
            data_deps: theirs.data_deps.clone(),
            start_time_micros: 0,
            duration_micros: 12,
            attr: vec![
                attribute("a", AttributeValue::Int32(-1)),
                attribute("b", AttributeValue::Int64(i64::MIN)),
                attribute("c", AttributeValue::Bool(false)),
                attribute("d", AttributeValue::Text(String::new())),
                attribute("", AttributeValue::Int32(0)),
            ],
        };
        assert_eq!(
            ChakraNode::read(&mut &theirs.encode_length_delimited_to_vec()[..]),
            Ok(ours.clone())
        );
        let known = judge::Node { unknown: 0.0, ..theirs };
        assert_eq!(judge::Node::decode_length_delimited(&ours.write()[..]), Ok(known));
    }

    #[test]
    fn rejects_truncated_messages_without_reading_beyond() {
        let whole =
            ChakraNode { id: 300, name: "n".into(), data_deps: vec![1], ..ChakraNode::default() }
                .write();
        for length in 0..whole.len() {
            assert!(ChakraNode::read(&mut &whole[..length]).is_err(), "{length} bytes");
        }
        assert!(
            ChakraNode::read(&mut &[11, 0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2][..])
                .is_err()
        );
    }
}
