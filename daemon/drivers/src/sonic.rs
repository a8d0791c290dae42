// SPDX-License-Identifier: Apache-2.0
//! SONiC-OCS: cross-connects as Redis tables (SONiC OCS HLD rev 0.5).
//!
//! `OCS_CROSS_CONNECT|1A-2B {a_side, b_side}` in CONFIG_DB is the desired state, and a change is one `MULTI … EXEC`.
//! The driver reads lit circuits from both databases (`sonic/tables.rs`), or only from CONFIG_DB if the database has no
//! switch. A claim (`sonic/claim.rs`) prevents other controllers and abandoned sessions from changing circuits. Slot n
//! is the A side of port n, position m the B side of port m.

mod claim;
mod tables;

use crate::{Awaits, Dialect, Input, Progress, Request};
use claim::Claim;
use lightloom_control::controller::Foreign;
use lightloom_control::state::{Move, Observation, Op, Outcome, Position, Positions, Slot};
use tables::{Names, Tables};

const CONFIG_DB: &str = "4";
const TABLE: &str = "OCS_CROSS_CONNECT";

const DEPTH_MAX: usize = 8;
const ITEMS_MAX: usize = 65_536;

#[derive(Clone, Debug)]
pub struct Sonic {
    read_from: ReadFrom,
    password: Option<String>,
    tables: Tables,
    seen: Observation,
    /// Error in the open transaction, which continues until EXEC.
    refusal: Option<String>,
    claim: Option<Claim>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    #[default]
    State,
    Config,
}

impl Sonic {
    pub fn new(read_from: ReadFrom, password: Option<String>) -> Self {
        let (tables, seen) = (Tables::default(), Observation::default());
        Self { read_from, password, tables, seen, refusal: None, claim: None }
    }

    /// Only the latest session may change circuits, and only while no other controller holds the
    /// claim. `life` is the start time of the daemon.
    #[must_use]
    pub fn claiming(self, owner: &str, life: u64) -> Self {
        Self { claim: Some(Claim::new(owner, life)), ..self }
    }

    fn renew(&self) -> Vec<Request> {
        let claim = self.claim.iter().filter(|claim| !claim.is_refused);
        claim
            .flat_map(|claim| {
                let select = ask(command(&["SELECT", CONFIG_DB]), Awaits::Done);
                [select, ask(claim.take(), Awaits::Claim)]
            })
            .collect()
    }

    /// Makes Redis discard the next transaction if this session loses the claim before its end.
    fn fence(&self) -> Vec<Request> {
        if self.claim.as_ref().is_none_or(|claim| claim.is_refused) {
            return Vec::new();
        }
        vec![
            ask(command(&["SELECT", CONFIG_DB]), Awaits::Done),
            ask(command(&["UNWATCH"]), Awaits::Done),
            ask(command(&["WATCH", claim::KEY]), Awaits::Done),
            ask(command(&["GET", claim::KEY]), Awaits::Holder),
        ]
    }

    fn take_claim(&mut self, awaits: Awaits, reply: &Reply) -> Option<Progress> {
        let claim = self.claim.as_mut()?;
        match (awaits, reply) {
            (Awaits::Claim, Reply::Text(holder)) => claim.taken(holder),
            (Awaits::Claim, Reply::Error(_)) => claim.is_refused = true,
            (Awaits::Holder, Reply::Text(value)) if claim.is_ours(value) => {}
            (Awaits::Holder, Reply::Text(value)) => {
                claim.taken(value);
                let why = claim.refusal().unwrap_or_default();
                return Some(Progress::Ended(Outcome::Refused(why)));
            }
            (Awaits::Holder, Reply::Nothing) => {
                let why = "the claim on this switch has expired: the next read acquires it again";
                return Some(Progress::Ended(Outcome::Refused(why.into())));
            }
            _ => return None,
        }
        Some(Progress::Answered)
    }

    fn observe(&self) -> Vec<Request> {
        let read = match self.read_from {
            ReadFrom::State => command(&["EVAL", tables::READ, "0"]),
            ReadFrom::Config => command(&["KEYS", &format!("{TABLE}|*")]),
        };
        vec![ask(command(&["SELECT", CONFIG_DB]), Awaits::Done), ask(read, Awaits::Positions)]
    }

    fn switch(&self, moves: &[Move]) -> Vec<Request> {
        let names = &self.tables.names;
        let mut requests = vec![
            ask(command(&["SELECT", CONFIG_DB]), Awaits::Done),
            ask(command(&["MULTI"]), Awaits::Done),
        ];
        for m in moves {
            let bytes = if m.to.is_dark() {
                command(&["DEL", &key(names, m.slot, m.from)])
            } else {
                let a = format!("{}A", names.name(m.slot.0));
                let b = format!("{}B", names.name(m.to.0));
                command(&["HSET", &key(names, m.slot, m.to), "a_side", &a, "b_side", &b])
            };
            requests.push(ask(bytes, Awaits::Armed));
        }
        requests.push(ask(command(&["EXEC"]), Awaits::Errors));
        requests
    }

    fn take_keys(&mut self, reply: &Reply) -> Option<()> {
        let Reply::Array(keys) = reply else { return None };
        let mut positions = Positions::new();
        for key in keys {
            let Reply::Text(key) = key else { return None };
            let circuit = key.strip_prefix(TABLE)?.strip_prefix('|')?;
            let (slot, position) = self.tables.names.circuit(circuit)?;
            let free = !positions.values().any(|p| *p == position);
            if position.is_dark() || !free || positions.insert(slot, position).is_some() {
                return None;
            }
        }
        self.seen.positions = positions;
        Some(())
    }
}

impl Dialect for Sonic {
    fn hello(&mut self) -> Vec<Request> {
        let auth = self.password.iter().map(|p| ask(command(&["AUTH", p]), Awaits::Done));
        let mut hello: Vec<Request> =
            auth.chain([ask(command(&["PING"]), Awaits::Identity)]).collect();
        if let Some(claim) = &mut self.claim {
            claim.next_session();
        }
        hello.extend(self.renew());
        hello
    }

    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String> {
        self.seen = Observation::default();
        self.refusal = None;
        match op {
            Op::Observe { .. } | Op::Arm { .. } => Ok([self.renew(), self.observe()].concat()),
            Op::Disarm { .. } => Ok(Vec::new()),
            Op::Switch { moves, .. } => Ok([self.fence(), self.switch(moves)].concat()),
        }
    }

    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
        let (reply, length) = match Reply::parse(&input.bytes, 0) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Progress::Wait,
            Err(why) => return Progress::Lost(why.into()),
        };
        input.bytes.drain(..length);
        if let Some(progress) = self.take_claim(request.awaits, &reply) {
            return progress;
        }
        let good = match (request.awaits, &reply) {
            // Redis discards a transaction if a watched key has changed.
            (Awaits::Errors, Reply::Nothing) => {
                let why = "another session has taken the claim, so nothing was changed";
                return Progress::Ended(Outcome::Refused(why.into()));
            }
            (Awaits::Errors, Reply::Array(items)) => {
                let error = items.iter().find_map(|item| match item {
                    Reply::Error(text) => Some(text.clone()),
                    _ => None,
                });
                if let Some(error) = error {
                    return Progress::Ended(Outcome::Failed(error));
                }
                true
            }
            // After an error inside MULTI, Redis discards the transaction, but ends it only at EXEC.
            (Awaits::Armed, Reply::Error(text)) => {
                self.refusal.get_or_insert_with(|| text.clone());
                true
            }
            (_, Reply::Error(text)) => {
                let why = self.refusal.take().unwrap_or_else(|| text.clone());
                return Progress::Ended(Outcome::Refused(why));
            }
            (Awaits::Positions, reply) if self.read_from == ReadFrom::State => {
                match Tables::read(reply) {
                    Ok(tables) => {
                        self.seen = tables.observation();
                        self.tables = tables;
                        true
                    }
                    Err(why) => return Progress::Ended(Outcome::Unknown(why)),
                }
            }
            (Awaits::Positions, reply) => self.take_keys(reply).is_some(),
            (Awaits::Armed, Reply::Text(text)) => text == "QUEUED",
            (Awaits::Done, Reply::Text(text)) => text == "OK",
            (Awaits::Identity, Reply::Text(text)) => text == "PONG",
            _ => false,
        };
        if good {
            Progress::Answered
        } else {
            Progress::Lost(format!("unexpected reply to {:?}", request.awaits))
        }
    }

    fn finish(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Arm { want, .. } => {
                let claimed = self.claim.as_ref().and_then(Claim::refusal);
                match claimed.or_else(|| self.tables.refusal(want)) {
                    Some(why) => Outcome::Refused(why),
                    None => Outcome::Done(Some(self.seen.clone())),
                }
            }
            Op::Observe { .. } => Outcome::Done(Some(self.seen.clone())),
            Op::Disarm { .. } | Op::Switch { .. } => Outcome::Done(None),
        }
    }

    fn identity(&self) -> String {
        "SONiC database".into()
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        let news = self.claim.as_mut().and_then(Claim::news);
        news.map(Foreign::Claimed).into_iter().collect()
    }
}

fn key(names: &Names, slot: Slot, position: Position) -> String {
    format!("{TABLE}|{}A-{}B", names.name(slot.0), names.name(position.0))
}

fn ask(bytes: Vec<u8>, awaits: Awaits) -> Request {
    Request { bytes, awaits, number: 0 }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Text(String),
    Error(String),
    Number,
    Nothing,
    Array(Vec<Reply>),
}

impl Reply {
    fn parse(bytes: &[u8], depth: usize) -> Result<Option<(Self, usize)>, &'static str> {
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
            return if bytes.len() > 65_536 { Err("an unterminated line") } else { Ok(None) };
        };
        let (kind, line) = bytes[..end].split_first().ok_or("an empty line")?;
        let text = String::from_utf8_lossy(line).into_owned();
        let after = end + 2;
        let count = text.parse::<i64>().map_err(|_| "a count that is not a number");
        match kind {
            b'+' => Ok(Some((Self::Text(text), after))),
            b'-' => Ok(Some((Self::Error(text), after))),
            b':' => Ok(Some((Self::Number, after))),
            b'$' => Self::parse_text(bytes, after, count?),
            b'*' if depth < DEPTH_MAX => Self::parse_array(bytes, after, count?, depth),
            _ => Err("not RESP"),
        }
    }

    fn parse_text(
        bytes: &[u8],
        start: usize,
        length: i64,
    ) -> Result<Option<(Self, usize)>, &'static str> {
        let Ok(length) = usize::try_from(length) else { return Ok(Some((Self::Nothing, start))) };
        if length > crate::INPUT_BYTES_MAX {
            return Err("a string that is too long");
        }
        let Some(text) = bytes.get(start..start + length + 2) else { return Ok(None) };
        let text = text.strip_suffix(b"\r\n").ok_or("an unterminated string")?;
        let text = String::from_utf8_lossy(text).into_owned();
        Ok(Some((Self::Text(text), start + length + 2)))
    }

    fn parse_array(
        bytes: &[u8],
        start: usize,
        count: i64,
        depth: usize,
    ) -> Result<Option<(Self, usize)>, &'static str> {
        let Ok(count) = usize::try_from(count) else { return Ok(Some((Self::Nothing, start))) };
        if count > ITEMS_MAX {
            return Err("a list that is too long");
        }
        let mut items = Vec::new();
        let mut at = start;
        for _ in 0..count {
            let Some((item, length)) = Self::parse(&bytes[at..], depth + 1)? else {
                return Ok(None);
            };
            items.push(item);
            at += length;
        }
        Ok(Some((Self::Array(items), at)))
    }
}
