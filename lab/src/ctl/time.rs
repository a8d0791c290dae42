// SPDX-License-Identifier: Apache-2.0

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Local};

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" => return Err(format!("the unit is missing: use `{text}s`, `{text}m` or `{text}h`")),
        unit => return Err(format!("unknown unit `{unit}`: use ms, s, m or h, as in `5m`")),
    };
    let count: u64 =
        digits.parse().map_err(|_| "expected a whole number and a unit, as in `5m`".to_owned())?;
    Ok(Duration::from_millis(count.saturating_mul(unit_ms)))
}

const CONFIRM_WITHIN_MAX: Duration = Duration::from_secs(168 * 3600);

/// Parses a duration above zero and of at most a week.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() {
        return Err("the time must be above 0".into());
    }
    if time > CONFIRM_WITHIN_MAX {
        return Err("the maximum is 168h (a week)".into());
    }
    Ok(time)
}

pub(super) fn until(unix_ms: u64) -> Option<f64> {
    let then = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms))?;
    Some(then.duration_since(SystemTime::now()).unwrap_or_default().as_secs_f64())
}

pub(super) fn clock_now() -> String {
    Local::now().format("%H:%M:%S").to_string()
}

pub(super) fn moment(unix_ms: u64) -> String {
    at(unix_ms, "%Y-%m-%d %H:%M:%S")
}

pub(super) fn clock_at(unix_ms: u64) -> String {
    at(unix_ms, "%H:%M:%S")
}

fn at(unix_ms: u64, how: &str) -> String {
    let utc = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    utc.map_or_else(|| "-".into(), |utc| utc.with_timezone(&Local).format(how).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_number_with_a_unit() {
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        let why = |text| duration(text).unwrap_err();
        assert_eq!(why("5"), "the unit is missing: use `5s`, `5m` or `5h`");
        assert_eq!(why("5x"), "unknown unit `x`: use ms, s, m or h, as in `5m`");
        assert_eq!(why("m"), "expected a whole number and a unit, as in `5m`");
        assert_eq!(why("1.5m"), "expected a whole number and a unit, as in `5m`");
        assert!(some_time("0s").is_err() && duration("0s").is_ok());
        assert!(some_time("168h").is_ok() && some_time("169h").unwrap_err().contains("168h"));
    }
}
