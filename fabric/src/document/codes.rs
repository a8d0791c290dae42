// SPDX-License-Identifier: Apache-2.0
//! The mistakes that any kind of file can have. Kinds add their own: see docs/diagnostics.md.

crate::document::codes! {
    /// More bytes than [`Limits::bytes`](super::Limits).
    TOO_LARGE = "LL0001", "the file is larger than the limit";
    /// Not UTF-8, or UTF-16.
    NOT_UTF8 = "LL0002", "the file is not UTF-8 text";
    /// A byte-order mark.
    BYTE_ORDER_MARK = "LL0003", "the file begins with a byte-order mark";
    /// NUL or another control character.
    CONTROL_CHARACTER = "LL0004", "the file holds a control character";
    /// Not YAML.
    SYNTAX = "LL0005", "the file is not well-formed YAML";
    /// Lists and mappings in each other beyond [`Limits::depth`](super::Limits).
    TOO_DEEP = "LL0006", "lists and mappings are nested too deep";
    /// More values than [`Limits::nodes`](super::Limits).
    TOO_MANY_VALUES = "LL0007", "the file holds too many values";
    /// More anchors than [`Limits::anchors`](super::Limits), or aliases that stand for more values than
    /// [`Limits::alias_nodes`](super::Limits).
    ALIAS_EXPANSION = "LL0008", "too many anchors, or aliases that stand for too many values";
    /// An alias without its anchor, or within it.
    BAD_ALIAS = "LL0009", "an alias has no finished anchor";
    /// `!tag`.
    TAG = "LL0010", "YAML tags are not used";
    /// `---` a second time.
    SEVERAL_DOCUMENTS = "LL0011", "the file holds more than one YAML document";
    /// Nothing in it.
    EMPTY = "LL0012", "the file is empty";
    /// A key that is itself a list or a mapping.
    KEY_NOT_TEXT = "LL0013", "a key is not plain text";
    /// The list of mistakes was cut.
    MORE_ERRORS = "LL0014", "there are more mistakes than are shown";
    /// No such file, or no right to read it.
    UNREADABLE = "LL0015", "the file cannot be read";
    /// Neither its keys nor the user say what the file is.
    UNKNOWN_KIND = "LL0016", "the kind of the file is not clear";
    /// A plan against which its fabric, or the plan itself, speaks.
    NOT_SOUND = "LL0017", "a plan is not sound on its fabric";

    /// A key that means nothing here.
    UNKNOWN_KEY = "LL0101", "unknown key";
    /// A key that must be there.
    MISSING_KEY = "LL0102", "missing key";
    /// The same key twice in one mapping.
    DUPLICATE_KEY = "LL0103", "the same key twice";
    /// Text where a number belongs, a list where a mapping belongs, and so on.
    WRONG_TYPE = "LL0104", "a value of the wrong type";
    /// A number beyond its bounds.
    OUT_OF_RANGE = "LL0105", "a number out of range";
    /// A word that is not among those allowed.
    UNKNOWN_WORD = "LL0106", "a word that is not among those allowed";
    /// Text that is not spelled as it must be, such as a quantity without its unit.
    BAD_SPELLING = "LL0107", "text that is not spelled as it must be";
    /// Too few or too many items, entries or characters.
    WRONG_LENGTH = "LL0108", "too few or too many items";
    /// Several alternatives in a mapping that chooses one.
    ONE_CHOICE = "LL0109", "a choice is not made exactly once";
    /// A value that has the right form and still does not make sense.
    BAD_VALUE = "LL0110", "a value that makes no sense here";
}
