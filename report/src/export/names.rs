// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

/// Unique and valid host names of all nodes or leaves, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportNames(Vec<String>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("`{0}` must contain the number once, as `{{}}`, or `{{:04}}` for 0017")]
    Template(String),
    #[error(
        "`{0}` is not a host name: use lower-case letters, digits, `-` and `.`, \
         with a letter or digit at both ends, 253 characters at most (RFC 1123)"
    )]
    NotAHost(String),
    #[error("line {line}: expected an id and a name, such as `{prefix}17 gpu-a-17`")]
    NoPair { line: usize, prefix: &'static str },
    #[error("line {line}: `{id}` does not exist; the fabric has {prefix}0 to {prefix}{last}")]
    NoSuchId { line: usize, id: String, prefix: &'static str, last: u32 },
    #[error("line {line}: `{what}` is already in line {first}")]
    Twice { line: usize, what: String, first: usize },
    #[error("{count} without a name; the first is `{first}`")]
    Missing { count: usize, first: String },
}

impl ExportNames {
    pub fn ids(prefix: &'static str, count: u32) -> Self {
        Self((0..count).map(|number| format!("{prefix}{number}")).collect())
    }

    /// `gpu{:04}` yields `gpu0017`. Fails for an invalid host name or a template without exactly one number.
    pub fn from_template(template: &str, count: u32) -> Result<Self, NameError> {
        let error = || NameError::Template(template.to_owned());
        let (before, rest) = template.split_once('{').ok_or_else(error)?;
        let (spec, after) = rest.split_once('}').ok_or_else(error)?;
        if after.contains(['{', '}']) || before.contains('}') {
            return Err(error());
        }
        let width = match spec.strip_prefix(":0") {
            Some(digits) => digits.parse().ok().filter(|width| *width <= 20).ok_or_else(error)?,
            None if spec.is_empty() => 0,
            None => return Err(error()),
        };
        (0..count)
            .map(|number| host(&format!("{before}{number:0width$}{after}")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Parses lines of an id, blanks or a comma, and a name. `#` starts a comment. Fails on duplicates and missing ids.
    pub fn from_list(text: &str, prefix: &'static str, count: u32) -> Result<Self, NameError> {
        let mut names = vec![String::new(); count as usize];
        let mut seen = BTreeMap::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default();
            let mut words = content.split([' ', '\t', ',']).filter(|word| !word.is_empty());
            let (id, name) = match (words.next(), words.next(), words.next()) {
                (None, ..) => continue,
                (Some(id), Some(name), None) => (id, host(name)?),
                _ => return Err(NameError::NoPair { line, prefix }),
            };
            let number = id.strip_prefix(prefix).and_then(|digits| digits.parse::<u32>().ok());
            let number = number.filter(|number| *number < count).ok_or_else(|| {
                let last = count.saturating_sub(1);
                NameError::NoSuchId { line, id: id.to_owned(), prefix, last }
            })?;
            let keys = [(format!("id {number}"), id), (format!("name {name}"), name.as_str())];
            for (key, what) in keys {
                if let Some(first) = seen.insert(key, line) {
                    return Err(NameError::Twice { line, what: what.to_owned(), first });
                }
            }
            names[number as usize] = name;
        }
        let missing: Vec<usize> =
            (0..names.len()).filter(|number| names[*number].is_empty()).collect();
        match missing.first() {
            None => Ok(Self(names)),
            Some(first) => {
                let first = format!("{prefix}{first}");
                Err(NameError::Missing { count: missing.len(), first })
            }
        }
    }

    pub fn of(&self, index: usize) -> &str {
        &self.0[index]
    }
}

/// RFC 1123 (section 2.1), but only in lower case, as Kubernetes requires.
fn host(name: &str) -> Result<String, NameError> {
    let is_sound = name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        });
    is_sound.then(|| name.to_owned()).ok_or_else(|| NameError::NotAHost(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_numbers_hosts() {
        let names = ExportNames::from_template("gpu{:04}.pod-a", 18).unwrap();
        assert_eq!(names.of(17), "gpu0017.pod-a");
        assert_eq!(ExportNames::from_template("n{}", 3).unwrap(), ExportNames::ids("n", 3));
        for template in ["gpu", "{}{}", "gpu{", "gpu{x}", "gpu{:4}", "{}}"] {
            let error = ExportNames::from_template(template, 3).unwrap_err();
            assert_eq!(error, NameError::Template(template.into()));
        }
        for template in ["GPU{}", "gpu_{}", "-{}", "{}-"] {
            let error = ExportNames::from_template(template, 3).unwrap_err();
            assert!(matches!(error, NameError::NotAHost(_)), "{error}");
        }
    }

    #[test]
    fn list_names_every_host_once() {
        let names = ExportNames::from_list("# mine\nn1, b\n\nn0\ta # first\n", "n", 2).unwrap();
        assert_eq!((names.of(0), names.of(1)), ("a", "b"));
        let error = |text: &str| ExportNames::from_list(text, "n", 2).unwrap_err().to_string();
        assert_eq!(error("n0 a\nn1"), "line 2: expected an id and a name, such as `n17 gpu-a-17`");
        assert_eq!(error("n0 a\nn2 b"), "line 2: `n2` does not exist; the fabric has n0 to n1");
        assert_eq!(error("n0 a\nn1 a"), "line 2: `a` is already in line 1");
        assert_eq!(error("n0 a\nn0 b"), "line 2: `n0` is already in line 1");
        assert_eq!(error("n1 a"), "1 without a name; the first is `n0`");
    }
}
