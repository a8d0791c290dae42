// SPDX-License-Identifier: Apache-2.0
//! The cases of switches with numbered ports, which several protocols share.

use std::time::Duration;

use super::case::{
    CaseResult, CaseVerdict, FreePorts, PUT_BACK, Pairs, SuiteResults, SuiteSession, Tested, found,
    free_ports, holds, misbehaves, run_all,
};
use super::link::ExchangeError;
use super::target::Options;

/// Highest power that a dark port may report.
pub(super) const DARK_DBM: f64 = -40.0;

/// The ports of a switch. Outputs are numbered after inputs.
#[derive(Default)]
pub(super) struct MatrixPorts {
    pub(super) inputs: u32,
    pub(super) outputs: u32,
    pub(super) free: FreePorts<u32>,
    pub(super) has_made: bool,
    pub(super) set_ups: Vec<Duration>,
    rounds: u32,
}

impl MatrixPorts {
    pub(super) fn new(plan: &Options) -> Self {
        Self { rounds: plan.rounds, ..Self::default() }
    }

    pub(super) fn pair(&self, index: usize) -> (u32, u32) {
        (self.free.0[index], self.free.1[index])
    }

    /// Returns the number after the last port.
    pub(super) const fn beyond(&self) -> u32 {
        self.inputs + self.outputs + 1
    }
}

/// The reply to a change of circuits.
pub(super) struct ChangeReply {
    pub(super) is_done: bool,
    pub(super) text: String,
    pub(super) error: String,
}

pub(super) trait MatrixSuite: SuiteSession {
    const CIRCUIT: &'static str;
    const CIRCUITS: &'static str;
    /// The command that lists the circuits.
    const LIST: &'static str;

    fn ports(&mut self) -> &mut MatrixPorts;

    fn now(&self) -> Duration;

    /// Ignores later interruptions, and receives a pending reply.
    fn shield(&mut self);

    fn circuits(&mut self) -> Result<Pairs, ExchangeError>;

    fn connect(&mut self, pair: (u32, u32)) -> Result<ChangeReply, ExchangeError>;

    fn disconnect(&mut self, pair: (u32, u32)) -> Result<ChangeReply, ExchangeError>;

    /// Returns the ports that the command for a disconnection names.
    fn disconnected(pair: (u32, u32)) -> String;
}

/// Runs the cases that create circuits. `before` are the circuits, or why they are not known.
pub(super) fn run_moving<S: MatrixSuite>(
    session: &mut S,
    cases: &[Tested<S>],
    before: Result<Pairs, &str>,
    plan: &Options,
    results: &mut SuiteResults,
) {
    let ports = session.ports();
    let free = before
        .as_ref()
        .map_err(|unread| (*unread).to_owned())
        .and_then(|before| free_ports(plan, results, |text, free| sort(text, ports, before, free)));
    match free {
        Err(why) => cases.iter().for_each(|(case, _)| results.skip(*case, &*why)),
        Ok(free) => {
            session.ports().free = free;
            run_all(session, cases, results);
            put_back(session, before.ok(), results);
        }
    }
}

fn sort(
    text: &str,
    ports: &MatrixPorts,
    before: &Pairs,
    free: &mut FreePorts<u32>,
) -> Result<(), String> {
    let Ok(port) = text.parse::<u32>() else {
        return Err(format!("--may-move: `{text}` is not a port number"));
    };
    if let Some(pair) = before.iter().find(|pair| pair.0 == port || pair.1 == port) {
        return Err(format!("--may-move: port {port} is part of {pair:?}: choose dark ports"));
    }
    match port {
        _ if port >= 1 && port <= ports.inputs => free.0.push(port),
        _ if port > ports.inputs && port < ports.beyond() => free.1.push(port),
        _ => return Err(format!("--may-move: unknown port {port}")),
    }
    Ok(())
}

fn put_back<S: MatrixSuite>(session: &mut S, before: Option<Pairs>, results: &mut SuiteResults) {
    session.shield();
    let cleared = session.clear().or_else(|_| session.reconnect().and_then(|()| session.clear()));
    let judged = cleared.and_then(|()| session.circuits()).map(|after| match before {
        Some(before) if before != after => CaseVerdict::Misbehaves(format!(
            "the {} changed from {before:?} to {after:?}",
            S::CIRCUITS
        )),
        _ => CaseVerdict::Passed,
    });
    results.note(PUT_BACK, judged);
}

/// Removes only circuits between ports in `--may-move`.
pub(super) fn clear(session: &mut impl MatrixSuite) -> Result<(), ExchangeError> {
    if !session.ports().has_made {
        return Ok(());
    }
    let (inputs, outputs) = session.ports().free.clone();
    let circuits = session.circuits()?.into_iter();
    for pair in circuits.filter(|pair| inputs.contains(&pair.0) && outputs.contains(&pair.1)) {
        let reply = session.disconnect(pair)?;
        if !reply.is_done {
            let why = format!("{pair:?} was not disconnected: {}", reply.error);
            return Err(ExchangeError::Nonsense(why));
        }
    }
    session.ports().has_made = false;
    Ok(())
}

/// Connects a pair of free ports, or ends the case.
pub(super) fn connected(
    session: &mut impl MatrixSuite,
    index: usize,
) -> Result<(u32, u32), ExchangeError> {
    let pair = session.ports().pair(index);
    match session.connect(pair)? {
        ChangeReply { is_done: true, .. } => Ok(pair),
        reply => Err(misbehaves(format!("{} after connecting {pair:?}", reply.text))),
    }
}

pub(super) fn connects<S: MatrixSuite>(session: &mut S) -> CaseResult {
    let mut expected = session.circuits()?;
    let pair = connected(session, 0)?;
    expected.push(pair);
    expected.sort_unstable();
    let mut after = session.circuits()?;
    after.sort_unstable();
    let list = S::LIST;
    holds(after == expected, || format!("{pair:?} was connected, but {list} lists {after:?}"))
}

pub(super) fn keeps_others<S: MatrixSuite>(session: &mut S) -> CaseResult {
    connected(session, 0)?;
    let before = session.circuits()?;
    connected(session, 1)?;
    let after = session.circuits()?;
    let lost = before.iter().find(|pair| !after.contains(pair));
    holds(lost.is_none(), || format!("{} {lost:?} is gone", S::CIRCUIT))
}

pub(super) fn disconnects<S: MatrixSuite>(session: &mut S) -> CaseResult {
    let gone = connected(session, 0)?;
    connected(session, 1)?;
    let expected: Pairs = session.circuits()?.into_iter().filter(|pair| *pair != gone).collect();
    let reply = session.disconnect(gone)?;
    if !reply.is_done {
        return found(format!("{} after disconnecting {gone:?}", reply.text));
    }
    let (after, list) = (session.circuits()?, S::LIST);
    holds(after == expected, || format!("{gone:?} was disconnected, but {list} lists {after:?}"))
}

pub(super) fn set_up_times<S: MatrixSuite>(session: &mut S) -> CaseResult {
    for round in 0..session.ports().rounds {
        let free = &session.ports().free;
        let pair = (free.0[round as usize % 2], free.1[round as usize / 2 % 2]);
        let began = session.now();
        let reply = session.connect(pair)?;
        let took = session.now().saturating_sub(began);
        if !reply.is_done || !session.circuits()?.contains(&pair) {
            return found(format!("round {round}: {} after connecting {pair:?}", reply.text));
        }
        session.ports().set_ups.push(took);
        let reply = session.disconnect(pair)?;
        if !reply.is_done {
            let (text, ports) = (reply.text, S::disconnected(pair));
            return found(format!("round {round}: {text} after disconnecting {ports}"));
        }
    }
    Ok(CaseVerdict::Passed)
}
