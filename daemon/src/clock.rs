// SPDX-License-Identifier: Apache-2.0

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use lightloom_control::state::{Micros, Now};

#[derive(Clone, Debug)]
pub struct Clock {
    boot: String,
    simulated: Option<Arc<Mutex<Now>>>,
}

impl Clock {
    pub fn new() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { boot: boot.trim().to_owned(), simulated: None }
    }

    pub fn simulated(now: Arc<Mutex<Now>>) -> Self {
        Self { boot: String::new(), simulated: Some(now) }
    }

    pub fn now(&self) -> Now {
        if let Some(now) = &self.simulated {
            return now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        // Unlike the monotonic clock, boot time advances while the host is suspended.
        let since_boot = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(since_boot.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(since_boot.tv_nsec).unwrap_or(0);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            mono: Micros::from_secs(seconds) + Micros(nanos / 1000),
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            boot: self.boot.clone(),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
