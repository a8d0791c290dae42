// SPDX-License-Identifier: Apache-2.0

use super::*;

pub(super) const STILL: &[Tested<ScpiSuite>] = &[
    tested!(
        identity,
        "SCPI-99 4.1, IEEE 488.2 10.14",
        "*IDN? has four fields: maker, model, serial number, firmware"
    ),
    tested!(size, "OXC:SWITch:SIZE?", "SIZE? returns the exact number of ports"),
    tested!(clear_status, "IEEE 488.2 10.3", "*CLS empties the error queue"),
    tested!(error_left, "SCPI-99 21.8", "an unknown command queues an error from −199 to −100"),
    tested!(
        status_byte,
        "IEEE 488.2 10.36, SCPI-99 4.1.3.1",
        "*STB? sets bit 2 while errors are queued"
    ),
    tested!(sets_are_silent, "IEEE 488.2 6.4", "only queries are answered"),
    tested!(
        answers_joined,
        "IEEE 488.2 8.4",
        "the answers to one line arrive in one line, separated by ;"
    ),
    tested!(
        keyword_forms,
        "SCPI-99 6.2",
        "keywords work in short and long form, in upper and lower case"
    ),
    tested!(peers_agree, "OXC:SWITch:CONNect:PORT?", "CONN:PORT? and CONN:STAT? agree"),
    tested!(power_values, "PMON:POWer?", "a power query returns one number per port"),
];

pub(super) const MOVING: &[Tested<ScpiSuite>] = &[
    tested_as(
        "add",
        "OXC:SWITch:CONNect:ADD",
        "CONN:ADD connects the given ports, and CONN:STAT? lists them",
        matrix::connects,
    ),
    tested!(
        add_peers,
        "OXC:SWITch:CONNect:PORT?",
        "each port of a new connection reports the other"
    ),
    tested!(barrier, "IEEE 488.2 10.19", "*OPC? is answered when the light has settled"),
    tested!(power_passive, "PMON:POWer?", "an output emits no more light than enters its input"),
    tested_as(
        "add-others",
        "OXC:SWITch:CONNect:ADD",
        "CONN:ADD does not change other connections",
        matrix::keeps_others,
    ),
    tested!(add_range, "SCPI-99 8.3.2", "a list may contain ranges: (@1:3)"),
    tested!(
        add_unknown_port,
        "SCPI-99 21.8",
        "a command for a missing port queues an error and leaves the circuits unchanged"
    ),
    tested!(
        add_port_in_use,
        "OXC:SWITch:CONNect:ADD",
        "a command for a port in use queues an error and leaves the circuits unchanged"
    ),
    tested!(
        add_lopsided,
        "SCPI-99 21.8",
        "lists of different lengths queue an error and leave the circuits unchanged"
    ),
    tested_as(
        "add-in-part",
        "SCPI-99 21.8",
        "CONN:ADD takes a list; with a missing port it queues an error, and STAT? shows the result",
        matrix::list_in_part,
    ),
    tested_as(
        "subtract",
        "OXC:SWITch:CONNect:SUBtract",
        "CONN:SUB removes only the given connections",
        matrix::disconnects,
    ),
    tested_as(
        "set-up-times",
        "conform",
        "after *OPC?, all circuits created one at a time exist",
        matrix::set_up_times,
    ),
];

fn identity(scpi: &mut ScpiSuite) -> CaseResult {
    let line = scpi.ask("*IDN?")?;
    holds(line.split(',').count() == 4, || format!("the answer is `{line}`"))
}

fn size(scpi: &mut ScpiSuite) -> CaseResult {
    let line = scpi.ask(":oxc:swit:size?")?;
    let read = line.split_once(',').and_then(|(inputs, outputs)| {
        Some((inputs.trim().parse::<u32>().ok()?, outputs.trim().parse::<u32>().ok()?))
    });
    let Some((inputs, outputs)) = read else { return found(format!("the answer is `{line}`")) };
    (scpi.ports.inputs, scpi.ports.outputs) = (inputs, outputs);
    let last = inputs + outputs;
    // The last port must exist, and the port after it must not.
    scpi.send("*CLS")?;
    scpi.received.clear();
    scpi.send(&format!(":oxc:swit:conn:port? {last}"))?;
    if scpi.line(ANSWER_WITHIN)?.is_none() {
        return found(format!("SIZE? is {inputs},{outputs}, but port {last} is unknown"));
    }
    scpi.send("*CLS")?;
    scpi.send(&format!(":oxc:swit:conn:port? {}", last + 1))?;
    let beyond = scpi.line(SILENCE)?;
    scpi.send("*CLS")?;
    holds(beyond.is_none(), || format!("SIZE? is {inputs},{outputs}, but port {} exists", last + 1))
}

fn clear_status(scpi: &mut ScpiSuite) -> CaseResult {
    scpi.send(":no:such:command")?;
    scpi.send("*CLS")?;
    let left = scpi.error()?;
    holds(left == 0, || format!("error {left} is still queued after *CLS"))
}

fn error_left(scpi: &mut ScpiSuite) -> CaseResult {
    scpi.send("*CLS")?;
    scpi.send(":no:such:command")?;
    let left = scpi.error()?;
    let next = scpi.error()?;
    if next != 0 {
        return found(format!("one wrong command queued two errors, {left} and {next}"));
    }
    holds((-199..=-100).contains(&left), || format!("a wrong command queued error {left}"))
}

fn status_byte(scpi: &mut ScpiSuite) -> CaseResult {
    scpi.send("*CLS")?;
    let idle = scpi.ask("*STB?")?;
    // Every model must refuse port 0.
    scpi.send(":no:such:command")?;
    scpi.send(":oxc:swit:conn:port? 0")?;
    let waits = scpi.ask("*STB?")?;
    scpi.send("*CLS")?;
    let bits = [&idle, &waits].map(|line| line.trim().parse::<u8>().ok().map(|byte| byte & 4 != 0));
    match bits {
        [Some(false), Some(true)] => Ok(CaseVerdict::Passed),
        _ => found(format!("*STB? is `{idle}` without errors and `{waits}` with one")),
    }
}

fn sets_are_silent(scpi: &mut ScpiSuite) -> CaseResult {
    scpi.received.clear();
    scpi.send("*CLS")?;
    let heard = scpi.line(SILENCE)?;
    holds(heard.is_none(), || format!("*CLS was answered with `{}`", heard.unwrap_or_default()))
}

fn answers_joined(scpi: &mut ScpiSuite) -> CaseResult {
    let line = scpi.ask("*STB?;*OPC?")?;
    let more = scpi.line(SILENCE)?;
    if let Some(more) = more {
        return found(format!("two lines arrived: `{line}` and `{more}`"));
    }
    holds(line.split(';').count() == 2, || format!("`*STB?;*OPC?` was answered with `{line}`"))
}

fn keyword_forms(scpi: &mut ScpiSuite) -> CaseResult {
    let mut seen: Option<String> = None;
    for form in [":oxc:swit:size?", ":OXC:SWITCH:SIZE?", ":oxc:Switch:size?"] {
        scpi.send("*CLS")?;
        scpi.received.clear();
        scpi.send(form)?;
        let Some(line) = scpi.line(ANSWER_WITHIN)? else {
            scpi.send("*CLS")?;
            return found(format!("`{form}` is not answered"));
        };
        if seen.as_ref().is_some_and(|before| *before != line) {
            return found(format!("`{form}` is answered with `{line}`"));
        }
        seen = Some(line);
    }
    Ok(CaseVerdict::Passed)
}

fn peer(scpi: &mut ScpiSuite, port: u32) -> Result<Option<u32>, ExchangeError> {
    let line = scpi.ask(&format!(":oxc:swit:conn:port? {port}"))?;
    Ok(line.trim_matches('"').trim().parse().ok())
}

fn peers_agree(scpi: &mut ScpiSuite) -> CaseResult {
    let pairs = scpi.circuits()?;
    for &(input, output) in pairs.iter().take(32) {
        for (port, other) in [(input, output), (output, input)] {
            let said = peer(scpi, port)?;
            if said != Some(other) {
                return found(format!(
                    "STAT? lists {port} and {other}, but PORT? {port} returns {said:?}"
                ));
            }
        }
    }
    let dark = (1..=scpi.ports.inputs).find(|port| pairs.iter().all(|pair| pair.0 != *port));
    if let Some(dark) = dark {
        let said = peer(scpi, dark)?;
        return holds(said.is_none(), || {
            format!("STAT? does not list {dark}, but PORT? returns {said:?}")
        });
    }
    Ok(CaseVerdict::Passed)
}

fn power_values(scpi: &mut ScpiSuite) -> CaseResult {
    let ports = [1, 2.min(scpi.ports.inputs.max(1)), scpi.ports.inputs + 1];
    let values = scpi.powers(&ports)?;
    holds(values.len() == 3, || format!("{} values for 3 ports", values.len()))
}

fn add_peers(scpi: &mut ScpiSuite) -> CaseResult {
    let (input, output) = connected(scpi, 0)?;
    for (port, other) in [(input, output), (output, input)] {
        let said = peer(scpi, port)?;
        if said != Some(other) {
            return found(format!("PORT? {port} returns {said:?} instead of {other}"));
        }
    }
    Ok(CaseVerdict::Passed)
}

/// Connects the first free ports, and returns the powers that enter and leave them.
fn lit(scpi: &mut ScpiSuite) -> Result<((u32, u32), [f64; 2]), ExchangeError> {
    let (input, output) = connected(scpi, 0)?;
    let powers = scpi.powers(&[input, output])?.try_into();
    let powers = powers.map_err(|_| misbehaves("the answer does not contain two powers"))?;
    Ok(((input, output), powers))
}

fn barrier(scpi: &mut ScpiSuite) -> CaseResult {
    let ((input, output), [enters, leaves]) = lit(scpi)?;
    if enters < DARK_DBM {
        return Ok(CaseVerdict::NotTested(format!("no light arrives at port {input}")));
    }
    holds(leaves > DARK_DBM, || {
        format!(
            "*OPC? was answered, but only {leaves} dBm leave port {output} while {enters} dBm enter"
        )
    })
}

fn power_passive(scpi: &mut ScpiSuite) -> CaseResult {
    let (_, [enters, leaves]) = lit(scpi)?;
    holds(leaves <= enters + METER_ERROR_DB, || format!("{enters} dBm enter, {leaves} dBm leave"))
}

fn add_range(scpi: &mut ScpiSuite) -> CaseResult {
    let (input, output) = scpi.ports.pair(0);
    scpi.ports.has_made = true;
    let left =
        scpi.change(&format!(":oxc:swit:conn:add (@{input}:{input}),(@{output}:{output})"))?;
    if left != 0 {
        return found(format!("error {left} for (@{input}:{input}),(@{output}:{output})"));
    }
    let there = scpi.circuits()?.contains(&(input, output));
    holds(there, || "no error was queued, but the connection is missing".into())
}

fn refused(scpi: &mut ScpiSuite, command: &str) -> CaseResult {
    let before = scpi.circuits()?;
    let left = scpi.change(command)?;
    let after = scpi.circuits()?;
    if after != before {
        return found(format!(
            "`{command}` caused error {left} but changed the circuits: {after:?}"
        ));
    }
    holds(left != 0, || format!("`{command}` caused no error"))
}

fn add_unknown_port(scpi: &mut ScpiSuite) -> CaseResult {
    let (input, _) = scpi.ports.pair(0);
    let beyond = scpi.ports.beyond();
    scpi.ports.has_made = true;
    refused(scpi, &format!(":oxc:swit:conn:add (@{input}),(@{beyond})"))
}

fn add_port_in_use(scpi: &mut ScpiSuite) -> CaseResult {
    connected(scpi, 0)?;
    let ((input, _), (_, output)) = (scpi.ports.pair(0), scpi.ports.pair(1));
    refused(scpi, &format!(":oxc:swit:conn:add (@{input}),(@{output})"))
}

fn add_lopsided(scpi: &mut ScpiSuite) -> CaseResult {
    let ((first, _), (second, output)) = (scpi.ports.pair(0), scpi.ports.pair(1));
    scpi.ports.has_made = true;
    refused(scpi, &format!(":oxc:swit:conn:add (@{first},{second}),(@{output})"))
}
