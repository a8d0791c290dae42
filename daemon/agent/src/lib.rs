// SPDX-License-Identifier: Apache-2.0
//! `lightloom-agent` runs on each host or switch and gives the daemon access to the modules there.
//!
//! ```text
//!   lightloomd ──TLS, frames──▶ serve ──▶ worker, a thread per module ──▶ ServedModule ──▶ ModuleProfile ──▶ ModuleMemory
//! ```
//!
//! A module behind an agent uses the frames of the serial line, preceded by [its
//! name](lightloom_firmware_api::message::Request::Module). A [profile file](profile::ProfileFile)
//! describes how to set its optical switch. Before each move the agent rereads the serial number,
//! to detect a replaced module. When the agent stops, all paths stay unchanged.

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
