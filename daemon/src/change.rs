//! From where slots stand to where they shall stand: the difference, and the waves that get there.
//!
//! [`difference`] says what a target changes and refuses what the mode does not allow.
//! [`waves`] orders moves so that no position is ever held twice (remove, then add) and no failure
//! domain has more dark links at a time than the operator allows.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::state::{DeviceName, Fabric, Move, Observation, Position, Positions, Sharing, Slot, at};

/// How much an apply may disturb. The words are those of SONiC's `config ocs cross-connect`; the
/// default is ours: safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Refuse when a slot stands elsewhere than the journal says or a foreign circuit is in the way.
    #[default]
    Safe,
    /// Move slots the target names from wherever they stand, and darken what is in their way.
    Update,
    /// Make each named device exactly the target: everything else on it goes dark.
    Overwrite,
}

/// What the controller knows of one device when a change is worked out.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// How its positions relate.
    pub sharing: Sharing,
    /// What the journal says we set.
    pub owned: &'a Positions,
    /// What it last said about itself; `None` when it has not been read since it came up.
    pub observed: Option<&'a Observation>,
    /// Why it cannot be talked to.
    pub trouble: Option<&'a str>,
}

/// Why a target cannot be applied; each names a device and a way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Objection {
    #[error("{device}: not configured here")]
    NoDevice { device: DeviceName },
    #[error("{device}: cannot be talked to ({trouble}), so it can be neither read nor moved")]
    Down { device: DeviceName, trouble: String },
    #[error("{device}: not read yet, so nothing is known to change from")]
    Unread { device: DeviceName },
    #[error(
        "{device} {}: stands at {}, but the journal says {}: take what is lit as ours with `lightloom ctl \
         adopt {device}`{}",
        .device.slot(*.slot), .device.place(*.observed), .device.place(*.owned), or_update(*.update_helps)
    )]
    Drifted {
        device: DeviceName,
        slot: Slot,
        observed: Position,
        owned: Position,
        /// Nothing else stands against mode update.
        update_helps: bool,
    },
    #[error(
        "{device} {}: {} is held by {}, which is not ours: free it{}",
        .device.slot(*.slot), .device.place(*.position), .device.slot(*.holder), or_update(*.update_helps)
    )]
    Foreign {
        device: DeviceName,
        slot: Slot,
        position: Position,
        holder: Slot,
        /// Nothing else stands against mode update.
        update_helps: bool,
    },
    #[error(
        "{device}: {} is wanted by {} and {}",
        .device.place(*.position), .device.slot(*.first), .device.slot(*.second)
    )]
    Twice { device: DeviceName, position: Position, first: Slot, second: Slot },
}

fn or_update(helps: bool) -> &'static str {
    if helps { ", or apply with `--mode update`" } else { "" }
}

impl Objection {
    /// Whether mode update would not object so.
    fn is_of_mode_safe(&self) -> bool {
        matches!(self, Self::Drifted { .. } | Self::Foreign { .. })
    }

    /// Nothing is offered that would be refused, too: a device that does not answer stands against every mode.
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

/// The moves that bring each device of `target` from where it stands to where it shall stand, or
/// every reason why not.
///
/// A slot that we own and the target's device does not name goes dark; a foreign slot stays.
///
/// # Errors
/// All objections at once, device by device.
pub fn difference<'a>(
    target: &Fabric,
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
        let mut goal: Positions = self.known.owned.keys().map(|&s| (s, Position::DARK)).collect();
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

    /// Slots outside the goal that hold a position the goal wants.
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
            if self.mode == Mode::Safe {
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

/// What happens on one device in one wave: these go dark, then these come up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Moves whose slot must go dark first: its position changes hands, or it ends dark.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<Move>,
    /// Moves to a lit position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<Move>,
}

impl Step {
    /// The step that performs `moves` at once on one device.
    #[must_use]
    pub fn of(sharing: Sharing, moves: &[Move]) -> Self {
        let dark = |m: &Move| Move { to: Position::DARK, ..*m };
        match sharing {
            Sharing::Independent => Self { remove: Vec::new(), add: moves.to_vec() },
            Sharing::Exclusive => Self {
                remove: moves.iter().filter(|m| !m.from.is_dark()).map(dark).collect(),
                add: moves
                    .iter()
                    .filter(|m| !m.to.is_dark())
                    .map(|m| Move { from: Position::DARK, ..*m })
                    .collect(),
            },
        }
    }

    /// Where the step leaves every slot it names.
    #[must_use]
    pub fn end(&self) -> Positions {
        self.remove.iter().chain(&self.add).map(|m| (m.slot, m.to)).collect()
    }
}

/// One wave: the steps of several devices that may run at the same time.
pub type Wave = BTreeMap<DeviceName, Step>;

/// Where links share fate, and how many of them may be dark at a time.
pub trait Domains {
    /// The failure domain of a slot.
    fn domain(&self, device: &DeviceName, slot: Slot) -> String;
    /// The most links of one domain that may be dark at a time; at least 2.
    fn dark_links_max(&self) -> usize;
    /// How the positions of the device relate.
    fn sharing(&self, device: &DeviceName) -> Sharing;
}

/// Cuts `changes` into waves.
///
/// Within a wave every move's new position is free once the wave's removals are done, so the end
/// of a wave is always a valid state. A cycle longer than the bound is opened by parking one slot
/// in the dark for a wave. A link that comes up from dark costs nothing.
#[must_use]
pub fn waves(changes: &BTreeMap<DeviceName, Vec<Move>>, domains: &impl Domains) -> Vec<Wave> {
    let mut planner = WavePlanner::new(changes, domains);
    let mut waves = Vec::new();
    while planner.left() {
        waves.push(planner.next_wave());
    }
    waves
}

type Key = (DeviceName, Slot);

struct WavePlanner<'a, D> {
    domains: &'a D,
    /// Moves still to do, with `from` kept up to date (a parked slot is at dark).
    pending: BTreeMap<Key, Move>,
    /// Who holds a position on an exclusive device, among pending slots.
    holder: BTreeMap<(DeviceName, Position), Slot>,
    /// Links dark from an earlier wave, waiting for their new position.
    parked: BTreeMap<String, usize>,
}

impl<'a, D: Domains> WavePlanner<'a, D> {
    fn new(changes: &BTreeMap<DeviceName, Vec<Move>>, domains: &'a D) -> Self {
        let mut pending = BTreeMap::new();
        let mut holder = BTreeMap::new();
        for (device, moves) in changes {
            for &m in moves {
                if !m.from.is_dark() && domains.sharing(device) == Sharing::Exclusive {
                    holder.insert((device.clone(), m.from), m.slot);
                }
                pending.insert((device.clone(), m.slot), m);
            }
        }
        Self { domains, pending, holder, parked: BTreeMap::new() }
    }

    fn left(&self) -> bool {
        !self.pending.is_empty()
    }

    fn next_wave(&mut self) -> Wave {
        let mut dark = self.parked.clone();
        let mut chosen: BTreeSet<Key> = BTreeSet::new();
        let keys: Vec<Key> = self.pending.keys().cloned().collect();
        for key in keys {
            if chosen.contains(&key) {
                continue;
            }
            let closure = self.closure(&key, &chosen);
            if self.darken(&closure, &mut dark) {
                chosen.extend(closure);
            }
        }
        if chosen.is_empty() { self.park_one() } else { self.take(&chosen) }
    }

    /// `key` and every pending move that must clear the way for it, but for those already chosen.
    fn closure(&self, key: &Key, chosen: &BTreeSet<Key>) -> BTreeSet<Key> {
        let mut closure = BTreeSet::new();
        let mut next = Some(key.clone());
        while let Some(key) = next {
            if chosen.contains(&key) || closure.contains(&key) {
                break;
            }
            let to = self.pending[&key].to;
            let in_the_way = self.holder.get(&(key.0.clone(), to)).copied();
            next = in_the_way.map(|slot| (key.0.clone(), slot)).filter(|_| !to.is_dark());
            closure.insert(key);
        }
        closure
    }

    /// Counts the links of `keys` that go dark; false and unchanged when a domain would exceed
    /// its bound.
    fn darken(&self, keys: &BTreeSet<Key>, dark: &mut BTreeMap<String, usize>) -> bool {
        let mut more = BTreeMap::<String, usize>::new();
        for (device, slot) in keys {
            if !self.pending[&(device.clone(), *slot)].from.is_dark() {
                *more.entry(self.domains.domain(device, *slot)).or_default() += 1;
            }
        }
        let bound = self.domains.dark_links_max().max(1);
        let fits = more.iter().all(|(d, n)| dark.get(d).copied().unwrap_or(0) + n <= bound);
        if fits {
            for (domain, count) in more {
                *dark.entry(domain).or_default() += count;
            }
        }
        fits
    }

    fn take(&mut self, chosen: &BTreeSet<Key>) -> Wave {
        let mut moves = BTreeMap::<DeviceName, Vec<Move>>::new();
        for key in chosen {
            let Some(m) = self.pending.remove(key) else { continue };
            let position = (key.0.clone(), m.from);
            if self.holder.get(&position) == Some(&key.1) {
                self.holder.remove(&position);
            } else if m.from.is_dark() {
                self.unpark(key);
            }
            moves.entry(key.0.clone()).or_default().push(m);
        }
        moves
            .into_iter()
            .map(|(device, moves)| {
                let step = Step::of(self.domains.sharing(&device), &moves);
                (device, step)
            })
            .collect()
    }

    /// Opens a cycle that is longer than the bound: its first slot goes dark and waits.
    fn park_one(&mut self) -> Wave {
        let lit = |m: &&mut Move| !m.from.is_dark();
        let (device, m) = self
            .pending
            .iter_mut()
            .map(|(key, m)| (key.0.clone(), m))
            .find(|(_, m)| lit(m))
            .expect("a wave that fits nothing holds a move from a lit position");
        let remove = vec![Move { to: Position::DARK, ..*m }];
        self.holder.remove(&(device.clone(), m.from));
        m.from = Position::DARK;
        let domain = self.domains.domain(&device, m.slot);
        *self.parked.entry(domain).or_default() += 1;
        Wave::from([(device, Step { remove, add: Vec::new() })])
    }

    fn unpark(&mut self, (device, slot): &Key) {
        if let Some(count) = self.parked.get_mut(&self.domains.domain(device, *slot)) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct OneDomain(usize);
    impl Domains for OneDomain {
        fn domain(&self, _: &DeviceName, _: Slot) -> String {
            "all".into()
        }
        fn dark_links_max(&self) -> usize {
            self.0
        }
        fn sharing(&self, _: &DeviceName) -> Sharing {
            Sharing::Exclusive
        }
    }

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
        let target = Fabric::from([("o".into(), positions(want))]);
        let known = Known {
            sharing: Sharing::Exclusive,
            owned: &owned,
            observed: Some(&observed),
            trouble: None,
        };
        difference(&target, mode, |_| Some(known))
            .map(|changes| changes.into_values().flatten().collect())
    }

    #[test]
    fn safe_refuses_drift_and_foreign_light_and_update_does_not() {
        let drifted = diff(&[(1, 11)], &[(1, 12)], &[(1, 13)], Mode::Safe).unwrap_err();
        assert!(matches!(drifted[..], [Objection::Drifted { .. }]), "{drifted:?}");
        let foreign = diff(&[], &[(9, 11)], &[(1, 11)], Mode::Safe).unwrap_err();
        assert!(matches!(foreign[..], [Objection::Foreign { .. }]), "{foreign:?}");
        let moves = diff(&[], &[(9, 11), (8, 12)], &[(1, 11)], Mode::Update).unwrap();
        assert_eq!(moves.len(), 2, "slot 9 makes way, slot 8 stays: {moves:?}");
        let moves = diff(&[], &[(9, 11), (8, 12)], &[(1, 11)], Mode::Overwrite).unwrap();
        assert_eq!(moves.len(), 3, "slot 8 goes too: {moves:?}");
    }

    #[test]
    fn mode_update_is_offered_only_where_it_would_be_accepted() {
        let (owned, seen) = (positions(&[(0, 1)]), positions(&[(0, 15)]));
        let observed = Observation { positions: seen, ..Default::default() };
        let said = |trouble: Option<&'static str>, silent: &str| -> Vec<String> {
            let target: Fabric =
                ["n1/b0", silent].map(|name| (name.into(), positions(&[(0, 2)]))).into();
            let sharing = Sharing::Independent;
            let known = |device: &DeviceName| {
                let observed = (device.as_str() == "n1/b0").then_some(&observed);
                Some(Known { sharing, owned: &owned, observed, trouble })
            };
            let objections = difference(&target, Mode::Safe, known).unwrap_err();
            objections.iter().map(ToString::to_string).collect()
        };
        let drifted = "n1/b0 group 0: stands at loopback, but the journal says external-1: take what is lit as \
                       ours with `lightloom ctl adopt n1/b0`";
        let alone = said(None, "n1/b0");
        assert_eq!(alone, [format!("{drifted}, or apply with `--mode update`")]);
        let dead =
            "n2/b0: cannot be talked to (no answer in time), so it can be neither read nor moved";
        assert_eq!(said(Some("no answer in time"), "n2/b0"), [drifted, dead]);
        let unread = "n2/b0: not read yet, so nothing is known to change from";
        assert_eq!(said(None, "n2/b0"), [drifted, unread]);
    }

    #[test]
    fn circuits_not_named_stay_and_ours_that_left_the_plan_go_dark() {
        let moves = diff(&[(1, 11), (2, 12)], &[(1, 11), (2, 12), (7, 17)], &[(1, 11)], Mode::Safe);
        let gone = Move { slot: Slot(2), from: Position(12), to: Position::DARK };
        assert_eq!(moves, Ok(vec![gone]));
    }

    #[test]
    fn one_position_for_two_slots_is_refused_before_any_device_is_touched() {
        let error = diff(&[], &[], &[(1, 11), (2, 11)], Mode::Overwrite).unwrap_err();
        assert!(matches!(error[..], [Objection::Twice { .. }]));
    }

    /// Plays waves on a plain map and checks every state in between.
    fn play(start: &Positions, waves: &[Wave], dark_max: usize) -> Positions {
        let mut state = start.clone();
        for wave in waves {
            let step = &wave[&DeviceName::from("o")];
            for m in &step.remove {
                assert_eq!(at(&state, m.slot), m.from);
                state.remove(&m.slot);
            }
            let dark = start.keys().filter(|slot| !state.contains_key(slot)).count();
            assert!(dark <= dark_max.max(2), "{dark} dark, at most {dark_max}");
            for m in &step.add {
                assert!(!state.values().any(|p| *p == m.to), "{} held twice", m.to);
                assert_eq!(at(&state, m.slot), Position::DARK);
                state.insert(m.slot, m.to);
            }
        }
        state
    }

    proptest! {
        #[test]
        fn any_permutation_gets_there_without_double_use_and_within_the_bound(
            seed in any::<u64>(), size in 1_u32..24, dark_max in 2_usize..8,
        ) {
            use rand::{RngExt, seq::SliceRandom};
            let mut stream = lightloom_units::seed::Seed(seed).stream("permutation", 0);
            let mut to: Vec<u32> = (100..100 + size).collect();
            to.shuffle(&mut stream);
            let start: Positions = (0..size)
                .filter(|_| stream.random_bool(0.9))
                .map(|s| (Slot(s), Position(100 + s)))
                .collect();
            let moves: Vec<Move> = (0..size)
                .map(|s| Move {
                    slot: Slot(s),
                    from: at(&start, Slot(s)),
                    to: Position(to[s as usize]),
                })
                .filter(|m| m.from != m.to)
                .collect();
            let wanted: Positions = (0..size).map(|s| (Slot(s), Position(to[s as usize]))).collect();
            let changes = BTreeMap::from([(DeviceName::from("o"), moves.clone())]);
            let waves = waves(&changes, &OneDomain(dark_max));
            let end = play(&start, &waves, dark_max);
            prop_assert_eq!(end, wanted);
        }
    }
}
