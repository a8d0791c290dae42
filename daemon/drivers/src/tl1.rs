// SPDX-License-Identifier: Apache-2.0
//! TL1 for Polatis-style optical switches (TCP 3082).
//!
//! A reply is a block of lines that ends with `;`, or with `>` if another block follows. Its header
//! contains the switch's name, date and time, which distinguishes the reply from a login banner, an
//! echo or a prompt. Autonomous messages and `IP`-style acknowledgements may arrive before a reply,
//! so the driver matches replies by ctag and not by order. `SARB` means that the switch was busy.
//! After `SROF`, circuits may have moved; after all other denials, they have not.

use lightloom_fabric::fat_tree::device_ports::DevicePorts;

use crate::ports::{Ports, Task};
use crate::scpi::millis;
use crate::{Awaits, Dialect, Input, Progress, Request, without_telnet};
use lightloom_control::controller::Foreign;
use lightloom_control::state::{Op, Outcome};

const FOREIGN_MAX: usize = 16;

#[derive(Clone, Debug)]
pub struct Tl1 {
    user: String,
    password: String,
    power_monitor: bool,
    ctag: u32,
    identity: String,
    ports: Ports,
    body: Vec<String>,
    foreign: Vec<String>,
}

impl Tl1 {
    pub fn new(user: &str, password: &str, power_monitor: bool) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            power_monitor,
            ctag: 0,
            identity: String::new(),
            ports: Ports::default(),
            body: Vec::new(),
            foreign: Vec::new(),
        }
    }

    /// A report that precedes the reply to this session's own change was caused by that change.
    fn note_event(&mut self, block: &Block, ours: bool) {
        let changed = block.event.starts_with("REPT EVT PATCH");
        if changed && !ours && self.foreign.len() < FOREIGN_MAX {
            let circuits = block.body.join(" ").replace(':', " ");
            self.foreign.push(format!("`{circuits}` by another session"));
        }
    }

    #[must_use]
    pub fn wired_as(mut self, ports: Option<DevicePorts>) -> Self {
        self.ports.wired_as(ports);
        self
    }

    fn ask(&mut self, verb: &str, aid: &str, payload: &str, awaits: Awaits) -> Request {
        self.ctag = self.ctag % 999_999 + 1;
        let ctag = self.ctag;
        let bytes = format!("{verb}::{aid}:{ctag}:{payload};\n").into_bytes();
        Request { bytes, awaits, number: ctag }
    }

    fn look(&mut self, power: &[u32]) -> Vec<Request> {
        let mut requests = vec![self.ask("RTRV-PATCH", "", "", Awaits::Positions)];
        if self.power_monitor && !power.is_empty() {
            requests.push(self.ask("RTRV-PORT-POWER", &and(power), "", Awaits::Power));
        }
        requests
    }

    fn remove(&mut self, circuits: &[(u32, u32)]) -> Request {
        let slots: Vec<u32> = circuits.iter().map(|(slot, _)| *slot).collect();
        self.ask("DLT-PATCH", &and(&slots), "", Awaits::Done)
    }

    fn add(&mut self, circuits: &[(u32, u32)]) -> Request {
        let (slots, ports): (Vec<u32>, Vec<u32>) = circuits.iter().copied().unzip();
        self.ask("ENT-PATCH", &format!("{},{}", and(&slots), and(&ports)), "", Awaits::Done)
    }

    fn take_body(&mut self, awaits: Awaits) -> Option<()> {
        let body = std::mem::take(&mut self.body);
        match awaits {
            Awaits::Size => {
                let size = body.iter().find_map(|line| line.split_once("SIZE="))?.1;
                let (ingress, egress) = size.split_once('x')?;
                self.ports.take_size(ingress, egress)?;
            }
            Awaits::Positions => {
                let circuits = body.iter().map(|line| {
                    let (slot, port) = line.split_once(',')?;
                    Some((slot.trim().parse().ok()?, port.trim().parse().ok()?))
                });
                let circuits: Option<Vec<(u32, u32)>> = circuits.collect();
                self.ports.take_circuits(circuits?)?;
            }
            Awaits::Power => {
                let powers = body.iter().map(|line| {
                    let (port, power) = line.split_once(':')?;
                    Some((port.trim().parse().ok()?, millis(power)?))
                });
                let powers: Option<Vec<(u32, i32)>> = powers.collect();
                self.ports.take_power(powers?);
            }
            Awaits::Identity => self.identity = body.join(" "),
            _ => {}
        }
        Some(())
    }

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
                None => Progress::Lost(format!("cannot parse {:?}", request.awaits)),
            },
            "DELAY" => Progress::Wait,
            "PRTL" => Progress::Ended(Outcome::Failed("only partly executed (PRTL)".into())),
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
        self.ports.forget();
        self.body.clear();
        let (user, password) = (self.user.clone(), self.password.clone());
        vec![
            self.ask("ACT-USER", &user, &format!(":{password}"), Awaits::Done),
            self.ask("RTRV-NETYPE", "", "", Awaits::Identity),
            self.ask("RTRV-EQPT", "SYSTEM", "::PARAMETER=SIZE", Awaits::Size),
        ]
    }

    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String> {
        self.body.clear();
        Ok(match self.ports.task(op)? {
            Task::Nothing => Vec::new(),
            Task::Look(power) => self.look(&power),
            Task::Remove(circuits) => vec![self.remove(&circuits)],
            Task::Add(circuits) => vec![self.add(&circuits)],
        })
    }

    fn hide(&self, heard: &str) -> String {
        if self.password.is_empty() { heard.into() } else { heard.replace(&self.password, "…") }
    }

    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
        without_telnet(&mut input.bytes);
        while let Some(block) = Block::take(&mut input.bytes) {
            match self.block(&block, request) {
                Some(Progress::Wait) => {}
                Some(progress) => return progress,
                None => {
                    self.note_event(&block, request.awaits == Awaits::Done);
                    input.noise += u64::from(!block.is_acknowledgement);
                }
            }
        }
        Progress::Wait
    }

    fn unasked(&mut self, input: &mut Input) {
        while let Some(block) = Block::take(&mut input.bytes) {
            self.note_event(&block, false);
            input.noise += u64::from(!block.is_acknowledgement);
        }
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        self.foreign.drain(..).map(Foreign::Changed).collect()
    }

    fn finish(&mut self, op: &Op) -> Outcome {
        self.ports.outcome(op)
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

#[derive(Debug, Default)]
struct Block {
    ctag: Option<u32>,
    status: String,
    code: String,
    comment: String,
    body: Vec<String>,
    more: bool,
    is_acknowledgement: bool,
    event: String,
}

impl Block {
    fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let lines = take_block(bytes)?;
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
        let lines = text.split(['\r', '\n']).filter(|line| !line.trim().is_empty());
        let lines: Vec<&str> = lines.collect();
        let Some(second) = second_line(&lines) else { return block };
        // An autonomous message has an alarm code (`A`, `*`, `**` or `*C`) instead of `M`.
        if let Some(rest) = lines[second].strip_prefix("M ") {
            let mut words = rest.split_whitespace();
            block.ctag = words.next().and_then(|ctag| ctag.parse().ok());
            block.status = words.next().unwrap_or_default().to_owned();
        } else {
            let words = lines[second].trim_start_matches(['A', '*', 'C', ' ']);
            let event = words.split_once(' ').map_or("", |(_tag, event)| event.trim());
            event.clone_into(&mut block.event);
        }
        for line in &lines[second + 1..] {
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

/// Removes the bytes up to the end of a block: `;`, `>` before another block of the same reply, or `<` after an
/// acknowledgement, each at the start of a line. In quotes, prompts and echoes, these characters are elsewhere.
pub fn take_block(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut line_start = true;
    let end = bytes.iter().position(|&byte| {
        let ends = line_start && matches!(byte, b';' | b'>' | b'<');
        line_start = matches!(byte, b'\n' | b'\r') || (line_start && byte == b' ');
        ends
    })?;
    Some(bytes.drain(..=end).collect())
}

/// Returns the index of the line with the ctag, or of an autonomous message's code. Text before the header is ignored.
pub fn second_line(lines: &[&str]) -> Option<usize> {
    let behind = lines.windows(2).position(|two| is_header(two[0]) && begins(two[1]));
    behind.map(|at| at + 1).or_else(|| lines.iter().position(|line| begins(line)))
}

/// Returns whether a line is the first of a reply: `   OCS1 26-11-28 10:00:00`.
fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace().rev();
    let [time, date] = [(words.next(), ':'), (words.next(), '-')];
    [time, date].into_iter().all(|(word, between)| {
        word.is_some_and(|word| {
            let mut parts = word.split(between);
            parts.clone().count() == 3 && parts.all(|part| part.parse::<u32>().is_ok())
        })
    })
}

fn begins(line: &str) -> bool {
    line.starts_with("M ") || line.starts_with(['A', '*'])
}

fn and(ports: &[u32]) -> String {
    ports.iter().map(u32::to_string).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use lightloom_control::state::Neighbours;
    use lightloom_testkit::terminal::Terminal;

    use super::*;
    use crate::conversation::Conversation;
    use crate::{Reached, Session};

    fn answer(request: &str) -> String {
        let ctag = request.split(':').nth(3).unwrap();
        let body = match request.split(':').next().unwrap() {
            "RTRV-NETYPE" => "   \"Polatis;N-OST-8x8\"\r\n",
            "RTRV-EQPT" => "   \"SYSTEM:SIZE=8x8\"\r\n",
            "RTRV-PATCH" => "   \"1,9\"\r\n",
            _ => "",
        };
        format!("\r\n\n   OCS \"1\" 26-11-28 10:00:00\r\nM  {ctag} COMPLD\r\n{body};")
    }

    fn talk(terminal: &Terminal) -> u64 {
        let mut session = Session::new(Tl1::new("op", "secret", false));
        let mut out = Vec::new();
        session.connected(&mut out);
        let mut said = terminal.greeting.as_bytes().to_vec();
        let mut reached = Vec::new();
        for _ in 0..4 {
            let request = String::from_utf8(std::mem::take(&mut out)).unwrap();
            said.extend(terminal.before(request.as_bytes()));
            said.extend(terminal.after(answer(&request).into_bytes()));
            for byte in said.drain(..) {
                reached.extend(session.received(&[byte], &mut out));
            }
            if let Some(Reached::Ready(_)) = reached.last() {
                let read = Op::Observe { power: Vec::new(), neighbours: Neighbours::Never };
                assert_eq!(session.start(&read, &mut out), None);
            }
        }
        let is_read = matches!(&reached[..], [Reached::Ready(_), Reached::Ended(Outcome::Done(_))]);
        assert!(is_read, "{terminal:?}: {reached:?}");
        session.noise()
    }

    /// Regression test: text that began with `*` or `A` used to hide the reply after it.
    #[test]
    fn finds_the_reply_after_banner_echo_prompt_and_alarm() {
        assert_eq!(talk(&Terminal::default()), 0);
        for terminal in Terminal::tl1() {
            talk(&terminal);
        }
    }

    #[test]
    fn skips_telnet_negotiation() {
        let mut bytes = b"\xff\xfd\x18a\xff\xfa\x18\x00x\xff\xf0b\xff\xfb".to_vec();
        without_telnet(&mut bytes);
        assert_eq!(bytes, b"ab\xff\xfb");
    }

    #[test]
    fn failed_hello_reports_received_text_without_password() {
        let mut session = Session::new(Tl1::new("op", "secret", false));
        session.connected(&mut Vec::new());
        assert_eq!(session.received(b"ACT-USER::op:1::secret;\r\nwelcome", &mut Vec::new()), None);
        assert_eq!(session.heard(), "it sent `ACT-USER::op:1::…;\\r\\nwelcome`");
        session.connected(&mut Vec::new());
        assert_eq!(session.heard(), "it sent nothing");
    }
}
