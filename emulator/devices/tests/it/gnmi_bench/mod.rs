// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_devices::{EmulatedDevice, GnmiSpec, GnmiSwitch, Line, Output, Port};
use lightloom_gnmi::Code;
use lightloom_gnmi::client::{Answer, GnmiCall, GnmiClient};
use lightloom_gnmi::message::{Encoding, GetRequest, SetRequest, TypedValue, Update, Value};
use lightloom_gnmi::path::parse;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use serde_json::{Value as Json, json};

pub(crate) struct Bench {
    pub(crate) switch: GnmiSwitch,
    pub(crate) clients: BTreeMap<Line, GnmiClient>,
    pub(crate) now: SimTime,
    number: u32,
}

pub(crate) const FIRST: Line = Line(1);

impl Bench {
    pub(crate) fn new(spec: GnmiSpec) -> Self {
        let switch = GnmiSwitch::new(spec, Seed(1), 0);
        let mut bench = Self { switch, clients: BTreeMap::new(), now: SimTime::START, number: 0 };
        bench.connect(FIRST);
        bench
    }

    pub(crate) fn connect(&mut self, line: Line) {
        let mut out = Vec::new();
        self.switch.open(self.now, line, Port::Gnmi, &mut out);
        assert!(
            out.iter().all(|output| !matches!(output, Output::Close(_))),
            "the switch accepts a client"
        );
        self.clients.insert(line, GnmiClient::new("switch:9339").unwrap());
        self.exchange(out);
    }

    pub(crate) fn exchange(&mut self, mut out: Vec<Output>) {
        loop {
            for output in std::mem::take(&mut out) {
                match output {
                    Output::Bytes(line, bytes) => {
                        if let Some(client) = self.clients.get_mut(&line) {
                            client.receive(&bytes);
                        }
                    }
                    Output::Close(line) => drop(self.clients.remove(&line)),
                }
            }
            for (line, client) in &mut self.clients {
                let bytes = client.take_output();
                if !bytes.is_empty() {
                    self.switch.on_bytes(self.now, *line, &bytes, &mut out);
                }
            }
            if out.is_empty() {
                return;
            }
        }
    }

    pub(crate) fn run_for(&mut self, millis: u64) {
        let end = self.now + Picoseconds::from_millis(millis);
        while let Some(at) = self.switch.next_wakeup().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let mut out = Vec::new();
            self.switch.on_time(self.now, &mut out);
            self.exchange(out);
        }
        self.now = end;
    }

    pub(crate) fn fault(&mut self, fault: &str) {
        let mut out = Vec::new();
        self.switch.apply(self.now, fault.parse().unwrap(), &mut out);
        self.exchange(out);
    }

    pub(crate) fn ask_on(&mut self, line: Line, call: GnmiCall) -> Option<Answer> {
        self.number += 1;
        self.clients.get_mut(&line)?.call(self.number, call);
        self.exchange(Vec::new());
        for _ in 0..1_000 {
            while let Some((number, answer)) = self.clients.get_mut(&line)?.next_answer() {
                if number == self.number {
                    return Some(answer);
                }
            }
            self.run_for(1);
        }
        panic!("no answer in a second");
    }

    pub(crate) fn ask(&mut self, call: GnmiCall) -> Answer {
        self.ask_on(FIRST, call).unwrap()
    }

    pub(crate) fn get(&mut self, path: &str) -> Json {
        let path = vec![parse(path).unwrap()];
        let encoding = Encoding::JsonIetf as i32;
        match self.ask(GnmiCall::Get(GetRequest { path, encoding, ..GetRequest::default() })) {
            Answer::Got(said) => {
                said.notification[0].update[0].val.as_ref().unwrap().to_json().unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn refused_get(&mut self, path: &str) -> (Code, String) {
        let path = vec![parse(path).unwrap()];
        let encoding = Encoding::JsonIetf as i32;
        match self.ask(GnmiCall::Get(GetRequest { path, encoding, ..GetRequest::default() })) {
            Answer::Refused(status) => (status.code(), status.message().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn set(&mut self, set: SetRequest) -> Result<(), String> {
        match self.ask(GnmiCall::Set(set)) {
            Answer::Set(_) => Ok(()),
            Answer::Refused(status) => Err(status.message().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn must_add(&mut self, of: &[(&str, &str, &str)]) {
        self.set(adds(of)).unwrap();
        self.run_for(100);
    }

    pub(crate) fn status(&mut self, name: &str) -> String {
        let path = format!("/connections/port-connection[name={name}]/state/status");
        self.get(&path).as_str().unwrap().to_owned()
    }
}

pub(crate) fn adds(of: &[(&str, &str, &str)]) -> SetRequest {
    let update = of.iter().map(|(name, input, output)| {
        let config = json!({"name": name, "input-port-name": input, "output-port-name": output});
        part(&format!("/connections/port-connection[name={name}]/config"), &config)
    });
    SetRequest { update: update.collect(), ..SetRequest::default() }
}

pub(crate) fn part(path: &str, value: &Json) -> Update {
    let val = Some(TypedValue::from(Value::JsonIetf(value.to_string().into_bytes())));
    Update { path: Some(parse(path).unwrap()), val, duplicates: 0 }
}

pub(crate) fn deletes(names: &[&str]) -> SetRequest {
    let path = |name| parse(&format!("/connections/port-connection[name={name}]")).unwrap();
    SetRequest { delete: names.iter().map(path).collect(), ..SetRequest::default() }
}

pub(crate) fn both(delete: SetRequest, add: SetRequest) -> SetRequest {
    SetRequest { update: add.update, ..delete }
}

pub(crate) fn small() -> GnmiSpec {
    GnmiSpec { ingress: 8, egress: 8, ..GnmiSpec::default() }
}
