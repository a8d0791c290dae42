// SPDX-License-Identifier: Apache-2.0

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{
    DeserializeSeed, EnumAccess, Error, IntoDeserializer, MapAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

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
                        on = Some(OnFile::deserialize(Keyed { key, keys: &mut keys })?);
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

struct Keyed<'a, A> {
    key: String,
    keys: &'a mut A,
}

impl<'de, A: MapAccess<'de>> Deserializer<'de> for Keyed<'_, A> {
    type Error = A::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, 'a, A: MapAccess<'de>> EnumAccess<'de> for Keyed<'a, A> {
    type Error = A::Error;
    type Variant = Value<'a, A>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), A::Error> {
        Ok((seed.deserialize(self.key.into_deserializer())?, Value(self.keys)))
    }
}

struct Value<'a, A>(&'a mut A);

impl<'de, A: MapAccess<'de>> VariantAccess<'de> for Value<'_, A> {
    type Error = A::Error;

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(seed)
    }

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.next_value()
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, A::Error> {
        Err(A::Error::custom("a network cannot be a list"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, A::Error> {
        Err(A::Error::custom("every network has its own description"))
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
