// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::{Chance, LinkChange};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Picoseconds, Text};
use rand::RngExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::{FaultEvent, When};
use crate::substrate::{AnyPart, NetworkPart, Substrate};

/// Name of a part. A fabric has parts such as a node `n17`, a GPU `n17/g2`, its interface `n17/nic2`, a
/// bundle `n17/b0`, a fibre `n17/b0.2` or a ToR `t3`. A network has parts such as a host `h3`, its
/// interface `h3/nic1`, a switch `s4` or a cable `h3-s0`. Optical switches have names such as `ocs5`,
/// their ports `ocs5/p7`, and their driver boards `ocs5/p0..p15`. The GPUs of a leaf are called
/// `leaf2/gpus`, everything below a switch `rack t3`, and the control plane `control`. A random part is
/// `any node`, `any bundle`, `any fibre`, `any host`, `any switch`, `any cable` or `any optical switch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PartName(pub String);

impl PartName {
    /// Returns whether this can be a part of any fabric or network.
    pub fn could_be(&self) -> bool {
        let text = self.0.trim();
        let of_rack = text.strip_prefix("rack ").is_some_and(|switch| is_plain_name(switch.trim()));
        let of_cable = text
            .split_once('-')
            .is_some_and(|(one, other)| is_plain_name(one) && is_plain_name(other));
        let below = text.split_once('/').is_some_and(|(whole, part)| {
            let kind = part.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            let is_stretch =
                part.split_once("..p").is_some_and(|(first, _)| first.starts_with('p'));
            let is_whole = part == "gpus" && kind == part;
            let is_number = ["g", "nic", "b", "p"].contains(&kind) && kind.len() < part.len();
            is_plain_name(whole) && (is_whole || is_number || is_stretch)
        });
        is_plain_name(text) || of_rack || of_cable || below || AnyPart::named(text).is_some()
    }
}

impl std::fmt::Display for PartName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Effect of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "EffectFile")]
pub enum Effect {
    /// The part goes dark. The default.
    #[default]
    Down,
    /// The part ignores commands and keeps its path or circuit. Applies to bundles and to ports of optical switches.
    Stuck,
    /// Links through a port of an optical switch fail their test after a change and stay drained.
    FailsTest,
    /// The part repeatedly goes dark and recovers.
    Flapping(Flapping),
    /// The part's links send at this rate, such as `100Gbps`.
    Rate(Text<BitsPerSecond>),
    /// The part's links send at this percentage of their rate, 1 to 99.
    RatePercent(u32),
    /// Residual bit error rate of the part's links after error correction, below 0.001; a packet
    /// with a bit error is lost.
    BitErrors(f64),
    /// The part's links lose this share of packets, such as `1e-4`. It must be below 1.
    PacketLoss(f64),
    /// The part's links delay each packet by up to this time, such as `2us`, without reordering. It
    /// must be at most 10 ms.
    Jitter(Text<Picoseconds>),
    /// A packet switch restarts and is dark for this time, such as `90s`.
    Reboots(Text<Picoseconds>),
    /// The control plane slows down by this factor, 2 to 1,000,000.
    Slower(u32),
    /// A host's interfaces continuously send pause requests for this priority, 0 to 6.
    PauseStorm(u8),
    /// A device acknowledges commands without executing them; requires `control: lightloomd`.
    Lies,
    /// A device's connection delays every byte by this time, such as `20ms`; requires `control:
    /// lightloomd`.
    Late(Text<Picoseconds>),
    /// An fsync of the daemon's journal takes this long, such as `50ms`. Applies to the part
    /// `control` and requires `control: lightloomd`.
    SlowDisk(Text<Picoseconds>),
}

/// A part that repeatedly goes dark and recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FlappingFile")]
pub struct Flapping {
    /// Dark time per cycle.
    pub down: Text<Picoseconds>,
    /// Time with light between dark periods.
    pub up: Text<Picoseconds>,
    /// Number of dark periods, 1 to 1,000.
    #[schemars(range(min = 1, max = 1000))]
    pub times: u32,
}

impl Effect {
    /// Returns whether links stay up in a degraded state, so that plans do not bypass the part.
    pub const fn is_grey(&self) -> bool {
        matches!(self, Self::PauseStorm(_)) || self.is_of_links()
    }

    /// Returns whether its links go dark.
    pub const fn goes_dark(&self) -> bool {
        matches!(self, Self::Down | Self::Flapping(_) | Self::Reboots(_))
    }

    /// Returns whether random packets are affected.
    pub const fn is_drawn(&self) -> bool {
        matches!(self, Self::BitErrors(_) | Self::PacketLoss(_) | Self::Jitter(_))
    }

    const fn is_of_links(&self) -> bool {
        self.is_drawn() || matches!(self, Self::Rate(_) | Self::RatePercent(_))
    }

    /// Returns whether the effect can be limited to one direction of a cable.
    pub const fn has_direction(&self) -> bool {
        self.is_of_links() || matches!(self, Self::Down | Self::Flapping(_))
    }

    /// Returns the change that the effect makes to a link with this rate. `None` if links do not change.
    pub fn change(&self, full: BitsPerSecond) -> Option<LinkChange> {
        Some(match *self {
            Self::Rate(rate) => LinkChange::Rate(rate.0),
            Self::RatePercent(percent) => {
                let rate = full.0 as f64 * f64::from(percent) / 100.0;
                LinkChange::Rate(BitsPerSecond(rate as u64))
            }
            Self::BitErrors(share) => LinkChange::BitErrors(Chance::from_share(share)),
            Self::PacketLoss(share) => LinkChange::PacketLoss(Chance::from_share(share)),
            Self::Jitter(most) => LinkChange::Jitter(most.0),
            _ => return None,
        })
    }

    /// Returns whether the effect requires the production control plane.
    pub const fn needs_daemon(&self) -> bool {
        matches!(self, Self::Lies | Self::Late(_) | Self::SlowDisk(_))
    }

    /// Returns the name used in scenario files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Flapping(_) => "flapping",
            Self::Stuck => "stuck",
            Self::FailsTest => "fails_test",
            Self::Rate(_) => "rate",
            Self::RatePercent(_) => "rate_percent",
            Self::BitErrors(_) => "bit_errors",
            Self::PacketLoss(_) => "packet_loss",
            Self::Jitter(_) => "jitter",
            Self::Reboots(_) => "reboots",
            Self::Slower(_) => "slower",
            Self::PauseStorm(_) => "pause_storm",
            Self::Lies => "lies",
            Self::Late(_) => "late",
            Self::SlowDisk(_) => "slow_disk",
        }
    }

    /// Checks whether the effect is applicable to this part.
    ///
    /// # Errors
    /// Fails with a description of the parts to which the effect is applicable.
    pub fn suits(&self, part: &NetworkPart) -> Result<(), &'static str> {
        let is_optical = !part.ports.is_empty();
        match self {
            Self::Down => Ok(()),
            Self::Slower(_) | Self::SlowDisk(_) if part.is_control => Ok(()),
            Self::SlowDisk(_) => Err("only the control plane (`control`) can have a `slow_disk`"),
            Self::Slower(_) => Err("only the control plane (`control`) can be `slower`"),
            _ if part.is_control => {
                Err("the control plane can be `down`, `slower` or on a `slow_disk`")
            }
            Self::Lies | Self::Late(_) if part.is_bundle() || part.is_optical_switch() => Ok(()),
            Self::Lies | Self::Late(_) => Err(
                "only a transceiver such as `n17/b0` or an optical switch such as `ocs3` can have \
                 the effect `lies` or `late`",
            ),
            Self::Stuck if part.is_commanded => Ok(()),
            Self::Stuck => Err(
                "only a part that receives commands can be `stuck`: a bundle such as `n17/b0` or a \
                 port of an optical switch such as `ocs3/p7`",
            ),
            Self::FailsTest if is_optical => Ok(()),
            Self::FailsTest => {
                Err("only links over an optical switch such as `ocs3/p7` are tested after a change")
            }
            Self::Reboots(_) if part.is_switch => Ok(()),
            Self::Reboots(_) => {
                Err("only a packet switch such as `t3` or `s4` can have the effect `reboots`")
            }
            _ if is_optical => {
                Err("a port of an optical switch can be `down`, `stuck` or `fails_test`")
            }
            Self::PauseStorm(_)
                if part.interfaces.is_empty() || part.hosts.is_empty() && !part.is_interface() =>
            {
                Err("a pause storm must come from an interface such as `n17/nic2`, or from all \
                    interfaces of a node")
            }
            _ => Ok(()),
        }
    }
}

/// A fault as declared in the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioFault {
    /// Parts that fail together.
    pub parts: Vec<PartName>,
    /// Effect on the parts.
    pub effect: Effect,
    /// Earliest start time.
    pub when: When,
    /// Length of the interval after the earliest start from which the start time is drawn.
    pub within: Picoseconds,
    /// End of the cable towards which packets are affected. `None` for both directions.
    pub towards: Option<String>,
    /// Duration. `None` if permanent.
    pub lasts: Option<Picoseconds>,
    /// Share of seeds with this fault.
    pub probability: f64,
}

impl ScenarioFault {
    /// Creates a permanent fault of one part with probability 1.
    pub fn of(part: &str, at: lightloom_units::SimTime) -> Self {
        Self {
            parts: vec![PartName(part.to_owned())],
            effect: Effect::Down,
            when: When::At(at),
            within: Picoseconds::ZERO,
            towards: None,
            lasts: None,
            probability: 1.0,
        }
    }

    /// Returns whether the fault affects the control plane.
    pub fn is_of_control(&self) -> bool {
        self.parts.iter().any(|part| part.0.trim() == "control")
    }

    /// Makes the random choices for the `index`-th fault, or returns `None` if it does not occur.
    /// `works` returns whether a node works at the start.
    pub fn draw(
        &self,
        seed: Seed,
        index: u64,
        substrate: &Substrate,
        works: &dyn Fn(&NetworkPart) -> bool,
    ) -> Option<FaultEvent> {
        let mut draws = seed.stream("fault", index);
        // Always make all draws, so that changing one value of a fault does not affect the others.
        let (chance, late, choice): (f64, f64, f64) =
            (draws.random(), draws.random(), draws.random());
        if chance >= self.probability {
            return None;
        }
        let late = Picoseconds((self.within.get() as f64 * late) as u64);
        let parts = self.parts.iter().filter_map(|name| match AnyPart::named(&name.0) {
            Some(any) => drawn(any, substrate, choice, works),
            None => substrate.part(&name.0).ok(),
        });
        let mut parts: Vec<NetworkPart> = parts.collect();
        if let Some(end) = &self.towards {
            parts.iter_mut().for_each(|part| substrate.keep_towards(part, end));
        }
        let lasts = match self.effect {
            Effect::Flapping(Flapping { down, up, times }) => {
                Some(Picoseconds((down.0 + up.0).get() * u64::from(times)))
            }
            Effect::Reboots(takes) => Some(takes.0),
            _ => self.lasts,
        };
        let (effect, when) = (self.effect, self.when.later(late));
        (!parts.is_empty()).then_some(FaultEvent { parts, effect, when, lasts, from_start: false })
    }
}

fn drawn(
    any: AnyPart,
    substrate: &Substrate,
    choice: f64,
    works: &dyn Fn(&NetworkPart) -> bool,
) -> Option<NetworkPart> {
    let count = substrate.count(any);
    if any != AnyPart::Node {
        return substrate.part_at(any, (count as f64 * choice) as usize);
    }
    let all = (0..count).filter_map(|place| substrate.part_at(any, place));
    let working: Vec<NetworkPart> = all.filter(|part| works(part)).collect();
    working.get((working.len() as f64 * choice) as usize).cloned()
}

/// Returns whether a network file can give a part this name.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
}
