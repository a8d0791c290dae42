// SPDX-License-Identifier: Apache-2.0
//! Differences between a result and an earlier result of the same verb.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use indexmap::IndexMap;

use super::{ABOUT, Tree};
use crate::files;
use crate::table::TextTable;

/// Rows of the table. Results with other inputs can differ in thousands of values.
const SHOWN: usize = 40;

#[derive(Clone, Debug)]
pub(super) struct Earlier {
    file: String,
    document: Arc<Tree>,
}

pub(super) fn earlier(path: &str) -> Result<Earlier, String> {
    let bytes = files::read_result(Path::new(path)).map_err(|error| format!("{error:#}"))?;
    let document = serde_json::from_slice(&bytes)
        .map_err(|_| "is not a JSON result: write one with `-o FILE.json`".to_owned())?;
    Ok(Earlier { file: path.to_owned(), document: Arc::new(document) })
}

impl Earlier {
    pub(super) fn differences(&self, this: &Tree) -> anyhow::Result<String> {
        if self.document.field("schema").and_then(Tree::text)
            != this.field("schema").and_then(Tree::text)
        {
            bail!(
                "{} is a result of another verb: use one that this verb wrote with -o",
                self.file
            );
        }
        let (now, then) = (values(this), values(&self.document));
        let names: Vec<&String> =
            now.keys().chain(then.keys().filter(|name| !now.contains_key(*name))).collect();
        let differing: Vec<_> =
            names.into_iter().filter(|name| now.get(*name) != then.get(*name)).collect();
        if differing.is_empty() {
            return Ok(format!("\nno difference from {}\n", self.file));
        }
        let mut table = TextTable::new(["value", "this result", &self.file, "change"]).verbatim();
        for name in differing.iter().take(SHOWN) {
            let [now, then] = [&now, &then]
                .map(|values| values.get(*name).map_or("-", String::as_str).to_owned());
            let change = change(&now, &then);
            table.row([(*name).clone(), now, then, change]);
        }
        let mut text = format!("\n{table}");
        if let Some(more) = differing.len().checked_sub(SHOWN + 1) {
            let _ = writeln!(text, "and {} more", more + 1);
        }
        Ok(text)
    }
}

fn change(now: &str, then: &str) -> String {
    match (now.parse::<f64>(), then.parse::<f64>()) {
        (Ok(now), Ok(then)) if then != 0.0 => format!("{:+.2} %", (now / then - 1.0) * 100.0),
        _ => String::new(),
    }
}

/// All values by name. A row of a table is named by its first value.
fn values(document: &Tree) -> IndexMap<String, String> {
    let mut values = IndexMap::new();
    let Tree::Fields(fields) = document else { return values };
    for (name, value) in fields {
        // Times and rates of the program itself differ in every run.
        if !ABOUT.contains(&name.as_str())
            && !name.contains("seconds")
            && !name.ends_with("per_second")
        {
            add(&mut values, name.clone(), value);
        }
    }
    values
}

fn add(values: &mut IndexMap<String, String>, name: String, value: &Tree) {
    match value {
        Tree::Plain(_) => drop(values.insert(name, value.text().unwrap_or_default())),
        Tree::Fields(fields) => {
            for (field, value) in fields {
                add(values, format!("{name}.{field}"), value);
            }
        }
        Tree::List(rows) if rows.iter().all(|row| matches!(row, Tree::Plain(_))) => {
            let all: Vec<String> = rows.iter().filter_map(Tree::text).collect();
            values.insert(name, all.join(" "));
        }
        Tree::List(rows) => {
            let mut labels = HashSet::new();
            for (at, row) in rows.iter().enumerate() {
                let first = match row {
                    Tree::Fields(fields) => fields.values().find_map(Tree::text),
                    Tree::List(_) | Tree::Plain(_) => None,
                };
                let label = match first {
                    Some(label) if labels.insert(label.clone()) => label,
                    Some(label) => format!("{label} #{at}"),
                    None => at.to_string(),
                };
                add(values, format!("{name}[{label}]"), row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{Earlier, Tree};

    fn tree(document: &serde_json::Value) -> Tree {
        Tree::of(document).unwrap()
    }

    #[test]
    fn values_that_differ_are_named_as_in_json() {
        let now = json!({"schema": "s", "version": "2", "took_seconds": 2, "metrics": {"waste": 0.2},
            "faults": [{"part": "n1", "restored_ps": 110}, {"part": "n2", "restored_ps": 7}]});
        let then = json!({"schema": "s", "version": "1", "took_seconds": 1, "metrics": {"waste": 0.2},
            "faults": [{"part": "n1", "restored_ps": 100}]});
        let earlier = Earlier { file: "old.json".to_owned(), document: Arc::new(tree(&then)) };
        let text = earlier.differences(&tree(&now)).unwrap();
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(
            rows.contains(&vec!["faults[n1].restored_ps", "110", "100", "+10.00", "%"]),
            "{text}"
        );
        assert!(rows.contains(&vec!["faults[n2].restored_ps", "7", "-"]), "{text}");
        assert!(
            !text.contains("waste") && !text.contains("took") && !text.contains("version"),
            "{text}"
        );
        assert_eq!(earlier.differences(&tree(&then)).unwrap(), "\nno difference from old.json\n");
    }
}
