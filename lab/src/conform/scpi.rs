// SPDX-License-Identifier: Apache-2.0
//! The suite for Polatis-style switches over SCPI.

mod cases;

use std::time::Duration;

use lightloom_drivers::take_line;

use super::case::{
    CaseResult, CaseVerdict, PUT_BACK, Pairs, SuiteResults, SuiteSession, Tested, case, found,
    free_ports, holds, run_all,
};
use super::link::{ExchangeError, Link, receive_until};
use super::target::Options;
use super::{ANSWER_WITHIN, REST_WITHIN, received};

const ECHOES_MAX: usize = 16;
const SILENCE: Duration = Duration::from_millis(200);
/// Highest power that a dark port may report.
const DARK_DBM: f64 = -40.0;
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
    inputs: u32,
    outputs: u32,
    free: (Vec<u32>, Vec<u32>),
    made: Vec<(u32, u32)>,
    rounds: u32,
    set_ups: Vec<Duration>,
}

pub fn run(
    link: Box<dyn Link>,
    plan: &Options,
    results: &mut SuiteResults,
) -> Result<String, ExchangeError> {
    let mut session = ScpiSuite {
        link,
        received: Vec::new(),
        sent: Vec::new(),
        is_waiting: false,
        inputs: 0,
        outputs: 0,
        free: (Vec::new(), Vec::new()),
        made: Vec::new(),
        rounds: plan.rounds,
        set_ups: Vec::new(),
    };
    let identity = session.hello()?;
    results.untestable.extend(UNTESTABLE);
    let before = session.pairs();
    run_all(&mut session, cases::STILL, results);
    let ports = [session.inputs, session.outputs];
    let unread = "the connections could not be read";
    match free_ports(plan, ports, before.as_ref().ok(), unread, results) {
        Err(why) => cases::MOVING.iter().for_each(|(case, _)| results.skip(*case, &*why)),
        Ok(free) => {
            session.free = free;
            run_all(&mut session, cases::MOVING, results);
            session.put_back(before.ok(), results);
        }
    }
    results.set_ups = session.set_ups;
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

    fn pairs(&mut self) -> Result<Pairs, ExchangeError> {
        let line = self.ask(":oxc:swit:conn:stat?")?;
        let read = || {
            let (first, second) = line.split_once("),(")?;
            let (first, second) = (list(&format!("{first})"))?, list(&format!("({second}"))?);
            (first.len() == second.len()).then(|| first.into_iter().zip(second).collect())
        };
        read()
            .ok_or_else(|| ExchangeError::Nonsense(format!("`conn:stat?` answered with `{line}`")))
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

    fn add(&mut self, pairs: &[(u32, u32)]) -> Result<i32, ExchangeError> {
        self.made.extend(pairs);
        let side = |of: fn(&(u32, u32)) -> u32| {
            pairs.iter().map(|pair| of(pair).to_string()).collect::<Vec<_>>().join(",")
        };
        let (first, second) = (side(|pair| pair.0), side(|pair| pair.1));
        self.change(&format!(":oxc:swit:conn:add (@{first}),(@{second})"))
    }

    fn pair(&self, index: usize) -> (u32, u32) {
        (self.free.0[index], self.free.1[index])
    }

    fn powers(&mut self, ports: &[u32]) -> Result<Option<Vec<f64>>, ExchangeError> {
        let wanted: Vec<_> = ports.iter().map(ToString::to_string).collect();
        self.received.clear();
        self.send("*CLS")?;
        self.send(&format!(":pmon:pow? (@{})", wanted.join(",")))?;
        let Some(line) = self.line(ANSWER_WITHIN)? else {
            // A model without power monitors rejects this command.
            self.send("*CLS")?;
            return Ok(None);
        };
        let values = line.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let values = values.and_then(|values| {
            values
                .split(',')
                .map(|value| value.trim().parse::<f64>().ok())
                .collect::<Option<Vec<_>>>()
        });
        values
            .map(Some)
            .ok_or_else(|| ExchangeError::Nonsense(format!("`pmon:pow?` answered with `{line}`")))
    }

    fn put_back(&mut self, before: Option<Pairs>, results: &mut SuiteResults) {
        self.link.shield();
        if self.is_waiting {
            let _ = self.line(REST_WITHIN);
        }
        let cleared = self.clear().or_else(|_| self.reconnect().and_then(|()| self.clear()));
        let judged = cleared.and_then(|()| self.pairs()).map(|after| match before {
            Some(before) if before != after => CaseVerdict::Misbehaves(format!(
                "the circuits changed from {before:?} to {after:?}"
            )),
            _ => CaseVerdict::Passed,
        });
        results.note(PUT_BACK, judged);
    }
}

impl SuiteSession for ScpiSuite {
    fn reconnect(&mut self) -> Result<(), ExchangeError> {
        self.received.clear();
        self.link.open()?;
        self.hello().map(drop)
    }

    fn clear(&mut self) -> Result<(), ExchangeError> {
        if self.made.is_empty() {
            return Ok(());
        }
        let there = self.pairs()?;
        // Remove only circuits at ports in `--may-move`.
        let (inputs, outputs) = self.free.clone();
        let is_ours = |pair: &(u32, u32)| inputs.contains(&pair.0) && outputs.contains(&pair.1);
        for (input, output) in there.into_iter().filter(is_ours) {
            let left = self.change(&format!(":oxc:swit:conn:sub (@{input}),(@{output})"))?;
            if left != 0 {
                return Err(ExchangeError::Nonsense(format!(
                    "({input}, {output}) was not disconnected: error {left}"
                )));
            }
        }
        self.made.clear();
        Ok(())
    }
}
