// SPDX-License-Identifier: Apache-2.0
//! The moves from current to desired positions ([`difference`]), and their order ([`waves`]).

mod phase;
mod waves;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::state::{
    DeviceName, Move, Observation, Position, Positions, Sharing, Slot, SwitchState, at,
};

pub use phase::{Phase, PhaseChange, PhaseOrder, stages_back};
pub use waves::{Domains, Wave, Way, at_once, dark_links, waves, waves_in_stages};

const DEVICES_NAMED: usize = 6;

pub type Moves = BTreeMap<DeviceName, Vec<Move>>;

/// How much an apply may disturb. The names follow SONiC's `config ocs cross-connect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    Safe,
    Update,
    Overwrite,
    /// Moves slots without circuits at the same time, and accepts any light. Used by `commission`.
    Probe,
}

#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub sharing: Sharing,
    pub owned: &'a Positions,
    pub probed: &'a BTreeSet<Slot>,
    pub observed: Option<&'a Observation>,
    pub trouble: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Objection {
    #[error("{device}: not configured here")]
    NoDevice { device: DeviceName },
    #[error("{device}: unreachable ({trouble}), so it cannot be read or moved")]
    Down { device: DeviceName, trouble: String },
    #[error("{device}: not read yet, so its positions are unknown")]
    Unread { device: DeviceName },
    #[error(
        "{device} {}: at {}, but the journal says {}: {}{}",
        .device.slot(*.slot), .device.place(*.observed), .device.place(*.owned),
        remedy(*.owned, .device.as_str()), or_update(*.update_helps)
    )]
    Drifted {
        device: DeviceName,
        slot: Slot,
        observed: Position,
        owned: Position,
        update_helps: bool,
    },
    #[error(
        "{device} {}: {} is in use by {}, which the daemon does not own: free it{}",
        .device.slot(*.slot), .device.place(*.position), .device.slot(*.holder), or_update(*.update_helps)
    )]
    Foreign { device: DeviceName, slot: Slot, position: Position, holder: Slot, update_helps: bool },
    #[error(
        "{device}: {} is needed by both {} and {}",
        .device.place(*.position), .device.slot(*.first), .device.slot(*.second)
    )]
    Twice { device: DeviceName, position: Position, first: Slot, second: Slot },
    #[error(
        "{device} {}: may carry a circuit at {}, but probes only move dark ends",
        .device.slot(*.slot), .device.place(*.position)
    )]
    InUse { device: DeviceName, slot: Slot, position: Position },
}

fn or_update(helps: bool) -> &'static str {
    if helps { ", or apply with `--mode update`" } else { "" }
}

fn remedy(owned: Position, adopt: &str) -> String {
    match owned.is_dark() {
        true => format!("adopt its light with `lightloom ctl adopt {adopt}`"),
        false => "restore it with `lightloom ctl apply --restore`".into(),
    }
}

pub(crate) fn in_words(objections: &[Objection]) -> Vec<String> {
    let mut folded: Vec<(&Objection, Vec<&str>)> = Vec::new();
    for objection in objections {
        let known = shared_drift(objection);
        let name = match objection {
            Objection::Drifted { device, .. } => device.as_str(),
            _ => "",
        };
        let same =
            folded.iter_mut().find(|(first, _)| known.is_some() && shared_drift(first) == known);
        match same {
            Some((_, names)) => names.push(name),
            None => folded.push((objection, vec![name])),
        }
    }
    folded.into_iter().map(|(first, names)| in_one_line(first, &names)).collect()
}

/// Returns the words and the remedy of a drift, which several devices can share.
fn shared_drift(objection: &Objection) -> Option<([String; 3], Position, bool)> {
    let Objection::Drifted { device, slot, observed, owned, update_helps } = objection else {
        return None;
    };
    let words = [device.slot(*slot), device.place(*observed), device.place(*owned)];
    Some((words, *owned, *update_helps))
}

fn in_one_line(first: &Objection, names: &[&str]) -> String {
    let shared = shared_drift(first).filter(|_| names.len() > 1);
    let Some(([slot, observed, journal], owned, helps)) = shared else {
        return first.to_string();
    };
    let more = names.len().saturating_sub(DEVICES_NAMED);
    let shown = names[..names.len() - more].join(", ");
    let (more, adopt) = match more {
        0 => (String::new(), names.join(" ")),
        more => (format!(" and {more} more"), "all".to_owned()),
    };
    format!(
        "{shown}{more}: {slot} at {observed}, but the journal says {journal}: {}{}",
        remedy(owned, &adopt),
        or_update(helps)
    )
}

impl Objection {
    fn is_of_mode_safe(&self) -> bool {
        matches!(self, Self::Drifted { .. } | Self::Foreign { .. })
    }

    fn with_update(self, helps: bool) -> Self {
        match self {
            Self::Drifted { device, slot, observed, owned, .. } => {
                Self::Drifted { device, slot, observed, owned, update_helps: helps }
            }
            Self::Foreign { device, slot, position, holder, .. } => {
                Self::Foreign { device, slot, position, holder, update_helps: helps }
            }
            other => other,
        }
    }
}

/// Returns the moves to the target, or all objections by device. Slots that the daemon owns go dark
/// if they are not in the target; foreign slots remain unchanged.
pub fn difference<'a>(
    target: &SwitchState,
    mode: Mode,
    known: impl Fn(&DeviceName) -> Option<Known<'a>>,
) -> Result<BTreeMap<DeviceName, Vec<Move>>, Vec<Objection>> {
    let mut changes = BTreeMap::new();
    let mut objections = Vec::new();
    for (device, want) in target {
        let Some(known) = known(device) else {
            objections.push(Objection::NoDevice { device: device.clone() });
            continue;
        };
        let Some(observed) = known.observed else {
            let device = device.clone();
            objections.push(match known.trouble {
                Some(trouble) => Objection::Down { device, trouble: trouble.to_owned() },
                None => Objection::Unread { device },
            });
            continue;
        };
        let one = OneDevice { device, want, mode, known, observed: &observed.positions };
        let moves = one.moves(&mut objections);
        if !moves.is_empty() {
            changes.insert(device.clone(), moves);
        }
    }
    if objections.is_empty() {
        return Ok(changes);
    }
    let update_helps = objections.iter().all(Objection::is_of_mode_safe);
    Err(objections.into_iter().map(|objection| objection.with_update(update_helps)).collect())
}

struct OneDevice<'a> {
    device: &'a DeviceName,
    want: &'a Positions,
    mode: Mode,
    known: Known<'a>,
    observed: &'a Positions,
}

impl OneDevice<'_> {
    fn moves(&self, objections: &mut Vec<Objection>) -> Vec<Move> {
        let ours = self.known.owned.keys().filter(|_| self.mode != Mode::Probe);
        let mut goal: Positions = ours.map(|&slot| (slot, Position::DARK)).collect();
        if self.mode == Mode::Overwrite {
            goal.extend(self.observed.keys().map(|&slot| (slot, Position::DARK)));
        }
        goal.extend(self.want);
        self.object_to_double_use(objections);
        self.displace(&mut goal, objections);
        let moves: Vec<Move> = goal
            .iter()
            .map(|(&slot, &to)| Move { slot, from: at(self.observed, slot), to })
            .filter(|m| m.from != m.to)
            .collect();
        if self.mode == Mode::Probe {
            objections.extend(self.in_use());
        }
        if self.mode == Mode::Safe {
            for m in &moves {
                let owned = at(self.known.owned, m.slot);
                if owned != m.from {
                    let (device, slot) = (self.device.clone(), m.slot);
                    let (observed, update_helps) = (m.from, true);
                    let drifted =
                        Objection::Drifted { device, slot, observed, owned, update_helps };
                    objections.push(drifted);
                }
            }
        }
        moves
    }

    fn in_use(&self) -> impl Iterator<Item = Objection> {
        let free = self.want.keys().filter(|slot| !self.known.probed.contains(slot));
        free.filter_map(move |&slot| {
            let stands = [at(self.observed, slot), at(self.known.owned, slot)];
            let position = stands.into_iter().find(|at| self.device.leads_out(*at))?;
            Some(Objection::InUse { device: self.device.clone(), slot, position })
        })
    }

    fn object_to_double_use(&self, objections: &mut Vec<Objection>) {
        if self.known.sharing == Sharing::Independent {
            return;
        }
        let mut holder = BTreeMap::new();
        for (&second, &position) in self.want.iter().filter(|(_, p)| !p.is_dark()) {
            if let Some(first) = holder.insert(position, second) {
                let device = self.device.clone();
                objections.push(Objection::Twice { device, position, first, second });
            }
        }
    }

    fn displace(&self, goal: &mut Positions, objections: &mut Vec<Objection>) {
        if self.known.sharing == Sharing::Independent {
            return;
        }
        let wanted: BTreeMap<Position, Slot> =
            goal.iter().filter(|(_, p)| !p.is_dark()).map(|(&slot, &p)| (p, slot)).collect();
        for (&holder, position) in self.observed {
            let Some(&slot) = wanted.get(position) else { continue };
            if goal.contains_key(&holder) {
                continue;
            }
            if matches!(self.mode, Mode::Safe | Mode::Probe) {
                let (device, position) = (self.device.clone(), *position);
                let update_helps = true;
                objections.push(Objection::Foreign {
                    device,
                    slot,
                    position,
                    holder,
                    update_helps,
                });
            } else {
                goal.insert(holder, Position::DARK);
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<Move>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Move>,
}

impl Step {
    pub fn of(sharing: Sharing, moves: &[Move]) -> Self {
        if sharing == Sharing::Independent {
            return Self { remove: Vec::new(), add: moves.to_vec() };
        }
        let lit = moves.iter().filter(|m| !m.from.is_dark());
        let remove = lit.map(|m| Move { to: Position::DARK, ..*m });
        let wanted = moves.iter().filter(|m| !m.to.is_dark());
        let add = wanted.map(|m| Move { from: Position::DARK, ..*m });
        Self { remove: remove.collect(), add: add.collect() }
    }

    pub fn end(&self) -> Positions {
        self.remove.iter().chain(&self.add).map(|m| (m.slot, m.to)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(pairs: &[(u32, u32)]) -> Positions {
        pairs.iter().map(|&(s, p)| (Slot(s), Position(p))).collect()
    }

    fn diff(
        owned: &[(u32, u32)],
        observed: &[(u32, u32)],
        want: &[(u32, u32)],
        mode: Mode,
    ) -> Result<Vec<Move>, Vec<Objection>> {
        let owned = positions(owned);
        let observed = Observation { positions: positions(observed), ..Default::default() };
        let target = SwitchState::from([("o".into(), positions(want))]);
        let known = Known {
            sharing: Sharing::Exclusive,
            owned: &owned,
            probed: &BTreeSet::new(),
            observed: Some(&observed),
            trouble: None,
        };
        difference(&target, mode, |_| Some(known))
            .map(|changes| changes.into_values().flatten().collect())
    }

    #[test]
    fn safe_mode_refuses_drift_and_foreign_light() {
        let drifted = diff(&[(1, 11)], &[(1, 12)], &[(1, 13)], Mode::Safe).unwrap_err();
        assert!(matches!(drifted[..], [Objection::Drifted { .. }]), "{drifted:?}");
        let foreign = diff(&[], &[(9, 11)], &[(1, 11)], Mode::Safe).unwrap_err();
        assert!(matches!(foreign[..], [Objection::Foreign { .. }]), "{foreign:?}");
        let moves = diff(&[], &[(9, 11), (8, 12)], &[(1, 11)], Mode::Update).unwrap();
        assert_eq!(moves.len(), 2, "slot 9 moves, slot 8 stays: {moves:?}");
        let moves = diff(&[], &[(9, 11), (8, 12)], &[(1, 11)], Mode::Overwrite).unwrap();
        assert_eq!(moves.len(), 3, "slot 8 also moves: {moves:?}");
    }

    #[test]
    fn suggests_update_mode_only_where_it_would_succeed() {
        let (owned, seen) = (positions(&[(0, 1)]), positions(&[(0, 15)]));
        let observed = Observation { positions: seen, ..Default::default() };
        let said = |trouble: Option<&'static str>, unreachable: &str| -> Vec<String> {
            let target: SwitchState =
                ["n1/b0", unreachable].map(|name| (name.into(), positions(&[(0, 2)]))).into();
            let sharing = Sharing::Independent;
            let known = |device: &DeviceName| {
                let observed = (device.as_str() == "n1/b0").then_some(&observed);
                let probed = const { &BTreeSet::new() };
                Some(Known { sharing, owned: &owned, probed, observed, trouble })
            };
            let objections = difference(&target, Mode::Safe, known).unwrap_err();
            objections.iter().map(ToString::to_string).collect()
        };
        let drifted = "n1/b0 group 0: at loopback, but the journal says external-1: restore it with `lightloom ctl \
                       apply --restore`";
        let alone = said(None, "n1/b0");
        assert_eq!(alone, [format!("{drifted}, or apply with `--mode update`")]);
        let dead = "n2/b0: unreachable (no answer in time), so it cannot be read or moved";
        assert_eq!(said(Some("no answer in time"), "n2/b0"), [drifted, dead]);
        let unread = "n2/b0: not read yet, so its positions are unknown";
        assert_eq!(said(None, "n2/b0"), [drifted, unread]);
    }

    #[test]
    fn groups_devices_with_the_same_objection_on_one_line() {
        let drifted = |device: String| Objection::Drifted {
            device: device.as_str().into(),
            slot: Slot(0),
            observed: Position::LOOPBACK,
            owned: Position::DARK,
            update_helps: true,
        };
        let mut all: Vec<Objection> = (0..48).map(|node| drifted(format!("n{node}/b0"))).collect();
        all.push(Objection::Unread { device: "ocs0".into() });
        let expected = [
            "n0/b0, n1/b0, n2/b0, n3/b0, n4/b0, n5/b0 and 42 more: group 0 at loopback, but the journal says dark: \
             adopt its light with `lightloom ctl adopt all`, or apply with `--mode update`",
            "ocs0: not read yet, so its positions are unknown",
        ];
        assert_eq!(in_words(&all), expected);
    }

    #[test]
    fn refuses_a_probe_on_a_circuit_slot() {
        let probe = |sharing, owned: &[(u32, u32)], observed: &[(u32, u32)], probed: &[u32]| {
            let owned = positions(owned);
            let probed = probed.iter().map(|slot| Slot(*slot)).collect();
            let observed = Observation { positions: positions(observed), ..Default::default() };
            let device = if sharing == Sharing::Independent { "n1/b0" } else { "ocs0" };
            let target = SwitchState::from([(device.into(), positions(&[(0, 2)]))]);
            let (observed, trouble) = (Some(&observed), None);
            let known = Known { sharing, owned: &owned, probed: &probed, observed, trouble };
            difference(&target, Mode::Probe, |_| Some(known)).map(|moves| moves.len())
        };
        let module = Sharing::Independent;
        assert_eq!(probe(module, &[], &[(0, 15)], &[]), Ok(1));
        assert_eq!(probe(module, &[(0, 15)], &[(0, 15)], &[]), Ok(1));
        assert_eq!(probe(module, &[(0, 1)], &[(0, 1)], &[0]), Ok(1));
        assert_eq!(probe(Sharing::Exclusive, &[(4, 9)], &[(4, 9)], &[]), Ok(1), "4 stays lit");
        for (owned, observed) in
            [(&[][..], &[(0, 1)][..]), (&[(0, 1)], &[(0, 15)]), (&[(0, 1)], &[])]
        {
            let why = probe(module, owned, observed, &[]).unwrap_err();
            assert!(matches!(why[..], [Objection::InUse { .. }]), "{why:?}");
        }
        let why = probe(Sharing::Exclusive, &[], &[(0, 15)], &[]).unwrap_err();
        assert!(matches!(why[..], [Objection::InUse { .. }]), "port 15 is not a loopback: {why:?}");
        let why = probe(Sharing::Exclusive, &[(4, 2)], &[(4, 2)], &[]).unwrap_err();
        assert!(matches!(why[..], [Objection::Foreign { .. }]), "{why:?}");
    }

    #[test]
    fn keeps_unnamed_circuits_and_removes_own_circuits_outside_the_plan() {
        let moves = diff(&[(1, 11), (2, 12)], &[(1, 11), (2, 12), (7, 17)], &[(1, 11)], Mode::Safe);
        let gone = Move { slot: Slot(2), from: Position(12), to: Position::DARK };
        assert_eq!(moves, Ok(vec![gone]));
    }

    #[test]
    fn refuses_two_slots_at_one_position_before_moving() {
        let error = diff(&[], &[], &[(1, 11), (2, 11)], Mode::Overwrite).unwrap_err();
        assert!(matches!(error[..], [Objection::Twice { .. }]));
    }
}
