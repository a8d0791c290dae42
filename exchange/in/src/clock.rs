// SPDX-License-Identifier: Apache-2.0
//! Times in logs, in seconds since 1970.

use chrono::{DateTime, NaiveDateTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogTime {
    pub(crate) seconds: i64,
    pub(crate) has_zone: bool,
}

const NONE: &[&str] = &["", "unknown", "none", "null", "n/a", "nan"];

pub(crate) fn time(text: &str) -> Result<Option<LogTime>, String> {
    let text = text.trim();
    if NONE.contains(&&*text.to_ascii_lowercase()) {
        return Ok(None);
    }
    if let Ok(seconds) = text.parse::<i64>() {
        return Ok(Some(LogTime { seconds, has_zone: true }));
    }
    let forms = ["%Y-%m-%d %H:%M:%S%.f%:z", "%Y-%m-%dT%H:%M:%S%.f%z"];
    let zoned = DateTime::parse_from_rfc3339(text)
        .ok()
        .or_else(|| forms.iter().find_map(|form| DateTime::parse_from_str(text, form).ok()));
    if let Some(time) = zoned {
        return Ok(Some(LogTime { seconds: time.timestamp(), has_zone: true }));
    }
    let bare = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
    let bare = bare.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    match bare {
        Some(time) => Ok(Some(LogTime { seconds: time.and_utc().timestamp(), has_zone: false })),
        None => Err(text.to_owned()),
    }
}

pub(crate) fn shown(seconds: i64) -> String {
    let time = DateTime::from_timestamp(seconds, 0);
    time.map_or_else(|| seconds.to_string(), |time| time.format("%Y-%m-%d %H:%M").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_same_instant_in_every_format() {
        let seconds = |text: &str| time(text).unwrap().unwrap().seconds;
        for text in [
            "2023-03-01T00:18:54+08:00",
            "2023-03-01 00:18:54+08:00",
            "2023-02-28T16:18:54Z",
            "2023-02-28T16:18:54.000Z",
            "2023-02-28T16:18:54",
            "1677601134",
        ] {
            assert_eq!(seconds(text), 1_677_601_134, "{text}");
        }
        assert!(!time("2023-02-28T16:18:54").unwrap().unwrap().has_zone);
        assert_eq!(time("Unknown"), Ok(None));
        assert_eq!(time("yesterday"), Err("yesterday".to_owned()));
        assert_eq!(shown(1_677_601_134), "2023-02-28 16:18");
    }
}
