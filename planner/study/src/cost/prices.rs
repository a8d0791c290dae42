// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use lightloom_fabric::document::{self, Check, Diagnostic, codes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Level;

/// Prices of parts in US dollars, and their power in watts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceFile {
    /// The parts, each listed once.
    pub quotes: Vec<PriceRecord>,
}

/// The price and power of a part.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceRecord {
    /// Name used by designs, such as `ocstrx-800g`.
    pub part: String,
    /// Description of the part.
    pub what: String,
    /// Price of one part in US dollars.
    pub usd: QuoteRecord,
    /// Power of one part in watts.
    #[serde(default)]
    pub watts: Option<QuoteRecord>,
}

/// A value with its range and source.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuoteRecord {
    /// Lowest likely value.
    pub low: f64,
    /// Value used in calculations.
    pub mean: f64,
    /// Highest likely value.
    pub high: f64,
    /// Whether the range is from the source or an assumption.
    pub spread: Spread,
    /// Date of the value, such as `2025-08`.
    pub date: String,
    /// Source of the value.
    pub source: String,
    /// Confidence in the mean.
    pub confidence: Confidence,
}

/// Origin of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Stated by the sources.
    Quoted,
    /// Assumed: the mean ± 20 %.
    Assumed,
}

/// Confidence in a value, highest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    Read,
    /// Read in a third party's note about the source.
    ReadNote,
    /// Calculated from values that were read.
    Derived,
    /// Recalled from a paper and reproduced by an independent calculation.
    RecalledReproduced,
    /// The remainder of a recalled total, fitted to match the sum.
    Fitted,
    Assumed,
}

lightloom_units::display_as_serialized!(Confidence);

impl QuoteRecord {
    pub const fn at(&self, level: Level) -> f64 {
        match level {
            Level::Low => self.low,
            Level::Mean => self.mean,
            Level::High => self.high,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct PriceList {
    quotes: BTreeMap<String, PriceRecord>,
}

impl PriceList {
    pub fn quote(&self, part: &str) -> Option<&PriceRecord> {
        self.quotes.get(part)
    }

    /// Returns prices of more than two years before `months`, counted from year 0, with their dates.
    pub fn older_than_two_years(&self, months: u64) -> Vec<String> {
        let prices = self.quotes.iter().map(|(part, quote)| (part, &quote.usd.date));
        let old = prices.filter(|(_, date)| months_of(date).is_some_and(|of| of + 24 < months));
        old.map(|(part, date)| format!("the price of `{part}`, from {date},")).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &PriceRecord)> {
        self.quotes.iter().map(|(part, quote)| (part.as_str(), quote))
    }
}

fn months_of(date: &str) -> Option<u64> {
    let (year, month) = date.split_once('-').unwrap_or((date, "12"));
    Some(year.parse::<u64>().ok()? * 12 + month.parse::<u64>().ok()?)
}

/// Reads a price file, named `name` in messages. The list is `None` if the file contains errors.
pub fn read_prices(name: &str, bytes: &[u8]) -> (Option<PriceList>, Vec<Diagnostic>) {
    document::load(name, bytes, price_list)
}

fn price_list(file: PriceFile, check: &mut Check<'_>) -> Option<PriceList> {
    let mut quotes = BTreeMap::new();
    let mut first_at: BTreeMap<String, usize> = BTreeMap::new();
    for (index, record) in file.quotes.into_iter().enumerate() {
        let part = record.part.clone();
        check_range(check, &record.usd, &format!("/quotes/{index}/usd"));
        if let Some(watts) = &record.watts {
            check_range(check, watts, &format!("/quotes/{index}/watts"));
        }
        if let Some(first) = first_at.get(&part) {
            let path = format!("/quotes/{index}/part");
            check
                .error(codes::BAD_VALUE, &path, format!("the part `{part}` has a second price"))
                .help("remove one of them")
                .also(&format!("/quotes/{first}/part"), "the first price is here");
        }
        first_at.entry(part.clone()).or_insert(index);
        quotes.insert(part, record);
    }
    (!check.has_errors()).then_some(PriceList { quotes })
}

fn check_range(check: &mut Check<'_>, quote: &QuoteRecord, path: &str) {
    let QuoteRecord { low, mean, high, .. } = *quote;
    let is_ordered = 0.0 <= low && low <= mean && mean <= high && high.is_finite();
    if !is_ordered {
        let message = format!("{low}, {mean}, {high}: expected 0 ≤ low ≤ mean ≤ high");
        check
            .error(codes::BAD_VALUE, path, message)
            .help("use non-negative numbers in ascending order");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(part: &str, low: f64) -> String {
        format!(
            "- part: {part}\n  what: a part\n  usd: {{low: {low}, mean: 2, high: 3, spread: assumed, \
             date: 2025-08, source: a test, confidence: assumed}}\n"
        )
    }

    fn mistakes(parts: &[String]) -> Vec<String> {
        let text = format!("quotes:\n{}", parts.concat());
        let (list, diagnostics) = read_prices("prices.yaml", text.as_bytes());
        assert_eq!(list.is_none(), !diagnostics.is_empty());
        diagnostics.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn prices_of_more_than_two_years_ago_are_named() {
        let text = format!("quotes:\n{}", record("dac", 1.0));
        let list = read_prices("prices.yaml", text.as_bytes()).0.unwrap();
        assert_eq!(list.older_than_two_years(2027 * 12 + 8), [""; 0]);
        assert_eq!(list.older_than_two_years(2027 * 12 + 9), ["the price of `dac`, from 2025-08,"]);
    }

    #[test]
    fn part_has_one_price_with_an_ordered_range() {
        assert_eq!(mistakes(&[record("dac", 1.0)]), [""; 0]);
        let both = mistakes(&[record("dac", 1.0), record("dac", 2.5)]);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[0].contains("the part `dac` has a second price"), "{both:?}");
        assert!(both[1].contains("2.5, 2, 3: expected 0 ≤ low ≤ mean ≤ high"), "{both:?}");
        assert!(mistakes(&[record("dac", -1.0)])[0].contains("-1, 2, 3"));
    }
}
