// SPDX-License-Identifier: Apache-2.0
//! The JSON of a profile: of its events only those are kept that say when something ran, or what waited for it.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A file.
#[derive(Deserialize)]
pub(super) struct Document {
    #[serde(rename = "distributedInfo")]
    pub(super) info: Option<Info>,
    #[serde(rename = "traceEvents")]
    pub(super) events: Events,
}

/// Whose it is.
#[derive(Deserialize)]
pub(super) struct Info {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
}

/// The events that are kept, and how many of each category there are.
#[derive(Default)]
pub(super) struct Events {
    pub(super) kept: Vec<Event>,
    found: BTreeMap<String, usize>,
}

/// What an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Category {
    /// A kernel, copy or set on a device.
    Device,
    /// A call of the host into the driver.
    Runtime,
    /// A wait of a stream or of the host.
    Wait,
    /// An operator on the host.
    Operator,
    /// A collective of a process group on the host.
    Exchange,
    #[default]
    Other,
}

/// One event.
#[derive(Deserialize)]
pub(super) struct Event {
    /// Its place in the file.
    #[serde(skip)]
    pub(super) place: usize,
    #[serde(skip)]
    pub(super) category: Category,
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) pid: Value,
    #[serde(default)]
    pub(super) tid: Value,
    /// Microseconds.
    #[serde(default)]
    pub(super) ts: f64,
    #[serde(default)]
    pub(super) dur: f64,
    #[serde(default)]
    pub(super) args: Arguments,
}

/// The arguments that are read. One of another type counts as absent.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Arguments {
    #[serde(rename = "Collective name", deserialize_with = "words")]
    pub(super) collective: Option<String>,
    #[serde(rename = "In msg nelems", deserialize_with = "whole")]
    pub(super) elements_in: Option<i64>,
    #[serde(rename = "Out msg nelems", deserialize_with = "whole")]
    pub(super) elements_out: Option<i64>,
    #[serde(deserialize_with = "words")]
    pub(super) dtype: Option<String>,
    #[serde(rename = "Process Group Ranks", deserialize_with = "words")]
    pub(super) ranks: Option<String>,
    #[serde(rename = "Seq", deserialize_with = "whole")]
    pub(super) seq: Option<i64>,
    #[serde(rename = "External id", deserialize_with = "whole")]
    pub(super) external_id: Option<i64>,
    #[serde(deserialize_with = "whole")]
    pub(super) correlation: Option<i64>,
    #[serde(deserialize_with = "whole")]
    pub(super) stream: Option<i64>,
    #[serde(deserialize_with = "words")]
    cuda_sync_kind: Option<String>,
    #[serde(deserialize_with = "whole")]
    pub(super) wait_on_stream: Option<i64>,
    #[serde(rename = "wait_on_cuda_event_record_corr_id", deserialize_with = "whole")]
    pub(super) wait_on_record: Option<i64>,
    #[serde(rename = "Input Dims")]
    pub(super) dimensions: Value,
    #[serde(rename = "Input type")]
    pub(super) types: Value,
}

fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    Ok(Value::deserialize(from)?.as_i64())
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => Ok(Some(text)),
        // Ranks are a list in some versions, and its text in others.
        list @ Value::Array(_) => Ok(Some(list.to_string())),
        _ => Ok(None),
    }
}

impl Event {
    pub(super) fn end(&self) -> f64 {
        self.ts + self.dur
    }

    /// The kind of a wait: `Stream Wait Event`, `Stream Sync`, `Event Sync` or `Context Sync`.
    pub(super) fn wait_kind(&self) -> &str {
        self.args.cuda_sync_kind.as_deref().unwrap_or(&self.name)
    }

    /// The categories of 2020 are written with a capital letter.
    fn category_of(&self) -> Category {
        let is_exchange = self.name.starts_with("gloo:") || self.name == "record_param_comms";
        match &*self.cat.to_ascii_lowercase() {
            "kernel" | "gpu_memcpy" | "gpu_memset" | "memcpy" | "memset" => Category::Device,
            "cuda_runtime" | "cuda_driver" | "runtime" => Category::Runtime,
            "cuda_sync" => Category::Wait,
            "cpu_op" | "operator" | "user_annotation" if is_exchange => Category::Exchange,
            "cpu_op" | "operator" => Category::Operator,
            _ => Category::Other,
        }
    }
}

impl Events {
    /// The categories of the complete events, most first, for messages.
    pub(super) fn found(&self) -> String {
        let mut found: Vec<(&String, &usize)> = self.found.iter().collect();
        found.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let found: Vec<String> =
            found.into_iter().map(|(cat, count)| format!("{count} of `{cat}`")).collect();
        if found.is_empty() { "no complete events at all".to_owned() } else { found.join(", ") }
    }

    fn add(&mut self, place: usize, mut event: Event) {
        if event.ph != "X" {
            return;
        }
        match self.found.get_mut(&event.cat) {
            Some(count) => *count += 1,
            None => {
                self.found.insert(event.cat.clone(), 1);
            }
        }
        event.category = event.category_of();
        event.place = place;
        if event.category != Category::Exchange {
            event.args.dimensions = Value::Null;
            event.args.types = Value::Null;
        }
        if event.category != Category::Other && event.ts.is_finite() && event.dur >= 0.0 {
            self.kept.push(event);
        }
    }
}

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Events;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of events")
            }

            // One event at a time, so that what is passed over takes no memory.
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Events, A::Error> {
                let mut events = Events::default();
                let mut place = 0;
                while let Some(event) = list.next_element::<Event>()? {
                    events.add(place, event);
                    place += 1;
                }
                Ok(events)
            }
        }
        from.deserialize_seq(List)
    }
}
