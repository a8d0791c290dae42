// SPDX-License-Identifier: Apache-2.0
//! The suite for switches with the OCP model. It uses a raw gNMI client on one connection.

mod arbitration;
mod moving;
mod still;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lightloom_gnmi::client::{Answer, GnmiCall, GnmiClient, GnmiLogin};
use lightloom_gnmi::extension::Extension;
use lightloom_gnmi::message::{
    CapabilityResponse, DataType, Encoding, GetRequest, GetResponse, ListMode, SetRequest,
    SetResponse, SubscribeAnswer, Subscription, SubscriptionList, SubscriptionMode, TypedValue,
    Update, Value,
};
use lightloom_gnmi::model::MODULES;
use lightloom_gnmi::path::parse;
use lightloom_gnmi::{Code, Status};
use serde_json::json;

use super::case::{
    Case, CaseVerdict, FreePorts, PUT_BACK, SuiteResults, SuiteSession, case, found, free_ports,
    run_all,
};
use super::link::{ExchangeError, Link};
use super::target::Options;
use super::{ANSWER_WITHIN, REST_WITHIN};
use tree::{ShownSwitch, flatten};

pub struct GnmiSuite {
    link: Box<dyn Link>,
    client: GnmiClient,
    next_call: u32,
    heard: BTreeMap<u32, Vec<Answer>>,
    encoding: Encoding,
    free: FreePorts<String>,
    prefix: String,
    made: BTreeSet<String>,
    rounds: u32,
    set_ups: Vec<Duration>,
    authority: String,
    login: Option<GnmiLogin>,
    next_election: u128,
    /// Election id of the suite as master; `None` before the first election.
    elected: Option<Extension>,
}

const WHOLE: [&str; 3] = ["/optical-switch", "/connections", "/components"];

const UNTESTABLE: [(&str, &str); 5] = [
    ("cold start: REMOVE, RESTORE, MAINTAIN", "the suite does not restart a device"),
    ("hitless warm restart", "the suite does not restart a device"),
    (
        "insertion loss and optical switching time",
        "testing this requires a light source and a power meter",
    ),
    ("error counters", "a client cannot cause errors"),
    ("port enabled, alias and description", "the suite configures connections only"),
];

pub fn run(
    link: Box<dyn Link>,
    plan: &Options,
    results: &mut SuiteResults,
) -> Result<String, ExchangeError> {
    let target = plan.target.trim_start_matches("gnmi:").trim_start_matches('/');
    let authority = if target.is_empty() { "device" } else { target }.to_owned();
    let login = plan.login.clone().map(|(user, password)| GnmiLogin { user, password });
    let client =
        GnmiClient::for_account(&authority, login.as_ref()).map_err(ExchangeError::Lost)?;
    let mut session = GnmiSuite {
        link,
        client,
        next_call: 0,
        heard: BTreeMap::new(),
        encoding: Encoding::JsonIetf,
        free: (Vec::new(), Vec::new()),
        prefix: format!("conform-{:08x}", results.draw() >> 32),
        made: BTreeSet::new(),
        rounds: plan.rounds,
        set_ups: Vec::new(),
        authority,
        login,
        next_election: u128::from(plan.started).max(1),
        elected: None,
    };
    let said = session.capabilities()?;
    let known = &said.supported_encodings;
    if !known.contains(&(Encoding::JsonIetf as i32)) && known.contains(&(Encoding::Json as i32)) {
        session.encoding = Encoding::Json;
    }
    let model = said.supported_models.iter().find(|model| model.name.contains("optical-switch"));
    let identity = model.map_or_else(
        || format!("gNMI {}", said.gnmi_version),
        |model| format!("{} {}, gNMI {}", model.name, model.version, said.gnmi_version),
    );
    if let Some((case, why)) = session.without_model(&said)? {
        results.note(case, found(why));
        return Ok(identity);
    }
    results.untestable.extend(UNTESTABLE);
    let before = session.switch();
    run_all(&mut session, still::CASES, results);
    let before = before.ok();
    let free = before.as_ref().ok_or("the ports could not be read".to_owned());
    let free =
        free.and_then(|switch| free_ports(plan, results, |name, free| sort(name, switch, free)));
    match free {
        Err(why) => {
            let cases = moving::CASES.iter().chain(arbitration::CASES);
            cases.for_each(|(case, _)| results.skip(*case, &*why));
        }
        Ok(free) => {
            session.free = free;
            run_all(&mut session, moving::CASES, results);
            run_all(&mut session, arbitration::CASES, results);
            session.put_back(before.as_ref(), results);
        }
    }
    results.set_ups = session.set_ups;
    Ok(identity)
}

fn sort(name: &str, switch: &ShownSwitch, free: &mut FreePorts<String>) -> Result<(), String> {
    let Some(port) = switch.ports.get(name) else {
        return Err(format!("--may-move: unknown port `{name}`"));
    };
    let end = Some(name.to_owned());
    let used = switch.connections.iter().find(|(_, c)| c.input == end || c.output == end);
    if let Some((other, _)) = used {
        return Err(format!(
            "--may-move: `{name}` is part of connection `{other}`: choose dark ports"
        ));
    }
    let is_output = switch.is_output(port, &free.0.len(), &free.1.len());
    if is_output {
        free.1.push(name.to_owned())
    } else {
        free.0.push(name.to_owned())
    }
    Ok(())
}

/// Distinguishes a refusal from a transport error.
fn is_refusal(status: &Status) -> bool {
    !matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
    )
}

fn shown(status: &Status) -> String {
    format!("{:?} ({})", status.code(), status.message())
}

impl GnmiSuite {
    fn exchange(&mut self, within: Duration) -> Result<(), ExchangeError> {
        let out = self.client.take_output();
        if !out.is_empty() {
            self.link.send(&out)?;
        }
        let bytes = self.link.receive(within)?;
        self.client.receive(&bytes);
        let out = self.client.take_output();
        if !out.is_empty() {
            self.link.send(&out)?;
        }
        while let Some((number, answer)) = self.client.next_answer() {
            self.heard.entry(number).or_default().push(answer);
        }
        match self.client.ended() {
            Some(why) => Err(ExchangeError::Lost(why)),
            None => Ok(()),
        }
    }

    fn begin(&mut self, call: GnmiCall) -> u32 {
        self.next_call += 1;
        self.client.call(self.next_call, call);
        self.next_call
    }

    fn call(&mut self, call: GnmiCall, what: &str) -> Result<Answer, ExchangeError> {
        let number = self.begin(call);
        let deadline = self.link.now() + ANSWER_WITHIN;
        loop {
            if let Some(mut answers) = self.heard.remove(&number) {
                return Ok(answers.remove(0));
            }
            let left = deadline.saturating_sub(self.link.now());
            if left.is_zero() {
                return Err(ExchangeError::Silent(format!(
                    "no answer to {what} within {ANSWER_WITHIN:?}"
                )));
            }
            self.exchange(left)?;
        }
    }

    fn capabilities(&mut self) -> Result<CapabilityResponse, ExchangeError> {
        match self.call(GnmiCall::Capabilities, "Capabilities")? {
            Answer::Capabilities(said) => Ok(said),
            Answer::Refused(status) => {
                Err(ExchangeError::Nonsense(format!("Capabilities refused: {}", shown(&status))))
            }
            _ => Err(ExchangeError::Nonsense("the answer is not a Capabilities response".into())),
        }
    }

    fn get_as(
        &mut self,
        paths: &[&str],
        encoding: Encoding,
        of: DataType,
    ) -> Result<Result<GetResponse, Status>, ExchangeError> {
        let path = paths.iter().map(|text| parse(text).map_err(ExchangeError::Nonsense));
        let request = GetRequest {
            path: path.collect::<Result<_, _>>()?,
            r#type: of as i32,
            encoding: encoding as i32,
            ..GetRequest::default()
        };
        match self.call(GnmiCall::Get(request), &format!("Get {}", paths.join(" ")))? {
            Answer::Got(got) => Ok(Ok(got)),
            Answer::Refused(status) => Ok(Err(status)),
            _ => Err(ExchangeError::Nonsense("the answer is not a Get response".into())),
        }
    }

    fn get(&mut self, paths: &[&str]) -> Result<GetResponse, ExchangeError> {
        self.get_as(paths, self.encoding, DataType::All)?.map_err(|status| {
            ExchangeError::Nonsense(format!("Get {} refused: {}", paths.join(" "), shown(&status)))
        })
    }

    /// Returns the case and the reason if the model cannot be read and no other case reports this.
    fn without_model(
        &mut self,
        said: &CapabilityResponse,
    ) -> Result<Option<(Case, String)>, ExchangeError> {
        let models = &said.supported_models;
        let missing: Vec<_> =
            MODULES.iter().filter(|name| models.iter().all(|model| model.name != **name)).collect();
        let seen = match self.get_as(&WHOLE, self.encoding, DataType::All) {
            Err(ExchangeError::Interrupted) => return Err(ExchangeError::Interrupted),
            Err(_) => return Ok(None),
            // A switch without connections may lack that path.
            Ok(Err(_)) if missing.is_empty() && self.get(&WHOLE[..1]).is_ok() => return Ok(None),
            Ok(Err(status))
                if matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) =>
            {
                let give = "use --user and --password-file of an account with read access";
                let account = match &self.login {
                    None => format!("a Get without an account is refused ({})", status.message()),
                    Some(login) => {
                        format!(
                            "the account `{}` has no read access ({})",
                            login.user,
                            status.message()
                        )
                    }
                };
                return Ok(Some((LOG_IN, format!("{account}: {give}. No other case was run"))));
            }
            Ok(Err(status)) => format!("a Get of the model is refused: {}", shown(&status)),
            Ok(Ok(got)) => match flatten(&got) {
                Ok(leaves) if ShownSwitch::of(&leaves).ports.is_empty() && !missing.is_empty() => {
                    "a Get returns no ports".to_owned()
                }
                _ => return Ok(None),
            },
        };
        let named = match missing.as_slice() {
            [] => "Capabilities lists it".to_owned(),
            missing => format!("Capabilities lacks {missing:?}"),
        };
        let has = models.iter().take(8).map(|model| format!("{} {}", model.name, model.version));
        let more = if models.len() > 8 { ", …" } else { "" };
        let why = format!(
            "the device lacks the model: {named}, and {seen}; its {} models: {}{more}. No other \
                case was run",
            models.len(),
            has.collect::<Vec<_>>().join(", ")
        );
        Ok(Some((still::MODELS, why)))
    }

    fn switch(&mut self) -> Result<ShownSwitch, ExchangeError> {
        let got = self.get(&WHOLE)?;
        Ok(ShownSwitch::of(&flatten(&got).map_err(ExchangeError::Nonsense)?))
    }

    fn set(
        &mut self,
        mut request: SetRequest,
    ) -> Result<Result<SetResponse, Status>, ExchangeError> {
        if request.extension.is_empty() {
            request.extension.extend(self.elected.clone());
        }
        match self.call(GnmiCall::Set(request), "Set")? {
            Answer::Set(set) => Ok(Ok(set)),
            Answer::Refused(status) => Ok(Err(status)),
            _ => Err(ExchangeError::Nonsense("the answer is not a Set response".into())),
        }
    }

    fn json(&self, value: &serde_json::Value) -> TypedValue {
        let bytes = value.to_string().into_bytes();
        TypedValue::from(match self.encoding {
            Encoding::Json => Value::Json(bytes),
            _ => Value::JsonIetf(bytes),
        })
    }

    fn entry(&mut self, name: &str, config: &serde_json::Value) -> Result<Update, ExchangeError> {
        self.made.insert(name.to_owned());
        let value = self.json(&json!({"name": name, "config": config}));
        let path = parse(&entry_path(name)).map_err(ExchangeError::Nonsense)?;
        Ok(Update { path: Some(path), val: Some(value), duplicates: 0 })
    }

    fn joins(&mut self, name: &str, input: &str, output: &str) -> Result<Update, ExchangeError> {
        let config = json!({"name": name, "input-port-name": input, "output-port-name": output});
        self.entry(name, &config)
    }

    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.prefix)
    }

    fn input(&self, index: usize) -> String {
        self.free.0.get(index).cloned().unwrap_or_default()
    }

    fn output(&self, index: usize) -> String {
        self.free.1.get(index).cloned().unwrap_or_default()
    }

    fn subscribe(&mut self, path: &str, mode: ListMode) -> Result<u32, ExchangeError> {
        let subscription = Subscription {
            path: Some(parse(path).map_err(ExchangeError::Nonsense)?),
            mode: SubscriptionMode::OnChange as i32,
            ..Subscription::default()
        };
        Ok(self.begin(GnmiCall::Subscribe(SubscriptionList {
            subscription: vec![subscription],
            mode: mode as i32,
            encoding: self.encoding as i32,
            ..SubscriptionList::default()
        })))
    }

    fn listen(
        &mut self,
        number: u32,
        within: Duration,
        is_enough: impl Fn(&[Answer]) -> bool,
    ) -> Result<Vec<Answer>, ExchangeError> {
        let deadline = self.link.now() + within;
        loop {
            let heard = self.heard.get(&number).cloned().unwrap_or_default();
            let left = deadline.saturating_sub(self.link.now());
            if is_enough(&heard) || left.is_zero() {
                return Ok(heard);
            }
            self.exchange(left)?;
        }
    }

    fn until(
        &mut self,
        is_so: impl Fn(&ShownSwitch) -> bool,
    ) -> Result<(bool, ShownSwitch), ExchangeError> {
        let began = self.link.now();
        let deadline = began + REST_WITHIN;
        loop {
            let switch = self.switch()?;
            if is_so(&switch) {
                return Ok((true, switch));
            }
            if self.link.now() >= deadline {
                return Ok((false, switch));
            }
            // A wait in proportion to the elapsed time bounds the relative error.
            let waited = self.link.now().saturating_sub(began);
            self.exchange((waited / 20).max(Duration::from_millis(1)))?;
        }
    }

    /// Removes all connections, even if interrupted, and compares the switch with its initial state.
    fn put_back(&mut self, before: Option<&ShownSwitch>, results: &mut SuiteResults) {
        self.link.shield();
        let cleared = self.clear().or_else(|_| self.reconnect().and_then(|()| self.clear()));
        let judged = cleared.and_then(|()| self.switch()).map(|after| {
            let lost = before.map(|before| before.differences(&after)).unwrap_or_default();
            match lost.first() {
                None => CaseVerdict::Passed,
                Some(first) => CaseVerdict::Misbehaves(first.clone()),
            }
        });
        results.note(PUT_BACK, judged);
    }
}

fn entry_path(name: &str) -> String {
    let escaped = name.replace('\\', "\\\\").replace(']', "\\]");
    format!("/connections/port-connection[name={escaped}]")
}

impl SuiteSession for GnmiSuite {
    fn reconnect(&mut self) -> Result<(), ExchangeError> {
        self.link.open()?;
        self.client = GnmiClient::for_account(&self.authority, self.login.as_ref())
            .map_err(ExchangeError::Lost)?;
        self.heard.clear();
        self.capabilities().map(drop)
    }

    fn clear(&mut self) -> Result<(), ExchangeError> {
        if self.made.is_empty() {
            return Ok(());
        }
        let there = self.switch()?;
        let gone: Vec<String> = self
            .made
            .iter()
            .filter(|name| there.connections.contains_key(*name))
            .cloned()
            .collect();
        if !gone.is_empty() {
            let delete =
                gone.iter().map(|name| parse(&entry_path(name)).map_err(ExchangeError::Nonsense));
            let delete = delete.collect::<Result<_, _>>()?;
            if let Err(status) = self.set(SetRequest { delete, ..SetRequest::default() })? {
                return Err(ExchangeError::Nonsense(format!("Set refused: {}", shown(&status))));
            }
        }
        let (all_gone, _) =
            self.until(|switch| gone.iter().all(|name| !switch.connections.contains_key(name)))?;
        if !all_gone {
            return Err(ExchangeError::Nonsense(format!("{} was not deleted", gone.join(", "))));
        }
        self.made.clear();
        Ok(())
    }
}

const LOG_IN: Case = case("log-in", "gNMI 3.1", "the account has read access");

fn is_synced(heard: &[Answer]) -> bool {
    heard.iter().any(|answer| {
        matches!(answer, Answer::Heard(said) if said.response == Some(SubscribeAnswer::Sync(true)))
    })
}
