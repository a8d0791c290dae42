// SPDX-License-Identifier: Apache-2.0
//! What the HTTP API of `lightloomd` says, as types: written by the daemon, read by `lightloom ctl`.
//!
//! An answer of an older or newer daemon can still be read: a field that is missing has its default, one that
//! is not known is skipped, and a word that is not known is kept as it came. A body with an unknown field is
//! refused, because nothing is accepted without effect.

#![warn(missing_docs)]

pub mod alarm;
pub mod answer;
pub mod body;
pub mod circuit;
pub mod device;
pub mod diagnosis;
pub mod diff;
pub mod drift;
pub mod log;
pub mod module;
pub mod phase;
pub mod status;
pub mod text;
pub mod transaction;
mod words;
