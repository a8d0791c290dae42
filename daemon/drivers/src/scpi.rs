// SPDX-License-Identifier: Apache-2.0
//! SCPI for Polatis-style optical switches (HUBER+SUHNER; TCP 5025 or a serial line).
//!
//! An operation is one line and therefore one round trip, and its replies arrive on one line, separated by `;`. Set
//! commands have no reply, so each of them is followed by `:syst:err?`. Commands that create circuits also use `*OPC?`
//! as a barrier; removals are refused or executed immediately. The identity is the last line before the size, so
//! greetings and echoes are skipped. The driver never sends `conn:only`, which would drop all other circuits. Ingress
//! ports are 1 to N, egress ports N+1 to N+M.

use std::fmt::Write;

use lightloom_fabric::fat_tree::device_ports::DevicePorts;

use crate::ports::{PORTS_MAX, Ports, Task};
use crate::{Awaits, Dialect, Input, Progress, Request, take_line, without_telnet};
use lightloom_control::state::{Op, Outcome};

const POWER_PORTS_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
pub struct Scpi {
    power_monitor: bool,
    identity: String,
    ports: Ports,
    asked_power: Vec<u32>,
}

impl Scpi {
    pub fn new(power_monitor: bool) -> Self {
        Self { power_monitor, ..Self::default() }
    }

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
        // Some firmware sends blanks between the lists, or a word instead of two empty lists.
        let line: String = line.split_whitespace().collect();
        let lists = if line == "<none>" { "(@),(@)" } else { &line };
        let (slots, ports) = lists.split_once("),(")?;
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

fn remove(circuits: &[(u32, u32)]) -> Request {
    ask(format!("*cls;:oxc:swit:conn:sub {};:syst:err?\n", ends(circuits)), Awaits::Errors)
}

fn add(circuits: &[(u32, u32)]) -> Request {
    ask(format!("*cls;:oxc:swit:conn:add {};*OPC?;:syst:err?\n", ends(circuits)), Awaits::Done)
}

fn ends(circuits: &[(u32, u32)]) -> String {
    let slots = list(circuits.iter().map(|(slot, _)| *slot));
    let ports = list(circuits.iter().map(|(_, port)| *port));
    format!("{slots},{ports}")
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
            Task::Remove(circuits) => vec![remove(&circuits)],
            Task::Add(circuits) => vec![add(&circuits)],
        })
    }

    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
        without_telnet(&mut input.bytes);
        let asked = String::from_utf8_lossy(&request.bytes);
        let line = loop {
            let Some(line) = take_line(&mut input.bytes) else { return Progress::Wait };
            let line = String::from_utf8_lossy(&line).into_owned();
            if !line.trim_end().ends_with(asked.trim_end()) {
                break line;
            }
        };
        let understood = match request.awaits {
            Awaits::Identity => {
                self.identity.clone_from(&line);
                Some(())
            }
            Awaits::Size => {
                let size = line.split_once(',');
                let size = size.and_then(|(ingress, egress)| self.ports.take_size(ingress, egress));
                if size.is_none() {
                    input.noise += 1;
                    self.identity = line;
                    return self.reply(request, input);
                }
                size
            }
            Awaits::Positions => self.take_observation(&line),
            Awaits::Done | Awaits::Errors => match error(&line, request.awaits) {
                Some((0, _)) => Some(()),
                // After a parser error, the switch has not executed any command.
                Some((code @ -199..=-100, text)) => {
                    return Progress::Ended(Outcome::Refused(format!("{code} {text}")));
                }
                // The switch may have executed part of an invalid list, so read it back.
                Some((code, text)) => {
                    return Progress::Ended(Outcome::Failed(format!("{code} {text}")));
                }
                None => None,
            },
            // The driver does not send these requests.
            _ => None,
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

fn list(ports: impl Iterator<Item = u32>) -> String {
    let mut text = String::from("(@");
    for (index, port) in ports.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{port}");
    }
    text.push(')');
    text
}

/// Parses ports and ranges of ports, such as `1,4:6`.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut ports: Vec<u32> = Vec::new();
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once(':').unwrap_or((item, item));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        ports.extend((first..=last).take(PORTS_MAX as usize));
    }
    Some(ports)
}

pub(super) fn millis(text: &str) -> Option<i32> {
    let value: f64 = text.trim().parse().ok()?;
    // Some models report minus infinity or a very low number for a port without light.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i32")]
    (!value.is_nan()).then(|| (value * 1000.0).clamp(-99_000.0, 99_000.0).round() as i32)
}

fn error(line: &str, awaits: Awaits) -> Option<(i32, String)> {
    let line = line.trim();
    let error = if awaits == Awaits::Done { line.strip_prefix("1;")? } else { line };
    let (code, text) = error.split_once(',')?;
    Some((code.trim().parse().ok()?, text.trim().trim_matches('"').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Conversation;
    use crate::{Reached, Session};
    use lightloom_control::state::{Move, Neighbours, Position, Slot, Txn};
    use lightloom_testkit::terminal::Terminal;

    fn switch(from: u32, to: u32) -> (Scpi, Request) {
        let mut scpi = Scpi::new(true);
        let moves = vec![Move { slot: Slot(1), from: Position(from), to: Position(to) }];
        let mut requests = scpi.requests(&Op::Switch { txn: Txn(1), moves }).unwrap();
        (scpi, requests.remove(0))
    }

    fn answer(scpi: &mut Scpi, request: &Request, line: &str) -> Progress {
        scpi.reply(request, &mut Input { bytes: line.into(), noise: 0 })
    }

    #[test]
    fn removal_does_not_wait_for_light() {
        let (mut scpi, remove) = switch(5, 0);
        assert_eq!(remove.bytes, b"*cls;:oxc:swit:conn:sub (@1),(@5);:syst:err?\n");
        assert_eq!(answer(&mut scpi, &remove, "0, \"No error\"\n"), Progress::Answered);
        let refused = Outcome::Refused("-113 Undefined header".into());
        let said = answer(&mut scpi, &remove, "-113, \"Undefined header\"\n");
        assert_eq!(said, Progress::Ended(refused));
        let failed = Outcome::Failed("-221 Settings conflict".into());
        let said = answer(&mut scpi, &remove, "-221, \"Settings conflict\"\n");
        assert_eq!(said, Progress::Ended(failed));
        assert!(matches!(answer(&mut scpi, &remove, "OK\n"), Progress::Lost(_)));
    }

    /// Regression test: a greeting or an echo used to shift all replies by one.
    #[test]
    fn greeting_and_echo_do_not_shift_replies() {
        for terminal in Terminal::scpi() {
            let mut session = Session::new(Scpi::new(false));
            let (mut out, mut said) = (Vec::new(), terminal.greeting.as_bytes().to_vec());
            session.connected(&mut out);
            let mut reached = Vec::new();
            for answer in ["Polatis,N-OST-8x8,1101,6.6.1.7\r\n", "8,8\r\n", "(@1),(@9)\r\n"] {
                said.extend(terminal.before(&std::mem::take(&mut out)));
                said.extend(answer.bytes());
                for byte in said.drain(..) {
                    reached.extend(session.received(&[byte], &mut out));
                }
                if let Some(Reached::Ready(identity)) = reached.last() {
                    assert_eq!(identity, "Polatis,N-OST-8x8,1101,6.6.1.7");
                    let read = Op::Observe { power: Vec::new(), neighbours: Neighbours::Never };
                    assert_eq!(session.start(&read, &mut out), None);
                }
            }
            assert!(matches!(&reached[..], [_, Reached::Ended(Outcome::Done(_))]), "{reached:?}");
        }
    }

    #[test]
    fn parses_circuit_lists_in_every_format() {
        for (line, circuits) in [
            ("(@1,2,3),(@9,10,11)\n", vec![(1, 9), (2, 10), (3, 11)]),
            ("(@1:3), (@9:10, 11)\n", vec![(1, 9), (2, 10), (3, 11)]),
            ("(@),(@)\n", vec![]),
            ("<none>\n", vec![]),
        ] {
            let mut scpi = Scpi::new(false);
            scpi.ports.take_size("8", "8").unwrap();
            let look = scpi.look(Vec::new());
            assert_eq!(answer(&mut scpi, &look, line), Progress::Answered, "{line}");
            let read = Op::Observe { power: Vec::new(), neighbours: Neighbours::Never };
            let Outcome::Done(Some(seen)) = scpi.finish(&read) else { panic!("{line}") };
            let found = seen.positions.iter().map(|(slot, position)| (slot.0, position.0));
            assert_eq!(found.collect::<Vec<(u32, u32)>>(), circuits, "{line}");
        }
    }

    #[test]
    fn connection_waits_for_its_light() {
        let (mut scpi, add) = switch(0, 6);
        assert_eq!(add.bytes, b"*cls;:oxc:swit:conn:add (@1),(@6);*OPC?;:syst:err?\n");
        assert_eq!(answer(&mut scpi, &add, "1;0, \"No error\"\n"), Progress::Answered);
        assert!(matches!(answer(&mut scpi, &add, "0, \"No error\"\n"), Progress::Lost(_)));
    }
}
