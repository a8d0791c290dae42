//! From what happened to the result: what felt which fault, and whether it was as expected.
//!
//! A group felt a fault if it was stopped for it, or if one of its collectives ended at another
//! picosecond than in the run without faults. A group that was moved but not stopped is put down to
//! the last fault before its first moved ending.

use std::collections::BTreeSet;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::id::{GpuId, GroupId, NodeId};
use lightloom_fabric::plan::Metrics;
use lightloom_fabric::units::{Picoseconds, SimTime};
use lightloom_planner::khop::{Layout, to_document};

use super::collectives::bus_factor;
use super::outcome::{
    CollectiveResult, ExpectationResult, FaultResult, FlowRow, Flows, Outcome, Packets, PlanResult,
};
use super::story::{Healing, StepRun, Told};
use super::{Comparison, Expectation, Figure, Scenario, ScenarioError};
use crate::engine::{FlowRecord, VertexId};

/// Refuses expectations about groups that do not exist.
pub(super) fn require_groups(scenario: &Scenario, layout: &Layout) -> Result<(), ScenarioError> {
    let groups = layout.groups.iter().filter(|group| group.job.is_some()).count();
    let missing = scenario.expectations.iter().find_map(|expectation| match expectation {
        Expectation::Unaffected(group) if group.index() >= groups => Some(*group),
        _ => None,
    });
    missing.map_or(Ok(()), |group| Err(ScenarioError::NoSuchGroup { group, groups }))
}

/// The result of a run, given the same run without faults.
pub(super) fn outcome(
    fabric: &Fabric,
    scenario: &Scenario,
    threads: usize,
    told: Told,
    calm: Option<Told>,
) -> Outcome {
    let calm = calm.as_ref().unwrap_or(&told);
    let moved = moved_lanes(&told, calm);
    let metrics = to_document(fabric, &told.faults, scenario.seed, &told.layout).metrics;
    let faults = fault_results(&told, &moved);
    let flows = flow_times(&told);
    let mut outcome = Outcome {
        scenario: scenario.name.clone(),
        fabric_sha256: fabric.sha256.clone(),
        seed: scenario.seed,
        threads,
        wall_seconds: 0.0,
        simulated: told.ended,
        packet_hops: told.packets.hops,
        packet_hops_per_second: 0.0,
        packets: Packets {
            sent: told.packets.sent,
            delivered: told.packets.delivered,
            dropped: told.packets.dropped,
            lost: told.packets.lost,
            in_flight: told.packets.in_flight,
            marked: told.packets.marked,
            retransmitted: told.packets.retransmitted,
        },
        collectives: collective_results(scenario, &told, calm),
        flows,
        faults,
        plan: PlanResult {
            gpus_used: metrics.gpus_used,
            waste_ratio: metrics.waste_ratio,
            waste_ratio_lower_bound: metrics.waste_ratio_lower_bound,
            cross_tor_share: metrics.cross_tor_share,
        },
        expectations: Vec::new(),
        flow_records: flow_rows(fabric, &told),
    };
    let felt = Felt { told: &told, moved: &moved, metrics: &metrics };
    outcome.expectations =
        scenario.expectations.iter().map(|expectation| felt.judge(expectation, &outcome)).collect();
    outcome
}

/// For each lane that did not end everything as in the calm run: when it first differed.
fn moved_lanes(told: &Told, calm: &Told) -> Vec<Option<SimTime>> {
    let differs = |here: &[StepRun], there: &[StepRun]| {
        let pairs = here.iter().zip(there).filter(|(here, there)| here.end != there.end);
        let first = pairs.map(|(here, there)| here.end.or(there.end).unwrap_or(told.ended)).next();
        first.or((here.len() != there.len()).then_some(told.ended))
    };
    let first_difference = |(lane, calm_lane): (&super::story::Lane, &super::story::Lane)| {
        let job = lane.job as usize;
        let between = differs(&told.between[job].steps, &calm.between[job].steps);
        differs(&lane.steps, &calm_lane.steps).into_iter().chain(between).min()
    };
    told.lanes.iter().zip(&calm.lanes).map(first_difference).collect()
}

fn fault_results(told: &Told, moved: &[Option<SimTime>]) -> Vec<FaultResult> {
    let stopped: BTreeSet<usize> =
        told.healings.iter().flat_map(|healing| healing.lanes.clone()).collect();
    let felt_indirectly = |healing: &Healing| -> BTreeSet<usize> {
        let next =
            told.healings.iter().filter(|other| other.at > healing.at).map(|other| other.at).min();
        let mine = |(lane, at): (usize, &Option<SimTime>)| {
            let at = (*at)?;
            let is_mine = at >= healing.at && next.is_none_or(|next| at < next);
            (is_mine && !stopped.contains(&lane)).then_some(lane)
        };
        moved.iter().enumerate().filter_map(mine).collect()
    };
    let result = |healing: &Healing| {
        let lanes: BTreeSet<usize> =
            healing.lanes.union(&felt_indirectly(healing)).copied().collect();
        FaultResult {
            what: healing.part,
            at: healing.at,
            detected: healing.detected,
            replanned: healing.replanned,
            restored: healing.restored,
            bundles_switched: healing.bundles,
            dark: healing.dark,
            gpus_affected: lanes.iter().map(|lane| u64::from(told.lanes[*lane].gpus)).sum(),
            groups_affected: lanes.into_iter().map(GroupId::from_index).collect(),
            gpus_lost: healing.gpus_lost,
        }
    };
    told.healings.iter().map(result).collect()
}

fn collective_results(scenario: &Scenario, told: &Told, calm: &Told) -> Vec<CollectiveResult> {
    let mut results = Vec::new();
    for (index, (lane, calm)) in told.lanes.iter().zip(&calm.lanes).enumerate() {
        let group = Some(GroupId::from_index(index));
        results.extend(results_of(scenario, group, &lane.steps, &calm.steps));
    }
    for (between, calm) in told.between.iter().zip(&calm.between) {
        results.extend(results_of(scenario, None, &between.steps, &calm.steps));
    }
    results
}

fn results_of<'a>(
    scenario: &'a Scenario,
    group: Option<GroupId>,
    steps: &'a [StepRun],
    calm: &'a [StepRun],
) -> impl Iterator<Item = CollectiveResult> + 'a {
    steps.iter().enumerate().map(move |(place, step)| {
        let collective = &scenario.collectives[step.collective];
        let took =
            step.end.map(|end| end.since(step.start)).filter(|took| *took > Picoseconds::ZERO);
        let algbw = took.map_or(0.0, |took| collective.bytes.0 as f64 / took.as_secs_f64());
        CollectiveResult {
            name: collective.name.clone(),
            group,
            kind: collective.kind.name(),
            bytes: collective.bytes,
            start: step.start,
            end: step.end,
            ideal: step.ideal,
            end_without_faults: calm.get(place).and_then(|step| step.end),
            algbw_bytes_per_s: algbw,
            busbw_bytes_per_s: algbw * bus_factor(collective.kind, step.ranks),
            restarts: step.restarts,
        }
    })
}

fn flow_times(told: &Told) -> Flows {
    let mut times: Vec<Picoseconds> =
        told.flows.iter().filter_map(|flow| flow.end.map(|end| end.since(flow.start))).collect();
    times.sort_unstable();
    // Nearest rank: the smallest value that so many of all do not exceed.
    let at = |per_cent: usize| {
        let rank = (times.len() * per_cent).div_ceil(100);
        times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    };
    Flows {
        count: times.len() as u64,
        cancelled: told.flows.iter().filter(|flow| flow.cancelled).count() as u64,
        fct_p50: at(50),
        fct_p99: at(99),
        fct_max: at(100),
    }
}

/// GPUs are the first vertices of the network, in order.
fn flow_rows(fabric: &Fabric, told: &Told) -> Vec<FlowRow> {
    let per_node = fabric.hbd.gpus_per_node();
    let gpu = |vertex: VertexId| GpuId {
        node: NodeId(vertex.0 / u32::from(per_node)),
        gpu: u8::try_from(vertex.0 % u32::from(per_node)).expect("below R"),
    };
    let row = |flow: &FlowRecord| FlowRow {
        source: gpu(flow.source),
        destination: gpu(flow.destination),
        size: flow.size,
        start: flow.start,
        end: flow.end,
    };
    told.flows.iter().map(row).collect()
}

struct Felt<'a> {
    told: &'a Told,
    moved: &'a [Option<SimTime>],
    metrics: &'a Metrics,
}

impl Felt<'_> {
    fn judge(&self, expectation: &Expectation, outcome: &Outcome) -> ExpectationResult {
        let (passed, value, margin) = match expectation {
            Expectation::Figure { figure, comparison, bound } => {
                let value = self.figure(*figure, outcome);
                let margin = comparison.margin(value, *bound);
                let found = format!("{} = {value}", figure.name());
                (comparison.holds(value, *bound), found, Some(margin))
            }
            Expectation::RestoredWithin(span) => self.restored(*span),
            Expectation::CompletesWithin(span) => completes(outcome, *span),
            Expectation::Unaffected(group) => match self.moved[group.index()] {
                None => (
                    true,
                    format!("every completion time of {group} is that of the run without faults"),
                    None,
                ),
                Some(at) => (
                    false,
                    format!("{group} first differs from the run without faults at {at}"),
                    None,
                ),
            },
        };
        let breached_by = self.breached_by(expectation);
        ExpectationResult { expect: expectation.to_string(), passed, value, margin, breached_by }
    }

    fn figure(&self, figure: Figure, outcome: &Outcome) -> f64 {
        let lanes = &self.told.lanes;
        let moved = || (0..lanes.len()).filter(|lane| self.moved[*lane].is_some());
        match figure {
            Figure::WasteRatio => self.metrics.waste_ratio,
            Figure::CrossTorShare => self.metrics.cross_tor_share,
            Figure::GpusUsed => self.metrics.gpus_used as f64,
            Figure::GpusAffected => {
                moved().map(|lane| f64::from(lanes[lane].gpus)).fold(0.0, |a, b| a + b)
            }
            Figure::GroupsAffected => moved().count() as f64,
            Figure::GpusLost => {
                outcome.faults.iter().map(|fault| fault.gpus_lost).sum::<u64>() as f64
            }
            Figure::Drops => outcome.packets.dropped as f64,
            Figure::Retransmissions => outcome.packets.retransmitted as f64,
            Figure::BundlesSwitched => {
                outcome.faults.iter().map(|f| f.bundles_switched).sum::<usize>() as f64
            }
        }
    }

    /// Faults that were not healed in the time an expectation gives them.
    fn breached_by(&self, expectation: &Expectation) -> Vec<usize> {
        let Expectation::RestoredWithin(span) = expectation else { return Vec::new() };
        let late = |healing: &Healing| {
            healing.restored.is_none_or(|restored| restored.since(healing.at) > *span)
        };
        let healings = self.told.healings.iter().enumerate();
        healings.filter(|(_, healing)| late(healing)).map(|(index, _)| index).collect()
    }

    fn restored(&self, span: Picoseconds) -> Found {
        let mut longest = Picoseconds::ZERO;
        for healing in &self.told.healings {
            match healing.restored {
                None => return (false, format!("{} was never healed", healing.part), None),
                Some(at) => longest = longest.max(at.since(healing.at)),
            }
        }
        (longest <= span, format!("the slowest took {longest}"), Some(time_margin(longest, span)))
    }
}

/// Whether an expectation came true, what was found, and how far inside its bound that is.
type Found = (bool, String, Option<f64>);

fn time_margin(took: Picoseconds, bound: Picoseconds) -> f64 {
    Comparison::AtMost.margin(took.as_secs_f64(), bound.as_secs_f64())
}

fn completes(outcome: &Outcome, span: Picoseconds) -> Found {
    let unfinished = outcome.collectives.iter().find(|collective| collective.end.is_none());
    if let Some(collective) = unfinished {
        let group = collective.group.map_or(String::new(), |group| format!(" of {group}"));
        return (false, format!("`{}`{group} never ended", collective.name), None);
    }
    let last = outcome
        .collectives
        .iter()
        .filter_map(|collective| collective.end)
        .max()
        .unwrap_or_default();
    let took = last.since(SimTime::START);
    (took <= span, format!("the last ended at {last}"), Some(time_margin(took, span)))
}
