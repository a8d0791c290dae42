// SPDX-License-Identifier: Apache-2.0
//! The emulated plant: positions, power and fibres of all modules, independent of plans and
//! journal. Reads are always correct.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::controller::end_name;
use lightloom_control::state::{
    DeviceName, FibreEnd, Observation, Op, Outcome, Position, Positions, Slot,
};

const LIT_MDBM: i32 = -2_000;
const UNLIT_MDBM: i32 = -40_000;
const SLOT: Slot = Slot(0);

#[derive(Clone, Debug)]
pub(super) struct Module {
    pub(super) position: Position,
    pub(super) generation: u32,
    pub(super) serial: u32,
    pub(super) is_off: bool,
    /// Whether management is unresponsive while the light stays on.
    pub(super) is_silent: bool,
    pub(super) is_stuck: bool,
    pub(super) lies: bool,
    /// Whether the module has been moved or blocked from outside since the daemon's last move.
    pub(super) is_touched: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Plant {
    pub(super) modules: BTreeMap<DeviceName, Module>,
    /// Far ends according to the fabric file; `cables` contains the actual ones.
    pub(super) fibres: BTreeMap<FibreEnd, FibreEnd>,
    cables: BTreeMap<FibreEnd, FibreEnd>,
    pub(super) cut: BTreeSet<FibreEnd>,
    pub(super) crossed: Option<(FibreEnd, FibreEnd)>,
}

impl Plant {
    pub(super) fn new(
        names: impl Iterator<Item = DeviceName>,
        fibres: BTreeMap<FibreEnd, FibreEnd>,
    ) -> Self {
        let module = |serial| Module {
            position: Position::LOOPBACK,
            generation: 0,
            serial,
            is_off: false,
            is_silent: false,
            is_stuck: false,
            lies: false,
            is_touched: false,
        };
        let modules = names.zip(0..).map(|(name, serial)| (name, module(serial))).collect();
        Self { modules, cables: fibres.clone(), fibres, ..Self::default() }
    }

    pub(super) fn is_lit(&self, device: &DeviceName) -> bool {
        let module = &self.modules[device];
        if module.is_off || module.position.is_dark() {
            return false;
        }
        let end = (device.clone(), SLOT, module.position);
        let Some(far) = self.cables.get(&end) else { return module.position == Position::LOOPBACK };
        let sends = &self.modules[&far.0];
        !self.cut.contains(&end) && !sends.is_off && sends.position == far.2
    }

    /// Returns whether both modules use the fibre and receive each other's light.
    pub(super) fn stands(&self, a: &FibreEnd, b: &FibreEnd) -> bool {
        let looks = |end: &FibreEnd| self.modules[&end.0].position == end.2;
        let joined = self.cables.get(a) == Some(b);
        joined && looks(a) && looks(b) && self.is_lit(&a.0) && self.is_lit(&b.0)
    }

    pub(super) fn answers(&self, device: &DeviceName) -> bool {
        let module = &self.modules[device];
        !module.is_off && !module.is_silent
    }

    /// Returns `None` if the device never replies.
    pub(super) fn execute(&mut self, device: &DeviceName, op: &Op) -> Option<Outcome> {
        if !self.answers(device) {
            return None;
        }
        match op {
            Op::Observe { .. } | Op::Arm { .. } => Some(Outcome::Done(Some(self.read(device)))),
            Op::Disarm { .. } => Some(Outcome::Done(None)),
            Op::Switch { moves, .. } => {
                let module = self.modules.get_mut(device)?;
                if module.is_stuck {
                    return Some(Outcome::Failed("the switch did not move".into()));
                }
                if !module.lies {
                    for one in moves {
                        module.position = one.to;
                        module.generation += 1;
                        module.is_touched = false;
                    }
                }
                Some(Outcome::Done(None))
            }
        }
    }

    fn read(&self, device: &DeviceName) -> Observation {
        let module = &self.modules[device];
        let position = module.position;
        let lit = self.is_lit(device);
        let power = if lit { LIT_MDBM } else { UNLIT_MDBM };
        let far = self.cables.get(&(device.clone(), SLOT, position)).filter(|_| lit);
        let positions: Positions =
            Some((SLOT, position)).filter(|(_, at)| !at.is_dark()).into_iter().collect();
        Observation {
            power_mdbm: positions.keys().map(|slot| (*slot, power)).collect(),
            positions,
            generation: Some(module.generation),
            neighbours: far.map(|far| (SLOT, end_name(far))).into_iter().collect(),
            ..Observation::default()
        }
    }

    pub(super) fn restarts(&mut self, device: &DeviceName) {
        if let Some(module) = self.modules.get_mut(device) {
            (module.position, module.generation) = (Position::LOOPBACK, 0);
            (module.is_off, module.is_touched) = (false, true);
        }
    }

    /// A second call undoes the swap.
    pub(super) fn swap(&mut self, one: &FibreEnd, other: &FibreEnd) {
        let [far, other_far] = [one, other].map(|end| self.cables[end].clone());
        for (near, far) in [(one, &other_far), (other, &far)] {
            self.cables.insert(near.clone(), far.clone());
            self.cables.insert(far.clone(), near.clone());
        }
    }

    pub(super) fn mend(&mut self) {
        self.cut.clear();
        if let Some((one, other)) = self.crossed.take() {
            self.swap(&one, &other);
        }
        let off = self.modules.iter().filter(|(_, module)| module.is_off);
        for device in off.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.restarts(&device);
        }
        for module in self.modules.values_mut() {
            (module.is_silent, module.is_stuck, module.lies) = (false, false, false);
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        let sound = |module: &Module| {
            !module.is_off && !module.is_silent && !module.is_stuck && !module.lies
        };
        self.cut.is_empty() && self.crossed.is_none() && self.modules.values().all(sound)
    }
}
