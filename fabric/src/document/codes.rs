// SPDX-License-Identifier: Apache-2.0
//! Codes of errors that any kind of file can have (docs/diagnostics.md).

crate::document::codes! {
    /// The file exceeds [`Limits::bytes`](super::Limits).
    TOO_LARGE = "LL0001", "the file is larger than the limit";
    /// The file is not UTF-8.
    NOT_UTF8 = "LL0002", "the file is not UTF-8 text";
    /// The file begins with a byte-order mark.
    BYTE_ORDER_MARK = "LL0003", "the file begins with a byte-order mark";
    /// The file contains NUL or another control character.
    CONTROL_CHARACTER = "LL0004", "the file holds a control character";
    /// The file is not well-formed YAML.
    SYNTAX = "LL0005", "the file is not well-formed YAML";
    /// Nesting exceeds [`Limits::depth`](super::Limits).
    TOO_DEEP = "LL0006", "lists and mappings are nested too deep";
    /// The file has more values than [`Limits::nodes`](super::Limits).
    TOO_MANY_VALUES = "LL0007", "the file holds too many values";
    /// Exceeds [`Limits::anchors`](super::Limits) or [`Limits::alias_nodes`](super::Limits).
    ALIAS_EXPANSION = "LL0008", "too many anchors, or aliases that stand for too many values";
    /// An alias has no preceding anchor, or is inside its own anchor.
    BAD_ALIAS = "LL0009", "an alias has no finished anchor";
    /// The file uses a YAML tag.
    TAG = "LL0010", "YAML tags are not used";
    /// The file contains a second YAML document.
    SEVERAL_DOCUMENTS = "LL0011", "the file holds more than one YAML document";
    /// The file is empty.
    EMPTY = "LL0012", "the file is empty";
    /// A key is a list or a mapping.
    KEY_NOT_TEXT = "LL0013", "a key is not plain text";
    /// The list of errors was truncated.
    MORE_ERRORS = "LL0014", "there are more mistakes than are shown";
    /// The file does not exist or cannot be read.
    UNREADABLE = "LL0015", "the file cannot be read";
    /// The kind of the file is unknown: neither its keys nor the user specify it.
    UNKNOWN_KIND = "LL0016", "the kind of the file is not clear";
    /// A plan is inconsistent, by itself or with its fabric.
    NOT_SOUND = "LL0017", "a plan is not sound on its fabric";

    /// A key is unknown.
    UNKNOWN_KEY = "LL0101", "unknown key";
    /// A required key is missing.
    MISSING_KEY = "LL0102", "missing key";
    /// A mapping has the same key twice.
    DUPLICATE_KEY = "LL0103", "the same key twice";
    /// A value has the wrong type, such as text instead of a number.
    WRONG_TYPE = "LL0104", "a value of the wrong type";
    /// A number is out of range.
    OUT_OF_RANGE = "LL0105", "a number out of range";
    /// A word is not among the allowed ones.
    UNKNOWN_WORD = "LL0106", "a word that is not among those allowed";
    /// A text does not have the required format, such as a quantity without its unit.
    BAD_SPELLING = "LL0107", "text that is not spelled as it must be";
    /// There are too few or too many items, entries or characters.
    WRONG_LENGTH = "LL0108", "too few or too many items";
    /// A mapping selects several alternatives where exactly one is allowed.
    ONE_CHOICE = "LL0109", "a choice is not made exactly once";
    /// A value has the right type but is invalid here.
    BAD_VALUE = "LL0110", "a value that makes no sense here";
}
