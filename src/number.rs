// SPDX-License-Identifier: Apache-2.0
//! Value parsers of options that take a number.

use std::ops::RangeInclusive;

/// Parses a whole number from `range`. Errors state the range, and the digits of a number such as `1k` or `1e9`.
pub fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let allowed = format!("from {} to {}", range.start(), range.end());
        if let Ok(number) = text.parse::<i128>() {
            let number = u64::try_from(number).ok().filter(|number| range.contains(number));
            let number = number.and_then(|number| T::try_from(number).ok());
            return number.ok_or_else(|| format!("{text} is out of range: use a number {allowed}"));
        }
        let digits = in_digits(text).into_iter().filter(|number| range.contains(number));
        let digits: Vec<String> = digits.map(|number| number.to_string()).collect();
        Err(match digits.is_empty() {
            true => format!("`{text}` is not a whole number {allowed}"),
            false => format!("`{text}` is not a whole number: write {}", digits.join(" or ")),
        })
    }
}

fn within(text: &str, most: f64, what: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=most).contains(value));
    value.ok_or_else(|| format!("expected {what} from 0 to {most}"))
}

/// Parses the standard deviation of a logarithm.
pub fn sigma(text: &str) -> Result<f64, String> {
    within(text, 4.0, "a number")
}

/// Parses a percentage. Rejects shares such as `0.99`.
pub fn percent(text: &str) -> Result<f64, String> {
    let value = within(text, 100.0, "percent")?;
    if value > 0.0 && value < 1.0 {
        let percent = (value * 1e6).round() / 1e4;
        return Err(format!("{text} means {text} %: write {percent} for {percent} %"));
    }
    Ok(value)
}

/// Returns the numbers that `1k`, `2M`, `1e9`, `1_000` or `8.0` may mean.
fn in_digits(text: &str) -> Vec<u64> {
    let text = text.replace(['_', ',', ' '], "");
    let factors: &[f64] = match text.chars().last() {
        Some('k' | 'K') => &[1e3, 1024.0],
        Some('m' | 'M') => &[1e6, 1_048_576.0],
        _ => &[1.0],
    };
    let number = text.trim_end_matches(['k', 'K', 'm', 'M']).parse::<f64>().unwrap_or(f64::NAN);
    let numbers = factors.iter().map(|factor| number * factor);
    let whole = numbers.filter(|number| (0.0..=1e18).contains(number) && number.fract() == 0.0);
    whole.map(|number| number as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_numbers_are_explained() {
        let read = |text: &str| whole::<u32>(1..=1_000_000)(text);
        assert_eq!(read("64"), Ok(64));
        let why = |text: &str| read(text).unwrap_err();
        assert_eq!(why("-5"), "-5 is out of range: use a number from 1 to 1000000");
        assert_eq!(why("0"), "0 is out of range: use a number from 1 to 1000000");
        assert_eq!(why("8k"), "`8k` is not a whole number: write 8000 or 8192");
        assert_eq!(why("1e3"), "`1e3` is not a whole number: write 1000");
        assert_eq!(why("1e9"), "`1e9` is not a whole number from 1 to 1000000");
        assert_eq!(why("1_000"), "`1_000` is not a whole number: write 1000");
        assert_eq!(why("many"), "`many` is not a whole number from 1 to 1000000");
    }
}
