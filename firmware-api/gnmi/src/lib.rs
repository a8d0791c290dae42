// SPDX-License-Identifier: Apache-2.0
//! gNMI without a socket, for the daemon's driver and the emulated switch.
//!
//! [`client`] converts a [`client::GnmiCall`] to bytes and bytes to a [`client::Answer`];
//! [`server`] is the other end, in front of a [`server::Target`]. [`message`] defines the messages,
//! [`extension`] master arbitration, [`path`](mod@path) their paths as text, and [`model`] the
//! names in the OCP model of optical circuit switches. HTTP/2 and gRPC come from public libraries,
//! driven manually ([`wire`]).
//!
//! Connections, TLS and timeouts are left to the caller. A daemon carries the bytes over sockets; a
//! test passes them directly.

#![warn(missing_docs)]

pub mod client;
pub mod extension;
pub mod message;
pub mod model;
pub mod path;
pub mod server;
pub mod wire;

pub use tonic::{Code, Status, Streaming};
