// SPDX-License-Identifier: Apache-2.0
//! Emulated optical devices with real protocols and injectable faults.
//!
//! Each [`EmulatedDevice`] is a state machine without I/O. A [`Rack`] runs many devices under one clock; only `serve`
//! performs I/O.
//!
//! Outputs depend only on the seed and the sequence of calls. The daemon's drivers share only the
//! serial protocol definition with these devices.

mod fault;
mod gnmi;
mod light;
mod line;
mod list;
mod misbehave;
mod optics;
pub mod optoe;
mod rack;
#[cfg(target_os = "linux")]
pub mod serve;
mod switch;
mod transceiver;

pub use fault::{DeviceFault, DeviceFaultError, PartsPerMillion};
pub use gnmi::{GnmiSpec, GnmiSwitch};
pub use light::LightChange;
pub use line::Faulty;
pub use list::{DeviceList, DeviceListFile, Endpoint, load, load_beside};
pub use misbehave::{Family, Misbehaviour};
pub use optics::Optics;
pub use rack::{AnyDevice, Rack, RackSlot};
pub use switch::{OpticalSwitch, PassedLight, SwitchSpec};
pub use transceiver::{Transceiver, TransceiverSpec};

use lightloom_units::SimTime;

/// A connection to a device: its serial port, or an accepted TCP client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    Frames,
    /// SCPI over TCP, for one client at a time. Responses end with a line feed.
    Scpi,
    ScpiSerial,
    Tl1,
    Gnmi,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Bytes(Line, Vec<u8>),
    Close(Line),
}

pub trait EmulatedDevice {
    /// A device for a single client may respond with [`Output::Close`].
    fn open(&mut self, now: SimTime, line: Line, port: Port, out: &mut Vec<Output>);

    /// Bytes may be split at any position.
    fn on_bytes(&mut self, now: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>);

    fn close(&mut self, now: SimTime, line: Line);

    fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>);

    fn next_wakeup(&self) -> Option<SimTime>;

    fn apply(&mut self, now: SimTime, fault: DeviceFault, out: &mut Vec<Output>);
}
