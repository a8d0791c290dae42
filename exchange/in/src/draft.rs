// SPDX-License-Identifier: Apache-2.0
//! Files of ours that logs suggest: fabric with its job, fault trace, scenario, months for `buy`, measured steps.
//!
//! What a log says is taken; what can be counted or computed is derived; the rest is assumed. Each such value is a [`Guess`],
//! and the same sentence stands beside it in the file.

mod buy;
mod cluster;
mod fabric;
mod scenario;
mod step;
mod trace;

use std::fmt::Write as _;

use serde::Serialize;

use super::logs::Logs;
use cluster::ClusterDraft;

/// How sure a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GuessConfidence {
    /// A log says it.
    Stated,
    /// It is counted or computed from logs.
    Derived,
    /// No log says it.
    Assumed,
}

impl GuessConfidence {
    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stated => "stated",
            Self::Derived => "derived",
            Self::Assumed => "assumed",
        }
    }
}

/// A value of a drafted file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Guess {
    /// The file.
    pub file: &'static str,
    /// Its key.
    pub key: &'static str,
    /// The value.
    pub value: String,
    /// How sure it is.
    pub confidence: GuessConfidence,
    /// Where it comes from.
    pub why: String,
}

/// A drafted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftFile {
    /// Its name.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
}

/// Everything that logs suggest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The files; they name each other.
    pub files: Vec<DraftFile>,
    /// What is in them that an operator of the cluster should look at.
    pub guesses: Vec<Guess>,
}

/// A value with where it comes from, before it has a place in a file.
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

/// A file that is being written, with its guesses.
struct DraftPage {
    name: &'static str,
    text: String,
    guesses: Vec<Guess>,
}

impl DraftPage {
    fn new(name: &'static str, about: &str) -> Self {
        Self { name, text: format!("# {about}\n"), guesses: Vec::new() }
    }

    /// Lines as they are.
    fn put(&mut self, lines: &str) {
        self.text += lines;
        self.text.push('\n');
    }

    /// A comment that says where a value comes from, and the guess.
    fn guess<T: ToString>(&mut self, key: &'static str, known: &Sourced<T>) {
        let Sourced { value, confidence, why } = known;
        let value = value.to_string();
        let _ = writeln!(self.text, "# {key}: {value}, {}: {why}", confidence.name());
        let guess =
            Guess { file: self.name, key, value, confidence: *confidence, why: why.clone() };
        self.guesses.push(guess);
    }

    fn end(self, draft: &mut Draft) {
        draft.guesses.extend(self.guesses);
        draft.files.push(DraftFile { name: self.name, text: self.text });
    }
}

/// Files that run, whatever the logs lack; `path` leads from them to a log.
#[must_use]
pub fn draft(logs: &Logs, path: &dyn Fn(&str) -> String) -> Draft {
    let cluster = ClusterDraft::of(logs);
    let mut draft = Draft::default();
    fabric::write(&cluster, &mut draft);
    let days = trace::write(logs, &cluster, &mut draft);
    scenario::write(logs, &cluster, days, &mut draft);
    step::write(logs, &cluster, path, &mut draft);
    buy::write(logs, &cluster, days, &mut draft);
    buy::write_runs(logs, &cluster, &mut draft);
    draft
}
