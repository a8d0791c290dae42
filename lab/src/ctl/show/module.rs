// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;

use lightloom_daemon_api::module::ModuleView;

pub(in crate::ctl) fn module(module: &ModuleView) -> String {
    let ModuleView { device, vendor, part, serial, firmware, cmis, layout, state, .. } = module;
    let mut page = format!(
        "{device}: {vendor} {part}, serial number {serial}\nfirmware {firmware}, CMIS {cmis}, page B0h layout \
         {layout}\n"
    );
    let ModuleView { temperature_c, supply_v, generation, boots, .. } = module;
    let _ = writeln!(
        page,
        "{state}, {temperature_c:.1} °C, {supply_v:.2} V; {generation} switches since power-on, started {boots} times",
    );
    if let Some(lanes) = module.init_pending_lanes.as_ref().filter(|lanes| !lanes.is_empty()) {
        let _ = writeln!(page, "applied but not initialised: lanes {lanes:?}");
    }
    for (group, lit) in module.groups.iter().enumerate() {
        let (now, later) = (&lit.lit, &lit.at_power_on);
        let same = if now == later { "the same" } else { later };
        let _ = writeln!(page, "group {group}: {now}; after power-on: {same}");
    }
    page
}
