// SPDX-License-Identifier: Apache-2.0

use super::Alarm;
use crate::circuit::{DarkCircuits, NoPlan};
use crate::status::Status;
use crate::text::{NAMES_MAX, count, named};

pub(super) fn dark_circuits(status: &Status) -> Option<Alarm> {
    let DarkCircuits { standing, circuits, ends, elsewhere, next } =
        status.dark_circuits.as_ref()?;
    let others = named(elsewhere.clone(), NAMES_MAX);
    if ends.is_empty() {
        let what = format!("NOT AS PLANNED, {}", count(elsewhere.len(), "position"));
        return Some(Alarm::new(what, others, next));
    }
    let ends = named(ends.clone(), NAMES_MAX);
    let others = if others.is_empty() { others } else { format!("; other deviations: {others}") };
    let about = format!(
        "{standing} of {circuits} planned circuits are up at both ends; dark: {ends}{others}"
    );
    Some(Alarm::new("DARK CIRCUITS", about, next))
}

pub(super) fn other_fabric(status: &Status) -> Option<Alarm> {
    let next = status.other_fabric.as_ref()?;
    let about = "the plan in force was made from a different fabric file, so faults cannot be \
        bypassed";
    Some(Alarm::new("ANOTHER FABRIC", about, next))
}

pub(super) fn no_plan(status: &Status) -> Option<Alarm> {
    let NoPlan { lit, next } = status.no_plan.as_ref()?;
    let about = match lit {
        0 if status.unseen.is_empty() => "no circuit is lit".to_owned(),
        0 => "no circuit is lit on the devices that answer".to_owned(),
        1 => "1 circuit is lit, and faults are not bypassed".to_owned(),
        lit => format!("{lit} circuits are lit, and faults are not bypassed"),
    };
    Some(Alarm::new("NO PLAN is applied", about, next))
}

pub(super) fn fewer_than_applied(status: &Status) -> Option<Alarm> {
    let applied = status.applied.as_ref().filter(|applied| !applied.explained)?;
    let (now, all) = (status.circuits.len(), applied.circuits);
    let about = format!(
        "{now} of {all} possible circuits are lit, and no failed part explains the difference"
    );
    let next = applied
        .next
        .as_deref()
        .unwrap_or("apply the rest of the plan: lightloom ctl apply --again --cut-light");
    (now < all).then(|| Alarm::new("FEWER CIRCUITS", about, next))
}
