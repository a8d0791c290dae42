// SPDX-License-Identifier: Apache-2.0
//! Flattens replies to leaves. A device may send one JSON value per subtree, entry or leaf.

use lightloom_gnmi::message::{Notification, PathElem};
use lightloom_gnmi::path::{bare, joined};
use serde_json::Value as Json;

const LEAVES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 24;

pub(super) type Step = (String, Option<String>);

pub(super) type Leaf = (Vec<Step>, Json);

pub(super) fn leaves(notifications: &[Notification]) -> Result<Vec<Leaf>, String> {
    let mut found = Vec::new();
    for notification in notifications {
        for update in &notification.update {
            let path = joined(notification.prefix.as_ref(), update.path.as_ref());
            let value = update.val.as_ref().ok_or("a value is missing")?.to_json()?;
            let mut at: Vec<Step> = path.elem.iter().map(step).collect();
            walk(value, &mut at, &mut found)?;
        }
    }
    Ok(found)
}

pub(super) fn step(elem: &PathElem) -> Step {
    let key = elem.key.get("name").or_else(|| elem.key.get("peer-name"));
    (bare(&elem.name).to_owned(), key.cloned())
}

fn walk(value: Json, at: &mut Vec<Step>, found: &mut Vec<Leaf>) -> Result<(), String> {
    if at.len() > DEPTH_MAX || found.len() >= LEAVES_MAX {
        return Err("the reply is deeper or longer than the model allows".into());
    }
    match value {
        Json::Object(members) => {
            for (name, value) in members {
                at.push((bare(&name).to_owned(), None));
                walk(value, at, found)?;
                at.pop();
            }
        }
        Json::Array(entries) => {
            let (list, _) = at.pop().ok_or("a list without a name")?;
            for entry in entries {
                let mut keys = ["name", "peer-name"].into_iter();
                let key = keys.find_map(|name| entry.get(name).and_then(Json::as_str));
                at.push((list.clone(), key.map(str::to_owned)));
                walk(entry, at, found)?;
                at.pop();
            }
            at.push((list, None));
        }
        leaf => found.push((at.clone(), leaf)),
    }
    Ok(())
}
