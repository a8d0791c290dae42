// SPDX-License-Identifier: Apache-2.0
//! A gNMI implementation without sockets, for the daemon's driver and the emulated switch.
//!
//! [`client`] and [`server`] convert messages to bytes and back. Callers handle connections, TLS and timeouts. Public
//! libraries implement HTTP/2 and gRPC, and [`wire`] runs them without a runtime.

#![warn(missing_docs)]

pub mod client;
pub mod extension;
#[expect(missing_docs, reason = "gnmi.proto documents the messages and their fields")]
pub mod message;
pub mod model;
pub mod path;
pub mod server;
pub mod wire;

pub use tonic::{Code, Status, Streaming};
