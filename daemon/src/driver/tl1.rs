//! TL1 as Polatis-style optical switches speak it (TCP 3082).
//!
//! A reply is a block of lines that ends with `;` (or `>`: more follows). Autonomous messages come
//! whenever they like, also between a command and its reply, and `IP`-style acknowledgements may
//! come first: a reply is known by its ctag, never by its order. Denials differ: `SARB` is busy
//! now, `SROF` may have moved something, the others changed nothing.

use super::scpi::millis;
use super::{Awaits, Dialect, Input, Progress, Request, size_of};
use crate::state::{Move, Observation, Op, Outcome, Position, Positions, Slot};

/// The TL1 dialect.
#[derive(Clone, Debug)]
pub struct Tl1 {
    user: String,
    password: String,
    power_monitor: bool,
    ctag: u32,
    identity: String,
    size: Option<(u32, u32)>,
    believed: Positions,
    seen: Observation,
    /// Body lines of a reply whose last block has not come yet.
    body: Vec<String>,
}

impl Tl1 {
    /// For a switch with this account.
    #[must_use]
    pub fn new(user: &str, password: &str, power_monitor: bool) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            power_monitor,
            ctag: 0,
            identity: String::new(),
            size: None,
            believed: Positions::new(),
            seen: Observation::default(),
            body: Vec::new(),
        }
    }

    fn ask(&mut self, verb: &str, aid: &str, payload: &str, awaits: Awaits) -> Request {
        self.ctag = self.ctag % 999_999 + 1;
        let ctag = self.ctag;
        let bytes = format!("{verb}::{aid}:{ctag}:{payload};\n").into_bytes();
        Request { bytes, awaits, number: ctag }
    }

    fn check(&self, slot: Slot, to: Position) -> Result<(), String> {
        let Some((ingress, egress)) = self.size else { return Ok(()) };
        let egress = ingress + 1..=ingress + egress;
        if slot.0 == 0 || slot.0 > ingress || !(to.is_dark() || egress.contains(&to.0)) {
            return Err(format!("it has {ingress} ingress ports, so no circuit {slot} to {to}"));
        }
        Ok(())
    }

    fn observe(&mut self, power: &[Slot]) -> Vec<Request> {
        let mut requests = vec![self.ask("RTRV-PATCH", "", "", Awaits::Positions)];
        let ports = power.iter().filter_map(|slot| self.believed.get(slot));
        let ports: Vec<u32> = ports.filter(|p| !p.is_dark()).map(|p| p.0).collect();
        if self.power_monitor && !ports.is_empty() {
            requests.push(self.ask("RTRV-PORT-POWER", &and(&ports), "", Awaits::Power));
        }
        requests
    }

    fn switch(&mut self, moves: &[Move]) -> Result<Vec<Request>, String> {
        for m in moves {
            self.check(m.slot, m.to)?;
        }
        let slots: Vec<u32> = moves.iter().map(|m| m.slot.0).collect();
        let request = if moves.iter().all(|m| m.to.is_dark()) {
            self.ask("DLT-PATCH", &and(&slots), "", Awaits::Done)
        } else if moves.iter().all(|m| !m.to.is_dark()) {
            let ports: Vec<u32> = moves.iter().map(|m| m.to.0).collect();
            let aid = format!("{},{}", and(&slots), and(&ports));
            self.ask("ENT-PATCH", &aid, "", Awaits::Done)
        } else {
            return Err("removals and additions in one step".into());
        };
        self.believed.extend(moves.iter().map(|m| (m.slot, m.to)));
        Ok(vec![request])
    }

    fn take_body(&mut self, awaits: Awaits) -> Option<()> {
        let body = std::mem::take(&mut self.body);
        match awaits {
            Awaits::Size => {
                let size = body.iter().find_map(|line| line.split_once("SIZE="))?.1;
                let (ingress, egress) = size.split_once('x')?;
                self.size = Some(size_of(ingress, egress)?);
            }
            Awaits::Positions => {
                let mut positions = Positions::new();
                for line in &body {
                    let (slot, position) = line.split_once(',')?;
                    let slot = Slot(slot.trim().parse().ok()?);
                    let position = Position(position.trim().parse().ok()?);
                    let free = !positions.values().any(|p| *p == position);
                    if position.is_dark() || self.check(slot, position).is_err() || !free {
                        return None;
                    }
                    if positions.insert(slot, position).is_some() {
                        return None;
                    }
                }
                self.believed.clone_from(&positions);
                self.seen.positions = positions;
            }
            Awaits::Power => {
                for line in &body {
                    let (port, power) = line.split_once(':')?;
                    let (port, power) = (port.trim().parse().ok()?, millis(power)?);
                    let slot = self.seen.positions.iter().find(|(_, p)| **p == Position(port));
                    if let Some((&slot, _)) = slot {
                        self.seen.power_mdbm.insert(slot, power);
                    }
                }
            }
            Awaits::Identity => self.identity = body.join(" "),
            Awaits::Armed | Awaits::Done | Awaits::Errors => {}
        }
        Some(())
    }

    /// What one block says about the request with this ctag; `None` when it is not about it.
    fn block(&mut self, block: &Block, request: &Request) -> Option<Progress> {
        if block.ctag != Some(request.number) {
            return None;
        }
        self.body.extend(block.body.iter().cloned());
        if block.more {
            return Some(Progress::Wait);
        }
        let progress = match block.status.as_str() {
            "COMPLD" | "RTRV" => match self.take_body(request.awaits) {
                Some(()) => Progress::Answered,
                None => Progress::Lost(format!("{:?} makes no sense", request.awaits)),
            },
            "DELAY" => Progress::Wait,
            "PRTL" => Progress::Ended(Outcome::Failed("done in part only (PRTL)".into())),
            "DENY" => Progress::Ended(denied(&block.code, &block.comment)),
            other => Progress::Lost(format!("completion code `{other}`")),
        };
        self.body.clear();
        Some(progress)
    }
}

fn denied(code: &str, comment: &str) -> Outcome {
    let text = format!("{code} {comment}").trim().to_owned();
    match code {
        "SARB" | "SROF" => Outcome::Failed(text),
        _ => Outcome::Refused(text),
    }
}

impl Dialect for Tl1 {
    fn hello(&mut self) -> Vec<Request> {
        self.size = None;
        self.body.clear();
        let (user, password) = (self.user.clone(), self.password.clone());
        vec![
            self.ask("ACT-USER", &user, &format!(":{password}"), Awaits::Done),
            self.ask("RTRV-NETYPE", "", "", Awaits::Identity),
            self.ask("RTRV-EQPT", "SYSTEM", "::PARAMETER=SIZE", Awaits::Size),
        ]
    }

    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String> {
        self.seen = Observation::default();
        self.body.clear();
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
        while let Some(block) = Block::take(&mut input.bytes) {
            match self.block(&block, request) {
                Some(Progress::Wait) => {}
                Some(progress) => return progress,
                None => input.noise += u64::from(!block.is_acknowledgement),
            }
        }
        Progress::Wait
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

/// One block of lines, up to its terminator.
#[derive(Debug, Default)]
struct Block {
    ctag: Option<u32>,
    status: String,
    code: String,
    comment: String,
    /// What stands between quotes.
    body: Vec<String>,
    more: bool,
    is_acknowledgement: bool,
}

impl Block {
    /// Takes the first whole block out of the bytes.
    fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let mut line_start = true;
        let end = bytes.iter().position(|&byte| {
            let ends = line_start && matches!(byte, b';' | b'>' | b'<');
            line_start = matches!(byte, b'\n' | b'\r') || (line_start && byte == b' ');
            ends
        })?;
        let lines: Vec<u8> = bytes.drain(..=end).collect();
        let (terminator, lines) = lines.split_last()?;
        let mut block = Self::parse(&String::from_utf8_lossy(lines));
        block.more = *terminator == b'>';
        if *terminator == b'<' {
            block.ctag = None;
            block.is_acknowledgement = true;
        }
        Some(block)
    }

    fn parse(text: &str) -> Self {
        let mut block = Self::default();
        let mut lines = text.split(['\r', '\n']).filter(|line| !line.trim().is_empty());
        for line in lines.by_ref() {
            // Autonomous messages have `A`, `*`, `**` or `*C` here, and no ctag of ours.
            if let Some(rest) = line.strip_prefix("M ") {
                let mut words = rest.split_whitespace();
                block.ctag = words.next().and_then(|ctag| ctag.parse().ok());
                block.status = words.next().unwrap_or_default().to_owned();
                break;
            }
        }
        for line in lines {
            let line = line.trim();
            if let Some(quoted) = line.strip_prefix('"') {
                block.body.push(quoted.strip_suffix('"').unwrap_or(quoted).to_owned());
            } else if let Some(comment) = line.strip_prefix("/*") {
                block.comment = comment.trim_end_matches("*/").trim().to_owned();
            } else if block.code.is_empty() {
                block.code = line.to_owned();
            }
        }
        block
    }
}

/// `1&2&3`.
fn and(ports: &[u32]) -> String {
    ports.iter().map(u32::to_string).collect::<Vec<_>>().join("&")
}
