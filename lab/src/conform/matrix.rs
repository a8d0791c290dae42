// SPDX-License-Identifier: Apache-2.0
//! The cases of switches with numbered ports, which several protocols share.

use std::collections::BTreeMap;
use std::time::Duration;

use super::REST_WITHIN;
use super::case::{
    CaseResult, CaseVerdict, FreePorts, PUT_BACK, Pairs, SuiteResults, SuiteSession, Tested, found,
    free_ports, holds, misbehaves, run_all, tested_as,
};
use super::link::{ExchangeError, Link};
use super::target::Options;

/// Highest power that a dark port may report.
pub(super) const DARK_DBM: f64 = -40.0;
const SESSIONS_MAX: usize = 32;
const RESTART_WITHIN: Duration = Duration::from_secs(300);
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The ports of a switch. Outputs are numbered after inputs.
#[derive(Default)]
pub(super) struct MatrixPorts {
    pub(super) inputs: u32,
    pub(super) outputs: u32,
    pub(super) free: FreePorts<u32>,
    pub(super) has_made: bool,
    pub(super) set_ups: Vec<Duration>,
    observations: BTreeMap<&'static str, String>,
    rounds: u32,
    restart: Option<String>,
}

impl MatrixPorts {
    pub(super) fn new(plan: &Options) -> Self {
        Self { rounds: plan.rounds, restart: plan.restart.clone(), ..Self::default() }
    }

    pub(super) fn report(self, results: &mut SuiteResults) {
        (results.set_ups, results.observations) = (self.set_ups, self.observations);
    }

    fn observe(&mut self, subject: &'static str, found: impl Into<String>) -> CaseResult {
        self.observations.insert(subject, found.into());
        Ok(CaseVerdict::Passed)
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
}

pub(super) trait MatrixSuite: SuiteSession {
    const CIRCUITS: &'static str;
    /// The command that lists the circuits.
    const LIST: &'static str;
    /// What holds after a restart.
    const RESTARTED: &'static str;

    fn ports(&mut self) -> &mut MatrixPorts;

    fn link(&mut self) -> &mut dyn Link;

    /// Logs in over another connection. `None` if the device has only this one.
    fn another(&self) -> Option<Result<Self, ExchangeError>>
    where
        Self: Sized;

    /// Ignores later interruptions, and receives a pending reply.
    fn shield(&mut self);

    fn circuits(&mut self) -> Result<Pairs, ExchangeError>;

    /// Connects all pairs with one command.
    fn connect(&mut self, pairs: &[(u32, u32)]) -> Result<ChangeReply, ExchangeError>;

    fn disconnect(&mut self, pair: (u32, u32)) -> Result<ChangeReply, ExchangeError>;
}

/// The last cases that create circuits.
pub(super) const fn of_every_protocol<S: MatrixSuite>() -> [Tested<S>; 3] {
    const SESSIONS: &str = "a session is served or refused, and ends no other";
    [
        tested_as("sessions", "conform", SESSIONS, sessions),
        tested_as("warm-restart", "conform", S::RESTARTED, |suite| {
            restart(suite, "warm", "circuits after a warm restart")
        }),
        tested_as("cold-restart", "conform", S::RESTARTED, |suite| {
            restart(suite, "cold", "circuits after a cold restart")
        }),
    ]
}

/// Runs the cases that create circuits. `before` are the circuits, or why they are not known.
pub(super) fn run_moving<S: MatrixSuite>(
    session: &mut S,
    cases: &[Tested<S>],
    before: Result<Pairs, &str>,
    plan: &Options,
    results: &mut SuiteResults,
) {
    let cases = [cases, &of_every_protocol()].concat();
    let ports = session.ports();
    let free = before
        .as_ref()
        .map_err(|unread| (*unread).to_owned())
        .and_then(|before| free_ports(plan, results, |text, free| sort(text, ports, before, free)));
    match free {
        Err(why) => cases.iter().for_each(|(case, _)| results.skip(*case, &*why)),
        Ok(free) => {
            session.ports().free = free;
            run_all(session, &cases, results);
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
            let why = format!("{pair:?} was not disconnected: {}", reply.text);
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
    match session.connect(&[pair])? {
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
    holds(lost.is_none(), || format!("{} no longer lists {lost:?}", S::LIST))
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
        let began = session.link().now();
        let reply = session.connect(&[pair])?;
        let took = session.link().now().saturating_sub(began);
        if !reply.is_done || !session.circuits()?.contains(&pair) {
            return found(format!("round {round}: {} after connecting {pair:?}", reply.text));
        }
        session.ports().set_ups.push(took);
        let reply = session.disconnect(pair)?;
        if !reply.is_done {
            return found(format!("round {round}: {} after disconnecting {pair:?}", reply.text));
        }
    }
    Ok(CaseVerdict::Passed)
}

fn circuits(session: &mut impl MatrixSuite) -> Result<Pairs, ExchangeError> {
    let mut circuits = session.circuits()?;
    circuits.sort_unstable();
    Ok(circuits)
}

/// Returns the inputs and the outputs of pairs, for a command.
pub(super) fn ports(pairs: &[(u32, u32)]) -> [Vec<String>; 2] {
    [
        pairs.iter().map(|pair| pair.0.to_string()).collect(),
        pairs.iter().map(|pair| pair.1.to_string()).collect(),
    ]
}

fn with(circuits: &Pairs, more: &[(u32, u32)]) -> Pairs {
    let mut all = [circuits, more].concat();
    all.sort_unstable();
    all
}

pub(super) fn list_in_part<S: MatrixSuite>(session: &mut S) -> CaseResult {
    let pairs = [session.ports().pair(0), session.ports().pair(1)];
    let before = circuits(session)?;
    let reply = session.connect(&pairs)?;
    let after = circuits(session)?;
    if !reply.is_done || after != with(&before, &pairs) {
        return found(format!("{} for {pairs:?}, and {} lists {after:?}", reply.text, S::LIST));
    }
    for pair in pairs {
        session.disconnect(pair)?;
    }
    let beyond = session.ports().beyond();
    let reply = session.connect(&[pairs[0], (pairs[1].0, beyond)])?;
    if reply.is_done {
        return found(format!("{} for a list with the missing port {beyond}", reply.text));
    }
    let after = circuits(session)?;
    let how = match after {
        _ if after == before => "refused as a whole",
        _ if after == with(&before, &pairs[..1]) => "executed up to the error",
        _ => return found(format!("the {} changed from {before:?} to {after:?}", S::CIRCUITS)),
    };
    session.ports().observe("a list with a missing port", how)
}

fn sessions<S: MatrixSuite>(session: &mut S) -> CaseResult {
    let expected = session.circuits()?;
    let (mut others, mut is_refused) = (Vec::new(), false);
    while !is_refused && others.len() + 1 < SESSIONS_MAX {
        let Some(other) = session.another() else {
            return Ok(CaseVerdict::NotTested("a serial line has one session".into()));
        };
        match other.and_then(|mut other| Ok((other.circuits()?, other))) {
            Ok((seen, other)) if seen == expected => others.push(other),
            Ok((seen, _)) => return found(format!("two sessions list {expected:?} and {seen:?}")),
            Err(ExchangeError::Silent(why)) => {
                return found(format!("another session is neither served nor refused: {why}"));
            }
            Err(ExchangeError::Interrupted) => return Err(ExchangeError::Interrupted),
            Err(_) => is_refused = true,
        }
    }
    let served = others.len() + 1;
    let first = session.circuits();
    drop(others);
    first.map_err(|why| {
        ExchangeError::Lost(format!("the first session ended when others were opened: {why}"))
    })?;
    let until = session.link().now() + REST_WITHIN;
    while is_refused && served > 1 && session.another().is_some_and(|again| again.is_err()) {
        if session.link().now() >= until {
            return found(format!("none of {served} sessions can be opened again after its end"));
        }
        session.link().pause(RETRY_AFTER);
    }
    let more = if is_refused { "more are refused" } else { "more were not tried" };
    session.ports().observe("sessions at the same time", format!("{served}; {more}"))
}

fn restart<S: MatrixSuite>(session: &mut S, kind: &str, subject: &'static str) -> CaseResult {
    let Some(command) = session.ports().restart.clone() else {
        return Ok(CaseVerdict::NotTested("to permit it, use --restart with a command".into()));
    };
    connected(session, 0)?;
    let before = circuits(session)?;
    session.link().restart(&format!("{command} {kind}"))?;
    let until = session.link().now() + RESTART_WITHIN;
    while let Err(why) = session.reconnect() {
        if session.link().now() >= until {
            return Err(ExchangeError::Lost(format!("not back {RESTART_WITHIN:?} later: {why}")));
        }
        session.link().pause(RETRY_AFTER);
    }
    let first = circuits(session)?;
    let (mut after, until) = (first.clone(), session.link().now() + REST_WITHIN);
    while after != before && session.link().now() < until {
        session.link().pause(RETRY_AFTER);
        after = circuits(session)?;
    }
    let missing: Pairs = before.iter().filter(|pair| !after.contains(pair)).copied().collect();
    for &pair in &missing {
        if !session.connect(&[pair])?.is_done {
            return found(format!("{pair:?} was lost and cannot be connected again"));
        }
    }
    let how = match after {
        _ if first == before => "restored",
        _ if after == before => "replayed",
        _ if after.is_empty() => "lost",
        _ => return found(format!("the {} changed from {before:?} to {after:?}", S::CIRCUITS)),
    };
    session.ports().observe(subject, how)
}
