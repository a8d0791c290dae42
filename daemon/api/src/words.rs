// SPDX-License-Identifier: Apache-2.0
//! State enums, kebab-case on the wire.

/// Defines an enum of states. Unknown states from other versions of the daemon are kept verbatim,
/// so that a client can show them instead of failing.
macro_rules! words {
    (
        #[doc = $about:literal]
        $name:ident { $(#[doc = $doc:literal] $word:ident,)+ }
    ) => {
        #[doc = $about]
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $(#[doc = $doc] $word,)+
            /// A state of another version of the daemon; empty if none was sent.
            #[serde(untagged)]
            Other(String),
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, formatter)
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some($about.trim()))
                    .enum_values(Some([$(Self::$word.to_string()),+]))
                    .into()
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}

pub(crate) use words;
