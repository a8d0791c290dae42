// SPDX-License-Identifier: Apache-2.0
//! The messages of gNMI 0.10 that a switch needs.
//!
//! Field numbers match `gnmi.proto`. The types use prost's derive macros, so that the build does not need
//! `protoc`. Deprecated fields are never sent, and are ignored when received.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

use crate::extension::Extension;

pub const GNMI_VERSION: &str = "0.10.0";

#[derive(Clone, PartialEq, Message)]
pub struct Path {
    #[prost(string, tag = "2")]
    pub origin: String,
    #[prost(message, repeated, tag = "3")]
    pub elem: Vec<PathElem>,
    #[prost(string, tag = "4")]
    pub target: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct PathElem {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub key: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TypedValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 7, 10, 11, 12, 14")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "2")]
    Int(i64),
    #[prost(uint64, tag = "3")]
    Uint(u64),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(bytes = "vec", tag = "5")]
    Bytes(Vec<u8>),
    #[prost(message, tag = "7")]
    Decimal(Decimal64),
    #[prost(bytes = "vec", tag = "10")]
    Json(Vec<u8>),
    #[prost(bytes = "vec", tag = "11")]
    JsonIetf(Vec<u8>),
    #[prost(string, tag = "12")]
    Ascii(String),
    #[prost(double, tag = "14")]
    Double(f64),
}

/// The number `digits` · 10^−`precision`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Decimal64 {
    #[prost(int64, tag = "1")]
    pub digits: i64,
    #[prost(uint32, tag = "2")]
    pub precision: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Update {
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    #[prost(message, optional, tag = "3")]
    pub val: Option<TypedValue>,
    #[prost(uint32, tag = "4")]
    pub duplicates: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Notification {
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub prefix: Option<Path>,
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    #[prost(message, repeated, tag = "5")]
    pub delete: Vec<Path>,
    #[prost(bool, tag = "6")]
    pub atomic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Encoding {
    Json = 0,
    Bytes = 1,
    Proto = 2,
    Ascii = 3,
    JsonIetf = 4,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelData {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub organization: String,
    #[prost(string, tag = "3")]
    pub version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CapabilityRequest {}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct CapabilityResponse {
    #[prost(message, repeated, tag = "1")]
    pub supported_models: Vec<ModelData>,
    #[prost(enumeration = "Encoding", repeated, tag = "2")]
    pub supported_encodings: Vec<i32>,
    #[prost(string, tag = "3")]
    pub gnmi_version: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DataType {
    All = 0,
    Config = 1,
    State = 2,
    Operational = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetRequest {
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    #[prost(message, repeated, tag = "2")]
    pub path: Vec<Path>,
    #[prost(enumeration = "DataType", tag = "3")]
    pub r#type: i32,
    #[prost(enumeration = "Encoding", tag = "5")]
    pub encoding: i32,
    #[prost(message, repeated, tag = "6")]
    pub use_models: Vec<ModelData>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GetResponse {
    #[prost(message, repeated, tag = "1")]
    pub notification: Vec<Notification>,
}

/// An atomic change, which deletes, then replaces, then updates.
#[derive(Clone, PartialEq, Message)]
pub struct SetRequest {
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    #[prost(message, repeated, tag = "2")]
    pub delete: Vec<Path>,
    #[prost(message, repeated, tag = "3")]
    pub replace: Vec<Update>,
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    #[prost(message, repeated, tag = "5")]
    pub extension: Vec<Extension>,
    #[prost(message, repeated, tag = "6")]
    pub union_replace: Vec<Update>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Operation {
    Invalid = 0,
    Delete = 1,
    Replace = 2,
    Update = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct UpdateResult {
    #[prost(message, optional, tag = "2")]
    pub path: Option<Path>,
    #[prost(enumeration = "Operation", tag = "4")]
    pub op: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct SetResponse {
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    #[prost(message, repeated, tag = "2")]
    pub response: Vec<UpdateResult>,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub timestamp: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ListMode {
    Stream = 0,
    Once = 1,
    Poll = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SubscriptionMode {
    TargetDefined = 0,
    OnChange = 1,
    Sample = 2,
}

#[derive(Clone, PartialEq, Message)]
pub struct Subscription {
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    #[prost(enumeration = "SubscriptionMode", tag = "2")]
    pub mode: i32,
    /// Interval between samples in nanoseconds.
    #[prost(uint64, tag = "3")]
    pub sample_interval: u64,
    #[prost(bool, tag = "4")]
    pub suppress_redundant: bool,
    /// Maximum nanoseconds between updates; 0 for no limit.
    #[prost(uint64, tag = "5")]
    pub heartbeat_interval: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct SubscriptionList {
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    #[prost(message, repeated, tag = "2")]
    pub subscription: Vec<Subscription>,
    #[prost(enumeration = "ListMode", tag = "5")]
    pub mode: i32,
    #[prost(enumeration = "Encoding", tag = "8")]
    pub encoding: i32,
    #[prost(bool, tag = "9")]
    pub updates_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Poll {}

#[derive(Clone, PartialEq, Message)]
pub struct SubscribeRequest {
    #[prost(oneof = "SubscribeAsk", tags = "1, 3")]
    pub request: Option<SubscribeAsk>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum SubscribeAsk {
    #[prost(message, tag = "1")]
    Subscribe(SubscriptionList),
    #[prost(message, tag = "3")]
    Poll(Poll),
}

#[derive(Clone, PartialEq, Message)]
pub struct SubscribeResponse {
    #[prost(oneof = "SubscribeAnswer", tags = "1, 3")]
    pub response: Option<SubscribeAnswer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum SubscribeAnswer {
    #[prost(message, tag = "1")]
    Update(Notification),
    /// All initial values have been sent.
    #[prost(bool, tag = "3")]
    Sync(bool),
}

impl From<Value> for TypedValue {
    fn from(value: Value) -> Self {
        Self { value: Some(value) }
    }
}

impl TypedValue {
    /// Converts the value to JSON, or returns why it is missing or malformed.
    pub fn to_json(&self) -> Result<serde_json::Value, String> {
        use serde_json::Value as Json;
        Ok(match self.value.as_ref().ok_or("a value is missing")? {
            Value::Text(text) | Value::Ascii(text) => Json::from(text.as_str()),
            Value::Int(number) => Json::from(*number),
            Value::Uint(number) => Json::from(*number),
            Value::Bool(is) => Json::from(*is),
            Value::Double(number) => Json::from(*number),
            Value::Decimal(Decimal64 { digits, precision }) => {
                let places = i32::try_from(*precision).unwrap_or(i32::MAX);
                #[expect(clippy::cast_precision_loss, reason = "powers have few digits")]
                Json::from(*digits as f64 / 10f64.powi(places))
            }
            Value::Json(bytes) | Value::JsonIetf(bytes) => {
                serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?
            }
            Value::Bytes(_) => return Err("expected JSON or a scalar, found bytes".into()),
        })
    }
}
