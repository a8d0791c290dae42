// SPDX-License-Identifier: Apache-2.0
//! Device faults, written as words in device lists and on the control socket, such as `lose 1%`,
//! `late 5ms`, `stuck 3` or `clear`. They affect the connection (bytes) or the device (light).

use std::str::FromStr;

use lightloom_fabric::khop::Port;
use lightloom_units::Picoseconds;

use super::misbehave::{Misbehaviour, Misbehaviours};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartsPerMillion(pub u32);

impl PartsPerMillion {
    pub const ALL: Self = Self(1_000_000);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    Lose(PartsPerMillion),
    Duplicate(PartsPerMillion),
    Garble(PartsPerMillion),
    /// Every byte is delayed by this time, without reordering.
    Late(Picoseconds),
    HalfOpen,
    Dead,
    Unplug(u8),
    /// The fibre of this external path delivers no light, but still transmits light in the other direction.
    Dark(u8),
    /// The fibre of this external path and the port's fibre are swapped at their far ends.
    Cross(u8, Port),
    /// The mirrors of a port (or of a group, in a transceiver) are stuck. `None` means all mirrors.
    Stuck(Option<u16>),
    Lie,
    /// Changes are acknowledged, but the light is switched to a wrong port.
    Misdirect,
    Slow(u16),
    /// Received power is reduced by this many hundredths of a decibel.
    Droop(u16),
    /// The next change of a switch is delayed by this time and executed even if its client has
    /// disconnected. Other clients are not affected.
    Defer(Picoseconds),
    Reboot,
    WarmRestart,
    RebootInCommit,
    Misbehave(Misbehaviour),
    Clear,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a fault: use one of `lose 1%`, `duplicate 1%`, `garble 1%`, `late 5ms`, \
     `half-open`, `dead`, `unplug 1`, `dark 1`, `cross 1 n2/b0.2`, `stuck`, `stuck 3`, `lie`, `misdirect`, `slow 10`, `droop 3.5`, `defer 3s`, `reboot`, `warm-restart`, \
     `reboot-in-commit`, `misbehave half-a-set` (docs/conformance.md has the names), `clear`"
)]
pub struct DeviceFaultError(String);

fn path(text: &str) -> Option<u8> {
    text.parse().ok().filter(|path| (1..=8).contains(path))
}

impl FromStr for PartsPerMillion {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let percent: f64 = text.strip_suffix('%').ok_or(())?.trim().parse().map_err(|_| ())?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(());
        }
        Ok(Self((percent * 10_000.0).round() as u32))
    }
}

impl FromStr for DeviceFault {
    type Err = DeviceFaultError;

    fn from_str(text: &str) -> Result<Self, DeviceFaultError> {
        let mut words = text.split_whitespace();
        let (word, argument) = (words.next(), words.next());
        let fault = match (word.unwrap_or(""), argument) {
            ("lose", Some(share)) => share.parse().ok().map(Self::Lose),
            ("duplicate", Some(share)) => share.parse().ok().map(Self::Duplicate),
            ("garble", Some(share)) => share.parse().ok().map(Self::Garble),
            ("late", Some(span)) => span.parse().ok().map(Self::Late),
            ("unplug", Some(number)) => path(number).map(Self::Unplug),
            ("dark", Some(number)) => path(number).map(Self::Dark),
            ("cross", Some(number)) => {
                words.next().and_then(|port| Some(Self::Cross(path(number)?, port.parse().ok()?)))
            }
            ("stuck", Some(port)) => port.parse().ok().map(|port| Self::Stuck(Some(port))),
            ("slow", Some(times)) => times.parse().ok().filter(|&times| times >= 1).map(Self::Slow),
            ("droop", Some(decibels)) => decibels
                .parse()
                .ok()
                .filter(|decibels| (0.0..=100.0).contains(decibels))
                .map(|decibels: f64| Self::Droop((decibels * 100.0).round() as u16)),
            ("defer", Some(span)) => span.parse().ok().map(Self::Defer),
            ("misbehave", Some(name)) => name.parse().ok().map(Self::Misbehave),
            ("half-open", None) => Some(Self::HalfOpen),
            ("dead", None) => Some(Self::Dead),
            ("stuck", None) => Some(Self::Stuck(None)),
            ("lie", None) => Some(Self::Lie),
            ("misdirect", None) => Some(Self::Misdirect),
            ("reboot", None) => Some(Self::Reboot),
            ("warm-restart", None) => Some(Self::WarmRestart),
            ("reboot-in-commit", None) => Some(Self::RebootInCommit),
            ("clear", None) => Some(Self::Clear),
            _ => None,
        };
        fault.filter(|_| words.next().is_none()).ok_or_else(|| DeviceFaultError(text.to_owned()))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LightFaults {
    pub(crate) dead: bool,
    pub(crate) unplugged: Option<u8>,
    pub(crate) dark_paths: u16,
    pub(crate) all_stuck: bool,
    pub(crate) stuck_port: Option<u16>,
    pub(crate) lies: bool,
    pub(crate) misdirects: bool,
    /// Slowdown factor. Both 0 and 1 mean normal speed.
    pub(crate) slow: u16,
    pub(crate) droop: u16,
    pub(crate) reboots_in_commit: bool,
    pub(crate) defers: Option<Picoseconds>,
    pub(crate) misbehaves: Misbehaviours,
}

impl LightFaults {
    pub(crate) fn apply(&mut self, fault: DeviceFault) {
        match fault {
            DeviceFault::Dead => self.dead = true,
            DeviceFault::Unplug(path) => self.unplugged = Some(path),
            DeviceFault::Dark(path) => self.dark_paths |= 1 << path,
            DeviceFault::Stuck(None) => self.all_stuck = true,
            DeviceFault::Stuck(port) => self.stuck_port = port,
            DeviceFault::Lie => self.lies = true,
            DeviceFault::Misdirect => self.misdirects = true,
            DeviceFault::Slow(times) => self.slow = times,
            DeviceFault::Droop(hundredths) => self.droop = hundredths,
            DeviceFault::Defer(span) => self.defers = Some(span),
            DeviceFault::RebootInCommit => self.reboots_in_commit = true,
            DeviceFault::Misbehave(which) => self.misbehaves.add(which),
            DeviceFault::Clear => *self = Self::default(),
            _ => {}
        }
    }

    pub(crate) const fn breaks(&self, which: Misbehaviour) -> bool {
        self.misbehaves.has(which)
    }

    pub(crate) fn is_stuck(&self, port: u16) -> bool {
        self.all_stuck || self.stuck_port == Some(port)
    }

    pub(crate) fn stretch(&self, span: Picoseconds) -> Picoseconds {
        span * u64::from(self.slow.max(1))
    }

    pub(crate) fn transmission(&self) -> f64 {
        10f64.powf(-f64::from(self.droop) / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed_from_text() {
        let port: Port = "n2/b0.2".parse().unwrap();
        for (text, expected) in [
            ("lose 1%", DeviceFault::Lose(PartsPerMillion(10_000))),
            ("duplicate 0.5%", DeviceFault::Duplicate(PartsPerMillion(5_000))),
            ("garble 100%", DeviceFault::Garble(PartsPerMillion::ALL)),
            ("late 5ms", DeviceFault::Late(Picoseconds::from_millis(5))),
            ("half-open", DeviceFault::HalfOpen),
            ("dead", DeviceFault::Dead),
            ("unplug 2", DeviceFault::Unplug(2)),
            ("dark 2", DeviceFault::Dark(2)),
            ("cross 1 n2/b0.2", DeviceFault::Cross(1, port)),
            ("stuck", DeviceFault::Stuck(None)),
            ("stuck 3", DeviceFault::Stuck(Some(3))),
            ("lie", DeviceFault::Lie),
            ("misdirect", DeviceFault::Misdirect),
            ("slow 10", DeviceFault::Slow(10)),
            ("droop 3.5", DeviceFault::Droop(350)),
            ("defer 3s", DeviceFault::Defer(Picoseconds::from_millis(3_000))),
            ("reboot", DeviceFault::Reboot),
            ("warm-restart", DeviceFault::WarmRestart),
            ("reboot-in-commit", DeviceFault::RebootInCommit),
            ("misbehave half-a-set", DeviceFault::Misbehave(Misbehaviour::HalfASet)),
            ("clear", DeviceFault::Clear),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_fault_error_lists_valid_faults() {
        for text in [
            "",
            "cross 1",
            "cross 1 n2",
            "lose",
            "lose 2",
            "lose 101%",
            "late 5",
            "stuck x",
            "slow 0",
            "lie 3",
            "x",
        ] {
            let error = text.parse::<DeviceFault>().expect_err(text);
            assert!(error.to_string().contains("`reboot-in-commit`"));
        }
    }

    #[test]
    fn three_decibels_halve_the_light() {
        let mut faults = LightFaults::default();
        faults.apply(DeviceFault::Droop(301));
        assert!((faults.transmission() - 0.5).abs() < 1e-3);
    }
}
