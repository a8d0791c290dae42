// SPDX-License-Identifier: Apache-2.0
//! An in-memory disk for the journal, which survives the daemon's failure. The daemon waits for flushes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lightloom_control::journal::Storage;

#[derive(Default)]
struct State {
    written: Vec<u8>,
    durable: usize,
}

#[derive(Clone, Default)]
pub(crate) struct EmulatedDisk(Arc<Mutex<State>>);

impl EmulatedDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lose(&self) {
        let mut state = self.state();
        let durable = state.durable;
        state.written.truncate(durable);
    }
}

impl Storage for EmulatedDisk {
    fn load(&mut self) -> io::Result<Vec<u8>> {
        Ok(self.state().written.clone())
    }
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.state().written.extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state();
        state.durable = state.written.len();
        Ok(())
    }
    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.state().written = bytes.to_vec();
        self.sync()
    }
    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.state().written.truncate(length);
        self.sync()
    }
}
