// SPDX-License-Identifier: Apache-2.0
//! What is said about a bad file: one [`Diagnostic`] a mistake, complete in itself.
//!
//! A diagnostic carries its own excerpt of the source, so that it can be shown where the file is
//! not at hand (in a daemon's reply, in a report).

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use super::tree::Span;

/// The stable name of a kind of mistake, such as `LL0101`. Names are never given a second meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    /// The name.
    pub id: &'static str,
    /// What it means, in a few words, for tables.
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

/// Declares [`Code`]s and `ALL`, the list of them in order, which documentation is checked against.
///
/// ```
/// lightloom_fabric::document::codes! {
///     /// The price list has no row for a part.
///     NO_PRICE = "LL0900", "a part without a price";
/// }
/// assert_eq!(ALL[0].id, NO_PRICE.id);
/// ```
#[macro_export]
macro_rules! document_codes {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $title:literal;)+) => {
        $(
            $(#[$doc])*
            pub const $name: $crate::document::Code =
                $crate::document::Code { id: $id, title: $title };
        )+
        /// Every code declared here, in order.
        pub const ALL: &[$crate::document::Code] = &[$($name),+];
    };
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably does not say what was meant.
    Warning,
}

/// One mistake in a file: where, what, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The stable name of this kind of mistake.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The file, as the user named it.
    pub file: String,
    /// Where it is wrong; `None` when it is the file as a whole.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// What to say at that place.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Other places that belong to the same mistake.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<Related>,
}

/// A second place of a mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Related {
    /// What is there.
    pub message: String,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
}

/// A stretch of a file. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Line of the first character.
    pub line: u32,
    /// Column of the first character.
    pub column: u32,
    /// Column after the last character, on the same line.
    pub end_column: u32,
    /// The source line, shortened around the stretch if it is long.
    #[serde(skip)]
    pub excerpt: Excerpt,
}

/// A piece of one source line with the stretch in question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text shown.
    pub text: String,
    /// The bytes of `text` that are meant.
    pub marked: Range<usize>,
}

impl Diagnostic {
    /// An error about a file as a whole; add what else is known to its public fields.
    #[must_use]
    pub fn whole_file(code: Code, file: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            file: file.to_owned(),
            place: None,
            label: String::new(),
            help: None,
            related: Vec::new(),
        }
    }

    /// The same with a way to mend it.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    /// One line: `fabric.yaml:3:5: error[LL0101]: unknown key …`.
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

/// Characters of a source line shown before and after the place in question.
const CONTEXT_BEFORE: usize = 90;
const CONTEXT_AFTER: usize = 100;

impl Place {
    /// The place of `span` in `source`; of a stretch of several lines, its part on the first line.
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
    /// Whether both stand in one drawn line.
    pub(crate) fn is_on_the_line_of(&self, other: &Self) -> bool {
        self.line == other.line && self.excerpt.text == other.excerpt.text
    }
}

impl Excerpt {
    /// Whether the beginning of the line is left out.
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

/// Longest piece of a user's text that a message repeats, in characters.
const LONGEST_QUOTE: usize = 40;

/// A user's text as messages repeat it: short, on one line, without control characters.
#[must_use]
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
    fn a_long_line_is_cut_around_the_place() {
        let source = format!("{}here{}", "é".repeat(5000), "z".repeat(5000));
        let place = Place::of(&source, Span { start: 10_000, end: 10_004 });
        assert_eq!(place.column, 5001);
        let Excerpt { text, marked } = place.excerpt;
        assert!(text.chars().count() < 200 && text.starts_with('…') && text.ends_with('…'));
        assert_eq!(&text[marked], "here");
    }

    #[test]
    fn quotes_are_short_and_harmless() {
        assert_eq!(quote("a\u{1b}[31m\n"), "`a\\u{1b}[31m\\n`");
        assert_eq!(quote(&"x".repeat(99)).chars().count(), 43);
    }
}
