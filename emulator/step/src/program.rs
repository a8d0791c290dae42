// SPDX-License-Identifier: Apache-2.0
//! Work of a rank in a pass over a layer, and the computation that overlaps each exchange.
//!
//! ```text
//!   before   exchange, exposed part ▶ [ hidden part ∥ computation ]
//!   after                             [ computation ∥ hidden part ] ▶ exposed part
//!   beside   exposed part, and the hidden part concurrently with the whole layer
//! ```
//! A chunked exchange overlaps with its matrix product, except for a measured share.

use lightloom_collective::{CollectiveKind, Pace};

use crate::network::Group;
use crate::tasks::TaskPurpose;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    pub purpose: TaskPurpose,
    pub kind: Option<CollectiveKind>,
    pub group: Group,
    /// Size as defined in `lightloom-collective`.
    pub bytes: f64,
    pub seconds: f64,
    pub pace: Pace,
    /// Cable delay per step, inside a domain and between domains, in seconds.
    pub cables: [f64; 2],
}

impl Exchange {
    /// Each step takes at least the delay of its cables.
    pub fn part(&self, part: f64) -> Self {
        let mut pace = self.pace.part(part);
        for (step, cable) in pace.step_seconds.iter_mut().zip(self.cables) {
            *step = step.max(cable);
        }
        Self { bytes: self.bytes * part, seconds: self.part_seconds(part), pace, ..*self }
    }

    pub fn part_seconds(&self, part: f64) -> f64 {
        if self.group.size < 2 || self.bytes * part < 1.0 {
            return 0.0;
        }
        // A map over the levels costs a sixth of a search for mappings.
        self.seconds * part + self.missing(0, part) + self.missing(1, part)
    }

    fn missing(&self, level: usize, part: f64) -> f64 {
        let Pace { steps, step_seconds, .. } = &self.pace;
        steps[level] * (self.cables[level] - step_seconds[level] * part).max(0.0)
    }

    pub fn is_empty(&self) -> bool {
        self.group.size < 2 || self.bytes < 1.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    Before,
    After,
    Beside,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    pub name: &'static str,
    pub seconds: f64,
    pub exchange: Option<Exchange>,
    pub shown: f64,
    pub cover: Overlap,
    pub count: u32,
}

impl Stretch {
    pub fn compute(name: &'static str, seconds: f64) -> Self {
        Self { name, seconds, exchange: None, shown: 1.0, cover: Overlap::Before, count: 1 }
    }

    pub fn covered(self, exchange: Exchange, shown: f64, cover: Overlap) -> Self {
        if exchange.is_empty() {
            self
        } else {
            Self { exchange: Some(exchange), shown, cover, ..self }
        }
    }

    pub fn exchange(exchange: Exchange) -> Self {
        Self::compute("", 0.0).covered(exchange, 1.0, Overlap::Before)
    }

    pub fn parts(&self, exchange: &Exchange) -> [Exchange; 2] {
        [exchange.part(self.shown), exchange.part(1.0 - self.shown)]
    }

    pub fn added_seconds(&self) -> f64 {
        let Some(exchange) = &self.exchange else { return 0.0 };
        let shown = exchange.part_seconds(self.shown);
        let hidden = exchange.part_seconds(1.0 - self.shown);
        let beyond = if self.cover == Overlap::Beside { 0.0 } else { hidden - self.seconds };
        f64::from(self.count) * (shown + beyond.max(0.0))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerProgram {
    pub stretches: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassSeconds {
    pub compute: f64,
    pub tensor: f64,
    pub context: f64,
    pub expert: f64,
}

impl PassSeconds {
    pub fn compute(compute: f64) -> Self {
        Self { compute, ..Self::default() }
    }

    pub fn total(&self) -> f64 {
        self.compute + self.tensor + self.context + self.expert
    }

    pub fn plus_times(&self, other: &Self, times: f64) -> Self {
        Self {
            compute: self.compute + other.compute * times,
            tensor: self.tensor + other.tensor * times,
            context: self.context + other.context * times,
            expert: self.expert + other.expert * times,
        }
    }
}

impl LayerProgram {
    pub fn seconds(&self) -> PassSeconds {
        let mut spent = PassSeconds::default();
        let mut beside = 0.0;
        for stretch in &self.stretches {
            spent.compute += f64::from(stretch.count) * stretch.seconds;
            let Some(exchange) = &stretch.exchange else { continue };
            let added = stretch.added_seconds();
            match exchange.purpose {
                TaskPurpose::Tensor => spent.tensor += added,
                TaskPurpose::Context => spent.context += added,
                _ => spent.expert += added,
            }
            if stretch.cover == Overlap::Beside {
                beside += exchange.part_seconds(1.0 - stretch.shown);
            }
        }
        spent.expert += (beside - spent.total()).max(0.0);
        spent
    }

    pub fn push(&mut self, stretch: Stretch) {
        self.stretches.push(stretch);
    }
}
