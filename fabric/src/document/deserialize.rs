// SPDX-License-Identifier: Apache-2.0
//! Deserializes a Rust value from a tree with serde.
//!
//! The tree conforms to the schema, so the remaining errors are constraints of the types
//! themselves. Errors contain the node at which they occurred.

use std::fmt;

use serde::de::{self, DeserializeSeed, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::tree::{Children, Kind, Meaning, View};

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) node: Option<u32>,
}

impl Failure {
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
    #[cold]
    fn misfit(self, expected: &dyn de::Expected) -> Failure {
        let found = match self.meaning() {
            Meaning::Nothing => Unexpected::Unit,
            Meaning::Boolean(value) => Unexpected::Bool(value),
            Meaning::Integer(None) => return too_large().at(self),
            Meaning::Integer(Some(value)) => match (u64::try_from(value), i64::try_from(value)) {
                (Ok(value), _) => Unexpected::Unsigned(value),
                (_, Ok(value)) => Unexpected::Signed(value),
                _ => return too_large().at(self),
            },
            Meaning::Number(value) => Unexpected::Float(value),
            Meaning::Text(text) => Unexpected::Str(text),
            Meaning::Sequence => Unexpected::Seq,
            Meaning::Mapping => Unexpected::Map,
        };
        <Failure as de::Error>::invalid_type(found, expected).at(self)
    }

    fn integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Meaning::Integer(Some(value)) = self.meaning() else {
            return Err(self.misfit(&visitor));
        };
        match (u64::try_from(value), i64::try_from(value)) {
            (Ok(value), _) => visitor.visit_u64(value),
            (_, Ok(value)) => visitor.visit_i64(value),
            _ => Err(too_large()),
        }
        .map_err(|failure: Failure| failure.at(self))
    }

    fn sequence<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.kind() {
            Kind::Sequence => {
                let items = Items { items: self.children() };
                visitor.visit_seq(items).map_err(|failure| failure.at(self))
            }
            _ => Err(self.misfit(&visitor)),
        }
    }

    fn mapping<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.kind() {
            Kind::Mapping => {
                let entries = Entries { entries: self.children(), value: None };
                visitor.visit_map(entries).map_err(|failure| failure.at(self))
            }
            _ => Err(self.misfit(&visitor)),
        }
    }
}

fn too_large() -> Failure {
    de::Error::custom("the number is too large")
}

macro_rules! integers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            self.integer(visitor)
        })*
    };
}

/// Each method handles only the types that its callers accept, which avoids compiling conversions to other types.
impl<'de> de::Deserializer<'de> for View<'de> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.meaning() {
            Meaning::Nothing => visitor.visit_unit(),
            Meaning::Boolean(value) => visitor.visit_bool(value),
            Meaning::Integer(_) => return self.integer(visitor),
            Meaning::Number(value) => visitor.visit_f64(value),
            Meaning::Text(text) => visitor.visit_borrowed_str(text),
            Meaning::Sequence => return self.sequence(visitor),
            Meaning::Mapping => return self.mapping(visitor),
        }
        .map_err(|failure: Failure| failure.at(self))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.meaning() {
            Meaning::Boolean(value) => {
                visitor.visit_bool(value).map_err(|failure: Failure| failure.at(self))
            }
            _ => Err(self.misfit(&visitor)),
        }
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.meaning() {
            Meaning::Integer(Some(value)) => visitor.visit_f64(value as f64),
            Meaning::Number(value) => visitor.visit_f64(value),
            _ => return Err(self.misfit(&visitor)),
        }
        .map_err(|failure: Failure| failure.at(self))
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.kind() {
            Kind::Plain | Kind::Quoted => {
                visitor.visit_borrowed_str(self.text()).map_err(|failure: Failure| failure.at(self))
            }
            _ => Err(self.misfit(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.meaning() {
            Meaning::Nothing => visitor.visit_unit().map_err(|failure: Failure| failure.at(self)),
            _ => Err(self.misfit(&visitor)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
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

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.sequence(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Failure> {
        self.sequence(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.sequence(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.mapping(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.mapping(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let variant = match self.kind() {
            Kind::Plain | Kind::Quoted => Variant { name: self, value: None },
            _ => match self.read_entries().next() {
                Some((name, value)) => Variant { name, value: Some(value) },
                None => return Err(<Failure as de::Error>::custom("a choice is missing").at(self)),
            },
        };
        visitor.visit_enum(variant).map_err(|failure: Failure| failure.at(self))
    }

    forward_to_deserialize_any! { i128 u128 char bytes byte_buf unit_struct }
}

struct Items<'de> {
    items: Children<'de>,
}

impl<'de> Items<'de> {
    fn next(&mut self) -> Option<View<'de>> {
        self.items.find(|item| !item.is_hidden())
    }
}

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = Failure;
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        match self.next() {
            Some(item) => seed.deserialize(item).map(Some),
            None => Ok(None),
        }
    }
}

struct Entries<'de> {
    entries: Children<'de>,
    value: Option<View<'de>>,
}

impl<'de> Entries<'de> {
    fn next(&mut self) -> Option<View<'de>> {
        loop {
            let (key, value) = (self.entries.next()?, self.entries.next()?);
            if !key.is_hidden() {
                self.value = Some(value);
                return Some(key);
            }
        }
    }

    fn value(&mut self) -> View<'de> {
        self.value.take().expect("serde requests a value after its key")
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = Failure;
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        match self.next() {
            Some(key) => seed.deserialize(Name(key)).map(Some),
            None => Ok(None),
        }
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self.value())
    }
}

/// A key, which is text even if it looks like another type.
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
        visitor.visit_enum(Variant { name: self.0, value: None })
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Variant<'de> {
    name: View<'de>,
    value: Option<View<'de>>,
}

impl<'de> Variant<'de> {
    fn value(self) -> Result<View<'de>, Failure> {
        let missing =
            || <Failure as de::Error>::custom("this choice requires a value").at(self.name);
        self.value.ok_or_else(missing)
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = Failure;
    type Variant = Self;
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Failure> {
        Ok((seed.deserialize(Name(self.name))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'de> {
    type Error = Failure;
    fn unit_variant(self) -> Result<(), Failure> {
        match self.value {
            Some(value) if !matches!(value.meaning(), Meaning::Nothing) => {
                Err(<Failure as de::Error>::custom("this choice takes no value").at(value))
            }
            _ => Ok(()),
        }
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self.value()?)
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Failure> {
        self.value()?.sequence(visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.value()?.mapping(visitor)
    }
}
