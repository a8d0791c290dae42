//! The expectations of a file: sentences that are none, and those that no run could make true, or none
//! could make false, are refused.

use std::collections::BTreeSet;

use lightloom_fabric::document::Check;

use super::file::codes;
use super::switches::Switches;
use super::{Comparison, Expectation, ExpectationError, Figure};

/// What a scenario does, as far as expectations can be about it.
pub(crate) struct Ground<'a> {
    /// How its switches queue.
    pub(crate) switches: &'a Switches,
    /// What may break.
    pub(crate) breaks: Breaks,
    /// The priorities of data that crosses switches; none if nothing crosses one.
    pub(crate) priorities: BTreeSet<u8>,
}

/// What may break in a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breaks {
    /// Anything, under some seed.
    pub(crate) anything: bool,
    /// Something that is healed.
    pub(crate) healable: bool,
}

impl Breaks {
    /// What one more fault adds, given whether it counts for `restored within`.
    pub(crate) fn add(&mut self, probability: f64, is_healed: bool) {
        self.anything |= probability > 0.0;
        self.healable |= probability > 0.0 && is_healed;
    }
}

/// Keys of a file that decide whether an expectation says anything. While one of them cannot be read, nothing
/// is said about that.
const GROUND: [&str; 7] =
    ["/switches", "/faults", "/faults_in", "/replay", "/collectives", "/traffic", "/network"];

/// Says that the sentence at `path` is of no use, unless the file has mistakes of shape where that is decided.
pub(crate) fn refuse_idle(path: &str, message: &str, help: &str, check: &mut Check<'_>) {
    let report = check.error(codes::SAYS_NOTHING, path, message).help(help);
    GROUND.iter().fold(report, |report, key| report.depends_on(key));
}

/// The expectations of a file that say something about it; all that can be read, where nothing is known of it.
pub(crate) fn lower_expectations(
    raw: &[String],
    ground: Option<&Ground<'_>>,
    check: &mut Check<'_>,
) -> Vec<Expectation> {
    let mut expectations = Vec::new();
    for (index, sentence) in raw.iter().enumerate() {
        let path = format!("/expect/{index}");
        match sentence.parse::<Expectation>() {
            Ok(expectation) => match ground.and_then(|ground| ground.idle(&expectation)) {
                Some((message, help)) => refuse_idle(&path, &message, &help, check),
                None => expectations.push(expectation),
            },
            Err(error) => {
                let error: ExpectationError = error;
                check.error(codes::BAD_EXPECTATION, &path, error.to_string());
            }
        }
    }
    expectations
}

/// Why a sentence says nothing, and what would help.
type Idle = (String, String);

const NOTHING_BREAKS: &str =
    "nothing breaks in this scenario, so this is true or false whatever happens";
const BREAK_SOMETHING: &str = "declare what breaks under `faults`, or leave the sentence out";
const NO_SWITCH: &str = "nothing that runs here crosses a switch, and only switches drop";

impl Ground<'_> {
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
            Expectation::RestoredWithin(_) if !self.breaks.healable => says(
                "nothing that breaks in this scenario is healed, so this is true whatever happens",
                "declare a fault that is, such as a part that is `down`, or leave the sentence out",
            ),
            Expectation::NoDrops { priority: Some(_) } if !self.switches.have_priorities() => says(
                "these switches have one queue a port, which tells no priorities apart",
                "write `switches: {schedule: strict}`, or expect `no drops`",
            ),
            Expectation::NoDrops { .. } if self.priorities.is_empty() => {
                says(NO_SWITCH, "leave the sentence out")
            }
            Expectation::NoDrops { priority: Some(priority) } => self.unused(*priority),
            Expectation::NoDeadlock if !self.switches.pause() => says(
                "no switch asks for pauses here, so this is true whatever happens",
                "write `switches: {pause: {priorities: [3], above: 100KiB}}`, or leave the sentence out",
            ),
            Expectation::NoDeadlock if self.priorities.is_empty() => says(
                "nothing that runs here crosses a switch, and only switches pause",
                "leave the sentence out",
            ),
            Expectation::Figure { figure, comparison, bound } => {
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
        let message =
            format!("nobody sends on priority {priority}, so this is true whatever happens");
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
        let most = if figure.is_share() { 1.0 } else { f64::INFINITY };
        let verdict = match comparison.over(bound, most) {
            _ if comparison == Comparison::Equal && !figure.is_share() && bound.fract() != 0.0 => {
                "never true"
            }
            Some(true) => "true whatever happens",
            Some(false) => "never true",
            None => return None,
        };
        let range = match figure.is_share() {
            true => "is a share, from 0 to 1",
            false => "is a whole number, 0 or more",
        };
        let message = format!("`{}` {range}: this is {verdict}", figure.name());
        Some((message, "write a bound that some runs keep and others do not".to_owned()))
    }
}
