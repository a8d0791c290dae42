// SPDX-License-Identifier: Apache-2.0
//! SCPI as Polatis-style optical switches speak it (HUBER+SUHNER; TCP 5025 or a serial line).
//!
//! An operation is one line, and so one round trip. Set commands answer nothing, so each is followed
//! by `*OPC?` as a barrier and by `:syst:err?`; what it did is read back by the mover.
//! Answers to the queries of one line come in one line, with `;` between them. `conn:only` drops every other
//! circuit and is never sent. Ingress ports are 1 to N, egress ports N+1 to N+M.

use std::fmt::Write;

use lightloom_fabric::fat_tree::device_ports::DevicePorts;

use crate::ports::{Ports, Task};
use crate::{Awaits, Dialect, Input, Progress, Request, take_line};
use lightloom_control::state::{Op, Outcome};

/// Ports that one power query may name.
const POWER_PORTS_MAX: usize = 256;

/// The SCPI dialect.
#[derive(Clone, Debug, Default)]
pub struct Scpi {
    /// Some models have no power monitors and do not answer when asked.
    power_monitor: bool,
    identity: String,
    ports: Ports,
    asked_power: Vec<u32>,
}

impl Scpi {
    /// For a switch with or without power monitors.
    #[must_use]
    pub fn new(power_monitor: bool) -> Self {
        Self { power_monitor, ..Self::default() }
    }

    /// Moves nothing on a switch that has not the ports that plans are made for.
    #[must_use]
    pub fn wired_as(mut self, ports: Option<DevicePorts>) -> Self {
        self.ports.wired_as(ports);
        self
    }

    fn look(&mut self, power: Vec<u32>) -> Request {
        let mut line = String::from(":oxc:swit:conn:stat?");
        self.asked_power = if self.power_monitor { power } else { Vec::new() };
        for ports in self.asked_power.chunks(POWER_PORTS_MAX) {
            let _ = write!(line, ";:pmon:pow? {}", list(ports.iter().copied()));
        }
        line.push('\n');
        ask(line, Awaits::Positions)
    }

    fn take_observation(&mut self, line: &str) -> Option<()> {
        let mut answers = line.split(';');
        self.take_positions(answers.next()?)?;
        for chunk in 0..self.asked_power.len().div_ceil(POWER_PORTS_MAX) {
            self.take_power(answers.next()?, chunk)?;
        }
        answers.next().is_none().then_some(())
    }

    fn take_positions(&mut self, line: &str) -> Option<()> {
        let (slots, ports) = line.trim().split_once("),(")?;
        let slots = parse_list(slots.strip_prefix("(@")?)?;
        let ports = parse_list(ports.strip_prefix('@')?.strip_suffix(')')?)?;
        if slots.len() != ports.len() {
            return None;
        }
        self.ports.take_circuits(slots.into_iter().zip(ports))
    }

    fn take_power(&mut self, line: &str, chunk: usize) -> Option<()> {
        let values = line.trim().strip_prefix('(')?.strip_suffix(')')?;
        let asked = self.asked_power.chunks(POWER_PORTS_MAX).nth(chunk)?;
        let values: Option<Vec<i32>> = values.split(',').map(millis).collect();
        let values = values.filter(|values| values.len() == asked.len())?;
        self.ports.take_power(asked.iter().copied().zip(values));
        Some(())
    }
}

/// Makes these circuits or takes them away, in one line.
fn change(verb: &str, circuits: &[(u32, u32)]) -> Request {
    let slots = list(circuits.iter().map(|(slot, _)| *slot));
    let ports = list(circuits.iter().map(|(_, port)| *port));
    let line = format!("*cls;:oxc:swit:conn:{verb} {slots},{ports};*OPC?;:syst:err?\n");
    ask(line, Awaits::Done)
}

impl Dialect for Scpi {
    fn hello(&mut self) -> Vec<Request> {
        self.ports.forget();
        vec![ask("*idn?\n".into(), Awaits::Identity), ask(":oxc:swit:size?\n".into(), Awaits::Size)]
    }

    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String> {
        Ok(match self.ports.task(op)? {
            Task::Nothing => Vec::new(),
            Task::Look(power) => vec![self.look(power)],
            Task::Remove(circuits) => vec![change("sub", &circuits)],
            Task::Add(circuits) => vec![change("add", &circuits)],
        })
    }

    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
        let Some(line) = take_line(&mut input.bytes) else { return Progress::Wait };
        let line = String::from_utf8_lossy(&line).into_owned();
        let understood = match request.awaits {
            Awaits::Identity => {
                self.identity.clone_from(&line);
                Some(())
            }
            Awaits::Size => line
                .split_once(',')
                .and_then(|(ingress, egress)| self.ports.take_size(ingress, egress)),
            Awaits::Positions => self.take_observation(&line),
            Awaits::Done => match done_or_error(&line) {
                Some((0, _)) => Some(()),
                // The parser did not take the line: nothing was done.
                Some((code @ -199..=-100, text)) => {
                    return Progress::Ended(Outcome::Refused(format!("{code} {text}")));
                }
                // No statement says that a partly bad list changes nothing: read it back.
                Some((code, text)) => {
                    return Progress::Ended(Outcome::Failed(format!("{code} {text}")));
                }
                None => None,
            },
            Awaits::Power
            | Awaits::Armed
            | Awaits::Errors
            | Awaits::Neighbours
            | Awaits::Registers
            | Awaits::Events
            | Awaits::Claim
            | Awaits::Holder => None,
        };
        match understood {
            Some(()) => Progress::Answered,
            None => {
                let line: String = line.chars().take(80).collect();
                Progress::Lost(format!("{:?} answered with `{line}`", request.awaits))
            }
        }
    }

    fn finish(&mut self, op: &Op) -> Outcome {
        self.ports.outcome(op)
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

fn ask(line: String, awaits: Awaits) -> Request {
    Request { bytes: line.into_bytes(), awaits, number: 0 }
}

/// `(@1,2,3)`.
fn list(ports: impl Iterator<Item = u32>) -> String {
    let mut text = String::from("(@");
    for (index, port) in ports.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{port}");
    }
    text.push(')');
    text
}

fn parse_list(text: &str) -> Option<Vec<u32>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(|port| port.trim().parse().ok()).collect()
}

/// `-3.2` as thousandths.
pub(super) fn millis(text: &str) -> Option<i32> {
    let value: f64 = text.trim().parse().ok()?;
    // A port without light reads as minus infinity or a very low number on some models.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i32")]
    (!value.is_nan()).then(|| (value * 1000.0).clamp(-99_000.0, 99_000.0).round() as i32)
}

/// `1;-113, "Undefined header"`.
fn done_or_error(line: &str) -> Option<(i32, String)> {
    let (code, text) = line.trim().strip_prefix("1;")?.split_once(',')?;
    Some((code.trim().parse().ok()?, text.trim().trim_matches('"').to_owned()))
}
