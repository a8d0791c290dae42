// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::fmt::Write;

use super::devices::commission;
use super::{Alarm, Moment, clock_at};
use crate::diagnosis::{NamedPart, PartKind};
use crate::status::{BrokenPart, DarkFibreView, ShutPort, Status};
use crate::text::{NAMES_MAX, count, is_bundle, named, natural, node};

const REPAIRS_MAX: usize = 16;
const EVIDENCE_MAX: usize = 4;

pub(super) fn without_light(status: &Status) -> Option<Alarm> {
    let dark = &status.dark_fibres;
    let first = dark.first()?;
    let about = dark.iter().map(|fibre| {
        let DarkFibreView { near, far, power_dbm, .. } = fibre;
        let other = fibre.far_lit_by.as_ref();
        let other = other.map(|other| format!(", which is lit by {other}")).unwrap_or_default();
        format!("{near} receives {power_dbm:.1} dBm from {far}{other}")
    });
    let unreachable = unreachable(dark);
    let next = match unreachable.is_empty() {
        true => format!("check the fibre; bypass it: lightloom ctl fault {}", first.near),
        false => {
            let unreachable = unreachable.join(" ");
            format!(
                "the far end does not respond; if it has failed, run: lightloom ctl fault {unreachable}"
            )
        }
    };
    let about = named(about.collect(), NAMES_MAX);
    Some(Alarm::new(format!("NO LIGHT in {}", count(dark.len(), "fibre")), about, next))
}

/// Combines several modules of a node into the node.
fn unreachable(dark: &[DarkFibreView]) -> Vec<String> {
    let down = dark.iter().filter(|fibre| fibre.far_is_down);
    let modules = down.filter_map(|fibre| fibre.far.split_once('.'));
    let modules: BTreeSet<&str> = modules.map(|(module, _)| module).collect();
    let names = modules.iter().map(|module| {
        let several = modules.iter().filter(|other| node(other) == node(module)).count() > 1;
        if several { node(module) } else { *module }.to_owned()
    });
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

pub(super) fn shut_down(shut: &[ShutPort], moment: Moment) -> Option<Alarm> {
    let first = &shut.first()?.end;
    let module = first.split_once('.').map_or(&**first, |(module, _)| module);
    let about = shut.iter().map(|ShutPort { end, far, why, since_unix_ms }| {
        let since = clock_at(moment, *since_unix_ms);
        format!("{end} since {since}, {why}; {far} receives no light from it")
    });
    let next = format!(
        "this is not a fault: turn the port on again, or bypass it: lightloom ctl fault {module}"
    );
    let about = named(about.collect(), NAMES_MAX);
    Some(Alarm::new(format!("SHUT DOWN {}", count(shut.len(), "port")), about, next))
}

pub(super) fn around_faults(status: &Status, moment: Moment) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let (around, lit): (Vec<&BrokenPart>, Vec<&BrokenPart>) =
        status.broken_parts.iter().partition(|part| part.bypassed);
    if !lit.is_empty() {
        let parts = names(&lit);
        let next = match status.plan_sha256.is_empty() {
            true => format!(
                "plan around it: lightloom plan FABRIC --fault {}; when it works again, apply any \
                    plan: lightloom ctl apply PLAN --mode update",
                parts.join(",")
            ),
            false => format!("bypass it: lightloom ctl fault {}", outermost(&parts).join(" ")),
        };
        let next = status.broken_next.clone().unwrap_or(next);
        let what = format!("NOT BYPASSED, {} at fault", count(lit.len(), "part"));
        alarms.push(Alarm::new(what, named_since(&lit, moment), next));
    }
    if !around.is_empty() {
        let what = format!("DEGRADED, {} bypassed", count(around.len(), "part"));
        alarms.push(Alarm::new(what, named_since(&around, moment), repairs(&names(&around))));
    }
    alarms
}

fn named_since(parts: &[&BrokenPart], moment: Moment) -> String {
    named(parts.iter().map(|part| since(part, moment)).collect(), NAMES_MAX)
}

fn names(parts: &[&BrokenPart]) -> Vec<String> {
    let mut names: Vec<String> = parts.iter().map(|broken| broken.part.clone()).collect();
    names.sort_by_cached_key(|part| natural(part));
    names
}

/// Removes parts that belong to a node in the same list.
fn outermost(parts: &[String]) -> Vec<String> {
    let outer = parts
        .iter()
        .filter(|part| !part.contains('/') || parts.iter().all(|whole| whole != node(part)));
    outer.cloned().collect()
}

/// Groups parts that one repair command covers, such as a node with its parts.
fn together(parts: &[String]) -> Vec<&str> {
    let mut named: Vec<&str> = Vec::new();
    for part in parts {
        let of = node(part);
        let modules = parts.iter().filter(|part| is_bundle(part) && node(part) == of).count();
        let whole = modules > 1 || parts.iter().any(|part| part == of);
        let name = if whole { of } else { part };
        if !named.contains(&name) {
            named.push(name);
        }
    }
    named
}

/// Returns the commands on separate lines, because parts are seldom repaired together.
fn repairs(parts: &[String]) -> String {
    let mut page = "when it works again:".to_owned();
    match &together(parts)[..] {
        [part] => return format!("{page} lightloom ctl fault --repaired {part}"),
        several => {
            for part in several.iter().take(REPAIRS_MAX) {
                let _ = write!(page, "\n    lightloom ctl fault --repaired {part}");
            }
            if several.len() > REPAIRS_MAX {
                let _ =
                    write!(page, "\n  and so on for {} more parts", several.len() - REPAIRS_MAX);
            }
        }
    }
    page
}

/// Describes a failed part: its name, when and why it failed, and the cost of a bypass.
pub fn since(broken: &BrokenPart, moment: Moment) -> String {
    let BrokenPart { part, since_unix_ms, why, price, .. } = broken;
    let when = since_unix_ms.map(|since| format!("since {}", moment(since)));
    let why = Some(why).filter(|why| !why.is_empty()).cloned();
    let known: Vec<String> = when.into_iter().chain(why).collect();
    let price = Some(price).filter(|price| !price.is_empty()).cloned();
    let about: Vec<String> =
        Some(known.join(": ")).filter(|known| !known.is_empty()).into_iter().chain(price).collect();
    if about.is_empty() { part.clone() } else { format!("{part} ({})", about.join("; ")) }
}

pub(super) fn probably(status: &Status, moment: Moment) -> Vec<Alarm> {
    let parts = &status.named_parts;
    let named = parts.iter().take(NAMES_MAX);
    let mut alarms: Vec<Alarm> =
        named.map(|part| probable(part, status.fabric.as_deref(), moment)).collect();
    if let Some(more) = parts.len().checked_sub(NAMES_MAX).filter(|more| *more > 0) {
        alarms.push(Alarm::new(
            format!("{more} MORE PARTS ARE PROBABLY AT FAULT"),
            "each with its evidence in the status",
            "see them: lightloom ctl status --format json",
        ));
    }
    alarms
}

fn probable(part: &NamedPart, fabric: Option<&str>, moment: Moment) -> Alarm {
    let evidence = &part.evidence;
    let mut about = evidence.iter().take(EVIDENCE_MAX).cloned().collect::<Vec<_>>().join("; ");
    if let Some(more) = evidence.len().checked_sub(EVIDENCE_MAX).filter(|more| *more > 0) {
        let _ = write!(about, "; and {more} more");
    }
    if let Some(since) = part.since_unix_ms {
        let _ = write!(about, " (when it was bypassed, {})", clock_at(moment, since));
    }
    let second = part.second.as_ref().map(|second| {
        format!(
            "; if not, {second} is the next most \
        likely"
        )
    });
    let name = part.part.rsplit(' ').next().unwrap_or_default();
    let meanwhile = match part.since_unix_ms {
        Some(_) => format!("; when it works again: lightloom ctl fault --repaired {name}"),
        None => format!("; bypass it meanwhile: lightloom ctl fault {name}"),
    };
    let swapped = commission(fabric);
    let next = match &part.kind {
        PartKind::Node => format!("check the node's power{meanwhile}"),
        PartKind::Transceiver => {
            format!(
                "check its power and its management line, then replace the transceiver{meanwhile}"
            )
        }
        PartKind::Lane => {
            format!("replace the transceiver when its circuit is not needed{meanwhile}")
        }
        PartKind::Fibre => {
            format!("{swapped}; if they are not swapped, measure the fibre, then replace it")
        }
        PartKind::Connector => format!("clean the connector and check again; {swapped}"),
        PartKind::SwitchPort | PartKind::Other(_) => {
            "use another port of the switch, and apply a plan with it: lightloom ctl apply PLAN"
                .to_owned()
        }
    };
    let what = format!("PROBABLY AT FAULT, {}", part.part);
    Alarm::new(what, about, format!("{next}{}", second.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fibre_with_an_unreachable_far_end_is_not_blamed() {
        let fibre = |near: &str, far: &str, far_is_down: bool| DarkFibreView {
            near: near.to_owned(),
            far: far.to_owned(),
            power_dbm: -99.0,
            far_is_down,
            far_lit_by: None,
        };
        let next = |fibres: &[DarkFibreView]| {
            let status = Status { dark_fibres: fibres.to_vec(), ..Status::default() };
            without_light(&status).map(|alarm| alarm.next).unwrap_or_default()
        };
        let lit = next(&[fibre("n3/b0.1", "n4/b1.1", false)]);
        assert_eq!(lit, "check the fibre; bypass it: lightloom ctl fault n3/b0.1");
        let one = next(&[fibre("n1/b0.1", "n5/b1.1", true)]);
        assert!(one.ends_with("if it has failed, run: lightloom ctl fault n5/b1"), "{one}");
        let node = next(&[fibre("n1/b0.1", "n5/b1.1", true), fibre("n9/b1.1", "n5/b0.1", true)]);
        assert!(node.ends_with("if it has failed, run: lightloom ctl fault n5"), "{node}");
    }
}
