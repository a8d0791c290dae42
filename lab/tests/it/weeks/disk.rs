// SPDX-License-Identifier: Apache-2.0
//! The journal's disk, which keeps synced bytes and can fail or kill the daemon on demand.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lightloom_control::journal::Storage;

pub(super) struct Died;

#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// Kills the daemon before or after the write is durable.
    Dies { after: bool },
    /// Fails all writes until the disk is repaired. With `keeps`, the bytes remain readable.
    Fails { keeps: bool },
}

#[derive(Default)]
struct State {
    written: Vec<u8>,
    durable: Vec<u8>,
    next: Option<(u32, At)>,
    fails: bool,
    has_failed: bool,
}

#[derive(Clone, Default)]
pub(super) struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn plan(&self, syncs: u32, at: At) {
        self.state().next = Some((syncs, at));
    }

    pub(super) fn mend(&self) {
        let mut state = self.state();
        (state.next, state.fails) = (None, false);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    pub(super) fn lose(&self) {
        let mut state = self.state();
        state.written = state.durable.clone();
        state.next = None;
    }

    fn synced(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.fails {
            return Err(io::Error::from_raw_os_error(5));
        }
        let due = match &mut state.next {
            Some((0, at)) => Some(*at),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        match due {
            Some(At::Fails { keeps }) => {
                (state.fails, state.has_failed) = (true, true);
                if !keeps {
                    state.written = state.durable.clone();
                }
                return Err(io::Error::from_raw_os_error(5));
            }
            Some(At::Dies { after: false }) => {
                drop(state);
                resume_unwind(Box::new(Died));
            }
            _ => state.durable = state.written.clone(),
        }
        if due.is_some() {
            drop(state);
            resume_unwind(Box::new(Died));
        }
        Ok(())
    }
}

impl Storage for Disk {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.state().written.clone())
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.state().written.extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.synced()
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.state().fails {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.state().written = bytes.to_vec();
        self.synced()
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.state().written.truncate(length);
        self.synced()
    }
}
