// SPDX-License-Identifier: Apache-2.0
//! An emulated Polatis-style optical circuit switch: one matrix, accessed through SCPI and TL1.
//!
//! ```text
//!  Port::Scpi ──────┐ lines                                 ┌─▶ reply, possibly after light settles
//!  Port::ScpiSerial ├──────▶ queue of units ──▶ one at a ───┤
//!  Port::Tl1 ───────┘ `;`    in order           time        └─▶ Matrix
//! ```
//!
//! Commands of all clients are executed sequentially. A reply that waits for light to settle delays all later commands.

pub(crate) mod matrix;
mod scpi;
mod tl1;

use std::collections::{BTreeMap, VecDeque};

use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

use super::fault::DeviceFault;
use super::misbehave::Misbehaviour;
use super::{EmulatedDevice, Line, Output, Port};
pub use matrix::PassedLight;
use matrix::{Matrix, Pair};
use scpi::{Executed, OVERRUN, ScpiState};
use tl1::{Login, Tl1State};

const COMMAND_BYTES_MAX: usize = 1 << 16;

const QUEUE_MAX: usize = 4096;

const TL1_CLIENTS_MAX: usize = 8;

#[derive(Clone, Debug)]
pub struct SwitchSpec {
    /// TL1 source id, and serial number in `*IDN?`. TL1 shows an empty name as `( nil )`.
    pub name: String,
    pub ingress: u16,
    pub egress: u16,
    pub switching: Picoseconds,
    pub command: Picoseconds,
    pub boot: Picoseconds,
    pub login: (String, String),
    pub has_power_monitors: bool,
    pub is_autonomous: bool,
    pub acknowledges: bool,
}

impl Default for SwitchSpec {
    /// A 24×24 switch with a switching time of 20 ms (our design value).
    fn default() -> Self {
        Self {
            name: "POLATIS".to_owned(),
            ingress: 24,
            egress: 24,
            switching: Picoseconds::from_millis(20),
            command: Picoseconds::from_micros(500),
            boot: Picoseconds::from_millis(2_000),
            login: ("root".to_owned(), "root".to_owned()),
            has_power_monitors: true,
            is_autonomous: true,
            acknowledges: false,
        }
    }
}

#[derive(Clone, Debug)]
struct SwitchClient {
    port: Port,
    buffer: Vec<u8>,
    overflowed: bool,
    login: Login,
    answers: Vec<String>,
}

#[derive(Clone, Debug)]
struct Job {
    line: Line,
    arrived: SimTime,
    text: String,
    ends_line: bool,
    deferred_for: Option<(Port, Login)>,
}

#[derive(Clone, Debug)]
enum Stage {
    Thinking { until: SimTime },
    Waiting { until: SimTime, executed: Executed, before: Vec<Pair> },
}

#[derive(Clone, Debug)]
pub struct OpticalSwitch {
    spec: SwitchSpec,
    matrix: Matrix,
    scpi: ScpiState,
    tl1: Tl1State,
    clients: BTreeMap<Line, SwitchClient>,
    queue: VecDeque<Job>,
    /// Deferred changes with their times. Later commands of the same client wait for them.
    deferred: Vec<(SimTime, Job)>,
    current: Option<(Job, Stage)>,
    free_from: SimTime,
    answers_from: SimTime,
}

impl OpticalSwitch {
    pub fn new(spec: SwitchSpec, seed: Seed, index: u64) -> Self {
        use rand::RngExt;
        let seed = Seed(seed.stream("optical switch", index).random());
        let model = format!("N-OST-{}x{}-LA1-DMHNS", spec.ingress, spec.egress);
        let identity = format!("Polatis,{model},{},6.5.2.18", spec.name);
        let tl1 = Tl1State {
            name: spec.name.clone(),
            net_type: format!("Polatis,{model},OST,6.5.2.18"),
            user: spec.login.0.clone(),
            password: spec.login.1.clone(),
            autonomous_count: 0,
        };
        Self {
            matrix: Matrix::new(spec.ingress, spec.egress, spec.switching, seed),
            scpi: ScpiState::new(identity, spec.has_power_monitors),
            tl1,
            spec,
            clients: BTreeMap::new(),
            queue: VecDeque::new(),
            deferred: Vec::new(),
            current: None,
            free_from: SimTime::START,
            answers_from: SimTime::START,
        }
    }

    pub fn true_pairs(&self) -> Vec<(u16, u16)> {
        self.matrix.pairs()
    }

    pub fn light(&self, now: SimTime) -> PassedLight {
        self.matrix.light(now)
    }

    pub fn connect_by_hand(&mut self, now: SimTime, ingress: u16, egress: u16) {
        self.matrix.disconnect(now, &[(ingress, None)]);
        self.matrix.connect(now, &[(ingress, egress)]);
    }

    pub fn set_input_dbm(&mut self, ingress: u16, dbm: f64) {
        self.matrix.set_input_dbm(ingress, dbm);
    }

    fn run(&mut self, now: SimTime, out: &mut Vec<Output>) {
        loop {
            let Some((job, stage)) = self.current.take() else {
                if !self.start_deferred(now) && !self.start_next(now, out) {
                    return;
                }
                continue;
            };
            match stage {
                Stage::Thinking { until } if until <= now => self.perform(until, job, out),
                Stage::Waiting { until, executed, before } if until <= now => {
                    self.conclude(until, &job, executed, &before, out);
                }
                waiting => {
                    self.current = Some((job, waiting));
                    return;
                }
            }
        }
    }

    fn start_deferred(&mut self, now: SimTime) -> bool {
        let due = self.deferred.iter().position(|(at, _)| *at <= now);
        let Some((until, job)) = due.map(|index| self.deferred.remove(index)) else { return false };
        self.current = Some((job, Stage::Thinking { until: until.max(self.free_from) }));
        true
    }

    fn start_next(&mut self, now: SimTime, out: &mut Vec<Output>) -> bool {
        let next = self
            .queue
            .iter()
            .position(|job| self.deferred.iter().all(|(_, deferred)| deferred.line != job.line));
        let Some(index) = next else { return false };
        let Some(mut job) = self.queue.remove(index) else { return false };
        let Some(client) = self.clients.get(&job.line) else { return true };
        if changes_circuits(&job.text)
            && let Some(span) = self.matrix.faults.defers.take()
        {
            job.deferred_for = Some((client.port, client.login));
            self.deferred.push((now.max(job.arrived) + span, job));
            return true;
        }
        if client.port == Port::Tl1
            && self.spec.acknowledges
            && let Some(text) = Tl1State::acknowledgement(&job.text)
        {
            out.push(Output::Bytes(job.line, text.into_bytes()));
        }
        let begins = self.free_from.max(job.arrived);
        let until = begins + self.matrix.faults.stretch(self.spec.command);
        self.current = Some((job, Stage::Thinking { until }));
        true
    }

    fn perform(&mut self, now: SimTime, job: Job, out: &mut Vec<Output>) {
        self.free_from = now;
        let client = self.clients.get(&job.line).map(|client| (client.port, client.login));
        let Some((port, mut login)) = client.or(job.deferred_for) else { return };
        let before = self.matrix.pairs();
        let executed = match port {
            Port::Tl1 => self.tl1.execute(now, &mut self.matrix, &mut login, &job.text),
            _ => self.scpi.execute(now, &mut self.matrix, &job.text),
        };
        if let Some(client) = self.clients.get_mut(&job.line) {
            client.login = login;
        }
        if self.matrix.faults.reboots_in_commit && self.matrix.pairs() != before {
            self.matrix.faults.reboots_in_commit = false;
            self.matrix.keep_half(&before);
            self.reboot(now, out);
            return;
        }
        let until = if executed.waits_for_light { self.matrix.settled_at().max(now) } else { now };
        self.current = Some((job, Stage::Waiting { until, executed, before }));
    }

    fn conclude(
        &mut self,
        now: SimTime,
        job: &Job,
        executed: Executed,
        before: &[Pair],
        out: &mut Vec<Output>,
    ) {
        self.free_from = now;
        self.tell_of_changes(now, before, out);
        let Some(client) = self.clients.get_mut(&job.line) else { return };
        if client.port == Port::Tl1 {
            out.extend(executed.reply.map(|reply| Output::Bytes(job.line, reply.into_bytes())));
            return;
        }
        client.answers.extend(executed.reply);
        if job.ends_line && !client.answers.is_empty() {
            let end = if client.port == Port::ScpiSerial { "\r" } else { "\n" };
            let apart = self.scpi.breaks(Misbehaviour::AnswersApart);
            let between = if apart { end } else { ";" };
            let text = std::mem::take(&mut client.answers).join(between) + end;
            out.push(Output::Bytes(job.line, text.into_bytes()));
        }
    }

    /// Other TL1 clients receive events before the originator receives the reply.
    fn tell_of_changes(&mut self, now: SimTime, before: &[Pair], out: &mut Vec<Output>) {
        let after = self.matrix.pairs();
        if !self.spec.is_autonomous || after == before {
            return;
        }
        let parted = before.iter().filter(|pair| !after.contains(pair));
        let joined = after.iter().filter(|pair| !before.contains(pair));
        let changes =
            parted.map(|pair| (pair, "PARTED")).chain(joined.map(|pair| (pair, "JOINED")));
        let lines: String =
            changes.map(|((from, to), word)| format!("\r\n   \"{from},{to}:{word}\"")).collect();
        self.tell(now, "A ", &format!("REPT EVT PATCH{lines}"), out);
    }

    fn tell(&mut self, now: SimTime, grade: &str, text: &str, out: &mut Vec<Output>) {
        let listening: Vec<Line> = self
            .clients
            .iter()
            .filter(|(_, client)| client.port == Port::Tl1 && client.login.is_in)
            .map(|(&line, _)| line)
            .collect();
        if !listening.is_empty() {
            let message = self.tl1.autonomous(now, grade, text);
            let listening = listening.into_iter();
            out.extend(listening.map(|line| Output::Bytes(line, message.clone().into_bytes())));
        }
    }

    fn reboot(&mut self, now: SimTime, out: &mut Vec<Output>) {
        self.queue.clear();
        self.deferred.clear();
        self.current = None;
        self.answers_from = now + self.spec.boot;
        self.free_from = self.answers_from;
        out.extend(self.clients.keys().map(|&line| Output::Close(line)));
        self.clients.retain(|_, client| client.port == Port::ScpiSerial);
        for client in self.clients.values_mut() {
            client.buffer.clear();
            client.answers.clear();
        }
    }

    fn take_commands(&mut self, now: SimTime, line: Line) {
        let Some(client) = self.clients.get_mut(&line) else { return };
        let is_tl1 = client.port == Port::Tl1;
        let buffer = std::mem::take(&mut client.buffer);
        let mut rest = buffer.as_slice();
        let ends: &[u8] = if is_tl1 { b";" } else { b"\r\n" };
        while let Some(end) = rest.iter().position(|byte| ends.contains(byte)) {
            let text = String::from_utf8_lossy(&rest[..end]).trim().to_owned();
            rest = &rest[end + 1..];
            if std::mem::take(&mut client.overflowed) {
                self.scpi.push_error(OVERRUN);
            } else if !text.is_empty() && self.queue.len() < QUEUE_MAX {
                let units = if is_tl1 { vec![text] } else { units_of(&text) };
                let count = units.len();
                self.queue.extend(units.into_iter().enumerate().map(|(index, text)| Job {
                    line,
                    arrived: now,
                    text,
                    ends_line: index + 1 == count,
                    deferred_for: None,
                }));
            }
        }
        if rest.len() > COMMAND_BYTES_MAX {
            client.overflowed = true;
        } else {
            client.buffer = rest.to_vec();
        }
    }
}

fn changes_circuits(text: &str) -> bool {
    tl1::changes_circuits(text) || scpi::changes_circuits(text)
}

fn units_of(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut before = String::new();
    for unit in text.split(';').filter(|unit| !unit.trim().is_empty()) {
        let absolute = ScpiState::absolute(unit, &before);
        if !absolute.starts_with('*') {
            before.clone_from(&absolute);
        }
        units.push(absolute);
    }
    units
}

impl EmulatedDevice for OpticalSwitch {
    fn apply(&mut self, now: SimTime, fault: DeviceFault, out: &mut Vec<Output>) {
        self.on_time(now, out);
        self.matrix.faults.apply(fault);
        self.scpi.misbehaves = self.matrix.faults.misbehaves;
        match fault {
            DeviceFault::Reboot => self.reboot(now, out),
            DeviceFault::Droop(_) if self.spec.is_autonomous => {
                self.tell(now, "*C", "REPT ALM PORT\r\n   \"ALL:LOWPOWER\"", out);
            }
            _ => {}
        }
    }

    fn open(&mut self, now: SimTime, line: Line, port: Port, out: &mut Vec<Output>) {
        self.on_time(now, out);
        let of_port = self.clients.values().filter(|client| client.port == port).count();
        let full = match port {
            Port::Scpi => of_port >= 1,
            Port::Tl1 => of_port >= TL1_CLIENTS_MAX,
            Port::ScpiSerial | Port::Frames | Port::Gnmi => false,
        };
        let starting = now < self.answers_from && port != Port::ScpiSerial;
        if full || starting || matches!(port, Port::Frames | Port::Gnmi) {
            out.push(Output::Close(line));
            return;
        }
        let client = SwitchClient {
            port,
            buffer: Vec::new(),
            overflowed: false,
            login: Login::default(),
            answers: Vec::new(),
        };
        self.clients.insert(line, client);
    }

    fn on_bytes(&mut self, now: SimTime, line: Line, input: &[u8], out: &mut Vec<Output>) {
        self.on_time(now, out);
        if now < self.answers_from {
            return;
        }
        for piece in input.chunks(COMMAND_BYTES_MAX) {
            if let Some(client) = self.clients.get_mut(&line) {
                client.buffer.extend_from_slice(piece);
            }
            self.take_commands(now, line);
        }
        self.run(now, out);
    }

    fn close(&mut self, _now: SimTime, line: Line) {
        self.clients.remove(&line);
    }

    fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>) {
        self.run(now, out);
    }

    fn next_wakeup(&self) -> Option<SimTime> {
        let current = self.current.as_ref().map(|(_, stage)| match stage {
            Stage::Thinking { until } | Stage::Waiting { until, .. } => *until,
        });
        current.or_else(|| self.deferred.iter().map(|(at, _)| *at).min())
    }
}
