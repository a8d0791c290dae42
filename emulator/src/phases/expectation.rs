//! What is expected of a phase sequence: the sentences of scenarios that say something here, and whether they
//! came true.

use lightloom_fabric::document::Check;
use lightloom_units::{Picoseconds, SimTime};

use super::Outcome;
use crate::scenario::expectation_file::{Breaks, Ground, lower_expectations};
use crate::scenario::head::share;
use crate::scenario::{
    Expectation, ExpectationResult, FaultResult, Figure, SeedRun, Switches, codes, judge,
};

/// The expectations of a file; what a phase sequence has not is refused.
pub(super) fn lower(raw: &[String], has_faults: bool, check: &mut Check<'_>) -> Vec<Expectation> {
    let switches = Switches::default();
    let breaks = Breaks { anything: has_faults, healable: has_faults };
    // Queues are without bound here: nothing is dropped, whatever its priority.
    let ground = Ground { switches: &switches, breaks, priorities: std::iter::once(0).collect() };
    let expectations = lower_expectations(raw, Some(&ground), check);
    for (index, sentence) in raw.iter().enumerate() {
        let known = match sentence.parse() {
            Ok(Expectation::CompletesWithin(_)) | Err(_) => true,
            Ok(Expectation::Figure { figure, .. }) => matches!(
                figure,
                Figure::Lost | Figure::Retransmissions | Figure::Goodput | Figure::Availability
            ),
            Ok(_) => false,
        };
        if !known {
            let message = "a phase sequence has no groups, workloads, pauses or bounded queues";
            check.error(codes::NO_SUCH_THING, &format!("/expect/{index}"), message).help(
                "write `completes within TIME`, or `packets_lost`, `retransmissions`, `goodput`, `availability` \
                 with a bound",
            );
        }
    }
    expectations
}

/// What came true.
pub(super) fn judge(expectations: &[Expectation], outcome: &Outcome) -> Vec<ExpectationResult> {
    let result = |expected: &Expectation| {
        let (passed, value, margin) = match expected {
            Expectation::CompletesWithin(span) => completes(outcome, *span),
            Expectation::Figure { figure, comparison, bound } => {
                judge::compared(*figure, *comparison, *bound, figure_of(*figure, outcome))
            }
            other => (false, format!("`{other}` says nothing here"), None),
        };
        let expect = expected.to_string();
        ExpectationResult { expect, passed, value, margin, breached_by: Vec::new() }
    };
    expectations.iter().map(result).collect()
}

fn completes(outcome: &Outcome, span: Picoseconds) -> judge::Found {
    let took: Option<Picoseconds> = outcome.steps.iter().map(|step| step.times.packets).sum();
    match took {
        None => (false, "some bytes never arrived".to_owned(), None),
        Some(took) => {
            let margin = judge::time_margin(took, span);
            (took <= span, format!("all steps took {took}"), Some(margin))
        }
    }
}

fn figure_of(figure: Figure, outcome: &Outcome) -> f64 {
    match figure {
        Figure::Lost => outcome.head.packets.lost as f64,
        Figure::Retransmissions => outcome.head.packets.retransmitted as f64,
        Figure::Goodput => outcome.goodput(),
        Figure::Availability => outcome.availability(),
        // Refused where the file is read.
        _ => f64::NAN,
    }
}

impl Outcome {
    /// The time of the steps without faults over theirs with them; 0 where some never ended.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        let sum = |pick: fn(&super::Times) -> Option<Picoseconds>| {
            self.steps.iter().map(|step| pick(&step.times)).sum::<Option<Picoseconds>>()
        };
        let took = sum(|times| times.packets);
        let without = sum(|times| times.packets_without_faults);
        let seconds = took.zip(without).map(|times| (times.0.as_secs_f64(), times.1.as_secs_f64()));
        seconds.map_or(0.0, |(took, without)| share(without, took))
    }

    /// Share of the optical ports' time in which no fault kept them dark or drained.
    #[must_use]
    pub fn availability(&self) -> f64 {
        share(1.0 - self.ports.fault_share, 1.0)
    }

    /// Whether every byte arrived and every expectation came true.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.steps.iter().all(|step| step.times.packets.is_some())
            && self.expectations.iter().all(|expectation| expectation.passed)
    }
}

impl From<&Outcome> for SeedRun {
    fn from(outcome: &Outcome) -> Self {
        let shares = (outcome.availability(), outcome.goodput());
        let faults = outcome.faults.iter().map(in_words).collect();
        Self::new(&outcome.head, outcome.passed(), shares, faults, &outcome.expectations)
    }
}

/// A fault as reports of all kinds of scenarios tell it.
fn in_words(fault: &super::FaultResult) -> FaultResult {
    let when = match (fault.at, fault.repaired) {
        (None, _) => "never reached".to_owned(),
        (Some(at), None) => format!("at {at}, not repaired"),
        (Some(at), Some(repaired)) => format!("at {at}, repaired +{}", repaired.since(at)),
    };
    let delay = fault.delay.map_or("for ever".to_owned(), |delay| delay.to_string());
    let story = format!(
        "{} in {} of step {}, {when}: {} circuits lost, {} leaves affected, {} changes missed, {} packets lost; the run \
         took {delay} longer",
        fault.what,
        fault.phase,
        fault.step,
        fault.circuits_lost,
        fault.leaves_affected.len(),
        fault.changes_missed,
        fault.packets_lost,
    );
    FaultResult {
        what: fault.what.to_string(),
        effect: "down".to_owned(),
        at: fault.at.unwrap_or(SimTime::START),
        detected: None,
        replanned: None,
        restored: fault.repaired,
        bundles_switched: 0,
        dark: None,
        groups_affected: Vec::new(),
        gpus_affected: 0,
        gpus_lost: 0,
        delay: fault.delay,
        traffic: None,
        story: Some(story),
    }
}
