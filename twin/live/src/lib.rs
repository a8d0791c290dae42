// SPDX-License-Identifier: Apache-2.0
//! The live twin: real programs in network namespaces that are joined where emulated transceivers have light.
//!
//! [`up`] starts the daemon, the emulated devices and a namespace a node, whose interfaces are the fibres of its transceivers
//! and the data-centre network; [`enter`] runs a program on each node, [`fault`] breaks a part, and [`report`] compares what
//! the programs met with the emulator. When light moves, links are rewired by netlink.
//!
//! One process holds everything: the first of a process namespace inside a user namespace. Its end removes every program,
//! namespace and pty. All its files are in one folder. Time is that of the machine.

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

/// What went wrong, where, and what to do instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine or the input cannot carry the twin; nothing was made.
    #[error("{0}")]
    Refused(String),
    /// The system refused something.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// Its answer.
        error: std::io::Error,
    },
    /// A file of the twin is not as this version writes it.
    #[error("{}: {error}", .file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// Why not.
        error: serde_json::Error,
    },
}

impl Error {
    /// The system's answer to an attempt.
    pub fn system(what: impl Into<String>, error: impl Into<std::io::Error>) -> Self {
        Self::System { what: what.into(), error: error.into() }
    }
}

/// The time on the wall, Unix time in microseconds: what is compared between processes.
#[must_use]
pub fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
