// SPDX-License-Identifier: Apache-2.0
//! Parses the reply to a Get into the state of a switch.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_gnmi::message::GetResponse;
use lightloom_gnmi::path::{bare, joined, text};
use serde_json::Value as Json;

pub(super) type LeafTexts = BTreeMap<String, Json>;

const KEYS: [&str; 3] = ["name", "peer-name", "index"];

pub(super) fn flatten(got: &GetResponse) -> Result<LeafTexts, String> {
    let mut leaves = LeafTexts::new();
    for notification in &got.notification {
        for update in &notification.update {
            let mut path = joined(notification.prefix.as_ref(), update.path.as_ref());
            for step in &mut path.elem {
                step.name = bare(&step.name).to_owned();
            }
            let at = text(&path);
            let value = update.val.as_ref().ok_or_else(|| format!("{at}: a value is missing"))?;
            let value = value.to_json().map_err(|why| format!("{at}: {why}"))?;
            add(&mut leaves, if at == "/" { "" } else { &at }, &value);
        }
    }
    Ok(leaves)
}

fn add(leaves: &mut LeafTexts, at: &str, value: &Json) {
    match value {
        Json::Object(members) => {
            for (name, below) in members {
                add(leaves, &format!("{at}/{}", bare(name)), below);
            }
        }
        Json::Array(entries) if entries.iter().any(Json::is_object) => {
            for entry in entries {
                let key = KEYS.iter().find_map(|key| Some((key, entry.get(key)?.as_str()?)));
                let (key, name) = key.map_or(("name", "?"), |(key, name)| (*key, name));
                let name = name.replace('\\', "\\\\").replace(']', "\\]");
                add(leaves, &format!("{at}[{key}={name}]"), entry);
            }
        }
        leaf => {
            leaves.insert(at.to_owned(), leaf.clone());
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShownConnection {
    pub(super) input: Option<String>,
    pub(super) output: Option<String>,
    pub(super) set_to: (Option<String>, Option<String>),
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) updated: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Port {
    pub(super) group: String,
    pub(super) index: Option<u64>,
    pub(super) status: String,
    pub(super) peer: Option<String>,
    pub(super) connected: Option<bool>,
    pub(super) input_power: Option<f64>,
    pub(super) output_power: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ShownSwitch {
    pub(super) leaves: LeafTexts,
    pub(super) connections: BTreeMap<String, ShownConnection>,
    pub(super) ports: BTreeMap<String, Port>,
    pub(super) groups: BTreeMap<String, String>,
    pub(super) changed: String,
}

fn word(value: &Json) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.rsplit_once(':').map_or(text.clone(), |(_, bare)| bare.to_owned())
}

fn plain(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Some devices report the power in the leaf itself, others in its child `instant`.
fn number(value: &Json) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

fn entry<'a>(path: &'a str, list: &str) -> Option<(String, &'a str)> {
    let rest = path.strip_prefix(list)?;
    let rest = rest.split_once('=')?.1;
    let mut end = 0;
    let bytes = rest.as_bytes();
    while end < bytes.len() && bytes[end] != b']' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    let name = rest.get(..end)?.replace("\\]", "]").replace("\\\\", "\\");
    Some((name, rest.get(end + 1..)?))
}

impl ShownSwitch {
    pub(super) fn of(leaves: &LeafTexts) -> Self {
        let mut switch = Self { leaves: leaves.clone(), ..Self::default() };
        for (path, value) in leaves {
            if let Some((name, leaf)) = entry(path, "/connections/port-connection[") {
                switch.connections.entry(name).or_default().take(leaf, value);
            } else if let Some((name, leaf)) = entry(path, "/components/component[")
                && let Some(leaf) = leaf.strip_prefix("/ocp-ocs-port")
            {
                switch.ports.entry(name).or_default().take(leaf, value);
            } else if let Some((name, leaf)) =
                entry(path, "/optical-switch/state/port-groups/port-group[")
                    .or_else(|| entry(path, "/optical-switch/state/port-groups["))
            {
                let direction = switch.groups.entry(name).or_default();
                if leaf.ends_with("/direction") {
                    *direction = word(value);
                }
            } else if path == "/connections/last-change-time"
                || path == "/connections/state/last-change-time"
            {
                switch.changed = plain(value);
            }
        }
        switch
    }

    /// Uses the group's direction if set; otherwise the side with fewer ports is the output.
    pub(super) fn is_output(&self, port: &Port, inputs: &usize, outputs: &usize) -> bool {
        match self.groups.get(&port.group).map(String::as_str) {
            Some("INPUT-ONLY") => false,
            Some("OUTPUT-ONLY") => true,
            _ => match self.groups.keys().next() {
                Some(first) if self.groups.len() > 1 => port.group != *first,
                _ => outputs < inputs,
            },
        }
    }

    pub(super) fn connection(&self, name: &str) -> ShownConnection {
        self.connections.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn port(&self, name: &Option<String>) -> Port {
        name.as_ref().and_then(|name| self.ports.get(name)).cloned().unwrap_or_default()
    }

    pub(super) fn unlit(&self, connection: &ShownConnection) -> Option<String> {
        for (end, other) in
            [(&connection.input, &connection.output), (&connection.output, &connection.input)]
        {
            let port = self.port(end);
            let name = end.as_deref().unwrap_or("?");
            if port.peer != *other {
                let (peer, other) = (port.peer.as_deref(), other.as_deref().unwrap_or("?"));
                let peer = peer.unwrap_or("no port");
                return Some(format!("the peer of `{name}` is {peer} rather than `{other}`"));
            }
            if port.connected == Some(false) {
                return Some(format!("`{name}` is not connected"));
            }
            if port.status == "TUNING" {
                return Some(format!("`{name}` is TUNING"));
            }
        }
        None
    }

    pub(super) fn differences(&self, after: &Self) -> Vec<String> {
        let names: BTreeSet<_> = self.connections.keys().chain(after.connections.keys()).collect();
        let differs = names.into_iter().filter_map(|name| {
            match (self.connections.get(name), after.connections.get(name)) {
                (Some(_), None) => Some(format!("connection `{name}` is gone")),
                (None, Some(_)) => Some(format!("connection `{name}` was not removed")),
                (Some(a), Some(b)) if (&a.input, &a.output) != (&b.input, &b.output) => {
                    Some(format!("connection `{name}` now uses different ports"))
                }
                (Some(a), Some(b)) if a.status != b.status || a.updated != b.updated => Some(
                    format!("connection `{name}` was disturbed: {} since {}", b.status, b.updated),
                ),
                _ => None,
            }
        });
        differs.collect()
    }
}

impl ShownConnection {
    fn take(&mut self, leaf: &str, value: &Json) {
        match leaf {
            "/state/input-port-name" => self.input = Some(plain(value)),
            "/state/output-port-name" => self.output = Some(plain(value)),
            "/config/input-port-name" => self.set_to.0 = Some(plain(value)),
            "/config/output-port-name" => self.set_to.1 = Some(plain(value)),
            "/state/status" => self.status = word(value),
            "/state/status-reason" => self.reason = Some(plain(value)),
            "/state/last-updated" => self.updated = plain(value),
            _ => {}
        }
    }
}

impl Port {
    fn take(&mut self, leaf: &str, value: &Json) {
        match leaf {
            "/state/group" => self.group = plain(value),
            "/state/index" => self.index = value.as_u64().or_else(|| value.as_str()?.parse().ok()),
            "/state/status" => self.status = word(value),
            "/state/connection/peer" => self.peer = Some(plain(value)),
            "/state/connection/connected" => self.connected = value.as_bool(),
            "/state/input-optical-power" | "/state/input-optical-power/instant" => {
                self.input_power = number(value);
            }
            "/state/output-optical-power" | "/state/output-optical-power/instant" => {
                self.output_power = number(value);
            }
            _ => {}
        }
    }
}
