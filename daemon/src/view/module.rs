// SPDX-License-Identifier: Apache-2.0

use lightloom_control::state::DeviceName;
use lightloom_daemon_api::module::{GroupView, ModuleView};
use lightloom_drivers::module::Module;

#[must_use]
pub fn module(device: &DeviceName, module: &Module) -> ModuleView {
    let version = |(major, minor): (u8, u8)| format!("{major}.{minor}");
    let groups = module.lit.iter().zip(&module.at_power_on);
    let hex =
        |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    let name = |offset: u8, page: u8| match offset {
        0..128 => format!("lower {offset}"),
        _ => format!("page {page:02x}h {offset}"),
    };
    let registers = module.registers.iter();
    ModuleView {
        device: device.to_string(),
        vendor: module.vendor.clone(),
        part: module.part.clone(),
        serial: module.serial.clone(),
        firmware: version(module.firmware),
        cmis: version(module.cmis),
        layout: version(module.layout),
        state: module.state.clone(),
        temperature_c: module.temperature_c,
        supply_v: module.supply_v,
        generation: module.generation,
        boots: module.boots,
        groups: groups
            .map(|(lit, at)| GroupView { lit: device.place(*lit), at_power_on: device.place(*at) })
            .collect(),
        registers: registers.map(|(at, bytes)| (name(at.offset, at.page), hex(bytes))).collect(),
    }
}
