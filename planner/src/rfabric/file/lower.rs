//! From what people wrote to a checked input, with every mistake at its place.

use lightloom_fabric::document::{Check, codes};
use lightloom_fabric::fat_tree::{
    CrossConnect, ElectricalCore, FatTreeSpec, LossBudget, OcsBank, ReconfigurableFatTree,
    SwitchTiming,
};
use lightloom_fabric::id::LeafId;
use lightloom_fabric::seed::Seed;

use super::super::demand::{Demand, DemandError};
use super::super::phases::Phase;
use super::super::plan::Options;
use super::super::rings;
use super::super::workload::card::ModelCard;
use super::super::workload::rl_step::{RlStep, Slack};
use super::super::workload::shapes;
use super::{
    AllReduceFile, BankFile, DcnFile, DemandFile, FatTreeFile, HeldFile, PhaseFile, RfabricFile,
    RfabricInput, RlFile, ShapeFile, StepFile,
};

const FAT_TREE: &str = "/dcn/reconfigurable_fat_tree";

pub(super) fn lower(
    raw: RfabricFile,
    sha256: String,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    check: &mut Check<'_>,
) -> Option<RfabricInput> {
    let DcnFile::ReconfigurableFatTree(fat_tree) = raw.dcn;
    let (leaves, gpus_per_leaf) = (fat_tree.leaves, fat_tree.gpus_per_leaf);
    let fabric = lower_fabric(fat_tree, check)?;
    let phases = match raw.step {
        StepFile::Rl(rl) => lower_rl(rl, gpus_per_leaf, leaves as usize, check)?,
        StepFile::Phases(phases) => lower_phases(phases, &fabric, read, check),
    };
    let options = Options { floor: raw.planning.floor, ..Options::default() };
    (!check.has_errors()).then_some(RfabricInput {
        name: raw.name,
        sha256,
        fabric,
        phases,
        options,
    })
}

fn lower_fabric(raw: FatTreeFile, check: &mut Check<'_>) -> Option<ReconfigurableFatTree> {
    let spec = FatTreeSpec {
        leaves: raw.leaves,
        gpus_per_leaf: raw.gpus_per_leaf,
        gpu_rate: raw.gpu_rate.unwrap_or(raw.circuit_rate).0,
        circuit_rate: raw.circuit_rate.0,
        electrical: ElectricalCore {
            rate_per_leaf: raw.electrical.rate_per_leaf.0,
            oversubscription: raw.electrical.oversubscription,
        },
        banks: raw.banks.into_iter().map(bank).collect(),
        timing: SwitchTiming {
            control: raw.timing.control.0,
            switching: raw.timing.switching.0,
            bring_up: raw.timing.bring_up.0,
        },
        loss: LossBudget {
            budget_db: raw.loss.budget_db,
            path_db: raw.loss.path_db,
            extra_db: raw.loss.extra_db.iter().map(|extra| (extra.leaf, extra.db)).collect(),
        },
        forbidden: raw.forbidden.iter().map(|pair| (pair.a, pair.b)).collect(),
        held: raw.held.into_iter().map(held).collect(),
        failure_domains: raw.failure_domains,
    };
    ReconfigurableFatTree::new(spec)
        .map_err(|problems| {
            for problem in problems {
                let pointer = problem.field.replace(['.', '['], "/").replace(']', "");
                let place = format!("{FAT_TREE}/{pointer}");
                check.error(codes::BAD_VALUE, &place, problem.problem).help(problem.fix);
            }
        })
        .ok()
}

fn bank(raw: BankFile) -> OcsBank {
    OcsBank {
        name: raw.name,
        switches: raw.switches,
        ports_per_switch: raw.ports_per_switch,
        ports_per_leaf: raw.ports_per_leaf,
        insertion_loss_db: raw.insertion_loss_db,
    }
}

fn held(raw: HeldFile) -> CrossConnect {
    CrossConnect { ocs: raw.ocs, a_port: raw.a_port, b_port: raw.b_port, a: raw.a, b: raw.b }
}

fn lower_rl(
    raw: RlFile,
    gpus_per_leaf: u32,
    leaves: usize,
    check: &mut Check<'_>,
) -> Option<Vec<Phase>> {
    let Some(card) = ModelCard::named(&raw.model) else {
        check
            .error(codes::UNKNOWN_WORD, "/step/rl/model", format!("no model `{}`", raw.model))
            .help("write qwen2.5-72b, llama-3.1-405b or deepseek-v3-like");
        return None;
    };
    let step = RlStep {
        card,
        gpus_per_leaf,
        trainer_gpus: raw.trainer_gpus,
        generation_gpus: raw.generation_gpus,
        tp: raw.tp,
        pp: raw.pp,
        ep: raw.ep,
        expert_skew: raw.expert_skew,
        samples: raw.samples,
        tokens_per_sample: raw.tokens_per_sample,
        replica_gpus: raw.replica_gpus,
        tail_replica_gpus: raw.tail_replica_gpus.unwrap_or(raw.replica_gpus),
        migrated_share: raw.migrated_share,
        slack: Slack {
            train: raw.slack.train.0,
            gradients: raw.slack.gradients.0,
            weight_sync: raw.slack.weight_sync.0,
            parallelism_switch: raw.slack.parallelism_switch.0,
        },
        seed: Seed(raw.seed),
    };
    step.phases(leaves)
        .map_err(|error| {
            let place = format!("/step/rl/{}", error.field());
            check.error(codes::BAD_VALUE, &place, error.to_string());
        })
        .ok()
}

fn lower_phases(
    raw: Vec<PhaseFile>,
    fabric: &ReconfigurableFatTree,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    check: &mut Check<'_>,
) -> Vec<Phase> {
    if raw.is_empty() {
        check.error(codes::WRONG_LENGTH, "/step/phases", "the step has no phases");
    }
    let mut phases: Vec<Phase> = Vec::new();
    for (at, phase) in raw.into_iter().enumerate() {
        let place = format!("/step/phases/{at}");
        if phases.iter().any(|other| other.name == phase.name) {
            let message = format!("two phases are called `{}`", phase.name);
            check.error(codes::BAD_VALUE, &format!("{place}/name"), message);
        }
        match lower_demand(phase.demand, fabric, read) {
            Ok(demand) => {
                phases.push(Phase { name: phase.name, demand, slack: phase.slack.0 });
            }
            Err(messages) => {
                for message in messages {
                    check.error(codes::BAD_VALUE, &format!("{place}/demand"), message);
                }
            }
        }
    }
    phases
}

fn lower_demand(
    raw: DemandFile,
    fabric: &ReconfigurableFatTree,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Demand, Vec<String>> {
    let leaves = fabric.leaves();
    let named = |file: &str, errors: Vec<DemandError>| -> Vec<String> {
        errors.into_iter().map(|error| format!("{file}: {error}")).collect()
    };
    let demand = match raw {
        DemandFile::Csv(file) => {
            let text = read(&file).map_err(|error| vec![error])?;
            Demand::from_csv(&text).map_err(|errors| named(&file, errors))?
        }
        DemandFile::Json(file) => {
            let text = read(&file).map_err(|error| vec![error])?;
            Demand::from_json(&text).map_err(|errors| named(&file, errors))?
        }
        DemandFile::Matrix(rows) => {
            Demand::from_numbers(&rows).map_err(|errors| named("matrix", errors))?
        }
        DemandFile::AllReduce(all_reduce) => lower_all_reduce(&all_reduce, fabric)?,
        DemandFile::Shape(ShapeFile::Moe(from)) => shapes::moe(leaves, Seed(from.seed)),
        DemandFile::Shape(ShapeFile::WeightSync(from)) => {
            shapes::weight_sync(leaves, Seed(from.seed))
        }
        DemandFile::Shape(ShapeFile::Dense(from)) => shapes::dense(leaves, Seed(from.seed)),
    };
    demand.must_fit(leaves).map_err(|error| vec![error.to_string()])?;
    if demand.total().0 == 0 {
        return Err(vec![
            "the phase sends nothing; remove it and add its slack to the next".into(),
        ]);
    }
    Ok(demand)
}

fn lower_all_reduce(
    raw: &AllReduceFile,
    fabric: &ReconfigurableFatTree,
) -> Result<Demand, Vec<String>> {
    let there = fabric.spec().leaves;
    let AllReduceFile { first_leaf, leaves, bytes } = *raw;
    if leaves < 2 || u64::from(first_leaf.0) + u64::from(leaves) > u64::from(there) {
        return Err(vec![format!(
            "{leaves} leaves from {first_leaf} on: write at least 2 leaves among leaf0 to leaf{}",
            there - 1
        )]);
    }
    let members: Vec<LeafId> = (first_leaf.0..first_leaf.0 + leaves).map(LeafId).collect();
    let none = Demand::none(fabric.leaves());
    let (strides, _) = rings::plan(fabric, &none, &members, bytes.0, Options::default().effort);
    Ok(rings::demand(fabric.leaves(), &members, bytes.0, &strides))
}
