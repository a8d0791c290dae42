// SPDX-License-Identifier: Apache-2.0
//! Simulates training steps packet by packet. `lightloom-training` computes them in closed form.

pub mod library;
pub mod packets;
pub mod replay;
