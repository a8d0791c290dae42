// SPDX-License-Identifier: Apache-2.0
//! Formatting of names and counts for text output.

/// Number of names shown per line.
pub const NAMES_MAX: usize = 6;

/// Formats a count with its noun: `1 device`, `64 devices`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Lists the first names in natural order, followed by the number of remaining ones.
pub fn named(mut names: Vec<String>, shown_max: usize) -> String {
    names.sort_by_cached_key(|name| natural(name));
    let more = names.len().saturating_sub(shown_max);
    names.truncate(shown_max);
    let shown = names.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Returns a sort key for natural order: n2 before n10.
pub fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0_u64, String::new())];
    for letter in name.chars() {
        let last = parts.len() - 1;
        match letter.to_digit(10) {
            Some(digit) if parts[last].1.is_empty() => {
                parts[last].0 = parts[last].0.saturating_mul(10).saturating_add(digit.into());
            }
            Some(digit) => parts.push((digit.into(), String::new())),
            None => parts[last].1.push(letter),
        }
    }
    parts
}

/// Formats a duration in whole seconds: `4 min 59 s`, `2 h 5 min`.
pub fn span(seconds: f64) -> String {
    let time = std::time::Duration::try_from_secs_f64(seconds.round()).unwrap_or_default();
    let time = time.as_secs();
    let (hours, minutes, seconds) = (time / 3600, time / 60 % 60, time % 60);
    match (hours, minutes, seconds) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

pub(crate) fn node(part: &str) -> &str {
    part.split('/').next().unwrap_or(part)
}

pub(crate) fn is_bundle(part: &str) -> bool {
    let split = part.strip_prefix('n').and_then(|rest| rest.split_once("/b"));
    split.is_some_and(|(node, bundle)| {
        [node, bundle]
            .iter()
            .all(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_names_in_natural_order() {
        let mut names = ["n10/b1", "ocs0", "n2/b0", "n10/b0", "n1/b0", "n2/b10", "n2/b9"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["n1/b0", "n2/b0", "n2/b9", "n2/b10", "n10/b0", "n10/b1", "ocs0"]);
        assert_eq!(named(names.map(str::to_owned).to_vec(), 2), "n1/b0, n2/b0 and 5 more");
        assert_eq!(["n1/b0", "n1", "n1/b0.1", "ocs0"].map(is_bundle), [true, false, false, false]);
    }

    #[test]
    fn formats_durations_for_reading() {
        let spans = [0.4, 59.6, 299.0, 300.0, 3600.0, 7500.0, -1.0].map(span);
        assert_eq!(spans, ["0 s", "1 min", "4 min 59 s", "5 min", "1 h", "2 h 5 min", "0 s"]);
    }
}
