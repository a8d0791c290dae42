// SPDX-License-Identifier: Apache-2.0
//! Translates JSON parser errors to the user's terms.

use serde_json::error::Category;

/// Returns the cause of a JSON error, without its position.
pub fn explain_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rfind(" at line ").map_or(&*text, |end| &text[..end]);
    match error.classify() {
        Category::Eof if error.column() == 0 => "the file is empty".to_owned(),
        Category::Eof => format!("the file ends in the middle of {}", unfinished(text)),
        Category::Data => data(text),
        Category::Syntax | Category::Io => syntax(text),
    }
}

fn unfinished(text: &str) -> &'static str {
    match text.rsplit(' ').next() {
        Some("list") => "a list: `]` is missing",
        Some("object") => "a mapping: `}` is missing",
        Some("string") => "a string: a closing `\"` is missing",
        _ => "a value",
    }
}

fn syntax(text: &str) -> String {
    match text {
        "expected value" => {
            "this is not JSON: expected `{`, `[`, a number or a string in double quotes".to_owned()
        }
        "expected ident" => {
            "this is not a JSON word: expected `true`, `false` or `null`".to_owned()
        }
        "trailing comma" => "nothing follows this comma: remove it".to_owned(),
        "trailing characters" => "the JSON ends before this: remove the rest".to_owned(),
        "key must be a string" => "a key must be a string in double quotes".to_owned(),
        "invalid escape" => "write a backslash in a string as `\\\\`".to_owned(),
        "recursion limit exceeded" => "lists and mappings are nested too deeply".to_owned(),
        other => other.to_owned(),
    }
}

/// The parser quotes with `"` and uses the names of Rust types.
fn data(text: &str) -> String {
    let quoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    if let Some(rest) = text.strip_prefix("invalid type: ").or(text.strip_prefix("invalid value: "))
        && let Some((found, expected)) = rest.split_once(", expected ")
    {
        let number = found.split('"').nth(1).filter(|text| text.parse::<f64>().is_ok());
        let fix = number.filter(|_| wanted(expected).contains("number"));
        let fix = fix.map_or("", |_| ": remove the quotation marks");
        return format!("expected {}, found {}{fix}", wanted(expected), found_value(found));
    }
    if text.starts_with("missing field")
        && let Some(key) = quoted(text)
    {
        return format!("the key `{key}` is missing");
    }
    if text.starts_with("duplicate field")
        && let Some(key) = quoted(text)
    {
        return format!("duplicate key `{key}`");
    }
    for (prefix, what) in [("unknown field", "unknown key"), ("unknown variant", "unknown word")] {
        if let Some(rest) = text.strip_prefix(prefix)
            && let Some((found, expected)) = rest.split_once(", expected ")
        {
            let expected = expected.trim_start_matches("one of ");
            return format!("{what}{found}; expected {expected}");
        }
    }
    text.to_owned()
}

fn wanted(expected: &str) -> String {
    let name = match expected {
        "f64" | "f32" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a non-negative integer",
        "i8" | "i16" | "i32" | "i64" => "an integer",
        "a boolean" => "`true` or `false`",
        "a string" | "a borrowed string" | "string or map" | "variant identifier" => "a string",
        "a sequence" => "a list",
        "a map" => "a mapping",
        structure if structure.starts_with("struct ") => "a mapping",
        other => other,
    };
    name.to_owned()
}

fn found_value(found: &str) -> String {
    let of = |kind: &str| found.strip_prefix(kind).map(|rest| rest.trim_matches([' ', '`', '"']));
    if let Some(text) = of("string") {
        return format!("the string `{text}`");
    }
    if let Some(number) = of("integer").or(of("floating point")) {
        return format!("the number `{number}`");
    }
    if let Some(word) = of("boolean") {
        return format!("`{word}`");
    }
    match found {
        "null" => "`null`".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "a mapping".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Event {
        #[serde(rename = "time")]
        _time: f64,
        #[serde(rename = "kind")]
        _kind: Kind,
        #[serde(default, rename = "count")]
        _count: u32,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Start,
        End,
    }

    fn said(text: &str) -> String {
        let events: Result<Vec<Event>, _> = serde_json::from_str(text);
        let said = explain_json(&events.unwrap_err());
        for word in ["EOF", "f64", "u32", "struct", "variant", "field", "ident", "Event"] {
            assert!(!said.contains(word), "{text}: {said}");
        }
        said
    }

    #[test]
    fn json_mistakes_use_the_terms_of_the_file() {
        assert_eq!(said(""), "the file is empty");
        assert_eq!(said("[{"), "the file ends in the middle of a mapping: `}` is missing");
        assert_eq!(said("["), "the file ends in the middle of a list: `]` is missing");
        assert_eq!(
            said("[{\"time"),
            "the file ends in the middle of a string: a closing `\"` is missing"
        );
        assert_eq!(said("[{\"time\":"), "the file ends in the middle of a value");
        assert!(said("hello").starts_with("this is not JSON: expected `{`, `[`"));
        assert_eq!(said("[3]"), "expected a mapping, found the number `3`");
        assert_eq!(said("{}"), "expected a list, found a mapping");
        let quoted = "expected a number, found the string `5`: remove the quotation marks";
        assert_eq!(said("[{\"time\": \"5\"}]"), quoted);
        assert_eq!(
            said("[{\"count\": -1}]"),
            "expected a non-negative integer, found the number `-1`"
        );
        assert_eq!(said("[{\"time\": null}]"), "expected a number, found `null`");
        assert_eq!(said("[{}]"), "the key `time` is missing");
        assert_eq!(said("[{\"time\": 1, \"time\": 1}]"), "duplicate key `time`");
        assert_eq!(said("[{\"when\": 1}]"), "unknown key `when`; expected `time`, `kind`, `count`");
        assert_eq!(
            said("[{\"kind\": \"stop\"}]"),
            "unknown word `stop`; expected `start` or `end`"
        );
        assert_eq!(said("[{\"time\": 1,}]"), "nothing follows this comma: remove it");
        assert_eq!(said("[] []"), "the JSON ends before this: remove the rest");
    }
}
