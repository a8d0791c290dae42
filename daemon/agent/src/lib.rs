// SPDX-License-Identifier: Apache-2.0
//! `lightloom-agent`: one on each host or switch, reaches the modules there and moves their light for the daemon.
//!
//! ```text
//!   lightloomd ──TLS, frames──▶ serve ──▶ worker, a thread a module ──▶ ServedModule ──▶ ModuleProfile ──▶ ModuleMemory
//!                                                                        │                      eeprom file
//!                                                                        └──▶ moves: durable before light moves
//! ```
//!
//! To the daemon a module here is a transceiver on a serial line: the same frames, after [the name of the
//! module](lightloom_firmware_api::message::Request::Module). How its optical switch is set is a
//! [profile](profile::ProfileFile), a file; the agent knows no module by name. Light moves only where the agent's file
//! allows it, and only in the module that said hello: its serial number is read again before.
//!
//! A dead agent is lost management: nothing is undone when it ends, and what it was doing is read back when it comes
//! again. Not here: policy. What moves when is the daemon's.

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
