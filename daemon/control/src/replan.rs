// SPDX-License-Identifier: Apache-2.0
//! Computes the plan after a fault or a repair, and when to try it again. The checker verifies each
//! plan before use. [`policy`](crate::policy) makes the change that bypasses the failed parts.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::khop::Port;
use lightloom_fabric::plan::Plan;
pub use lightloom_fabric::plan::digest as sha256_of;
use lightloom_planner::check;
use lightloom_planner::joint::{self, Bounds, Options};
use lightloom_planner::khop::{MovedForOthers, from_document};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::Seed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::drive::Verdict;
use crate::ledger::Past;
use crate::record::{Cause, TxnResult};
use crate::state::Micros;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MayMove {
    pub groups: MoveGroups,
    pub max_healthy_circuits: Option<u32>,
}

/// Healthy rings that an automatic bypass may move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "MoveGroupsFile")]
pub enum MoveGroups {
    /// No healthy rings. A bypass reduces the number of GPUs in service instead.
    Never,
    /// Rings of the stopped job.
    #[default]
    OwnJob,
    /// Rings of the stopped job, after an operator accepts with `ctl fault`.
    Ask,
}

impl MayMove {
    pub fn asks(&self, failed: &[Part], moved: &MovedForOthers) -> Option<String> {
        let policy = match (self.groups, self.max_healthy_circuits) {
            (MoveGroups::Ask, _) if moved.rings > 0 => "move_groups: ask".to_owned(),
            (_, Some(most)) if moved.circuits > most => format!("max_healthy_circuits: {most}"),
            _ => return None,
        };
        let (what, parts) = (said(moved)?, failed.iter().map(ToString::to_string));
        let parts = parts.collect::<Vec<String>>().join(" ");
        Some(format!("{what} (`{policy}`); accept it with: lightloom ctl fault {parts}"))
    }
}

pub fn said(moved: &MovedForOthers) -> Option<String> {
    (*moved != MovedForOthers::default()).then(|| moved.to_string())
}

#[derive(Clone, Debug)]
pub struct NextPlan {
    pub plan: Plan,
    pub moved: MovedForOthers,
}

pub fn next_plan(
    fabric: &Fabric,
    plan: &Plan,
    failed: &[Part],
    repaired: &[Part],
) -> Result<Plan, Vec<String>> {
    let next = next_plan_within(fabric, plan, failed, repaired, &Bounds::default())?;
    Ok(next.plan)
}

pub fn next_plan_within(
    fabric: &Fabric,
    plan: &Plan,
    failed: &[Part],
    repaired: &[Part],
    bounds: &Bounds,
) -> Result<NextPlan, Vec<String>> {
    let (_, mut faults) = from_document(fabric, plan).map_err(reason)?;
    for part in failed {
        faults.insert(fabric, *part).map_err(reason)?;
    }
    for part in repaired {
        faults.remove(fabric, *part).map_err(reason)?;
        if let Part::Node(node) = part {
            faults.bundles.retain(|bundle| bundle.node != *node);
        }
    }
    let is_repair = !repaired.is_empty();
    let replanned =
        joint::replan_within(fabric, plan, &faults, is_repair, bounds, options(plan.seed));
    let next = replanned.map_err(reason)?;
    Ok(NextPlan { plan: proven(fabric, &faults, next.plan)?, moved: next.change.moved })
}

fn reason(error: impl std::fmt::Display) -> Vec<String> {
    vec![error.to_string()]
}

/// Returns `first` or, if it reduces a job's GPUs, a plan that loses fewer. That plan moves as few
/// healthy groups as possible, only groups that `groups` permits, and does not cut light of other
/// jobs. `open` lists nodes without their planned light, whose rings can move at no cost.
pub fn or_moving_what_stands_still(
    fabric: &Fabric,
    plan: &Plan,
    failed: &[Part],
    open: BTreeSet<NodeId>,
    first: NextPlan,
    groups: MoveGroups,
) -> Result<NextPlan, Vec<String>> {
    if first.plan.metrics.gpus_used >= plan.metrics.gpus_used {
        return Ok(first);
    }
    let hit = plan.groups.iter().filter(|group| {
        let mut nodes = group.nodes.iter().chain(&group.passing);
        nodes.any(|node| failed.iter().any(|part| part.node() == Some(*node)))
    });
    let moves = match groups {
        MoveGroups::Never => BTreeSet::new(),
        MoveGroups::OwnJob | MoveGroups::Ask => hit.filter_map(|group| group.job).collect(),
    };
    let bounds = Bounds { moves: Some(moves), open, ..Bounds::default() };
    Ok(match next_plan_within(fabric, plan, failed, &[], &bounds) {
        Ok(wider) if wider.plan.metrics.gpus_used > first.plan.metrics.gpus_used => wider,
        _ => first,
    })
}

fn options(seed: Seed) -> Options {
    Options { compare: false, seed, ..Options::default() }
}

pub fn plan_anew(fabric: &Fabric, faults: &FaultSet, seed: Seed) -> Result<Plan, Vec<String>> {
    let plan = joint::plan(fabric, faults, options(seed)).map_err(reason)?;
    proven(fabric, faults, plan)
}

fn proven(fabric: &Fabric, faults: &FaultSet, plan: Plan) -> Result<Plan, Vec<String>> {
    match check::check(fabric, faults, &plan) {
        Ok(_) => Ok(plan),
        Err(violations) => Err(violations.iter().take(20).map(ToString::to_string).collect()),
    }
}

pub(crate) fn is_news(fabric: &Fabric, known: &FaultSet, part: Part) -> bool {
    let covered = match part {
        Part::Node(_) | Part::Ocs(_) | Part::Uplink(_) => false,
        Part::OcsPort(port) => known.switches.contains(&port.ocs),
        Part::Bundle(bundle) | Part::Fibre(Port { bundle, .. }) => {
            known.nodes.contains(&bundle.node) || known.bundles.contains(&bundle)
        }
    };
    !covered && known.clone().insert(fabric, part).unwrap_or(false)
}

pub fn is_inside(part: &str, whole: &str) -> bool {
    part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
}

/// Delays before retries of a bypass. They grow with each failure, separately for each set of
/// parts, so that a part that cannot be bypassed does not delay the bypass of others.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    tried: BTreeMap<Vec<Part>, (u32, Micros)>,
    regions: BTreeMap<NodeId, Micros>,
}

impl Backoff {
    const FIRST: Micros = Micros::from_secs(1);
    const LAST: Micros = Micros::from_secs(1_800);
    const REGION: Micros = Micros::from_secs(1);

    pub(crate) fn not_before(&self, parts: &[Part]) -> Micros {
        let tried = self.tried.get(parts).map_or(Micros::default(), |(_, at)| *at);
        let regions = parts.iter().map(|part| {
            let until = part.node().and_then(|node| self.regions.get(&node));
            until.copied().unwrap_or_default()
        });
        tried.max(regions.min().unwrap_or_default())
    }

    pub fn tried(&mut self, parts: &[Part], now: Micros) {
        let (tries, at) = self.tried.entry(parts.to_vec()).or_default();
        let wait = Self::FIRST.0.saturating_mul(8u64.saturating_pow(*tries));
        *at = now + Micros(wait.min(Self::LAST.0));
        *tries += 1;
        self.regions.retain(|_, until| *until > now);
        self.regions.extend(
            parts.iter().filter_map(|part| part.node()).map(|node| (node, now + Self::REGION)),
        );
    }

    pub fn not_begun(&mut self, parts: &[Part], now: Micros, again_in: Micros) {
        if let Some((tries, at)) = self.tried.get_mut(parts) {
            *tries = tries.saturating_sub(1);
            *at = now + again_in.max(Self::FIRST);
        }
    }

    pub fn retry_without_delay(&mut self) {
        let first = self.tried.iter_mut().filter(|(_, (tries, _))| *tries == 1);
        for (parts, (_, at)) in first {
            *at = Micros::default();
            parts.iter().filter_map(|part| part.node()).for_each(|node| {
                self.regions.remove(&node);
            });
        }
    }

    pub fn due(&self) -> impl Iterator<Item = Micros> {
        self.tried.values().map(|(_, at)| *at).chain(self.regions.values().copied())
    }

    pub fn forget(&mut self) {
        self.tried.clear();
    }
}

pub(crate) fn names_suspect(past: &Past) -> bool {
    past.result == TxnResult::RolledBack
        && !suspects(std::iter::once(past), 0, |_, _| Some(1)).is_empty()
}

pub(crate) fn suspects<'a>(
    history: impl Iterator<Item = &'a Past>,
    since_ms: u64,
    path: impl Fn(&str, BundleId) -> Option<u8>,
) -> BTreeMap<Part, String> {
    let failed = history
        .filter(|past| !matches!(past.cause, Cause::Deferred(_)))
        .take_while(|past| past.cause == Cause::Bypass && past.result != TxnResult::Committed)
        .take_while(|past| past.wall_ms >= since_ms);
    let mut suspects = BTreeMap::new();
    for past in failed.filter(|past| past.result != TxnResult::Aborted) {
        let failed = past.ends.iter().filter_map(|(device, end)| {
            // A device that did not answer, or that was never fired, may be healthy.
            let is_evidence = !matches!(end.verdict, Verdict::Unknown | Verdict::Untouched);
            let bundle = device.bundle()?;
            (!end.detail.is_empty() && is_evidence).then_some((bundle, end))
        });
        // If an end reports only missing light, the other end is usually the cause.
        let (unlit, other): (Vec<_>, Vec<_>) = failed.partition(|(_, end)| end.unlit);
        for (bundle, end) in if other.is_empty() { unlit } else { other } {
            let why = format!("suspect: bypass {} failed there: {}", past.txn, end.detail);
            let part = match end.unlit {
                false => Some(Part::Bundle(bundle)),
                true => {
                    path(&past.plan_sha256, bundle).map(|path| Part::Fibre(Port { bundle, path }))
                }
            };
            suspects.extend(part.map(|part| (part, why)));
        }
    }
    suspects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::DeviceEnd;
    use crate::state::Txn;

    #[test]
    fn failed_bypasses_back_off_without_delaying_others() {
        let [one, other]: [Part; 2] = ["n5", "n9/b0"].map(|part| part.parse().expect(part));
        let mut backoff = Backoff::default();
        let mut now = Micros::default();
        let waits = [(); 7].map(|()| {
            backoff.tried(&[one], now);
            let wait = backoff.not_before(&[one]) - now;
            now = now + wait;
            wait.0 / 1_000_000
        });
        assert_eq!(waits, [1, 8, 64, 512, 1_800, 1_800, 1_800]);
        assert_eq!(backoff.not_before(&[one, other]).0, 0, "something else has broken");
        backoff.forget();
        assert!(
            backoff.not_before(&[one]) <= now,
            "a new fault does not wait for earlier attempts"
        );
    }

    #[test]
    fn retries_once_without_delay_after_failing_at_a_suspect() {
        let [one, other]: [Part; 2] = ["n5", "n9/b0"].map(|part| part.parse().expect(part));
        let (mut backoff, now) = (Backoff::default(), Micros::from_secs(7));
        backoff.tried(&[one], now);
        backoff.tried(&[one, other], now);
        backoff.tried(&[one, other], now);
        backoff.retry_without_delay();
        assert_eq!(backoff.not_before(&[one]), Micros(0));
        assert_eq!(backoff.not_before(&[one, other]), now + Micros::from_secs(8));
        backoff.tried(&[one], now);
        backoff.retry_without_delay();
        assert_eq!(backoff.not_before(&[one]), now + Micros::from_secs(8));
    }

    #[test]
    fn delays_only_bypasses_near_a_recent_one() {
        let [one, fibre, other]: [Part; 3] =
            ["n5/b0", "n5/b1.1", "n9/b0"].map(|part| part.parse().expect(part));
        let mut backoff = Backoff::default();
        let now = Micros::from_secs(7);
        backoff.tried(&[one], now);
        backoff.forget();
        assert_eq!(backoff.not_before(&[fibre]), now + Backoff::REGION);
        assert_eq!(backoff.not_before(&[other]), Micros(0));
        assert_eq!(backoff.not_before(&[fibre, other]), Micros(0));
    }

    #[test]
    fn end_belongs_only_to_its_node_bundle_and_fibre() {
        for part in ["n13", "n13/b1", "n13/b1.1"] {
            assert!(is_inside("n13/b1.1", part), "{part}");
        }
        for part in ["n1", "n1/b1", "n13/b0", "n13/b1.2", "n13/b1.11", "n130"] {
            assert!(!is_inside("n13/b1.1", part), "{part}");
        }
    }

    #[test]
    fn failed_and_repaired_node_costs_no_circuit() {
        let text = "kind: fabric\nversion: 2\nname: ring\nhbd: {khop: {nodes: 32, gpus_per_node: 4, k: 2}}\n\
                    jobs:\n  - {name: pretrain, gpus: 96, tp: 16}\n";
        let (fabric, _) = lightloom_fabric::file::load("ring.yaml", text.as_bytes());
        let fabric = fabric.expect("it is one");
        let first = plan_anew(&fabric, &FaultSet::none(), Seed(1)).expect("it fits");
        let lit = |plan: &Plan| {
            plan.transceivers
                .iter()
                .filter(|t| t.path != lightloom_fabric::khop::Path::Loopback)
                .count()
        };
        let mut plan = first.clone();
        for node in (0..32).map(|node| [Part::Node(lightloom_units::id::NodeId(node))]) {
            plan = next_plan(&fabric, &plan, &node, &[]).expect("a bypass exists");
            plan = next_plan(&fabric, &plan, &[], &node).expect("a repair plan exists");
            assert_eq!(lit(&plan), lit(&first), "{node:?}");
        }
    }

    const POD: &str = "kind: fabric\nversion: 2\nname: pod\nhbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}\ndcn:\n  reconfigurable_fat_tree: \
        {leaves: 8, gpus_per_leaf: 8, circuit_rate: 400Gbps, electrical: {rate_per_leaf: 800Gbps, oversubscription: 4}, \
        banks: [{name: core, switches: 2, ports_per_switch: 32, ports_per_leaf: 4}], timing: {switching: 10ms}}\n\
        jobs:\n  - {name: train, gpus: 48, tp: 8, step: {training: \
        {model: llama-3.1-8b, pp: 2, dp: 3, micro_batches: 4, tokens: 4096}}}\n";

    #[test]
    fn plan_around_a_failed_node_keeps_pipeline_ranks_and_circuits() {
        let (pod, _) =
            lightloom_planner::load("pod.yaml", POD.as_bytes(), &mut |_| Err(String::new()));
        let pod = pod.expect("it is one");
        let plan = plan_anew(&pod, &FaultSet::none(), Seed(1)).expect("it fits");
        let stages = |plan: &Plan| plan.ranks.iter().map(|rank| rank.pp).max();
        let lit = |plan: &Plan| plan.phases.iter().map(|phase| phase.circuits.len()).sum::<usize>();
        assert!(stages(&plan) > Some(0) && lit(&plan) > 0, "the plan contains ranks and circuits");
        let dead = Part::Node(lightloom_units::id::NodeId(3));
        let next = next_plan(&pod, &plan, &[dead], &[]).expect("a bypass exists");
        assert_eq!(stages(&next), stages(&plan));
        assert!(lit(&next) > 0, "the new plan still contains circuits");
        assert!(next.transceivers.iter().all(|t| t.bundle.node.0 != 3));
        let back = next_plan(&pod, &next, &[], &[dead]).expect("a repair plan exists");
        assert_eq!(stages(&back), stages(&plan));
    }

    fn tight() -> Fabric {
        let text = "kind: fabric\nversion: 2\nname: ring\nhbd: {khop: {nodes: 18, gpus_per_node: 4, k: 2}}\n\
                    jobs:\n  - {name: pretrain, gpus: 64, tp: 8}\n";
        lightloom_fabric::file::load("ring.yaml", text.as_bytes()).0.expect("it is one")
    }

    #[test]
    fn replicas_of_a_stopped_job_move_before_any_is_given_up() {
        let fabric = tight();
        let mut plan = plan_anew(&fabric, &FaultSet::none(), Seed(1)).expect("it fits");
        for node in ["n7", "n17"] {
            let failed: [Part; 1] = [node.parse().expect("a node")];
            let ends = failed.iter().filter_map(|part| part.node()).collect();
            let bounds = Bounds { cuts_at: Some(ends), ..Bounds::default() };
            let first = next_plan_within(&fabric, &plan, &failed, &[], &bounds).expect("a way");
            let (own, none) = (MoveGroups::OwnJob, BTreeSet::new());
            let next = or_moving_what_stands_still(&fabric, &plan, &failed, none, first, own);
            plan = next.expect("a way").plan;
        }
        assert_eq!(plan.metrics.gpus_used, 64, "the bypass uses as many GPUs as a fresh plan");
    }

    #[test]
    fn policy_decides_which_rings_move_and_when_an_operator_confirms() {
        let fabric = tight();
        let plan = plan_anew(&fabric, &FaultSet::none(), Seed(1)).expect("it fits");
        let plan = next_plan(&fabric, &plan, &["n7".parse().expect("a node")], &[]).expect("a way");
        let failed: [Part; 1] = ["n17".parse().expect("a node")];
        let ends = failed.iter().filter_map(|part| part.node()).collect();
        let bounds = Bounds { cuts_at: Some(ends), ..Bounds::default() };
        let with = |groups| {
            let first = next_plan_within(&fabric, &plan, &failed, &[], &bounds).expect("a way");
            let none = BTreeSet::new();
            or_moving_what_stands_still(&fabric, &plan, &failed, none, first, groups)
                .expect("a way")
        };
        let never = with(MoveGroups::Never);
        assert_eq!((never.plan.metrics.gpus_used, never.moved), (56, MovedForOthers::default()));
        let own = with(MoveGroups::OwnJob);
        assert_eq!(own.plan.metrics.gpus_used, 64);
        let MovedForOthers { rings, circuits, at_least } = own.moved;
        assert!(rings > 0 && circuits > 0 && at_least == rings, "{:?}", own.moved);
        let first = next_plan_within(&fabric, &plan, &failed, &[], &bounds).expect("a way");
        let all = (0..18).map(NodeId).collect();
        let groups = MoveGroups::OwnJob;
        let open = or_moving_what_stands_still(&fabric, &plan, &failed, all, first, groups);
        let open = open.expect("a way");
        let moved = (open.plan.metrics.gpus_used, open.moved);
        assert_eq!(moved, (64, MovedForOthers::default()), "an open ring is not cut again");
        let may = |groups, max_healthy_circuits| MayMove { groups, max_healthy_circuits };
        let asks = |may: MayMove| may.asks(&failed, &own.moved);
        assert_eq!(asks(MayMove::default()), None);
        assert_eq!(asks(may(MoveGroups::OwnJob, Some(circuits))), None);
        let limit = asks(may(MoveGroups::OwnJob, Some(circuits - 1))).expect("a proposal");
        assert!(limit.contains(&format!("max_healthy_circuits: {}", circuits - 1)), "{limit}");
        let ask = asks(may(MoveGroups::Ask, None)).expect("a proposal");
        assert!(ask.ends_with("(`move_groups: ask`); accept it with: lightloom ctl fault n17"));
    }

    #[test]
    fn bypass_does_not_touch_unaffected_jobs() {
        let text = "kind: fabric\nversion: 2\nname: two\nhbd: {khop: {nodes: 18, gpus_per_node: 4, k: 2}}\n\
                    jobs:\n  - {name: a, gpus: 32, tp: 8}\n  - {name: b, gpus: 32, tp: 8}\n";
        let (fabric, _) = lightloom_fabric::file::load("two.yaml", text.as_bytes());
        let fabric = fabric.expect("it is one");
        let first = plan_anew(&fabric, &FaultSet::none(), Seed(1)).expect("it fits");
        let of_others = |plan: &Plan, job| {
            let others = plan.groups.iter().filter(|group| group.job.is_some_and(|own| own != job));
            others.cloned().collect::<Vec<_>>()
        };
        let mut wider = 0;
        for pair in (0..18).flat_map(|a| (0..18).map(move |b| [a, b])).filter(|[a, b]| a != b) {
            let mut plan = first.clone();
            for node in pair.map(NodeId) {
                let failed = [Part::Node(node)];
                let bounds = Bounds { cuts_at: Some([node].into()), ..Bounds::default() };
                let narrow =
                    next_plan_within(&fabric, &plan, &failed, &[], &bounds).expect("a way");
                let (own, none) = (MoveGroups::OwnJob, BTreeSet::new());
                let next = or_moving_what_stands_still(&fabric, &plan, &failed, none, narrow, own);
                let next = next.expect("a way");
                wider += usize::from(next.moved.rings > 0);
                let hit = plan.groups.iter().find(|group| group.nodes.contains(&node));
                if let Some(job) = hit.and_then(|group| group.job) {
                    assert_eq!(of_others(&plan, job), of_others(&next.plan, job), "{pair:?}");
                }
                plan = next.plan;
            }
        }
        assert!(wider > 0, "some bypasses moved rings of the stopped job");
    }

    fn past(result: TxnResult, ends: &[(&str, Verdict, &str, bool)]) -> Past {
        let end = |&(device, verdict, detail, unlit): &(&str, Verdict, &str, bool)| {
            (device.into(), DeviceEnd { verdict, detail: detail.into(), unlit })
        };
        Past {
            txn: Txn(5),
            actor: "policy:fault".into(),
            cause: Cause::Bypass,
            plan_sha256: "next".into(),
            plan_before: String::new(),
            applied_before: String::new(),
            plan_devices_before: None,
            wall_ms: 1_000,
            result,
            ends: ends.iter().map(end).collect(),
            stood_before: BTreeMap::new(),
            confirm_within: None,
            confirmed_ms: None,
            undone_by: None,
            failed_before: BTreeMap::new(),
            failed_after: BTreeMap::new(),
            phase: None,
        }
    }

    #[test]
    fn suspects_the_failed_module_and_not_its_dark_far_end() {
        use TxnResult::{Aborted, Committed, RolledBack};
        let of = |history: &[Past]| -> Vec<String> {
            let path = |plan: &str, _| (plan == "next").then_some(2);
            suspects(history.iter().rev(), 1_000, path)
                .into_iter()
                .map(|(p, w)| format!("{p} {w}"))
                .collect()
        };
        let lied = past(
            RolledBack,
            &[
                ("n10/b0", Verdict::RolledBack, "it said done", false),
                ("n8/b1", Verdict::RolledBack, "slot 0 has -99.0 dBm", true),
                ("n7/b0", Verdict::RolledBack, "", false),
            ],
        );
        assert_eq!(
            of(std::slice::from_ref(&lied)),
            ["n10/b0 suspect: bypass 5 failed there: it said done"]
        );
        let dark = past(RolledBack, &[("n8/b1", Verdict::RolledBack, "slot 0 has", true)]);
        assert_eq!(
            of(std::slice::from_ref(&dark)),
            ["n8/b1.2 suspect: bypass 5 failed there: slot 0 has"]
        );
        assert_eq!(of(&[lied.clone(), dark.clone()]).len(), 2, "all that failed since");
        let unreachable =
            past(Aborted, &[("n9/b0", Verdict::Unknown, "it does not answer", false)]);
        assert_eq!(
            of(&[lied.clone(), unreachable.clone()]).len(),
            1,
            "nothing moved: nobody failed"
        );
        let still = past(RolledBack, &[("n9/b0", Verdict::Untouched, "it is busy", false)]);
        assert_eq!(of(&[still]), [""; 0], "a device that was never fired is not evidence");
        let earlier = Past { wall_ms: 999, ..lied.clone() };
        assert_eq!(of(&[earlier]), [""; 0], "it may have been replaced since");
        let went = past(Committed, &[("n9/b0", Verdict::Applied, "", false)]);
        assert_eq!(of(&[lied, went]), [""; 0]);
    }
}
