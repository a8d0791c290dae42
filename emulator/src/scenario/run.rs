//! A scenario is run: with its faults and, to compare, without.

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::Islands;
use lightloom_engine::transport::Balance;
use lightloom_fabric::fabric::Fabric;

use super::judge;
use super::start::plan;
use super::{Effect, Installed, Outcome, Progress, Scenario, ScenarioError, Start, Strike, story};

/// Plans `fabric` and runs `scenario` on it, with its faults and without.
///
/// # Errors
/// If the scenario does not fit the fabric, or no plan can be made.
pub fn run(
    fabric: &Fabric,
    scenario: &Scenario,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Outcome, ScenarioError> {
    let start = plan(fabric, scenario)?;
    run_from(
        fabric,
        scenario,
        &start,
        Settings { threads, watch: Watch::default(), sharing: Sharing::Reuse },
        progress,
    )
    .map(|finished| finished.outcome)
}

/// Runs `scenario` from its start on, with its faults and without.
///
/// # Errors
/// If a later plan cannot be made, or the engine refuses something.
pub fn run_from(
    fabric: &Fabric,
    scenario: &Scenario,
    start: &Start,
    settings: Settings,
    progress: &mut dyn Progress,
) -> Result<Finished, ScenarioError> {
    judge::require_groups(scenario, &start.layout)?;
    let sharing = settings.sharing(scenario, &start.strikes)?;
    let Settings { threads, watch, .. } = settings;
    let workloads = start.workloads(fabric, scenario);
    let begin = |strikes, watch| story::Beginning {
        workloads: &workloads,
        sharing,
        strikes,
        faults: start.faults.clone(),
        layout: start.layout.clone(),
        watch,
        threads,
    };
    let told = story::tell(fabric, scenario, begin(&start.strikes, watch), progress)?;
    if sharing == Sharing::Proven && told.engine.prove()?.is_none() {
        return Err(ScenarioError::NothingSpared("parts of the run grew together"));
    }
    let undisturbed = if start.strikes.is_empty() {
        None
    } else {
        Some(story::tell(fabric, scenario, begin(&[], Watch::default()), progress)?)
    };
    let strikes = &start.strikes;
    let run = judge::Run { fabric, scenario, workloads: &workloads, strikes, threads };
    Ok(judge::finish(&run, told, undisturbed))
}

/// A run that has come to its end: its result, and the engine to look into.
pub struct Finished {
    /// The result.
    pub outcome: Outcome,
    /// The engine after the run with faults.
    pub engine: Islands<Watch>,
    /// What its links are.
    pub installed: Installed,
}

/// How to run a scenario, besides what it says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// What to look at.
    pub watch: Watch,
    /// Whether equal parts are simulated once; the result does not depend on it.
    pub sharing: Sharing,
}

/// Whether parts of the run that are the same are simulated once; see [`steady`](lightloom_engine::steady).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Where that is exact.
    #[default]
    Reuse,
    /// The same, and the whole is simulated too: every arrival is compared.
    Proven,
    /// Everything is simulated.
    Whole,
}

impl Settings {
    /// Why nothing can be shared, if so: rings of groups can, while nothing is drawn by the name of a link and
    /// nobody looks at single packets.
    fn whole_because(&self, scenario: &Scenario, strikes: &[Strike]) -> Option<&'static str> {
        let hits = |what: fn(&Effect) -> bool| strikes.iter().any(|strike| what(&strike.effect));
        if scenario.collectives.iter().any(|one| one.kind.is_between_groups()) {
            Some("collectives between groups share links")
        } else if !scenario.workloads.is_empty() {
            Some("traffic on the data-centre network shares links")
        } else if hits(|effect| matches!(effect, Effect::BitErrors(_))) {
            Some("bit errors are drawn for each link by itself")
        } else if hits(|effect| matches!(effect, Effect::PauseStorm(_))) {
            Some("pauses spread")
        } else if self.watch.keeps_packets() {
            Some("single packets are looked at")
        } else if scenario.transport.balance != Balance::PerFlow {
            Some("flows take several paths, drawn for each by itself")
        } else {
            None
        }
    }

    /// What can be shared, given whether a proof was asked for.
    fn sharing(&self, scenario: &Scenario, strikes: &[Strike]) -> Result<Sharing, ScenarioError> {
        match (self.whole_because(scenario, strikes), self.sharing) {
            (Some(reason), Sharing::Proven) => Err(ScenarioError::NothingSpared(reason)),
            (Some(_), _) => Ok(Sharing::Whole),
            (None, sharing) => Ok(sharing),
        }
    }
}
