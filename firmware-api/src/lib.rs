// SPDX-License-Identifier: Apache-2.0
//! What a host and an optical transceiver with a switch inside say to each other.
//!
//! The crate has no operating system, no allocation and no `unsafe`, so a firmware team can link
//! the device half and a daemon the host half, and both speak from one definition of every byte.
//!
//! ```text
//!            host half                                      device half
//!   Request ─▶ Host::request ─▶ COBS frame ── UART ──▶ Device::on_bytes ─▶ Module ─▶ Hardware
//!   Reply  ◀─ Host::receive  ◀─ COBS frame ◀─────────  Device::poll     ◀─   │      (the optics)
//!                                                                            │
//!   cmis::Field, cmis::cdb  ◀──── I2C reads and writes ────▶ Module::bus_*  ◀┘
//! ```
//!
//! * [`frame`] – bytes on the serial line: COBS, CRC-32, sequence number, version;
//! * [`message`] – requests and replies inside a frame;
//! * [`host`] – the host half of the serial line;
//! * [`cmis`] – the register map of CMIS 5.x, and page B0h, which is ours;
//! * [`device`] – the device half of the serial line;
//! * [`module`] – the module itself, for firmware and for emulation;
//! * [`path`] – which way a switch group sends its light, and how a change of it ended.
//!
//! The document a firmware engineer implements from is `docs/firmware-api.md`.
#![no_std]
#![forbid(unsafe_code)]

pub mod cmis;
pub mod device;
pub mod frame;
pub mod host;
pub mod message;
pub mod module;
pub mod path;
pub mod time;
mod wire;
