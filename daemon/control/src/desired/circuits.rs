// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_fabric::plan::{PhasePlan, Plan, Stage, TransitionPlan};
use lightloom_units::id::OcsId;

use crate::change::{Mode, Moves, Phase, Way};
use crate::state::{DeviceName, Move, Position, Positions, Slot, SwitchState};

pub type Switches = BTreeMap<OcsId, (DeviceName, DevicePorts)>;

const SWITCHES_NAMED: usize = 6;

pub(crate) fn on_switches(switches: &Switches, circuits: &[CrossConnect]) -> SwitchState {
    let mut target: SwitchState =
        switches.values().map(|(device, _)| (device.clone(), Positions::new())).collect();
    target.extend(positions(switches, circuits));
    target
}

pub fn positions(switches: &Switches, circuits: &[CrossConnect]) -> SwitchState {
    let mut positions = SwitchState::new();
    for circuit in circuits {
        let Some((device, ports)) = switches.get(&circuit.ocs) else { continue };
        let slots = positions.entry(device.clone()).or_default();
        slots.extend(ports.ways(circuit).map(|way| (Slot(way.input), Position(way.output))));
    }
    positions
}

pub fn must_have_devices(switches: &Switches, phases: &[PhasePlan]) -> Result<(), Vec<String>> {
    let circuits = phases.iter().flat_map(|phase| &phase.circuits);
    let needed: BTreeSet<OcsId> = circuits.map(|circuit| circuit.ocs).collect();
    let unknown = needed.iter().filter(|ocs| !switches.contains_key(ocs));
    let missing: Vec<String> = unknown.map(ToString::to_string).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let more = missing.len().saturating_sub(SWITCHES_NAMED);
    let mut shown = missing[..missing.len() - more].join(", ");
    if more > 0 {
        shown += &format!(" and {more} more");
    }
    Err(vec![format!(
        "the plan has circuits on switches without a configured device, {shown}; help: add them \
            under `devices:`"
    )])
}

pub fn keeps_held(fabric: &str, held: usize, mode: Mode) -> Result<(), Vec<String>> {
    if mode != Mode::Overwrite || held == 0 {
        return Ok(());
    }
    Err(vec![format!(
        "mode overwrite would cut circuits that belong to other jobs ({held} in the fabric \
            `{fabric}`); help: apply with `--mode update`"
    )])
}

pub(crate) fn has_circuits(plan: &Plan) -> bool {
    plan.phases.iter().any(|phase| !phase.circuits.is_empty())
}

pub fn in_force<'a>(
    switches: &Switches,
    phases: &'a [PhasePlan],
    owned: &SwitchState,
) -> Option<&'a PhasePlan> {
    let lit = switches.values().filter_map(|(device, _)| owned.get(device)).map(Positions::len);
    let lit: usize = lit.sum();
    phases.iter().filter(|phase| !phase.circuits.is_empty()).find(|phase| {
        // A phase request evaluates this several times, so it builds no maps.
        let circuits = phase.circuits.iter();
        let ways = circuits.filter_map(|circuit| Some((switches.get(&circuit.ocs)?, circuit)));
        let mut ways = ways.flat_map(|((device, ports), circuit)| {
            ports.ways(circuit).map(|way| (owned.get(device), way))
        });
        let mut count = 0;
        ways.all(|(owned, way)| {
            count += 1;
            owned.and_then(|owned| owned.get(&Slot(way.input))) == Some(&Position(way.output))
        }) && count == lit
    })
}

pub fn names(phases: &[PhasePlan]) -> String {
    phases.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn wanted_phase(
    switches: &Switches,
    phases: &[PhasePlan],
    transitions: &[TransitionPlan],
    to: &PhasePlan,
) -> Phase {
    let wanted: BTreeSet<_> = to.circuits.iter().collect();
    let into = transitions.iter().filter_map(|transition| {
        let from = phases.iter().find(|phase| phase.name == transition.from)?;
        let end = phases.iter().find(|phase| phase.name == transition.to)?;
        (end.circuits.iter().collect::<BTreeSet<_>>() == wanted).then(|| {
            let stand = positions(switches, &from.circuits);
            let stages = transition.stages.iter().map(|stage| ends(switches, stage));
            (from.name.clone(), way(stand, stages))
        })
    });
    Phase { name: to.name.clone(), ways: into.collect() }
}

pub(super) fn ends(switches: &Switches, stage: &Stage) -> SwitchState {
    let mut ends = positions(switches, &stage.remove);
    for position in ends.values_mut().flat_map(BTreeMap::values_mut) {
        *position = Position::DARK;
    }
    for (device, slots) in positions(switches, &stage.add) {
        ends.entry(device).or_default().extend(slots);
    }
    ends
}

pub(super) fn way(mut stand: SwitchState, stages: impl Iterator<Item = SwitchState>) -> Way {
    let stages = stages.map(|ends| {
        let mut moves = Moves::new();
        for (device, slots) in ends {
            let stand = stand.entry(device.clone()).or_default();
            for (slot, to) in slots {
                let from = stand.insert(slot, to).unwrap_or(Position::DARK);
                if from != to {
                    moves.entry(device.clone()).or_default().push(Move { slot, from, to });
                }
            }
        }
        moves
    });
    stages.filter(|moves| !moves.is_empty()).collect()
}
