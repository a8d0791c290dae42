// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::LinkSpec;
use lightloom_fabric::document::Check;
use lightloom_units::{BitsPerSecond, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::codes;
use super::links::{LinksFile, possible_delay, possible_rate};
use crate::scenario::fault::is_plain_name;
use crate::substrate::CableGraph;

/// An arbitrary graph.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// Names of hosts.
    #[schemars(length(min = 2))]
    pub hosts: Vec<String>,
    /// Names of switches.
    #[serde(default)]
    pub switches: Vec<String>,
    /// Cables.
    #[schemars(length(min = 1))]
    pub cables: Vec<CableFile>,
}

/// A cable of a graph.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CableFile {
    /// Names of both ends.
    pub ends: [String; 2],
    /// Rate; defaults to the rate in `links`.
    #[serde(default)]
    pub rate: Option<Text<BitsPerSecond>>,
    /// Propagation delay; defaults to the delay in `links`.
    #[serde(default)]
    pub delay: Option<Text<Picoseconds>>,
}

pub(super) fn lower(raw: &GraphFile, links: &LinksFile, check: &mut Check<'_>) -> CableGraph {
    let names: Vec<&String> = raw.hosts.iter().chain(&raw.switches).collect();
    check_names(raw, &names, check);
    let mut cables = Vec::new();
    let mut cabled = vec![false; names.len()];
    for (index, cable) in raw.cables.iter().enumerate() {
        let own = format!("/on/graph/cables/{index}");
        let ends = [0, 1].map(|end| place_of(&cable.ends[end], &names, &own, end, check));
        ends.iter().flatten().for_each(|end| cabled[*end] = true);
        let [Some(from), Some(to)] = ends else { continue };
        if from == to {
            let path = format!("{own}/ends");
            check.error(codes::BAD_NETWORK, &path, "the cable connects a part to itself");
            continue;
        }
        let rate = cable.rate.map_or(links.rate, |rate| possible_rate(rate, &own, "rate", check));
        let delay =
            cable.delay.map_or(links.delay, |delay| possible_delay(delay, &own, "delay", check));
        cables.push((from, to, LinkSpec::new(rate.0, delay.0)));
    }
    for (place, name) in raw.hosts.iter().enumerate().filter(|(place, _)| !cabled[*place]) {
        let path = format!("/on/graph/hosts/{place}");
        check.error(codes::BAD_NETWORK, &path, format!("`{name}` has no cable"));
    }
    let (hosts, switches) = (raw.hosts.clone(), raw.switches.clone());
    CableGraph { hosts, switches, cables, circuits: Vec::new() }
}

fn check_names(raw: &GraphFile, names: &[&String], check: &mut Check<'_>) {
    for (place, name) in names.iter().enumerate() {
        let path = match place.checked_sub(raw.hosts.len()) {
            None => format!("/on/graph/hosts/{place}"),
            Some(place) => format!("/on/graph/switches/{place}"),
        };
        if !is_plain_name(name) {
            check
                .error(codes::BAD_NETWORK, &path, format!("`{name}` is not a valid name"))
                .help("use only letters, digits, `_` and `.`");
        }
        if names[..place].contains(name) {
            check.error(codes::BAD_NETWORK, &path, format!("`{name}` already exists"));
        }
    }
}

fn place_of(
    name: &str,
    names: &[&String],
    own: &str,
    end: usize,
    check: &mut Check<'_>,
) -> Option<usize> {
    let place = names.iter().position(|known| *known == name);
    if place.is_none() {
        let message = format!("unknown host or switch `{name}`");
        check.error(codes::BAD_NETWORK, &format!("{own}/ends/{end}"), message);
    }
    place
}
