// SPDX-License-Identifier: Apache-2.0
//! Data tree of a model, selectable by path and encoded as JSON or as leaves.

use std::collections::BTreeMap;

use lightloom_gnmi::Status;
use lightloom_gnmi::message::{DataType, Decimal64, Encoding, Path, PathElem, TypedValue, Value};
use lightloom_gnmi::model::{MODULES, PLATFORM};
use lightloom_gnmi::path::{bare, text};
use serde_json::Value as Json;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeafValue {
    Text(String),
    Bool(bool),
    Number(u32),
    /// RFC 7951 encodes 64-bit numbers as text.
    Counter(u64),
    Decimal(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeNode {
    Leaf(LeafValue),
    Tree(BTreeMap<&'static str, TreeNode>),
    List(&'static str, BTreeMap<String, TreeNode>),
}

const OPTIONAL: [&str; 7] = [
    "alias",
    "description",
    "status-reason",
    "input-optical-power",
    "output-optical-power",
    "peer",
    "input-port-name",
];

fn module(name: &str) -> Option<&'static str> {
    match name {
        "optical-switch" => Some(MODULES[0]),
        "connections" => Some(MODULES[1]),
        "ocp-ocs-port" => Some(MODULES[2]),
        "components" => Some(PLATFORM),
        _ => None,
    }
}

pub(crate) fn leaf(text: impl Into<String>) -> TreeNode {
    TreeNode::Leaf(LeafValue::Text(text.into()))
}

impl LeafValue {
    fn json(&self, is_ietf: bool) -> Json {
        match self {
            Self::Text(text) => Json::from(text.as_str()),
            Self::Bool(is) => Json::from(*is),
            Self::Number(number) => Json::from(*number),
            Self::Counter(count) if is_ietf => Json::from(count.to_string()),
            Self::Counter(count) => Json::from(*count),
            Self::Decimal(hundredths) => {
                #[expect(clippy::cast_precision_loss, reason = "the formatted power is short")]
                let value = *hundredths as f64 / 100.0;
                if is_ietf { Json::from(format!("{value:.2}")) } else { Json::from(value) }
            }
        }
    }

    fn scalar(&self) -> TypedValue {
        TypedValue::from(match self {
            Self::Text(text) => Value::Text(text.clone()),
            Self::Bool(is) => Value::Bool(*is),
            Self::Number(number) => Value::Uint(u64::from(*number)),
            Self::Counter(count) => Value::Uint(*count),
            Self::Decimal(digits) => Value::Decimal(Decimal64 { digits: *digits, precision: 2 }),
        })
    }
}

impl TreeNode {
    fn json(&self, is_ietf: bool) -> Json {
        match self {
            Self::Leaf(leaf) => leaf.json(is_ietf),
            Self::Tree(below) => {
                let members = below.iter().map(|(name, node)| {
                    let named = match module(name).filter(|_| is_ietf) {
                        Some(module) => format!("{module}:{name}"),
                        None => (*name).to_owned(),
                    };
                    (named, node.json(is_ietf))
                });
                Json::Object(members.collect())
            }
            Self::List(_, entries) => {
                Json::Array(entries.values().map(|entry| entry.json(is_ietf)).collect())
            }
        }
    }

    pub(crate) fn of_type(self, of: DataType) -> Self {
        let dropped = match of {
            DataType::All => return self,
            DataType::Config => "state",
            DataType::State | DataType::Operational => "config",
        };
        match self {
            Self::Leaf(_) => self,
            Self::Tree(mut below) => {
                below.remove(dropped);
                Self::Tree(below.into_iter().map(|(name, node)| (name, node.of_type(of))).collect())
            }
            Self::List(key, entries) => {
                let entries = entries.into_iter().map(|(name, node)| (name, node.of_type(of)));
                Self::List(key, entries.collect())
            }
        }
    }

    fn leaves<'a>(&'a self, at: &mut Vec<PathElem>, found: &mut Vec<(Path, &'a LeafValue)>) {
        match self {
            Self::Leaf(leaf) => found.push((Path { elem: at.clone(), ..Path::default() }, leaf)),
            Self::Tree(below) => {
                for (name, node) in below {
                    at.push(lightloom_gnmi::path::step(name));
                    node.leaves(at, found);
                    at.pop();
                }
            }
            Self::List(key, entries) => {
                let Some(step) = at.pop() else { return };
                for (name, node) in entries {
                    let key = [((*key).to_owned(), name.clone())].into();
                    at.push(PathElem { name: step.name.clone(), key });
                    node.leaves(at, found);
                    at.pop();
                }
                at.push(step);
            }
        }
    }

    /// `*` matches any entry. Fails if the path is outside the model or an entry is missing.
    pub(crate) fn select(&self, wanted: &Path) -> Result<Vec<(Path, &Self)>, Status> {
        let mut found = Vec::new();
        let is_open = wanted
            .elem
            .iter()
            .any(|step| step.name == "*" || step.key.values().any(|value| value == "*"));
        self.descend(&wanted.elem, &mut Vec::new(), &mut found)
            .map_err(|why| Status::invalid_argument(format!("{}: {why}", text(wanted))))?;
        if found.is_empty() && !is_open {
            return Err(Status::not_found(format!("{}: no data at this path", text(wanted))));
        }
        Ok(found)
    }

    fn descend<'a>(
        &'a self,
        steps: &[PathElem],
        at: &mut Vec<PathElem>,
        found: &mut Vec<(Path, &'a Self)>,
    ) -> Result<(), String> {
        let Some((step, rest)) = steps.split_first() else {
            found.push((Path { elem: at.clone(), ..Path::default() }, self));
            return Ok(());
        };
        let name = bare(&step.name);
        let Self::Tree(below) = self else {
            return Err(format!("`{name}` is below a leaf"));
        };
        if name == "..." {
            return Err(
                "`...` is not supported: use the full path, with `*` for any single step".into()
            );
        }
        let mut is_known = name == "*" || OPTIONAL.contains(&name);
        for (child, node) in below.iter().filter(|(child, _)| name == "*" || **child == name) {
            is_known = true;
            let plain = lightloom_gnmi::path::step(child);
            let Self::List(key, entries) = node else {
                if !step.key.is_empty() {
                    return Err(format!("`{child}` is not a list and has no keys"));
                }
                at.push(plain);
                let below = node.descend(rest, at, found);
                at.pop();
                if name != "*" {
                    below?;
                }
                continue;
            };
            if let Some(odd) = step.key.keys().find(|given| given.as_str() != *key) {
                return Err(format!("the key of `{child}` is `{key}`, not `{odd}`"));
            }
            let wanted = step.key.get(*key).filter(|wanted| *wanted != "*");
            for (entry, node) in
                entries.iter().filter(|(entry, _)| wanted.is_none_or(|w| w == *entry))
            {
                let key = [((*key).to_owned(), entry.clone())].into();
                at.push(PathElem { name: (*child).to_owned(), key });
                let below = node.descend(rest, at, found);
                at.pop();
                if name != "*" {
                    below?;
                }
            }
        }
        if is_known {
            Ok(())
        } else {
            Err(format!("`{name}` does not exist in the model at this path"))
        }
    }
}

/// Returns `None` for encodings that have no value for a whole tree.
fn in_json(encoding: Encoding, json: impl Fn(bool) -> Json) -> Option<TypedValue> {
    let is_ietf = match encoding {
        Encoding::JsonIetf => true,
        Encoding::Json => false,
        Encoding::Proto | Encoding::Bytes | Encoding::Ascii => return None,
    };
    let bytes = serde_json::to_vec(&json(is_ietf)).unwrap_or_default();
    Some(if is_ietf { Value::JsonIetf(bytes) } else { Value::Json(bytes) }.into())
}

pub(crate) fn values(at: Path, node: &TreeNode, encoding: Encoding) -> Vec<(Path, TypedValue)> {
    if let Some(value) = in_json(encoding, |is_ietf| node.json(is_ietf)) {
        return vec![(at, value)];
    }
    let mut found = Vec::new();
    node.leaves(&mut at.elem.clone(), &mut found);
    found.into_iter().map(|(path, leaf)| (path, leaf.scalar())).collect()
}

pub(crate) fn flat(
    at: &Path,
    node: &TreeNode,
    encoding: Encoding,
) -> Vec<(String, Path, TypedValue)> {
    let mut found = Vec::new();
    node.leaves(&mut at.elem.clone(), &mut found);
    let values = found.into_iter().map(|(path, leaf)| {
        let value = in_json(encoding, |is_ietf| leaf.json(is_ietf));
        (text(&path), path, value.unwrap_or_else(|| leaf.scalar()))
    });
    values.collect()
}
