// SPDX-License-Identifier: Apache-2.0
//! A model of a transceiver or switch, with faults but without a wire format.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::state::{
    Micros, Move, NEIGHBOURS_EVERY, Neighbours, Observation, Op, Outcome, Position, Positions,
    Sharing, Shut, Slot, at,
};
use lightloom_units::seed::Stream;
use rand::RngExt;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub lose_request: f64,
    /// The operation is executed, but the reply never arrives.
    pub lose_reply: f64,
    /// The operation is executed long after its deadline.
    pub late: f64,
    pub refuse: f64,
    pub fail: f64,
    pub lie: f64,
    pub stray: f64,
    pub weak: f64,
    /// Execution time of an operation, instead of a fraction of a millisecond.
    pub slow_micros: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    pub execute_after: Option<Micros>,
    pub reply: bool,
}

impl Faults {
    pub(crate) fn storm() -> Self {
        Self {
            lose_request: 0.01,
            lose_reply: 0.01,
            late: 0.002,
            refuse: 0.01,
            fail: 0.01,
            lie: 0.01,
            stray: 0.003,
            weak: 0.01,
            slow_micros: 0,
        }
    }

    pub(crate) fn fate(&self, rng: &mut Stream, op: &Op) -> Fate {
        let soon = Micros(self.slow_micros + rng.random_range(50..400));
        let draw = rng.random::<f64>();
        if draw < self.lose_request {
            return Fate { execute_after: None, reply: false };
        }
        if draw < self.lose_request + self.lose_reply {
            return Fate { execute_after: Some(soon), reply: false };
        }
        let moves = matches!(op, Op::Switch { .. });
        if moves && draw < self.lose_request + self.lose_reply + self.late {
            let after = Micros::from_millis(rng.random_range(1_000..8_000));
            return Fate { execute_after: Some(after), reply: false };
        }
        Fate { execute_after: Some(soon), reply: true }
    }
}

#[derive(Debug)]
pub(crate) struct ModelDevice {
    pub sharing: Sharing,
    pub positions: Positions,
    pub generation: u32,
    /// Whether a slot has been moved by anything except the daemon since the last read.
    pub tampered: bool,
    pub shut: BTreeSet<Slot>,
    pub unlit: BTreeSet<Slot>,
    pub neighbours: BTreeMap<Slot, String>,
    named: BTreeMap<Slot, String>,
    reads: u8,
    /// Whether the device did not execute a request correctly.
    pub erred: bool,
    weak: BTreeSet<Slot>,
    gone_until: Micros,
}

impl ModelDevice {
    pub(crate) fn new(sharing: Sharing) -> Self {
        let positions = Positions::new();
        let (unlit, weak, gone_until) = (BTreeSet::new(), BTreeSet::new(), Micros(0));
        let (neighbours, named) = (BTreeMap::new(), BTreeMap::new());
        let (generation, tampered, reads) = (0, false, 0);
        Self {
            sharing,
            positions,
            generation,
            tampered,
            shut: BTreeSet::new(),
            unlit,
            neighbours,
            named,
            reads,
            erred: false,
            weak,
            gone_until,
        }
    }

    pub(crate) fn reboot(&mut self, until: Micros, keeps: bool) {
        self.gone_until = until;
        self.tampered = true;
        if !keeps {
            self.positions.clear();
            self.generation = 0;
        }
    }

    pub(crate) fn clock_restarts(&mut self, old: Micros, new: Micros) {
        self.gone_until = new + (self.gone_until - old);
    }

    pub(crate) fn is_gone(&self, now: Micros) -> bool {
        now < self.gone_until
    }

    pub(crate) fn was_gone(&self, since: Micros) -> bool {
        since < self.gone_until
    }

    pub(crate) fn is_weak(&self, slot: Slot) -> bool {
        self.weak.contains(&slot)
    }

    pub(crate) fn execute(&mut self, op: &Op, faults: &Faults, rng: &mut Stream) -> Outcome {
        match op {
            Op::Observe { neighbours, .. } => {
                self.tampered = false;
                self.ask_neighbours(*neighbours);
                Outcome::Done(Some(self.observe()))
            }
            Op::Arm { .. } if rng.random_bool(faults.refuse) => {
                self.erred = true;
                Outcome::Refused("SARB".into())
            }
            Op::Arm { .. } => {
                self.named.clear();
                Outcome::Done(Some(self.observe()))
            }
            Op::Disarm { .. } => Outcome::Done(None),
            Op::Switch { moves, .. } => self.switch(moves, faults, rng),
        }
    }

    /// Requests neighbours if they are unknown, occasionally, and on request.
    fn ask_neighbours(&mut self, wanted: Neighbours) {
        if wanted == Neighbours::Never {
            return;
        }
        self.reads = self.reads.wrapping_add(1);
        let known = self.neighbours.keys().all(|slot| self.named.contains_key(slot));
        if wanted == Neighbours::Always || !known || self.reads.is_multiple_of(NEIGHBOURS_EVERY) {
            self.named.clone_from(&self.neighbours);
        }
    }

    fn switch(&mut self, moves: &[Move], faults: &Faults, rng: &mut Stream) -> Outcome {
        if rng.random_bool(faults.refuse) {
            self.erred = true;
            return Outcome::Refused("IISP".into());
        }
        if rng.random_bool(faults.lie) {
            self.erred = true;
            return Outcome::Done(None);
        }
        let some = rng.random_bool(faults.fail).then(|| rng.random_range(0..=moves.len()));
        for m in moves.iter().take(some.unwrap_or(moves.len())) {
            if let Err(why) = self.put(m.slot, m.to) {
                return Outcome::Failed(why);
            }
            self.weak.remove(&m.slot);
            if rng.random_bool(faults.weak) {
                self.erred = true;
                self.weak.insert(m.slot);
            }
        }
        self.generation += 1;
        self.erred |= some.is_some();
        if rng.random_bool(faults.stray) {
            self.erred = true;
            self.moved_by_operator(rng);
        }
        match some {
            Some(_) => Outcome::Failed("SROF".into()),
            None => Outcome::Done(None),
        }
    }

    fn put(&mut self, slot: Slot, to: Position) -> Result<(), String> {
        if to.is_dark() {
            self.positions.remove(&slot);
            self.named.clear();
            return Ok(());
        }
        let exclusive = self.sharing == Sharing::Exclusive;
        if exclusive && self.positions.iter().any(|(&s, &p)| p == to && s != slot) {
            return Err(format!("position {to} is in use"));
        }
        if exclusive && at(&self.positions, slot) != to && self.positions.contains_key(&slot) {
            return Err(format!("slot {slot} is in use"));
        }
        self.positions.insert(slot, to);
        self.named.clear();
        Ok(())
    }

    pub(crate) fn moved_by_operator(&mut self, rng: &mut Stream) {
        self.tampered = true;
        if self.sharing == Sharing::Independent {
            let to = [1, 2, 15][rng.random_range(0..3)];
            self.positions.insert(super::ring::SLOT, Position(to));
            return;
        }
        let lit: Vec<Slot> = self.positions.keys().copied().collect();
        if !lit.is_empty() && rng.random_bool(0.7) {
            self.positions.remove(&lit[rng.random_range(0..lit.len())]);
        } else {
            let (slot, to) = (rng.random_range(1..12), rng.random_range(101..112));
            let _ = self.put(Slot(slot), Position(to));
        }
    }

    fn observe(&self) -> Observation {
        let power = |slot: &Slot| match () {
            () if self.unlit.contains(slot) => -99_000,
            () if self.weak.contains(slot) => -30_000,
            () => -5_000,
        };
        Observation {
            positions: self.positions.clone(),
            generation: Some(self.generation),
            power_mdbm: self.positions.keys().map(|s| (*s, power(s))).collect::<BTreeMap<_, _>>(),
            neighbours: self.named.clone(),
            shut: self.shut.iter().map(|slot| (*slot, Shut::TxDisabled)).collect(),
            ..Observation::default()
        }
    }
}
