// SPDX-License-Identifier: Apache-2.0
//! Both ends of the protocol between a host and an optical transceiver with an integrated switch.
//!
//! Firmware uses [`device`] for the serial line and [`module`] for the behaviour, and implements the trait
//! `Hardware` for its optics. A daemon uses [`host`], and handles serial ports, retries and policy itself.
//! [`cmis`] is the register map of CMIS 5.x with the vendor page B0h.
//!
//! The crate is `no_std`, does not allocate and contains no `unsafe`. Times are in microseconds since
//! power-on, measured by the caller's clock. The specification is `docs/firmware-api.md`.
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
