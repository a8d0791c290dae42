// SPDX-License-Identifier: Apache-2.0
//! The suite for Polatis-style switches over SCPI.

mod cases;

use std::time::Duration;

use lightloom_drivers::take_line;

use super::case::{
    CaseResult, CaseVerdict, Pairs, SuiteResults, SuiteSession, Tested, found, holds, misbehaves,
    run_all, tested, tested_as,
};
use super::link::{ExchangeError, Link, receive_until};
use super::matrix::{self, ChangeReply, DARK_DBM, MatrixPorts, MatrixSuite, connected, run_moving};
use super::target::Options;
use super::{ANSWER_WITHIN, REST_WITHIN, received};

const ECHOES_MAX: usize = 16;
const SILENCE: Duration = Duration::from_millis(200);
const METER_ERROR_DB: f64 = 0.5;

const UNTESTABLE: [(&str, &str); 4] = [
    ("*RST", "the effect on light differs between models"),
    ("CONN:ONLY, DISC:ALL", "they would drop circuits that the suite did not create"),
    ("PORT:DISable", "the suite only creates and removes circuits"),
    (
        "insertion loss and optical switching time",
        "testing this requires a light source and a power meter",
    ),
];

pub struct ScpiSuite {
    link: Box<dyn Link>,
    received: Vec<u8>,
    /// The last commands, which a terminal may echo.
    sent: Vec<String>,
    is_waiting: bool,
    ports: MatrixPorts,
}

pub fn run(
    link: Box<dyn Link>,
    plan: &Options,
    results: &mut SuiteResults,
) -> Result<String, ExchangeError> {
    let mut session = ScpiSuite::new(link, MatrixPorts::new(plan));
    let identity = session.hello()?;
    results.untestable.extend(UNTESTABLE);
    let before = session.circuits();
    run_all(&mut session, cases::STILL, results);
    let before = before.map_err(|_| "the connections could not be read");
    run_moving(&mut session, cases::MOVING, before, plan, results);
    session.ports.report(results);
    Ok(identity)
}

fn list(text: &str) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix("(@")?.strip_suffix(')')?;
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|port| port.trim().parse().ok()).collect()
}

fn error(text: &str) -> Option<i32> {
    text.split_once(',')?.0.trim().parse().ok()
}

impl ScpiSuite {
    const fn new(link: Box<dyn Link>, ports: MatrixPorts) -> Self {
        Self { link, received: Vec::new(), sent: Vec::new(), is_waiting: false, ports }
    }

    /// Returns the identity after any greeting. It has four fields (IEEE 488.2).
    fn hello(&mut self) -> Result<String, ExchangeError> {
        self.send("*CLS")?;
        let mut identity = self.ask("*IDN?")?;
        while identity.matches(',').count() != 3 {
            let Some(line) = self.line(ANSWER_WITHIN)? else { break };
            identity = line;
        }
        Ok(identity)
    }

    fn send(&mut self, line: &str) -> Result<(), ExchangeError> {
        self.sent.push(line.to_owned());
        self.sent.drain(..self.sent.len().saturating_sub(ECHOES_MAX));
        self.link.send(format!("{line}\n").as_bytes())
    }

    /// Returns the next line that is not an echo.
    fn line(&mut self, within: Duration) -> Result<Option<String>, ExchangeError> {
        let sent = &self.sent;
        receive_until(&mut *self.link, &mut self.received, within, |bytes| {
            loop {
                let line = take_line(bytes)?;
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if !line.is_empty() && !sent.iter().any(|sent| line.ends_with(&**sent)) {
                    return Some(line);
                }
            }
        })
    }

    fn ask(&mut self, line: &str) -> Result<String, ExchangeError> {
        // A late reply to a previous query must not be mistaken for the next reply.
        self.received.clear();
        self.send(line)?;
        self.is_waiting = true;
        let answer = self.line(ANSWER_WITHIN + REST_WITHIN)?;
        self.is_waiting = false;
        answer.ok_or_else(|| {
            ExchangeError::Silent(format!("no answer to `{line}`{}", received(&self.received)))
        })
    }

    fn error(&mut self) -> Result<i32, ExchangeError> {
        let line = self.ask(":syst:err?")?;
        error(&line)
            .ok_or_else(|| ExchangeError::Nonsense(format!("`:syst:err?` answered with `{line}`")))
    }

    fn change(&mut self, command: &str) -> Result<i32, ExchangeError> {
        self.send("*CLS")?;
        let done = self.ask(&format!("{command};*OPC?"))?;
        if done.rsplit(';').next() != Some("1") {
            return Err(ExchangeError::Nonsense(format!("`*OPC?` answered with `{done}`")));
        }
        match self.error()? {
            -240 => Err(ExchangeError::Broken(format!("hardware error −240 at `{command}`"))),
            error => Ok(error),
        }
    }

    fn powers(&mut self, ports: &[u32]) -> Result<Vec<f64>, ExchangeError> {
        let wanted: Vec<_> = ports.iter().map(ToString::to_string).collect();
        self.received.clear();
        self.send("*CLS")?;
        self.send(&format!(":pmon:pow? (@{})", wanted.join(",")))?;
        let Some(line) = self.line(ANSWER_WITHIN)? else {
            // A model without power monitors rejects this command.
            self.send("*CLS")?;
            let why = "the model has no power monitors".to_owned();
            return Err(ExchangeError::Judged(CaseVerdict::NotTested(why)));
        };
        let values = line.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let values = values.and_then(|values| {
            values
                .split(',')
                .map(|value| value.trim().parse::<f64>().ok())
                .collect::<Option<Vec<_>>>()
        });
        values.ok_or_else(|| ExchangeError::Nonsense(format!("`pmon:pow?` answered with `{line}`")))
    }
}

impl SuiteSession for ScpiSuite {
    fn reconnect(&mut self) -> Result<(), ExchangeError> {
        self.received.clear();
        self.link.open()?;
        self.hello().map(drop)
    }

    fn clear(&mut self) -> Result<(), ExchangeError> {
        matrix::clear(self)
    }
}

impl From<i32> for ChangeReply {
    fn from(error: i32) -> Self {
        Self { is_done: error == 0, text: format!("error {error}") }
    }
}

impl MatrixSuite for ScpiSuite {
    const CIRCUITS: &'static str = "circuits";
    const LIST: &'static str = "STAT?";
    const RESTARTED: &'static str = "circuits are all restored, all replayed or all lost";

    fn ports(&mut self) -> &mut MatrixPorts {
        &mut self.ports
    }

    fn link(&mut self) -> &mut dyn Link {
        &mut *self.link
    }

    fn another(&self) -> Option<Result<Self, ExchangeError>> {
        let mut other = Self::new(self.link.another()?, MatrixPorts::default());
        Some(other.reconnect().map(|()| other))
    }

    fn shield(&mut self) {
        self.link.shield();
        if self.is_waiting {
            let _ = self.line(REST_WITHIN);
        }
    }

    fn circuits(&mut self) -> Result<Pairs, ExchangeError> {
        let line = self.ask(":oxc:swit:conn:stat?")?;
        let lists = line.split_once("),(").and_then(|(first, second)| {
            list(&format!("{first})")).zip(list(&format!("({second}")))
        });
        let pairs = lists
            .filter(|(first, second)| first.len() == second.len())
            .map(|(first, second)| first.into_iter().zip(second).collect());
        pairs.ok_or_else(|| ExchangeError::Nonsense(format!("`conn:stat?` answered with `{line}`")))
    }

    fn connect(&mut self, pairs: &[(u32, u32)]) -> Result<ChangeReply, ExchangeError> {
        self.ports.has_made = true;
        let [inputs, outputs] = matrix::ports(pairs).map(|ports| ports.join(","));
        self.change(&format!(":oxc:swit:conn:add (@{inputs}),(@{outputs})")).map(Into::into)
    }

    fn disconnect(&mut self, pair: (u32, u32)) -> Result<ChangeReply, ExchangeError> {
        self.change(&format!(":oxc:swit:conn:sub (@{}),(@{})", pair.0, pair.1)).map(Into::into)
    }
}
