// SPDX-License-Identifier: Apache-2.0
//! Packet-level simulation of training steps. `lightloom-training` has the closed form.

mod idle;
pub mod library;
pub mod once;
pub mod packets;
pub mod replay;
