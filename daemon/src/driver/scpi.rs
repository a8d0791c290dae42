//! SCPI as Polatis-style optical switches speak it (HUBER+SUHNER; TCP 5025 or a serial line).
//!
//! An operation is one line, and so one round trip. Set commands answer nothing, so each is followed
//! by `*OPC?` as a barrier and by `:syst:err?`; what it did is read back by the mover.
//! Answers to the queries of one line come in one line, with `;` between them. `conn:only` drops every other
//! circuit and is never sent. Ingress ports are 1 to N, egress ports N+1 to N+M.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{Awaits, Dialect, Input, Progress, Request, size_of, take_line};
use crate::state::{Move, Observation, Op, Outcome, Position, Positions, Slot};

/// Ports that one power query may name.
const POWER_PORTS_MAX: usize = 256;

/// The SCPI dialect.
#[derive(Clone, Debug, Default)]
pub struct Scpi {
    /// Some models have no power monitors and do not answer when asked.
    power_monitor: bool,
    identity: String,
    size: Option<(u32, u32)>,
    /// Where slots stand or were last sent to: whose egress port to measure.
    believed: Positions,
    asked_power: Vec<u32>,
    seen: Observation,
}

impl Scpi {
    /// For a switch with or without power monitors.
    #[must_use]
    pub fn new(power_monitor: bool) -> Self {
        Self { power_monitor, ..Self::default() }
    }

    fn check(&self, slot: Slot, to: Position) -> Result<(), String> {
        let Some((ingress, egress)) = self.size else { return Ok(()) };
        if slot.0 == 0 || slot.0 > ingress {
            return Err(format!("ingress ports are 1 to {ingress}, not {slot}"));
        }
        let egress = ingress + 1..=ingress + egress;
        if !to.is_dark() && !egress.contains(&to.0) {
            let (first, last) = (egress.start(), egress.end());
            return Err(format!("egress ports are {first} to {last}, not {to}"));
        }
        Ok(())
    }

    fn switch(&mut self, moves: &[Move]) -> Result<Vec<Request>, String> {
        for m in moves {
            self.check(m.slot, m.to)?;
        }
        let dark = moves.iter().all(|m| m.to.is_dark());
        if !dark && moves.iter().any(|m| m.to.is_dark()) {
            return Err("removals and additions in one step".into());
        }
        let slots = list(moves.iter().map(|m| m.slot.0));
        let ports = list(moves.iter().map(|m| if dark { m.from.0 } else { m.to.0 }));
        let verb = if dark { "sub" } else { "add" };
        let line = format!("*cls;:oxc:swit:conn:{verb} {slots},{ports};*OPC?;:syst:err?\n");
        self.believed.extend(moves.iter().map(|m| (m.slot, m.to)));
        Ok(vec![ask(line, Awaits::Done)])
    }

    fn observe(&mut self, power: &[Slot]) -> Vec<Request> {
        let mut line = String::from(":oxc:swit:conn:stat?");
        let ports = power.iter().filter_map(|slot| self.believed.get(slot));
        let ports = ports.filter(|p| !p.is_dark() && self.power_monitor).map(|p| p.0);
        self.asked_power = ports.collect();
        for ports in self.asked_power.chunks(POWER_PORTS_MAX) {
            let _ = write!(line, ";:pmon:pow? {}", list(ports.iter().copied()));
        }
        line.push('\n');
        vec![ask(line, Awaits::Positions)]
    }

    fn take_observation(&mut self, line: &str) -> Option<()> {
        let mut answers = line.split(';');
        self.take_positions(answers.next()?)?;
        for chunk in 0..self.asked_power.len().div_ceil(POWER_PORTS_MAX) {
            self.take_power(answers.next()?, chunk)?;
        }
        answers.next().is_none().then_some(())
    }

    fn take_size(&mut self, line: &str) -> Option<()> {
        let (ingress, egress) = line.split_once(',')?;
        self.size = Some(size_of(ingress, egress)?);
        Some(())
    }

    fn take_positions(&mut self, line: &str) -> Option<()> {
        let (slots, ports) = line.trim().split_once("),(")?;
        let slots = parse_list(slots.strip_prefix("(@")?)?;
        let ports = parse_list(ports.strip_prefix('@')?.strip_suffix(')')?)?;
        let distinct = |list: &[u32]| list.iter().collect::<BTreeSet<_>>().len() == list.len();
        if slots.len() != ports.len() || !distinct(&slots) || !distinct(&ports) {
            return None;
        }
        let pairs = slots.into_iter().zip(ports).map(|(s, p)| (Slot(s), Position(p)));
        self.seen.positions = pairs.collect();
        let known =
            self.seen.positions.iter().all(|(&s, &p)| !p.is_dark() && self.check(s, p).is_ok());
        self.believed.clone_from(&self.seen.positions);
        known.then_some(())
    }

    fn take_power(&mut self, line: &str, chunk: usize) -> Option<()> {
        let values = line.trim().strip_prefix('(')?.strip_suffix(')')?;
        let asked = self.asked_power.chunks(POWER_PORTS_MAX).nth(chunk)?;
        let values: Option<Vec<i32>> = values.split(',').map(millis).collect();
        let values = values.filter(|values| values.len() == asked.len())?;
        let held: BTreeMap<u32, Slot> =
            self.seen.positions.iter().map(|(&slot, position)| (position.0, slot)).collect();
        let powers = asked.iter().zip(values);
        let powers = powers.filter_map(|(port, power)| Some((*held.get(port)?, power)));
        self.seen.power_mdbm.extend(powers);
        Some(())
    }
}

impl Dialect for Scpi {
    fn hello(&mut self) -> Vec<Request> {
        self.size = None;
        vec![ask("*idn?\n".into(), Awaits::Identity), ask(":oxc:swit:size?\n".into(), Awaits::Size)]
    }

    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String> {
        self.seen = Observation::default();
        match op {
            Op::Observe { power } => Ok(self.observe(power)),
            Op::Arm { want, .. } => {
                for (&slot, &to) in want {
                    self.check(slot, to)?;
                }
                Ok(self.observe(&[]))
            }
            Op::Disarm { .. } => Ok(Vec::new()),
            Op::Switch { moves, .. } => self.switch(moves),
        }
    }

    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
        let Some(line) = take_line(&mut input.bytes) else { return Progress::Wait };
        let line = String::from_utf8_lossy(&line).into_owned();
        let understood = match request.awaits {
            Awaits::Identity => {
                self.identity.clone_from(&line);
                Some(())
            }
            Awaits::Size => self.take_size(&line),
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
            Awaits::Power | Awaits::Armed | Awaits::Errors => None,
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
        match op {
            Op::Observe { .. } | Op::Arm { .. } => Outcome::Done(Some(self.seen.clone())),
            Op::Disarm { .. } | Op::Switch { .. } => Outcome::Done(None),
        }
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
