// SPDX-License-Identifier: Apache-2.0
//! A plan document from bytes, and what kind of document bytes are.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::{EARLIER_SCHEMA, Plan};

/// Whether these are the bytes of a plan of any version.
#[must_use]
pub fn is_plan(bytes: &[u8]) -> bool {
    schema_of(bytes).is_some_and(|schema| schema.starts_with("lightloom.plan/"))
}

/// The schema that a document names. Nothing behind it is read: a plan of a large fabric has megabytes, and says first what
/// it is.
fn schema_of(bytes: &[u8]) -> Option<String> {
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
    // That the rest is still there is an error of the reader's.
    let _ = serde_json::Deserializer::from_slice(bytes).deserialize_map(Look(&mut schema));
    schema
}

/// Why bytes are no plan that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A plan of version 1.
    #[error(
        "a plan of version 1: `lightloom convert PLAN --fabric FABRIC -o NEW` writes it as version 2"
    )]
    Earlier,
    /// Another kind of file, or a plan with mistakes.
    #[error("not a plan: {0}")]
    Other(#[from] serde_json::Error),
}

/// Reads a plan of this version; whether it is right for a fabric is not looked at.
///
/// # Errors
/// A plan of version 1, or no plan.
pub fn read(bytes: &[u8]) -> Result<Plan, ReadError> {
    if schema_of(bytes).is_some_and(|schema| schema == EARLIER_SCHEMA) {
        return Err(ReadError::Earlier);
    }
    Ok(serde_json::from_slice(bytes)?)
}
