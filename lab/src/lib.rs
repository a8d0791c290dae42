// SPDX-License-Identifier: Apache-2.0
//! Tests whether a device follows its protocol. Each case tests one rule over TCP, TLS, a serial device or an emulated
//! device. The suite uses raw clients, because the daemon's drivers tolerate or hide faults that the suite must find.

pub mod conform;
