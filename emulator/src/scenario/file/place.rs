// SPDX-License-Identifier: Apache-2.0

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::network::OnFile;

/// Network of a scenario and, for a fabric, optionally the active plan.
#[derive(Clone, Debug)]
pub struct PlaceFile {
    /// Fabric or network.
    pub on: OnFile,
    /// Plan file, relative to this file.
    pub plan: Option<String>,
}

impl<'de> Deserialize<'de> for PlaceFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = PlaceFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fabric, with or without a plan, or a network")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut keys: A) -> Result<PlaceFile, A::Error> {
                let (mut on, mut plan) = (None, None);
                while let Some(key) = keys.next_key::<String>()? {
                    if key == "plan" {
                        plan = Some(keys.next_value()?);
                    } else if on.is_none() {
                        let network = Keyed { key: Some(key), keys: &mut keys };
                        on = Some(OnFile::deserialize(MapAccessDeserializer::new(network))?);
                    } else {
                        return Err(A::Error::custom("two networks are specified: leave one out"));
                    }
                }
                let on = on.ok_or_else(|| A::Error::missing_field("fabric"))?;
                Ok(PlaceFile { on, plan })
            }
        }
        from.deserialize_map(Keys)
    }
}

/// A map whose first key has been read.
struct Keyed<'a, A> {
    key: Option<String>,
    keys: &'a mut A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Keyed<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.key.take().map(|key| seed.deserialize(key.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.keys.next_value_seed(seed)
    }
}

impl JsonSchema for PlaceFile {
    fn schema_name() -> Cow<'static, str> {
        OnFile::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = OnFile::json_schema(generator);
        let shapes = schema.get_mut("oneOf").and_then(|shapes| shapes.as_array_mut());
        let fabric = shapes.and_then(|shapes| {
            shapes.iter_mut().find(|shape| shape["properties"].get("fabric").is_some())
        });
        if let Some(fabric) = fabric {
            fabric["properties"]["plan"] = json_schema!({
                "description": "File with the plan in force, relative to this file [default: a \
                 new plan].",
                "type": "string"
            })
            .to_value();
        }
        schema
    }
}
