// SPDX-License-Identifier: Apache-2.0
//! Several daemons for one fabric: one leads, the others stand by. The leader's lease and the journal are in etcd.
//!
//! ```text
//!   stands by ──▶ key is free ──▶ leads ──▶ lease is gone ──▶ ends, is started again, stands by
//! ```
//!
//! A leader that cannot reach etcd sends no command once its lease may have run out ([`Fence`]) and can write no record, so that it
//! only reads, as it does on a disk that fails.

mod etcd;
mod fence;
mod seat;
pub mod standby;
mod storage;

use std::io;

use crate::config::Config;
use crate::journal::Storage;

pub use fence::Fence;
pub use seat::{LeaderSeat, StandbyNews, check_fabric, take_seat};
pub use storage::EtcdStorage;

/// What the journal holds now, for those who only read it.
///
/// # Errors
/// etcd's, or the file's.
pub fn journal_bytes(config: &Config) -> io::Result<Vec<u8>> {
    let Some(file) = &config.file.etcd else { return std::fs::read(config.journal_file()) };
    let etcd = etcd::Etcd::new(file).map_err(io::Error::other)?;
    EtcdStorage::open(etcd, &file.prefix, 0, Fence::closed())?.load()
}
