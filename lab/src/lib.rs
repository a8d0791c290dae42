// SPDX-License-Identifier: Apache-2.0
//! What a laboratory needs beside plans: a conformance suite for devices of every protocol.
//!
//! ```text
//!   target ─▶ Link (TCP, TLS, serial line; in tests an emulated device) ─▶ suite of one protocol
//!                                                                           │ cases, one promise each
//!                                                             Report ◀──────┘
//! ```
//!
//! The suite speaks each protocol with a raw client, not with the drivers that the daemon has: what a driver
//! forgives or hides, the suite is to see.

pub mod conform;
