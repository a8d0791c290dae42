// SPDX-License-Identifier: Apache-2.0
//! gNMI without a socket, for the daemon's driver and the emulated switch.
//!
//! [`client`] converts a [`client::GnmiCall`] to bytes and bytes to a [`client::Answer`];
//! [`server`] is the other end, which serves a [`server::Target`]. [`message`] defines the
//! messages, [`extension`] master arbitration, [`path`](mod@path) the text form of paths, and
//! [`model`] the names in the OCP model for optical circuit switches. HTTP/2 and gRPC come from
//! public libraries, which [`wire`] drives manually.
//!
//! The caller handles connections, TLS and timeouts. A daemon sends the bytes over sockets, and a
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
