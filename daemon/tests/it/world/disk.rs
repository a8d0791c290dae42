// SPDX-License-Identifier: Apache-2.0
//! A disk in memory that forgets what was not synced, tears writes at sectors, fills up and fails.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use lightloom_daemon::journal::Storage;
use rand::RngExt;

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
struct State {
    durable: Vec<u8>,
    /// Durable and what was written since.
    written: Vec<u8>,
    fail_sync: bool,
    fail_write: Option<io::ErrorKind>,
    capacity_bytes: Option<usize>,
}

impl State {
    fn may_write(&self) -> io::Result<()> {
        self.fail_write.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

/// Handles to one disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Rc<RefCell<State>>);

impl Disk {
    pub(crate) fn clone_state(&self) -> Vec<u8> {
        self.0.borrow().durable.clone()
    }

    /// As if the last sync had not come back yet.
    pub(crate) fn unsync(&self, durable: &[u8]) {
        self.0.borrow_mut().durable = durable.to_vec();
    }

    /// What was not synced is lost, cut at a byte or sector, or has sectors that never arrived.
    pub(crate) fn lose_power(&self, rng: &mut impl RngExt) {
        let mut state = self.0.borrow_mut();
        let (from, to) = (state.durable.len(), state.written.len());
        if to <= from {
            state.written = state.durable.clone();
            return;
        }
        let mut torn = state.written.clone();
        match rng.random_range(0..4) {
            0 => torn.truncate(from),
            1 => torn.truncate(rng.random_range(from..=to)),
            2 => {
                torn.truncate((rng.random_range(from..=to) / SECTOR_BYTES * SECTOR_BYTES).max(from))
            }
            _ => {
                let sectors = from.div_ceil(SECTOR_BYTES)..to.div_ceil(SECTOR_BYTES);
                for sector in sectors.filter(|_| rng.random_bool(0.5)).collect::<Vec<_>>() {
                    let start = sector * SECTOR_BYTES;
                    let end = (start + SECTOR_BYTES).min(to);
                    torn[start..end].fill(0);
                }
            }
        }
        state.durable = torn.clone();
        state.written = torn;
    }

    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.0.borrow_mut().fail_sync = fail;
    }

    /// Every write fails so from now on, as on a disk with errors or one that was made read-only.
    pub(crate) fn fail_writes(&self, kind: Option<io::ErrorKind>) {
        self.0.borrow_mut().fail_write = kind;
    }

    pub(crate) fn set_capacity(&self, bytes: Option<usize>) {
        self.0.borrow_mut().capacity_bytes = bytes;
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.borrow().durable.clone()
    }
}

impl Storage for Disk {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.0.borrow().written.clone())
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.may_write()?;
        let room =
            state.capacity_bytes.map_or(usize::MAX, |c| c.saturating_sub(state.written.len()));
        let fits = bytes.len().min(room);
        state.written.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        if state.fail_sync {
            return Err(io::Error::other("input/output error"));
        }
        state.durable = state.written.clone();
        Ok(())
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.may_write()?;
        if state.capacity_bytes.is_some_and(|capacity| capacity < bytes.len()) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.written = bytes.to_vec();
        state.durable = bytes.to_vec();
        Ok(())
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.may_write()?;
        state.written.truncate(usize::try_from(length).expect("disks in tests are small"));
        state.durable = state.written.clone();
        Ok(())
    }
}
