// SPDX-License-Identifier: Apache-2.0
//! Devices that another controller changes as well: what was seen, and what to type.

use lightloom_daemon_api::status::ContendedDevice;

use super::status::StatusAlarm;
use crate::ctl::time;

/// One alarm for each such device.
pub(super) fn alarms(contended: &[ContendedDevice]) -> impl Iterator<Item = StatusAlarm> {
    contended.iter().map(|known| {
        let stopped = match known.stopped {
            true => "; nothing is restored on it now",
            false => "",
        };
        let last = match known.last_unix_ms {
            0 => String::new(),
            last => format!(", last at {}", time::clock_at(last)),
        };
        let what = format!("ANOTHER CONTROLLER changes {}", known.device);
        (what, format!("{}{last}{stopped}", known.evidence), known.next.clone())
    })
}
