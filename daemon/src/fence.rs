// SPDX-License-Identifier: Apache-2.0
//! Whether this daemon may send commands now: it may while its lease is certainly its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Open until an instant that each renewal of the lease moves on; always open where there is no other daemon.
#[derive(Clone, Debug, Default)]
pub struct Fence(Option<Arc<FencedLease>>);

#[derive(Debug)]
struct FencedLease {
    began: Instant,
    /// Microseconds after `began`.
    open_until: AtomicU64,
}

impl Fence {
    /// One that is closed until a lease is renewed.
    #[must_use]
    pub fn closed() -> Self {
        let open_until = AtomicU64::new(0);
        Self(Some(Arc::new(FencedLease { began: Instant::now(), open_until })))
    }

    /// A lease asked for at `asked` was granted or renewed for `lasts`: the fence stays open for nine tenths of that, so
    /// that clocks that run apart by less than a tenth do no harm.
    pub fn renewed(&self, asked: Instant, lasts: Duration) {
        if let Some(lease) = &self.0 {
            let until = asked.duration_since(lease.began) + lasts * 9 / 10;
            let until = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
            lease.open_until.fetch_max(until, Ordering::SeqCst);
        }
    }

    /// From now on nothing is sent any more.
    pub fn close(&self) {
        if let Some(lease) = &self.0 {
            lease.open_until.store(0, Ordering::SeqCst);
        }
    }

    /// Whether commands may be sent now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.as_ref().is_none_or(|lease| {
            lease.began.elapsed().as_micros() < u128::from(lease.open_until.load(Ordering::SeqCst))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_open_for_nine_tenths_of_the_lease_from_when_it_was_asked_for() {
        assert!(Fence::default().is_open(), "a daemon alone");
        let fence = Fence::closed();
        assert!(!fence.is_open());
        let now = Instant::now();
        fence.renewed(now, Duration::from_secs(60));
        assert!(fence.is_open());
        fence.close();
        assert!(!fence.is_open());
        let short = Fence::closed();
        short.renewed(Instant::now(), Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(25));
        assert!(!short.is_open(), "a renewal that was not answered");
    }
}
