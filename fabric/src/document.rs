// SPDX-License-Identifier: Apache-2.0
//! Files that people write: YAML in, a Rust value or all of its mistakes out.
//!
//! Any kind of file (fabric, scenario, prices, daemon) is a Rust type with serde's `Deserialize` and
//! schemars' `JsonSchema`; nothing else has to be written to get every mistake at once, each with its
//! line, column, stable code, cause and fix.
//!
//! ```text
//! bytes ─▶ door ─▶ parse ─▶ tree ─┬─▶ conform (against the type's schema) ─▶ all shape mistakes
//!       size, UTF-8,  depth, nodes,  │
//!       control       aliases        └─▶ deserialize (serde) ─▶ T ─▶ the caller's own checks
//! characters
//! ```
//!
//! An enum is written as a mapping with one key (`hbd: {khop: {…}}`): serde's default. `tag`, `flatten`
//! and `untagged` are not supported, for they cost the position of the mistake.
//!
//! ```
//! use lightloom_fabric::document::{self, Check, codes};
//!
//! /// A shelf.
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct ShelfFile {
//!     /// How many boards it has.
//!     boards: u8,
//!     /// The board that the books stand on, from 0.
//!     #[serde(default)]
//!     books_on: u8,
//! }
//!
//! /// What a shelf file alone cannot say is checked here, by path.
//! fn check(file: ShelfFile, check: &mut Check<'_>) -> Option<ShelfFile> {
//!     if file.books_on >= file.boards {
//!         check
//!             .error(codes::BAD_VALUE, "/books_on", format!("there is no board {}", file.books_on))
//!             .help(format!("write a number below {}", file.boards))
//!             .also("/boards", "the boards are counted here");
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
//!     "shelf.yaml:2:11: error[LL0104]: expected a whole number, found the text `two`",
//! ]);
//! assert_eq!(mistakes[0].help.as_deref(), Some("did you mean `boards`?"));
//! ```
//!
//! The file itself is read at the edge of the program, by [`take`], which stops at the size limit.

pub mod codes;
mod conform;
mod deserialize;
mod diagnostic;
mod door;
mod in_order;
mod json;
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
pub use render::{Style, render, sarif};

use problem::{Problem, Problems};
use shape::Shapes;
use tree::{Span, Tree};

/// Reads a file of kind `T` without checks of its own.
pub fn read<T: DeserializeOwned + JsonSchema>(
    file: &str,
    bytes: &[u8],
) -> (Option<T>, Vec<Diagnostic>) {
    load(file, bytes, |value, _| Some(value))
}

/// Reads a file of kind `T`, then lets `check` say what is wrong beyond its shape and make of it what
/// the program works with. The result is `None` exactly when some diagnostic is an error.
///
/// `file` is what the user calls the file; it is not opened. `check` returns `None` only after it has
/// reported an error.
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
    let value = value.filter(|_| !problems.has_errors());
    (value, problems.into_diagnostics(file, source))
}

/// A file with mistakes of shape is read around them where that is possible, and held against the
/// caller's rules all the same: all its mistakes are shown at once.
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

/// The first keys at the top of a file, for telling what kind it is; none when it is no mapping.
///
/// Only the beginning of a long file is looked at, so that reading it twice costs little.
#[must_use]
pub fn top_keys(bytes: &[u8]) -> Vec<String> {
    let limits = Limits::default();
    door::enter("", bytes, &limits)
        .map_or_else(|_| Vec::new(), |source| parse::top_keys(source, &limits))
}

/// The JSON Schema (2020-12) of a file kind, for editors.
#[must_use]
pub fn schema<T: JsonSchema>() -> serde_json::Value {
    schemars::schema_for!(T).to_value()
}

/// Where a caller reports what is wrong beyond the shape of a file.
///
/// Places are named by JSON pointers such as `/links/3/endpoints/0`; the part of a pointer that the
/// file does not have (a default) is cut off.
///
/// The value may stand for a file with mistakes of shape, read around them: a value that could not be
/// read has its default, an item or entry is left out. A report about a place where that happened is
/// dropped, so a check names every place that it depends on, by [`Report::also`] or
/// [`Report::depends_on`].
#[derive(Debug)]
pub struct Check<'d> {
    tree: &'d Tree<'d>,
    problems: &'d mut Problems,
}

impl Check<'_> {
    /// Reports an error about the value at `path`; the report can be completed on what this returns.
    pub fn error(&mut self, code: Code, path: &str, message: impl Into<String>) -> Report<'_> {
        self.report(path, |span| Problem::new(code, span, message))
    }

    /// Reports something that is probably not meant.
    pub fn warning(&mut self, code: Code, path: &str, message: impl Into<String>) -> Report<'_> {
        self.report(path, |span| Problem::new(code, span, message).into_warning())
    }

    fn report(&mut self, path: &str, problem: impl FnOnce(Span) -> Problem) -> Report<'_> {
        let mut report = Report { tree: self.tree, problems: self.problems, problem: None };
        let (span, is_certain) = report.place(path);
        report.problem = is_certain.then(|| problem(span));
        report
    }

    /// Whether an error has been reported.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.problems.has_errors()
    }

    /// Whether the file itself has a value at `path`, as opposed to a default.
    #[must_use]
    pub fn is_written(&self, path: &str) -> bool {
        self.tree.find(path).is_whole
    }
}

/// A report that can be completed; it is filed when dropped.
#[derive(Debug)]
pub struct Report<'d> {
    tree: &'d Tree<'d>,
    problems: &'d mut Problems,
    problem: Option<Problem>,
}

impl Report<'_> {
    /// The place of `path`, and whether what stands there was read as written. Finding it takes time in
    /// long lists, so it is not sought where a mistake will only be counted.
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

    /// What to write at the place itself.
    pub fn label(self, label: impl Into<String>) -> Self {
        self.edit(|problem| problem.with_label(label))
    }

    /// How to mend it.
    pub fn help(self, help: impl Into<String>) -> Self {
        self.edit(|problem| problem.with_help(help))
    }

    /// Another place that belongs to it, and that it depends on.
    pub fn also(self, path: &str, message: impl Into<String>) -> Self {
        let span = self.place(path).0;
        self.depends_on(path).edit(|problem| problem.with_related(span, message))
    }

    /// A place that it depends on and that need not be shown: the report is dropped if the file has a
    /// mistake of shape there.
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

/// The name most like `written`, if one is so near that it was probably meant.
#[must_use]
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
