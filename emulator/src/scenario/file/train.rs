// SPDX-License-Identifier: Apache-2.0
//! Jobs that train, as a scenario file writes them.

use lightloom_fabric::document::Check;
use lightloom_training::cards;
use lightloom_units::{Picoseconds, SimTime};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{RestartFile, ScenarioFile, codes};
use crate::scenario::{On, RunStart, Scenario, Train, TrainStep};

/// A job of the fabric that trains.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainFile {
    /// The job, one of the fabric with `step: {training: …}`: its model and mapping.
    pub job: String,
    /// How many steps.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 1000))]
    pub steps: u32,
    /// What its GPUs are: an accelerator that comes with lightloom.
    #[serde(default = "h100")]
    pub accelerator: String,
    /// Software whose constants are used, or chip and software, such as h100/nemo-25.02 [default: what the accelerator is
    /// mostly used with].
    #[serde(default)]
    pub constants: Option<String>,
    /// Tokens of a sequence [default: the tokens of a micro-batch].
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub sequence: Option<u32>,
    /// What it does that has lost a node.
    #[serde(default)]
    pub restart: RestartFile,
}

fn once() -> u32 {
    1
}

fn h100() -> String {
    "h100".to_owned()
}

/// The jobs of a file.
pub(super) fn lower(raw: &ScenarioFile, check: &mut Check<'_>) -> Vec<Train> {
    let mut trains = Vec::new();
    for (at, file) in raw.train.iter().enumerate() {
        let path = format!("/train/{at}");
        if raw.train[..at].iter().any(|before| before.job == file.job) {
            let message = format!("job `{}` trains twice", file.job);
            check
                .error(codes::BAD_WORKLOAD, &format!("{path}/job"), message)
                .help("write one of the two, with more `steps`");
        }
        let accelerator = match cards::accelerator(&file.accelerator) {
            Ok(card) => card,
            Err(error) => {
                let path = format!("{path}/accelerator");
                check.error(codes::BAD_WORKLOAD, &path, error.to_string());
                continue;
            }
        };
        trains.push(Train {
            job: file.job.clone(),
            steps: file.steps,
            accelerator,
            constants: file.constants.clone(),
            sequence: file.sequence,
            restart: file.restart.into(),
        });
    }
    refuse_beside(raw, check);
    trains
}

/// Refuses jobs that the fabric and its plan do not have, or that cannot be trained on it.
pub(super) fn require(
    raw: &ScenarioFile,
    scenario: &Scenario,
    start: &RunStart,
    check: &mut Check<'_>,
) {
    for train in &scenario.train {
        let at = raw.train.iter().position(|file| file.job == train.job);
        let path = format!("/train/{}", at.unwrap_or(0));
        if let (On::Fabric(fabric), Some((plan, _))) = (&scenario.on, &start.plan)
            && let Err(error) = TrainStep::of(train, fabric, plan)
        {
            check.error(codes::BAD_WORKLOAD, &path, error.to_string()).depends_on("/on");
        }
    }
}

/// Refuses what the rings and circuits of a job that trains cannot carry beside it.
fn refuse_beside(raw: &ScenarioFile, check: &mut Check<'_>) {
    if raw.train.is_empty() {
        return;
    }
    let beside = [
        ("/collectives", !raw.collectives.is_empty(), "the rings of its jobs carry their steps"),
        ("/phases", raw.phases.is_some(), "its jobs say what they send"),
    ];
    for (key, _, why) in beside.iter().filter(|(_, there, _)| *there) {
        let message = format!("{} does not run beside `train`: {why}", &key[1..]);
        check.error(codes::NO_EFFECT, key, message).help("leave one of the two out");
    }
}

/// When a run of jobs or phases is stopped, where the file does not say: a hundred times what their steps take undisturbed,
/// slack included.
pub(super) fn time_limit(scenario: &Scenario, start: &RunStart) -> SimTime {
    let On::Fabric(fabric) = &scenario.on else { return scenario.time_limit };
    if scenario.ends_at_limit {
        return scenario.time_limit;
    }
    let Some((plan, _)) = &start.plan else { return scenario.time_limit };
    let seconds = |train: &Train| {
        let step = TrainStep::of(train, fabric, plan).ok()?;
        Some(step.closed_form().step_seconds * f64::from(train.steps))
    };
    let phases = scenario.phases.zip(start.circuits.as_ref()).map(|(run, circuits)| {
        let durations = circuits.plan.phases.iter().map(|phase| phase.duration_ps);
        let slack = circuits.phases.iter().map(|phase| phase.slack);
        let step: Picoseconds = durations.chain(slack).sum();
        step.as_secs_f64() * f64::from(run.steps)
    });
    let longest = scenario.train.iter().filter_map(seconds).chain(phases).fold(0.0, f64::max);
    scenario.time_limit.max(SimTime((longest * 1e14) as u64))
}
