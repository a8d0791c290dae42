// SPDX-License-Identifier: Apache-2.0
//! A plan as a client sends it: a plan with rings is read into its own type as it comes, whatever the order of
//! its keys; any other document is kept as it is, up to a bound.

use std::cell::Cell;
use std::fmt;

use lightloom_fabric::plan::{Circuit, Group, Plan, Rank, Transceiver};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// A plan document.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum PlanDocument {
    /// A plan with rings: paths of the bundles, and where the network has optical switches their circuits.
    Ring(Box<Plan>),
    /// Phases of a reconfigurable fat-tree, or what is no plan at all.
    Other(Value),
}

/// The most values, of any depth, of what is kept as it is: 100,000 circuits in phases.
const VALUES_MAX: usize = 500_000;

/// The long parts of a ring's plan.
#[derive(Default)]
struct Long {
    groups: Option<Vec<Group>>,
    transceivers: Option<Vec<Transceiver>>,
    circuits: Option<Vec<Circuit>>,
    ranks: Option<Vec<Rank>>,
}

impl<'de> Deserialize<'de> for PlanDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfDocument)
    }
}

struct OfDocument;

impl<'de> Visitor<'de> for OfDocument {
    type Value = PlanDocument;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a plan, the whole document as `lightloom plan` writes it")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PlanDocument, A::Error> {
        let (mut long, mut short) = (Long::default(), Map::new());
        let left = Cell::new(VALUES_MAX);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "groups" => long.groups = Some(part(&mut map)?),
                "transceivers" => long.transceivers = Some(part(&mut map)?),
                "circuits" => long.circuits = Some(part(&mut map)?),
                "ranks" => long.ranks = Some(part(&mut map)?),
                _ => {
                    let value = map.next_value_seed(Counted(&left))?;
                    short.insert(key, value);
                }
            }
        }
        long.with(short).map_err(A::Error::custom)
    }
}

fn part<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A) -> Result<T, A::Error> {
    map.next_value().map_err(|error| A::Error::custom(format!("no plan: {error}")))
}

impl Long {
    fn is_none(&self) -> bool {
        self.groups.is_none()
            && self.transceivers.is_none()
            && self.circuits.is_none()
            && self.ranks.is_none()
    }

    /// The whole: the short parts are read once more with nothing in the place of the long ones.
    fn with(self, mut short: Map<String, Value>) -> Result<PlanDocument, String> {
        if self.is_none() {
            return Ok(PlanDocument::Other(Value::Object(short)));
        }
        let named = [
            ("groups", self.groups.is_some()),
            ("transceivers", self.transceivers.is_some()),
            ("circuits", self.circuits.is_some()),
            ("ranks", self.ranks.is_some()),
        ];
        for (key, _) in named.into_iter().filter(|(_, there)| *there) {
            short.insert(key.into(), Value::Array(Vec::new()));
        }
        let plan = serde_json::from_value::<Plan>(Value::Object(short));
        let plan = plan.map_err(|error| format!("no plan: {error}"))?;
        Ok(PlanDocument::Ring(Box::new(Plan {
            groups: self.groups.unwrap_or_default(),
            transceivers: self.transceivers.unwrap_or_default(),
            circuits: self.circuits.unwrap_or_default(),
            ranks: self.ranks.unwrap_or_default(),
            ..plan
        })))
    }
}

/// A value of which no more is kept than is left.
#[derive(Clone, Copy)]
struct Counted<'a>(&'a Cell<usize>);

impl Counted<'_> {
    fn one<E: Error>(self, value: Value) -> Result<Value, E> {
        let left = self.0.get().checked_sub(1);
        let too_many = || format!("a plan with phases has at most {VALUES_MAX} values");
        self.0.set(left.ok_or_else(|| E::custom(too_many()))?);
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for Counted<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Counted<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.one(Value::Null)
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.one(Value::Bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.one(value.into())
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.one(value.into())
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.one(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.one(value.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(self)? {
            values.push(value);
        }
        self.one(Value::Array(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(self)?;
            values.insert(key, value);
        }
        self.one(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_fabric::fault::FaultSet;
    use lightloom_planner::khop::{Method, plan, to_document};
    use lightloom_units::seed::Seed;

    const RING: &str = "kind: fabric\nversion: 2\nname: ring\nhbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}\n\
                        jobs:\n  - {name: pretrain, gpus: 48, tp: 16}\n";

    fn made() -> Plan {
        let installed = lightloom_fabric::file::load("ring.yaml", RING.as_bytes()).0.unwrap();
        let layout = plan(&installed, &FaultSet::none(), Method::Scan).unwrap();
        to_document(&installed, &FaultSet::none(), Seed(1), &layout)
    }

    #[test]
    fn the_plan_of_a_ring_is_read_whatever_the_order_of_its_keys() {
        let made = made();
        let as_written = serde_json::to_string(&made).unwrap();
        let by_name = serde_json::to_value(&made).unwrap().to_string();
        assert_ne!(as_written, by_name);
        for text in [as_written, by_name] {
            let read: PlanDocument = serde_json::from_reader(text.as_bytes()).unwrap();
            let PlanDocument::Ring(read) = read else { panic!("it is the plan of a ring") };
            assert_eq!(*read, made);
        }
    }

    #[test]
    fn a_part_that_is_missing_wrong_or_unknown_is_named() {
        let why = |change: &dyn Fn(&mut Value)| {
            let mut document = serde_json::to_value(made()).unwrap();
            change(&mut document);
            serde_json::from_value::<PlanDocument>(document).unwrap_err().to_string()
        };
        let missing = why(&|plan| drop(plan.as_object_mut().unwrap().remove("metrics")));
        assert!(missing.contains("no plan: missing field `metrics`"), "{missing}");
        let wrong = why(&|plan| plan["transceivers"][3]["path"] = "up".into());
        assert!(wrong.starts_with("no plan: ") && wrong.contains("up"), "{wrong}");
        let unknown = why(&|plan| plan["colour"] = "red".into());
        assert!(unknown.contains("no plan: unknown field `colour`"), "{unknown}");
    }

    #[test]
    fn another_document_is_kept_as_it_is_up_to_a_bound() {
        let text = r#"{"phases": [{"name": "a", "circuits": []}], "x": [1, -2, 0.5, null, true]}"#;
        let PlanDocument::Other(read) = serde_json::from_str(text).unwrap() else { panic!() };
        assert_eq!(read, serde_json::from_str::<Value>(text).unwrap());
        let long = format!("{{\"phases\": [{}1]}}", "1,".repeat(VALUES_MAX));
        let why = serde_json::from_str::<PlanDocument>(&long).unwrap_err().to_string();
        assert!(why.contains("at most 500000 values"), "{why}");
    }
}
