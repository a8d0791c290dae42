// SPDX-License-Identifier: Apache-2.0
//! What a module's firmware needs of its optics: the trait a firmware team implements.

use crate::message::{LinkName, Neighbour, Power};
use crate::path::{Path, Paths};
use crate::time::Micros;

/// Where the light of a group is, by the module's own sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At rest.
    At(Path),
    /// Between two paths.
    Moving,
}

/// The optics and the little non-volatile memory of a module.
///
/// Calls return at once; a switch element that takes time is asked again for its position.
pub trait Hardware {
    /// Starts to move `group` to `path`.
    fn drive(&mut self, now: Micros, group: usize, path: Path);
    /// Where `group` is.
    fn position(&self, now: Micros, group: usize) -> Position;
    /// Light arriving on external path `number`, 1 to 8, whichever path is selected.
    fn tap(&self, now: Micros, number: u8) -> Power;
    /// Light received by `lane`, 0 to 7, over the selected path.
    fn received(&self, now: Micros, lane: usize) -> Power;
    /// Turns on the transmitters of exactly these lanes, one bit a lane.
    fn set_transmitters(&mut self, now: Micros, lanes: u8);
    /// Light sent by `lane`.
    fn transmitted(&self, now: Micros, lane: usize) -> Power;
    /// Bias of the laser of `lane` in 2 µA; `None` where it is not measured.
    fn bias(&self, _now: Micros, _lane: usize) -> Option<u16> {
        None
    }
    /// Sends this name from now on, over the light and beside the traffic; none after a restart.
    /// For modules with [`crate::message::Capabilities::NEIGHBOURS`].
    fn set_link_name(&mut self, _name: LinkName) {}
    /// The name that arrives over the selected path of `group`, and the path it was sent over.
    fn neighbour(&self, _now: Micros, _group: usize) -> Neighbour {
        Neighbour::default()
    }
    /// Case temperature in 1/256 °C.
    fn temperature(&self, now: Micros) -> i16;
    /// Supply voltage in 100 µV.
    fn supply(&self, now: Micros) -> u16;
    /// The stored power-on paths.
    fn load_power_on_paths(&self) -> Paths;
    /// Stores the power-on paths. Wears the memory: called only on the host's order.
    fn store_power_on_paths(&mut self, paths: Paths);
    /// Counts one more start and returns the count, modulo 2¹⁶.
    fn count_boot(&mut self) -> u16;
}
