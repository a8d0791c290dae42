//! The faults of a scenario: what is hit, how, when, and what the seed decides about it.

use std::fmt;
use std::str::FromStr;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultError, FaultSet, Part};
use lightloom_units::id::{GpuId, NodeId, TorId};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Picoseconds, SimTime};
use rand::RngExt;
use serde::{Deserialize, Serialize};

use lightloom_engine::LinkChange;

/// What a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A node, a bundle (its transceivers) or a fibre.
    Part(Part),
    /// One GPU. Its node is planned around, for a ring needs all GPUs of a node.
    Gpu(GpuId),
    /// The network interface of one GPU. Its node is planned around as for a GPU.
    Nic(GpuId),
    /// A top-of-rack switch. No plan helps: what crosses it waits until it is back.
    Tor(TorId),
    /// Everything under a top-of-rack switch, and the switch: one correlated domain.
    Rack(TorId),
    /// A node that the seed draws among those that work at the start.
    AnyNode,
    /// The control plane: nothing is detected or planned. Circuits that are lit stay lit.
    Control,
}

/// How it is hit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// It goes dark.
    Down,
    /// It goes dark and comes back, again and again; the control plane takes it out of service at the
    /// first time and trusts it again when the last is over.
    Flapping {
        /// For how long it is dark each time.
        down: Picoseconds,
        /// For how long it is lit between.
        up: Picoseconds,
        /// How often.
        times: u32,
    },
    /// A bundle ignores every command and keeps the path it holds. Nobody knows until it is commanded.
    Stuck,
    /// Its links send at this rate. Nobody plans around it.
    Rate(BitsPerSecond),
    /// Its links lose packets: this share of bits is wrong after error correction. Nobody plans around it.
    BitErrors(f64),
    /// The control plane takes so many times as long.
    Slower(u32),
    /// A host's interface asks for pauses of this priority all the time.
    PauseStorm(u8),
}

/// A fault as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault<Part = Target> {
    /// What it hits, all at once.
    pub targets: Vec<Part>,
    /// How.
    pub effect: Effect,
    /// When, at the earliest.
    pub at: SimTime,
    /// The seed draws the time from `at` to `at + within`.
    pub within: Picoseconds,
    /// How long it lasts; nothing if for ever.
    pub lasts: Option<Picoseconds>,
    /// It happens under this share of seeds.
    pub probability: f64,
}

/// A fault that the seed has decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike<Part = Target> {
    /// What it hits.
    pub targets: Vec<Part>,
    /// How.
    pub effect: Effect,
    /// When.
    pub at: SimTime,
    /// When it is repaired.
    pub repaired_at: Option<SimTime>,
    /// Whether it has struck before the run begins, so that the first plan knows of it.
    pub from_start: bool,
}

impl Fault {
    /// A fault of one part, for certain and for ever.
    #[must_use]
    pub fn of(part: Part, at: SimTime) -> Self {
        Self {
            targets: vec![Target::Part(part)],
            effect: Effect::Down,
            at,
            within: Picoseconds::ZERO,
            lasts: None,
            probability: 1.0,
        }
    }

    /// What the seed makes of the `index`-th fault of a scenario: nothing, if it does not happen.
    /// `working` are the nodes that a fault of any node may hit.
    #[must_use]
    pub fn draw(&self, seed: Seed, index: u64, working: &[NodeId]) -> Option<Strike> {
        self.draw_with(seed, index, |target, choice| match target {
            Target::AnyNode => {
                let place = (working.len() as f64 * choice) as usize;
                working.get(place).map(|node| Target::Part(Part::Node(*node)))
            }
            other => Some(other),
        })
    }
}

impl<T: Copy> Fault<T> {
    /// What the seed makes of the `index`-th fault; `pick` makes a part of one that leaves the choice to
    /// the seed, by a number below one.
    #[must_use]
    pub fn draw_with(
        &self,
        seed: Seed,
        index: u64,
        pick: impl Fn(T, f64) -> Option<T>,
    ) -> Option<Strike<T>> {
        let mut draws = seed.stream("fault", index);
        // Always all draws, so that changing one figure of a fault leaves the others as they were.
        let (chance, late, choice): (f64, f64, f64) =
            (draws.random(), draws.random(), draws.random());
        if chance >= self.probability {
            return None;
        }
        let at = self.at + Picoseconds((self.within.get() as f64 * late) as u64);
        let targets: Vec<T> =
            self.targets.iter().filter_map(|target| pick(*target, choice)).collect();
        let repaired_at = match (self.effect, self.lasts) {
            (Effect::Flapping { down, up, times }, _) => {
                Some(at + Picoseconds((down + up).get() * u64::from(times)))
            }
            (_, lasts) => lasts.map(|span| at + span),
        };
        let effect = self.effect;
        (!targets.is_empty()).then_some(Strike {
            targets,
            effect,
            at,
            repaired_at,
            from_start: false,
        })
    }
}

impl<T> Strike<T> {
    /// How it is hit, in a word.
    #[must_use]
    pub fn effect_name(&self) -> &'static str {
        match self.effect {
            Effect::Down => "down",
            Effect::Flapping { .. } => "flapping",
            Effect::Stuck => "stuck",
            Effect::Rate(_) => "rate",
            Effect::BitErrors(_) => "bit_errors",
            Effect::Slower(_) => "slower",
            Effect::PauseStorm(_) => "pause_storm",
        }
    }

    /// When a flapping part comes back, and goes again, after it has gone first.
    pub(crate) fn blinks(&self) -> impl Iterator<Item = (SimTime, LinkChange)> + use<T> {
        let (down, up, times) = match self.effect {
            Effect::Flapping { down, up, times } => (down, up, times),
            _ => (Picoseconds::ZERO, Picoseconds::ZERO, 0),
        };
        let at = self.at;
        (0..u64::from(times)).flat_map(move |turn| {
            let begin = at + Picoseconds((down + up).get() * turn);
            let goes = (turn > 0).then_some((begin, LinkChange::Down));
            goes.into_iter().chain([(begin + down, LinkChange::Up)])
        })
    }
}

impl Strike {
    /// Its targets, as they are written.
    #[must_use]
    pub fn what(&self) -> String {
        let names: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        names.join(", ")
    }

    /// The parts that the control plane takes out of service when it knows.
    pub(super) fn parts(&self, fabric: &Fabric) -> Vec<Part> {
        match self.effect {
            Effect::Down | Effect::Flapping { .. } | Effect::Stuck => {
                self.targets.iter().flat_map(|target| target.parts(fabric)).collect()
            }
            Effect::Rate(_) | Effect::BitErrors(_) | Effect::Slower(_) | Effect::PauseStorm(_) => {
                Vec::new()
            }
        }
    }

    /// Whether it hits the control plane.
    pub(super) fn is_of_control(&self) -> bool {
        self.targets.contains(&Target::Control)
    }
}

impl Target {
    /// The parts that are planned around when it is broken.
    fn parts(self, fabric: &Fabric) -> Vec<Part> {
        match self {
            Self::Part(part) => vec![part],
            Self::Gpu(gpu) | Self::Nic(gpu) => vec![Part::Node(gpu.node)],
            Self::Rack(tor) => nodes_under(fabric, tor).map(Part::Node).collect(),
            Self::Tor(_) | Self::AnyNode | Self::Control => Vec::new(),
        }
    }

    /// Whether the fabric has it.
    ///
    /// # Errors
    /// What is missing, and what there is.
    pub fn require(self, fabric: &Fabric) -> Result<(), TargetError> {
        let hbd = &fabric.hbd;
        let part = |part| FaultSet::of(fabric, [part]).map(|_| ()).map_err(TargetError::Part);
        match self {
            Self::Part(named) => part(named),
            Self::Gpu(gpu) | Self::Nic(gpu) => {
                part(Part::Node(gpu.node))?;
                let last = hbd.gpus_per_node() - 1;
                match self {
                    _ if gpu.gpu <= last => Ok(()),
                    Self::Nic(_) => Err(TargetError::NoNic { nic: self.to_string(), last }),
                    _ => Err(TargetError::NoGpu { gpu, last }),
                }
            }
            Self::Tor(tor) | Self::Rack(tor) => {
                let last = fabric.dcn.tors(hbd.nodes()) - 1;
                if tor.0 <= last { Ok(()) } else { Err(TargetError::NoTor { tor, last }) }
            }
            Self::AnyNode | Self::Control => Ok(()),
        }
    }

    /// Whether it can be hit in this way, or what can.
    ///
    /// # Errors
    /// What the effect is for.
    pub fn allows(self, effect: &Effect) -> Result<(), &'static str> {
        let is_control = self == Self::Control;
        match effect {
            Effect::Down => Ok(()),
            Effect::Slower(_) if is_control => Ok(()),
            Effect::Slower(_) => Err("only the control plane (`control`) can be `slower`"),
            _ if is_control => Err("the control plane can be `down` or `slower`"),
            Effect::Stuck => match self {
                Self::Part(Part::Bundle(_)) => Ok(()),
                _ => Err("only a bundle such as `n17/b0` can be `stuck`"),
            },
            Effect::Flapping { .. } | Effect::Rate(_) | Effect::BitErrors(_) => Ok(()),
            Effect::PauseStorm(_) => match self {
                Self::Part(Part::Node(_)) | Self::Gpu(_) | Self::Nic(_) | Self::AnyNode => Ok(()),
                _ => Err(
                    "a pause storm comes from an interface such as `n17/nic2`, or all of a node's",
                ),
            },
        }
    }
}

/// Nodes under a ToR.
pub(super) fn nodes_under(fabric: &Fabric, tor: TorId) -> impl Iterator<Item = NodeId> {
    let per_tor = fabric.dcn.nodes_per_tor();
    let end = ((tor.0 + 1) * per_tor).min(fabric.hbd.nodes());
    (tor.0 * per_tor..end).map(NodeId)
}

/// Why a fabric has no such target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No such node, bundle or fibre.
    #[error(transparent)]
    Part(#[from] FaultError),
    /// No such GPU.
    #[error("{gpu} does not exist: a node has GPUs g0 to g{last}")]
    NoGpu {
        /// The GPU named.
        gpu: GpuId,
        /// The highest there is.
        last: u8,
    },
    /// No such interface.
    #[error("{nic} does not exist: a node has interfaces nic0 to nic{last}")]
    NoNic {
        /// The interface named.
        nic: String,
        /// The highest there is.
        last: u8,
    },
    /// No such ToR.
    #[error("{tor} does not exist: the fabric has ToRs t0 to t{last}")]
    NoTor {
        /// The ToR named.
        tor: TorId,
        /// The highest there is.
        last: u32,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part) => part.fmt(f),
            Self::Gpu(gpu) => gpu.fmt(f),
            Self::Nic(gpu) => write!(f, "{}/nic{}", gpu.node, gpu.gpu),
            Self::Tor(tor) => tor.fmt(f),
            Self::Rack(tor) => write!(f, "rack {tor}"),
            Self::AnyNode => f.write_str("any node"),
            Self::Control => f.write_str("control"),
        }
    }
}

/// Why a text names nothing that can be hit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names nothing that can break: write a node `n17`, a GPU `n17/g2`, its interface `n17/nic2`, a bundle \
     `n17/b0`, a fibre `n17/b0.2`, a ToR `t3`, all under it `rack t3`, `any node` or `control`"
)]
pub struct TargetNameError(String);

impl FromStr for Target {
    type Err = TargetNameError;
    fn from_str(text: &str) -> Result<Self, TargetNameError> {
        let text = text.trim();
        let nic = |text: &str| text.replacen("/nic", "/g", 1).parse().ok();
        match text {
            "any node" => return Ok(Self::AnyNode),
            "control" => return Ok(Self::Control),
            _ => {}
        }
        let rack = text.strip_prefix("rack ").and_then(|tor| tor.trim().parse().ok());
        rack.map(Self::Rack)
            .or_else(|| text.parse().ok().map(Self::Part))
            .or_else(|| text.parse().ok().map(Self::Gpu))
            .or_else(|| text.contains("/nic").then(|| nic(text)).flatten().map(Self::Nic))
            .or_else(|| text.parse().ok().map(Self::Tor))
            .ok_or_else(|| TargetNameError(text.to_owned()))
    }
}

impl Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Target {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Target".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A node `n17`, a GPU `n17/g2`, its interface `n17/nic2`, a bundle `n17/b0`, a fibre `n17/b0.2`, a ToR `t3`, all under it `rack t3`, `any node` or `control`",
            "pattern": "^(n[0-9]+(/(g|nic)[0-9]+|/b[0-9]+(\\.[12])?)?|(rack )?t[0-9]+|any node|control)$",
            "examples": ["n17", "n17/g2", "n17/nic2", "n17/b0", "n17/b0.2", "t3", "rack t3", "any node", "control"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_they_are_written() {
        for text in [
            "n17", "n17/g2", "n17/nic2", "n17/b0", "n17/b0.2", "t3", "rack t3", "any node",
            "control",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "q", "n17/x", "rack", "rack n1", "nic2", "any", "n17/nicb"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_seed_decides_whether_when_and_where() {
        let fault = Fault {
            targets: vec![Target::AnyNode],
            effect: Effect::Down,
            at: SimTime(1_000),
            within: Picoseconds(1_000),
            lasts: Some(Picoseconds(50)),
            probability: 0.25,
        };
        let working: Vec<NodeId> = (0..10).map(NodeId).collect();
        let drawn: Vec<Strike> =
            (0..4_000).filter_map(|seed| fault.draw(Seed(seed), 0, &working)).collect();
        // A quarter of 4,000, give or take four standard deviations.
        assert!((890..1_110).contains(&drawn.len()), "{}", drawn.len());
        for strike in &drawn {
            assert!((1_000..2_000).contains(&strike.at.0));
            assert_eq!(strike.repaired_at, Some(strike.at + Picoseconds(50)));
        }
        let hit: std::collections::BTreeSet<_> = drawn.iter().map(|s| s.targets[0]).collect();
        assert_eq!(hit.len(), 10, "every node is hit under some seed");
        assert_eq!(fault.draw(Seed(3), 0, &working), fault.draw(Seed(3), 0, &working));
    }
}
