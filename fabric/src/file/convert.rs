// SPDX-License-Identifier: Apache-2.0
//! A fabric file of version 1 as one of version 2, its comments and its layout kept.
//!
//! Version 2 says what it is (`kind: fabric`, `version: 2`), and a step belongs to a job. Nothing else differs, so
//! only those lines are touched.

use serde_json::{Value, json};

use crate::document;

/// Why a file cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// No key of a fabric file.
    #[error("this is no fabric file: it has none of `hbd`, `dcn`, `jobs` and `step`")]
    NoFabric,
    /// A version that this program does not know.
    #[error("version {0} is not 1 or 2: this program is too old for it")]
    Version(String),
    /// Flow style of YAML that is no JSON.
    #[error("the whole file is one `{{…}}` that is no JSON: write one key a line, or JSON")]
    Flow,
    /// A `step:` beside `jobs:` that are written in brackets.
    #[error(
        "`step:` cannot be put among the `jobs: [...]`: write one job a line, or move it to its job"
    )]
    Jobs,
}

/// The text of version 2. `None` if `text` is of version 2 already.
///
/// # Errors
/// If it is no fabric file of version 1 that can be converted line by line.
pub fn convert(text: &str) -> Result<Option<String>, ConvertError> {
    let keys = document::top_keys(text.as_bytes());
    let has = |key: &str| keys.iter().any(|known| known == key);
    if !["hbd", "dcn", "jobs", "step"].into_iter().any(has) {
        return Err(ConvertError::NoFabric);
    }
    if text.trim_start().starts_with('{') {
        return convert_json(text);
    }
    let lines: Vec<&str> = text.lines().collect();
    let version = value_of(&lines, "version");
    match version.as_deref() {
        None | Some("1" | "2") => {}
        Some(other) => return Err(ConvertError::Version(other.to_owned())),
    }
    let is_current = has("kind") && version.as_deref() == Some("2");
    if is_current && !has("step") {
        return Ok(None);
    }
    let mut lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
    if has("step") {
        lines = with_step_in_job(lines, has("jobs"))?;
    }
    lines.retain(|line| key_of(line) != Some("version") && key_of(line) != Some("kind"));
    let first = lines.iter().position(|line| key_of(line).is_some()).unwrap_or(0);
    lines.splice(first..first, ["kind: fabric".to_owned(), "version: 2".to_owned()]);
    let mut converted = lines.join("\n");
    converted.push('\n');
    Ok(Some(converted))
}

/// The key of a line that stands at the top of the file.
fn key_of(line: &str) -> Option<&str> {
    let is_top = line.starts_with(|first: char| first.is_ascii_alphabetic() || first == '"');
    let (key, _) = line.split_once(':').filter(|_| is_top)?;
    Some(key.trim().trim_matches('"'))
}

/// What stands behind a key at the top, without its comment.
fn value_of(lines: &[&str], key: &str) -> Option<String> {
    let line = lines.iter().find(|line| key_of(line) == Some(key))?;
    let (_, value) = line.split_once(':')?;
    let value = value.split(" #").next().unwrap_or_default();
    Some(value.trim().to_owned())
}

/// The lines with the step at the top as that of a job of the fabric's name.
fn with_step_in_job(lines: Vec<String>, has_jobs: bool) -> Result<Vec<String>, ConvertError> {
    let borrowed: Vec<&str> = lines.iter().map(String::as_str).collect();
    let name = value_of(&borrowed, "name").unwrap_or_else(|| "job".to_owned());
    let (step, rest) = take_block(&lines, "step");
    let job = |dash: usize| {
        let (dash, inner) = (" ".repeat(dash), " ".repeat(dash + 2));
        let own = step.iter().map(move |line| match line.trim().is_empty() {
            true => line.clone(),
            false => format!("{inner}{line}"),
        });
        std::iter::once(format!("{dash}- name: {name}")).chain(own)
    };
    if !has_jobs {
        let at = lines.iter().position(|line| key_of(line) == Some("step")).unwrap_or(lines.len());
        let mut converted: Vec<String> = lines[..at].to_vec();
        converted.push("jobs:".to_owned());
        converted.extend(job(2));
        converted.extend_from_slice(&lines[at + step.len()..]);
        return Ok(converted);
    }
    let at = rest.iter().position(|line| key_of(line) == Some("jobs")).ok_or(ConvertError::Jobs)?;
    let (jobs, _) = take_block(&rest, "jobs");
    let item = jobs.iter().find(|line| line.trim_start().starts_with("- "));
    let indent = item.map(|line| line.len() - line.trim_start().len()).ok_or(ConvertError::Jobs)?;
    let mut converted: Vec<String> = rest[..at + jobs.len()].to_vec();
    converted.extend(job(indent));
    converted.extend_from_slice(&rest[at + jobs.len()..]);
    Ok(converted)
}

/// The lines of one key at the top, and the others. Comments and empty lines before the next key belong to that.
fn take_block(lines: &[String], key: &str) -> (Vec<String>, Vec<String>) {
    let Some(first) = lines.iter().position(|line| key_of(line) == Some(key)) else {
        return (Vec::new(), lines.to_vec());
    };
    let next = lines[first + 1..].iter().position(|line| key_of(line).is_some());
    let mut end = next.map_or(lines.len(), |next| first + 1 + next);
    while end > first + 1 && (lines[end - 1].trim().is_empty() || lines[end - 1].starts_with('#')) {
        end -= 1;
    }
    let rest = lines[..first].iter().chain(&lines[end..]).cloned().collect();
    (lines[first..end].to_vec(), rest)
}

fn convert_json(text: &str) -> Result<Option<String>, ConvertError> {
    let Ok(Value::Object(mut file)) = serde_json::from_str::<Value>(text) else {
        return Err(ConvertError::Flow);
    };
    let version = file.get("version").cloned();
    match version.as_ref().map(Value::as_u64) {
        None | Some(Some(1 | 2)) => {}
        Some(_) => return Err(ConvertError::Version(version.unwrap_or_default().to_string())),
    }
    let step = file.remove("step");
    let is_current = version == Some(json!(2)) && file.contains_key("kind");
    if is_current && step.is_none() {
        return Ok(None);
    }
    if let Some(step) = step {
        let job = json!({"name": file.get("name").cloned().unwrap_or_default(), "step": step});
        match file.entry("jobs").or_insert_with(|| json!([])) {
            Value::Array(jobs) => jobs.push(job),
            _ => return Err(ConvertError::Jobs),
        }
    }
    file.insert("kind".to_owned(), json!("fabric"));
    file.insert("version".to_owned(), json!(2));
    Ok(serde_json::to_string_pretty(&file).ok().map(|text| text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_comments_and_layout() {
        let old =
            "# A ring.\nname: r # its name\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}\n";
        let new = "# A ring.\nkind: fabric\nversion: 2\nname: r # its name\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}\n";
        assert_eq!(convert(old), Ok(Some(new.to_owned())));
        assert_eq!(convert(new), Ok(None));
    }

    #[test]
    fn step_moves_into_a_job() {
        let old =
            "name: s\ndcn: {}\nstep:\n  phases:\n    - name: a\n\n# How.\nplanning: {floor: 0.5}\n";
        let new = convert(old).unwrap().unwrap();
        let expected = "kind: fabric\nversion: 2\nname: s\ndcn: {}\njobs:\n  - name: s\n    step:\n      phases:\n        - name: \
                        a\n\n# How.\nplanning: {floor: 0.5}\n";
        assert_eq!(new, expected);
        let json =
            convert("{\"name\": \"s\", \"dcn\": {}, \"step\": {\"phases\": []}}").unwrap().unwrap();
        assert!(json.contains("\"jobs\"") && !json.starts_with("{\n  \"step\""), "{json}");
    }

    #[test]
    fn failed_conversion_states_the_reason() {
        assert_eq!(convert("name: x\n"), Err(ConvertError::NoFabric));
        assert_eq!(convert("version: 9\nhbd: {}\n"), Err(ConvertError::Version("9".into())));
        assert_eq!(convert("{name: x, hbd: {}}"), Err(ConvertError::Flow));
        assert_eq!(convert("jobs: [{name: a}]\nstep: {}\n"), Err(ConvertError::Jobs));
    }
}
