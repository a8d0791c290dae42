// SPDX-License-Identifier: Apache-2.0
//! Training steps packet by packet; in closed form they are `lightloom-training`.

pub mod library;
pub mod packets;
pub mod replay;
