// SPDX-License-Identifier: Apache-2.0
//! Rejects invalid expectations, and expectations that have the same verdict in every run.

use std::collections::BTreeSet;

use lightloom_fabric::document::{self, Check};

use super::codes;
use crate::scenario::expectation::Needs;
use crate::scenario::{Comparison, Expectation, ExpectationError, Figure, FigureUnit};
use crate::substrate::PacketSwitches;

pub(crate) struct Ground<'a> {
    pub(crate) switches: &'a PacketSwitches,
    pub(crate) breaks: Breaks,
    /// Priorities of data that crosses switches.
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
    pub(crate) fn add(&mut self, probability: f64, is_restored: bool) {
        self.anything |= probability > 0.0;
        self.restorable |= probability > 0.0 && is_restored;
    }
}

/// Keys that expectations depend on. Invalid values of these keys suppress further errors.
const GROUND: [&str; 8] =
    ["/switches", "/faults", "/faults_in", "/replay", "/collectives", "/traffic", "/phases", "/on"];

pub(crate) fn refuse_idle(path: &str, message: &str, help: &str, check: &mut Check<'_>) {
    let report = check.error(codes::SAYS_NOTHING, path, message).help(help);
    GROUND.iter().fold(report, |report, key| report.depends_on(key));
}

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
                    let report = check.error(codes::NO_SUCH_THING, &path, message).help(help);
                    GROUND.iter().fold(report, |report, key| report.depends_on(key));
                }
                None => match ground.and_then(|ground| ground.idle(&expectation)) {
                    Some((message, help)) => refuse_idle(&path, &message, &help, check),
                    None => expectations.push(expectation),
                },
            },
            Err(error) => {
                let report = check.error(codes::BAD_EXPECTATION, &path, error.to_string());
                if let ExpectationError::Figure { name } = error {
                    let names: Vec<&str> = Figure::ALL.iter().map(|figure| figure.name()).collect();
                    report.help(document::instead_of(&name, &names));
                }
            }
        }
    }
    expectations
}

type Idle = (String, String);

const NOTHING_BREAKS: &str = "no fault occurs in this scenario, so the verdict is always the same";
const BREAK_SOMETHING: &str = "declare a fault under `faults`, or leave it out";
const NO_BOUND: &str = "the queues of these switches are unbounded, so no packets are dropped";
const NO_SWITCH: &str = "no traffic crosses a switch, and only switches drop packets";
const NO_PAUSE: &str = "no switch sends pauses, so this is always true";
const ASK_FOR_PAUSES: &str =
    "write `switches: {pause: {priorities: [3], above: 100KiB}}`, or leave it out";

impl Ground<'_> {
    fn stranger(&self, expectation: &Expectation) -> Option<Idle> {
        match expectation {
            Expectation::Unaffected(_) if !self.has_groups => Some((
                "without `collectives`, there are no groups".to_owned(),
                "write `workload NAME unaffected`".to_owned(),
            )),
            Expectation::Figure { figure, .. } => {
                let (is_here, needs) = match figure.needs() {
                    Needs::Nothing => return None,
                    Needs::Groups => (self.has_groups, "`collectives`"),
                    Needs::Plan => (self.has_plan, "a planned fabric"),
                    Needs::Steps => (self.has_steps, "`phases` of a step"),
                    Needs::Flows => (self.has_flows || self.has_groups, "flows"),
                };
                let message = format!("`{}` requires {needs}", figure.name());
                (!is_here).then(|| (message, "leave it out".to_owned()))
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
                "no fault of this scenario requires restoration, so this is always true",
                "declare a fault that requires restoration, such as `down`, or leave it out",
            ),
            Expectation::RestoredWithin(_) if self.breaks.forever => says(
                "a fault of this scenario is permanent and no plan bypasses it, so this is never true",
                "write `lasts: 5ms` at the fault with a lower rate, bit errors or pauses, or leave it out",
            ),
            Expectation::NoDrops { priority: Some(_) } if !self.switches.have_priorities() => says(
                "these switches have only one queue per port and do not separate priorities",
                "write `switches: {schedule: strict}`, or use `no drops`",
            ),
            Expectation::NoDrops { .. } if self.switches.queue.is_none() => {
                says(NO_BOUND, "write `switches: {queue: 1MiB}`, or leave it out")
            }
            Expectation::NoDrops { .. } if self.priorities.is_empty() => {
                says(NO_SWITCH, "leave it out")
            }
            Expectation::NoDrops { priority: Some(priority) } => self.unused(*priority),
            Expectation::NoDeadlock if !self.switches.pause() => says(NO_PAUSE, ASK_FOR_PAUSES),
            Expectation::NoDeadlock if self.priorities.is_empty() => {
                says("no traffic crosses a switch, and only switches send pauses", "leave it out")
            }
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
        let help = format!("data that crosses switches has priority {}", used.join(" and "));
        Some((message, help))
    }

    fn idle_figure(&self, figure: Figure, comparison: Comparison, bound: f64) -> Option<Idle> {
        if figure.needs_faults() && !self.breaks.anything {
            return Some((NOTHING_BREAKS.to_owned(), BREAK_SOMETHING.to_owned()));
        }
        if figure == Figure::Drops && self.priorities.is_empty() {
            return Some((NO_SWITCH.to_owned(), "leave it out".to_owned()));
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
        Some((message, "use a bound that a run can meet or miss".to_owned()))
    }
}
