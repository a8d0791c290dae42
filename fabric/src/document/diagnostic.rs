// SPDX-License-Identifier: Apache-2.0
//! Self-contained error reports. Each [`Diagnostic`] contains its source excerpt, so it can be
//! shown without the file (for example in a daemon's reply or in a report).

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use super::tree::Span;

/// The stable identifier of an error kind, such as `LL0101`. Identifiers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// Identifier.
    pub id: &'static str,
    /// Short title for tables.
    pub title: &'static str,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id)
    }
}

/// Declares [`Code`]s and the ordered list `ALL`, which the documentation is checked against. A
/// code's title is its documentation, which a doc comment can extend.
///
/// ```
/// lightloom_fabric::document::codes! {
///     NO_PRICE = "LL0900", "a part without a price";
/// }
/// assert_eq!(ALL[0].id, NO_PRICE.id);
/// ```
#[macro_export]
macro_rules! document_codes {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $title:literal;)+) => {
        $(
            #[doc = $title]
            #[doc = ""]
            $(#[$doc])*
            pub const $name: $crate::document::Code =
                $crate::document::Code { id: $id, title: $title };
        )+
        /// All codes declared here, in order.
        pub const ALL: &[$crate::document::Code] = &[$($name),+];
    };
}

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used but probably does not express the user's intent.
    Warning,
}

/// An error in a file, with location, cause and fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Identifier of the error kind.
    pub code: Code,
    /// Severity.
    pub severity: Severity,
    /// Cause, as one sentence without a full stop.
    pub message: String,
    /// Path as given by the user.
    pub file: String,
    /// Location; `None` if the error concerns the whole file.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// How to fix the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Related locations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
}

/// A related location of an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Related {
    /// Label at the location.
    pub message: String,
    /// Location.
    #[serde(flatten)]
    pub place: Place,
}

/// A range in a file. Lines and columns start at 1, and columns are in characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Line of the first character.
    pub line: u32,
    /// Column of the first character.
    pub column: u32,
    /// Column after the last character, on the same line.
    pub end_column: u32,
    /// Source line, shortened around the range if it is long.
    #[serde(skip)]
    pub excerpt: Excerpt,
}

/// Part of one source line with a marked range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// Displayed text.
    pub text: String,
    /// Marked byte range in `text`.
    pub marked: Range<usize>,
}

impl Diagnostic {
    /// Creates an error about the whole file. Set other public fields as needed.
    pub fn whole_file(code: Code, file: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            file: file.to_owned(),
            place: None,
            help: None,
            related: Vec::new(),
        }
    }

    /// Returns the diagnostic with help text.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(place) = &self.place {
            write!(f, ":{}:{}", place.line, place.column)?;
        }
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, ": {severity}[{}]: {}", self.code, self.message)
    }
}

const CONTEXT_BEFORE: usize = 90;
const CONTEXT_AFTER: usize = 100;

impl Place {
    pub(crate) fn of(source: &str, span: Span) -> Self {
        let start = floor_char_boundary(source, span.start as usize);
        let line_start = source[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |length| start + length);
        let end = floor_char_boundary(source, span.end as usize).clamp(start, line_end);
        let line = source.as_bytes()[..line_start].iter().filter(|byte| **byte == b'\n').count();
        let column = source[line_start..start].chars().count();
        let width = source[start..end].chars().count();
        Self {
            line: as_count(line + 1),
            column: as_count(column + 1),
            end_column: as_count(column + 1 + width),
            excerpt: Excerpt::of(
                &source[line_start..line_end],
                start - line_start..end - line_start,
            ),
        }
    }
}

impl Place {
    pub(crate) fn is_on_the_line_of(&self, other: &Self) -> bool {
        self.line == other.line && self.excerpt.text == other.excerpt.text
    }
}

impl Excerpt {
    pub(crate) fn begins_cut(&self) -> bool {
        self.text.starts_with('…')
    }

    fn of(line: &str, marked: Range<usize>) -> Self {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let marked = marked.start.min(line.len())..marked.end.min(line.len());
        let from = line[..marked.start].char_indices().rev().nth(CONTEXT_BEFORE);
        let to = line[marked.start..].char_indices().nth(CONTEXT_AFTER);
        let start = from.map_or(0, |(index, _)| index);
        let end = to.map_or(line.len(), |(index, _)| marked.start + index);
        let before = if start > 0 { "…" } else { "" };
        let after = if end < line.len() { "…" } else { "" };
        let shift = |index: usize| index.min(end) - start + before.len();
        Self {
            text: format!("{before}{}{after}", &line[start..end]),
            marked: shift(marked.start)..shift(marked.end),
        }
    }
}

fn as_count(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn floor_char_boundary(source: &str, index: usize) -> usize {
    let index = index.min(source.len());
    (0..=index).rev().find(|&index| source.is_char_boundary(index)).unwrap_or(0)
}

const LONGEST_QUOTE: usize = 40;

/// Quotes user text for messages. The text is shortened, put on one line and stripped of control characters.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from("`");
    for (count, character) in text.chars().enumerate() {
        if count == LONGEST_QUOTE {
            quoted.push('…');
            break;
        }
        match character {
            character if character.is_control() => quoted.extend(character.escape_debug()),
            character => quoted.push(character),
        }
    }
    quoted.push('`');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let source = "a: 1\nµm: ééé x\r\nlast";
        let start = source.find("ééé").unwrap();
        let span = |start: usize, end: usize| Span { start: start as u32, end: end as u32 };
        let place = Place::of(source, span(start, start + 6));
        assert_eq!((place.line, place.column, place.end_column), (2, 5, 8));
        assert_eq!(place.excerpt.text, "µm: ééé x");
        let end = Place::of(source, span(source.len(), source.len() + 9));
        assert_eq!((end.line, end.column, end.end_column), (3, 5, 5));
    }

    #[test]
    fn long_line_is_cut_around_the_location() {
        let source = format!("{}here{}", "é".repeat(5000), "z".repeat(5000));
        let place = Place::of(&source, Span { start: 10_000, end: 10_004 });
        assert_eq!(place.column, 5001);
        let Excerpt { text, marked } = place.excerpt;
        assert!(text.chars().count() < 200 && text.starts_with('…') && text.ends_with('…'));
        assert_eq!(&text[marked], "here");
    }

    #[test]
    fn quotes_are_short_and_escaped() {
        assert_eq!(quote("a\u{1b}[31m\n"), "`a\\u{1b}[31m\\n`");
        assert_eq!(quote(&"x".repeat(99)).chars().count(), 43);
    }
}
