// SPDX-License-Identifier: Apache-2.0
//! Prevents a leader from sending commands after its lease may have expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Default)]
pub struct Fence(Option<Arc<FencedLease>>);

#[derive(Debug)]
struct FencedLease {
    began: Instant,
    open_until: AtomicU64,
}

impl Fence {
    pub fn closed() -> Self {
        let open_until = AtomicU64::new(0);
        Self(Some(Arc::new(FencedLease { began: Instant::now(), open_until })))
    }

    /// Extends the deadline after a renewal to nine tenths of the lease, measured from the request.
    /// This tolerates a clock drift of one tenth.
    pub fn renewed(&self, asked: Instant, lasts: Duration) {
        if let Some(lease) = &self.0 {
            let until = asked.duration_since(lease.began) + lasts * 9 / 10;
            let until = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
            lease.open_until.fetch_max(until, Ordering::SeqCst);
        }
    }

    pub fn close(&self) {
        if let Some(lease) = &self.0 {
            lease.open_until.store(0, Ordering::SeqCst);
        }
    }

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
    fn fence_stays_open_for_nine_tenths_of_the_lease() {
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
        assert!(!short.is_open(), "the lease was not renewed in time");
    }
}
