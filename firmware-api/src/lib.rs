// SPDX-License-Identifier: Apache-2.0
//! The protocol between a host and an optical transceiver with a switch inside, both ends of it.
//!
//! A firmware team links the device half: [`device`] on the serial line, [`module`] for the behaviour of the module, and the
//! trait `Hardware` for its optics. A daemon links the host half: [`host`]. [`frame`] and [`message`] define the bytes of the
//! serial line, [`cmis`] the register map of CMIS 5.x with the vendor page B0h, and [`path`] the positions of a switch group.
//!
//! The crate is `no_std`, does not allocate and has no `unsafe`. Times are microseconds since power-on, of the caller's clock.
//!
//! Not here: serial ports, retries and policy of the host, which are the daemon's. The specification for firmware engineers
//! is `docs/firmware-api.md`.
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
