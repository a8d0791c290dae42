// SPDX-License-Identifier: Apache-2.0
//! `lightloom-agent`: runs on each host or switch and gives the daemon access to the modules there.
//!
//! ```text
//!   lightloomd ──TLS, frames──▶ serve ──▶ worker, a thread per module ──▶ ServedModule ──▶ ModuleProfile ──▶ ModuleMemory
//!                                                                              │               eeprom file
//!                                                                              └──▶ moves: durable before light moves
//! ```
//!
//! To the daemon, a module behind an agent looks like a transceiver on a serial line: the same
//! frames, preceded by [the name of the module](lightloom_firmware_api::message::Request::Module).
//! A [profile file](profile::ProfileFile) describes how to set the module's optical switch. Modules
//! are only switched if the agent's configuration allows it. Before each move the agent rereads the
//! serial number, to detect a replaced module.
//!
//! The daemon treats a stopped agent as a loss of management. The agent undoes nothing when it
//! stops, and reads the state back when it restarts. It makes no decisions.

#[cfg(feature = "reach")]
pub mod eeprom;
pub mod file;
#[cfg(feature = "reach")]
pub mod frames;
pub mod i2c;
#[cfg(feature = "edges")]
mod linux_i2c;
pub mod memory;
#[cfg(feature = "reach")]
pub mod module;
#[cfg(feature = "reach")]
pub mod moves;
pub mod profile;
#[cfg(feature = "edges")]
pub mod serve;
#[cfg(feature = "reach")]
pub mod watch;
#[cfg(feature = "edges")]
pub mod worker;
