//! `lightloom ctl module`: what a transceiver says about itself.

use std::fmt::Write;

use serde_json::Value;

use super::{list, text};

/// Who it is, how it is, and where its light is now and after a loss of power.
pub(in crate::ctl) fn module(module: &Value) -> String {
    let of = |key: &str| text(&module[key]);
    let number = |key: &str| module[key].as_f64().unwrap_or(f64::NAN);
    let mut page = format!(
        "{}: {} {}, serial number {}\nfirmware {}, CMIS {}, page B0h layout {}\n",
        of("device"),
        of("vendor"),
        of("part"),
        of("serial"),
        of("firmware"),
        of("cmis"),
        of("layout"),
    );
    let _ = writeln!(
        page,
        "{}, {:.1} °C, {:.2} V; {} switches since power-on, started {} times",
        of("state"),
        number("temperature_c"),
        number("supply_v"),
        of("generation"),
        of("boots"),
    );
    for (group, lit) in list(&module["groups"]).iter().enumerate() {
        let (now, later) = (text(&lit["lit"]), text(&lit["at_power_on"]));
        let same = if now == later { "the same" } else { &later };
        let _ = writeln!(page, "group {group}: {now}; when power comes back: {same}");
    }
    page
}
