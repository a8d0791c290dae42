// SPDX-License-Identifier: Apache-2.0
//! Reads JSON or YAML documents, and JSON records with line numbers from an array, an object with a list, or consecutive objects.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::logs::{LogFile, Logs};
use super::problem::{FILE_SKIPPED, RECORD_SKIPPED};

#[derive(Clone, Debug)]
pub(crate) struct JsonRecord<'f> {
    pub(crate) line: usize,
    pub(crate) text: Cow<'f, str>,
}

#[derive(Deserialize)]
struct JsonListing<'f> {
    #[serde(borrow, alias = "events", alias = "jobs", alias = "instances")]
    items: Vec<&'f RawValue>,
}

/// After a line that is not JSON, reading continues at the next line that starts a record.
pub(crate) fn records<'f>(file: &LogFile<'f>, logs: &mut Logs) -> Vec<JsonRecord<'f>> {
    let mut found = Vec::new();
    let mut lines = LineCounter { bytes: file.bytes, at: 0, line: 1 };
    let mut at = 0;
    loop {
        let mut values =
            serde_json::Deserializer::from_slice(&file.bytes[at..]).into_iter::<&RawValue>();
        let mut good = at;
        let error = loop {
            match values.next() {
                None => return found,
                Some(Ok(value)) => listed(value.get(), &mut lines, &mut found),
                Some(Err(error)) => break error,
            }
            good = at + values.byte_offset();
        };
        let broken = file.bytes[good..].trim_ascii_start();
        let length = broken.iter().position(|byte| *byte == b'\n').unwrap_or(broken.len());
        let (line, rest) = broken.split_at(length);
        let start = file.bytes.len() - broken.len();
        let number = lines.line_at(start);
        let goes_on = rest.trim_ascii_start().starts_with(b"{");
        match with_nulls(line) {
            Some(text) => found.push(JsonRecord { line: number, text: Cow::Owned(text) }),
            None if goes_on => {
                logs.problem(file.line(number), format!("not JSON: {error}"), RECORD_SKIPPED);
            }
            None => {
                let trouble = format!("not JSON from here on: {error}");
                let before = file.bytes[at..start].iter().filter(|byte| **byte == b'\n').count();
                let line = number + error.line().saturating_sub(1 + before);
                logs.problem(file.line(line), trouble, RECORD_SKIPPED);
                return found;
            }
        }
        at = file.bytes.len() - rest.len();
    }
}

/// Replaces `inf` and `nan`, C's results of division by zero, with `null`. `None` if the line still is not JSON.
fn with_nulls(line: &[u8]) -> Option<String> {
    let mut text = std::str::from_utf8(line).ok()?.to_owned();
    for number in ["-inf", "inf", "-nan", "nan"] {
        text =
            text.replace(&format!(":{number}"), ":null").replace(&format!(": {number}"), ": null");
    }
    serde_json::from_str::<&RawValue>(&text).is_ok().then_some(text)
}

fn listed<'f>(value: &'f str, lines: &mut LineCounter<'f>, found: &mut Vec<JsonRecord<'f>>) {
    let items = if value.starts_with('[') {
        serde_json::from_str::<Vec<&RawValue>>(value).ok()
    } else {
        serde_json::from_str::<JsonListing<'_>>(value).ok().map(|listing| listing.items)
    };
    match items {
        Some(items) => found.extend(items.into_iter().map(|item| lines.record(item.get()))),
        None => found.push(lines.record(value)),
    }
}

struct LineCounter<'f> {
    bytes: &'f [u8],
    at: usize,
    line: usize,
}

impl<'f> LineCounter<'f> {
    fn record(&mut self, text: &'f str) -> JsonRecord<'f> {
        let line = self.line_at(text.as_ptr() as usize - self.bytes.as_ptr() as usize);
        JsonRecord { line, text: Cow::Borrowed(text) }
    }

    fn line_at(&mut self, offset: usize) -> usize {
        let between = self.bytes.get(self.at..offset).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count();
        self.at = self.at.max(offset);
        self.line
    }
}

pub(crate) fn document<T: for<'de> Deserialize<'de>>(
    file: &LogFile<'_>,
    logs: &mut Logs,
) -> Option<T> {
    let text = file.text();
    let read = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(&text).map_err(|error| error.to_string()),
        false => serde_saphyr::from_str_with_options(&text, yaml_options())
            .map_err(|error| error.to_string()),
    };
    read.map_err(|error| logs.problem(file.whole(), error, FILE_SKIPPED)).ok()
}

/// The default limits are lower than the node list of a cluster. The limits of aliases remain.
pub(crate) fn yaml_options() -> serde_saphyr::Options {
    const MANY: usize = u32::MAX as usize;
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: MANY,
            max_nodes: MANY,
            max_documents: MANY,
            max_total_scalar_bytes: MANY,
        },
    }
}

pub(crate) fn parse<'r, T: Deserialize<'r>>(
    file: &LogFile<'_>,
    record: &'r JsonRecord<'_>,
    logs: &mut Logs,
) -> Option<T> {
    serde_json::from_str(&record.text)
        .map_err(|error| {
            logs.problem(file.line(record.line), error.to_string(), RECORD_SKIPPED);
        })
        .ok()
}
