// SPDX-License-Identifier: Apache-2.0
//! The live twin: real programs in network namespaces, connected wherever the emulated transceivers have light.
//!
//! Each node has a namespace with one interface per bundle and one to the data-centre network. When
//! a circuit is switched, the twin rewires links over netlink. [`report`] compares the measured
//! effects of a fault with those that the emulator predicts.

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
mod routes;
pub mod up;
mod wiring;

pub use wiring::Rewired;

use std::path::PathBuf;
use std::time::{Duration, Instant};

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

    pub fn cannot<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |error| Self::System { what, error: error.into() }
    }
}

/// Asks every few milliseconds. Returns `None` if there was no result within this time.
fn wait_until<T>(
    within: Duration,
    mut ask: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let until = Instant::now() + within;
    loop {
        let found = ask()?;
        if found.is_some() || Instant::now() > until {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
