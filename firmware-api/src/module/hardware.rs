// SPDX-License-Identifier: Apache-2.0

use crate::message::{LinkName, Neighbour, Power};
use crate::path::{Path, Paths};
use crate::time::Micros;

/// Position of a group according to the module's sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The group is at rest on this path.
    At(Path),
    /// The group is between two paths.
    Moving,
}

/// Optics and non-volatile memory of a module. Calls must return immediately; the module polls the position
/// of groups that are still switching.
pub trait Hardware {
    /// Starts to switch `group` to `path`.
    fn drive(&mut self, now: Micros, group: usize, path: Path);
    /// Returns the current position of `group`.
    fn position(&self, now: Micros, group: usize) -> Position;
    /// Returns the received power on external path `number` (1 to 8), whether or not it is selected.
    fn tap(&self, now: Micros, number: u8) -> Power;
    /// Returns the power that `lane` (0 to 7) receives over the selected path.
    fn received(&self, now: Micros, lane: usize) -> Power;
    /// Turns on exactly these transmitters, one bit per lane.
    fn set_transmitters(&mut self, now: Micros, lanes: u8);
    /// Returns the transmitted power of `lane`.
    fn transmitted(&self, now: Micros, lane: usize) -> Power;
    /// Returns the laser bias of `lane` in 2 µA, or `None` if it is not measured.
    fn bias(&self, _now: Micros, _lane: usize) -> Option<u16> {
        None
    }
    /// Sends a name over the light until the next restart. Only for modules with
    /// [`crate::message::Capabilities::NEIGHBOURS`].
    fn set_link_name(&mut self, _name: LinkName) {}
    /// Returns the name that `group` receives, and the path of the sender.
    fn neighbour(&self, _now: Micros, _group: usize) -> Neighbour {
        Neighbour::default()
    }
    /// Returns the case temperature in 1/256 °C.
    fn temperature(&self, now: Micros) -> i16;
    /// Returns the supply voltage in 100 µV.
    fn supply(&self, now: Micros) -> u16;
    /// Returns the stored power-on paths.
    fn load_power_on_paths(&self) -> Paths;
    /// Stores the power-on paths. Called only on request, because it wears the memory.
    fn store_power_on_paths(&mut self, paths: Paths);
    /// Increments the boot count and returns it, modulo 2¹⁶.
    fn count_boot(&mut self) -> u16;
}
