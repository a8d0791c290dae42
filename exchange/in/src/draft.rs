// SPDX-License-Identifier: Apache-2.0
//! Drafts a fabric, fault trace, scenario, `buy` file and measured steps from logs. Each value is
//! stated in a log, derived, or assumed; its [`Guess`] is also a comment in the file.

mod buy;
mod cluster;
mod fabric;
mod hostnames;
mod scenario;
mod step;
mod trace;

use std::fmt::Write as _;

use serde::Serialize;

use super::logs::Logs;
use cluster::ClusterDraft;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuessConfidence {
    Stated,
    Derived,
    Assumed,
}

impl std::fmt::Display for GuessConfidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Guess {
    pub file: &'static str,
    pub key: &'static str,
    pub value: String,
    pub confidence: GuessConfidence,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftFile {
    pub name: &'static str,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    pub files: Vec<DraftFile>,
    pub guesses: Vec<Guess>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sourced<T> {
    value: T,
    confidence: GuessConfidence,
    why: String,
}

impl<T> Sourced<T> {
    fn stated(value: T, why: impl Into<String>) -> Self {
        Self { value, confidence: GuessConfidence::Stated, why: why.into() }
    }

    fn derived(value: T, why: impl Into<String>) -> Self {
        Self { value, confidence: GuessConfidence::Derived, why: why.into() }
    }

    fn assumed(value: T, why: impl Into<String>) -> Self {
        Self { value, confidence: GuessConfidence::Assumed, why: why.into() }
    }
}

struct DraftPage {
    name: &'static str,
    text: String,
    guesses: Vec<Guess>,
}

impl DraftPage {
    fn new(name: &'static str, about: &str) -> Self {
        Self { name, text: format!("# {about}\n"), guesses: Vec::new() }
    }

    fn put(&mut self, lines: &str) {
        self.text += lines;
        self.text.push('\n');
    }

    fn guess<T: ToString>(&mut self, key: &'static str, known: &Sourced<T>) {
        let Sourced { value, confidence, why } = known;
        let value = value.to_string();
        let _ = writeln!(self.text, "# {key}: {value}, {confidence}: {why}");
        let guess =
            Guess { file: self.name, key, value, confidence: *confidence, why: why.clone() };
        self.guesses.push(guess);
    }

    fn end(self, draft: &mut Draft) {
        draft.guesses.extend(self.guesses);
        draft.files.push(DraftFile { name: self.name, text: self.text });
    }
}

/// Works even with incomplete logs. `path` returns the path from the drafted files to a log.
pub fn draft(logs: &Logs, path: &dyn Fn(&str) -> String) -> Draft {
    let cluster = ClusterDraft::of(logs);
    let mut draft = Draft::default();
    fabric::write(&cluster, &mut draft);
    hostnames::write(logs, &mut draft);
    let days = trace::write(logs, &cluster, &mut draft);
    scenario::write(logs, &cluster, days, &mut draft);
    step::write(logs, &cluster, path, &mut draft);
    buy::write(logs, &cluster, days, &mut draft);
    buy::write_runs(logs, &cluster, &mut draft);
    draft
}
