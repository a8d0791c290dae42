//! What to do about a device that needs a person, and what is waited for: only what would be accepted now.

use crate::controller::Remedy;
use crate::runtime::Runtime;
use crate::state::DeviceName;

/// What to do, in words and commands.
#[must_use]
pub(super) fn next(runtime: &Runtime, device: &DeviceName) -> String {
    if runtime.failed.is_some() {
        return "nothing can be done before the journal is mended".into();
    }
    match runtime.controller.remedy(device) {
        Remedy::Over(txn) => format!("transaction {txn} comes first: lightloom ctl watch"),
        Remedy::Answer { owed } => {
            let then = match owed {
                true => "it is read and brought back by itself when it answers",
                false => "it can be adopted or moved when it answers",
            };
            format!("look at its line and its power: {then}{}", around(runtime, device))
        }
        Remedy::Decide(txn) => format!(
            "decide first about transaction {txn}: lightloom ctl confirm {txn}, or lightloom ctl \
             rollback {txn}"
        ),
        Remedy::Adopt { apply } => {
            let apply = if apply { "; or apply a plan again with --mode update" } else { "" };
            format!("look at it, then take it as it stands: lightloom ctl adopt {device}{apply}")
        }
    }
}

/// How to lead rings around a silent module meanwhile, where the plan does not do so.
fn around(runtime: &Runtime, device: &DeviceName) -> String {
    let part = device.as_str();
    let known = runtime.broken();
    let in_plan = runtime.plan.as_ref().is_some_and(|plan| {
        plan.transceivers.iter().any(|transceiver| transceiver.bundle.to_string() == part)
    });
    match in_plan && !known.contains_key(part) {
        true => format!("; lead rings around it meanwhile: lightloom ctl fault {part}"),
        false => String::new(),
    }
}
