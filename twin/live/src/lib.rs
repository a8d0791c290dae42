// SPDX-License-Identifier: Apache-2.0
//! The live twin: real programs in network namespaces, connected wherever the emulated transceivers
//! have light.
//!
//! [`up`] starts the daemon, the emulated devices and one namespace per node. A namespace has one
//! interface per bundle and one to the data-centre network. [`enter`] runs programs on nodes,
//! [`fault`] injects faults, and [`report`] compares the measured effects with those that the
//! emulator predicts. When light moves, the twin rewires links over netlink.
//!
//! One process holds everything. It is the first process in a process namespace inside a user
//! namespace, so when it ends, every program, namespace and pty disappears. All files are in one
//! folder. Time is real time.

pub mod address;
pub mod check;
pub mod enter;
mod environment;
pub mod fault;
pub mod hold;
mod link;
mod netlink;
mod nodes;
pub mod ranks;
pub mod record;
pub mod report;
pub mod ring;
mod routes;
pub mod up;
mod wiring;

pub use wiring::Rewired;

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Refused(String),
    #[error("cannot {what}: {error}")]
    System { what: String, error: std::io::Error },
    #[error("{}: {error}", .file.display())]
    File { file: PathBuf, error: serde_json::Error },
}

impl Error {
    pub fn system(what: impl Into<String>, error: impl Into<std::io::Error>) -> Self {
        Self::System { what: what.into(), error: error.into() }
    }
}

/// Returns the Unix time in microseconds, which processes can compare.
#[must_use]
pub fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
