// SPDX-License-Identifier: Apache-2.0
//! The framed serial protocol of a transceiver with an integrated switch (docs/firmware-api.md).
//!
//! A fire takes effect once per transaction number, so each arm uses the number after the largest
//! one that the module has reported. A slot is a switch group, from 0; a position is a path code.

use lightloom_fabric::khop::Port;
use lightloom_firmware_api::cmis::state::{DataPathState, ModuleState};
use lightloom_firmware_api::cmis::{RegisterAddress, page_b0, page11};
use lightloom_firmware_api::frame::ENCODED_BYTES_MAX;
use lightloom_firmware_api::host::{
    Host, Received, Sequence, acknowledge, encode_in_epoch, encode_request,
};
use lightloom_firmware_api::message::{
    Arm, Capabilities, Epoch, Event, EventKind, EventsReport, Identity, LinkName, LinksReport,
    MODULE_NAME_BYTES_MAX, Neighbour, Power, Reply, Request as Wire, RequestRefusal, StatusReport,
    TransactionId,
};
use lightloom_firmware_api::path::{
    DataPathPolicy, GROUPS_MAX, GroupOutcome as PathOutcome, Groups, Path, Paths,
};
use lightloom_units::id::{BundleId, NodeId};

use crate::module::{self, Module, text};
use crate::{Awaits, Dialect, Input, Progress, Request};
use lightloom_control::controller::Signal;
use lightloom_control::mover::Promise;
use lightloom_control::state::{
    Micros, Move, NEIGHBOURS_EVERY, Neighbours, Observation, Op, Outcome, Position, Positions,
    Shut, Slot,
};

#[derive(Clone, Debug)]
pub struct OcsTrx {
    policy: DataPathPolicy,
    host: Host,
    sequence: u16,
    identity: Option<Identity>,
    status: Option<StatusReport>,
    links: Option<LinksReport>,
    registers: Vec<(RegisterAddress, Vec<u8>)>,
    reads: u8,
    name: LinkName,
    named: Option<u16>,
    armed: Option<(TransactionId, Paths, Groups)>,
    last_transaction: u32,
    events: Option<EventsReport>,
    last_event: Option<(u16, u16)>,
    unacknowledged: Vec<Sequence>,
    signals: Vec<Signal>,
    module: Vec<u8>,
    serial: Option<String>,
    epoch: Option<Epoch>,
    checks_epochs: bool,
}

impl OcsTrx {
    /// `sequence` is the first request number, which should differ in each daemon process.
    pub fn new(policy: DataPathPolicy, sequence: u16) -> Self {
        Self {
            policy,
            host: Host::new(),
            sequence,
            identity: None,
            status: None,
            links: None,
            registers: Vec::new(),
            reads: 0,
            name: LinkName::NONE,
            named: None,
            armed: None,
            last_transaction: 0,
            events: None,
            last_event: None,
            unacknowledged: Vec::new(),
            signals: Vec::new(),
            module: Vec::new(),
            serial: None,
            epoch: None,
            checks_epochs: false,
        }
    }

    /// From the hello on, a module that checks epochs refuses commands of previous leaders.
    #[must_use]
    pub fn leading_in(mut self, epoch: Option<u64>) -> Self {
        self.epoch = epoch.map(Epoch);
        self
    }

    pub fn at_agent(mut self, module: &str) -> Result<Self, String> {
        if !(1..=MODULE_NAME_BYTES_MAX).contains(&module.len()) {
            return Err(format!(
                "`{module}`: a module's name must have 1 to {MODULE_NAME_BYTES_MAX} bytes"
            ));
        }
        self.module = module.as_bytes().to_vec();
        Ok(self)
    }

    /// Names the module after its bundle, so that neighbours can identify the sender of light.
    #[must_use]
    pub fn called(mut self, device: &str) -> Self {
        self.name = device.parse().map_or(LinkName::NONE, link_name);
        self
    }

    #[must_use]
    pub fn expecting(mut self, serial: Option<String>) -> Self {
        self.serial = serial;
        self
    }

    fn knows_neighbours(&self) -> bool {
        self.name != LinkName::NONE && self.has(Capabilities::NEIGHBOURS)
    }

    fn has(&self, capability: Capabilities) -> bool {
        self.identity.is_some_and(|identity| identity.capabilities.has(capability))
    }

    fn wants_neighbours(&mut self, asked: Neighbours) -> bool {
        if asked == Neighbours::Never {
            return false;
        }
        self.reads = self.reads.wrapping_add(1);
        let all_known = self.links.zip(self.status).is_some_and(|(links, status)| {
            let lit =
                (0..GROUPS_MAX).filter(|group| status.active[*group].external_number().is_some());
            lit.map(|group| neighbour(links.neighbours[group])).all(|known| known.is_some())
        });
        self.knows_neighbours()
            && (asked == Neighbours::Always
                || !all_known
                || self.reads.is_multiple_of(NEIGHBOURS_EVERY))
    }

    fn observe(&mut self, neighbours: Neighbours) -> Vec<Request> {
        let mut requests = Vec::new();
        let boots = self.status.map(|status| status.boots);
        if neighbours != Neighbours::Never && self.knows_neighbours() && self.named != boots {
            let (name, address) = (self.name.0.to_be_bytes(), page_b0::LINK_NAME.at);
            requests.push(self.ask(&Wire::Write { address, bytes: &name }, Awaits::Neighbours));
            self.named = boots;
        }
        requests.push(self.ask(&Wire::Status, Awaits::Positions));
        if self.wants_neighbours(neighbours) {
            self.links = None;
            requests.push(self.ask(&Wire::Links, Awaits::Neighbours));
        }
        requests
    }

    fn ask(&mut self, wire: &Wire<'_>, awaits: Awaits) -> Request {
        let carries = !matches!(wire, Wire::Read { .. } | Wire::Write { .. } | Wire::Module { .. });
        self.ask_in(self.epoch.filter(|_| carries && self.checks_epochs), wire, awaits)
    }

    fn ask_in(&mut self, epoch: Option<Epoch>, wire: &Wire<'_>, awaits: Awaits) -> Request {
        self.sequence = self.sequence.wrapping_add(1);
        let (number, mut line) = (Sequence(self.sequence), [0; ENCODED_BYTES_MAX]);
        let length = match epoch {
            Some(epoch) => encode_in_epoch(number, epoch, wire, &mut line),
            None => encode_request(number, wire, &mut line),
        };
        Request { bytes: line[..length].to_vec(), awaits, number: u32::from(self.sequence) }
    }

    fn arm(&mut self, want: &Positions) -> Result<Vec<Request>, String> {
        let mut paths = self.status.map(|status| status.active).unwrap_or_default();
        let mut groups = Groups::NONE;
        let group_count = self.identity.map_or(1, |identity| usize::from(identity.groups));
        for (&slot, &position) in want {
            let group = usize::try_from(slot.0).ok().filter(|group| *group < group_count);
            let group = group.ok_or_else(|| format!("it has no switch group {slot}"))?;
            paths[group] = self.path(position)?;
            groups = groups.with(group);
        }
        self.last_transaction = self.last_transaction.wrapping_add(1).max(1);
        let transaction = TransactionId(self.last_transaction);
        self.armed = Some((transaction, paths, groups));
        let arm = Arm { transaction, policy: self.policy, paths };
        Ok(vec![self.ask(&Wire::Arm(arm), Awaits::Armed)])
    }

    fn path(&self, position: Position) -> Result<Path, String> {
        let external = self.identity.map_or(8, |identity| identity.external_paths);
        let path = u8::try_from(position.0).ok().and_then(Path::from_code);
        path.filter(|path: &Path| path.external_number().is_none_or(|number| number <= external)).ok_or_else(|| {
            format!(
                "it has no path {}: 1 to {external} are its external fibres, 15 is loopback, 0 is \
                    dark",
                position.0
            )
        })
    }

    fn switch(&mut self, moves: &[Move]) -> Result<Vec<Request>, String> {
        self.links = None;
        let want: Positions = moves.iter().map(|m| (m.slot, m.to)).collect();
        let mut requests = Vec::new();
        let at_once = !self.is_armed_for(&want);
        if at_once {
            requests = self.arm(&want)?;
        }
        let (transaction, paths, groups) = self.armed.take().ok_or("nothing is armed")?;
        if at_once && self.has(Capabilities::GO) {
            let arm = Arm { transaction, policy: self.policy, paths };
            return Ok(vec![self.ask(&Wire::Go { arm, groups }, Awaits::Done)]);
        }
        requests.push(self.ask(&Wire::Fire { transaction, groups }, Awaits::Done));
        Ok(requests)
    }

    fn take_event(&mut self, number: Sequence, event: &Event) {
        self.unacknowledged.push(number);
        let name = (event.boots, number.0);
        if self.last_event.replace(name) == Some(name) {
            return;
        }
        let slot = Slot(u32::from(event.group));
        let position = Position(u32::from(event.active.code()));
        self.signals.push(match event.kind {
            EventKind::LightLost => Signal::LightLost(slot, position),
            EventKind::LightBack => Signal::LightBack(slot),
            EventKind::Moved | EventKind::Restarted => Signal::Changed,
        });
    }

    fn take_bytes(&mut self, request: Option<&Request>, input: &mut Input) -> Progress {
        let bytes = std::mem::take(&mut input.bytes);
        let mut progress = Progress::Wait;
        let mut host = std::mem::take(&mut self.host);
        host.receive_all(&bytes, |received| match (received, request) {
            (Ok(Received::Event(number, event)), _) if self.events.is_some() => {
                self.take_event(number, &event);
            }
            (Ok(Received::Answer(answer)), Some(request))
                if u32::from(answer.sequence.0) == request.number =>
            {
                let refused = matches!(answer.reply, Reply::Refused(_));
                progress = match request.awaits {
                    // An unknown neighbour must not prevent reading the position.
                    Awaits::Neighbours | Awaits::Events if refused => Progress::Answered,
                    Awaits::Claim => self.take_claim(&answer.reply),
                    Awaits::Registers if !refused => self.take_registers(&answer.reply),
                    _ => self.take(&answer.reply),
                };
            }
            _ => input.noise += 1,
        });
        self.host = host;
        progress
    }

    fn is_armed_for(&self, want: &Positions) -> bool {
        let Some((_, paths, groups)) = &self.armed else { return false };
        want.len() == groups.iter().count()
            && want.iter().all(|(slot, position)| {
                let group = slot.0 as usize;
                groups.contains(group) && u32::from(paths[group].code()) == position.0
            })
    }

    fn take(&mut self, reply: &Reply<'_>) -> Progress {
        match reply {
            Reply::Identity(identity) => {
                let serial = text(&identity.serial);
                if let Some(expected) = self.serial.as_ref().filter(|expected| **expected != serial)
                {
                    let why = format!(
                        "the module has serial number {serial}, but the configuration expects {expected}"
                    );
                    return Progress::Lost(why);
                }
                self.identity = Some(*identity);
                Progress::Answered
            }
            Reply::Status(status) => {
                let shown = status.armed.0.max(status.fired.0);
                self.last_transaction = self.last_transaction.max(shown);
                let restarted = self.status.is_some_and(|old| old.boots != status.boots);
                let other = self.armed.is_some_and(|(armed, ..)| armed != status.armed);
                if restarted || other {
                    self.armed = None;
                }
                if self.status.is_some_and(|old| old.active != status.active) {
                    self.links = None;
                }
                self.status = Some(*status);
                Progress::Answered
            }
            Reply::Links(links) => {
                self.links = Some(*links);
                Progress::Answered
            }
            Reply::Armed(report) => match worst(&report.outcomes) {
                None => Progress::Answered,
                Some(why) => {
                    self.armed = None;
                    Progress::Ended(Outcome::Refused(why))
                }
            },
            Reply::Fired(report) => match worst(&report.outcomes) {
                None => Progress::Answered,
                Some(why) => Progress::Ended(Outcome::Failed(why)),
            },
            Reply::Events(report) => {
                self.events = Some(*report).filter(|report| report.enabled);
                Progress::Answered
            }
            Reply::Done | Reply::Registers(_) => Progress::Answered,
            Reply::Refused(refusal) => {
                self.armed = None;
                let why = refusal.to_string();
                Progress::Ended(match refusal {
                    RequestRefusal::BusFailed => Outcome::Unknown(why),
                    _ => Outcome::Refused(why),
                })
            }
        }
    }

    fn take_claim(&mut self, reply: &Reply<'_>) -> Progress {
        self.checks_epochs = matches!(reply, Reply::Identity(_));
        match reply {
            Reply::Refused(RequestRefusal::EarlierEpoch) => {
                Progress::Lost(RequestRefusal::EarlierEpoch.to_string())
            }
            _ => Progress::Answered,
        }
    }

    fn take_registers(&mut self, reply: &Reply<'_>) -> Progress {
        let next = module::READS.get(self.registers.len());
        match (reply, next) {
            (Reply::Registers(bytes), Some((address, length)))
                if bytes.len() == usize::from(*length) =>
            {
                self.registers.push((*address, bytes.to_vec()));
                Progress::Answered
            }
            // A module without data paths may lack page 11h.
            (Reply::Refused(RequestRefusal::NoSuchRegister), Some((address, _)))
                if *address == page11::INIT_PENDING.at =>
            {
                Progress::Answered
            }
            _ => Progress::Ended(Outcome::Failed("registers that were not requested".into())),
        }
    }

    fn observation(&self) -> Option<Observation> {
        let status = self.status?;
        let groups = usize::from(self.identity?.groups).min(GROUPS_MAX);
        let mut seen =
            Observation { generation: Some(status.generation), ..Observation::default() };
        let mut shut_slots = Vec::new();
        for group in 0..groups {
            let path = status.active[group];
            let slot = Slot(u32::try_from(group).unwrap_or(u32::MAX));
            if path != Path::DARK {
                seen.positions.insert(slot, Position(u32::from(path.code())));
                shut_slots.extend(shut(&status, group, groups).map(|why| (slot, why)));
            }
            if status.busy.contains(group) {
                seen.tuning.insert(slot);
            }
            if let Some(number) = path.external_number() {
                let tap = status.taps[usize::from(number) - 1];
                seen.power_mdbm.insert(slot, mdbm(tap));
                let neighbour = self.links.and_then(|links| neighbour(links.neighbours[group]));
                seen.neighbours.extend(neighbour.map(|port| (slot, port.to_string())));
            }
        }
        seen.shut = shut_slots.into();
        Some(seen)
    }
}

impl Dialect for OcsTrx {
    fn hello(&mut self) -> Vec<Request> {
        self.host.reset();
        self.armed = None;
        (self.status, self.links, self.named) = (None, None, None);
        (self.events, self.last_event) = (None, None);
        self.signals.clear();
        self.unacknowledged.clear();
        let name = std::mem::take(&mut self.module);
        let named =
            (!name.is_empty()).then(|| self.ask(&Wire::Module { name: &name }, Awaits::Identity));
        self.module = name;
        self.checks_epochs = false;
        let epoch = self.epoch;
        let claim = epoch.map(|_| self.ask_in(epoch, &Wire::Hello, Awaits::Claim));
        let hello =
            [self.ask(&Wire::Hello, Awaits::Identity), self.ask(&Wire::Status, Awaits::Positions)];
        named.into_iter().chain(claim).chain(hello).collect()
    }

    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String> {
        match op {
            Op::Observe { neighbours, .. } => Ok(self.observe(*neighbours)),
            Op::Arm { want, .. } => {
                // Forget the neighbours of earlier reads, which may be outdated.
                self.links = None;
                let mut requests = self.arm(want)?;
                requests.push(self.ask(&Wire::Status, Awaits::Positions));
                Ok(requests)
            }
            Op::Disarm { .. } => {
                let Some((transaction, ..)) = self.armed.take() else { return Ok(Vec::new()) };
                Ok(vec![self.ask(&Wire::Disarm { transaction }, Awaits::Done)])
            }
            Op::Switch { moves, .. } => self.switch(moves),
        }
    }

    fn after_hello(&mut self) -> Vec<Request> {
        self.events = None;
        match self.has(Capabilities::EVENTS) {
            true => {
                let wire = Wire::Events { enabled: true, debounce_us: 0 };
                vec![self.ask(&wire, Awaits::Events)]
            }
            false => Vec::new(),
        }
    }

    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
        self.take_bytes(Some(request), input)
    }

    fn unasked(&mut self, input: &mut Input) {
        if !input.bytes.is_empty() {
            self.take_bytes(None, input);
        }
    }

    fn signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        for number in std::mem::take(&mut self.unacknowledged) {
            let mut line = [0; ENCODED_BYTES_MAX];
            let length = acknowledge(number, &mut line);
            out.extend_from_slice(&line[..length]);
        }
    }

    fn finish(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Observe { .. } | Op::Arm { .. } => match self.observation() {
                Some(seen) => Outcome::Done(Some(seen)),
                None => Outcome::Unknown("it did not identify itself".into()),
            },
            Op::Disarm { .. } | Op::Switch { .. } => Outcome::Done(None),
        }
    }

    fn look(&mut self) -> Option<Vec<Request>> {
        self.registers.clear();
        let mut requests = vec![
            self.ask(&Wire::Hello, Awaits::Identity),
            self.ask(&Wire::Status, Awaits::Positions),
        ];
        for (address, length) in module::READS {
            requests.push(self.ask(&Wire::Read { address, length }, Awaits::Registers));
        }
        Some(requests)
    }

    fn module(&self) -> Option<Module> {
        Some(Module::of(&self.identity?, &self.status?, self.registers.clone()))
    }

    fn promise(&self) -> Option<Promise> {
        let identity = self.identity?;
        Some(Promise {
            commit: Micros(u64::from(identity.commit_max_us)),
            settle: Micros(u64::from(identity.settle_us)),
            dwell: Micros(u64::from(identity.dwell_us)),
            goes: identity.capabilities.has(Capabilities::GO),
            refuses_late: self.checks_epochs,
            // The module sends 0 if it does not promise a reply time.
            answer: self
                .events
                .map(|events| Micros(u64::from(events.answer_us)))
                .filter(|answer| answer.0 > 0),
        })
    }

    fn identity(&self) -> String {
        let Some(identity) = self.identity else { return String::new() };
        let (major, minor) = identity.firmware;
        let (vendor, part) = (text(&identity.vendor), text(&identity.part));
        format!("{vendor},{part},{},{major}.{minor}", text(&identity.serial))
    }
}

/// Encodes node + 1 in the upper 24 bits and the bundle in the lower 8. Zero if they do not fit.
fn link_name(bundle: BundleId) -> LinkName {
    let node = bundle.node.0.saturating_add(1);
    if node >= 1 << 24 { LinkName::NONE } else { LinkName(node << 8 | u32::from(bundle.bundle)) }
}

fn neighbour(seen: Neighbour) -> Option<Port> {
    let [.., bundle] = seen.name.0.to_be_bytes();
    let node = NodeId((seen.name.0 >> 8).checked_sub(1)?);
    Some(Port { bundle: BundleId { node, bundle }, path: seen.path })
}

fn shut(status: &StatusReport, group: usize, groups: usize) -> Option<Shut> {
    let lanes = status.data_paths.len() / groups.max(1);
    let lanes = status.data_paths.get(group * lanes..(group + 1) * lanes)?;
    let states = lanes.iter().filter_map(|code| DataPathState::from_code(*code));
    let states: Vec<DataPathState> = states.collect();
    let is_active = states.contains(&DataPathState::Activated);
    if states.is_empty() || is_active || status.module_state == ModuleState::Fault.code() {
        return None;
    }
    let ready = [DataPathState::Initialized, DataPathState::TxTurnOff];
    match states.iter().any(|state| ready.contains(state)) {
        true => Some(Shut::TxDisabled),
        false => Some(Shut::NotActivated),
    }
}

fn worst(outcomes: &[PathOutcome]) -> Option<String> {
    let mut groups = outcomes.iter().enumerate();
    let (group, outcome) =
        groups.find(|(_, o)| !matches!(o, PathOutcome::None | PathOutcome::Success))?;
    Some(format!("switch group {group}: {outcome:?}"))
}

/// Converts 0.1 µW to 1/1000 dBm; no light is -99 dBm.
fn mdbm(power: Power) -> i32 {
    if power.0 == 0 {
        return -99_000;
    }
    let milliwatts = f64::from(power.0) / 10_000.0;
    #[expect(clippy::cast_possible_truncation, reason = "between -40 and 8.2 dBm")]
    let mdbm = (milliwatts.log10() * 10_000.0).round() as i32;
    mdbm
}

#[cfg(test)]
mod tests;
