// SPDX-License-Identifier: Apache-2.0
//! Emulated optical devices that speak the protocols of real ones, with their faults.
//!
//! A [`Transceiver`] is a module with an optical switch inside, on a serial line; an [`OpticalSwitch`] speaks SCPI and TL1, a
//! [`GnmiSwitch`] the OCP model over gNMI. Each is an [`EmulatedDevice`], a state machine without I/O: bytes and the time go in,
//! what to send comes out. A [`Rack`] holds many under one clock, and [`load`] makes one from a device list.
//!
//! Time is the caller's: virtual in tests and in the twin, real in `serve`, which puts a rack on ptys and TCP ports and is the
//! only part of the crate that touches the system. One seed and one sequence of calls give one sequence of outputs.
//!
//! Not here: drivers. The daemon's drivers share no code with these devices beyond the definition of the serial protocol.

mod fault;
#[cfg(feature = "gnmi")]
mod gnmi;
#[cfg(not(feature = "gnmi"))]
#[path = "gnmi/absent.rs"]
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
pub use line::{Faulty, FaultyLight};
pub use list::{DeviceList, DeviceListFile, Endpoint, load, load_beside};
pub use misbehave::{Family, Misbehaviour};
pub use optics::Optics;
pub use rack::{AnyDevice, Rack, RackSlot};
pub use switch::{OpticalSwitch, PassedLight, SwitchSpec};
pub use transceiver::{Transceiver, TransceiverSpec};

use lightloom_units::SimTime;

/// One connection to a device: a serial line, or one accepted TCP client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u32);

/// The way into a device that a line was opened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// The framed serial protocol of docs/firmware-api.md.
    Frames,
    /// SCPI over TCP: one client at a time, answers end with a line feed.
    Scpi,
    /// SCPI over a serial line: answers end with a carriage return.
    ScpiSerial,
    /// TL1 over TCP.
    Tl1,
    /// gNMI: HTTP/2 over TCP.
    Gnmi,
}

/// What a device wants done on its lines, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send these bytes.
    Bytes(Line, Vec<u8>),
    /// Close the connection. On a serial line, nothing.
    Close(Line),
}

/// An emulated device, driven from outside.
///
/// Time never runs backwards between calls. A caller that has nothing to deliver calls
/// [`EmulatedDevice::on_time`] at [`EmulatedDevice::next_wakeup`].
pub trait EmulatedDevice {
    /// A client opened `line` on `port`. A device that serves one client at a time may answer
    /// with [`Output::Close`].
    fn open(&mut self, now: SimTime, line: Line, port: Port, out: &mut Vec<Output>);

    /// Bytes arrived on `line`, cut anywhere.
    fn on_bytes(&mut self, now: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>);

    /// The client of `line` is gone.
    fn close(&mut self, now: SimTime, line: Line);

    /// Time has come to `now`.
    fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>);

    /// When [`EmulatedDevice::on_time`] should next be called, if nothing arrives before. `None`: never.
    fn next_wakeup(&self) -> Option<SimTime>;
}
