// SPDX-License-Identifier: Apache-2.0
//! Paths as text, such as `/connections/port-connection[name=a]/config`. A backslash escapes `]` and `\` in
//! key values, and `/` and `[` in names.

use std::fmt::Write;

use crate::message::{Path, PathElem};

/// Maximum number of elements, over twice the length of any path in the models.
pub const STEPS_MAX: usize = 32;
/// Maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 256;

/// Parses a path. The error contains the position of the mistake.
pub fn parse(text: &str) -> Result<Path, String> {
    let mut elem = Vec::new();
    let mut rest = text.strip_prefix('/').unwrap_or(text);
    while !rest.is_empty() {
        let (name, after) = token(rest, &['/', '[']);
        if name.is_empty() {
            return Err(format!("`{text}`: an element has no name"));
        }
        let mut step = PathElem { name, ..PathElem::default() };
        rest = after;
        while let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = token(inner, &['=']);
            let after =
                after.strip_prefix('=').ok_or_else(|| format!("`{text}`: a key has no `=`"))?;
            let (value, after) = token(after, &[']']);
            rest =
                after.strip_prefix(']').ok_or_else(|| format!("`{text}`: a `[` is not closed"))?;
            step.key.insert(key, value);
        }
        elem.push(step);
        rest = match rest.strip_prefix('/') {
            Some(after) => after,
            None if rest.is_empty() => rest,
            None => return Err(format!("`{text}`: `/` is missing before `{rest}`")),
        };
    }
    Ok(Path { elem, ..Path::default() })
}

fn token<'a>(text: &'a str, ends: &[char]) -> (String, &'a str) {
    let mut token = String::new();
    let mut chars = text.char_indices();
    while let Some((at, letter)) = chars.next() {
        match letter {
            '\\' => token.extend(chars.next().map(|(_, letter)| letter)),
            _ if ends.contains(&letter) => return (token, &text[at..]),
            _ => token.push(letter),
        }
    }
    (token, "")
}

/// Formats a path.
pub fn text(path: &Path) -> String {
    let mut text = String::new();
    for step in &path.elem {
        text.push('/');
        escape(&mut text, &step.name, &['/', '[', '\\']);
        for (key, value) in &step.key {
            let _ = write!(text, "[{key}=");
            escape(&mut text, value, &[']', '\\']);
            text.push(']');
        }
    }
    if text.is_empty() { "/".into() } else { text }
}

fn escape(text: &mut String, of: &str, these: &[char]) {
    for letter in of.chars() {
        if these.contains(&letter) {
            text.push('\\');
        }
        text.push(letter);
    }
}

/// Appends a path to a prefix.
pub fn joined(prefix: Option<&Path>, path: Option<&Path>) -> Path {
    let elem = prefix.into_iter().chain(path).flat_map(|part| part.elem.iter().cloned()).collect();
    Path { elem, ..Path::default() }
}

/// Creates an element without keys.
pub fn step(name: &str) -> PathElem {
    PathElem { name: name.into(), ..PathElem::default() }
}

/// Creates an element for the list entry with the key `name`.
pub fn named(list: &str, name: &str) -> PathElem {
    PathElem { name: list.into(), key: [("name".to_owned(), name.to_owned())].into() }
}

/// Removes the module prefix: `a:b` becomes `b`.
pub fn bare(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, bare)| bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_special_key_characters_round_trip() {
        for written in [
            "/",
            "/connections/port-connection[name=a]/config",
            "/components/component[name=1\\/2 [x\\]]/ocp-ocs-port",
            "/a[k=1][l=\\\\]/b",
        ] {
            let path = parse(written).unwrap();
            assert_eq!(parse(&text(&path)).unwrap(), path, "{written}");
        }
        let path = parse("/c[name=a\\]b/c=d]").unwrap();
        assert_eq!(path.elem[0].key["name"], "a]b/c=d");
        for wrong in ["//a", "/a[b]", "/a[b=c", "/a[b=c]d"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
