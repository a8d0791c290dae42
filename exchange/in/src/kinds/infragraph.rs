// SPDX-License-Identifier: Apache-2.0
//! Reads devices, their instances, and edges between slices of instances from InfraGraph files (YAML or JSON).
//!
//! The format is defined by `infragraph.proto` of Keysight/infragraph 3.1 and its service. An endpoint is a
//! Python-style slice (`leaf[0:4]`, `xpu[:]`, no slice for all); instances and components form nested loops.
//! `many2many` connects every pair, and `one2one` connects pairwise. A host contains an `xpu`, directly or in a nested
//! `device`. A switch contains a `switch`, or ports without `nic` and `xpu`, because the central component is a `cpu`
//! in the package's own switches. A switch cabled to a host is a leaf.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat_n;

use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use crate::json::document;
use crate::logs::{HostRecord, HostShape, LogFile, Logs, most_common};
use crate::problem::FILE_SKIPPED;

pub(super) const KIND: LogKind = LogKind {
    name: "InfraGraph",
    from: "an InfraGraph `Infrastructure`, as YAML or JSON",
    is: |text| ["instances", "devices", "edges", "components"].iter().all(|key| text.contains(key)),
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Infrastructure {
    devices: Vec<InfraDevice>,
    links: Vec<Value>,
    instances: Vec<InfraInstance>,
    edges: Vec<InfraEdge>,
}

#[derive(Deserialize)]
struct InfraDevice {
    name: String,
    #[serde(default)]
    components: Vec<InfraComponent>,
}

#[derive(Deserialize)]
struct InfraComponent {
    name: String,
    description: Option<String>,
    count: u32,
    choice: String,
}

#[derive(Deserialize)]
struct InfraInstance {
    name: String,
    device: String,
    count: u32,
}

#[derive(Deserialize)]
struct InfraEdge {
    ep1: InfraEndpoint,
    ep2: InfraEndpoint,
    scheme: String,
    link: Option<String>,
}

#[derive(Deserialize)]
struct InfraEndpoint {
    instance: String,
    component: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InfraRole {
    Host,
    Switch,
    Other,
}

type Place<'i> = (&'i str, u32);

const PAIRS_MAX: usize = 1 << 24;

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let Some(infra) = document::<Infrastructure>(file, logs) else { return };
    let names = InfraNames {
        devices: infra.devices.iter().map(|device| (&*device.name, device)).collect(),
        instances: infra.instances.iter().map(|instance| (&*instance.name, instance)).collect(),
    };
    let cables = match InfraCables::of(&infra, &names) {
        Ok(cables) => cables,
        Err(error) => return logs.problem(file.whole(), error, FILE_SKIPPED),
    };
    if cables.between_hosts > 0 {
        let trouble = format!("{} edges connect hosts directly", cables.between_hosts);
        let still = "these edges are ignored, and high-bandwidth domains are assumed";
        logs.problem(file.whole(), trouble, still);
    }
    let is_leaf: BTreeSet<Place<'_>> = cables.leaves.values().flatten().copied().collect();
    for instance in infra.instances.iter().filter(|one| names.role(&one.name) == InfraRole::Host) {
        let gpus = held(&instance.device, "xpu", &names.devices, 0);
        let product = described(&instance.device, &names.devices, 0);
        let shape = HostShape {
            gpus,
            product: product.clone(),
            bits_per_second: most_common(cables.rates.iter().copied()),
            domain_links: None,
            place: file.whole(),
        };
        logs.shapes.push(shape);
        for index in 0..instance.count {
            let host = (&*instance.name, index);
            let leaf = cables.leaves.get(&host).and_then(|leaves| leaves.first());
            let above = leaf.and_then(|leaf| {
                cables.between.get(leaf)?.iter().find(|switch| !is_leaf.contains(*switch))
            });
            let found = HostRecord {
                switches: leaf.into_iter().chain(above).map(place_name).collect(),
                gpus: Some(gpus),
                product: product.clone(),
                place: Some(file.whole()),
                ..HostRecord::default()
            };
            logs.host(&place_name(&host), found);
        }
    }
}

fn place_name((instance, index): &Place<'_>) -> String {
    format!("{instance}.{index}")
}

struct InfraNames<'i> {
    devices: BTreeMap<&'i str, &'i InfraDevice>,
    instances: BTreeMap<&'i str, &'i InfraInstance>,
}

impl InfraNames<'_> {
    fn role(&self, instance: &str) -> InfraRole {
        let name = instance.split('[').next().unwrap_or_default();
        let device = self.instances.get(name).map_or("", |instance| &*instance.device);
        let [has_xpu, has_switch, has_port, has_nic] =
            ["xpu", "switch", "port", "nic"].map(|kind| held(device, kind, &self.devices, 0) > 0);
        match has_xpu {
            true => InfraRole::Host,
            false if has_switch || has_port && !has_nic => InfraRole::Switch,
            false => InfraRole::Other,
        }
    }
}

#[derive(Default)]
struct InfraCables<'i> {
    leaves: BTreeMap<Place<'i>, BTreeSet<Place<'i>>>,
    between: BTreeMap<Place<'i>, BTreeSet<Place<'i>>>,
    /// Rates of the cables to hosts, in bit/s.
    rates: Vec<u64>,
    between_hosts: usize,
}

impl<'i> InfraCables<'i> {
    fn of(infra: &'i Infrastructure, names: &InfraNames<'i>) -> Result<Self, String> {
        let mut cables = Self::default();
        for edge in &infra.edges {
            let first = places(&edge.ep1, &names.instances, &names.devices)?;
            let second = places(&edge.ep2, &names.instances, &names.devices)?;
            let roles = (names.role(&edge.ep1.instance), names.role(&edge.ep2.instance));
            let is_host = roles.0 == InfraRole::Host || roles.1 == InfraRole::Host;
            let ends = match roles {
                (InfraRole::Host, InfraRole::Host) => {
                    cables.between_hosts += 1;
                    continue;
                }
                (InfraRole::Host | InfraRole::Switch, InfraRole::Switch) => [first, second],
                (InfraRole::Switch, InfraRole::Host) => [second, first],
                _ => continue,
            };
            let count = ends[0].len();
            for (low, high) in pairs(&edge.scheme, ends)? {
                if is_host {
                    cables.leaves.entry(low).or_default().insert(high);
                } else {
                    cables.between.entry(low).or_default().insert(high);
                    cables.between.entry(high).or_default().insert(low);
                }
            }
            if is_host {
                let link =
                    infra.links.iter().find(|link| link["name"].as_str() == edge.link.as_deref());
                let rate = link.and_then(rate);
                cables.rates.extend(rate.into_iter().flat_map(|rate| repeat_n(rate, count)));
            }
        }
        Ok(cables)
    }
}

/// Limits the nesting of devices, because a file may contain a cycle.
const DEPTH_MAX: u32 = 8;

fn held(device: &str, kind: &str, devices: &BTreeMap<&str, &InfraDevice>, depth: u32) -> u32 {
    let Some(found) = devices.get(device).filter(|_| depth < DEPTH_MAX) else { return 0 };
    let counts = found.components.iter().map(|component| {
        let one = match &*component.choice {
            choice if choice == kind => 1,
            "device" => held(&component.name, kind, devices, depth + 1),
            _ => 0,
        };
        component.count.saturating_mul(one)
    });
    counts.fold(0, u32::saturating_add)
}

fn described(device: &str, devices: &BTreeMap<&str, &InfraDevice>, depth: u32) -> Option<String> {
    let found = devices.get(device).filter(|_| depth < DEPTH_MAX)?;
    found.components.iter().find_map(|component| match &*component.choice {
        "xpu" => Some(match &component.description {
            Some(about) => format!("{} {about}", component.name),
            None => component.name.clone(),
        }),
        "device" => described(&component.name, devices, depth + 1),
        _ => None,
    })
}

fn rate(link: &Value) -> Option<u64> {
    let given = [&link["physical"]["bandwidth"], &link["bandwidth"]];
    let units = [("gigabits_per_second", 1.0), ("gigabytes_per_second", 8.0)];
    let gigabits = units.iter().find_map(|(unit, bits)| {
        given.iter().find_map(|given| given[*unit].as_f64()).map(|rate| rate * bits)
    })?;
    (gigabits > 0.0 && gigabits < 1e6).then(|| (gigabits * 1e9).round() as u64)
}

fn pairs<'i>(
    scheme: &str,
    [mut low, mut high]: [Vec<Place<'i>>; 2],
) -> Result<Vec<(Place<'i>, Place<'i>)>, String> {
    if scheme == "one2one" {
        return Ok(low.into_iter().zip(high).collect());
    }
    if scheme != "many2many" {
        return Err(format!("scheme `{scheme}`: only one2one and many2many are supported"));
    }
    low.dedup();
    high.dedup();
    if low.len() * high.len() > PAIRS_MAX {
        return Err(format!("an edge connects {} with {} instances", low.len(), high.len()));
    }
    Ok(low.into_iter().flat_map(|low| high.iter().map(move |high| (low, *high))).collect())
}

fn places<'i>(
    end: &InfraEndpoint,
    instances: &BTreeMap<&'i str, &'i InfraInstance>,
    devices: &BTreeMap<&str, &InfraDevice>,
) -> Result<Vec<Place<'i>>, String> {
    let name = end.instance.split('[').next().unwrap_or_default();
    let (name, instance) =
        instances.get_key_value(name).ok_or_else(|| format!("no instance `{name}`"))?;
    let mut device = &*instance.device;
    let mut components = 1usize;
    for piece in end.component.split('.') {
        let component = piece.split('[').next().unwrap_or_default();
        let found = devices
            .get(device)
            .and_then(|device| device.components.iter().find(|known| known.name == component));
        let found =
            found.ok_or_else(|| format!("device `{device}` has no component `{component}`"))?;
        components = components.saturating_mul(slice(piece, found.count)?.len());
        device = &found.name;
    }
    let indices = slice(&end.instance, instance.count)?;
    if indices.len().saturating_mul(components) > PAIRS_MAX {
        return Err(format!("`{}` has {components} of `{}` each", end.instance, end.component));
    }
    Ok(indices.into_iter().flat_map(|at| repeat_n((*name, at), components)).collect())
}

/// Python semantics: `name[1:5:2]`.
fn slice(text: &str, count: u32) -> Result<Vec<u32>, String> {
    indices(text, count).ok_or_else(|| format!("`{text}` is not a slice of {count}"))
}

fn indices(text: &str, count: u32) -> Option<Vec<u32>> {
    let Some((_, inside)) = text.split_once('[') else { return Some((0..count).collect()) };
    let pieces = inside.strip_suffix(']')?.split(':').map(|piece| match piece.trim() {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    });
    let pieces: Vec<Option<i64>> = pieces.collect::<Option<_>>()?;
    let count = i64::from(count);
    let (from, to, step) = match *pieces {
        [None] => (None, None, None),
        [Some(index)] if (-count..count).contains(&index) => {
            let index = from_start(index, count);
            (Some(index), Some(index + 1), None)
        }
        [from, to] => (from, to, None),
        [from, to, step] => (from, to, step),
        _ => return None,
    };
    let from = from.map_or(0, |from| from_start(from, count));
    let to = to.map_or(count, |to| from_start(to, count));
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
    Some((from..to).step_by(step).map(|index| index as u32).collect())
}

/// Returns the position of an index, which counts from the end if it is negative.
fn from_start(index: i64, count: i64) -> i64 {
    if index < 0 { (index + count).max(0) } else { index.min(count) }
}
