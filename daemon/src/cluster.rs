// SPDX-License-Identifier: Apache-2.0
//! High availability: several daemons manage one fabric. The leader's lease and the journal are in
//! etcd; the other daemons are standbys.
//!
//! ```text
//!   standby ──▶ leader key is free ──▶ leader ──▶ lease lost ──▶ exits, is restarted, standby
//! ```
//!
//! A leader that cannot reach etcd stops sending commands before its lease can expire ([`Fence`]).
//! It also cannot write records, so it becomes read-only, as after a disk failure.

mod etcd;
mod seat;
pub mod standby;
mod storage;

use std::fmt;
use std::io;
use std::path::PathBuf;

use lightloom_control::record::Record;
use tokio::sync::watch;

use crate::config::{Config, EtcdFile};
use crate::journal::{Damage, Storage, read_all};

use crate::fence::Fence;
pub use seat::{ClusterIdentity, LeaderSeat, StandbyNews, check_identity, take_seat};
pub use storage::{EtcdStorage, JournalTail};

#[derive(Clone, Debug)]
pub struct Leadership {
    pub name: String,
    pub epoch: u64,
    pub standbys: watch::Receiver<Vec<String>>,
}

#[derive(Clone, Debug)]
pub enum JournalPlace {
    File(PathBuf),
    Etcd(EtcdFile),
}

impl JournalPlace {
    pub const AFTER_FULL_DISK: &str = "circuits stay lit and devices are still read: free space \
        or repair the disk, and lightloomd resumes automatically";

    pub fn of(config: &Config) -> Self {
        let etcd = config.file.etcd.clone().map(Self::Etcd);
        etcd.unwrap_or_else(|| Self::File(config.journal_file()))
    }

    pub fn read(&self) -> io::Result<(Vec<Record>, Option<Damage>)> {
        let (bytes, missing) = match self {
            Self::File(file) => (std::fs::read(file)?, None),
            Self::Etcd(file) => {
                let etcd = etcd::Etcd::new(file).map_err(io::Error::other)?;
                let (fence, tail) = (Fence::closed(), JournalTail::default());
                let mut storage = EtcdStorage::open(etcd, &file.prefix, 0, fence, tail)?;
                (storage.load()?, storage.missing())
            }
        };
        let (records, byte, damage) = read_all(&bytes);
        let line = records.len() + 1;
        let missing = missing.map(|reason| Damage { line, byte, reason, is_newer: false });
        Ok((records, damage.or(missing)))
    }

    pub fn after_damage(&self, damage: &Damage) -> String {
        if damage.is_newer {
            return "start that version of lightloomd or a later one".into();
        }
        match self {
            Self::File(file) => format!(
                "restore it from a backup; or stop the daemon, `mv {0} {0}.damaged`, start it \
                    again and run `lightloom ctl adopt all`",
                file.display()
            ),
            Self::Etcd(EtcdFile { prefix, .. }) => format!(
                "stop all daemons and restore etcd from a backup; or save a snapshot (`etcdctl \
                    snapshot save FILE`), delete the journal (`etcdctl del --prefix \
                    {prefix}/journal/`, `etcdctl del {prefix}/head`), start the daemons and run \
                    `lightloom ctl adopt all`"
            ),
        }
    }

    pub fn after_failure(&self) -> &'static str {
        match self {
            Self::File(_) => Self::AFTER_FULL_DISK,
            Self::Etcd(_) => {
                "circuits stay lit and devices are still read: restore the quorum of etcd, and \
                    lightloomd resumes automatically"
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
