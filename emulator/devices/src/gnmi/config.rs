// SPDX-License-Identifier: Apache-2.0
//! Applies a Set to a copy: deletes, then replaces, then updates. A valid copy replaces the original.

use std::collections::BTreeMap;

use lightloom_gnmi::Status;
use lightloom_gnmi::message::{Path, PathElem, SetRequest};
use lightloom_gnmi::model::ColdStartRecovery;
use lightloom_gnmi::path::{KEY_BYTES_MAX, STEPS_MAX, bare, joined, text};
use serde_json::{Map, Value as Json};

const CONNECTIONS_MAX: usize = 8_192;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IntendedConnection {
    pub(crate) input: Option<String>,
    pub(crate) output: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortConfig {
    pub(crate) enabled: bool,
    pub(crate) alias: Option<String>,
    pub(crate) description: Option<String>,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { enabled: true, alias: None, description: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SwitchConfig {
    pub(crate) bidirectional: bool,
    pub(crate) recovery: ColdStartRecovery,
    pub(crate) ports: BTreeMap<String, PortConfig>,
    pub(crate) connections: BTreeMap<String, IntendedConnection>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        let recovery = ColdStartRecovery::default();
        Self { bidirectional: true, recovery, ports: BTreeMap::new(), connections: BTreeMap::new() }
    }
}

#[derive(Clone, Copy)]
enum Change<'a> {
    Delete,
    Replace(&'a Json),
    Update(&'a Json),
}

type Wrong = String;

impl SwitchConfig {
    pub(crate) fn changed(&self, request: &SetRequest) -> Result<Self, Status> {
        if !request.union_replace.is_empty() {
            return Err(Status::unimplemented("union_replace: use delete, replace and update"));
        }
        let mut next = self.clone();
        let prefix = request.prefix.as_ref();
        for path in &request.delete {
            let path = joined(prefix, Some(path));
            next.apply(&path, Change::Delete).map_err(|why| wrong(&path, &why))?;
        }
        for (parts, replaces) in [(&request.replace, true), (&request.update, false)] {
            for part in parts {
                let path = joined(prefix, part.path.as_ref());
                let value = part.val.as_ref().ok_or_else(|| "a value is missing".to_owned());
                let value = value.and_then(|value| value.to_json());
                let value = value.map_err(|why| wrong(&path, &why))?;
                let change =
                    if replaces { Change::Replace(&value) } else { Change::Update(&value) };
                next.apply(&path, change).map_err(|why| wrong(&path, &why))?;
            }
        }
        Ok(next)
    }

    fn apply(&mut self, path: &Path, change: Change<'_>) -> Result<(), Wrong> {
        if path.elem.len() > STEPS_MAX {
            return Err(format!("the path has more than {STEPS_MAX} steps"));
        }
        let Some((first, rest)) = path.elem.split_first() else {
            return self.apply_root(change);
        };
        match bare(&first.name) {
            "optical-switch" => self.apply_switch(rest, change),
            "connections" => self.apply_connections(rest, change),
            "components" => self.apply_components(rest, change),
            other => Err(format!("`{other}` does not exist in the model at this path")),
        }
    }

    fn apply_root(&mut self, change: Change<'_>) -> Result<(), Wrong> {
        let value = match change {
            Change::Delete => {
                return Err("a delete requires a path in the configuration".into());
            }
            Change::Replace(_) => {
                return Err("a replace requires a path in the configuration".into());
            }
            Change::Update(value) => value,
        };
        for (name, value) in members(value)? {
            let path = Path { elem: vec![lightloom_gnmi::path::step(name)], ..Path::default() };
            self.apply(&path, Change::Update(value))?;
        }
        Ok(())
    }

    fn apply_switch(&mut self, steps: &[PathElem], change: Change<'_>) -> Result<(), Wrong> {
        let names: Vec<_> = steps.iter().map(|step| bare(&step.name)).collect();
        match (names.as_slice(), change) {
            ([], Change::Update(value) | Change::Replace(value)) => {
                let member = only(value, &["config"])?;
                member.map_or(Ok(()), |value| self.switch_leaves(value))
            }
            (["config"], Change::Update(value)) => self.switch_leaves(value),
            (["config"], Change::Replace(value)) => {
                (self.bidirectional, self.recovery) = (true, ColdStartRecovery::default());
                self.switch_leaves(value)
            }
            ([] | ["config"], Change::Delete) => {
                (self.bidirectional, self.recovery) = (true, ColdStartRecovery::default());
                Ok(())
            }
            (["config", "bidirectional"], Change::Delete) => {
                self.bidirectional = true;
                Ok(())
            }
            (["config", "cold-boot-recovery"], Change::Delete) => {
                self.recovery = ColdStartRecovery::default();
                Ok(())
            }
            (["config", name], Change::Update(value) | Change::Replace(value)) => {
                self.switch_leaf(name, value)
            }
            (["state", ..], _) => Err("`state` is read only".into()),
            _ => Err("no value at this path can be set".into()),
        }
    }

    fn switch_leaves(&mut self, value: &Json) -> Result<(), Wrong> {
        members(value)?.try_for_each(|(name, value)| self.switch_leaf(name, value))
    }

    fn switch_leaf(&mut self, name: &str, value: &Json) -> Result<(), Wrong> {
        match name {
            "bidirectional" => self.bidirectional = boolean(name, value)?,
            "cold-boot-recovery" => self.recovery = string(name, value)?.parse()?,
            other => return Err(format!("`optical-switch/config` has no `{other}`")),
        }
        Ok(())
    }

    fn apply_connections(&mut self, steps: &[PathElem], change: Change<'_>) -> Result<(), Wrong> {
        let Some((list, rest)) = steps.split_first() else {
            return match change {
                Change::Delete => {
                    self.connections.clear();
                    Ok(())
                }
                Change::Replace(value) => {
                    self.connections.clear();
                    self.entries(only(value, &["port-connection"])?)
                }
                Change::Update(value) => self.entries(only(value, &["port-connection"])?),
            };
        };
        if bare(&list.name) != "port-connection" {
            return Err(format!("`{}` in `connections` cannot be set", bare(&list.name)));
        }
        if let Some(odd) = list.key.keys().find(|key| *key != "name") {
            return Err(format!("the key of `port-connection` is `name`, not `{odd}`"));
        }
        match (list.key.get("name").map(String::as_str), change) {
            (None | Some("*"), Change::Delete) if rest.is_empty() => {
                self.connections.clear();
                Ok(())
            }
            (None, Change::Replace(value)) if rest.is_empty() => {
                self.connections.clear();
                self.entries(Some(value))
            }
            (None, Change::Update(value)) if rest.is_empty() => self.entries(Some(value)),
            (None | Some("*"), _) => Err("`port-connection` requires its key `name`".into()),
            (Some(name), change) => self.apply_connection(name, rest, change),
        }
    }

    fn entries(&mut self, value: Option<&Json>) -> Result<(), Wrong> {
        let entries = match value {
            None => &[],
            Some(Json::Array(entries)) => entries.as_slice(),
            Some(entry) => std::slice::from_ref(entry),
        };
        entries.iter().try_for_each(|entry| {
            self.apply_connection(&key_of(entry)?, &[], Change::Update(entry))
        })
    }

    fn apply_connection(
        &mut self,
        name: &str,
        steps: &[PathElem],
        change: Change<'_>,
    ) -> Result<(), Wrong> {
        if name.is_empty() || name.len() > KEY_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(format!(
                "a connection name must have 1 to {KEY_BYTES_MAX} bytes and no control characters"
            ));
        }
        let names: Vec<_> = steps.iter().map(|step| bare(&step.name)).collect();
        let value = match (names.as_slice(), change) {
            ([], Change::Delete) => {
                // Allowed (gNMI specification, 3.4.6).
                self.connections.remove(name);
                return Ok(());
            }
            (["config", leaf @ ("input-port-name" | "output-port-name")], Change::Delete) => {
                if let Some(intent) = self.connections.get_mut(name) {
                    *intent.end(leaf) = None;
                }
                return Ok(());
            }
            (["state", ..], _) => return Err("`state` is read only".into()),
            (_, Change::Delete) => return Err("delete the whole connection by name".into()),
            (_, Change::Replace(value)) => {
                if steps.len() < 2 {
                    self.connections.insert(name.to_owned(), IntendedConnection::default());
                }
                value
            }
            (_, Change::Update(value)) => value,
        };
        let intent = self.connections.entry(name.to_owned()).or_default();
        match names.as_slice() {
            [] => {
                for (member, value) in members(value)? {
                    match member {
                        "name" => same_name(name, value)?,
                        "config" => intent.take(name, value)?,
                        "state" => return Err("`state` is read only".into()),
                        other => return Err(format!("`port-connection` has no `{other}`")),
                    }
                }
                Ok(())
            }
            ["config"] => intent.take(name, value),
            ["config", leaf] => intent.take_leaf(name, leaf, value),
            _ => Err("no value at this path can be set".into()),
        }
    }

    fn apply_components(&mut self, steps: &[PathElem], change: Change<'_>) -> Result<(), Wrong> {
        let [component, rest @ ..] = steps else {
            return Err(
                "the component is missing: use `component[name=…]/ocp-ocs-port/config`".into()
            );
        };
        let name = component.key.get("name").filter(|name| *name != "*");
        let name = name.ok_or("`component` requires its key `name`")?;
        let names: Vec<_> = rest.iter().map(|step| bare(&step.name)).collect();
        let port = self.ports.entry(name.clone()).or_default();
        match (names.as_slice(), change) {
            (["ocp-ocs-port"], Change::Update(value)) => {
                let config = only(value, &["config"])?;
                config.map_or(Ok(()), |value| port.take(value))
            }
            (["ocp-ocs-port", "config"], Change::Update(value)) => port.take(value),
            (["ocp-ocs-port", "config"], Change::Replace(value)) => {
                *port = PortConfig::default();
                port.take(value)
            }
            (["ocp-ocs-port"] | ["ocp-ocs-port", "config"], Change::Delete) => {
                *port = PortConfig::default();
                Ok(())
            }
            (["ocp-ocs-port", "config", leaf], Change::Delete) => port.reset_leaf(leaf),
            (["ocp-ocs-port", "config", leaf], Change::Update(value) | Change::Replace(value)) => {
                port.take_leaf(leaf, value)
            }
            _ => Err("only `ocp-ocs-port/config` of a component can be set".into()),
        }
    }
}

impl IntendedConnection {
    fn end(&mut self, leaf: &str) -> &mut Option<String> {
        if leaf == "input-port-name" { &mut self.input } else { &mut self.output }
    }

    fn take(&mut self, name: &str, value: &Json) -> Result<(), Wrong> {
        members(value)?.try_for_each(|(leaf, value)| self.take_leaf(name, leaf, value))
    }

    fn take_leaf(&mut self, name: &str, leaf: &str, value: &Json) -> Result<(), Wrong> {
        match leaf {
            "name" => same_name(name, value),
            "input-port-name" | "output-port-name" => {
                *self.end(leaf) = Some(string(leaf, value)?.to_owned());
                Ok(())
            }
            other => Err(format!("`port-connection/config` has no `{other}`")),
        }
    }
}

impl PortConfig {
    fn take(&mut self, value: &Json) -> Result<(), Wrong> {
        members(value)?.try_for_each(|(leaf, value)| self.take_leaf(leaf, value))
    }

    fn reset_leaf(&mut self, leaf: &str) -> Result<(), Wrong> {
        match leaf {
            "enabled" => self.enabled = true,
            "alias" => self.alias = None,
            "description" => self.description = None,
            other => return Err(format!("`ocp-ocs-port/config` has no `{other}`")),
        }
        Ok(())
    }

    fn take_leaf(&mut self, leaf: &str, value: &Json) -> Result<(), Wrong> {
        match leaf {
            "enabled" => self.enabled = boolean(leaf, value)?,
            "alias" => self.alias = Some(short(leaf, value)?),
            "description" => self.description = Some(short(leaf, value)?),
            other => return Err(format!("`ocp-ocs-port/config` has no `{other}`")),
        }
        Ok(())
    }
}

pub(crate) fn wrong(path: &Path, why: &str) -> Status {
    Status::invalid_argument(format!("{}: {why}; nothing was changed", text(path)))
}

fn members(value: &Json) -> Result<impl Iterator<Item = (&str, &Json)>, Wrong> {
    let object: &Map<String, Json> =
        value.as_object().ok_or("expected a JSON object with a member for each node")?;
    Ok(object.iter().map(|(name, value)| (bare(name), value)))
}

fn only<'a>(value: &'a Json, names: &[&str]) -> Result<Option<&'a Json>, Wrong> {
    let mut found = None;
    for (name, value) in members(value)? {
        if !names.contains(&name) {
            return Err(format!("`{name}` cannot be set at this path: use {}", names.join(", ")));
        }
        found = Some(value);
    }
    Ok(found)
}

fn key_of(entry: &Json) -> Result<String, Wrong> {
    let mut known = [Some(entry), entry.get("config")].into_iter().flatten();
    let name = known.find_map(|value| value.get("name").and_then(Json::as_str));
    name.map(str::to_owned).ok_or_else(|| "a `port-connection` requires its `name`".into())
}

fn same_name(name: &str, value: &Json) -> Result<(), Wrong> {
    let given = string("name", value)?;
    if given == name {
        return Ok(());
    }
    Err(format!("`config/name` is `{given}`, but the key is `{name}`: they must be equal"))
}

fn string<'a>(leaf: &str, value: &'a Json) -> Result<&'a str, Wrong> {
    value.as_str().ok_or_else(|| format!("`{leaf}` must be text, not {value}"))
}

fn short(leaf: &str, value: &Json) -> Result<String, Wrong> {
    let text = string(leaf, value)?;
    if text.len() > KEY_BYTES_MAX {
        return Err(format!("`{leaf}` must not exceed {KEY_BYTES_MAX} bytes"));
    }
    Ok(text.to_owned())
}

fn boolean(leaf: &str, value: &Json) -> Result<bool, Wrong> {
    value.as_bool().ok_or_else(|| format!("`{leaf}` must be true or false, not {value}"))
}

pub(crate) fn must_fit(config: &SwitchConfig) -> Result<(), Status> {
    if config.connections.len() > CONNECTIONS_MAX {
        let why = format!("more than {CONNECTIONS_MAX} connections; nothing was changed");
        return Err(Status::resource_exhausted(why));
    }
    Ok(())
}
