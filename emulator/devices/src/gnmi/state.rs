// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chrono::DateTime;
use lightloom_gnmi::Status;
use lightloom_gnmi::message::{Operation, Path, SetRequest, SetResponse, UpdateResult};
use lightloom_gnmi::model::{ColdStartRecovery, ConnectionStatus as Stands};
use lightloom_gnmi::path::{joined, named, step};
use lightloom_gnmi::wire::Spawner;
use lightloom_units::{Picoseconds, SimTime};
use tokio::sync::oneshot;

use super::GnmiSpec;
use super::arbitration::Masters;
use super::config::{IntendedConnection, SwitchConfig, must_fit, wrong};
use super::feed::Feeds;
use super::misbehave;
use crate::misbehave::Misbehaviour;
use crate::switch::matrix::{Matrix, MatrixRefusal, Pair};

const JOBS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EstablishedConnection {
    pub(crate) pair: Pair,
    pub(crate) stands: Stands,
    pub(crate) reason: Option<String>,
    pub(crate) updated: SimTime,
    until: SimTime,
}

impl EstablishedConnection {
    fn holds_ports(&self) -> bool {
        matches!(self.stands, Stands::Connected | Stands::PendingConnection)
    }
}

#[derive(Debug)]
struct Job {
    at: SimTime,
    request: SetRequest,
    reply: oneshot::Sender<Result<SetResponse, Status>>,
    is_deferred: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) spec: GnmiSpec,
    pub(crate) matrix: Matrix,
    pub(crate) now: SimTime,
    pub(crate) config: SwitchConfig,
    pub(crate) circuits: BTreeMap<String, EstablishedConnection>,
    pub(crate) changed_at: SimTime,
    pub(crate) feeds: Feeds,
    masters: Masters,
    pub(crate) spawner: Spawner,
    jobs: VecDeque<Job>,
    waits: Vec<(SimTime, oneshot::Sender<()>)>,
    busy_until: SimTime,
    pub(crate) starts_until: SimTime,
    pub(crate) hangs_up: bool,
    restores: bool,
}

impl State {
    pub(crate) fn new(spec: GnmiSpec, matrix: Matrix, spawner: Spawner) -> Self {
        Self {
            spec,
            matrix,
            now: SimTime::START,
            config: SwitchConfig::default(),
            circuits: BTreeMap::new(),
            changed_at: SimTime::START,
            feeds: Feeds::default(),
            masters: Masters::default(),
            spawner,
            jobs: VecDeque::new(),
            waits: Vec::new(),
            busy_until: SimTime::START,
            starts_until: SimTime::START,
            hangs_up: false,
            restores: false,
        }
    }

    pub(crate) fn thought(&mut self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let at = self.think();
        self.waits.push((at, sender));
        receiver
    }

    fn think(&mut self) -> SimTime {
        let takes = self.matrix.faults.stretch(self.spec.command);
        self.busy_until = self.busy_until.max(self.now) + takes;
        self.busy_until
    }

    pub(crate) fn begin(
        &mut self,
        request: SetRequest,
    ) -> oneshot::Receiver<Result<SetResponse, Status>> {
        let (reply, receiver) = oneshot::channel();
        if self.jobs.len() >= JOBS_MAX {
            let why = format!("{JOBS_MAX} changes are already pending; nothing was changed");
            // Fails only if the caller has stopped waiting.
            let _ = reply.send(Err(Status::resource_exhausted(why)));
            return receiver;
        }
        let deferred = self.matrix.faults.defers.take();
        let at = match deferred {
            Some(span) => self.now + span,
            None => self.think(),
        };
        self.jobs.push_back(Job { at, request, reply, is_deferred: deferred.is_some() });
        receiver
    }

    pub(crate) fn on_time(&mut self, now: SimTime) {
        self.now = self.now.max(now);
        if self.restores && self.starts_until <= self.now {
            self.restores = false;
            let wanted = std::mem::take(&mut self.config.connections);
            self.apply(
                SwitchConfig { connections: wanted, ..self.config.clone() },
                &BTreeSet::new(),
            );
        }
        while let Some(at) = self.jobs.iter().position(|job| job.at <= self.now) {
            let Some(job) = self.jobs.remove(at) else { break };
            if job.is_deferred || !job.reply.is_closed() {
                let done = self.set(&job.request);
                let _ = job.reply.send(done);
            }
        }
        self.settle();
        let now = self.now;
        for (_, waiting) in self.waits.extract_if(.., |(at, _)| *at <= now) {
            let _ = waiting.send(());
        }
        let mut feeds = std::mem::take(&mut self.feeds);
        feeds.on_time(self);
        self.feeds = feeds;
    }

    pub(crate) fn next_wakeup(&self) -> Option<SimTime> {
        let pending = self.circuits.values().filter(|circuit| is_pending(circuit.stands));
        let starts = self.restores.then_some(self.starts_until);
        let jobs = self.jobs.iter().map(|job| job.at);
        let waits = self.waits.iter().map(|(at, _)| *at);
        let next = pending.map(|circuit| circuit.until).chain(starts).chain(jobs).chain(waits);
        next.chain(self.feeds.next_wakeup()).min()
    }

    fn settle(&mut self) {
        let now = self.now;
        let mut changed = None;
        let faults = self.matrix.faults;
        self.circuits.retain(|_, circuit| {
            if !is_pending(circuit.stands) || circuit.until > now {
                return true;
            }
            if faults.breaks(match circuit.stands {
                Stands::PendingConnection => Misbehaviour::NeverRests,
                _ => Misbehaviour::KeepsDeleted,
            }) {
                circuit.until = SimTime(u64::MAX);
                return true;
            }
            changed = changed.max(Some(circuit.until));
            let is_there = circuit.stands == Stands::PendingConnection;
            circuit.stands = Stands::Connected;
            circuit.updated = circuit.until;
            is_there
        });
        if let Some(at) = changed {
            self.has_changed(at);
        }
    }

    fn has_changed(&mut self, at: SimTime) {
        if !self.breaks(Misbehaviour::FrozenChangeTime) {
            self.changed_at = self.changed_at.max(at);
        }
        self.feeds.are_stale = true;
    }

    pub(crate) fn set(&mut self, request: &SetRequest) -> Result<SetResponse, Status> {
        self.masters.admit(request, &self.spec, &self.matrix.faults)?;
        let mut understood = request.clone();
        self.misread(&mut understood);
        let next = self.config.changed(&understood).and_then(|mut next| {
            self.drop_unwelcome(&mut next);
            must_fit(&next)?;
            self.check(&next)?;
            self.objects(request, &next).map(|()| next)
        });
        let next = next.inspect_err(|_| self.do_half(&understood))?;
        let before = self.matrix.pairs();
        self.apply(next, &misbehave::named(request));
        if std::mem::take(&mut self.matrix.faults.reboots_in_commit) {
            self.matrix.keep_half(&before);
            self.restart();
        }
        let prefix = request.prefix.clone();
        let deleted = request.delete.iter().map(|path| (Some(path), Operation::Delete));
        let replaced = request.replace.iter().map(|it| (it.path.as_ref(), Operation::Replace));
        let updated = request.update.iter().map(|it| (it.path.as_ref(), Operation::Update));
        let all = deleted.chain(replaced).chain(updated);
        let all = all.filter(|_| !self.breaks(Misbehaviour::NoResults));
        let response = all.map(|(path, op)| UpdateResult {
            path: Some(path.cloned().unwrap_or_default()),
            op: op as i32,
        });
        let response = response.collect();
        Ok(SetResponse { prefix, response, timestamp: self.spec.unix_nanos(self.now) })
    }

    pub(crate) fn check(&self, next: &SwitchConfig) -> Result<(), Status> {
        if next.recovery > self.spec.recovery {
            let (wanted, best) = (next.recovery.word(), self.spec.recovery.word());
            let path = leaf_path("optical-switch", "cold-boot-recovery");
            return Err(wrong(
                &path,
                &format!("this switch does not support {wanted}: use {best} or less"),
            ));
        }
        if let Some(name) = next.ports.keys().find(|name| self.spec.port(name).is_none()) {
            let path = Path {
                elem: vec![step("components"), named("component", name)],
                ..Path::default()
            };
            return Err(wrong(&path, &self.spec.no_such_port(name)));
        }
        let (mut held, mut seen) = (BTreeMap::<u16, &str>::new(), BTreeSet::new());
        for (name, intent) in &next.connections {
            let pair = self.spec.pair(intent).map_err(|why| wrong(&connection_path(name), &why))?;
            seen.insert(pair);
            for port in [pair.0, pair.1] {
                let shown = self.spec.port_name(port);
                if next.ports.get(&shown).is_some_and(|port| !port.enabled) {
                    let why =
                        format!("`{shown}` is disabled: set `ocp-ocs-port/config/enabled` first");
                    return Err(wrong(&connection_path(name), &why));
                }
                if let Some(other) = held.insert(port, name)
                    && !self.spec.checks_late
                    && !self.breaks(Misbehaviour::TwoOnOnePort)
                {
                    let why = format!(
                        "`{shown}` is in connection `{other}`: delete that in the same Set"
                    );
                    return Err(wrong(&connection_path(name), &why));
                }
            }
        }
        Ok(())
    }

    /// A misbehaving switch may disturb the connections `named` in the Set, or all other connections.
    fn disturbs(&self, is_named: bool) -> bool {
        self.breaks(match is_named {
            true => Misbehaviour::RemakesTheSame,
            false => Misbehaviour::DisturbsOthers,
        })
    }

    pub(crate) fn apply(&mut self, next: SwitchConfig, named: &BTreeSet<String>) {
        let now = self.now;
        for port in next.ports.keys().chain(self.config.ports.keys()) {
            let enabled = next.ports.get(port).is_none_or(|port| port.enabled);
            if let Some(number) = self.spec.port(port) {
                let _ = self.matrix.set_enabled(number, enabled);
            }
        }
        let pairs: BTreeMap<String, Pair> = next
            .connections
            .iter()
            .filter_map(|(name, intent)| Some((name.clone(), self.spec.pair(intent).ok()?)))
            .collect();
        self.config = next;
        let mut fresh: BTreeMap<String, Pair> = pairs.clone();
        let mut going = Vec::new();
        for (name, circuit) in std::mem::take(&mut self.circuits) {
            let is_kept = pairs.get(&name) == Some(&circuit.pair) && circuit.holds_ports();
            if is_kept && !self.disturbs(named.contains(&name)) {
                fresh.remove(&name);
                self.circuits.insert(name, circuit);
            } else {
                going.push((name, circuit));
            }
        }
        going.retain(|(_, circuit)| {
            let heir =
                fresh.iter().find(|(_, pair)| **pair == circuit.pair).map(|(name, _)| name.clone());
            let heir =
                heir.filter(|heir| circuit.holds_ports() && !self.disturbs(named.contains(heir)));
            let Some(heir) = heir else { return true };
            fresh.remove(&heir);
            self.circuits.insert(heir, EstablishedConnection { updated: now, ..circuit.clone() });
            false
        });
        for (name, circuit) in going {
            self.remove(name, circuit, &fresh);
        }
        let begun: Vec<String> = fresh.keys().cloned().collect();
        for (name, pair) in fresh {
            self.create(name, pair);
        }
        let until = self.matrix.settled_at();
        for name in begun {
            if let Some(circuit) = self.circuits.get_mut(&name) {
                circuit.until = until;
            }
        }
        self.has_changed(now);
    }

    fn remove(
        &mut self,
        name: String,
        mut circuit: EstablishedConnection,
        fresh: &BTreeMap<String, Pair>,
    ) {
        let now = self.now;
        let was_lit = !matches!(circuit.stands, Stands::Invalid | Stands::PendingDeletion);
        let parted = if was_lit {
            self.matrix.disconnect(now, &[(circuit.pair.0, None)]).refusal
        } else {
            None
        };
        (circuit.updated, circuit.until, circuit.reason) =
            (now, self.matrix.settled_at().max(now), None);
        circuit.stands = match parted {
            Some(MatrixRefusal::Hardware(port)) => {
                let shown = self.spec.port_name(port);
                circuit.reason =
                    Some(format!("the mirror of `{shown}` is stuck: its connection is unchanged"));
                Stands::Failed
            }
            _ if circuit.stands == Stands::Invalid => return,
            _ => Stands::PendingDeletion,
        };
        if !fresh.contains_key(&name) {
            self.circuits.entry(name).or_insert(circuit);
        }
    }

    fn create(&mut self, name: String, pair: Pair) {
        let now = self.now;
        let blocker = self.circuits.iter().find(|(_, circuit)| {
            circuit.holds_ports() && (circuit.pair.0 == pair.0 || circuit.pair.1 == pair.1)
        });
        let (stands, reason) = if blocker.is_some() && self.breaks(Misbehaviour::TwoOnOnePort) {
            (Stands::Connected, None)
        } else if let Some((other, _)) = blocker {
            (Stands::Invalid, Some(format!("one of its ports is in connection `{other}`")))
        } else {
            match self.matrix.connect(now, &[pair]).refusal {
                None => (Stands::PendingConnection, None),
                Some(why) => (Stands::Failed, Some(self.broken(why))),
            }
        };
        let until = self.matrix.settled_at().max(now);
        self.circuits
            .insert(name, EstablishedConnection { pair, stands, reason, updated: now, until });
    }

    fn broken(&self, why: MatrixRefusal) -> String {
        match why {
            MatrixRefusal::Hardware(port) => {
                format!("the mirror of `{}` is stuck", self.spec.port_name(port))
            }
            MatrixRefusal::InUse(port) => {
                format!("a removed connection still occupies `{}`", self.spec.port_name(port))
            }
            MatrixRefusal::Disabled(port) => format!("`{}` is disabled", self.spec.port_name(port)),
            MatrixRefusal::NoSuchPort(port) | MatrixRefusal::NotConnected(port) => {
                format!("port {port} does not exist")
            }
        }
    }

    pub(crate) fn restart(&mut self) {
        self.warm_restart();
        if self.config.recovery == ColdStartRecovery::Maintain {
            return;
        }
        self.matrix.darken();
        self.circuits.clear();
        match self.config.recovery {
            ColdStartRecovery::Restore => self.restores = true,
            ColdStartRecovery::Remove | ColdStartRecovery::Maintain => {
                self.config.connections.clear()
            }
        }
        self.has_changed(self.now);
    }

    pub(crate) fn warm_restart(&mut self) {
        self.waits.clear();
        self.masters = Masters::default();
        self.jobs.clear();
        self.feeds.end();
        self.hangs_up = true;
        self.starts_until = self.now + self.spec.boot;
    }

    pub(crate) fn connect_by_hand(&mut self, ingress: u16, egress: u16) {
        self.matrix.disconnect(self.now, &[(ingress, None)]);
        self.matrix.connect(self.now, &[(ingress, egress)]);
        self.has_changed(self.now);
    }
}

fn is_pending(stands: Stands) -> bool {
    matches!(stands, Stands::PendingConnection | Stands::PendingDeletion)
}

fn connection_path(name: &str) -> Path {
    Path { elem: vec![step("connections"), named("port-connection", name)], ..Path::default() }
}

fn leaf_path(top: &str, leaf: &str) -> Path {
    let config = Path { elem: vec![step("config"), step(leaf)], ..Path::default() };
    joined(Some(&Path { elem: vec![step(top)], ..Path::default() }), Some(&config))
}

impl GnmiSpec {
    fn pair(&self, intent: &IntendedConnection) -> Result<Pair, String> {
        let input = intent.input.as_ref().ok_or("`config/input-port-name` is missing")?;
        let first = self.port(input).ok_or_else(|| self.no_such_port(input))?;
        let output = intent.output.as_ref().ok_or("`config/output-port-name` is missing")?;
        let second = self.port(output).ok_or_else(|| self.no_such_port(output))?;
        let (first_is_in, second_is_in) = (first <= self.ingress, second <= self.ingress);
        if first_is_in == second_is_in {
            return Err(format!(
                "`{input}` and `{output}` are in the same port group: connect ports of different groups"
            ));
        }
        if first_is_in {
            return Ok((first, second));
        }
        if self.any_direction {
            return Ok((second, first));
        }
        Err(format!("`{input}` is an output port and `{output}` an input port: swap them"))
    }

    fn no_such_port(&self, name: &str) -> String {
        let [first, second] = self.groups();
        format!(
            "port `{name}` does not exist: this switch has {first}-1 to {first}-{} and {second}-1 to {second}-{}",
            self.ingress, self.egress
        )
    }

    pub(crate) fn unix_nanos(&self, at: SimTime) -> i64 {
        let nanos = self.epoch_seconds.saturating_mul(1_000_000_000).saturating_add(at.0 / 1_000);
        i64::try_from(nanos).unwrap_or(i64::MAX)
    }

    pub(crate) fn date(&self, at: SimTime) -> String {
        let millis = self.epoch_seconds * 1_000 + at.0 / Picoseconds::from_millis(1).get();
        let date = DateTime::from_timestamp_millis(millis as i64).unwrap_or_default();
        date.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
    }
}
