// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::{LinkChange, LinkId};
use lightloom_fabric::fault::Part as PlannedPart;
use lightloom_units::{Picoseconds, SimTime};

use super::{Effect, Flapping};
use crate::substrate::{NetworkPart, OpticalPort};

/// A fault after all random choices have been made.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultEvent {
    /// Parts that fail together.
    pub parts: Vec<NetworkPart>,
    /// Effect on the parts.
    pub effect: Effect,
    /// Start time.
    pub when: When,
    /// Duration. `None` if permanent.
    pub lasts: Option<Picoseconds>,
    /// Whether the fault precedes the run, so that the first plan avoids it.
    pub from_start: bool,
}

/// Start time of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Time since the start of the run.
    At(SimTime),
    /// Time since the end of the preceding phase.
    InPhase {
        /// Step index, from 0.
        step: u32,
        /// Index of the phase.
        phase: usize,
        /// Time since the end of the preceding phase.
        after: Picoseconds,
    },
}

impl When {
    /// Returns the start time, delayed by `late`.
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
    /// Returns the part names as written in the scenario.
    pub fn what(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        names.join(", ")
    }

    /// Returns the start time, or `None` if it is relative to a phase.
    pub const fn at(&self) -> Option<SimTime> {
        match self.when {
            When::At(at) => Some(at),
            When::InPhase { .. } => None,
        }
    }

    /// Returns the end of a fault that starts at `at`.
    pub fn ends(&self, at: SimTime) -> Option<SimTime> {
        self.lasts.map(|lasts| at + lasts)
    }

    /// Returns the repair time, or `None` if the start is relative to a phase.
    pub fn repaired_at(&self) -> Option<SimTime> {
        self.at().and_then(|at| self.ends(at))
    }

    /// Returns whether the fault affects the control plane.
    pub fn is_of_control(&self) -> bool {
        self.parts.iter().any(|part| part.is_control)
    }

    pub(crate) fn planned(&self) -> Vec<PlannedPart> {
        let is_outage = self.effect.goes_dark() || self.effect == Effect::Stuck;
        let parts = self.parts.iter().filter(|_| is_outage);
        parts.flat_map(|part| part.planned.iter().copied()).collect()
    }

    pub(crate) fn is_latent(&self) -> bool {
        self.effect.needs_daemon() || self.effect == Effect::Stuck && !self.planned().is_empty()
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = OpticalPort> + '_ {
        self.parts.iter().flat_map(|part| part.ports.iter().copied())
    }

    pub(crate) fn links(&self) -> Vec<LinkId> {
        in_order(self.parts.iter().flat_map(|part| part.links.iter().copied()))
    }

    pub(crate) fn interfaces(&self) -> Vec<LinkId> {
        in_order(self.parts.iter().flat_map(|part| part.interfaces.iter().copied()))
    }

    pub(crate) fn blinks(
        &self,
        at: SimTime,
    ) -> impl Iterator<Item = (SimTime, LinkChange)> + use<> {
        let (down, up, times) = match self.effect {
            Effect::Flapping(Flapping { down, up, times }) => (down.0, up.0, times),
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
