// SPDX-License-Identifier: Apache-2.0
//! Reads a Rust value from a tree with serde.
//!
//! The tree already has the shape of its kind, so what fails here is what only the type itself can
//! know. The error carries the node at which it happened.

use std::fmt;

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::tree::{Kind, Meaning, View};

/// Why a value could not be read, and at which node.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) node: Option<u32>,
}

impl Failure {
    /// The innermost node wins.
    fn at(mut self, node: View<'_>) -> Self {
        self.node.get_or_insert(node.index);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Self { message: message.to_string(), node: None }
    }
}

impl<'de> View<'de> {
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.meaning() {
            Meaning::Nothing => visitor.visit_unit(),
            Meaning::Boolean(value) => visitor.visit_bool(value),
            Meaning::Integer(Some(value)) => visit_integer(value, visitor),
            Meaning::Integer(None) => Err(de::Error::custom("the number is too large")),
            Meaning::Number(value) => visitor.visit_f64(value),
            Meaning::Text(text) => visitor.visit_borrowed_str(text),
            Meaning::Sequence => visitor.visit_seq(Items { items: self.items() }),
            Meaning::Mapping => {
                visitor.visit_map(Entries { entries: self.read_entries(), value: None })
            }
        }
    }
}

fn visit_integer<'de, V: Visitor<'de>>(value: i128, visitor: V) -> Result<V::Value, Failure> {
    if let Ok(value) = u64::try_from(value) {
        return visitor.visit_u64(value);
    }
    if let Ok(value) = i64::try_from(value) {
        return visitor.visit_i64(value);
    }
    visitor.visit_i128(value)
}

impl<'de> de::Deserializer<'de> for View<'de> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.any(visitor).map_err(|failure| failure.at(self))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.kind() {
            Kind::Plain | Kind::Quoted => {
                visitor.visit_borrowed_str(self.text()).map_err(|failure: Failure| failure.at(self))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.meaning() {
            Meaning::Integer(Some(value)) => visitor.visit_f64(value as f64),
            _ => self.any(visitor),
        }
        .map_err(|failure| failure.at(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.meaning() {
            Meaning::Nothing => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
        .map_err(|failure: Failure| failure.at(self))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self).map_err(|failure: Failure| failure.at(self))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let outcome = match self.kind() {
            Kind::Plain | Kind::Quoted => visitor.visit_enum(self.text().into_deserializer()),
            _ => match self.read_entries().next() {
                Some((key, value)) => visitor.visit_enum(Variant { key, value }),
                None => Err(de::Error::custom("a choice is missing")),
            },
        };
        outcome.map_err(|failure: Failure| failure.at(self))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct ignored_any
    }
}

struct Items<I> {
    items: I,
}

impl<'de, I: Iterator<Item = View<'de>>> de::SeqAccess<'de> for Items<I> {
    type Error = Failure;
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        self.items.next().map(|item| seed.deserialize(item)).transpose()
    }
}

struct Entries<'de, I> {
    entries: I,
    value: Option<View<'de>>,
}

impl<'de, I> de::MapAccess<'de> for Entries<'de, I>
where
    I: Iterator<Item = (View<'de>, View<'de>)>,
{
    type Error = Failure;
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(Name(key)).map(Some)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failure> {
        let value = self.value.take().expect("serde asks for a value after its key");
        seed.deserialize(value)
    }
}

/// A key: always text, whatever it looks like.
struct Name<'de>(View<'de>);

impl<'de> de::Deserializer<'de> for Name<'de> {
    type Error = Failure;
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_borrowed_str(self.0.name()).map_err(|failure: Failure| failure.at(self.0))
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_enum(self.0.name().into_deserializer())
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Variant<'de> {
    key: View<'de>,
    value: View<'de>,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = Failure;
    type Variant = View<'de>;
    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, View<'de>), Failure> {
        Ok((seed.deserialize(Name(self.key))?, self.value))
    }
}

impl<'de> de::VariantAccess<'de> for View<'de> {
    type Error = Failure;
    fn unit_variant(self) -> Result<(), Failure> {
        match self.meaning() {
            Meaning::Nothing => Ok(()),
            _ => Err(<Failure as de::Error>::custom("this choice takes no value").at(self)),
        }
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Failure> {
        de::Deserializer::deserialize_any(self, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        de::Deserializer::deserialize_any(self, visitor)
    }
}
