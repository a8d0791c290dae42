// SPDX-License-Identifier: Apache-2.0
//! Checks the expectations in a file. Rejects invalid sentences, and expectations that no run could
//! meet or that no run could fail.

use std::collections::BTreeSet;

use lightloom_fabric::document::Check;

use super::codes;
use crate::scenario::expectation::Needs;
use crate::scenario::{Comparison, Expectation, ExpectationError, Figure, FigureUnit};
use crate::substrate::PacketSwitches;

pub(crate) struct Ground<'a> {
    pub(crate) switches: &'a PacketSwitches,
    pub(crate) breaks: Breaks,
    /// Priorities of data that crosses switches. Empty if no data does.
    pub(crate) priorities: BTreeSet<u8>,
    pub(crate) has_groups: bool,
    pub(crate) has_plan: bool,
    pub(crate) has_steps: bool,
    pub(crate) has_flows: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breaks {
    pub(crate) anything: bool,
    pub(crate) restorable: bool,
    pub(crate) forever: bool,
}

impl Breaks {
    /// Adds a fault. `is_restored` specifies whether it counts for `restored within`.
    pub(crate) fn add(&mut self, probability: f64, is_restored: bool) {
        self.anything |= probability > 0.0;
        self.restorable |= probability > 0.0 && is_restored;
    }
}

/// Keys that determine whether an expectation is meaningful. If one of them is unreadable, errors
/// about meaningless expectations are suppressed.
const GROUND: [&str; 8] =
    ["/switches", "/faults", "/faults_in", "/replay", "/collectives", "/traffic", "/phases", "/on"];

/// Reports that the sentence at `path` is meaningless, unless a relevant key has schema errors.
pub(crate) fn refuse_idle(path: &str, message: &str, help: &str, check: &mut Check<'_>) {
    let report = check.error(codes::SAYS_NOTHING, path, message).help(help);
    GROUND.iter().fold(report, |report, key| report.depends_on(key));
}

/// Returns the meaningful expectations of a file, or all readable ones if nothing is known about
/// the scenario.
pub(crate) fn lower_expectations(
    raw: &[String],
    ground: Option<&Ground<'_>>,
    check: &mut Check<'_>,
) -> Vec<Expectation> {
    let mut expectations = Vec::new();
    for (index, sentence) in raw.iter().enumerate() {
        let path = format!("/expect/{index}");
        match sentence.parse::<Expectation>() {
            Ok(expectation) => match ground.and_then(|ground| ground.stranger(&expectation)) {
                Some((message, help)) => {
                    check.error(codes::NO_SUCH_THING, &path, message).help(help);
                }
                None => match ground.and_then(|ground| ground.idle(&expectation)) {
                    Some((message, help)) => refuse_idle(&path, &message, &help, check),
                    None => expectations.push(expectation),
                },
            },
            Err(error) => {
                let error: ExpectationError = error;
                check.error(codes::BAD_EXPECTATION, &path, error.to_string());
            }
        }
    }
    expectations
}

type Idle = (String, String);

const NOTHING_BREAKS: &str =
    "no fault occurs in this scenario, so every run gives the same verdict";
const BREAK_SOMETHING: &str = "declare a fault under `faults`, or leave the sentence out";
const NO_BOUND: &str = "the queues of these switches have no bound, so they drop no packets";
const NO_SWITCH: &str = "nothing that runs here crosses a switch, and only switches drop packets";
const NO_PAUSE: &str = "no switch requests pauses here, so this is always true";
const ASK_FOR_PAUSES: &str =
    "write `switches: {pause: {priorities: [3], above: 100KiB}}`, or leave the sentence out";

impl Ground<'_> {
    /// Returns a reason and a fix if the sentence refers to something that the scenario does not
    /// have.
    fn stranger(&self, expectation: &Expectation) -> Option<Idle> {
        let says = |message: String, help: &str| Some((message, help.to_owned()));
        match expectation {
            Expectation::Unaffected(_) if !self.has_groups => says(
                "without `collectives` the run has no groups".to_owned(),
                "write `workload NAME unaffected`",
            ),
            Expectation::Figure { figure, .. } => {
                let (is_here, needs) = match figure.needs() {
                    Needs::Nothing => return None,
                    Needs::Groups => {
                        (self.has_groups, "groups of jobs, which `collectives` run on")
                    }
                    Needs::Plan => (self.has_plan, "a planned fabric"),
                    Needs::Steps => (self.has_steps, "`phases` of a step"),
                    Needs::Flows => (self.has_flows || self.has_groups, "flows"),
                };
                let message = format!("`{}` needs {needs}, and there is none here", figure.name());
                (!is_here).then(|| (message, "leave the sentence out".to_owned()))
            }
            _ => None,
        }
    }

    fn idle(&self, expectation: &Expectation) -> Option<Idle> {
        let says = |message: &str, help: &str| Some((message.to_owned(), help.to_owned()));
        match expectation {
            Expectation::RestoredWithin(_)
            | Expectation::Unaffected(_)
            | Expectation::WorkloadUnaffected(_)
                if !self.breaks.anything =>
            {
                says(NOTHING_BREAKS, BREAK_SOMETHING)
            }
            Expectation::RestoredWithin(_) if !self.breaks.restorable => says(
                "no fault of this scenario is restored, so this is always true",
                "declare a fault that is restored, such as a part that is `down`, or leave the sentence out",
            ),
            Expectation::RestoredWithin(_) if self.breaks.forever => says(
                "a fault of this scenario is permanent and no plan bypasses it, so this is never true",
                "write `lasts: 5ms` at the fault whose effect is a lower rate, bit errors or pauses, or leave the sentence out",
            ),
            Expectation::NoDrops { priority: Some(_) } if !self.switches.have_priorities() => says(
                "these switches have one queue per port, which does not separate priorities",
                "write `switches: {schedule: strict}`, or expect `no drops`",
            ),
            Expectation::NoDrops { .. } if self.switches.queue.is_none() => {
                says(NO_BOUND, "write `switches: {queue: 1MiB}`, or leave the sentence out")
            }
            Expectation::NoDrops { .. } if self.priorities.is_empty() => {
                says(NO_SWITCH, "leave the sentence out")
            }
            Expectation::NoDrops { priority: Some(priority) } => self.unused(*priority),
            Expectation::NoDeadlock if !self.switches.pause() => says(NO_PAUSE, ASK_FOR_PAUSES),
            Expectation::NoDeadlock if self.priorities.is_empty() => says(
                "nothing that runs here crosses a switch, and only switches pause traffic",
                "leave the sentence out",
            ),
            Expectation::Figure { figure, comparison, bound, .. } => {
                self.idle_figure(*figure, *comparison, *bound)
            }
            _ => None,
        }
    }

    fn unused(&self, priority: u8) -> Option<Idle> {
        if self.priorities.contains(&priority) {
            return None;
        }
        let used: Vec<String> = self.priorities.iter().map(u8::to_string).collect();
        let message = format!("no data is sent on priority {priority}, so this is always true");
        let help = format!("data crosses switches on priority {}", used.join(" and "));
        Some((message, help))
    }

    fn idle_figure(&self, figure: Figure, comparison: Comparison, bound: f64) -> Option<Idle> {
        if figure.needs_faults() && !self.breaks.anything {
            return Some((NOTHING_BREAKS.to_owned(), BREAK_SOMETHING.to_owned()));
        }
        if figure == Figure::Drops && self.priorities.is_empty() {
            return Some((NO_SWITCH.to_owned(), "leave the sentence out".to_owned()));
        }
        let is_of_pauses = matches!(figure, Figure::Pauses | Figure::Paused | Figure::PausedMax);
        if is_of_pauses && !self.switches.pause() {
            return Some((NO_PAUSE.to_owned(), ASK_FOR_PAUSES.to_owned()));
        }
        let most = if figure.is_share() { 1.0 } else { f64::INFINITY };
        let verdict = match comparison.over(bound, most) {
            _ if comparison == Comparison::Equal
                && figure.unit() == FigureUnit::Number
                && !figure.is_share()
                && bound.fract() != 0.0 =>
            {
                "never true"
            }
            Some(true) => "always true",
            Some(false) => "never true",
            None => return None,
        };
        let range = match figure.is_share() {
            true => "must be a share from 0 to 1",
            false => "must be a whole number of at least 0",
        };
        let message = format!("`{}` {range}: this is {verdict}", figure.name());
        Some((message, "write a bound that some runs keep and others do not".to_owned()))
    }
}
