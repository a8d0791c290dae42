// SPDX-License-Identifier: Apache-2.0
//! A durable log of moves. The agent writes each move before it switches the module, so that a
//! request repeated after a restart is executed only once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use lightloom_control::journal::{Journal, Storage};
use lightloom_firmware_api::path::{GROUPS_MAX, Groups, Path as LightPath, Paths};
use serde::{Deserialize, Serialize};

use crate::profile::PathOrder;

#[cfg(feature = "edges")]
const FILE: &str = "moves.log";
const BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunMove {
    pub module: String,
    pub serial: String,
    pub transaction: u32,
    groups: u8,
    paths: [u8; GROUPS_MAX],
}

impl BegunMove {
    pub fn new(module: &str, serial: &str, order: &PathOrder) -> Self {
        Self {
            module: module.to_owned(),
            serial: serial.to_owned(),
            transaction: order.transaction,
            groups: order.groups.0,
            paths: order.paths.map(LightPath::code),
        }
    }

    /// Omits the policy, which is only needed before the module is switched.
    pub fn order(&self) -> PathOrder {
        let paths: Paths = self.paths.map(|code| LightPath::from_code(code).unwrap_or_default());
        PathOrder { transaction: self.transaction, policy: 0, paths, groups: Groups(self.groups) }
    }
}

pub struct MoveLog {
    inner: Mutex<Inner>,
}

struct Inner {
    journal: Option<Journal<BegunMove, Box<dyn Storage + Send>>>,
    last: BTreeMap<String, BegunMove>,
}

impl std::fmt::Debug for MoveLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MoveLog")
    }
}

impl MoveLog {
    pub fn forgetful() -> Self {
        Self { inner: Mutex::new(Inner { journal: None, last: BTreeMap::new() }) }
    }

    #[cfg(feature = "edges")]
    pub fn open(folder: &std::path::Path) -> anyhow::Result<Self> {
        use anyhow::Context;
        use lightloom_daemon::file_storage::FileStorage;

        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join(FILE);
        let storage = FileStorage::open(&path)
            .with_context(|| format!("{}: is it in use by another agent?", path.display()))?;
        let storage: Box<dyn Storage + Send> = Box::new(storage);
        let (journal, opened) = Journal::<BegunMove, _>::open(storage)?;
        if let Some(damage) = opened.damage {
            anyhow::bail!("{}: {damage}", path.display());
        }
        let last = opened.records.into_iter().map(|begun| (begun.module.clone(), begun)).collect();
        Ok(Self { inner: Mutex::new(Inner { journal: Some(journal), last }) })
    }

    pub fn last(&self, module: &str) -> Option<BegunMove> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.last.get(module).cloned()
    }

    /// After an error, the caller must not switch a module.
    pub fn begin(&self, begun: BegunMove) -> anyhow::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { journal, last } = &mut *inner;
        if let Some(journal) = journal {
            journal.append([&begun])?;
        }
        last.insert(begun.module.clone(), begun);
        if let Some(journal) = journal.as_mut().filter(|journal| journal.bytes() > BYTES_MAX) {
            journal.restart(last.values())?;
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "edges"))]
mod tests {
    use super::*;

    #[test]
    fn started_moves_persist_and_belong_to_one_agent() {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = [LightPath::DARK; GROUPS_MAX];
        paths[0] = LightPath::LOOPBACK;
        let order = PathOrder { transaction: 7, policy: 2, paths, groups: Groups(1) };
        let moves = MoveLog::open(folder.path()).unwrap();
        moves.begin(BegunMove::new("n0-b0", "E1", &PathOrder { transaction: 6, ..order })).unwrap();
        moves.begin(BegunMove::new("n0-b0", "E1", &order)).unwrap();
        assert!(MoveLog::open(folder.path()).is_err(), "one agent has the file");
        drop(moves);
        let moves = MoveLog::open(folder.path()).unwrap();
        let last = moves.last("n0-b0").unwrap();
        assert_eq!(last.order(), PathOrder { policy: 0, ..order });
        assert_eq!((last.serial.as_str(), moves.last("n0-b1")), ("E1", None));
    }
}
