// SPDX-License-Identifier: Apache-2.0
//! A fault that the seed has decided on: which parts, how, from when to when.

use lightloom_engine::{LinkChange, LinkId};
use lightloom_fabric::fault::Part as PlannedPart;
use lightloom_units::{Picoseconds, SimTime};

use super::Effect;
use crate::substrate::{NetworkPart, OpticalPort};

/// A fault that the seed has decided on.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultEvent {
    /// What it hits, all at once.
    pub parts: Vec<NetworkPart>,
    /// How.
    pub effect: Effect,
    /// When.
    pub when: When,
    /// How long it lasts. `None` if for ever.
    pub lasts: Option<Picoseconds>,
    /// Whether it is there before the run begins, so that the first plan respects it.
    pub from_start: bool,
}

/// When a fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the start of the run.
    At(SimTime),
    /// So long after the phase before this one ended.
    InPhase {
        /// Which step, from 0.
        step: u32,
        /// The phase, by place.
        phase: usize,
        /// How long after.
        after: Picoseconds,
    },
}

impl When {
    /// So much later.
    #[must_use]
    pub fn later(self, late: Picoseconds) -> Self {
        match self {
            Self::At(at) => Self::At(at + late),
            Self::InPhase { step, phase, after } => {
                Self::InPhase { step, phase, after: after + late }
            }
        }
    }
}

impl FaultEvent {
    /// Its parts, as they are written.
    #[must_use]
    pub fn what(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        names.join(", ")
    }

    /// When it begins, where the run's clock says so.
    #[must_use]
    pub const fn at(&self) -> Option<SimTime> {
        match self.when {
            When::At(at) => Some(at),
            When::InPhase { .. } => None,
        }
    }

    /// When it ends, for a fault that begins at `at`.
    #[must_use]
    pub fn ends(&self, at: SimTime) -> Option<SimTime> {
        self.lasts.map(|lasts| at + lasts)
    }

    /// When it is repaired, where the run's clock says so.
    #[must_use]
    pub fn repaired_at(&self) -> Option<SimTime> {
        self.at().and_then(|at| self.ends(at))
    }

    /// Whether it hits the control plane.
    #[must_use]
    pub fn is_of_control(&self) -> bool {
        self.parts.iter().any(|part| part.is_control)
    }

    /// Whether what it hits goes dark or out of command, so that a plan takes it out of service.
    fn is_outage(&self) -> bool {
        matches!(self.effect, Effect::Down | Effect::Flapping { .. } | Effect::Stuck)
    }

    /// What a planner of rings takes out of service.
    pub(crate) fn planned(&self) -> Vec<PlannedPart> {
        let parts = self.parts.iter().filter(|_| self.is_outage());
        parts.flat_map(|part| part.planned.iter().copied()).collect()
    }

    /// Whether it does nothing until the part is commanded.
    pub(crate) fn is_latent(&self) -> bool {
        self.effect.needs_daemon() || self.effect == Effect::Stuck && !self.planned().is_empty()
    }

    /// Its ports of optical switches.
    pub(crate) fn ports(&self) -> impl Iterator<Item = OpticalPort> + '_ {
        self.parts.iter().flat_map(|part| part.ports.iter().copied())
    }

    /// Its links, both directions, in order.
    pub(crate) fn links(&self) -> Vec<LinkId> {
        in_order(self.parts.iter().flat_map(|part| part.links.iter().copied()))
    }

    /// Those of its links that end at the interface of a host.
    pub(crate) fn interfaces(&self) -> Vec<LinkId> {
        in_order(self.parts.iter().flat_map(|part| part.interfaces.iter().copied()))
    }

    /// When a flapping part that went at `at` comes back, and goes again.
    pub(crate) fn blinks(
        &self,
        at: SimTime,
    ) -> impl Iterator<Item = (SimTime, LinkChange)> + use<> {
        let (down, up, times) = match self.effect {
            Effect::Flapping { down, up, times } => (down, up, times),
            _ => (Picoseconds::ZERO, Picoseconds::ZERO, 0),
        };
        (0..u64::from(times)).flat_map(move |turn| {
            let begin = at + Picoseconds((down + up).get() * turn);
            let goes = (turn > 0).then_some((begin, LinkChange::Down));
            goes.into_iter().chain([(begin + down, LinkChange::Up)])
        })
    }
}

fn in_order(links: impl Iterator<Item = LinkId>) -> Vec<LinkId> {
    let mut links: Vec<LinkId> = links.collect();
    links.sort_unstable();
    links.dedup();
    links
}
