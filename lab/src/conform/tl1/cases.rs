// SPDX-License-Identifier: Apache-2.0

use super::*;

/// Number of cases that test the login, which all other cases need.
pub(super) const LOG_IN: usize = 2;

pub(super) const STILL: &[Tested<Tl1Suite>] = &[
    tested!(log_in_needed, "GR-831 2.6", "a client that has not logged in is denied"),
    tested!(log_in, "ACT-USER", "the account can log in"),
    tested!(tag, "GR-831 2.4.1", "a reply echoes the command's tag"),
    tested!(header, "GR-831 3.2", "a reply's header contains source, date and time"),
    tested!(unknown_command, "GR-831 3.3", "an unknown command is denied"),
    tested!(other_target, "GR-831 2.2", "a command for another target is denied"),
    tested!(size, "RTRV-EQPT", "the equipment reports its size: SYSTEM:SIZE=24x24"),
    tested!(body_quoted, "GR-831 3.3.2", "each line of a body is quoted"),
    tested!(shutters, "RTRV-PORT-SHUTTER", "each shutter is OPEN or CLOSED"),
    tested!(power, "RTRV-PORT-POWER", "each port reports one numeric power"),
    tested!(patches_complete, "RTRV-PATCH", "RTRV-PATCH lists every output that emits light"),
];

pub(super) const MOVING: &[Tested<Tl1Suite>] = &[
    tested_as(
        "enter",
        "ENT-PATCH",
        "ENT-PATCH connects the given ports, and RTRV-PATCH lists them",
        matrix::connects,
    ),
    tested_as(
        "enter-others",
        "ENT-PATCH",
        "ENT-PATCH does not change other patches",
        matrix::keeps_others,
    ),
    tested!(
        enter_port_in_use,
        "ENT-PATCH",
        "a patch of a port in use is denied and leaves the circuits unchanged"
    ),
    tested!(
        enter_unknown_port,
        "ENT-PATCH",
        "a patch of a missing port is denied and leaves the circuits unchanged"
    ),
    tested_as(
        "enter-in-part",
        "GR-831 3.3",
        "ENT-PATCH takes a list; with a missing port it is not COMPLD, and RTRV-PATCH shows the result",
        matrix::list_in_part,
    ),
    tested_as(
        "delete",
        "DLT-PATCH",
        "DLT-PATCH removes only the given patches",
        matrix::disconnects,
    ),
    tested_as(
        "set-up-times",
        "conform",
        "all patches created one at a time exist",
        matrix::set_up_times,
    ),
];

fn log_in_needed(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = tl1.ask("RTRV-PATCH", "", "")?;
    holds(reply.word == "DENY", || format!("RTRV-PATCH before ACT-USER returned {}", reply.word))
}

fn log_in(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = tl1.activate()?;
    tl1.is_let_in = reply.completed();
    let user = &tl1.login.0;
    holds(reply.completed(), || {
        format!(
            "ACT-USER of `{user}` returned {} {}: \
                the account or its password is wrong, or logins are disabled",
            reply.word,
            reply.code()
        )
    })
}

fn tag(tl1: &mut Tl1Suite) -> CaseResult {
    for tag in ["7", "4711", "a1"] {
        let reply = tl1.raw(&format!("RTRV-NETYPE:::{tag}:;"))?;
        if reply.tag != tag {
            return found(format!("the reply to a command with tag {tag} has tag {}", reply.tag));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn header(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = tl1.ask("RTRV-NETYPE", "", "")?;
    let mut words = reply.header.split_whitespace().rev();
    let (time, date) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let is_dated = [(time, ':'), (date, '-')].iter().all(|(text, by)| {
        let parts: Vec<_> = text.split(*by).collect();
        parts.len() == 3 && parts.iter().all(|part| part.len() >= 2 && part.parse::<u32>().is_ok())
    });
    let source = words.next().is_some();
    holds(source && is_dated, || format!("the header is `{}`", reply.header))
}

fn unknown_command(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = tl1.ask("RTRV-NOTHING", "", "")?;
    holds(reply.word == "DENY", || format!("RTRV-NOTHING returned {}", reply.word))
}

fn other_target(tl1: &mut Tl1Suite) -> CaseResult {
    tl1.next_tag += 1;
    let tag = tl1.next_tag;
    let reply = tl1.raw(&format!("RTRV-NETYPE:NOT-THIS-ONE::{tag}:;"))?;
    holds(reply.word == "DENY", || format!("a command for NOT-THIS-ONE returned {}", reply.word))
}

fn size(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = tl1.ask("RTRV-EQPT", "", "")?;
    let read = reply.items().find_map(|line| {
        let (inputs, outputs) = line.split_once("SIZE=")?.1.split_once('x')?;
        let end = outputs.find(|c: char| !c.is_ascii_digit()).unwrap_or(outputs.len());
        Some((inputs.trim().parse().ok()?, outputs[..end].parse().ok()?))
    });
    let Some((inputs, outputs)) = read else {
        return found(format!("the body is {:?}", reply.body));
    };
    (tl1.ports.inputs, tl1.ports.outputs) = (inputs, outputs);
    Ok(CaseVerdict::Passed)
}

fn body_quoted(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = tl1.ask("RTRV-PORT-SHUTTER", "1", "")?;
    let mut lines = reply.body.iter();
    let is_quoted =
        lines.all(|line| line.len() > 1 && line.starts_with('"') && line.ends_with('"'));
    holds(is_quoted && !reply.body.is_empty(), || format!("the body is {:?}", reply.body))
}

fn shutters(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = tl1.ask("RTRV-PORT-SHUTTER", "1", "")?;
    let odd = reply.items().find(|line| {
        !matches!(line.rsplit_once(':').map(|(_, word)| word), Some("OPEN" | "CLOSED"))
    });
    holds(odd.is_none(), || format!("a shutter is `{}`", odd.unwrap_or("")))
}

fn powers(tl1: &mut Tl1Suite, ports: &str) -> Result<Reply, ExchangeError> {
    let reply = tl1.ask("RTRV-PORT-POWER", ports, "")?;
    if reply.completed() {
        return Ok(reply);
    }
    let why = format!("no power monitors: {}", reply.code());
    Err(ExchangeError::Judged(CaseVerdict::NotTested(why)))
}

fn power(tl1: &mut Tl1Suite) -> CaseResult {
    let reply = powers(tl1, "1")?;
    let value = reply.items().next().and_then(|line| line.split_once(':'));
    let is_number = value.is_some_and(|(_, value)| value.parse::<f64>().is_ok());
    holds(is_number && reply.body.len() == 1, || format!("the body is {:?}", reply.body))
}

/// Finds circuits that pass light but are missing from the patch list.
fn patches_complete(tl1: &mut Tl1Suite) -> CaseResult {
    let patches = tl1.circuits()?;
    let (first, last) = (tl1.ports.inputs + 1, tl1.ports.inputs + tl1.ports.outputs);
    let reply = powers(tl1, &format!("{first}&&{last}"))?;
    let mut lit = reply.items().filter_map(|line| {
        let (port, power) = line.split_once(':')?;
        (power.parse::<f64>().ok()? > DARK_DBM).then(|| port.trim().parse::<u32>().ok())?
    });
    let astray = lit.find(|port| patches.iter().all(|pair| pair.1 != *port));
    holds(astray.is_none(), || {
        format!("light leaves port {astray:?}, which is not part of a patch")
    })
}

fn denied(tl1: &mut Tl1Suite, from: &str, to: &str) -> CaseResult {
    let before = tl1.circuits()?;
    let reply = tl1.enter(from, to)?;
    let after = tl1.circuits()?;
    if after != before {
        return found(format!(
            "ENT-PATCH::{from},{to} returned {} but changed the circuits: {after:?}",
            reply.word
        ));
    }
    holds(reply.word == "DENY", || format!("ENT-PATCH::{from},{to} returned {}", reply.word))
}

fn enter_port_in_use(tl1: &mut Tl1Suite) -> CaseResult {
    connected(tl1, 0)?;
    let ((input, _), (_, output)) = (tl1.ports.pair(0), tl1.ports.pair(1));
    denied(tl1, &input.to_string(), &output.to_string())
}

fn enter_unknown_port(tl1: &mut Tl1Suite) -> CaseResult {
    let beyond = tl1.ports.beyond();
    let (input, _) = tl1.ports.pair(0);
    denied(tl1, &input.to_string(), &beyond.to_string())
}
