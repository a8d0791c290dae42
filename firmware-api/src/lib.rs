// SPDX-License-Identifier: Apache-2.0
//! Implements both ends of the protocol between a host and an optical transceiver with an integrated switch.
//!
//! Firmware links the device side, which consists of [`device`] for the serial line, [`module`] for
//! the behaviour of the module, and the trait `Hardware` for its optics. A daemon links the host
//! side in [`host`]. [`frame`] and [`message`] define the bytes on the serial line, [`cmis`] the
//! register map of CMIS 5.x with the vendor page B0h, and [`path`] the positions of a switch group.
//!
//! The crate is `no_std`, does not allocate and contains no `unsafe`. Times are microseconds since
//! power-on on the caller's clock.
//!
//! The daemon handles serial ports, retries and host policy. `docs/firmware-api.md` is the
//! specification for firmware engineers.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cmis;
pub mod device;
pub mod frame;
pub mod host;
pub mod message;
pub mod module;
pub mod path;
pub mod time;
mod wire;
