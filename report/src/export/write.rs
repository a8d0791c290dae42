// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;

pub(super) const ANY_TEXT: &str = "writing to a string cannot fail";

/// Quotes text so that it is valid in both JSON and YAML 1.2 (YAML 1.2.2, section 1.3).
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Invalid characters become `-`; at most 63 remain (Kubernetes, "Labels and Selectors: syntax and character set").
pub(super) fn label_value(text: &str) -> String {
    let kept: String = text.chars().take(63).collect();
    let kept = kept.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "-");
    kept.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

pub(super) fn object_name(text: &str) -> String {
    let name = label_value(text).to_lowercase().replace(['_', '.'], "-");
    if name.is_empty() { "fabric".to_owned() } else { name }
}

/// Formats hosts in the syntax of Slurm (hostlist) and Topograph (cluset), such as `gpu[001-004,009],login`.
pub(super) fn host_list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut runs: Vec<NameRange<'n>> = Vec::new();
    for name in names {
        let next = NameRange::new(name);
        if !runs.last_mut().is_some_and(|run| run.take(&next)) {
            runs.push(next);
        }
    }
    let mut list = String::new();
    for (index, run) in runs.iter().enumerate() {
        if index > 0 {
            list.push(',');
        }
        run.write(&mut list);
    }
    list
}

struct NameRange<'n> {
    name: &'n str,
    prefix: &'n str,
    /// Number of digits with leading zeros, otherwise 0.
    width: usize,
    ranges: Vec<(u64, u64)>,
}

impl<'n> NameRange<'n> {
    fn new(name: &'n str) -> Self {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[prefix.len()..];
        let width = if digits.len() > 1 && digits.starts_with('0') { digits.len() } else { 0 };
        let number = digits.parse::<u64>().ok();
        Self { name, prefix, width, ranges: number.iter().map(|n| (*n, *n)).collect() }
    }

    fn take(&mut self, next: &Self) -> bool {
        let Some(&(number, _)) = next.ranges.first() else { return false };
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let fits = self.width == next.width || (next.width == 0 && digits == self.width);
        if self.ranges.is_empty() || self.prefix != next.prefix || !fits {
            return false;
        }
        match self.ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => self.ranges.push((number, number)),
        }
        true
    }

    fn write(&self, list: &mut String) {
        let alone = self.ranges.iter().all(|(first, last)| first == last) && self.ranges.len() < 2;
        if alone {
            list.push_str(self.name);
            return;
        }
        let width = self.width;
        let mut sign = '[';
        list.push_str(self.prefix);
        for (first, last) in &self.ranges {
            list.push(sign);
            sign = ',';
            let written = match last - first {
                0 => write!(list, "{first:0width$}"),
                _ => write!(list, "{first:0width$}-{last:0width$}"),
            };
            written.expect(ANY_TEXT);
        }
        list.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_lists_are_short_and_keep_the_order() {
        let list = |names: &[&str]| host_list(names.iter().copied());
        assert_eq!(list(&["n8", "n9", "n10", "n11"]), "n[8-11]");
        assert_eq!(list(&["n3", "n1", "n2", "n9"]), "n[3,1-2,9]");
        assert_eq!(list(&["g008", "g009", "g010", "g100"]), "g[008-010,100]");
        assert_eq!(list(&["g01", "g1", "x", "login"]), "g01,g1,x,login");
        assert_eq!(list(&["a7", "b8", "b9.pod", "b10.pod"]), "a7,b8,b9.pod,b10.pod");
        assert_eq!(list(&["n7"]), "n7");
    }

    #[test]
    fn labels_contain_only_valid_kubernetes_characters() {
        assert_eq!(label_value("llama 3.1 (pre-train)"), "llama-3.1--pre-train");
        assert_eq!(label_value("ok_1.2"), "ok_1.2");
        assert_eq!(label_value(&"x".repeat(70)).len(), 63);
        assert_eq!(object_name("My Fabric_1"), "my-fabric-1");
        assert_eq!(object_name("***"), "fabric");
    }
}
