// SPDX-License-Identifier: Apache-2.0
//! Cases that only read from the device.

use std::collections::BTreeMap;

use lightloom_gnmi::client::Answer;
use lightloom_gnmi::message::{DataType, Encoding, ListMode, Value};
use lightloom_gnmi::model::{ColdStartRecovery, ConnectionStatus as Stands, MODULES};
use serde_json::Value as Json;

use super::tree::flatten;
use super::{ANSWER_WITHIN, GnmiSuite, case, is_refusal, is_synced, shown};
use crate::conform::case::{Case, CaseResult, CaseVerdict, Tested, found, holds, tested};

/// The start of 2020 in nanoseconds since 1970. Earlier timestamps indicate a wrong clock.
const YEAR_2020: i64 = 1_577_836_800_000_000_000;
const METER_ERROR_DB: f64 = 0.5;

pub(super) const MODELS: Case = case(
    "capabilities-models",
    "gNMI 3.2.2",
    "Capabilities lists the model's three modules and their versions",
);

pub(super) const CASES: &[Tested<GnmiSuite>] = &[
    (MODELS, models),
    tested!(
        capabilities_encodings,
        "gNMI 3.2.2",
        "a Get works in each encoding that Capabilities lists"
    ),
    tested!(get_encoding, "gNMI 3.3.1", "a Get returns the requested encoding"),
    tested!(get_type_config, "gNMI 3.3.1", "a Get of type CONFIG returns no state leaves"),
    tested!(get_timestamp, "gNMI 2.1", "notifications have timestamps in ns since 1970"),
    tested!(get_unknown_path, "gNMI 3.3.4", "a path outside the model is refused"),
    tested!(
        switch_bidirectional,
        "ocp-ocs-optical-switch config/bidirectional",
        "config and state show whether the switch is bidirectional"
    ),
    tested!(
        switch_recovery,
        "ocp-ocs-optical-switch cold-boot-recovery",
        "cold-boot-recovery does not exceed connection-recovery-capability"
    ),
    tested!(
        port_index,
        "ocp-ocs-optical-switch-port state/index",
        "port indices are unique within a group"
    ),
    tested!(
        port_group,
        "ocp-ocs-optical-switch-port state/group",
        "each port belongs to a group in port-groups"
    ),
    tested!(
        port_status,
        "ocp-ocs-optical-switch-port state/status",
        "each port's status is BLOCKED, FAILED, TUNING, TUNED or UNKNOWN"
    ),
    tested!(
        port_peers,
        "ocp-ocs-optical-switch-port connection/peer",
        "two connected ports list each other as peers"
    ),
    tested!(
        connection_status,
        "…-connections state/status",
        "each connection has one of the five states; FAILED is a fault"
    ),
    tested!(
        connection_config,
        "…-connections config",
        "each CONNECTED connection uses the ports in its config"
    ),
    tested!(
        connected_has_light,
        "…-connections state/status",
        "the ports of a CONNECTED connection are each other's peers and not TUNING"
    ),
    tested!(
        power_passive,
        "…-port state/…-optical-power",
        "an output emits no more light than enters its input"
    ),
    tested!(
        subscribe_once,
        "gNMI 3.5.1.5.1",
        "a ONCE subscription sends its values and sync_response, then ends"
    ),
    tested!(subscribe_sync, "gNMI 3.5.1.4", "a stream sends sync_response after its first values"),
];

fn models(gnmi: &mut GnmiSuite) -> CaseResult {
    let said = gnmi.capabilities()?;
    for name in MODULES {
        match said.supported_models.iter().find(|model| model.name == name) {
            None => return found(format!("Capabilities does not list `{name}`")),
            Some(model) if model.version.is_empty() => {
                return found(format!("`{name}` has no version"));
            }
            Some(_) => {}
        }
    }
    Ok(CaseVerdict::Passed)
}

fn capabilities_encodings(gnmi: &mut GnmiSuite) -> CaseResult {
    let said = gnmi.capabilities()?;
    if said.supported_encodings.is_empty() {
        return found("Capabilities lists no encoding");
    }
    for number in said.supported_encodings {
        let Ok(encoding) = Encoding::try_from(number) else {
            return found(format!("gNMI has no encoding {number}"));
        };
        let path = ["/optical-switch/state/bidirectional"];
        if let Err(status) = gnmi.get_as(&path, encoding, DataType::All)?
            && status.code() != lightloom_gnmi::Code::NotFound
        {
            return found(format!(
                "Capabilities lists {encoding:?}, but a Get with it is refused: {}",
                shown(&status)
            ));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn get_encoding(gnmi: &mut GnmiSuite) -> CaseResult {
    let said = gnmi.capabilities()?;
    for encoding in [Encoding::JsonIetf, Encoding::Json, Encoding::Proto] {
        if !said.supported_encodings.contains(&(encoding as i32)) {
            continue;
        }
        let Ok(got) = gnmi.get_as(&["/optical-switch"], encoding, DataType::All)? else { continue };
        for update in got.notification.iter().flat_map(|notification| &notification.update) {
            let value = update.val.as_ref().and_then(|value| value.value.as_ref());
            let fits = match (encoding, value) {
                (Encoding::JsonIetf, Some(Value::JsonIetf(_)))
                | (Encoding::Json, Some(Value::Json(_))) => true,
                (Encoding::Proto, Some(value)) => {
                    !matches!(value, Value::Json(_) | Value::JsonIetf(_) | Value::Ascii(_))
                }
                _ => false,
            };
            if !fits {
                return found(format!(
                    "{encoding:?} was requested, but the response uses another encoding"
                ));
            }
        }
    }
    Ok(CaseVerdict::Passed)
}

fn get_type_config(gnmi: &mut GnmiSuite) -> CaseResult {
    let got = gnmi.get_as(&["/optical-switch", "/connections"], gnmi.encoding, DataType::Config)?;
    let got = match got {
        Ok(got) => got,
        Err(status) => return found(format!("refused: {}", shown(&status))),
    };
    let leaves = match flatten(&got) {
        Ok(leaves) => leaves,
        Err(why) => return found(why),
    };
    let state = leaves.keys().find(|path| path.contains("/state/"));
    holds(state.is_none(), || format!("the response contains {}", state.map_or("", String::as_str)))
}

fn get_timestamp(gnmi: &mut GnmiSuite) -> CaseResult {
    let got = gnmi.get(&["/optical-switch"])?;
    let early = got.notification.iter().find(|notification| notification.timestamp < YEAR_2020);
    holds(early.is_none(), || format!("timestamp {} ns", early.map_or(0, |early| early.timestamp)))
}

fn get_unknown_path(gnmi: &mut GnmiSuite) -> CaseResult {
    let path = ["/connections/no-such-node"];
    match gnmi.get_as(&path, gnmi.encoding, DataType::All)? {
        Ok(_) => found("a Get of /connections/no-such-node succeeded"),
        Err(status) => holds(is_refusal(&status), || format!("answered with {}", shown(&status))),
    }
}

fn switch_bidirectional(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    for part in ["config", "state"] {
        let path = format!("/optical-switch/{part}/bidirectional");
        if !matches!(switch.leaves.get(&path), Some(Json::Bool(_))) {
            return found(format!("{path} is missing or not a boolean"));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn switch_recovery(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    let recoveries = ["cold-boot-recovery", "connection-recovery-capability"].map(|leaf| {
        let path = format!("/optical-switch/state/{leaf}");
        let word = switch.leaves.get(&path).and_then(Json::as_str).unwrap_or("");
        let word = word.rsplit_once(':').map_or(word, |(_, bare)| bare);
        word.parse::<ColdStartRecovery>().map_err(|why| format!("{path}: {why}"))
    });
    match recoveries {
        [Ok(set), Ok(best)] => holds(set <= best, || {
            format!("cold-boot-recovery is {}, but the capability is {}", set.word(), best.word())
        }),
        [Err(why), _] | [_, Err(why)] => found(why),
    }
}

fn port_index(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    let mut seen = BTreeMap::new();
    for (name, port) in &switch.ports {
        let Some(index) = port.index else { return found(format!("`{name}` has no index")) };
        if let Some(other) = seen.insert((&port.group, index), name) {
            return found(format!(
                "`{other}` and `{name}` share index {index} in `{}`",
                port.group
            ));
        }
    }
    holds(!seen.is_empty(), || "no component contains an ocp-ocs-port".into())
}

fn port_group(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    let astray = switch.ports.iter().find(|(_, port)| !switch.groups.contains_key(&port.group));
    if let Some((name, port)) = astray {
        return found(format!("`{name}` is in group `{}`, which does not exist", port.group));
    }
    let known = ["INPUT-ONLY", "OUTPUT-ONLY", "ANY"];
    let odd = switch.groups.iter().find(|(_, direction)| !known.contains(&direction.as_str()));
    holds(odd.is_none(), || format!("unknown direction of a group: {odd:?}"))
}

fn port_status(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    let known = ["BLOCKED", "FAILED", "TUNING", "TUNED", "UNKNOWN"];
    if let Some((name, port)) =
        switch.ports.iter().find(|(_, p)| !known.contains(&p.status.as_str()))
    {
        return found(format!("`{name}` is `{}`", port.status));
    }
    let failed: Vec<_> = switch
        .ports
        .iter()
        .filter(|(_, p)| p.status == "FAILED")
        .map(|(name, _)| &**name)
        .collect();
    Ok(match failed.as_slice() {
        [] => CaseVerdict::Passed,
        [first, ..] => CaseVerdict::Fault(format!(
            "{} of {} ports are FAILED, the first is `{first}`",
            failed.len(),
            switch.ports.len()
        )),
    })
}

fn port_peers(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    one_sided(&switch).map_or(Ok(CaseVerdict::Passed), found)
}

pub(super) fn one_sided(switch: &super::tree::ShownSwitch) -> Option<String> {
    switch.ports.iter().find_map(|(name, port)| {
        let peer = port.peer.as_ref()?;
        let back = switch.ports.get(peer).and_then(|peer| peer.peer.as_ref());
        (back != Some(name))
            .then(|| format!("the peer of `{name}` is `{peer}`, whose peer is a different port"))
    })
}

fn connection_status(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    for (name, connection) in &switch.connections {
        match connection.status.parse::<Stands>() {
            Err(why) => return found(format!("connection `{name}`: {why}")),
            Ok(Stands::Failed) => {
                let why = connection.reason.as_deref().unwrap_or("no reason given");
                return Ok(CaseVerdict::Fault(format!("connection `{name}` is FAILED: {why}")));
            }
            Ok(_) => {}
        }
    }
    Ok(CaseVerdict::Passed)
}

const NONE_THERE: &str = "the device has no connection yet";

fn connection_config(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    let there: Vec<_> =
        switch.connections.iter().filter(|(_, c)| c.status == "CONNECTED").collect();
    if there.is_empty() {
        return Ok(CaseVerdict::NotTested(NONE_THERE.into()));
    }
    let odd = there.iter().find(|(_, c)| (&c.input, &c.output) != (&c.set_to.0, &c.set_to.1));
    holds(odd.is_none(), || {
        format!(
            "the ports of connection `{}` differ from its config",
            odd.map_or("", |(name, _)| name)
        )
    })
}

fn connected_has_light(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    let mut there = 0;
    for (name, connection) in &switch.connections {
        if connection.status == "CONNECTED" {
            there += 1;
            if let Some(why) = switch.unlit(connection) {
                return found(format!("connection `{name}` is CONNECTED, but {why}"));
            }
        }
    }
    Ok(if there == 0 { CaseVerdict::NotTested(NONE_THERE.into()) } else { CaseVerdict::Passed })
}

fn power_passive(gnmi: &mut GnmiSuite) -> CaseResult {
    let switch = gnmi.switch()?;
    amplified(&switch).map_or_else(
        || Ok(CaseVerdict::NotTested("no connected pair of ports reports both powers".into())),
        |odd| odd.map_or(Ok(CaseVerdict::Passed), found),
    )
}

/// Returns a pair with more power at the output than at the input. `None` without power readings.
pub(super) fn amplified(switch: &super::tree::ShownSwitch) -> Option<Option<String>> {
    let mut seen = None;
    for connection in switch.connections.values().filter(|c| c.status == "CONNECTED") {
        let (input, output) = (switch.port(&connection.input), switch.port(&connection.output));
        if let (Some(enters), Some(leaves)) = (input.input_power, output.output_power) {
            if leaves > enters + METER_ERROR_DB {
                return Some(Some(format!(
                    "{enters:.2} dBm at the input, but {leaves:.2} dBm at the output `{}`",
                    connection.output.as_deref().unwrap_or("?")
                )));
            }
            seen = Some(None);
        }
    }
    seen
}

fn has_ended(heard: &[Answer]) -> bool {
    heard.iter().any(|answer| matches!(answer, Answer::SubscriptionEnded | Answer::Refused(_)))
}

fn subscribe_once(gnmi: &mut GnmiSuite) -> CaseResult {
    let number = gnmi.subscribe("/optical-switch", ListMode::Once)?;
    let heard = gnmi.listen(number, ANSWER_WITHIN, has_ended)?;
    if let Some(Answer::Refused(status)) = heard.iter().find(|a| matches!(a, Answer::Refused(_))) {
        return found(format!("refused: {}", shown(status)));
    }
    if !is_synced(&heard) {
        return found("no sync_response");
    }
    holds(has_ended(&heard), || format!("the subscription did not end within {ANSWER_WITHIN:?}"))
}

fn subscribe_sync(gnmi: &mut GnmiSuite) -> CaseResult {
    let number = gnmi.subscribe("/connections", ListMode::Stream)?;
    let heard = gnmi.listen(number, ANSWER_WITHIN, |heard| is_synced(heard) || has_ended(heard))?;
    if let Some(Answer::Refused(status)) = heard.iter().find(|a| matches!(a, Answer::Refused(_))) {
        return found(format!("refused: {}", shown(status)));
    }
    holds(is_synced(&heard), || format!("no sync_response within {ANSWER_WITHIN:?}"))
}
