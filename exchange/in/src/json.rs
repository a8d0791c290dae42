// SPDX-License-Identifier: Apache-2.0
//! JSON records with their line numbers, from an array, an object with a list, or consecutive
//! objects.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::logs::{LogFile, Logs};
use super::problem::LogTrouble;

#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonRecord<'f> {
    pub(crate) line: usize,
    pub(crate) text: &'f str,
}

/// A document that lists its records.
#[derive(Deserialize)]
struct JsonListing<'f> {
    #[serde(borrow, alias = "events")]
    items: Vec<&'f RawValue>,
}

/// Returns all records of a file up to the first JSON error, which is recorded.
pub(crate) fn records<'f>(file: &LogFile<'f>, logs: &mut Logs) -> Vec<JsonRecord<'f>> {
    let mut found = Vec::new();
    let mut lines = LineCounter { bytes: file.bytes, at: 0, line: 1 };
    for value in serde_json::Deserializer::from_slice(file.bytes).into_iter::<&RawValue>() {
        let value = match value {
            Ok(value) => value.get(),
            Err(error) => {
                let trouble = LogTrouble::Malformed(format!("not JSON from here on: {error}"));
                logs.problem(file.line(error.line().max(1)), trouble);
                break;
            }
        };
        let listed = if value.starts_with('[') {
            serde_json::from_str::<Vec<&RawValue>>(value).ok()
        } else {
            serde_json::from_str::<JsonListing<'_>>(value).ok().map(|listing| listing.items)
        };
        match listed {
            Some(items) => found.extend(items.into_iter().map(|item| lines.record(item.get()))),
            None => found.push(lines.record(value)),
        }
    }
    found
}

/// Counts lines up to a piece of the file. Pieces must come in order.
struct LineCounter<'f> {
    bytes: &'f [u8],
    at: usize,
    line: usize,
}

impl<'f> LineCounter<'f> {
    fn record(&mut self, text: &'f str) -> JsonRecord<'f> {
        let offset = text.as_ptr() as usize - self.bytes.as_ptr() as usize;
        let between = self.bytes.get(self.at..offset).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count();
        self.at = self.at.max(offset);
        JsonRecord { line: self.line, text }
    }
}

/// Parses a record, or records the error.
pub(crate) fn parse<'f, T: Deserialize<'f>>(
    file: &LogFile<'_>,
    record: JsonRecord<'f>,
    logs: &mut Logs,
) -> Option<T> {
    serde_json::from_str(record.text)
        .map_err(|error| {
            logs.problem(file.line(record.line), LogTrouble::Malformed(error.to_string()));
        })
        .ok()
}
