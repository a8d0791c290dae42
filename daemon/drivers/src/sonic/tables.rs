// SPDX-License-Identifier: Apache-2.0
//! Converts the tables of a SONiC optical switch to positions.
//!
//! ```text
//!   CONFIG_DB  OCS_CROSS_CONNECT|1A-2B        requested state    OCS_PORT|1A  state
//!   STATE_DB   OCS_CROSS_CONNECT|1A-2B        a_side_status, b_side_status (design 0.5)
//!              OCS_CROSS_CONNECT_TABLE|1A-2B  status, and OCS_PORT_TABLE|1A oper_status (image of July 2026)
//! ```
//!
//! An agent on the switch applies CONFIG_DB with a delay. Positions come from CONFIG_DB, where
//! circuits must be removed. A circuit is tuning until STATE_DB matches and both sides are tuned.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::state::{Observation, Position, Positions, Shut, Slot};

use super::Reply;

pub(super) const READ: &str = "\
local rows = {} \
local function put(kind, name, words) \
  local row = {kind, name} \
  for i = 1, #words do row[#row + 1] = words[i] or '-' end \
  rows[#rows + 1] = row \
end \
local function each(kind, table, ...) \
  for _, key in ipairs(redis.call('KEYS', table .. '|*')) do \
    put(kind, string.sub(key, #table + 2), redis.call('HMGET', key, ...)) \
  end \
end \
redis.call('SELECT', '4') \
each('M', 'DEVICE_METADATA', 'switch_type') \
each('P', 'OCS_PORT', 'state', 'config_status') \
each('C', 'OCS_CROSS_CONNECT', 'a_side') \
redis.call('SELECT', '6') \
each('S', 'OCS_CROSS_CONNECT', 'a_side_status', 'b_side_status') \
each('S', 'OCS_CROSS_CONNECT_TABLE', 'status') \
each('O', 'OCS_PORT_TABLE', 'oper_status') \
return rows";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Port names such as `1-1`, `1-2`, `2-1` in numerical order, for ports 1, 2, 3, …; empty if names are numbers.
    slotted: Vec<String>,
}

impl Names {
    fn of(ports: &BTreeMap<String, String>) -> Self {
        let mut found = BTreeSet::new();
        for port in ports.keys() {
            let number = port.strip_suffix(['A', 'B']).and_then(|port| port.split_once('-'));
            let number = number.and_then(|(module, port)| {
                Some((module.parse::<u32>().ok()?, port.parse::<u32>().ok()?))
            });
            found.extend(number);
        }
        Self { slotted: found.into_iter().map(|(m, p)| format!("{m}-{p}")).collect() }
    }

    fn number(&self, name: &str) -> Option<u32> {
        if !name.contains('-') {
            return name.parse().ok().filter(|number| *number > 0);
        }
        let index = self.slotted.iter().position(|known| known == name)?;
        u32::try_from(index + 1).ok()
    }

    pub(super) fn name(&self, number: u32) -> String {
        let index = (number as usize).wrapping_sub(1);
        self.slotted.get(index).cloned().unwrap_or_else(|| number.to_string())
    }

    pub(super) fn circuit(&self, key: &str) -> Option<(Slot, Position)> {
        let (a, b) = key.split_once("A-")?;
        Some((Slot(self.number(a)?), Position(self.number(b.strip_suffix('B')?)?)))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) names: Names,
    switch_type: String,
    shut: BTreeMap<String, String>,
    asked: Positions,
    lit: BTreeMap<(Slot, Position), Health>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Health {
    Tuned,
    Tuning,
    Failed,
}

impl Health {
    fn of<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut health = Self::Tuned;
        for word in words {
            match word {
                "tuned" | "enabled" | "-" => {}
                "failed" | "invalid" | "blocked" | "disabled" => {
                    return Self::Failed;
                }
                _ => health = Self::Tuning,
            }
        }
        health
    }
}

impl Tables {
    pub(super) fn read(reply: &Reply) -> Result<Self, String> {
        let rows = Rows::of(reply).ok_or("the tables were not returned as rows")?;
        let ports: BTreeMap<String, String> = rows
            .of_kind('P')
            .map(|(name, words)| (name, words.into_iter().find(|w| w != "-").unwrap_or_default()))
            .collect();
        let port_health: BTreeMap<String, String> =
            rows.of_kind('O').map(|(name, words)| (name, words.concat())).collect();
        let mut tables = Self { names: Names::of(&ports), ..Self::default() };
        tables.switch_type =
            rows.of_kind('M').flat_map(|(_, words)| words).find(|w| w != "-").unwrap_or_default();
        tables.shut = ports.into_iter().filter(|(_, s)| !matches!(&**s, "" | "normal")).collect();
        let mut held = BTreeSet::new();
        for (key, _) in rows.of_kind('C') {
            let (slot, position) = tables.circuit(&key)?;
            if tables.asked.insert(slot, position).is_some() || !held.insert(position) {
                return Err(format!(
                    "`OCS_CROSS_CONNECT|{key}` in CONFIG_DB uses a port of another circuit: \
                        delete one of them"
                ));
            }
        }
        for (key, mut words) in rows.of_kind('S') {
            let circuit = tables.circuit(&key)?;
            if let Some((a, b)) = key.split_once("A-").filter(|_| words.len() == 1) {
                let sides = [format!("{a}A"), b.to_owned()];
                words.extend(sides.iter().filter_map(|name| port_health.get(name).cloned()));
            }
            tables.lit.insert(circuit, Health::of(words.iter().map(String::as_str)));
        }
        Ok(tables)
    }

    fn circuit(&self, key: &str) -> Result<(Slot, Position), String> {
        self.names.circuit(key).ok_or_else(|| {
            format!(
                "`OCS_CROSS_CONNECT|{key}` has unknown ports; help: expected names such as `1A`, \
                    or `1-1A` as in OCS_PORT"
            )
        })
    }

    pub(super) fn observation(&self) -> Observation {
        let mut seen = Observation { positions: self.asked.clone(), ..Observation::default() };
        let mut failed = Vec::new();
        for (&slot, &position) in &self.asked {
            match self.lit.get(&(slot, position)) {
                Some(Health::Tuned) => {}
                Some(Health::Failed) => failed.push((slot, Shut::Failed)),
                Some(Health::Tuning) | None => {
                    seen.tuning.insert(slot);
                }
            }
        }
        seen.shut = failed.into();
        for &(slot, position) in self.lit.keys() {
            if self.asked.get(&slot) == Some(&position) {
                continue;
            }
            // A circuit that is no longer requested stays lit until STATE_DB has no row for it.
            seen.tuning.insert(slot);
            if !seen.positions.values().any(|held| *held == position) {
                seen.positions.entry(slot).or_insert(position);
            }
        }
        seen
    }

    pub(super) fn refusal(&self, want: &Positions) -> Option<String> {
        if !matches!(&*self.switch_type, "" | "ocs") {
            return Some(format!(
                "this SONiC reports `switch_type: {}`, not `ocs`: connect the optical switch",
                self.switch_type
            ));
        }
        let lit = want.iter().filter(|(_, to)| !to.is_dark());
        let mut ports = lit.flat_map(|(slot, to)| {
            [format!("{}A", self.names.name(slot.0)), format!("{}B", self.names.name(to.0))]
        });
        ports.find_map(|port| {
            let state = self.shut.get(&port)?;
            Some(format!(
                "port {port} is `{state}` (OCS_PORT in CONFIG_DB): set it to `normal`, or plan without it"
            ))
        })
    }
}

struct Rows(Vec<(char, String, Vec<String>)>);

impl Rows {
    fn of_kind(&self, kind: char) -> impl Iterator<Item = (String, Vec<String>)> {
        let rows = self.0.iter().filter(move |row| row.0 == kind);
        rows.map(|(_, name, words)| (name.clone(), words.clone()))
    }

    fn of(reply: &Reply) -> Option<Self> {
        let Reply::Array(rows) = reply else { return None };
        let rows = rows.iter().map(|row| {
            let Reply::Array(words) = row else { return None };
            let mut words = words.iter().map(|word| match word {
                Reply::Text(word) => Some(word.clone()),
                _ => None,
            });
            let (kind, name) = (words.next()??.chars().next()?, words.next()??);
            Some((kind, name, words.collect::<Option<Vec<String>>>()?))
        });
        Some(Self(rows.collect::<Option<_>>()?))
    }
}
