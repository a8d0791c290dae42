// SPDX-License-Identifier: Apache-2.0
//! Parses a profile. Keeps only events that show when operations ran and what waited for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::recorded::{is_time, no_time};

#[derive(Deserialize)]
pub(super) struct Document {
    #[serde(default, rename = "distributedInfo")]
    pub(super) info: Option<Info>,
    #[serde(default, rename = "deviceProperties")]
    pub(super) devices: Vec<ProfiledDevice>,
    #[serde(rename = "traceEvents")]
    pub(super) events: Events,
}

#[derive(Deserialize)]
pub(super) struct Info {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    #[serde(default, rename = "pg_config", deserialize_with = "groups")]
    pub(super) groups: Vec<ConfiguredGroup>,
}

#[derive(Deserialize)]
pub(super) struct ProfiledDevice {
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct ConfiguredGroup {
    #[serde(default, rename = "pg_name")]
    pub(super) name: String,
    #[serde(default, rename = "pg_desc")]
    pub(super) description: String,
    #[serde(default, rename = "pg_size")]
    pub(super) size: u32,
    #[serde(default, deserialize_with = "words")]
    pub(super) ranks: Option<String>,
}

fn groups<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ConfiguredGroup>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

#[derive(Default)]
pub(super) struct Events {
    pub(super) kept: Vec<Event>,
    names: SharedWords,
    threads: SharedWords,
    found: BTreeMap<String, usize>,
}

#[derive(Clone, Copy)]
pub(super) struct MarkedSteps {
    pub(super) thread: u32,
    pub(super) begin: f64,
    pub(super) end: f64,
    pub(super) end_of_first: f64,
    pub(super) count: u32,
}

#[derive(Default)]
struct SharedWords {
    numbers: BTreeMap<Arc<str>, u32>,
    words: Vec<Arc<str>>,
}

impl SharedWords {
    fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let (number, word) = (self.words.len() as u32, Arc::<str>::from(word));
        self.words.push(Arc::clone(&word));
        self.numbers.insert(word, number);
        number
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Kernel,
    Copy,
    Runtime,
    Wait,
    Operator,
    Exchange,
    Call,
    Step,
    Other,
}

/// Events must stay small, because profiles have millions of them.
pub(super) struct Event {
    pub(super) place: u32,
    pub(super) category: Category,
    name: u32,
    pub(super) thread: u32,
    pub(super) ts: f64,
    pub(super) dur: f64,
    pub(super) correlation: Option<u32>,
    pub(super) stream: Option<u32>,
    pub(super) args: Option<Box<Arguments>>,
}

const _: () = assert!(size_of::<Event>() <= 64);

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenEvent {
    ph: String,
    cat: String,
    name: String,
    pid: Value,
    tid: Value,
    ts: f64,
    dur: f64,
    args: Arguments,
}

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
    #[serde(rename = "Process Group Name", deserialize_with = "words")]
    pub(super) group: Option<String>,
    #[serde(rename = "Group size", deserialize_with = "whole")]
    pub(super) group_size: Option<i64>,
    #[serde(rename = "Global rank start", deserialize_with = "whole")]
    pub(super) rank_start: Option<i64>,
    #[serde(rename = "Global rank stride", deserialize_with = "whole")]
    pub(super) rank_stride: Option<i64>,
    #[serde(rename = "In split size", deserialize_with = "words")]
    pub(super) parts_in: Option<String>,
    #[serde(rename = "Src Rank", deserialize_with = "whole")]
    pub(super) from: Option<i64>,
    #[serde(rename = "Dst Rank", deserialize_with = "whole")]
    pub(super) to: Option<i64>,
    #[serde(rename = "Seq", deserialize_with = "whole")]
    pub(super) seq: Option<i64>,
    #[serde(rename = "External id", deserialize_with = "whole")]
    pub(super) external_id: Option<i64>,
    #[serde(deserialize_with = "whole")]
    correlation: Option<i64>,
    #[serde(deserialize_with = "whole")]
    stream: Option<i64>,
    #[serde(deserialize_with = "words")]
    pub(super) cuda_sync_kind: Option<String>,
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
    let value = Value::deserialize(from)?;
    Ok(value.as_i64().or_else(|| value.as_str()?.parse().ok()))
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => Ok(Some(text)),
        // Ranks are a list in some versions and a string in others.
        list @ Value::Array(_) => Ok(Some(list.to_string())),
        _ => Ok(None),
    }
}

impl Event {
    pub(super) fn end(&self) -> f64 {
        self.ts + self.dur
    }

    pub(super) fn is_on_device(&self) -> bool {
        matches!(self.category, Category::Kernel | Category::Copy)
    }
}

impl WrittenEvent {
    fn is_exchange(&self) -> bool {
        self.name.starts_with("gloo:") || self.name == "record_param_comms"
    }

    /// PyTorch capitalized categories in 2020.
    fn category(&self) -> Category {
        match &*self.cat.to_ascii_lowercase() {
            cat if self.name.starts_with("ProfilerStep#") => {
                // Each step marker occurs twice, once for the host and once for the device.
                if cat.starts_with("gpu") { Category::Other } else { Category::Step }
            }
            "kernel" => Category::Kernel,
            "gpu_memcpy" | "gpu_memset" | "memcpy" | "memset" => Category::Copy,
            "cuda_runtime" | "cuda_driver" | "runtime" => Category::Runtime,
            "cuda_sync" => Category::Wait,
            "cpu_op" | "operator" | "user_annotation" if self.is_exchange() => Category::Exchange,
            "cpu_op" | "operator" if self.name.starts_with("c10d::") => Category::Call,
            "cpu_op" | "operator" => Category::Operator,
            _ => Category::Other,
        }
    }
}

impl Events {
    pub(super) fn found(&self) -> String {
        let mut found: Vec<(&String, &usize)> = self.found.iter().collect();
        found.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let found: Vec<String> =
            found.into_iter().map(|(cat, count)| format!("{count} of `{cat}`")).collect();
        if found.is_empty() { "no complete events".to_owned() } else { found.join(", ") }
    }

    pub(super) fn name(&self, event: &Event) -> &str {
        &self.names.words[event.name as usize]
    }

    /// `Stream Wait Event`, `Stream Sync`, `Event Sync` or `Context Sync`.
    pub(super) fn wait_kind<'e>(&'e self, event: &'e Event) -> &'e str {
        let said = event.args.as_ref().and_then(|args| args.cuda_sync_kind.as_deref());
        said.unwrap_or_else(|| self.name(event))
    }

    /// `None` for fewer than two marks: a single one includes unrecorded time.
    pub(super) fn steps(&self) -> Option<MarkedSteps> {
        let marks = self.kept.iter().filter(|event| event.category == Category::Step);
        let begin = marks.clone().map(|mark| mark.ts).fold(f64::MAX, f64::min);
        let last = marks.clone().max_by(|a, b| a.end().total_cmp(&b.end()))?;
        let end_of_first = marks.clone().map(Event::end).fold(f64::MAX, f64::min);
        let count = marks.map(|mark| mark.name).collect::<BTreeSet<u32>>().len() as u32;
        let steps =
            MarkedSteps { thread: last.thread, begin, end: last.end(), end_of_first, count };
        (count > 1).then_some(steps)
    }

    fn add(&mut self, place: u32, event: WrittenEvent) -> Result<(), String> {
        if event.ph != "X" {
            return Ok(());
        }
        match self.found.get_mut(&event.cat) {
            Some(count) => *count += 1,
            None => {
                self.found.insert(event.cat.clone(), 1);
            }
        }
        let category = event.category();
        if category == Category::Other {
            return Ok(());
        }
        if !is_time(event.dur) {
            return Err(format!("traceEvents[{place}] `{}`: {}", event.name, no_time(event.dur)));
        }
        let is_said = matches!(category, Category::Wait | Category::Exchange | Category::Call)
            || event.args.collective.is_some()
            || event.name.starts_with("nccl");
        let stream = event.args.stream.or_else(|| event.tid.as_i64());
        let [correlation, stream] = [event.args.correlation, stream]
            .map(|number| number.and_then(|number| u32::try_from(number).ok()));
        self.kept.push(Event {
            place,
            category,
            name: self.names.number(&event.name),
            thread: self.threads.number(&format!("{}/{}", event.pid, event.tid)),
            ts: event.ts,
            dur: event.dur,
            correlation,
            stream,
            args: is_said.then(|| Box::new(event.args)),
        });
        Ok(())
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

            // Parse one event at a time, so that skipped events take no memory.
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Events, A::Error> {
                let mut events = Events::default();
                let mut place = 0u32;
                while let Some(event) = list.next_element::<WrittenEvent>()? {
                    events.add(place, event).map_err(A::Error::custom)?;
                    place = place.saturating_add(1);
                }
                Ok(events)
            }
        }
        from.deserialize_seq(List)
    }
}
