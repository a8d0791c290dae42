// SPDX-License-Identifier: Apache-2.0
//! State outside the ledger that affects replies. After a failed write, the last stored value is
//! restored.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::journal::Proof;

#[derive(Clone, Debug, Default)]
pub(super) struct Unstored<T> {
    now: Arc<T>,
    stored: Arc<T>,
}

impl<T> Unstored<T> {
    pub(super) fn mark_stored(&mut self, _: &Proof) {
        self.stored = Arc::clone(&self.now);
    }

    pub(super) fn go_back(&mut self) {
        self.now = Arc::clone(&self.stored);
    }
}

impl<T> Deref for Unstored<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.now
    }
}

impl<T: Clone> DerefMut for Unstored<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.now)
    }
}
