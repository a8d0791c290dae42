// SPDX-License-Identifier: Apache-2.0
//! Codes of errors in any kind of file (docs/diagnostics.md).

crate::document::codes! {
    /// The file exceeds [`Limits::bytes`](super::Limits).
    TOO_LARGE = "LL0001", "the file is larger than the limit";
    NOT_UTF8 = "LL0002", "the file is not UTF-8 text";
    BYTE_ORDER_MARK = "LL0003", "the file begins with a byte-order mark";
    CONTROL_CHARACTER = "LL0004", "the file contains a control character";
    SYNTAX = "LL0005", "the file is not well-formed YAML";
    /// Nesting exceeds [`Limits::depth`](super::Limits).
    TOO_DEEP = "LL0006", "lists and mappings are nested too deep";
    /// The file has more values than [`Limits::nodes`](super::Limits).
    TOO_MANY_VALUES = "LL0007", "the file contains too many values";
    /// Exceeds [`Limits::anchors`](super::Limits) or [`Limits::alias_nodes`](super::Limits).
    ALIAS_EXPANSION = "LL0008", "too many anchors, or aliases that expand to too many values";
    BAD_ALIAS = "LL0009", "an alias has no finished anchor";
    TAG = "LL0010", "YAML tags are not supported";
    SEVERAL_DOCUMENTS = "LL0011", "the file contains more than one YAML document";
    EMPTY = "LL0012", "the file is empty";
    KEY_NOT_TEXT = "LL0013", "a key is not plain text";
    MORE_ERRORS = "LL0014", "more errors than are shown";
    UNREADABLE = "LL0015", "the file cannot be read";
    UNKNOWN_KIND = "LL0016", "the kind of the file is unknown";
    NOT_SOUND = "LL0017", "a plan is not valid for its fabric";

    UNKNOWN_KEY = "LL0101", "unknown key";
    MISSING_KEY = "LL0102", "missing key";
    DUPLICATE_KEY = "LL0103", "duplicate key";
    WRONG_TYPE = "LL0104", "a value of the wrong type";
    OUT_OF_RANGE = "LL0105", "a number out of range";
    UNKNOWN_WORD = "LL0106", "a word that is not allowed";
    BAD_SPELLING = "LL0107", "text in the wrong format";
    WRONG_LENGTH = "LL0108", "too few or too many items";
    ONE_CHOICE = "LL0109", "zero or several alternatives are given instead of one";
    BAD_VALUE = "LL0110", "an invalid value for this key";
}
