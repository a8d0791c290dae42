// SPDX-License-Identifier: Apache-2.0
//! Streaming deserialization of a plan in a request body. Long lists are parsed directly into their
//! types, whatever the order of keys. All other values are buffered, up to a limit.

use std::cell::Cell;
use std::fmt;

use lightloom_fabric::plan::{Circuit, Group, Plan, Rank, Transceiver};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Number, Value};

#[derive(Clone, Debug)]
pub struct PlanDocument(pub Result<Box<Plan>, String>);

impl Serialize for PlanDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().ok().serialize(serializer)
    }
}

/// Maximum number of buffered JSON values, nested ones included. Phases with 100,000 circuits fit.
const VALUES_MAX: usize = 500_000;

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
        formatter.write_str("a plan: the complete output of `lightloom plan`")
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
    map.next_value().map_err(|error| A::Error::custom(format!("not a plan: {error}")))
}

impl Long {
    fn with(self, mut short: Map<String, Value>) -> Result<PlanDocument, String> {
        if short.contains_key("hbd") || short.contains_key("dcn") {
            let why = "this is a fabric file, not a plan; help: create a plan with `lightloom \
                plan FABRIC -o plan.json`";
            return Ok(PlanDocument(Err(why.into())));
        }
        let named = [
            ("groups", self.groups.is_some()),
            ("transceivers", self.transceivers.is_some()),
            ("circuits", self.circuits.is_some()),
            ("ranks", self.ranks.is_some()),
        ];
        let has_parts = named.iter().any(|(_, there)| *there);
        for (key, _) in named.into_iter().filter(|(_, there)| *there) {
            short.insert(key.into(), Value::Array(Vec::new()));
        }
        let plan = serde_json::from_value::<Plan>(Value::Object(short));
        let plan = match plan.map_err(|error| format!("not a plan: {error}")) {
            Ok(plan) => plan,
            Err(why) if has_parts => return Err(why),
            Err(why) => return Ok(PlanDocument(Err(why))),
        };
        Ok(PlanDocument(Ok(Box::new(Plan {
            groups: self.groups.unwrap_or_default(),
            transceivers: self.transceivers.unwrap_or_default(),
            circuits: self.circuits.unwrap_or_default(),
            ranks: self.ranks.unwrap_or_default(),
            ..plan
        }))))
    }
}

#[derive(Clone, Copy)]
struct Counted<'a>(&'a Cell<usize>);

impl Counted<'_> {
    fn one<E: Error>(self, value: Value) -> Result<Value, E> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| {
            E::custom(format!("a plan with phases may contain at most {VALUES_MAX} values"))
        })?;
        self.0.set(left);
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
    fn reads_a_ring_plan_with_keys_in_any_order() {
        let made = made();
        let as_written = serde_json::to_string(&made).unwrap();
        let by_name = serde_json::to_value(&made).unwrap().to_string();
        assert_ne!(as_written, by_name);
        for text in [as_written, by_name] {
            let read: PlanDocument = serde_json::from_reader(text.as_bytes()).unwrap();
            assert_eq!(*read.0.unwrap(), made);
        }
    }

    #[test]
    fn names_missing_wrong_and_unknown_plan_fields() {
        let why = |change: &dyn Fn(&mut Value)| {
            let mut document = serde_json::to_value(made()).unwrap();
            change(&mut document);
            serde_json::from_value::<PlanDocument>(document).unwrap_err().to_string()
        };
        let missing = why(&|plan| drop(plan.as_object_mut().unwrap().remove("metrics")));
        assert!(missing.contains("not a plan: missing field `metrics`"), "{missing}");
        let wrong = why(&|plan| plan["transceivers"][3]["path"] = "up".into());
        assert!(wrong.starts_with("not a plan:") && wrong.contains("up"), "{wrong}");
        let unknown = why(&|plan| plan["colour"] = "red".into());
        assert!(unknown.contains("not a plan: unknown field `colour`"), "{unknown}");
    }

    #[test]
    fn reads_a_plan_without_groups_and_rejects_an_oversized_one() {
        let mut made = made();
        (made.groups, made.ranks) = (Vec::new(), Vec::new());
        (made.transceivers, made.circuits) = (Vec::new(), Vec::new());
        let text = serde_json::to_string(&made).unwrap();
        let read: PlanDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(*read.0.unwrap(), made);
        let long = format!("{{\"phases\": [{}1]}}", "1,".repeat(VALUES_MAX));
        let why = serde_json::from_str::<PlanDocument>(&long).unwrap_err().to_string();
        assert!(why.contains("at most 500000 values"), "{why}");
    }

    #[test]
    fn rejects_fabric_file_as_plan_and_suggests_the_command() {
        let fabric = serde_json::json!({"name": "r", "dcn": {"reconfigurable_fat_tree": {}}});
        let why = serde_json::from_value::<PlanDocument>(fabric).unwrap().0.unwrap_err();
        assert!(why.contains("fabric file") && why.contains("lightloom plan"), "{why}");
    }
}
