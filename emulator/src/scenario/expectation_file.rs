//! The expectations of a file: sentences that are none, or that would be true whatever happens, are
//! refused.

use lightloom_fabric::document::Check;

use super::file::codes;
use super::switches::Switches;
use super::{Expectation, ExpectationError};

/// The expectations of a file, and those that would be true whatever happens refused.
pub(crate) fn lower_expectations(
    raw: &[String],
    has_faults: bool,
    switches: &Switches,
    check: &mut Check<'_>,
) -> Vec<Expectation> {
    let mut expectations = Vec::new();
    for (index, sentence) in raw.iter().enumerate() {
        let path = format!("/expect/{index}");
        match sentence.parse() {
            Ok(expectation) => match idle(&expectation, has_faults, switches) {
                Some((message, help)) => {
                    check.error(codes::SAYS_NOTHING, &path, message).help(help);
                }
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

/// Why an expectation says nothing about this scenario, and what would help.
fn idle(
    expectation: &Expectation,
    has_faults: bool,
    switches: &Switches,
) -> Option<(&'static str, &'static str)> {
    match expectation {
        Expectation::RestoredWithin(_) if !has_faults => Some((
            "nothing breaks in this scenario, so this is true whatever happens",
            "declare what breaks under `faults`, or leave the sentence out",
        )),
        Expectation::NoDrops { priority: Some(_) } if !switches.have_priorities() => Some((
            "these switches have one queue a port, which tells no priorities apart",
            "write `switches: {schedule: strict}`, or expect `no drops`",
        )),
        Expectation::NoDeadlock if !switches.pause() => Some((
            "no switch asks for pauses here, so this is true whatever happens",
            "write `switches: {pause: {priorities: [3], above: 100KiB}}`, or leave the sentence out",
        )),
        _ => None,
    }
}

/// Refuses sentences about workloads, which a scenario on a fabric does not have.
pub(super) fn refuse_workloads(raw: &[String], check: &mut Check<'_>) {
    for (index, sentence) in raw.iter().enumerate() {
        if let Ok(Expectation::WorkloadUnaffected(_)) = sentence.parse() {
            check
                .error(
                    codes::NO_SUCH_THING,
                    &format!("/expect/{index}"),
                    "a scenario on a fabric has groups, not workloads",
                )
                .help("write `group g3 unaffected`");
        }
    }
}
