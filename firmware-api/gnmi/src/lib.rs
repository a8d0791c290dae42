// SPDX-License-Identifier: Apache-2.0
//! gNMI as lightloom's driver and emulated switch both need it, without a socket.
//!
//! ```text
//!   Call ─▶ Client ─▶ bytes ─▶ TCP, TLS, a line with faults ─▶ bytes ─▶ Connection ─▶ Target
//!   Answer ◀──┘     ◀─ bytes ◀─                             ◀─ bytes ◀─┘
//! ```
//!
//! [`message`] has the messages, [`path`](mod@path) their paths as text, [`model`] the names of the nodes of the OCP model of
//! optical circuit switches. [`client`] and [`server`] are HTTP/2 and gRPC of public libraries, run by hand
//! ([`wire`]): a daemon drives them over sockets, a test byte by byte.

pub mod client;
pub mod message;
pub mod model;
pub mod path;
pub mod server;
pub mod wire;

pub use tonic::{Code, Status, Streaming};
