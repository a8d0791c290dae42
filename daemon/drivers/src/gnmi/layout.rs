// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use super::leaves::Leaf;

#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    numbers: BTreeMap<String, (Side, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

#[derive(Default)]
struct Group {
    direction: String,
    peers: Vec<String>,
    ports: BTreeMap<u64, String>,
}

impl Layout {
    pub(super) fn of(said: &[Leaf], named: Option<&(String, String)>) -> Result<Self, String> {
        let groups = groups(said)?;
        let (input, output) = match named {
            Some((input, output)) => (input.clone(), output.clone()),
            None => (only(&groups, "INPUT-ONLY")?, only(&groups, "OUTPUT-ONLY")?),
        };
        let wanted = [(&input, "OUTPUT-ONLY"), (&output, "INPUT-ONLY")];
        let [first, second] = wanted.map(|(name, not)| match groups.get(name) {
            Some(group) if group.direction == not => Err(format!(
                "its port group `{name}` is {not}: swap `input_group` and `output_group`"
            )),
            Some(group) => Ok(group),
            None => Err(format!("it has no port group `{name}`: it has {}", names(&groups))),
        });
        let (first, second) = (first?, second?);
        if !first.peers.contains(&output) && !second.peers.contains(&input) {
            return Err(format!(
                "its port groups `{input}` and `{output}` cannot be connected to each other"
            ));
        }
        let [inputs, outputs] =
            [first, second].map(|group| group.ports.values().cloned().collect());
        let mut layout = Self { inputs, outputs, numbers: BTreeMap::new() };
        let sides = [(Side::Input, &layout.inputs), (Side::Output, &layout.outputs)];
        for (side, ports) in sides {
            for (number, name) in (1..).zip(ports) {
                if layout.numbers.insert(name.clone(), (side, number)).is_some() {
                    return Err(format!("its port `{name}` is in both groups"));
                }
            }
        }
        Ok(layout)
    }

    pub(super) fn input(&self, slot: u32) -> Option<&str> {
        self.inputs.get(slot.checked_sub(1)? as usize).map(String::as_str)
    }

    pub(super) fn output(&self, position: u32) -> Option<&str> {
        let index = (position as usize).checked_sub(self.inputs.len() + 1)?;
        self.outputs.get(index).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<(Side, u32)> {
        let &(side, number) = self.numbers.get(name)?;
        let before = u32::try_from(self.inputs.len()).ok()?;
        Some((side, if side == Side::Input { number } else { before + number }))
    }

    pub(super) fn pair(&self, a: &str, b: &str) -> Option<(u32, u32)> {
        match (self.number(a)?, self.number(b)?) {
            ((Side::Input, slot), (Side::Output, position))
            | ((Side::Output, position), (Side::Input, slot)) => Some((slot, position)),
            _ => None,
        }
    }
}

fn groups(said: &[Leaf]) -> Result<BTreeMap<String, Group>, String> {
    let mut groups = BTreeMap::<String, Group>::new();
    let mut of_port = BTreeMap::<&str, (Option<&str>, Option<u64>)>::new();
    for (steps, value) in said {
        let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
        match names.as_slice() {
            ["optical-switch", "state", "port-groups", rest @ ..] => {
                let Some(group) = &steps[2].1 else { continue };
                let group = groups.entry(group.clone()).or_default();
                match rest {
                    ["direction"] => {
                        value.as_str().unwrap_or_default().clone_into(&mut group.direction)
                    }
                    ["connection-groups", "peer-name"] => {
                        group.peers.extend(value.as_str().map(str::to_owned));
                    }
                    _ => {}
                }
            }
            ["components", "component", "ocp-ocs-port", "state", "group"] => {
                if let Some(port) = &steps[1].1 {
                    of_port.entry(port).or_default().0 = value.as_str();
                }
            }
            ["components", "component", "ocp-ocs-port", "state", "index"] => {
                if let Some(port) = &steps[1].1 {
                    of_port.entry(port).or_default().1 = value.as_u64();
                }
            }
            _ => {}
        }
    }
    for (port, (group, index)) in of_port {
        let group = group.ok_or_else(|| format!("its port `{port}` does not belong to a group"))?;
        let index = index.ok_or_else(|| format!("its port `{port}` has no index"))?;
        let known = groups.get_mut(group);
        let known = known.ok_or_else(|| {
            format!("its port `{port}` belongs to the group `{group}`, which it does not list")
        })?;
        let ports = &mut known.ports;
        if let Some(other) = ports.insert(index, port.to_owned()) {
            return Err(format!(
                "its ports `{other}` and `{port}` both have the index {index} of `{group}`"
            ));
        }
    }
    groups.iter().try_for_each(|(name, group)| must_be_whole(name, group))?;
    Ok(groups)
}

/// Ports are numbered by their order in the group, so a missing port would shift all later ones.
fn must_be_whole(name: &str, group: &Group) -> Result<(), String> {
    let first = group.ports.keys().next().copied().unwrap_or(1);
    if first <= 1 && (first..).zip(group.ports.keys()).all(|(place, index)| *index == place) {
        return Ok(());
    }
    Err(format!(
        "the port indices in `{name}` are not consecutive from 0 or 1: a port is missing or \
            listed twice"
    ))
}

fn only(groups: &BTreeMap<String, Group>, direction: &str) -> Result<String, String> {
    let mut of = groups.iter().filter(|(_, group)| group.direction == direction);
    match (of.next(), of.next()) {
        (Some((name, _)), None) => Ok(name.clone()),
        _ => Err(format!(
            "expected exactly one port group that is {direction}; help: set the groups of the \
                plan's ports with `input_group` and `output_group` (it has {})",
            names(groups)
        )),
    }
}

fn names(groups: &BTreeMap<String, Group>) -> String {
    let shown = groups.iter().map(|(name, group)| format!("`{name}` {}", group.direction));
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { "none".into() } else { shown.join(", ") }
}
