// SPDX-License-Identifier: Apache-2.0
//! Optics of an emulated transceiver: switching times, optical power, and faults.

use lightloom_firmware_api::message::{LinkName, Neighbour, Power};
use lightloom_firmware_api::module::{Hardware, Position};
use lightloom_firmware_api::path::{GROUPS_MAX, Path, Paths};
use lightloom_firmware_api::time::Micros;
use lightloom_units::Picoseconds;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use super::fault::LightFaults;

/// In tenths of a microwatt (1 mW).
const LAUNCH_TENTHS_UW: f64 = 10_000.0;

/// In steps of 2 µA (70 mA, a design value).
const BIAS_2_UA: u16 = 35_000;

#[derive(Clone, Debug)]
pub struct Optics {
    draws: Stream,
    at: [Path; GROUPS_MAX],
    going: [Option<(Path, Micros)>; GROUPS_MAX],
    /// Received power per path while the far end sends, without faults, in tenths of a microwatt.
    incoming: [f64; 8],
    far_end_sends: [bool; 8],
    far_end_names: [Neighbour; 8],
    link_name: LinkName,
    loopback_transmission: f64,
    transmitters: u8,
    power_on: Paths,
    boots: u16,
    pub(super) faults: LightFaults,
}

impl Optics {
    /// Each external path receives 0.4 to 0.7 mW until [`Optics::set_far_end`] changes it.
    pub fn new(seed: Seed, index: u64, power_on: Paths) -> Self {
        let mut draws = seed.stream("module optics", index);
        let incoming = std::array::from_fn(|_| LAUNCH_TENTHS_UW * draws.random_range(0.4..0.7));
        let loopback_transmission = draws.random_range(0.7..0.9);
        Self {
            draws,
            at: [Path::DARK; GROUPS_MAX],
            going: [None; GROUPS_MAX],
            incoming,
            far_end_sends: [true; 8],
            far_end_names: [Neighbour::default(); 8],
            link_name: LinkName::NONE,
            loopback_transmission,
            transmitters: 0,
            power_on,
            boots: 0,
            faults: LightFaults::default(),
        }
    }

    /// Returns whether the light changed. Panics if `number` is not 1 to 8.
    pub fn set_far_end(&mut self, number: u8, sends: bool, far_end: Neighbour) -> bool {
        let before = std::mem::replace(&mut self.far_end_sends[usize::from(number) - 1], sends);
        self.far_end_names[usize::from(number) - 1] = far_end;
        before != sends
    }

    pub const fn link_name(&self) -> LinkName {
        self.link_name
    }

    pub fn sends(&self, now: Micros, number: u8) -> bool {
        let there = self.true_path(now, 0).and_then(Path::external_number) == Some(number);
        there
            && self.transmitters != 0
            && !self.faults.dead
            && self.faults.unplugged != Some(number)
    }

    pub fn true_path(&self, now: Micros, group: usize) -> Option<Path> {
        match self.position(now, group) {
            Position::At(path) => Some(path),
            Position::Moving => None,
        }
    }

    pub const fn shines(&self) -> bool {
        self.transmitters != 0 && !self.faults.dead
    }

    pub fn rests_at(&self, now: Micros, group: usize) -> Option<Micros> {
        self.going[group].map(|(_, at)| at).filter(|at| *at > now)
    }

    fn weakened(&self, tenths_uw: f64) -> Power {
        Power((tenths_uw * self.faults.transmission()).round().clamp(0.0, 65_535.0) as u16)
    }
}

impl Hardware for Optics {
    fn drive(&mut self, now: Micros, group: usize, path: Path) {
        if let Position::At(path) = self.position(now, group) {
            self.at[group] = path;
            self.going[group] = None;
        }
        if self.faults.is_stuck(group as u16) || self.faults.lies {
            return;
        }
        let path = if self.faults.misdirects { another(path) } else { path };
        // Published switching times of OCS transceivers are 60 to 80 µs.
        let typical = Picoseconds::from_micros(self.draws.random_range(60..=80));
        let takes = Micros(self.faults.stretch(typical).get() / 1_000_000);
        self.going[group] = Some((path, now + takes));
    }

    fn position(&self, now: Micros, group: usize) -> Position {
        match self.going[group] {
            Some((path, at)) if at <= now => Position::At(path),
            Some(_) => Position::Moving,
            None => Position::At(self.at[group]),
        }
    }

    fn tap(&self, _now: Micros, number: u8) -> Power {
        let index = usize::from(number).wrapping_sub(1);
        let light = self
            .incoming
            .get(index)
            .filter(|_| self.far_end_sends[index] && self.faults.unplugged != Some(number))
            .filter(|_| self.faults.dark_paths >> number & 1 == 0);
        light.map_or(Power::default(), |&light| self.weakened(light))
    }

    fn received(&self, now: Micros, lane: usize) -> Power {
        match self.true_path(now, 0) {
            Some(Path::LOOPBACK) => {
                let sent = f64::from(self.transmitted(now, lane).0);
                self.weakened(sent * self.loopback_transmission)
            }
            Some(path) => path.external_number().map_or(Power::default(), |n| self.tap(now, n)),
            None => Power::default(),
        }
    }

    fn set_transmitters(&mut self, _now: Micros, lanes: u8) {
        self.transmitters = lanes;
    }

    fn transmitted(&self, _now: Micros, lane: usize) -> Power {
        let on = self.transmitters >> lane & 1 == 1;
        Power(if on { LAUNCH_TENTHS_UW as u16 } else { 0 })
    }

    fn bias(&self, now: Micros, lane: usize) -> Option<u16> {
        Some(if self.transmitted(now, lane) > Power::default() { BIAS_2_UA } else { 0 })
    }

    fn set_link_name(&mut self, name: LinkName) {
        self.link_name = name;
    }

    fn neighbour(&self, now: Micros, group: usize) -> Neighbour {
        let number = self.true_path(now, group).and_then(Path::external_number);
        let lit = number.filter(|&number| group == 0 && self.tap(now, number) > Power::default());
        lit.map_or(Neighbour::default(), |number| self.far_end_names[usize::from(number) - 1])
    }

    fn temperature(&self, _now: Micros) -> i16 {
        45 * 256
    }

    fn supply(&self, _now: Micros) -> u16 {
        33_000
    }

    fn load_power_on_paths(&self) -> Paths {
        self.power_on
    }

    fn store_power_on_paths(&mut self, paths: Paths) {
        self.power_on = paths;
    }

    fn count_boot(&mut self) -> u16 {
        self.boots = self.boots.wrapping_add(1);
        self.boots
    }
}

fn another(path: Path) -> Path {
    let other = if path.code() == 1 { 2 } else { 1 };
    Path::external(other).expect("paths 1 and 2 exist")
}
