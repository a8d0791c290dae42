// SPDX-License-Identifier: Apache-2.0
//! gNMI without a socket, for the daemon's driver and for the emulated switch.
//!
//! [`client`] turns a [`client::GnmiCall`] into bytes and bytes into a [`client::Answer`]; [`server`] is the other end, in front
//! of a [`server::Target`]. [`message`] has the messages, [`extension`] master arbitration, [`path`](mod@path) their paths as text, [`model`] the names in the OCP
//! model of optical circuit switches. HTTP/2 and gRPC are those of public libraries, run by hand ([`wire`]).
//!
//! Not here: connections, TLS and time-outs. A daemon carries the bytes over sockets, a test carries them one by one.

#![warn(missing_docs)]

pub mod client;
pub mod extension;
pub mod message;
pub mod model;
pub mod path;
pub mod server;
pub mod wire;

pub use tonic::{Code, Status, Streaming};
