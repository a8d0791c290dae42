// SPDX-License-Identifier: Apache-2.0
//! What a rank does in a pass over a layer, in order, and which computing covers which exchange.
//!
//! ```text
//!   before   exchange, shown part ▶ [ hidden part ∥ computing ]
//!   after                           [ computing ∥ hidden part ] ▶ shown part
//!   beside   shown part, the hidden part next to the whole layer
//! ```
//! An exchange in chunks overlaps with its product: the measured share of it that the product does not hide is shown. Both
//! evaluations of a step, in seconds and as tasks, read the same program.

use lightloom_collective::{CollectiveKind, Pace};

use crate::network::Group;
use crate::tasks::TaskPurpose;

/// An exchange between ranks of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// What it is for.
    pub purpose: TaskPurpose,
    /// What they compute. `None` where each rank sends to the next of its group.
    pub kind: Option<CollectiveKind>,
    /// Which ranks.
    pub group: Group,
    /// Bytes, as `lightloom-collective` defines the size.
    pub bytes: f64,
    /// Seconds on idle links.
    pub seconds: f64,
    /// What it leaves of links.
    pub pace: Pace,
}

impl Exchange {
    /// A part of it.
    #[must_use]
    pub fn part(&self, part: f64) -> Self {
        let (bytes, seconds) = (self.bytes * part, self.seconds * part);
        Self { bytes, seconds, pace: self.pace.part(part), ..*self }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.group.size < 2 || self.bytes < 1.0
    }
}

/// Where the hidden part of an exchange runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// With the computing that follows the shown part.
    Before,
    /// With the computing that the shown part follows.
    After,
    /// With the whole layer: another part of the micro-batch is computed meanwhile.
    Beside,
}

/// Computing, with an exchange that it may cover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// What is computed.
    pub name: &'static str,
    /// Seconds of computing.
    pub seconds: f64,
    /// An exchange.
    pub exchange: Option<Exchange>,
    /// Share of the exchange that nothing hides.
    pub shown: f64,
    /// Where the rest of it runs.
    pub cover: Cover,
    /// How often all of this happens.
    pub count: u32,
}

impl Stretch {
    /// Computing alone.
    #[must_use]
    pub fn compute(name: &'static str, seconds: f64) -> Self {
        Self { name, seconds, exchange: None, shown: 1.0, cover: Cover::Before, count: 1 }
    }

    /// An exchange of which a share is shown, with the computing that covers the rest of it.
    #[must_use]
    pub fn covered(self, exchange: Exchange, shown: f64, cover: Cover) -> Self {
        if exchange.is_empty() {
            self
        } else {
            Self { exchange: Some(exchange), shown, cover, ..self }
        }
    }

    /// An exchange that nothing hides.
    #[must_use]
    pub fn exchange(exchange: Exchange) -> Self {
        Self::compute("", 0.0).covered(exchange, 1.0, Cover::Before)
    }

    /// What the exchange adds to the computing.
    #[must_use]
    pub fn added_seconds(&self) -> f64 {
        let Some(exchange) = &self.exchange else { return 0.0 };
        let shown = self.shown * exchange.seconds;
        let beyond =
            if self.cover == Cover::Beside { 0.0 } else { exchange.seconds - self.seconds };
        f64::from(self.count) * shown.max(beyond)
    }
}

/// What a rank does in a pass over a layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// In order.
    pub stretches: Vec<Stretch>,
}

/// Seconds of a pass, by what they are spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassSeconds {
    /// Computing.
    pub compute: f64,
    /// Exchange of TP that is not hidden.
    pub tensor: f64,
    /// Of CP.
    pub context: f64,
    /// Of EP.
    pub expert: f64,
}

impl PassSeconds {
    /// Computing alone.
    #[must_use]
    pub fn compute(compute: f64) -> Self {
        Self { compute, ..Self::default() }
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.compute + self.tensor + self.context + self.expert
    }

    /// The sum of this and `times` the other.
    #[must_use]
    pub fn plus_times(&self, other: &Self, times: f64) -> Self {
        Self {
            compute: self.compute + other.compute * times,
            tensor: self.tensor + other.tensor * times,
            context: self.context + other.context * times,
            expert: self.expert + other.expert * times,
        }
    }
}

impl Program {
    /// How long it takes on idle links, by what the time is spent on.
    #[must_use]
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
            if stretch.cover == Cover::Beside {
                beside += (1.0 - stretch.shown) * exchange.seconds;
            }
        }
        spent.expert += (beside - spent.total()).max(0.0);
        spent
    }

    /// Adds a stretch.
    pub fn push(&mut self, stretch: Stretch) {
        self.stretches.push(stretch);
    }
}
