// SPDX-License-Identifier: Apache-2.0
//! Emulated optical devices that speak the protocols of real ones, with injectable faults.
//!
//! A [`Transceiver`] has an integrated optical switch and a serial line, an [`OpticalSwitch`]
//! speaks SCPI and TL1, and a [`GnmiSwitch`] offers the OCP model over gNMI. Each is an
//! [`EmulatedDevice`]: a state machine without I/O that takes bytes and the time, and returns the
//! bytes to send. A [`Rack`] holds many devices under one clock, and [`load`] creates one from a
//! device list. Only `serve` does I/O.
//!
//! Outputs depend only on the seed and the sequence of calls. The daemon's drivers share no code
//! with these devices except the definition of the serial protocol.

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

/// A connection to a device: a serial line, or an accepted TCP client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    Frames,
    /// SCPI over TCP, for one client at a time. Answers end with a line feed.
    Scpi,
    ScpiSerial,
    /// TL1 over TCP.
    Tl1,
    /// gNMI: HTTP/2 over TCP.
    Gnmi,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Bytes(Line, Vec<u8>),
    Close(Line),
}

pub trait EmulatedDevice {
    /// Opens a line. A device that serves only one client at a time may respond with [`Output::Close`].
    fn open(&mut self, now: SimTime, line: Line, port: Port, out: &mut Vec<Output>);

    /// Processes bytes received on `line`, which may be split at any position.
    fn on_bytes(&mut self, now: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>);

    fn close(&mut self, now: SimTime, line: Line);

    fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>);

    /// Returns when the device must run next, or `None` if it need not run until something arrives.
    fn next_wakeup(&self) -> Option<SimTime>;
}
