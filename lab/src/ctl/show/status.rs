// SPDX-License-Identifier: Apache-2.0
//! `lightloom ctl status`: what is wrong, worst first, each with what to type next; then how everything else
//! stands.

use std::collections::BTreeSet;
use std::fmt::Write;

use lightloom_daemon_api::circuit::{DarkCircuits, NoPlan};
use lightloom_daemon_api::device::{DeviceState, DeviceStatus};
use lightloom_daemon_api::status::{
    BrokenPart, BypassBudget, DarkFibreView, LeadershipView, ShutPort, Status,
};
use lightloom_daemon_api::transaction::{Kind, OpenTransaction};

use super::{
    contention, count, crossed, diagnosis, history, is_module, management, named, natural, or_dash,
    place, slot,
};
use crate::ctl::time;
use lightloom::table::TextTable;

/// More devices than fit a screen are counted, and only the odd ones listed.
const DEVICES_LISTED: usize = 40;
/// How many names a line holds.
pub(super) const NAMES_MAX: usize = 6;
/// What to do where a file of the daemon cannot be written.
const FREE_SPACE: &str = "the light stays as it is and devices are read on: free space or repair the disk, and \
                          lightloomd goes on automatically";
/// Who undoes what was not confirmed in time.
const CONFIRM_TIMEOUT: &str = "policy:confirm-timeout";
/// For how many broken parts it is said what to type.
const REPAIRS_MAX: usize = 16;
/// How many past transactions a status shows.
const TRANSACTIONS_SHOWN: usize = 5;

/// Whether an operator has nothing to know or do.
pub(in crate::ctl) fn all_is_well(status: &Status) -> bool {
    alarms(status).is_empty()
}

/// `lightloom ctl status`.
pub(in crate::ctl) fn status(status: &Status) -> String {
    let mut page = alarms(status);
    if page.is_empty() {
        page.push_str("ALL IS WELL\n");
    }
    let Status { plan_sha256: plan, version, journal_records: records, circuits, .. } = status;
    let plan = if plan.is_empty() { "none" } else { plan.get(..12).unwrap_or(plan) };
    let standing = circuits.iter().filter(|circuit| circuit.stands).count();
    let _ = writeln!(page, "\nversion {version}, plan {plan}, {records} journal records");
    if let Some(LeadershipView { leader, epoch, standbys }) = &status.leadership {
        let standbys = if standbys.is_empty() { "none" } else { &standbys.join(", ") };
        let _ = writeln!(page, "{leader} leads in epoch {epoch}; standing by: {standbys}");
    }
    let modules = || status.devices.iter().any(|device| is_module(&device.name));
    if !circuits.is_empty() {
        let more =
            more_were_applied(status).map(|(_, all)| format!("; the applied plan has {all}"));
        let (all, more) = (circuits.len(), more.unwrap_or_default());
        let _ = writeln!(page, "circuits that stand at both ends: {standing} of {all}{more}");
    } else if plan == "none" && modules() {
        let _ = writeln!(page, "circuits that stand at both ends: none between modules");
    }
    let BypassBudget { used, per_hour } = status.bypass_budget;
    if used > 0 {
        let _ = writeln!(
            page,
            "changes by the daemon itself within the last hour: {used} of {per_hour}"
        );
    }
    page += &status.unwitnessed.as_ref().map(management::without_witness).unwrap_or_default();
    let _ = writeln!(page, "{}", devices(&status.devices));
    page + &history::transactions(&status.transactions, TRANSACTIONS_SHOWN)
}

/// What a person has to know or do, worst first, each with what to type.
fn alarms(status: &Status) -> String {
    let mut page = String::new();
    let mut alarm = |what: &str, about: String, next: String| {
        let _ = writeln!(page, "{what}: {about}\n  {next}");
    };
    let blind = status.management_lost.as_ref().map(management::alarm);
    for (what, about, next) in blind.into_iter().chain(no_bypass_left(status)) {
        alarm(&what, about, next);
    }
    if let Some((about, next)) = status.journal_damage.as_ref().map(history::damage) {
        alarm("JOURNAL DAMAGED, changes are refused", about, next);
    } else if let Some(why) = &status.journal_failure {
        let next = status.journal_next.clone().unwrap_or_else(|| FREE_SPACE.into());
        alarm("JOURNAL CANNOT BE WRITTEN, changes are refused", why.clone(), next);
    }
    if let Some(why) = &status.audit_failure {
        alarm("AUDIT LOG CANNOT BE WRITTEN, changes are refused", why.clone(), FREE_SPACE.into());
    }
    if status.devices.is_empty() {
        let next = "name its transceivers and switches in the daemon's file (`lightloom init --daemon FABRIC` writes one) and \
                    start it again";
        alarm("NO DEVICES", "this daemon drives nothing".to_owned(), next.to_owned());
    }
    for lost in &status.lost {
        alarm("LOST", format!("{}: {}", lost.what, lost.why), lost.next.clone());
    }
    let open = undoing(status);
    if let Some((what, about, next)) = &open {
        alarm(what, about.clone(), next.clone());
    }
    if let Some(pending) = &status.pending {
        let txn = pending.txn;
        alarm(
            &format!("transaction {txn} WAITS FOR ITS CONFIRM"),
            format!(
                "{}{} left, until {}, then it is undone",
                what_it_was(status, txn),
                time::span(pending.seconds_left),
                time::clock_at(pending.until_unix_ms)
            ),
            format!("keep it: lightloom ctl confirm {txn}; undo it: lightloom ctl rollback {txn}"),
        );
    }
    if let Some(of) = status.leadership.as_ref().filter(|of| of.standbys.is_empty()) {
        let about = format!("`{}` leads alone, and nothing is bypassed if it dies", of.leader);
        let next = "start lightloomd on another machine with the same devices and `etcd.prefix`";
        alarm("NO DAEMON STANDS BY", about, next.to_owned());
    }
    for (device, why) in &status.attention {
        let next = or_dash(status.attention_next.get(device));
        alarm(&format!("{device} NEEDS ACTION"), why.clone(), next);
    }
    for (device, deferred) in &status.owed {
        let what = format!("{device} DEFERRED its part of {}", deferred.what);
        alarm(&what, deferred.why.clone(), deferred.next.clone());
    }
    // Those of lost management are named there.
    let lost: BTreeSet<&String> =
        status.management_lost.iter().flat_map(|lost| &lost.devices).collect();
    let is_named = |device: &&DeviceStatus| {
        status.owed.contains_key(&device.name) || lost.contains(&device.name)
    };
    let listed = status.devices.iter().filter(|device| !is_named(device));
    let all: Vec<&DeviceStatus> = listed.collect();
    // Without a journal nothing else is accepted: what is read is shown, and nothing offered.
    if is_deaf(status) {
        return page;
    }
    if status.journal_failure.is_some() {
        for (what, about, next) in troubles(&all, status) {
            alarm(&what, about, next);
        }
        return page;
    }
    let troubles = troubles(&all, status);
    let last = status.transactions.first().and_then(history::did_not_take);
    let crossed = crossed::alarm(&status.crossed);
    let silent = status.unwitnessed.as_ref().and_then(management::unwitnessed);
    let crossed = silent.into_iter().chain(crossed);
    let known = crossed.into_iter().chain(last).chain(dark_circuits(status));
    let known = known.chain(without_light(&status.dark_fibres)).chain(shut_down(&status.shut));
    let known = known.chain(around_faults(status)).chain(diagnosis::alarms(&status.named_parts));
    let contended = contention::alarms(&status.contended);
    for (what, about, next) in contended.chain(troubles).chain(known) {
        alarm(&what, about, next);
    }
    let of_plans = fewer_than_applied(status).into_iter().chain(no_plan(status));
    for (what, about, next) in other_fabric(status).into_iter().chain(of_plans) {
        alarm(&what, about, next);
    }
    if let Some((what, about, next)) = on_the_way(status).filter(|_| open.is_none()) {
        alarm(&what, about, next);
    }
    if !status.held.is_empty() {
        let next = "let traffic back: lightloom ctl undrain DEVICE".to_owned();
        alarm("HELD DRAINED", named(status.held.clone(), NAMES_MAX), next);
    }
    page
}

/// What a past transaction was and who asked for it, where it is listed.
fn what_it_was(status: &Status, txn: u32) -> String {
    let past = status.transactions.iter().find(|past| past.txn == txn);
    let past = past.filter(|past| !past.summary.is_empty());
    past.map(|past| format!("{}, by {}: ", past.summary, past.actor)).unwrap_or_default()
}

/// `going back`, `going forward`.
pub(super) fn way(open: &OpenTransaction) -> &'static str {
    if open.going_back { "going back" } else { "going forward" }
}

/// The transaction on its way, and whom it waits for.
fn on_the_way(status: &Status) -> Option<StatusAlarm> {
    let open = status.transaction.as_ref()?;
    let OpenTransaction { txn, actor, summary, .. } = open;
    let why = match open.undoes {
        Some(undone) if open.kind == Kind::ConfirmTimeout => {
            format!("undoes {undone}, which was not confirmed in time ({CONFIRM_TIMEOUT}), ")
        }
        Some(undone) => format!("undoes {undone} and what came after it, "),
        None if summary.is_empty() => String::new(),
        None => format!("{summary}, "),
    };
    let mut about = format!("{why}{}, {}", count(open.devices, "device"), way(open));
    if actor != CONFIRM_TIMEOUT {
        let _ = write!(about, ", asked by {actor}");
    }
    for (device, left_ps) in &open.waits_for_ps {
        let left = time::span(*left_ps as f64 / 1e12);
        let _ = write!(about, "; waits for {device}, {left} at most");
    }
    Some((format!("transaction {txn} ON ITS WAY"), about, "see it: lightloom ctl watch".into()))
}

/// The same, where it undoes another: that comes first, in the place of the confirm that was waited for.
fn undoing(status: &Status) -> Option<StatusAlarm> {
    status.transaction.as_ref()?.undoes?;
    on_the_way(status)
}

/// What to say of one kind of trouble: what it is, about what, what to type.
pub(super) type StatusAlarm = (String, String, String);

/// Whether the journal is damaged: readings are shown, and no command is suggested.
pub(in crate::ctl) fn is_deaf(status: &Status) -> bool {
    status.journal_damage.is_some()
}

/// Devices that cannot be read, or stand elsewhere than the journal says; for these what to do `next`.
fn troubles(all: &[&DeviceStatus], status: &Status) -> Vec<StatusAlarm> {
    let of = |state: DeviceState| {
        all.iter().copied().filter(|device| device.state == state).collect::<Vec<_>>()
    };
    let mut alarms = Vec::new();
    let drifted = of(DeviceState::Drifted);
    let restarted = &status.restarted;
    let next = status.drifted_next.as_ref().filter(|_| status.journal_failure.is_none());
    if !restarted.is_empty() {
        let standing = status.circuits.iter().filter(|circuit| circuit.stands).count();
        let about = format!(
            "{standing} of {} circuits stand; nothing has moved since: {}",
            status.circuits.len(),
            named(restarted.clone(), NAMES_MAX)
        );
        let next = next.cloned().unwrap_or_else(|| "see where: lightloom ctl drift".into());
        let what = format!(
            "RESTARTED, {} elsewhere than the journal says",
            count(restarted.len(), "device")
        );
        alarms.push((what, about, next));
    }
    let unseen = of(DeviceState::Unseen);
    if !unseen.is_empty() {
        let next = "check its management line, power and address; the daemon keeps trying";
        alarms.push((
            format!("UNSEEN, {}", count(unseen.len(), "device")),
            devices_named(&unseen),
            next.into(),
        ));
    }
    let drifted = drifted.into_iter().filter(|device| !restarted.contains(&device.name));
    let drifted: Vec<&DeviceStatus> = drifted.collect();
    if !drifted.is_empty() {
        let names: Vec<String> = drifted.iter().map(|device| device.name.clone()).collect();
        // A journal in which nothing was ever set or adopted: no hand has moved anything.
        if status.version == 0 && status.no_plan.is_some() {
            alarms.push((
                format!("NOT ADOPTED, {} with light that this daemon never set", count(names.len(), "device")),
                named(names, NAMES_MAX),
                "take it as it stands, nothing moves: lightloom ctl adopt all; see where: lightloom ctl drift".into(),
            ));
            return alarms;
        }
        let next = next.map(|next| format!("; {next}")).unwrap_or_default();
        alarms.push((
            format!("DRIFTED, {} elsewhere than the journal says", count(names.len(), "device")),
            named(names, NAMES_MAX),
            format!("see where: lightloom ctl drift{next}"),
        ));
    }
    alarms
}

/// That circuits of the plan do not stand and nothing else explains it.
fn dark_circuits(status: &Status) -> Option<StatusAlarm> {
    let DarkCircuits { standing, circuits, ends, next } = status.dark_circuits.as_ref()?;
    let ends = named(ends.clone(), NAMES_MAX);
    let about =
        format!("{standing} of {circuits} circuits of the plan stand at both ends: not {ends}");
    Some(("DARK CIRCUITS".into(), about, next.clone()))
}

/// That the plan on the devices belongs to another fabric file.
fn other_fabric(status: &Status) -> Option<StatusAlarm> {
    let next = status.other_fabric.clone()?;
    let about = "the plan on the devices was made from another file than lightloomd has read: nothing that breaks can be bypassed";
    Some(("ANOTHER FABRIC".into(), about.into(), next))
}

fn stand(circuits: usize) -> String {
    format!("{} {}", count(circuits, "circuit"), if circuits == 1 { "is" } else { "are" })
}

/// That no plan is applied.
fn no_plan(status: &Status) -> Option<StatusAlarm> {
    let NoPlan { lit, next } = status.no_plan.clone()?;
    let about = match lit {
        0 => "no circuit is lit".to_owned(),
        lit => format!("{} lit, and nothing that breaks is bypassed", stand(lit)),
    };
    Some(("NO PLAN is applied".into(), about, next))
}

/// Fibres that both ends look into and that carry no light, where nothing bypasses them.
fn without_light(dark: &[DarkFibreView]) -> Option<StatusAlarm> {
    let first = dark.first()?;
    let one = |fibre: &DarkFibreView| {
        let DarkFibreView { near, far, power_dbm, .. } = fibre;
        let other = fibre.far_lit_by.as_ref();
        let other = other.map(|other| format!(", which is lit by {other}")).unwrap_or_default();
        format!("{near} sees {power_dbm:.1} dBm of {far}{other}")
    };
    let next = match silent(dark) {
        silent if silent.is_empty() => {
            format!("look at the fibre; bypass it: lightloom ctl fault {}", first.near)
        }
        silent => {
            let silent = silent.join(" ");
            format!("the far end does not answer; if it is dead: lightloom ctl fault {silent}")
        }
    };
    Some((
        format!("NO LIGHT in {}", count(dark.len(), "fibre")),
        named(dark.iter().map(one).collect(), NAMES_MAX),
        next,
    ))
}

/// Ports that were shut down: no fault, and nothing is moved for them.
fn shut_down(shut: &[ShutPort]) -> Option<StatusAlarm> {
    let first = &shut.first()?.end;
    let module = first.split_once('.').map_or(&**first, |(module, _)| module);
    let one = |ShutPort { end, far, why, since_unix_ms }: &ShutPort| {
        let since = time::clock_at(*since_unix_ms);
        format!("{end} since {since}, {why}; {far} sees no light of it")
    };
    Some((
        format!("SHUT DOWN {}", count(shut.len(), "port")),
        named(shut.iter().map(one).collect(), NAMES_MAX),
        format!(
            "no fault, so nothing is moved: turn it on again, or bypass it: lightloom ctl fault {module}"
        ),
    ))
}

/// The modules that should send light and do not answer; the node where several of it are silent.
fn silent(dark: &[DarkFibreView]) -> Vec<String> {
    let down = dark.iter().filter(|fibre| fibre.far_is_down);
    let modules = down.filter_map(|fibre| fibre.far.split_once('.'));
    let modules: BTreeSet<String> = modules.map(|(module, _)| module.to_owned()).collect();
    let node = |module: &str| module.split('/').next().unwrap_or(module).to_owned();
    let several =
        |module: &&String| modules.iter().filter(|other| node(other) == node(module)).count() > 1;
    let names: BTreeSet<String> = modules
        .iter()
        .map(|module| if several(&module) { node(module) } else { module.clone() })
        .collect();
    names.into_iter().collect()
}

/// What the plan goes around, and what it does not.
fn around_faults(status: &Status) -> Vec<StatusAlarm> {
    let mut alarms = Vec::new();
    let (around, lit): (Vec<&BrokenPart>, Vec<&BrokenPart>) =
        status.broken_parts.iter().partition(|part| part.bypassed);
    if !lit.is_empty() {
        let parts = names(&lit);
        alarms.push((
            format!("BROKEN, and no plan goes around {}", count(lit.len(), "part")),
            named(lit.into_iter().map(since).collect(), NAMES_MAX),
            match status.plan_sha256.is_empty() {
                true => format!(
                    "make a plan around it: lightloom plan FABRIC --fault {}; when it works again, any plan: lightloom ctl \
                     apply PLAN --mode update",
                    parts.join(",")
                ),
                false => format!("bypass it: lightloom ctl fault {}", outermost(&parts).join(" ")),
            },
        ));
    }
    if !around.is_empty() {
        let repairs = repairs(&names(&around));
        alarms.push((
            format!("BROKEN, the plan goes around {}", count(around.len(), "part")),
            named(around.into_iter().map(since).collect(), NAMES_MAX),
            repairs,
        ));
    }
    alarms
}

/// That nothing is bypassed automatically any more.
fn no_bypass_left(status: &Status) -> Option<StatusAlarm> {
    let BypassBudget { used, per_hour } = status.bypass_budget;
    (per_hour > 0 && used >= per_hour).then(|| {
        (
            "NO BYPASS LEFT, what breaks now is only reported".into(),
            format!("the daemon changed something automatically {used} times within an hour"),
            "find out why, then: lightloom ctl resume; or bypass it yourself: lightloom ctl fault PART".into(),
        )
    })
}

/// How many circuits the plan on the devices has, where the one that was applied has more, and how many.
fn more_were_applied(status: &Status) -> Option<(usize, usize)> {
    let applied = status.applied.as_ref()?.circuits;
    let now = status.circuits.len();
    (now < applied).then_some((now, applied))
}

/// That fewer circuits are lit than were applied, where nothing that is known to be broken explains it.
fn fewer_than_applied(status: &Status) -> Option<StatusAlarm> {
    let is_explained = status.applied.as_ref()?.explained;
    let (now, all) = more_were_applied(status).filter(|_| !is_explained)?;
    Some((
        "FEWER CIRCUITS".into(),
        format!("{now} of the {all} circuits that could be lit, and no broken part explains it"),
        "get the rest: lightloom ctl apply --again --cut-light".into(),
    ))
}

/// Parts in the order people count.
fn names(parts: &[&BrokenPart]) -> Vec<String> {
    let mut names: Vec<String> = parts.iter().map(|broken| broken.part.clone()).collect();
    names.sort_by_cached_key(|part| natural(part));
    names
}

/// Parts without those of a node that is among them itself.
fn outermost(parts: &[String]) -> Vec<String> {
    let inside = |part: &String| {
        part.split_once('/').is_some_and(|(node, _)| parts.iter().any(|part| part == node))
    };
    parts.iter().filter(|part| !inside(part)).cloned().collect()
}

/// The parts that one command is for: a node for itself and what else broke of it, also where several of its
/// modules broke one by one.
fn together(parts: &[String]) -> Vec<String> {
    let node = |part: &String| part.split('/').next().unwrap_or(part).to_owned();
    let is_module = |part: &&String| super::is_module(part);
    let modules = |of: &String| parts.iter().filter(is_module).filter(|p| node(p) == *of).count();
    let whole = |of: &String| parts.contains(of) || modules(of) > 1;
    let mut named: Vec<String> = Vec::new();
    for part in parts {
        let of = node(part);
        let name = if whole(&of) { of } else { part.clone() };
        if !named.contains(&name) {
            named.push(name);
        }
    }
    named
}

/// What to type for each part that works again: a line each, since they seldom do so together.
fn repairs(parts: &[String]) -> String {
    let mut page = "when it works again:".to_owned();
    let typed = |part: &String| format!("lightloom ctl fault --repaired {part}");
    match &together(parts)[..] {
        [part] => return format!("{page} {}", typed(part)),
        several => {
            for part in several.iter().take(REPAIRS_MAX) {
                page += &format!("\n    {}", typed(part));
            }
            if several.len() > REPAIRS_MAX {
                page += &format!("\n  and so on for {} more parts", several.len() - REPAIRS_MAX);
            }
        }
    }
    page
}

/// A broken part, since when, and who says so.
pub(super) fn since(broken: &BrokenPart) -> String {
    let BrokenPart { part, since_unix_ms, why, .. } = broken;
    let when = since_unix_ms.map(|since| format!("since {}", time::moment(since)));
    let why = Some(why).filter(|why| !why.is_empty()).cloned();
    let known: Vec<String> = when.into_iter().chain(why).collect();
    if known.is_empty() { part.clone() } else { format!("{part} ({})", known.join(": ")) }
}

/// Devices by name with why they cannot be talked to, the first of them.
pub(in crate::ctl) fn devices_named(devices: &[&DeviceStatus]) -> String {
    let mut sorted = devices.to_vec();
    sorted.sort_by_cached_key(|device| natural(&device.name));
    let one = |DeviceStatus { name, trouble, .. }: &&DeviceStatus| {
        let why = trouble.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{name}{why}")
    };
    let shown: Vec<String> = sorted.iter().take(NAMES_MAX).map(one).collect();
    let more = devices.len().saturating_sub(NAMES_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.join(", ") + &more
}

fn devices(devices: &[DeviceStatus]) -> String {
    let as_wanted = |device: &&DeviceStatus| device.state == DeviceState::AsWanted;
    let good = devices.iter().filter(as_wanted).count();
    let all = devices.len() <= DEVICES_LISTED;
    let odd = devices.iter().filter(|device| all || !as_wanted(device));
    let mut odd: Vec<&DeviceStatus> = odd.collect();
    odd.sort_by_cached_key(|device| natural(&device.name));
    let mut page = format!("{good} of {} as wanted\n", count(devices.len(), "device"));
    if odd.is_empty() {
        return page;
    }
    let mut table = TextTable::new(["device", "state", "stands at", "identity or trouble"]);
    for device in odd.iter().take(DEVICES_LISTED) {
        let DeviceStatus { name, state, identity, trouble, .. } = *device;
        let about = trouble.as_ref().unwrap_or(identity);
        table.row([name.clone(), state.to_string(), standing(device), about.clone()]);
    }
    let _ = write!(page, "{table}");
    let more = odd.len().saturating_sub(DEVICES_LISTED);
    if more > 0 {
        let _ = writeln!(page, "and {more} more: lightloom ctl status --format json");
    }
    page
}

/// Where a device's lit slots stand, the first of them.
fn standing(device: &DeviceStatus) -> String {
    let name = &device.name;
    let mut slots: Vec<(&String, u32)> =
        device.slots.iter().map(|(slot, to)| (slot, *to)).collect();
    slots.sort_by_key(|(slot, _)| natural(slot));
    let more = slots.len().saturating_sub(4);
    let shown =
        slots.into_iter().take(4).map(|(number, to)| match is_module(name) && number == "0" {
            true => place(name, to),
            false => format!("{} to {to}", slot(name, number)),
        });
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.collect::<Vec<_>>().join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state, a field and a kind that this version does not know, and almost everything missing.
    #[test]
    fn a_status_of_another_version_of_the_daemon_is_still_shown() {
        let other = serde_json::json!({
            "daemon": "9.0.0", "colour": "red",
            "devices": [{"name": "n1/b0", "state": "dozing", "slots": {"0": 1}}],
            "transaction": {"txn": 3, "kind": "dance", "actor": "uid:0", "devices": 1},
        });
        let shown = super::status(&serde_json::from_value(other).unwrap());
        let first = "transaction 3 ON ITS WAY: 1 device, going forward, asked by uid:0\n";
        assert!(shown.starts_with(first), "{shown}");
        assert!(shown.contains("n1/b0   dozing  external-1"), "{shown}");
        assert!(!shown.contains("NO BYPASS LEFT"), "{shown}");
    }

    #[test]
    fn a_fibre_whose_far_end_is_silent_is_not_to_blame() {
        let fibre = |near: &str, far: &str, far_is_down: bool| DarkFibreView {
            near: near.to_owned(),
            far: far.to_owned(),
            power_dbm: -99.0,
            far_is_down,
            far_lit_by: None,
        };
        let next = |fibres: &[DarkFibreView]| {
            without_light(fibres).map(|(_, _, next)| next).unwrap_or_default()
        };
        let lit = next(&[fibre("n3/b0.1", "n4/b1.1", false)]);
        assert_eq!(lit, "look at the fibre; bypass it: lightloom ctl fault n3/b0.1");
        let one = next(&[fibre("n1/b0.1", "n5/b1.1", true)]);
        assert!(one.ends_with("if it is dead: lightloom ctl fault n5/b1"), "{one}");
        let node = next(&[fibre("n1/b0.1", "n5/b1.1", true), fibre("n9/b1.1", "n5/b0.1", true)]);
        assert!(node.ends_with("if it is dead: lightloom ctl fault n5"), "{node}");
    }
}
