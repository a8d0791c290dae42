// SPDX-License-Identifier: Apache-2.0
//! The suite for Polatis-style switches over TL1, whose replies contain the tag of the command.

mod cases;

use std::collections::BTreeSet;

use lightloom_daemon::protocol::tl1::check_parameter;
use lightloom_drivers::tl1::{second_line, take_block};

use super::case::{
    CaseResult, CaseVerdict, Pairs, SuiteResults, SuiteSession, Tested, found, holds, run_all,
    tested, tested_as,
};
use super::link::{ExchangeError, Link, receive_until};
use super::matrix::{self, ChangeReply, DARK_DBM, MatrixPorts, MatrixSuite, connected, run_moving};
use super::target::Options;
use super::{ANSWER_WITHIN, REST_WITHIN, received};

const UNTESTABLE: [(&str, &str); 4] = [
    ("a wrong password is denied", "a device may lock the account after a failed login"),
    ("DLT-PATCH::ALL", "it would drop circuits that the suite did not create"),
    ("OPR-PORT-SHUTTER", "the suite only creates and removes circuits"),
    ("events and alarms", "the format is not public"),
];

pub struct Tl1Suite {
    link: Box<dyn Link>,
    received: Vec<u8>,
    next_tag: u32,
    /// Commands without a reply, so that a late reply is not matched to another command.
    unanswered: BTreeSet<String>,
    login: (String, String),
    is_let_in: bool,
    ports: MatrixPorts,
}

#[derive(Clone, Debug, Default)]
struct Reply {
    header: String,
    tag: String,
    /// Completion code: `COMPLD`, `DENY` or `PRTL`.
    word: String,
    body: Vec<String>,
}

impl Reply {
    fn of(block: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(block);
        let text = text.trim_end_matches([';', '>']);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let at = second_line(&lines)?;
        let mut words = lines[at].strip_prefix("M ")?.split_whitespace();
        Some(Self {
            header: lines.get(at.checked_sub(1)?)?.trim().to_owned(),
            tag: words.next()?.to_owned(),
            word: words.next()?.to_owned(),
            body: lines[at + 1..].iter().map(|line| line.trim().to_owned()).collect(),
        })
    }

    fn completed(&self) -> bool {
        self.word == "COMPLD"
    }

    fn code(&self) -> &str {
        self.body.first().map_or("", String::as_str)
    }

    fn items(&self) -> impl Iterator<Item = &str> {
        self.body.iter().map(|line| line.trim_matches('"'))
    }
}

pub fn run(
    link: Box<dyn Link>,
    plan: &Options,
    results: &mut SuiteResults,
) -> Result<String, ExchangeError> {
    let login = plan.login.clone().ok_or_else(|| {
        ExchangeError::Lost("a TL1 switch requires a login: use --user and --password-file".into())
    })?;
    for (what, text) in [("user", &login.0), ("password", &login.1)] {
        check_parameter(what, text).map_err(ExchangeError::Lost)?;
    }
    let mut session = Tl1Suite::new(link, login, MatrixPorts::new(plan));
    results.untestable.extend(UNTESTABLE);
    let (log_in, rest) = cases::STILL.split_at(cases::LOG_IN);
    run_all(&mut session, log_in, results);
    if !session.is_let_in {
        let why = format!(
            "the account `{}` was refused: check --user and --password-file",
            session.login.0
        );
        let rest = rest.iter().chain(cases::MOVING);
        let rest = rest.copied().chain(matrix::of_every_protocol());
        rest.for_each(|(case, _)| results.skip(case, &*why));
        return Ok("the device refused the login".into());
    }
    run_all(&mut session, rest, results);
    // The device identifies itself only after a login, so a failed login is a finding.
    let identity = session
        .ask("RTRV-NETYPE", "", "")
        .ok()
        .and_then(|reply| reply.items().next().map(str::to_owned));
    let before = session.circuits().map_err(|_| "the patches could not be read");
    run_moving(&mut session, cases::MOVING, before, plan, results);
    session.ports.report(results);
    Ok(identity.unwrap_or_else(|| "unknown identity".into()))
}

fn pair(text: &str) -> Option<(u32, u32)> {
    let (from, to) = text.split_once(',')?;
    Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
}

impl Tl1Suite {
    const fn new(link: Box<dyn Link>, login: (String, String), ports: MatrixPorts) -> Self {
        Self {
            link,
            received: Vec::new(),
            next_tag: 100,
            unanswered: BTreeSet::new(),
            login,
            is_let_in: false,
            ports,
        }
    }

    /// Skips replies to earlier commands; a separate case checks the tag.
    fn raw(&mut self, command: &str) -> Result<Reply, ExchangeError> {
        let own = command.split(':').nth(3).unwrap_or("").to_owned();
        self.unanswered.insert(own.clone());
        self.link.send(format!("{command}\n").as_bytes())?;
        let deadline = self.link.now() + ANSWER_WITHIN + REST_WITHIN;
        let mut body = Vec::new();
        loop {
            let left = deadline.saturating_sub(self.link.now());
            let block = receive_until(&mut *self.link, &mut self.received, left, take_block)?;
            let Some(block) = block else {
                let verb = command.split(':').next().unwrap_or_default();
                let heard = received(&self.received).replace(&self.login.1, "…");
                return Err(ExchangeError::Silent(format!("no reply to `{verb}`{heard}")));
            };
            let Some(mut reply) = Reply::of(&block) else { continue };
            if reply.tag == own || !self.unanswered.contains(&reply.tag) {
                body.append(&mut reply.body);
                if block.ends_with(b">") {
                    continue;
                }
                self.unanswered.remove(&own);
                return Ok(Reply { body, ..reply });
            }
            self.unanswered.remove(&reply.tag);
        }
    }

    fn ask(&mut self, verb: &str, aid: &str, rest: &str) -> Result<Reply, ExchangeError> {
        self.next_tag += 1;
        let tag = self.next_tag;
        let reply = self.raw(&format!("{verb}::{aid}:{tag}:{rest};"))?;
        match reply.code() {
            "SROF" => {
                Err(ExchangeError::Broken(format!("SROF, a hardware fault, at {verb}::{aid}")))
            }
            _ => Ok(reply),
        }
    }

    fn activate(&mut self) -> Result<Reply, ExchangeError> {
        let (user, password) = self.login.clone();
        self.ask("ACT-USER", &user, &format!(":{password}"))
    }

    fn enter(&mut self, from: &str, to: &str) -> Result<Reply, ExchangeError> {
        self.ports.has_made = true;
        self.ask("ENT-PATCH", &format!("{from},{to}"), "")
    }
}

impl SuiteSession for Tl1Suite {
    fn reconnect(&mut self) -> Result<(), ExchangeError> {
        self.link.open()?;
        self.received.clear();
        match self.activate()? {
            reply if reply.completed() => Ok(()),
            reply => Err(ExchangeError::Nonsense(format!("ACT-USER returned {}", reply.word))),
        }
    }

    fn clear(&mut self) -> Result<(), ExchangeError> {
        matrix::clear(self)
    }
}

impl From<Reply> for ChangeReply {
    fn from(reply: Reply) -> Self {
        let text = format!("{} {}", reply.word, reply.code());
        Self { is_done: reply.completed(), text }
    }
}

impl MatrixSuite for Tl1Suite {
    const CIRCUITS: &'static str = "patches";
    const LIST: &'static str = "RTRV-PATCH";
    const RESTARTED: &'static str = "patches are all restored, all replayed or all lost";

    fn ports(&mut self) -> &mut MatrixPorts {
        &mut self.ports
    }

    fn link(&mut self) -> &mut dyn Link {
        &mut *self.link
    }

    fn another(&self) -> Option<Result<Self, ExchangeError>> {
        let (link, login) = (self.link.another()?, self.login.clone());
        let mut other = Self::new(link, login, MatrixPorts::default());
        Some(other.reconnect().map(|()| other))
    }

    fn shield(&mut self) {
        self.link.shield();
    }

    fn circuits(&mut self) -> Result<Pairs, ExchangeError> {
        let reply = self.ask("RTRV-PATCH", "", "")?;
        if !reply.completed() {
            return Err(ExchangeError::Nonsense(format!(
                "RTRV-PATCH returned {} {}",
                reply.word,
                reply.code()
            )));
        }
        let pairs: Option<Pairs> = reply.items().map(pair).collect();
        pairs
            .ok_or_else(|| ExchangeError::Nonsense(format!("RTRV-PATCH returned {:?}", reply.body)))
    }

    fn connect(&mut self, pairs: &[(u32, u32)]) -> Result<ChangeReply, ExchangeError> {
        let [inputs, outputs] = matrix::ports(pairs).map(|ports| ports.join("&"));
        self.enter(&inputs, &outputs).map(Into::into)
    }

    fn disconnect(&mut self, pair: (u32, u32)) -> Result<ChangeReply, ExchangeError> {
        self.ask("DLT-PATCH", &pair.0.to_string(), "").map(Into::into)
    }
}
