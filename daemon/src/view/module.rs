// SPDX-License-Identifier: Apache-2.0

use lightloom_control::state::DeviceName;
use lightloom_daemon_api::module::{GroupView, ModuleView};
use lightloom_drivers::module::Module;

pub fn module(device: &DeviceName, module: &Module) -> ModuleView {
    let [firmware, cmis, layout] = [module.firmware, module.cmis, module.layout]
        .map(|(major, minor)| format!("{major}.{minor}"));
    let groups = module.lit.iter().zip(&module.at_power_on);
    let registers = module.registers.iter().map(|(at, bytes)| {
        let name = match at.offset {
            0..128 => format!("lower {}", at.offset),
            offset => format!("page {:02x}h {offset}", at.page),
        };
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        (name, hex.join(" "))
    });
    ModuleView {
        device: device.to_string(),
        vendor: module.vendor.clone(),
        part: module.part.clone(),
        serial: module.serial.clone(),
        firmware,
        cmis,
        layout,
        state: module.state.clone(),
        temperature_c: module.temperature_c,
        supply_v: module.supply_v,
        generation: module.generation,
        boots: module.boots,
        init_pending_lanes: module
            .init_pending
            .map(|lanes| (1..=8).filter(|lane| lanes >> (lane - 1) & 1 == 1).collect()),
        groups: groups
            .map(|(lit, at)| GroupView { lit: device.place(*lit), at_power_on: device.place(*at) })
            .collect(),
        registers: registers.collect(),
    }
}
