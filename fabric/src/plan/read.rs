// SPDX-License-Identifier: Apache-2.0
//! Reads plan documents and recognises them among other files.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::Plan;

/// Returns whether the bytes are a plan of any version.
pub fn is_plan(bytes: &[u8]) -> bool {
    schema_of(bytes).is_some_and(|schema| schema.starts_with("lightloom.plan/"))
}

/// Returns the schema of a document, without reading the rest, which may be megabytes.
pub fn schema_of(bytes: &[u8]) -> Option<String> {
    struct Look<'a>(&'a mut Option<String>);
    impl<'de> Visitor<'de> for Look<'_> {
        type Value = ();

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a document with a schema")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut keys: A) -> Result<(), A::Error> {
            while let Some(key) = keys.next_key::<Cow<'de, str>>()? {
                if key == "schema" {
                    *self.0 = Some(keys.next_value()?);
                    break;
                }
                keys.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let mut schema = None;
    // Stopping early makes the parser report trailing data.
    let _ = serde_json::Deserializer::from_slice(bytes).deserialize_map(Look(&mut schema));
    schema
}

/// Reads a plan without checking it; the planner's checker verifies plans against a fabric.
pub fn read(bytes: &[u8]) -> Result<Plan, serde_json::Error> {
    serde_json::from_slice(bytes)
}
