// SPDX-License-Identifier: Apache-2.0
//! Stub of the gNMI switch for programs that only read device lists, so that they need not compile
//! an HTTP/2 stack. It accepts faults but never responds.

pub(crate) mod file;

use lightloom_units::SimTime;
use lightloom_units::seed::Seed;

use crate::fault::DeviceFault;
use crate::line::FaultyLight;
use crate::list::SwitchFile;
use crate::switch::PassedLight;
use crate::{EmulatedDevice, Line, Output, Port};

#[derive(Clone, Debug, Default)]
pub struct GnmiSpec;

#[derive(Clone, Debug)]
pub struct GnmiSwitch;

impl GnmiSwitch {
    pub(crate) const fn new(_spec: GnmiSpec, _seed: Seed, _index: u64) -> Self {
        Self
    }

    pub(crate) fn light(&self, _now: SimTime) -> PassedLight {
        PassedLight::default()
    }

    pub(crate) const fn set_input_dbm(&mut self, _ingress: u16, _dbm: f64) {}
}

impl file::GnmiFile {
    pub(crate) const fn spec(&self, _of: &SwitchFile) -> GnmiSpec {
        GnmiSpec
    }
}

impl FaultyLight for GnmiSwitch {
    fn apply(&mut self, _now: SimTime, _fault: DeviceFault, _out: &mut Vec<Output>) {}
}

impl EmulatedDevice for GnmiSwitch {
    fn open(&mut self, _now: SimTime, line: Line, _port: Port, out: &mut Vec<Output>) {
        out.push(Output::Close(line));
    }

    fn on_bytes(&mut self, _: SimTime, _: Line, _: &[u8], _: &mut Vec<Output>) {}

    fn close(&mut self, _now: SimTime, _line: Line) {}

    fn on_time(&mut self, _now: SimTime, _out: &mut Vec<Output>) {}

    fn next_wakeup(&self) -> Option<SimTime> {
        None
    }
}
