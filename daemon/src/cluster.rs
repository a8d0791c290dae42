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

use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio::sync::watch;

use crate::config::{Config, EtcdFile};
use crate::journal::{Damage, Storage};

pub use fence::Fence;
pub use seat::{ClusterIdentity, LeaderSeat, StandbyNews, check_identity, take_seat};
pub use storage::{EtcdStorage, JournalTail};

/// Who leads, and who would after it.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// What this daemon, which leads, is called.
    pub name: String,
    /// Grows with each leader.
    pub epoch: u64,
    /// What those are called that stand by.
    pub standbys: watch::Receiver<Vec<String>>,
}

/// Where the journal is.
#[derive(Clone, Debug)]
pub enum JournalPlace {
    /// In the folder of a daemon that is alone.
    File(PathBuf),
    /// In etcd.
    Etcd(EtcdFile),
}

impl JournalPlace {
    /// What an operator can do where this machine's disk is full or fails.
    pub const AFTER_FULL_DISK: &str = "the light stays as it is and devices are read on: free space or repair the disk, and \
                                       lightloomd goes on automatically";

    /// That of a daemon with this file.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let etcd = config.file.etcd.clone().map(Self::Etcd);
        etcd.unwrap_or_else(|| Self::File(config.journal_file()))
    }

    /// What it holds now, for those who only read it.
    ///
    /// # Errors
    /// etcd's, or the file's.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::File(file) => std::fs::read(file),
            Self::Etcd(file) => {
                let etcd = etcd::Etcd::new(file).map_err(io::Error::other)?;
                let (fence, tail) = (Fence::closed(), JournalTail::default());
                EtcdStorage::open(etcd, &file.prefix, 0, fence, tail)?.load()
            }
        }
    }

    /// What an operator can do where it is damaged.
    #[must_use]
    pub fn after_damage(&self) -> &'static str {
        match self {
            Self::File(_) => Damage::WHAT_TO_DO,
            Self::Etcd(_) => {
                "stop the daemons, restore etcd from a copy, or keep one (`etcdctl snapshot save`), delete the keys under \
                 `journal/` and `head`, start again and `adopt` what is lit"
            }
        }
    }

    /// What an operator can do where it cannot be written.
    #[must_use]
    pub fn after_failure(&self) -> &'static str {
        match self {
            Self::File(_) => Self::AFTER_FULL_DISK,
            Self::Etcd(_) => {
                "the light stays as it is and devices are read on: see that most of etcd's members answer, and lightloomd \
                 goes on automatically"
            }
        }
    }
}

impl fmt::Display for JournalPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Etcd(etcd) => write!(f, "{}/journal in etcd", etcd.prefix),
        }
    }
}
