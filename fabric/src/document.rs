// SPDX-License-Identifier: Apache-2.0
//! Reads user-written YAML files, and returns either a Rust value or all errors in the file.
//!
//! Each kind of file (fabric, scenario, prices, daemon) is a Rust type with serde's `Deserialize` and schemars'
//! `JsonSchema`. All errors are reported in one pass, each with line, column, stable code, cause and fix.
//!
//! ```text
//! bytes ─▶ door ─▶ parse ─▶ tree ─┬─▶ conform (against the type's schema) ─▶ all shape mistakes
//!       size, UTF-8,  depth, nodes,  │
//!       control       aliases        └─▶ deserialize (serde) ─▶ T ─▶ the caller's own checks
//! characters
//! ```
//!
//! An enum is a mapping with one key (`hbd: {khop: {…}}`), as is serde's default. `tag`, `flatten`
//! and `untagged` are not supported because they lose the position of an error.
//!
//! ```
//! use lightloom_fabric::document::{self, Check, codes};
//!
//! /// A shelf.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct ShelfFile {
//!     /// Number of boards.
//!     boards: u8,
//!     /// Board that holds the books, from 0.
//!     #[serde(default)]
//!     books_on: u8,
//! }
//!
//! /// Checks what the schema cannot express.
//! fn check(file: ShelfFile, check: &mut Check<'_>) -> Option<ShelfFile> {
//!     if file.books_on >= file.boards {
//!         check
//!             .error(codes::BAD_VALUE, "/books_on", format!("there is no board {}", file.books_on))
//!             .help(format!("use a number below {}", file.boards))
//!             .also("/boards", "the number of boards is set here");
//!     }
//!     Some(file)
//! }
//!
//! let (shelf, mistakes) = document::load("shelf.yaml", b"boards: 3\nbooks_on: 2\n", check);
//! assert!(mistakes.is_empty());
//! assert_eq!(shelf.map(|shelf| shelf.boards), Some(3));
//!
//! let (shelf, mistakes) = document::load("shelf.yaml", b"boads: 3\nbooks_on: two\n", check);
//! assert!(shelf.is_none());
//! let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
//! assert_eq!(lines, [
//!     "shelf.yaml:1:1: error[LL0101]: unknown key `boads`",
//!     "shelf.yaml:2:11: error[LL0104]: expected an integer, found the string `two`",
//! ]);
//! assert_eq!(mistakes[0].help.as_deref(), Some("did you mean `boards`?"));
//! ```
//!
//! The caller opens files; [`take`] reads one to its end or to the size limit.

pub mod codes;
mod conform;
mod deserialize;
mod diagnostic;
mod door;
mod in_order;
mod json;
mod kinds;
mod parse;
mod problem;
mod render;
mod shape;
mod tree;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use crate::document_codes as codes;
pub use diagnostic::{Code, Diagnostic, Excerpt, Place, Related, Severity, quote};
pub use door::{Limits, take};
pub use in_order::InOrder;
pub use json::explain_json;
pub use kinds::{OtherKind, kind_of_keys, other_kind, written};
pub use render::{Style, render, sarif};

use problem::{Problem, Problems};
use shape::Shapes;
use tree::{Span, Tree};

/// Reads a file of kind `T` without additional checks.
pub fn read<T: DeserializeOwned + JsonSchema>(
    file: &str,
    bytes: &[u8],
) -> (Option<T>, Vec<Diagnostic>) {
    load(file, bytes, |value, _| Some(value))
}

/// Reads a file of kind `T` and passes it to `check`, which converts the value and reports errors
/// beyond the schema. The result is `None` exactly if a diagnostic is an error. A file that is clearly of another kind
/// has one error, which names its kind.
///
/// `file` is only a name for messages. `check` must report an error before it returns `None`.
pub fn load<T, U>(
    file: &str,
    bytes: &[u8],
    check: impl FnOnce(T, &mut Check<'_>) -> Option<U>,
) -> (Option<U>, Vec<Diagnostic>)
where
    T: for<'de> Deserialize<'de> + JsonSchema,
{
    let limits = Limits::default();
    let source = match door::enter(file, bytes, &limits) {
        Ok(source) => source,
        Err(diagnostic) => return (None, vec![*diagnostic]),
    };
    let mut problems = Problems::default();
    let value = parse::parse(source, &limits)
        .map_err(|problem| problems.add(*problem))
        .ok()
        .and_then(|mut tree| read_tree(&mut tree, &mut problems, check));
    if problems.has_errors() {
        let other = kinds::other_than(&T::schema_name(), file, bytes);
        let mistakes = other.map_or_else(|| problems.into_diagnostics(file, source), |it| vec![it]);
        return (None, mistakes);
    }
    (value, problems.into_diagnostics(file, source))
}

/// If possible, a file with schema errors is deserialized without its faulty parts and also passed
/// to the caller's checks, so that all errors are reported together.
fn read_tree<T, U>(
    tree: &mut Tree<'_>,
    problems: &mut Problems,
    check: impl FnOnce(T, &mut Check<'_>) -> Option<U>,
) -> Option<U>
where
    T: for<'de> Deserialize<'de> + JsonSchema,
{
    tree.repairs = conform::check(tree, &Shapes::of::<T>(), problems)?;
    match T::deserialize(tree.root()) {
        Ok(value) => check(value, &mut Check { tree, problems }),
        Err(failure) => {
            let span = failure.node.map_or(Span::default(), |index| tree.view(index).span());
            problems.add(Problem::new(codes::BAD_SPELLING, span, failure.message));
            None
        }
    }
}

/// Returns the first top-level keys of a file, which determine its kind. Empty if the file is not a
/// mapping. Parses only the beginning of a long file.
pub fn top_keys(bytes: &[u8]) -> Vec<String> {
    let limits = Limits::default();
    door::enter("", bytes, &limits)
        .map_or_else(|_| Vec::new(), |source| parse::top_keys(source, &limits))
}

/// Returns the JSON Schema (2020-12) of a kind of file, for editors.
pub fn schema<T: JsonSchema>() -> serde_json::Value {
    schemars::schema_for!(T).to_value()
}

/// Collects errors beyond the schema of a file.
///
/// Locations are JSON pointers such as `/links/3/endpoints/0`. For a default value, the location is
/// its nearest parent in the file.
///
/// In a file with schema errors, unreadable values are replaced by defaults, and unreadable items
/// and entries are omitted. Reports about such locations are dropped, so a check must declare every
/// location that it depends on with [`Report::also`] or [`Report::depends_on`].
#[derive(Debug)]
pub struct Check<'d> {
    tree: &'d Tree<'d>,
    problems: &'d mut Problems,
}

impl Check<'_> {
    /// Reports an error in the value at `path`. The returned report accepts further details.
    pub fn error(&mut self, code: Code, path: &str, message: impl Into<String>) -> Report<'_> {
        self.report(path, |span| Problem::new(code, span, message))
    }

    /// Reports a probable mistake.
    pub fn warning(&mut self, code: Code, path: &str, message: impl Into<String>) -> Report<'_> {
        self.report(path, |span| Problem::new(code, span, message).into_warning())
    }

    fn report(&mut self, path: &str, problem: impl FnOnce(Span) -> Problem) -> Report<'_> {
        let mut report = Report { tree: self.tree, problems: self.problems, problem: None };
        let (span, is_certain) = report.place(path);
        report.problem = is_certain.then(|| problem(span));
        report
    }

    /// Returns whether an error has been reported.
    pub fn has_errors(&self) -> bool {
        self.problems.has_errors()
    }

    /// Returns whether the file itself contains a value at `path`, rather than a default.
    pub fn is_written(&self, path: &str) -> bool {
        self.tree.find(path).is_whole
    }
}

/// A report under construction, which is submitted when dropped.
#[derive(Debug)]
pub struct Report<'d> {
    tree: &'d Tree<'d>,
    problems: &'d mut Problems,
    problem: Option<Problem>,
}

impl Report<'_> {
    /// Skipped once further errors are only counted, because it is slow in long lists.
    fn place(&self, path: &str) -> (Span, bool) {
        if self.problems.is_full() {
            return (Span::default(), true);
        }
        let found = self.tree.find(path);
        (found.span, !found.is_doubtful)
    }

    fn edit(mut self, edit: impl FnOnce(Problem) -> Problem) -> Self {
        self.problem = self.problem.take().map(edit);
        self
    }

    /// Sets the help text that says how to fix the error.
    pub fn help(self, help: impl Into<String>) -> Self {
        self.edit(|problem| problem.with_help(help))
    }

    /// Adds a related location that the error depends on.
    pub fn also(self, path: &str, message: impl Into<String>) -> Self {
        let span = self.place(path).0;
        self.depends_on(path).edit(|problem| problem.with_related(span, message))
    }

    /// Adds a hidden location. If the location has a schema error, the report is dropped.
    pub fn depends_on(mut self, path: &str) -> Self {
        if !self.place(path).1 {
            self.problem = None;
        }
        self
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if let Some(problem) = self.problem.take() {
            self.problems.add(problem);
        }
    }
}

/// Returns a suggestion for an unknown name.
pub fn instead_of(written: &str, names: &[&str]) -> String {
    match closest(written, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("use one of {}", names.join(", ")),
    }
}

/// Returns the most similar name, if `written` is probably a misspelling of it.
pub fn closest<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    const LONGEST: usize = 64;
    if written.len() > LONGEST {
        return None;
    }
    let distance =
        |name: &str| strsim::damerau_levenshtein(&written.to_lowercase(), &name.to_lowercase());
    let allowed = (written.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}
