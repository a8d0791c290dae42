// SPDX-License-Identifier: Apache-2.0
//! Cases that create circuits between the ports in `--may-move`.

use lightloom_gnmi::Status;
use lightloom_gnmi::client::Answer;
use lightloom_gnmi::message::{ListMode, SetRequest, SetResponse, SubscribeAnswer, Update};
use lightloom_gnmi::path::{parse, text};
use serde_json::json;

use super::still::{amplified, one_sided};
use super::tree::ShownSwitch;
use super::{ANSWER_WITHIN, GnmiSuite, entry_path, is_refusal, is_synced, shown};
use crate::conform::case::{CaseResult, CaseVerdict, Tested, found, holds, misbehaves, tested};
use crate::conform::link::ExchangeError;

pub(super) const CASES: &[Tested<GnmiSuite>] = &[
    tested!(
        set_up,
        "…-connections state/status",
        "PENDING_CONNECTION ends in CONNECTED or FAILED; CONNECTED means that light passes"
    ),
    tested!(
        connected_ports,
        "…-port state/connection",
        "the ports of a new connection list each other as peers, and no more light leaves than enters"
    ),
    tested!(
        connection_shows_config,
        "…-connections config",
        "the config of a new connection shows the requested ports"
    ),
    tested!(set_results, "gNMI 3.4.2", "a Set returns one result per part"),
    tested!(
        last_change_time,
        "…-connections last-change-time",
        "each change updates last-change-time"
    ),
    tested!(set_read_only, "RFC 7950 7.21.1", "a Set to a leaf under state is refused"),
    tested!(
        set_unknown_port,
        "…-connections config",
        "a connection to a missing port is refused or INVALID"
    ),
    tested!(
        set_directions,
        "…-optical-switch port-groups",
        "a connection between two input ports is refused or INVALID"
    ),
    tested!(set_port_twice, "…-connections", "a second connection on a port is refused or INVALID"),
    tested!(
        set_key,
        "RFC 7950 7.8.2",
        "an entry is refused if its config/name differs from its key"
    ),
    tested!(set_whole, "gNMI 3.4.3", "a Set with an invalid part changes nothing"),
    tested!(set_others, "…-connections", "a Set does not disturb connections outside its paths"),
    tested!(set_same, "…-connections", "a Set with unchanged ports does not interrupt light"),
    tested!(
        set_delete_first,
        "gNMI 3.4.3",
        "a Set deletes before it creates, so a port can move to another connection"
    ),
    tested!(delete_absent, "gNMI 3.4.6", "deleting a missing entry is not an error"),
    tested!(delete_ends, "…-connections state/status", "a deleted connection no longer exists"),
    tested!(subscribe_changes, "gNMI 3.5.1.5.2", "an on-change subscription reports changes"),
    tested!(subscribe_deletes, "gNMI 3.5.2.3", "an on-change subscription reports deletions"),
    tested!(set_up_times, "conform", "all circuits become CONNECTED when created one at a time"),
];

fn is_settled(switch: &ShownSwitch, name: &str) -> bool {
    !matches!(switch.connection(name).status.as_str(), "" | "PENDING_CONNECTION")
}

fn update(
    gnmi: &mut GnmiSuite,
    update: Vec<Update>,
) -> Result<Result<SetResponse, Status>, ExchangeError> {
    gnmi.set(SetRequest { update, ..SetRequest::default() })
}

fn accepted(reply: Result<SetResponse, Status>) -> Result<SetResponse, ExchangeError> {
    reply.map_err(|status| misbehaves(format!("refused: {}", shown(&status))))
}

/// Ends the case if the connection does not become CONNECTED.
fn made(
    gnmi: &mut GnmiSuite,
    name: &str,
    ends: (&str, &str),
) -> Result<ShownSwitch, ExchangeError> {
    let part = gnmi.joins(name, ends.0, ends.1)?;
    let between = format!("the connection between `{}` and `{}` is", ends.0, ends.1);
    if let Err(status) = update(gnmi, vec![part])? {
        return Err(misbehaves(format!("{between} refused: {}", shown(&status))));
    }
    let (_, switch) = gnmi.until(|switch| is_settled(switch, name))?;
    let connection = switch.connection(name);
    match connection.status.as_str() {
        "CONNECTED" => Ok(switch),
        "FAILED" => {
            let reason = connection.reason.as_deref().unwrap_or("no reason given");
            let why = format!("{between} FAILED: {reason}");
            Err(ExchangeError::Judged(CaseVerdict::Fault(why)))
        }
        "" => Err(misbehaves("a Set was accepted, but its connection is missing")),
        other => {
            Err(misbehaves(format!("the connection remains {other} instead of becoming CONNECTED")))
        }
    }
}

/// Connects the first free ports.
fn first(gnmi: &mut GnmiSuite) -> Result<(String, ShownSwitch), ExchangeError> {
    let (name, input, output) = (gnmi.name("a"), gnmi.input(0), gnmi.output(0));
    let switch = made(gnmi, &name, (&input, &output))?;
    Ok((name, switch))
}

fn set_up(gnmi: &mut GnmiSuite) -> CaseResult {
    let (name, switch) = first(gnmi)?;
    match switch.unlit(&switch.connection(&name)) {
        None => Ok(CaseVerdict::Passed),
        Some(why) => found(format!("the connection is CONNECTED, but {why}")),
    }
}

fn connected_ports(gnmi: &mut GnmiSuite) -> CaseResult {
    let (_, switch) = first(gnmi)?;
    let odd = one_sided(&switch).or_else(|| amplified(&switch).flatten());
    odd.map_or(Ok(CaseVerdict::Passed), found)
}

fn connection_shows_config(gnmi: &mut GnmiSuite) -> CaseResult {
    let (name, input, output) = (gnmi.name("a"), gnmi.input(0), gnmi.output(0));
    let switch = made(gnmi, &name, (&input, &output))?;
    let shown = switch.connection(&name).set_to;
    holds(shown == (Some(input), Some(output)), || format!("config shows {shown:?}"))
}

fn set_results(gnmi: &mut GnmiSuite) -> CaseResult {
    let names = [gnmi.name("a"), gnmi.name("b")];
    let mut parts = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let (input, output) = (gnmi.input(index), gnmi.output(index));
        parts.push(gnmi.joins(name, &input, &output)?);
    }
    let said = accepted(update(gnmi, parts)?)?;
    holds(said.response.len() == 2, || {
        format!("{} results for a Set with 2 parts", said.response.len())
    })
}

fn last_change_time(gnmi: &mut GnmiSuite) -> CaseResult {
    let before = gnmi.switch()?.changed;
    let after = first(gnmi)?.1.changed;
    holds(before != after, || format!("last-change-time remained {after} after a change"))
}

fn set_read_only(gnmi: &mut GnmiSuite) -> CaseResult {
    let (name, _) = first(gnmi)?;
    let path =
        parse(&format!("{}/state/status", entry_path(&name))).map_err(ExchangeError::Nonsense)?;
    let part = Update { path: Some(path), val: Some(gnmi.json(&json!("FAILED"))), duplicates: 0 };
    match update(gnmi, vec![part])? {
        Ok(_) => found("a Set to state/status is accepted"),
        Err(status) => holds(is_refusal(&status), || format!("answered with {}", shown(&status))),
    }
}

/// A switch may also accept an impossible connection and report it as INVALID.
fn cannot_be(gnmi: &mut GnmiSuite, input: &str, output: &str) -> CaseResult {
    let name = gnmi.name("x");
    let part = gnmi.joins(&name, input, output)?;
    if let Err(status) = update(gnmi, vec![part])? {
        return holds(is_refusal(&status), || format!("answered with {}", shown(&status)));
    }
    let (_, switch) = gnmi.until(|switch| is_settled(switch, &name))?;
    let stands = switch.connection(&name).status;
    match stands.as_str() {
        "INVALID" => Ok(CaseVerdict::Passed),
        "" => found("the connection was accepted but does not exist"),
        _ => found(format!("the connection was accepted with status {stands}")),
    }
}

fn set_unknown_port(gnmi: &mut GnmiSuite) -> CaseResult {
    let output = gnmi.output(0);
    cannot_be(gnmi, "no-such-port", &output)
}

fn set_directions(gnmi: &mut GnmiSuite) -> CaseResult {
    let (first, second) = (gnmi.input(0), gnmi.input(1));
    cannot_be(gnmi, &first, &second)
}

fn set_port_twice(gnmi: &mut GnmiSuite) -> CaseResult {
    let (name, input) = (gnmi.name("a"), gnmi.input(0));
    let (first, second) = (gnmi.output(0), gnmi.output(1));
    made(gnmi, &name, (&input, &first))?;
    cannot_be(gnmi, &input, &second)
}

fn set_key(gnmi: &mut GnmiSuite) -> CaseResult {
    let (name, input, output) = (gnmi.name("a"), gnmi.input(0), gnmi.output(0));
    let other = gnmi.name("b");
    let config = json!({"name": other, "input-port-name": input, "output-port-name": output});
    gnmi.made.insert(other);
    let part = gnmi.entry(&name, &config)?;
    match update(gnmi, vec![part])? {
        Ok(_) => found("the key and config/name differ, but the Set is accepted"),
        Err(status) => holds(is_refusal(&status), || format!("answered with {}", shown(&status))),
    }
}

fn set_whole(gnmi: &mut GnmiSuite) -> CaseResult {
    let (good, bad) = (gnmi.name("a"), gnmi.name("x"));
    let (input, output, other) = (gnmi.input(0), gnmi.output(0), gnmi.output(1));
    let parts =
        vec![gnmi.joins(&good, &input, &output)?, gnmi.joins(&bad, "no-such-port", &other)?];
    match update(gnmi, parts)? {
        Ok(_) => {
            let (_, switch) = gnmi.until(|switch| is_settled(switch, &bad))?;
            let stands = switch.connection(&bad).status;
            holds(stands == "INVALID", || {
                format!("the Set was accepted, but the status of the invalid part is `{stands}`")
            })
        }
        Err(_) => {
            let there = gnmi.switch()?.connections.contains_key(&good);
            holds(!there, || "the Set was refused, but its first part was applied".into())
        }
    }
}

fn undisturbed(
    gnmi: &mut GnmiSuite,
    act: impl FnOnce(&mut GnmiSuite) -> Result<Result<SetResponse, Status>, ExchangeError>,
) -> CaseResult {
    let (name, switch) = first(gnmi)?;
    let before = switch.connection(&name);
    accepted(act(gnmi)?)?;
    let switch = gnmi.switch()?;
    let after = switch.connection(&name);
    if after.status != before.status {
        return found(format!(
            "the status of the other circuit changed from {} to {}",
            before.status, after.status
        ));
    }
    if let Some(why) = switch.unlit(&after) {
        return found(format!("the light of the other circuit was interrupted: {why}"));
    }
    holds(after.updated == before.updated, || {
        format!("last-updated changed from {} to {}", before.updated, after.updated)
    })
}

fn set_others(gnmi: &mut GnmiSuite) -> CaseResult {
    undisturbed_by(gnmi, "b", 1)
}

fn set_same(gnmi: &mut GnmiSuite) -> CaseResult {
    undisturbed_by(gnmi, "a", 0)
}

fn undisturbed_by(gnmi: &mut GnmiSuite, name: &str, index: usize) -> CaseResult {
    undisturbed(gnmi, |gnmi| {
        let (name, input, output) = (gnmi.name(name), gnmi.input(index), gnmi.output(index));
        let part = gnmi.joins(&name, &input, &output)?;
        update(gnmi, vec![part])
    })
}

fn set_delete_first(gnmi: &mut GnmiSuite) -> CaseResult {
    let (from, to) = (gnmi.name("a"), gnmi.name("b"));
    let (input, first, second) = (gnmi.input(0), gnmi.output(0), gnmi.output(1));
    made(gnmi, &from, (&input, &first))?;
    let part = gnmi.joins(&to, &input, &second)?;
    let delete = vec![parse(&entry_path(&from)).map_err(ExchangeError::Nonsense)?];
    let request = SetRequest { delete, update: vec![part], ..SetRequest::default() };
    accepted(gnmi.set(request)?)?;
    let (done, switch) =
        gnmi.until(|switch| is_settled(switch, &to) && !switch.connections.contains_key(&from))?;
    let stands = switch.connection(&to).status;
    match stands.as_str() {
        "CONNECTED" if done => Ok(CaseVerdict::Passed),
        "FAILED" => Ok(CaseVerdict::Fault(format!(
            "the new connection is FAILED: {:?}",
            switch.connection(&to).reason
        ))),
        _ => found(format!(
            "the new connection is `{stands}`, and the old one is {}",
            if done { "gone" } else { "present" }
        )),
    }
}

fn delete_absent(gnmi: &mut GnmiSuite) -> CaseResult {
    let name = gnmi.name("never-made");
    delete(gnmi, &name)?;
    Ok(CaseVerdict::Passed)
}

fn delete(gnmi: &mut GnmiSuite, name: &str) -> Result<SetResponse, ExchangeError> {
    let path = parse(&entry_path(name)).map_err(ExchangeError::Nonsense)?;
    accepted(gnmi.set(SetRequest { delete: vec![path], ..SetRequest::default() })?)
}

fn delete_ends(gnmi: &mut GnmiSuite) -> CaseResult {
    let (name, input, output) = (gnmi.name("a"), gnmi.input(0), gnmi.output(0));
    made(gnmi, &name, (&input, &output))?;
    delete(gnmi, &name)?;
    let (gone, switch) = gnmi.until(|switch| !switch.connections.contains_key(&name))?;
    if !gone {
        return found(format!(
            "the connection still exists with status {}",
            switch.connection(&name).status
        ));
    }
    let peer = switch.port(&Some(input.clone())).peer;
    holds(peer.is_none(), || {
        format!("the connection is gone, but the peer of `{input}` is {peer:?}")
    })
}

fn heard_of(heard: &[Answer], name: &str, is_gone: bool) -> bool {
    heard.iter().any(|answer| {
        let Answer::Heard(said) = answer else { return false };
        let Some(SubscribeAnswer::Update(notification)) = &said.response else { return false };
        if is_gone {
            return notification.delete.iter().any(|path| text(path).contains(name));
        }
        notification.update.iter().any(|update| {
            let in_value = update.val.as_ref().and_then(|value| value.to_json().ok());
            update.path.as_ref().is_some_and(|path| text(path).contains(name))
                || in_value.is_some_and(|value| value.to_string().contains(name))
        })
    })
}

fn subscribed(gnmi: &mut GnmiSuite) -> Result<u32, ExchangeError> {
    let number = gnmi.subscribe("/connections", ListMode::Stream)?;
    gnmi.listen(number, ANSWER_WITHIN, is_synced)?;
    Ok(number)
}

fn subscribe_changes(gnmi: &mut GnmiSuite) -> CaseResult {
    let number = subscribed(gnmi)?;
    let (name, input, output) = (gnmi.name("heard"), gnmi.input(0), gnmi.output(0));
    made(gnmi, &name, (&input, &output))?;
    let heard = gnmi.listen(number, ANSWER_WITHIN, |heard| heard_of(heard, &name, false))?;
    holds(heard_of(&heard, &name, false), || format!("no update within {ANSWER_WITHIN:?}"))
}

fn subscribe_deletes(gnmi: &mut GnmiSuite) -> CaseResult {
    let (name, input, output) = (gnmi.name("gone"), gnmi.input(0), gnmi.output(0));
    made(gnmi, &name, (&input, &output))?;
    let number = subscribed(gnmi)?;
    delete(gnmi, &name)?;
    let heard = gnmi.listen(number, ANSWER_WITHIN, |heard| heard_of(heard, &name, true))?;
    holds(heard_of(&heard, &name, true), || format!("no delete within {ANSWER_WITHIN:?}"))
}

fn set_up_times(gnmi: &mut GnmiSuite) -> CaseResult {
    for round in 0..gnmi.rounds {
        let name = gnmi.name("timed");
        let (input, output) = (gnmi.input(round as usize % 2), gnmi.output(round as usize / 2 % 2));
        let began = gnmi.link.now();
        made(gnmi, &name, (&input, &output))?;
        let took = gnmi.link.now().saturating_sub(began);
        gnmi.set_ups.push(took);
        delete(gnmi, &name)?;
        let (gone, _) = gnmi.until(|switch| !switch.connections.contains_key(&name))?;
        if !gone {
            return found("a deleted connection still exists");
        }
    }
    Ok(CaseVerdict::Passed)
}
