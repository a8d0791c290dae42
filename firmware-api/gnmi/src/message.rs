// SPDX-License-Identifier: Apache-2.0
//! The messages of gNMI 0.10 that a switch needs, with the field numbers of the public
//! `gnmi.proto`.
//!
//! They are written by hand with prost's derive macros, so that the build needs no `protoc`.
//! Deprecated fields are not sent and are ignored when received.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

use crate::extension::Extension;

/// Supported version of the specification.
pub const GNMI_VERSION: &str = "0.10.0";

/// A path in the tree of a device.
#[derive(Clone, PartialEq, Message)]
pub struct Path {
    /// Origin (schema) of the tree. Empty for the device's default.
    #[prost(string, tag = "2")]
    pub origin: String,
    /// Elements from the root down.
    #[prost(message, repeated, tag = "3")]
    pub elem: Vec<PathElem>,
    /// Name of the device if it is behind a collector.
    #[prost(string, tag = "4")]
    pub target: String,
}

/// One element of a path.
#[derive(Clone, PartialEq, Message)]
pub struct PathElem {
    /// Node name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Keys of a list entry.
    #[prost(btree_map = "string, string", tag = "2")]
    pub key: BTreeMap<String, String>,
}

/// A value in one of several encodings.
#[derive(Clone, PartialEq, Message)]
pub struct TypedValue {
    /// Value.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 7, 10, 11, 12, 14")]
    pub value: Option<Value>,
}

/// Contents of a [`TypedValue`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// Signed integer.
    #[prost(int64, tag = "2")]
    Int(i64),
    /// Unsigned integer.
    #[prost(uint64, tag = "3")]
    Uint(u64),
    /// Boolean.
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// Bytes.
    #[prost(bytes = "vec", tag = "5")]
    Bytes(Vec<u8>),
    /// Decimal number.
    #[prost(message, tag = "7")]
    Decimal(Decimal64),
    /// JSON without namespaces.
    #[prost(bytes = "vec", tag = "10")]
    Json(Vec<u8>),
    /// JSON as defined by RFC 7951.
    #[prost(bytes = "vec", tag = "11")]
    JsonIetf(Vec<u8>),
    /// Text in the device's own format.
    #[prost(string, tag = "12")]
    Ascii(String),
    /// Floating-point number.
    #[prost(double, tag = "14")]
    Double(f64),
}

/// The number `digits` · 10^−`precision`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Decimal64 {
    /// All digits.
    #[prost(int64, tag = "1")]
    pub digits: i64,
    /// Number of digits after the decimal point.
    #[prost(uint32, tag = "2")]
    pub precision: u32,
}

/// A value at a path.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// Path.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// Value.
    #[prost(message, optional, tag = "3")]
    pub val: Option<TypedValue>,
    /// Number of earlier updates that were merged into this one.
    #[prost(uint32, tag = "4")]
    pub duplicates: u32,
}

/// A set of values found or changed.
#[derive(Clone, PartialEq, Message)]
pub struct Notification {
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// Prefix of all paths.
    #[prost(message, optional, tag = "2")]
    pub prefix: Option<Path>,
    /// New values.
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    /// Deleted paths.
    #[prost(message, repeated, tag = "5")]
    pub delete: Vec<Path>,
    /// Whether the updates form an atomic unit.
    #[prost(bool, tag = "6")]
    pub atomic: bool,
}

/// Encoding of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Encoding {
    /// JSON without namespaces.
    Json = 0,
    /// Bytes in the device's own format.
    Bytes = 1,
    /// Leaves as protobuf scalars.
    Proto = 2,
    /// Text in the device's own format.
    Ascii = 3,
    /// JSON as defined by RFC 7951.
    JsonIetf = 4,
}

/// A data model of a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelData {
    /// Module name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Publisher.
    #[prost(string, tag = "2")]
    pub organization: String,
    /// Version of the model.
    #[prost(string, tag = "3")]
    pub version: String,
}

/// Queries the capabilities of a device.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CapabilityRequest {}

/// Capabilities of a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CapabilityResponse {
    /// Supported models.
    #[prost(message, repeated, tag = "1")]
    pub supported_models: Vec<ModelData>,
    /// Supported encodings.
    #[prost(enumeration = "Encoding", repeated, tag = "2")]
    pub supported_encodings: Vec<i32>,
    /// gNMI version.
    #[prost(string, tag = "3")]
    pub gnmi_version: String,
}

/// Requested part of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DataType {
    /// All nodes.
    All = 0,
    /// Configuration nodes.
    Config = 1,
    /// State nodes.
    State = 2,
    /// State nodes without a configuration counterpart.
    Operational = 3,
}

/// Requests values.
#[derive(Clone, PartialEq, Message)]
pub struct GetRequest {
    /// Prefix of all paths.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// Requested paths.
    #[prost(message, repeated, tag = "2")]
    pub path: Vec<Path>,
    /// Requested part of the tree.
    #[prost(enumeration = "DataType", tag = "3")]
    pub r#type: i32,
    /// Requested encoding.
    #[prost(enumeration = "Encoding", tag = "5")]
    pub encoding: i32,
    /// Restricts the reply to these models.
    #[prost(message, repeated, tag = "6")]
    pub use_models: Vec<ModelData>,
}

/// Requested values.
#[derive(Clone, PartialEq, Message)]
pub struct GetResponse {
    /// One notification per requested path.
    #[prost(message, repeated, tag = "1")]
    pub notification: Vec<Notification>,
}

/// Changes values atomically: deletes, then replaces, then updates.
#[derive(Clone, PartialEq, Message)]
pub struct SetRequest {
    /// Prefix of all paths.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// Paths to delete first.
    #[prost(message, repeated, tag = "2")]
    pub delete: Vec<Path>,
    /// Subtrees to replace next.
    #[prost(message, repeated, tag = "3")]
    pub replace: Vec<Update>,
    /// Values to update last.
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    /// Extensions, such as master arbitration.
    #[prost(message, repeated, tag = "5")]
    pub extension: Vec<Extension>,
    /// A whole configuration from several origins.
    #[prost(message, repeated, tag = "6")]
    pub union_replace: Vec<Update>,
}

/// Operation of a [`SetRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Operation {
    /// Not an operation.
    Invalid = 0,
    /// Delete.
    Delete = 1,
    /// Replace.
    Replace = 2,
    /// Update.
    Update = 3,
}

/// Result of one operation.
#[derive(Clone, PartialEq, Message)]
pub struct UpdateResult {
    /// Path.
    #[prost(message, optional, tag = "2")]
    pub path: Option<Path>,
    /// Operation.
    #[prost(enumeration = "Operation", tag = "4")]
    pub op: i32,
}

/// Reply to an accepted change.
#[derive(Clone, PartialEq, Message)]
pub struct SetResponse {
    /// Prefix of all paths.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// Result of each operation.
    #[prost(message, repeated, tag = "2")]
    pub response: Vec<UpdateResult>,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub timestamp: i64,
}

/// Lifetime of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ListMode {
    /// Until cancelled.
    Stream = 0,
    /// A single answer.
    Once = 1,
    /// One answer per poll.
    Poll = 2,
}

/// Trigger of a subscription's updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SubscriptionMode {
    /// Decided by the device.
    TargetDefined = 0,
    /// On a change of the value.
    OnChange = 1,
    /// Periodically.
    Sample = 2,
}

/// A subscription to one path.
#[derive(Clone, PartialEq, Message)]
pub struct Subscription {
    /// Path.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// Trigger.
    #[prost(enumeration = "SubscriptionMode", tag = "2")]
    pub mode: i32,
    /// Sampling interval in nanoseconds.
    #[prost(uint64, tag = "3")]
    pub sample_interval: u64,
    /// Omits samples equal to the previous one.
    #[prost(bool, tag = "4")]
    pub suppress_redundant: bool,
    /// Longest interval between updates in nanoseconds, or 0 for no limit.
    #[prost(uint64, tag = "5")]
    pub heartbeat_interval: u64,
}

/// A list of subscriptions.
#[derive(Clone, PartialEq, Message)]
pub struct SubscriptionList {
    /// Prefix of all paths.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// Subscriptions.
    #[prost(message, repeated, tag = "2")]
    pub subscription: Vec<Subscription>,
    /// Lifetime.
    #[prost(enumeration = "ListMode", tag = "5")]
    pub mode: i32,
    /// Requested encoding.
    #[prost(enumeration = "Encoding", tag = "8")]
    pub encoding: i32,
    /// Omits the initial values.
    #[prost(bool, tag = "9")]
    pub updates_only: bool,
}

/// Requests the next answer from a polled subscription.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Poll {}

/// A message from a subscriber.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeRequest {
    /// Content.
    #[prost(oneof = "SubscribeAsk", tags = "1, 3")]
    pub request: Option<SubscribeAsk>,
}

/// Contents of a [`SubscribeRequest`].
#[derive(Clone, PartialEq, Oneof)]
pub enum SubscribeAsk {
    /// The subscription, sent first.
    #[prost(message, tag = "1")]
    Subscribe(SubscriptionList),
    /// A poll, sent later.
    #[prost(message, tag = "3")]
    Poll(Poll),
}

/// A message to a subscriber.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeResponse {
    /// Content.
    #[prost(oneof = "SubscribeAnswer", tags = "1, 3")]
    pub response: Option<SubscribeAnswer>,
}

/// Contents of a [`SubscribeResponse`].
#[derive(Clone, PartialEq, Oneof)]
pub enum SubscribeAnswer {
    /// Values.
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
    /// Returns the value as JSON. An error means that the value is missing or malformed.
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
            Value::Bytes(_) => return Err("bytes where JSON or a scalar is expected".into()),
        })
    }
}
