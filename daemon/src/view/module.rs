//! What a transceiver says about itself, for people and scripts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::driver::module::Module;
use lightloom_control::state::DeviceName;

/// What a transceiver says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModuleView {
    /// The device.
    pub device: String,
    /// Vendor name.
    pub vendor: String,
    /// Part number.
    pub part: String,
    /// Serial number.
    pub serial: String,
    /// Version of the running firmware.
    pub firmware: String,
    /// Revision of CMIS.
    pub cmis: String,
    /// Layout of page B0h.
    pub layout: String,
    /// low-power, power-up, ready, power-down, fault.
    pub state: String,
    /// Temperature in degrees Celsius.
    pub temperature_c: f64,
    /// Supply voltage in volts.
    pub supply_v: f64,
    /// Completed switches since power-on.
    pub generation: u32,
    /// Restarts since manufacture, modulo 65,536.
    pub boots: u16,
    /// Its switch groups.
    pub groups: Vec<GroupView>,
    /// The registers as they were read, hexadecimal, by half, page and first offset.
    pub registers: BTreeMap<String, String>,
}

/// A switch group of a transceiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Where its light is: external-1, loopback, dark.
    pub lit: String,
    /// Where its light goes when power comes back.
    pub at_power_on: String,
}

/// The outer twin of what was read.
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
        state: module.state.into(),
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
