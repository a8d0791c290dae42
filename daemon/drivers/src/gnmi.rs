// SPDX-License-Identifier: Apache-2.0
//! Optical circuit switches with the OCP model (`ocp-ocs-optical-switch` 0.8.0) over gNMI.
//!
//! Slot n is the n-th port of the input group by index; position N + m is the m-th port of the
//! output group. A change is one atomic Set. The driver reads lit circuits from the ports, which
//! report their peers, because a switch may report success although it moved something else. It
//! uses the list of connections only for the unsettled ones (`PENDING_CONNECTION`) and the names to
//! remove. It does not change foreign connections unless a change needs their ports.

mod calls;
mod layout;
mod leaves;
mod mastership;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_gnmi::client::{Answer, GnmiCall, GnmiClient};
use lightloom_gnmi::message::{
    CapabilityResponse, Encoding, GetResponse, Path, SetRequest, SubscribeAnswer,
    SubscribeResponse, Subscription, SubscriptionList, SubscriptionMode, TypedValue, Update, Value,
};
use lightloom_gnmi::model::{ConnectionStatus, MODULES, VERSION};
use lightloom_gnmi::path::{named, parse, step};

use crate::ports::{Ports, Task};
use crate::{Awaits, Dialect, Input, Progress, Request};
use calls::{connection, connections, get, millis, port, ports, refused, shown};
use layout::{Layout, Side};
use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::state::{Op, Outcome};
use mastership::Mastership;
pub use settings::{Candidacy, GnmiLogin, Settings};

/// After larger Sets, one request reads the status of all connections.
const NAMED_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
struct Listed {
    input: Option<String>,
    output: Option<String>,
    status: Option<ConnectionStatus>,
    reason: Option<String>,
}

#[derive(Debug)]
pub struct Gnmi {
    settings: Settings,
    client: Option<GnmiClient>,
    waiting: BTreeMap<u32, GnmiCall>,
    next_number: u32,
    subscription: Option<u32>,
    is_synced: bool,
    notifies: bool,
    broken: Option<String>,
    version: String,
    layout: Layout,
    ports: Ports,
    listed: BTreeMap<String, Listed>,
    expected: BTreeMap<String, bool>,
    signals: Vec<Signal>,
    foreign: Vec<Foreign>,
    mastership: Mastership,
    failed: Option<String>,
}

impl Clone for Gnmi {
    fn clone(&self) -> Self {
        Self {
            layout: self.layout.clone(),
            ports: self.ports.clone(),
            listed: self.listed.clone(),
            version: self.version.clone(),
            ..Self::new(self.settings.clone())
        }
    }
}

impl Gnmi {
    pub fn new(settings: Settings) -> Self {
        Self {
            mastership: Mastership::of(settings.candidacy.clone()),
            settings,
            client: None,
            waiting: BTreeMap::new(),
            next_number: 1,
            subscription: None,
            is_synced: false,
            notifies: false,
            broken: None,
            version: String::new(),
            layout: Layout::default(),
            ports: Ports::default(),
            listed: BTreeMap::new(),
            expected: BTreeMap::new(),
            signals: Vec::new(),
            foreign: Vec::new(),
            failed: None,
        }
    }

    #[must_use]
    pub fn wired_as(mut self, ports: Option<DevicePorts>) -> Self {
        self.ports.wired_as(ports);
        self
    }

    fn ask(&mut self, calls: Vec<(Awaits, GnmiCall)>) -> Vec<Request> {
        let mut requests = Vec::new();
        self.waiting.clear();
        for (awaits, call) in calls {
            let number = self.next_number;
            self.next_number = self.next_number.wrapping_add(1).max(1);
            let bytes = match &mut self.client {
                None => shown(&call).into_bytes(),
                Some(client) if requests.is_empty() => {
                    client.call(number, call);
                    client.take_output()
                }
                Some(_) => {
                    self.waiting.insert(number, call);
                    Vec::new()
                }
            };
            requests.push(Request { bytes, awaits, number });
        }
        requests
    }

    fn reading(&self, power: &[u32]) -> GnmiCall {
        let mut path = vec![connections(), ports("connection/peer")];
        if self.settings.power_monitor {
            let names = power.iter().filter_map(|port| self.layout.output(*port));
            path.extend(names.map(|name| port(name, "output-optical-power")));
        }
        get(path)
    }

    fn removal(&mut self, pairs: &[(u32, u32)]) -> Result<SetRequest, String> {
        let mut request = SetRequest::default();
        let mut gone = Vec::new();
        for &(slot, position) in pairs {
            let names = self.names_of(slot, position);
            if names.is_empty() {
                let (input, output) = self.names(slot, position)?;
                return Err(format!(
                    "the switch lists no connection from {input} to {output}, but light passes \
                        there: delete the connection on the switch"
                ));
            }
            gone.extend(names);
        }
        for name in gone {
            request.delete.push(connection(&name));
            self.expected.insert(name, false);
        }
        Ok(request)
    }

    fn addition(&mut self, pairs: &[(u32, u32)]) -> Result<SetRequest, String> {
        let mut request = SetRequest::default();
        let mut fresh = BTreeSet::new();
        for &(slot, position) in pairs {
            let (input, output) = self.names(slot, position)?;
            let name = format!("{PREFIX}{input}-{output}");
            let config = serde_json::json!({
                "name": name, "input-port-name": input, "output-port-name": output,
            });
            let mut path = connection(&name);
            path.elem.push(step("config"));
            let value = Value::JsonIetf(config.to_string().into_bytes());
            request.update.push(Update {
                path: Some(path),
                val: Some(TypedValue::from(value)),
                duplicates: 0,
            });
            // Remove failed connections on these ports, because they would block the next attempt.
            let dead = self.listed.iter().filter(|(listed, of)| {
                let is_dead =
                    matches!(of.status, Some(ConnectionStatus::Failed | ConnectionStatus::Invalid));
                let at_it = [&of.input, &of.output].into_iter().flatten();
                let mut at_it = at_it.filter(|port| **port == input || **port == output);
                is_dead && listed.starts_with(PREFIX) && at_it.next().is_some()
            });
            fresh.extend(dead.map(|(name, _)| name.clone()).filter(|dead| *dead != name));
            self.expected.insert(name, true);
        }
        for name in fresh {
            request.delete.push(connection(&name));
            self.expected.insert(name, false);
        }
        Ok(request)
    }

    fn names(&self, slot: u32, position: u32) -> Result<(String, String), String> {
        let input =
            self.layout.input(slot).ok_or_else(|| format!("the switch has no slot {slot}"))?;
        let output = self.layout.output(position);
        let output = output.ok_or_else(|| format!("the switch has no position {position}"))?;
        Ok((input.to_owned(), output.to_owned()))
    }

    fn names_of(&self, slot: u32, position: u32) -> Vec<String> {
        let of = self.listed.iter().filter(|(_, of)| {
            let ends = of.input.as_deref().zip(of.output.as_deref());
            ends.and_then(|(a, b)| self.layout.pair(a, b)) == Some((slot, position))
        });
        of.map(|(name, _)| name.clone()).collect()
    }

    fn statuses(request: &SetRequest) -> GnmiCall {
        let named = request.update.iter().filter_map(|update| {
            let mut path = update.path.clone()?;
            path.elem.pop();
            path.elem.push(step("state"));
            Some(path)
        });
        if request.update.len() <= NAMED_MAX {
            return get(named.collect());
        }
        get(vec![connections()])
    }

    fn take_capabilities(&mut self, said: &CapabilityResponse) -> Result<(), String> {
        let expected = self.settings.model_version.as_deref().unwrap_or(VERSION);
        for module in MODULES {
            let model = said.supported_models.iter().find(|model| model.name == module);
            let Some(model) = model else {
                let names: Vec<_> =
                    said.supported_models.iter().take(8).map(|model| model.name.as_str()).collect();
                return Err(format!("it has no model `{module}`: it has {}", names.join(", ")));
            };
            if model.version != expected {
                return Err(format!(
                    "its `{module}` is version `{}`, but this driver implements {expected}; help: \
                        set `model_version: \"{}\"` if both versions agree",
                    model.version, model.version
                ));
            }
        }
        if !said.supported_encodings.contains(&(Encoding::JsonIetf as i32)) {
            return Err("it does not support JSON_IETF".into());
        }
        self.version = expected.to_owned();
        Ok(())
    }

    fn take_layout(&mut self, said: &GetResponse) -> Result<(), String> {
        let leaves = leaves::leaves(&said.notification)?;
        self.layout = Layout::of(&leaves, self.settings.groups.as_ref())?;
        let (inputs, outputs) = (self.layout.inputs.len(), self.layout.outputs.len());
        let taken = self.ports.take_size(&inputs.to_string(), &outputs.to_string());
        taken.ok_or_else(|| format!("it reports {inputs} input and {outputs} output ports"))
    }

    fn take_list(&mut self, said: &[leaves::Leaf]) {
        for (steps, value) in said {
            let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
            let ["connections", "port-connection", part @ ("config" | "state"), leaf] =
                names.as_slice()
            else {
                continue;
            };
            let Some(name) = &steps[1].1 else { continue };
            let (entry, value) = (self.listed.entry(name.clone()).or_default(), value.as_str());
            let value = value.map(str::to_owned);
            match (*part, *leaf) {
                (_, "input-port-name") => entry.input = value,
                (_, "output-port-name") => entry.output = value,
                ("state", "status") => entry.status = value.and_then(|word| word.parse().ok()),
                ("state", "status-reason") => entry.reason = value,
                _ => {}
            }
        }
    }

    fn take_positions(&mut self, said: &GetResponse) -> Result<(), String> {
        let leaves = leaves::leaves(&said.notification)?;
        self.listed.clear();
        self.take_list(&leaves);
        let (mut from_inputs, mut from_outputs) = (BTreeSet::new(), BTreeSet::new());
        let mut powers = Vec::new();
        for (steps, value) in &leaves {
            let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
            let ["components", "component", "ocp-ocs-port", "state", rest @ ..] = names.as_slice()
            else {
                continue;
            };
            let Some(port) = &steps[1].1 else { continue };
            let Some((side, number)) = self.layout.number(port) else { continue };
            match rest {
                ["connection", "peer"] => {
                    let peer = value.as_str().unwrap_or_default();
                    let pair = self.layout.pair(port, peer).ok_or_else(|| {
                        format!("`{port}` reports the peer `{peer}`, which is not a port on the other side")
                    })?;
                    let said =
                        if side == Side::Input { &mut from_inputs } else { &mut from_outputs };
                    said.insert(pair);
                }
                ["output-optical-power"] => {
                    powers.extend(millis(value).map(|power| (number, power)))
                }
                _ => {}
            }
        }
        if let Some((slot, position)) = from_inputs.symmetric_difference(&from_outputs).next() {
            let (input, output) = self.names(*slot, *position)?;
            return Err(format!("`{input}` and `{output}` report different connections"));
        }
        let taken = self.ports.take_circuits(from_inputs.iter().copied());
        taken.ok_or_else(|| "two of its circuits share a port".to_owned())?;
        let pending = self.listed.values().filter(|of| {
            matches!(
                of.status,
                Some(ConnectionStatus::PendingConnection | ConnectionStatus::PendingDeletion)
            )
        });
        let pairs =
            pending.filter_map(|of| self.layout.pair(of.input.as_deref()?, of.output.as_deref()?));
        let tuning: Vec<u32> =
            pairs.filter(|pair| from_inputs.contains(pair)).map(|(slot, _)| slot).collect();
        self.ports.take_tuning(tuning);
        self.ports.take_power(powers);
        Ok(())
    }

    fn take_statuses(&mut self, said: &GetResponse) -> Result<(), String> {
        let leaves = leaves::leaves(&said.notification)?;
        self.take_list(&leaves);
        let wrong = self.listed.iter().find(|(name, of)| {
            self.expected.get(*name) == Some(&true)
                && matches!(of.status, Some(ConnectionStatus::Failed | ConnectionStatus::Invalid))
        });
        self.failed = wrong.map(|(name, of)| {
            let status = of.status.map_or("", ConnectionStatus::word);
            format!("{name} is {status}: {}", of.reason.as_deref().unwrap_or("it gives no reason"))
        });
        Ok(())
    }

    fn hear(&mut self, heard: &SubscribeResponse) {
        let notification = match &heard.response {
            Some(SubscribeAnswer::Sync(true)) => {
                self.is_synced = true;
                return;
            }
            Some(SubscribeAnswer::Update(notification)) if self.is_synced => notification,
            _ => return,
        };
        let prefix = notification.prefix.as_ref();
        let gone = notification.delete.iter().filter_map(|path| {
            let path = lightloom_gnmi::path::joined(prefix, Some(path));
            Some((leaves::step(path.elem.get(1)?).1?, None))
        });
        let mut news: Vec<(String, Option<String>)> = gone.collect();
        if let Ok(leaves) = leaves::leaves(std::slice::from_ref(notification)) {
            news.extend(leaves.into_iter().filter_map(|(steps, value)| {
                let name = steps.get(1)?.1.clone()?;
                Some((name, value.as_str().map(str::to_owned)))
            }));
        }
        for (name, status) in news {
            let stands = match status.as_deref().map(str::parse) {
                None => Some(false),
                Some(Ok(ConnectionStatus::Connected | ConnectionStatus::PendingConnection)) => {
                    Some(true)
                }
                Some(Ok(ConnectionStatus::PendingDeletion)) => Some(false),
                Some(_) => None,
            };
            if stands.is_some() && self.expected.get(&name).copied() == stands {
                continue;
            }
            if !self.expected.contains_key(&name) {
                let how = status.as_deref().unwrap_or("gone");
                self.foreign.push(Foreign::Changed(format!("connection `{name}` is {how}")));
            }
            self.signals.push(Signal::Changed);
        }
        // A single signal is enough, because it triggers a complete read.
        self.signals.truncate(1);
        self.foreign.truncate(8);
    }

    fn take_answer(&mut self, awaits: Awaits, answer: Answer) -> Progress {
        let taken = match (awaits, answer) {
            (Awaits::Identity, Answer::Capabilities(said)) => self.take_capabilities(&said),
            (Awaits::Size, Answer::Got(said)) => self.take_layout(&said),
            (Awaits::Positions, Answer::Got(said)) => self.take_positions(&said),
            (Awaits::Errors, Answer::Got(said)) => self.take_statuses(&said),
            (Awaits::Done, Answer::Set(_)) => Ok(()),
            (Awaits::Events, Answer::Subscribed) => {
                self.notifies = true;
                Ok(())
            }
            (Awaits::Events, Answer::Refused(_) | Answer::SubscriptionEnded) => {
                self.subscription = None;
                Ok(())
            }
            (Awaits::Claim, Answer::Set(_)) => return self.mastership.was_taken(),
            (Awaits::Claim, Answer::Refused(status)) => {
                return self.mastership.was_refused(&status);
            }
            (Awaits::Done, Answer::Refused(status)) if self.mastership.was_denied(&status) => {
                let denied = self.mastership.denied().unwrap_or_default();
                return Progress::Ended(Outcome::Refused(denied));
            }
            (awaits, Answer::Refused(status)) => return refused(awaits, &status),
            (awaits, _) => Err(format!("unexpected reply to {awaits:?}")),
        };
        taken.map_or_else(Progress::Lost, |()| Progress::Answered)
    }
}

const PREFIX: &str = "lightloom-";

impl Dialect for Gnmi {
    fn hello(&mut self) -> Vec<Request> {
        let fresh = Self::new(self.settings.clone());
        let ports = std::mem::take(&mut self.ports);
        *self = Self { ports, next_number: self.next_number, ..fresh };
        self.ports.forget();
        match GnmiClient::for_account(&self.settings.authority, self.settings.login.as_ref()) {
            Ok(client) => self.client = Some(client),
            Err(why) => self.broken = Some(why),
        }
        self.ask(vec![(Awaits::Identity, GnmiCall::Capabilities)])
    }

    fn after_hello(&mut self) -> Vec<Request> {
        let switch = parse("/optical-switch/state").unwrap_or_default();
        let layout = get(vec![switch, ports("group"), ports("index")]);
        let mut path = Path { elem: vec![step("connections")], ..Path::default() };
        path.elem.extend([named("port-connection", "*"), step("state"), step("status")]);
        let subscription = Subscription {
            path: Some(path),
            mode: SubscriptionMode::OnChange as i32,
            ..Subscription::default()
        };
        let list = SubscriptionList {
            subscription: vec![subscription],
            encoding: Encoding::JsonIetf as i32,
            ..SubscriptionList::default()
        };
        let mut calls = vec![(Awaits::Size, layout)];
        calls.extend(self.mastership.take());
        calls.push((Awaits::Events, GnmiCall::Subscribe(list)));
        let mut requests = self.ask(calls);
        self.subscription = requests.last_mut().map(|request| request.number);
        requests
    }

    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String> {
        self.failed = None;
        let denied = self.mastership.denied();
        let calls = match (self.ports.task(op)?, denied) {
            (Task::Nothing, _) => Vec::new(),
            (Task::Look(power), denied) => {
                let again = denied.and_then(|_| self.mastership.take());
                let read = (Awaits::Positions, self.reading(&power));
                again.into_iter().chain([read]).collect()
            }
            (_, Some(why)) => return Err(why),
            (Task::Remove(pairs), None) => {
                let request = self.removal(&pairs)?;
                let request = self.mastership.stamped(request);
                vec![(Awaits::Done, GnmiCall::Set(request))]
            }
            (Task::Add(pairs), None) => {
                let request = self.addition(&pairs)?;
                let request = self.mastership.stamped(request);
                let then = Self::statuses(&request);
                vec![(Awaits::Done, GnmiCall::Set(request)), (Awaits::Errors, then)]
            }
        };
        Ok(self.ask(calls))
    }

    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
        let call = self.waiting.remove(&request.number);
        let Some(client) = &mut self.client else {
            return Progress::Lost(self.broken.clone().unwrap_or_else(|| "not connected".into()));
        };
        client.receive(&std::mem::take(&mut input.bytes));
        if let Some(call) = call {
            client.call(request.number, call);
        }
        while let Some((number, answer)) = self.client.as_mut().and_then(GnmiClient::next_answer) {
            if number == request.number {
                return self.take_answer(request.awaits, answer);
            }
            self.take_other(number, &answer, input);
        }
        match self.broken() {
            Some(why) => Progress::Lost(why),
            None => Progress::Wait,
        }
    }

    fn finish(&mut self, op: &Op) -> Outcome {
        match (self.failed.take(), self.mastership.denied()) {
            (Some(why), _) => Outcome::Failed(why),
            // A denied Set is harmless if the switch is already in the desired state.
            (None, Some(why)) if matches!(op, Op::Arm { want, .. } if !self.ports.stands(want)) => {
                Outcome::Refused(why)
            }
            (None, _) => self.ports.outcome(op),
        }
    }

    fn identity(&self) -> String {
        let (inputs, outputs) = (self.layout.inputs.len(), self.layout.outputs.len());
        let how = if self.notifies { "notifies on change" } else { "is polled" };
        let (version, election) = (&self.version, self.mastership.shown());
        format!("{} {version}, {inputs} by {outputs} ports, {how}, {election}", MODULES[0])
    }

    fn unasked(&mut self, input: &mut Input) {
        let Some(client) = &mut self.client else { return };
        client.receive(&std::mem::take(&mut input.bytes));
        while let Some((number, answer)) = self.client.as_mut().and_then(GnmiClient::next_answer) {
            self.take_other(number, &answer, input);
        }
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        let mut foreign = std::mem::take(&mut self.foreign);
        foreign.extend(self.mastership.news());
        foreign
    }

    fn signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    fn broken(&mut self) -> Option<String> {
        let ended = self.client.as_ref().and_then(GnmiClient::ended);
        self.broken.clone().or(ended)
    }

    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        if let Some(client) = &mut self.client {
            out.extend(client.take_output());
        }
    }
}

impl Gnmi {
    fn take_other(&mut self, number: u32, answer: &Answer, input: &mut Input) {
        if self.subscription != Some(number) {
            input.noise += 1;
            return;
        }
        match answer {
            Answer::Heard(heard) => self.hear(heard),
            Answer::SubscriptionEnded => {
                self.broken = Some("the switch ended the subscription".into());
            }
            Answer::Refused(status) => {
                self.broken =
                    Some(format!("the switch ended the subscription: {}", status.message()));
            }
            _ => {}
        }
    }
}
