// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::device_ports::DevicePorts;

use lightloom_control::state::{Move, Observation, Op, Outcome, Position, Positions, Slot, at};

pub(super) const PORTS_MAX: u32 = 1 << 16;

/// Ingress ports are 1 to N, egress ports N+1 to N+M.
#[derive(Clone, Debug, Default)]
pub(super) struct Ports {
    size: Option<(u32, u32)>,
    wired: Option<DevicePorts>,
    believed: Positions,
    seen: Observation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Nothing,
    Look(Vec<u32>),
    Remove(Vec<(u32, u32)>),
    Add(Vec<(u32, u32)>),
}

impl Ports {
    pub(super) fn wired_as(&mut self, ports: Option<DevicePorts>) {
        self.wired = ports;
    }

    pub(super) fn forget(&mut self) {
        self.size = None;
    }

    pub(super) fn take_size(&mut self, ingress: &str, egress: &str) -> Option<()> {
        let [ingress, egress] = [ingress, egress]
            .map(|text| text.trim().parse().ok().filter(|count| *count <= PORTS_MAX));
        self.size = Some((ingress?, egress?));
        Some(())
    }

    pub(super) fn task(&mut self, op: &Op) -> Result<Task, String> {
        self.seen = Observation::default();
        Ok(match op {
            Op::Observe { power, .. } => {
                let ports = power.iter().filter_map(|slot| self.believed.get(slot));
                Task::Look(ports.filter(|port| !port.is_dark()).map(|port| port.0).collect())
            }
            Op::Arm { want, .. } => {
                self.check_size()?;
                want.iter().try_for_each(|(&slot, &to)| self.check(slot, to))?;
                Task::Look(Vec::new())
            }
            Op::Disarm { .. } => Task::Nothing,
            Op::Switch { moves, .. } => self.change(moves)?,
        })
    }

    pub(super) fn stands(&self, want: &Positions) -> bool {
        want.iter().all(|(&slot, &to)| at(&self.seen.positions, slot) == to)
    }

    fn change(&mut self, moves: &[Move]) -> Result<Task, String> {
        self.check_size()?;
        moves.iter().try_for_each(|m| self.check(m.slot, m.to))?;
        let dark = moves.iter().filter(|m| m.to.is_dark()).count();
        let task = match dark {
            0 => Task::Add(moves.iter().map(|m| (m.slot.0, m.to.0)).collect()),
            dark if dark == moves.len() => {
                Task::Remove(moves.iter().map(|m| (m.slot.0, m.from.0)).collect())
            }
            _ => return Err("removals and additions in one step".into()),
        };
        self.believed.extend(moves.iter().map(|m| (m.slot, m.to)));
        Ok(task)
    }

    /// A switch of another size is refused, because its egress ports would have different numbers.
    fn check_size(&self) -> Result<(), String> {
        let (Some((ingress, egress)), Some(DevicePorts::IngressThenEgress { ingress: planned })) =
            (self.size, self.wired)
        else {
            return Ok(());
        };
        if (ingress, egress) == (planned, planned) {
            return Ok(());
        }
        Err(format!(
            "the switch has {ingress} ingress and {egress} egress ports, but the fabric file says \
                `ports_per_switch: {planned}`: correct the file and plan again, or connect the \
                right switch"
        ))
    }

    fn check(&self, slot: Slot, to: Position) -> Result<(), String> {
        let Some((ingress, egress)) = self.size else { return Ok(()) };
        if slot.0 == 0 || slot.0 > ingress {
            return Err(format!("ingress ports are 1 to {ingress}, not {slot}"));
        }
        let (first, last) = (ingress + 1, ingress + egress);
        if !to.is_dark() && !(first..=last).contains(&to.0) {
            return Err(format!("egress ports are {first} to {last}, not {to}"));
        }
        Ok(())
    }

    pub(super) fn take_circuits(
        &mut self,
        circuits: impl IntoIterator<Item = (u32, u32)>,
    ) -> Option<()> {
        let (mut positions, mut holders) = (Positions::new(), BTreeMap::new());
        for (slot, position) in circuits.into_iter().map(|(s, p)| (Slot(s), Position(p))) {
            let known = !position.is_dark() && self.check(slot, position).is_ok();
            let twice = positions.insert(slot, position).is_some()
                || holders.insert(position, slot).is_some();
            if !known || twice {
                return None;
            }
        }
        self.believed.clone_from(&positions);
        self.seen.positions = positions;
        Some(())
    }

    #[cfg(feature = "gnmi")]
    pub(super) fn take_tuning(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.seen.tuning.extend(slots.into_iter().map(Slot));
    }

    /// `powers` is in 1/1000 dBm. Ports without a circuit are ignored.
    pub(super) fn take_power(&mut self, powers: impl IntoIterator<Item = (u32, i32)>) {
        let held: BTreeMap<u32, Slot> =
            self.seen.positions.iter().map(|(&slot, position)| (position.0, slot)).collect();
        let powers = powers.into_iter();
        let powers = powers.filter_map(|(port, power)| Some((*held.get(&port)?, power)));
        self.seen.power_mdbm.extend(powers);
    }

    pub(super) fn outcome(&self, op: &Op) -> Outcome {
        match op {
            Op::Observe { .. } | Op::Arm { .. } => Outcome::Done(Some(self.seen.clone())),
            Op::Disarm { .. } | Op::Switch { .. } => Outcome::Done(None),
        }
    }
}
