//! `lightloom ctl status` and `drift`: what is wrong, worst first, each with what to type next; then
//! how everything else stands.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::Value;

use super::{
    contention, count, crossed, history, is_module, list, named, natural, place, slot, text,
};
use crate::ctl::time;
use crate::table::Table;

/// More devices than fit a screen are counted, and only the odd ones listed.
const DEVICES_LISTED: usize = 40;
/// How many names a line holds.
const NAMES_MAX: usize = 6;
/// What to do where a file of the daemon cannot be written.
const FREE_SPACE: &str = "the light stays as it is and devices are read on: free space or repair the disk, and \
                          lightloomd goes on automatically";
/// For how many broken parts it is said what to type.
const REPAIRS_MAX: usize = 16;
/// How many past transactions a status shows.
const TRANSACTIONS_SHOWN: usize = 5;

/// Whether nobody has to know or do anything.
pub(in crate::ctl) fn all_is_well(status: &Value) -> bool {
    alarms(status).is_empty()
}

/// `lightloom ctl status`.
pub(in crate::ctl) fn status(status: &Value) -> String {
    let mut page = alarms(status);
    if page.is_empty() {
        page.push_str("ALL IS WELL\n");
    }
    let plan = text(&status["plan_sha256"]);
    let plan = if plan.is_empty() { "none" } else { plan.get(..12).unwrap_or(&plan) };
    let (version, records) = (text(&status["version"]), text(&status["journal_records"]));
    let stood = list(&status["circuits"]);
    let standing = stood.iter().filter(|circuit| circuit["stands"] == true).count();
    let _ = writeln!(page, "\nversion {version}, plan {plan}, {records} journal records");
    let modules = || list(&status["devices"]).iter().any(|d| is_module(&text(&d["name"])));
    if !stood.is_empty() {
        let more =
            more_were_applied(status).map(|(_, all)| format!("; the applied plan has {all}"));
        let (all, more) = (stood.len(), more.unwrap_or_default());
        let _ = writeln!(page, "circuits that stand at both ends: {standing} of {all}{more}");
    } else if plan == "none" && modules() {
        let _ = writeln!(page, "circuits that stand at both ends: none between modules");
    }
    let budget = &status["bypass_budget"];
    if budget["used"].as_u64().is_some_and(|used| used > 0) {
        let (used, most) = (text(&budget["used"]), text(&budget["per_hour"]));
        let _ =
            writeln!(page, "changes by the daemon itself within the last hour: {used} of {most}");
    }
    if !is_deaf(status) {
        let _ = writeln!(page, "{}", devices(list(&status["devices"])));
    }
    page + &history::transactions(&status["transactions"], TRANSACTIONS_SHOWN)
}

/// What a person has to know or do, worst first, each with what to type.
fn alarms(status: &Value) -> String {
    let mut page = String::new();
    let mut alarm = |what: &str, about: String, next: String| {
        let _ = writeln!(page, "{what}: {about}\n  {next}");
    };
    if let Some((about, next)) = history::damage(&status["journal_damage"]) {
        alarm("JOURNAL DAMAGED, changes are refused and no device is read", about, next);
    } else if let Some(why) = status["journal_failure"].as_str() {
        alarm("JOURNAL CANNOT BE WRITTEN, changes are refused", why.to_owned(), FREE_SPACE.into());
    }
    if let Some(why) = status["audit_failure"].as_str() {
        alarm(
            "AUDIT LOG CANNOT BE WRITTEN, changes are refused",
            why.to_owned(),
            FREE_SPACE.into(),
        );
    }
    let open = undoing(status);
    if let Some((what, about, next)) = &open {
        alarm(what, about.clone(), next.clone());
    }
    let pending = &status["pending"];
    if let Some(left) = pending["seconds_left"].as_f64() {
        let txn = text(&pending["txn"]);
        alarm(
            &format!("transaction {txn} WAITS FOR ITS CONFIRM"),
            format!(
                "{}{} left, until {}, then it is undone",
                what_it_was(status, &pending["txn"]),
                time::span(left),
                time::clock_at(&pending["until_unix_ms"])
            ),
            format!("keep it: lightloom ctl confirm {txn}; undo it: lightloom ctl rollback {txn}"),
        );
    }
    for (device, why) in status["attention"].as_object().into_iter().flatten() {
        alarm(
            &format!("{device} NEEDS A PERSON"),
            text(why),
            text(&status["attention_next"][device]),
        );
    }
    for (device, owed) in status["owed"].as_object().into_iter().flatten() {
        let what = format!("{device} IS OWED its part of {}", text(&owed["what"]));
        alarm(&what, text(&owed["why"]), text(&owed["next"]));
    }
    let listed = |device: &&Value| status["owed"][text(&device["name"])].is_null();
    let all: Vec<&Value> = list(&status["devices"]).iter().filter(listed).collect();
    // Without a journal nothing else is accepted: what is read is shown, and nothing offered.
    if is_deaf(status) {
        return page;
    }
    if status["journal_failure"].is_string() {
        for (what, about, next) in troubles(&all, &Value::Null) {
            alarm(&what, about, next);
        }
        return page;
    }
    let troubles = troubles(&all, &status["drifted_next"]);
    let last = list(&status["transactions"]).first().and_then(history::did_not_take);
    let crossed = crossed::alarm(&status["crossed"]);
    let known = crossed.into_iter().chain(last).chain(dark_circuits(status));
    let known = known.chain(without_light(status)).chain(shut_down(status));
    let known = known.chain(around_faults(status));
    let contended = contention::alarms(&status["contended"]);
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
    let held: Vec<String> = list(&status["held"]).iter().map(text).collect();
    if !held.is_empty() {
        let next = "let traffic back: lightloom ctl undrain DEVICE".to_owned();
        alarm("HELD DRAINED", named(held, NAMES_MAX), next);
    }
    page
}

/// What a past transaction was and who asked for it, where it is listed.
fn what_it_was(status: &Value, txn: &Value) -> String {
    let past = list(&status["transactions"]).iter().find(|past| past["txn"] == *txn);
    let summary = past.and_then(|past| Some((past, past["summary"].as_str()?)));
    summary.map(|(past, what)| format!("{what}, by {}: ", text(&past["actor"]))).unwrap_or_default()
}

/// The transaction on its way, and whom it waits for.
fn on_the_way(status: &Value) -> Option<Alarm> {
    let open = &status["transaction"];
    let txn = open["txn"].as_u64()?;
    let way = if open["going_back"] == true { "going back" } else { "going forward" };
    let devices = open["devices"].as_u64().unwrap_or(0) as usize;
    let why = match open["undoes"].as_u64() {
        Some(undone) if open["kind"] == "confirm-timeout" => {
            format!("undoes {undone}, which was not confirmed in time (policy:confirm-timeout), ")
        }
        Some(undone) => format!("undoes {undone} and what came after it, "),
        None => open["summary"].as_str().map(|what| format!("{what}, ")).unwrap_or_default(),
    };
    let mut about = format!("{why}{}, {way}", count(devices, "device"));
    if open["actor"] != "policy:confirm-timeout" {
        let _ = write!(about, ", asked by {}", text(&open["actor"]));
    }
    for (device, left_ps) in open["waits_for_ps"].as_object().into_iter().flatten() {
        let left = time::span(left_ps.as_f64().unwrap_or(0.0) / 1e12);
        let _ = write!(about, "; waits for {device}, {left} at most");
    }
    Some((format!("transaction {txn} ON ITS WAY"), about, "see it: lightloom ctl watch".into()))
}

/// The same, where it undoes another: that comes first, in the place of the confirm that was waited for.
fn undoing(status: &Value) -> Option<Alarm> {
    on_the_way(status).filter(|_| status["transaction"]["undoes"].is_u64())
}

/// What to say of one kind of trouble: what it is, about what, what to type.
pub(super) type Alarm = (String, String, String);

/// Whether no device is read, because the journal cannot be trusted.
pub(in crate::ctl) fn is_deaf(status: &Value) -> bool {
    status["journal_damage"].is_object()
}

/// Devices that cannot be read, or stand elsewhere than the journal says; for these what to do `next`.
fn troubles(all: &[&Value], next: &Value) -> Vec<Alarm> {
    let of = |state: &str| all.iter().copied().filter(|d| d["state"] == state).collect::<Vec<_>>();
    let mut alarms = Vec::new();
    let unseen = of("unseen");
    if !unseen.is_empty() {
        let next = "look at its line, its power and its address; the daemon tries again by itself";
        alarms.push((
            format!("UNSEEN, {}", count(unseen.len(), "device")),
            devices_named(&unseen),
            next.into(),
        ));
    }
    let drifted = of("drifted");
    if !drifted.is_empty() {
        let names: Vec<String> = drifted.iter().map(|device| text(&device["name"])).collect();
        let next = next.as_str().map(|next| format!("; {next}")).unwrap_or_default();
        alarms.push((
            format!("DRIFTED, {} elsewhere than the journal says", count(names.len(), "device")),
            named(names, NAMES_MAX),
            format!("see where: lightloom ctl drift{next}"),
        ));
    }
    alarms
}

/// That circuits of the plan do not stand and nothing else explains it.
fn dark_circuits(status: &Value) -> Option<Alarm> {
    let dark = &status["dark_circuits"];
    let (standing, all) = (dark["standing"].as_u64()?, text(&dark["circuits"]));
    let ends = named(list(&dark["ends"]).iter().map(text).collect(), NAMES_MAX);
    let about = format!("{standing} of {all} circuits of the plan stand at both ends: not {ends}");
    Some(("DARK CIRCUITS".into(), about, text(&dark["next"])))
}

/// That the plan on the devices belongs to another fabric file.
fn other_fabric(status: &Value) -> Option<Alarm> {
    let next = status["other_fabric"].as_str()?;
    let about = "the plan on the devices was made from another file than lightloomd has read: nothing that breaks can be bypassed";
    Some(("ANOTHER FABRIC".into(), about.into(), next.into()))
}

/// That no plan is applied and nothing is lit.
fn no_plan(status: &Value) -> Option<Alarm> {
    let next = status["no_plan"]["next"].as_str()?;
    Some(("NO PLAN is applied".into(), "no circuit is lit".into(), next.into()))
}

/// Fibres that both ends look into and that carry no light, where nothing bypasses them.
fn without_light(status: &Value) -> Option<Alarm> {
    let dark = list(&status["dark_fibres"]);
    let near = text(&dark.first()?["near"]);
    let one = |fibre: &Value| {
        let power = fibre["power_dbm"].as_f64().unwrap_or(f64::NAN);
        let other = fibre["far_lit_by"].as_str();
        let other = other.map(|other| format!(", which is lit by {other}")).unwrap_or_default();
        format!("{} sees {power:.1} dBm of {}{other}", text(&fibre["near"]), text(&fibre["far"]))
    };
    let next = match silent(dark) {
        silent if silent.is_empty() => {
            format!("look at the fibre; bypass it: lightloom ctl fault {near}")
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
fn shut_down(status: &Value) -> Option<Alarm> {
    let shut = list(&status["shut"]);
    let first = text(&shut.first()?["end"]);
    let module = first.split_once('.').map_or(&*first, |(module, _)| module);
    let one = |port: &Value| {
        let since = time::clock_at(&port["since_unix_ms"]);
        let [end, why, far] = ["end", "why", "far"].map(|key| text(&port[key]));
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
fn silent(dark: &[Value]) -> Vec<String> {
    let down = dark.iter().filter(|fibre| fibre["far_is_down"] == true);
    let modules: BTreeSet<String> = down
        .filter_map(|fibre| {
            text(&fibre["far"]).split_once('.').map(|(module, _)| module.to_owned())
        })
        .collect();
    let node = |module: &str| module.split('/').next().unwrap_or(module).to_owned();
    let several =
        |module: &&String| modules.iter().filter(|other| node(other) == node(module)).count() > 1;
    let names: BTreeSet<String> = modules
        .iter()
        .map(|module| if several(&module) { node(module) } else { module.clone() })
        .collect();
    names.into_iter().collect()
}

/// What the plan goes around, and whether the daemon may still do so by itself.
fn around_faults(status: &Value) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let broken = list(&status["broken_parts"]);
    let (around, lit): (Vec<&Value>, Vec<&Value>) =
        broken.iter().partition(|part| part["bypassed"] != false);
    if !lit.is_empty() {
        let parts = names(&lit);
        alarms.push((
            format!("BROKEN, and no plan goes around {}", count(lit.len(), "part")),
            named(lit.into_iter().map(since).collect(), NAMES_MAX),
            match status["plan_sha256"] == "" {
                true => format!(
                    "apply a plan made with --fault {}; {}",
                    parts.join(","),
                    repairs(&parts)
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
    let budget = &status["bypass_budget"];
    let (used, most) = (budget["used"].as_u64(), budget["per_hour"].as_u64());
    if used.is_some_and(|used| Some(used) >= most) {
        alarms.push((
            "NO BYPASS LEFT".into(),
            format!(
                "the daemon changed something by itself {} times within an hour",
                text(&budget["used"])
            ),
            "what breaks now is only reported; bypass it yourself: lightloom ctl fault PART".into(),
        ));
    }
    alarms
}

/// How many circuits the plan on the devices has, where the one that was applied has more, and how many.
fn more_were_applied(status: &Value) -> Option<(usize, usize)> {
    let applied = usize::try_from(status["applied"]["circuits"].as_u64()?).ok()?;
    let now = list(&status["circuits"]).len();
    (now < applied).then_some((now, applied))
}

/// That fewer circuits are lit than were applied, where nothing that is known to be broken explains it.
fn fewer_than_applied(status: &Value) -> Option<Alarm> {
    let (now, all) =
        more_were_applied(status).filter(|_| status["applied"]["explained"] == false)?;
    Some((
        "FEWER CIRCUITS".into(),
        format!("{now} of the {all} circuits that could be lit, and no broken part explains it"),
        "get the rest: lightloom ctl apply --again".into(),
    ))
}

/// Parts in the order people count.
fn names(parts: &[&Value]) -> Vec<String> {
    let mut names: Vec<String> = parts.iter().map(|broken| text(&broken["part"])).collect();
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
pub(super) fn since(broken: &Value) -> String {
    let part = text(&broken["part"]);
    let when = broken["since_unix_ms"].as_u64().map(|_| time::moment(&broken["since_unix_ms"]));
    let when = when.map(|when| format!("since {when}"));
    let why = broken["why"].as_str().filter(|why| !why.is_empty()).map(str::to_owned);
    let known: Vec<String> = when.into_iter().chain(why).collect();
    if known.is_empty() { part } else { format!("{part} ({})", known.join(": ")) }
}

/// Devices by name with why they cannot be talked to, the first of them.
pub(in crate::ctl) fn devices_named(devices: &[&Value]) -> String {
    let mut sorted: Vec<&&Value> = devices.iter().collect();
    sorted.sort_by_cached_key(|device| natural(&text(&device["name"])));
    let one = |device: &&&Value| {
        let why = device["trouble"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{}{why}", text(&device["name"]))
    };
    let shown: Vec<String> = sorted.iter().take(NAMES_MAX).map(one).collect();
    let more = devices.len().saturating_sub(NAMES_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.join(", ") + &more
}

/// The devices that are waited for: not read, and where none is named not known to be dead and gone around.
pub(in crate::ctl) fn waited_for(named: &[&str], devices: &[Value], status: &Value) -> Vec<Value> {
    let waited_for = |device: &&Value| match named {
        [] => !is_gone_around(device, status),
        named => named.iter().any(|part| is_of(device, part)),
    };
    let unread = devices.iter().filter(|device| device["state"] == "unseen");
    unread.filter(waited_for).cloned().collect()
}

/// The first of these names that no device has, nor the node of any.
pub(in crate::ctl) fn not_a_device<'a>(named: &[&'a str], status: &Value) -> Option<&'a str> {
    let devices = list(&status["devices"]);
    named.iter().copied().find(|part| !devices.iter().any(|device| is_of(device, part)))
}

/// Whether this is the device of this name, or one of this node.
fn is_of(device: &Value, part: &str) -> bool {
    let name = device["name"].as_str().and_then(|name| name.strip_prefix(part));
    name.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the plan goes around this device, which is known not to answer, or around all of its node.
fn is_gone_around(device: &Value, status: &Value) -> bool {
    let mut around = list(&status["broken_parts"]).iter().filter(|part| part["bypassed"] == true);
    device["trouble"].is_string()
        && around.any(|part| part["part"].as_str().is_some_and(|part| is_of(device, part)))
}

/// That nothing is waited for any more; what is dead is named.
pub(in crate::ctl) fn all_read(only: &[&str], status: &Value) -> String {
    if !only.is_empty() {
        return format!("read: {}\n", only.join(", "));
    }
    let (dead, read): (Vec<&Value>, Vec<&Value>) =
        list(&status["devices"]).iter().partition(|device| device["state"] == "unseen");
    let read = count(read.len(), "device");
    if dead.is_empty() {
        return format!("{read} read\n");
    }
    let names = named(dead.iter().map(|device| text(&device["name"])).collect(), NAMES_MAX);
    let them = if dead.len() == 1 { "it" } else { "them" };
    format!("{read} read; {names} cannot be read, and the plan goes around {them}\n")
}

/// A transaction that takes its time.
pub(in crate::ctl) fn on_its_way(txn: u64, status: &Value, elapsed: &str) -> String {
    let open = &status["transaction"];
    let way = if open["going_back"] == true { "going back" } else { "going forward" };
    let unseen = |device: &&Value| device["state"] == "unseen";
    let unseen: Vec<&Value> = list(&status["devices"]).iter().filter(unseen).collect();
    let silent = if unseen.is_empty() {
        String::new()
    } else {
        format!("; cannot be read: {}", devices_named(&unseen))
    };
    let devices = open["devices"].as_u64().unwrap_or(0) as usize;
    format!("transaction {txn}: {way} for {elapsed} now, {}{silent}", count(devices, "device"))
}

fn devices(devices: &[Value]) -> String {
    let as_wanted = |device: &&Value| device["state"] == "as-wanted";
    let good = devices.iter().filter(as_wanted).count();
    let all = devices.len() <= DEVICES_LISTED;
    let odd = devices.iter().filter(|device| all || !as_wanted(device));
    let mut odd: Vec<&Value> = odd.collect();
    odd.sort_by_cached_key(|device| natural(&text(&device["name"])));
    let mut page = format!("{good} of {} as wanted\n", count(devices.len(), "device"));
    if odd.is_empty() {
        return page;
    }
    let mut table = Table::new(["device", "state", "stands at", "identity or trouble"]);
    for device in odd.iter().take(DEVICES_LISTED) {
        let why = device["trouble"].as_str().map(str::to_owned);
        let identity = why.unwrap_or_else(|| text(&device["identity"]));
        table.row([text(&device["name"]), text(&device["state"]), standing(device), identity]);
    }
    let _ = write!(page, "{table}");
    let more = odd.len().saturating_sub(DEVICES_LISTED);
    if more > 0 {
        let _ = writeln!(page, "and {more} more: lightloom ctl status --format json");
    }
    page
}

/// Where a device's lit slots stand, the first of them.
fn standing(device: &Value) -> String {
    let name = text(&device["name"]);
    let slots = device["slots"].as_object().into_iter().flatten();
    let mut slots: Vec<_> = slots.collect();
    slots.sort_by_key(|(slot, _)| natural(slot));
    let more = slots.len().saturating_sub(4);
    let shown = slots.iter().take(4).map(|(slot, to)| match is_module(&name) && *slot == "0" {
        true => place(&name, to),
        false => format!("{} to {}", slot_of(&name, slot), text(to)),
    });
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.collect::<Vec<_>>().join(", ") + &more
}

fn slot_of(device: &str, number: &str) -> String {
    slot(device, &Value::String(number.to_owned()))
}

/// What stands elsewhere than the journal says, and what cannot be said.
pub(in crate::ctl) fn drift(report: &Value) -> String {
    let mut slots: Vec<&Value> = list(&report["slots"]).iter().collect();
    slots.sort_by_cached_key(|drifted| natural(&text(&drifted["device"])));
    let mut table = Table::new(["device", "part", "journal says", "device says"]);
    for drifted in &slots {
        let device = text(&drifted["device"]);
        let (ledger, says) = (&drifted["ledger"], &drifted["device_says"]);
        let cells = [slot(&device, &drifted["slot"]), place(&device, ledger), place(&device, says)];
        table.row(std::iter::once(device.clone()).chain(cells));
    }
    let mut page = match (slots.is_empty(), report["complete"] == true) {
        (true, true) => "no drift: every device was read and stands as the journal says\n".into(),
        (true, false) => "no drift where it can be seen, but that is not everywhere:\n".into(),
        (false, _) => table.to_string(),
    };
    if let Some((about, next)) = history::damage(&report["journal_damage"]) {
        let _ = writeln!(
            page,
            "JOURNAL DAMAGED, what should stand where is not known: {about}\n  {next}"
        );
    }
    if let Some((what, about, next)) = crossed::alarm(&report["crossed"]) {
        let _ = writeln!(page, "{what}: {about}\n  {next}");
    }
    let unseen: Vec<String> = list(&report["unseen"]).iter().map(text).collect();
    if !unseen.is_empty() {
        let (count, names) = (count(unseen.len(), "device"), named(unseen, NAMES_MAX));
        let _ = writeln!(page, "UNSEEN, {count}: {names}\n  why: lightloom ctl status");
    }
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fibre_whose_far_end_is_silent_is_not_to_blame() {
        let fibre = |near: &str, far: &str, down: bool| json!({"near": near, "far": far, "power_dbm": -99.0, "far_is_down": down});
        let next = |fibres: &[Value]| {
            let status = json!({ "dark_fibres": fibres });
            without_light(&status).map(|(_, _, next)| next).unwrap_or_default()
        };
        let lit = next(&[fibre("n3/b0.1", "n4/b1.1", false)]);
        assert_eq!(lit, "look at the fibre; bypass it: lightloom ctl fault n3/b0.1");
        let one = next(&[fibre("n1/b0.1", "n5/b1.1", true)]);
        assert!(one.ends_with("if it is dead: lightloom ctl fault n5/b1"), "{one}");
        let node = next(&[fibre("n1/b0.1", "n5/b1.1", true), fibre("n9/b1.1", "n5/b0.1", true)]);
        assert!(node.ends_with("if it is dead: lightloom ctl fault n5"), "{node}");
    }
}
