//! Devices that another controller changes as well: what was seen, and what to type.

use serde_json::Value;

use super::status::Alarm;
use super::{list, text};
use crate::ctl::time;

/// One alarm for each such device.
pub(super) fn alarms(contended: &Value) -> impl Iterator<Item = Alarm> {
    list(contended).iter().map(|known| {
        let stopped = match known["stopped"] == true {
            true => "; nothing is restored on it now",
            false => "",
        };
        let last = match known["last_unix_ms"].as_u64() {
            Some(0) | None => String::new(),
            Some(_) => format!(", last at {}", time::clock_at(&known["last_unix_ms"])),
        };
        let what = format!("ANOTHER CONTROLLER changes {}", text(&known["device"]));
        (what, format!("{}{last}{stopped}", text(&known["evidence"])), text(&known["next"]))
    })
}
