// SPDX-License-Identifier: Apache-2.0
//! Types of the HTTP API of `lightloomd`, shared by the daemon and `lightloom ctl`.
//!
//! Clients can read responses of older and newer daemons: missing fields get their defaults,
//! unknown fields are skipped, and unknown state words are kept verbatim. The daemon refuses
//! request bodies with unknown fields, so that no option is silently ignored.

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
pub mod summary;
pub mod text;
pub mod transaction;
mod words;
