//! From the plan of a reconfigurable fat-tree to the cross-connects of its switches, phase by phase.
//!
//! A plan is held against the planner's own checker and against the fabric file that the daemon's
//! file names before anything else is made of it.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric as Rings;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_fabric::plan::Plan;
use lightloom_planner::rfabric::RfabricPlan;
use lightloom_planner::rfabric::check::check;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::file::RfabricInput;
use lightloom_planner::rfabric::plan::{PhasePlan, TransitionPlan};
use lightloom_units::id::OcsId;
use serde::Deserialize;
use serde_json::Value;

use super::{NO_FABRIC, short, some};
use crate::change::{Mode, Moves, Phase, Way};
use crate::state::{DeviceName, Fabric, Move, Position, Positions, Slot};

/// The most switches that are named.
const SWITCHES_NAMED: usize = 6;

/// The device of each optical switch, and how it numbers the ports of a plan.
pub type Switches = BTreeMap<OcsId, (DeviceName, DevicePorts)>;

/// A reconfigurable fat-tree with the step that runs on it, and the devices that are its switches.
#[derive(Clone, Debug)]
pub struct FatTree {
    input: RfabricInput,
    switches: Switches,
}

/// What a phase of a plan wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Where slots shall stand.
    pub target: Fabric,
    /// The phase and the stages into it.
    pub phase: Phase,
}

/// What a plan says of itself beside its phases.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    name: String,
    fabric_sha256: String,
}

/// Whether a document is the plan of a reconfigurable fat-tree.
#[must_use]
pub fn is_plan(document: &Value) -> bool {
    document.get("phases").is_some() && document.get("groups").is_none()
}

/// Why the plan of a reconfigurable fat-tree is refused where none is installed.
pub(super) fn no_fat_tree(document: &Value, rings: Option<&Rings>) -> String {
    let phases = document["phases"].as_array().into_iter().flatten();
    let names: Vec<&str> = phases.filter_map(|phase| phase["name"].as_str()).collect();
    let is =
        format!("this is a plan of a reconfigurable fat-tree with the phases {}", names.join(", "));
    match rings {
        Some(rings) => format!("{is}, and the fabric of this daemon, `{}`, has rings", rings.name),
        None => format!("{is}: {NO_FABRIC} with the file that the plan was made from"),
    }
}

impl FatTree {
    /// What is installed, driven by the devices of `switches`, which were checked against it.
    #[must_use]
    pub fn new(input: RfabricInput, switches: Switches) -> Self {
        Self { input, switches }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.input.name
    }

    /// Where every switch shall stand in a phase of this plan, or every reason why not. No device is
    /// asked.
    ///
    /// # Errors
    /// A plan for another fabric, a plan whose check fails, switches without a device, a phase that it
    /// does not have, circuits of other jobs that would be cut.
    pub fn wanted(
        &self,
        document: &Value,
        phase: Option<&str>,
        mode: Mode,
    ) -> Result<Wanted, Vec<String>> {
        let plan = self.proven(document)?;
        self.must_have_devices(&plan)?;
        let names = || plan.phases.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        let chosen = match phase {
            Some(name) => plan.phases.iter().find(|p| p.name == name),
            None if plan.phases.len() == 1 => plan.phases.first(),
            None => {
                return Err(vec![format!("name one of its phases with `--phase`: {}", names())]);
            }
        };
        let Some(chosen) = chosen else {
            return Err(vec![format!("it has no such phase; it has {}", names())]);
        };
        let held = self.input.fabric.spec().held.len();
        if mode == Mode::Overwrite && held > 0 {
            let reason = format!(
                "mode overwrite would cut the circuits that other jobs hold ({held} in the fabric \
                 `{}`): apply with `--mode update`",
                self.name()
            );
            return Err(vec![reason]);
        }
        let mut target: Fabric =
            self.switches.values().map(|(d, _)| (d.clone(), Positions::new())).collect();
        for (device, slots) in self.positions(&chosen.circuits) {
            target.insert(device, slots);
        }
        let phase = Phase { name: chosen.name.clone(), ways: self.ways(&plan, chosen) };
        Ok(Wanted { target, phase })
    }

    /// The plan, once the planner's checker finds nothing wrong with it on this fabric.
    fn proven(&self, document: &Value) -> Result<RfabricPlan, Vec<String>> {
        if !is_plan(document) {
            return Err(vec![format!(
                "this is no plan of the reconfigurable fat-tree `{}`: make one with `lightloom plan FABRIC -o plan.json`",
                self.name()
            )]);
        }
        let no_plan = |error: serde_json::Error| vec![format!("no plan: {error}")];
        let head = Head::deserialize(document).map_err(no_plan)?;
        let plan = Plan::deserialize(document).map_err(no_plan)?;
        let plan = RfabricPlan::of(&plan)
            .ok_or_else(|| vec!["no plan: its metrics lack `step_time_ps`".to_owned()])?;
        let input = &self.input;
        if head.fabric_sha256 != input.sha256 {
            return Err(vec![format!(
                "the plan is for another fabric: `{}` (file {}), and this daemon drives `{}` (file {}); make a plan \
                 for it with `lightloom plan`",
                head.name,
                short(&head.fabric_sha256),
                input.name,
                short(&input.sha256),
            )]);
        }
        let names = plan.phases.iter().zip(&input.phases);
        let renamed = names.filter(|(planned, phase)| planned.name != phase.name);
        let mut findings: Vec<String> = renamed
            .map(|(planned, phase)| {
                format!("phase {}: the fabric file has `{}` there", planned.name, phase.name)
            })
            .collect();
        let demands: Vec<Demand> = input.phases.iter().map(|phase| phase.demand.clone()).collect();
        findings.extend(check(&input.fabric, &demands, &plan));
        if findings.is_empty() { Ok(plan) } else { Err(some(&findings)) }
    }

    fn must_have_devices(&self, plan: &RfabricPlan) -> Result<(), Vec<String>> {
        let circuits = plan.phases.iter().flat_map(|phase| &phase.circuits);
        let switches: BTreeSet<OcsId> = circuits.map(|circuit| circuit.ocs).collect();
        let missing = switches.iter().filter(|ocs| !self.switches.contains_key(ocs));
        let missing: Vec<String> = missing.map(ToString::to_string).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let more = missing.len().saturating_sub(SWITCHES_NAMED);
        let mut shown = missing[..missing.len() - more].join(", ");
        if more > 0 {
            shown += &format!(" and {more} more");
        }
        Err(vec![format!(
            "the plan has circuits on switches for which no device is configured, {shown}: add them under `devices:`"
        )])
    }

    /// Both ways of light of every circuit, in the numbers of its device.
    fn positions(&self, circuits: &[CrossConnect]) -> Fabric {
        let mut positions = Fabric::new();
        for circuit in circuits {
            let Some((device, ports)) = self.switches.get(&circuit.ocs) else { continue };
            let slots = positions.entry(device.clone()).or_default();
            slots.extend(ports.ways(circuit).map(|way| (Slot(way.input), Position(way.output))));
        }
        positions
    }

    /// The stages that the plan has into the circuits of `to`.
    fn ways(&self, plan: &RfabricPlan, to: &PhasePlan) -> Vec<(String, Way)> {
        let named = |name: &str| plan.phases.iter().find(|phase| phase.name == name);
        let circuits = |phase: &PhasePlan| phase.circuits.iter().copied().collect::<BTreeSet<_>>();
        let wanted = circuits(to);
        let into = plan.transitions.iter().filter_map(|transition| {
            let (from, end) = (named(&transition.from)?, named(&transition.to)?);
            (circuits(end) == wanted)
                .then(|| (from.name.clone(), self.way(self.positions(&from.circuits), transition)))
        });
        into.collect()
    }

    /// The moves of each stage, from where everything stands before it.
    fn way(&self, mut stand: Fabric, transition: &TransitionPlan) -> Way {
        let stages = transition.stages.iter().map(|stage| {
            let mut ends = self.positions(&stage.remove);
            for position in ends.values_mut().flat_map(BTreeMap::values_mut) {
                *position = Position::DARK;
            }
            for (device, slots) in self.positions(&stage.add) {
                ends.entry(device).or_default().extend(slots);
            }
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
        stages.collect()
    }
}
