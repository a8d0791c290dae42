// SPDX-License-Identifier: Apache-2.0
//! The messages of gNMI 0.10 that a switch needs, with the field numbers of the public `gnmi.proto`.
//!
//! Written by hand with prost's derive, so that no `protoc` is needed to build. Fields that the specification
//! deprecates are left out: a peer's are skipped.

use std::collections::BTreeMap;

use prost::{Enumeration, Message, Oneof};

use crate::extension::Extension;

/// The version of the specification that this speaks.
pub const GNMI_VERSION: &str = "0.10.0";

/// Where something is in the tree of a device.
#[derive(Clone, PartialEq, Message)]
pub struct Path {
    /// Which tree; empty for the device's own.
    #[prost(string, tag = "2")]
    pub origin: String,
    /// From the root down.
    #[prost(message, repeated, tag = "3")]
    pub elem: Vec<PathElem>,
    /// Which device, behind a collector.
    #[prost(string, tag = "4")]
    pub target: String,
}

/// One step of a path.
#[derive(Clone, PartialEq, Message)]
pub struct PathElem {
    /// The node.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The keys of a list's entry.
    #[prost(btree_map = "string, string", tag = "2")]
    pub key: BTreeMap<String, String>,
}

/// A value, in one of many encodings.
#[derive(Clone, PartialEq, Message)]
pub struct TypedValue {
    /// The value.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 7, 10, 11, 12, 14")]
    pub value: Option<Value>,
}

/// What a [`TypedValue`] holds.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A text.
    #[prost(string, tag = "1")]
    Text(String),
    /// A signed number.
    #[prost(int64, tag = "2")]
    Int(i64),
    /// A number.
    #[prost(uint64, tag = "3")]
    Uint(u64),
    /// Yes or no.
    #[prost(bool, tag = "4")]
    Bool(bool),
    /// Bytes.
    #[prost(bytes = "vec", tag = "5")]
    Bytes(Vec<u8>),
    /// A decimal number.
    #[prost(message, tag = "7")]
    Decimal(Decimal64),
    /// JSON without namespaces.
    #[prost(bytes = "vec", tag = "10")]
    Json(Vec<u8>),
    /// JSON of RFC 7951.
    #[prost(bytes = "vec", tag = "11")]
    JsonIetf(Vec<u8>),
    /// A device's own text.
    #[prost(string, tag = "12")]
    Ascii(String),
    /// A floating number.
    #[prost(double, tag = "14")]
    Double(f64),
}

/// `digits` · 10^−`precision`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Decimal64 {
    /// All digits.
    #[prost(int64, tag = "1")]
    pub digits: i64,
    /// Of these after the point.
    #[prost(uint32, tag = "2")]
    pub precision: u32,
}

/// A value at a path.
#[derive(Clone, PartialEq, Message)]
pub struct Update {
    /// Where.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// What.
    #[prost(message, optional, tag = "3")]
    pub val: Option<TypedValue>,
    /// Values that were left out before this one.
    #[prost(uint32, tag = "4")]
    pub duplicates: u32,
}

/// What was found or has changed.
#[derive(Clone, PartialEq, Message)]
pub struct Notification {
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// Stands before each path.
    #[prost(message, optional, tag = "2")]
    pub prefix: Option<Path>,
    /// New values.
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    /// What is there no more.
    #[prost(message, repeated, tag = "5")]
    pub delete: Vec<Path>,
    /// These belong together.
    #[prost(bool, tag = "6")]
    pub atomic: bool,
}

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Encoding {
    /// JSON without namespaces.
    Json = 0,
    /// The device's own bytes.
    Bytes = 1,
    /// Leaves as protobuf scalars.
    Proto = 2,
    /// The device's own text.
    Ascii = 3,
    /// JSON of RFC 7951.
    JsonIetf = 4,
}

/// A model that a device has.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModelData {
    /// The module.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Who publishes it.
    #[prost(string, tag = "2")]
    pub organization: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub version: String,
}

/// Asks what a device can.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CapabilityRequest {}

/// What a device can.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CapabilityResponse {
    /// Its models.
    #[prost(message, repeated, tag = "1")]
    pub supported_models: Vec<ModelData>,
    /// Its encodings.
    #[prost(enumeration = "Encoding", repeated, tag = "2")]
    pub supported_encodings: Vec<i32>,
    /// The version of gNMI.
    #[prost(string, tag = "3")]
    pub gnmi_version: String,
}

/// Which part of a tree is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum DataType {
    /// All of it.
    All = 0,
    /// What was set.
    Config = 1,
    /// What is.
    State = 2,
    /// What is and has no counterpart that can be set.
    Operational = 3,
}

/// Asks for values.
#[derive(Clone, PartialEq, Message)]
pub struct GetRequest {
    /// Stands before each path.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// What is asked for.
    #[prost(message, repeated, tag = "2")]
    pub path: Vec<Path>,
    /// Which part.
    #[prost(enumeration = "DataType", tag = "3")]
    pub r#type: i32,
    /// How it is to be written.
    #[prost(enumeration = "Encoding", tag = "5")]
    pub encoding: i32,
    /// Only these models.
    #[prost(message, repeated, tag = "6")]
    pub use_models: Vec<ModelData>,
}

/// The values.
#[derive(Clone, PartialEq, Message)]
pub struct GetResponse {
    /// One for each path that was asked for.
    #[prost(message, repeated, tag = "1")]
    pub notification: Vec<Notification>,
}

/// Changes values, all or none: deletes, then replaces, then updates.
#[derive(Clone, PartialEq, Message)]
pub struct SetRequest {
    /// Stands before each path.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// First these go.
    #[prost(message, repeated, tag = "2")]
    pub delete: Vec<Path>,
    /// Then these are as given, and nothing else below them.
    #[prost(message, repeated, tag = "3")]
    pub replace: Vec<Update>,
    /// Then these are added.
    #[prost(message, repeated, tag = "4")]
    pub update: Vec<Update>,
    /// Who asks, where several might.
    #[prost(message, repeated, tag = "5")]
    pub extension: Vec<Extension>,
    /// A whole configuration from several origins at once.
    #[prost(message, repeated, tag = "6")]
    pub union_replace: Vec<Update>,
}

/// What one part of a [`SetRequest`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Operation {
    /// Nothing.
    Invalid = 0,
    /// A delete.
    Delete = 1,
    /// A replace.
    Replace = 2,
    /// An update.
    Update = 3,
}

/// One part of a change that was done.
#[derive(Clone, PartialEq, Message)]
pub struct UpdateResult {
    /// Where.
    #[prost(message, optional, tag = "2")]
    pub path: Option<Path>,
    /// What.
    #[prost(enumeration = "Operation", tag = "4")]
    pub op: i32,
}

/// A change was accepted.
#[derive(Clone, PartialEq, Message)]
pub struct SetResponse {
    /// Stands before each path.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// Its parts.
    #[prost(message, repeated, tag = "2")]
    pub response: Vec<UpdateResult>,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub timestamp: i64,
}

/// How long a subscription lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ListMode {
    /// Until it is cancelled.
    Stream = 0,
    /// One answer.
    Once = 1,
    /// One answer to each poll.
    Poll = 2,
}

/// When a subscription sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum SubscriptionMode {
    /// As the device likes.
    TargetDefined = 0,
    /// When a value changes.
    OnChange = 1,
    /// Again and again.
    Sample = 2,
}

/// One path to hear of.
#[derive(Clone, PartialEq, Message)]
pub struct Subscription {
    /// What.
    #[prost(message, optional, tag = "1")]
    pub path: Option<Path>,
    /// When.
    #[prost(enumeration = "SubscriptionMode", tag = "2")]
    pub mode: i32,
    /// Between two samples, in nanoseconds.
    #[prost(uint64, tag = "3")]
    pub sample_interval: u64,
    /// A sample that is as the last is not sent.
    #[prost(bool, tag = "4")]
    pub suppress_redundant: bool,
    /// Sent anew after so many nanoseconds at the latest; 0 for never.
    #[prost(uint64, tag = "5")]
    pub heartbeat_interval: u64,
}

/// What to hear of.
#[derive(Clone, PartialEq, Message)]
pub struct SubscriptionList {
    /// Stands before each path.
    #[prost(message, optional, tag = "1")]
    pub prefix: Option<Path>,
    /// The paths.
    #[prost(message, repeated, tag = "2")]
    pub subscription: Vec<Subscription>,
    /// For how long.
    #[prost(enumeration = "ListMode", tag = "5")]
    pub mode: i32,
    /// How values are to be written.
    #[prost(enumeration = "Encoding", tag = "8")]
    pub encoding: i32,
    /// Not what is there at the start.
    #[prost(bool, tag = "9")]
    pub updates_only: bool,
}

/// Asks for another answer of a subscription with polls.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Poll {}

/// What a subscriber sends.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeRequest {
    /// One of these.
    #[prost(oneof = "SubscribeAsk", tags = "1, 3")]
    pub request: Option<SubscribeAsk>,
}

/// What a [`SubscribeRequest`] holds.
#[derive(Clone, PartialEq, Oneof)]
pub enum SubscribeAsk {
    /// First what to hear of,
    #[prost(message, tag = "1")]
    Subscribe(SubscriptionList),
    /// then perhaps polls.
    #[prost(message, tag = "3")]
    Poll(Poll),
}

/// What a subscriber hears.
#[derive(Clone, PartialEq, Message)]
pub struct SubscribeResponse {
    /// One of these.
    #[prost(oneof = "SubscribeAnswer", tags = "1, 3")]
    pub response: Option<SubscribeAnswer>,
}

/// What a [`SubscribeResponse`] holds.
#[derive(Clone, PartialEq, Oneof)]
pub enum SubscribeAnswer {
    /// Values.
    #[prost(message, tag = "1")]
    Update(Notification),
    /// Everything that was there at the start has been sent.
    #[prost(bool, tag = "3")]
    Sync(bool),
}

impl From<Value> for TypedValue {
    fn from(value: Value) -> Self {
        Self { value: Some(value) }
    }
}

impl TypedValue {
    /// The value as JSON, whichever way it was written.
    ///
    /// # Errors
    /// What is wrong with it.
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
