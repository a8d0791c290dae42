// SPDX-License-Identifier: Apache-2.0

use lightloom_units::thousands;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownUnit {
    Share,
    /// Difference of fractions, shown in signed percentage points.
    Gpus,
    Nodes,
    Usd,
    UsdPerBandwidth,
    Watts,
    Bandwidth,
    Count,
    Times,
    Days,
    Seconds,
    Bytes,
    PartsPerGpu,
}

impl ShownUnit {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Share => "fraction",
            Self::Gpus => "GPUs",
            Self::Nodes => "nodes",
            Self::Usd => "USD",
            Self::UsdPerBandwidth => "USD per GB/s",
            Self::Watts => "W",
            Self::Bandwidth => "GB/s",
            Self::Count => "count",
            Self::Times => "ratio",
            Self::Days => "d",
            Self::Seconds => "s",
            Self::Bytes => "B",
            Self::PartsPerGpu => "parts per GPU",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShownQuantity {
    pub(super) value: f64,
    pub(super) unit: ShownUnit,
}

impl ShownQuantity {
    pub(super) const fn new(value: f64, unit: ShownUnit) -> Self {
        Self { value, unit }
    }

    pub(super) const fn share(value: f64) -> Self {
        Self::new(value, ShownUnit::Share)
    }

    pub(super) const fn count(value: u64) -> Self {
        Self::new(value as f64, ShownUnit::Count)
    }

    pub(super) const fn time(ps: u64) -> Self {
        Self::new(ps as f64 * 1e-12, ShownUnit::Seconds)
    }

    pub(super) fn parts(self) -> (String, &'static str) {
        let value = self.value;
        match self.unit {
            ShownUnit::Share if value != 0.0 && value.abs() < LEAST_SHARE => {
                (format!("{}<0.0001", if value < 0.0 { "−" } else { "" }), "%")
            }
            ShownUnit::Share => (fixed(100.0 * value, share_decimals(value)), "%"),
            ShownUnit::Gpus => (fixed(value, 0), "GPUs"),
            ShownUnit::Nodes => (fixed(value, 0), "nodes"),
            ShownUnit::Usd => (dollars(value), ""),
            ShownUnit::UsdPerBandwidth => (dollars(value), "per GB/s"),
            ShownUnit::Watts => (fixed(value, 2), "W"),
            ShownUnit::Bandwidth => (fixed(value, 1), "GB/s"),
            ShownUnit::Count => (fixed(value, 0), ""),
            ShownUnit::Times => (fixed(value, 2), "×"),
            ShownUnit::Days => (fixed(value, 1), "d"),
            ShownUnit::Seconds => scaled(value),
            ShownUnit::Bytes => sized(value),
            ShownUnit::PartsPerGpu => (fixed(value, 4), "a GPU"),
        }
    }

    pub(super) fn show(self) -> String {
        let (digits, unit) = self.parts();
        match unit {
            "" => digits,
            "×" => format!("{digits}×"),
            unit => format!("{digits}\u{a0}{unit}"),
        }
    }
}

const LEAST_SHARE: f64 = 5e-7;

fn share_decimals(share: f64) -> usize {
    if share != 0.0 && share.abs() < 1e-4 { 4 } else { 2 }
}

pub(super) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut shown = String::new();
    if value < 0.0 && text.contains(|digit: char| ('1'..='9').contains(&digit)) {
        shown.push('−');
    }
    shown.push_str(&thousands(whole));
    if !fraction.is_empty() {
        shown.push('.');
        shown.push_str(fraction);
    }
    shown
}

fn dollars(usd: f64) -> String {
    let decimals = if usd.abs() < 10_000.0 { 2 } else { 0 };
    let text = fixed(usd, decimals);
    text.strip_prefix('−').map_or(format!("${text}"), |digits| format!("−${digits}"))
}

fn scaled(seconds: f64) -> (String, &'static str) {
    match seconds.abs() {
        size if size >= 1.0 => (fixed(seconds, 2), "s"),
        size if size >= 1e-3 => (fixed(seconds * 1e3, 2), "ms"),
        size if size >= 1e-6 => (fixed(seconds * 1e6, 2), "µs"),
        0.0 => ("0".to_owned(), "s"),
        _ => (fixed(seconds * 1e9, 2), "ns"),
    }
}

fn sized(bytes: f64) -> (String, &'static str) {
    const STEPS: [(f64, &str); 4] = [
        (1024.0 * 1024.0 * 1024.0 * 1024.0, "TiB"),
        (1024.0 * 1024.0 * 1024.0, "GiB"),
        (1024.0 * 1024.0, "MiB"),
        (1024.0, "KiB"),
    ];
    let step = STEPS.into_iter().find(|(size, _)| bytes >= *size);
    step.map_or_else(|| (fixed(bytes, 0), "B"), |(size, unit)| (fixed(bytes / size, 1), unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_commas_and_units() {
        let show = |value, unit| ShownQuantity::new(value, unit).show();
        assert_eq!(show(131_072.0, ShownUnit::Gpus), "131,072\u{a0}GPUs");
        assert_eq!(show(0.005_37, ShownUnit::Share), "0.54\u{a0}%");
        assert_eq!(show(-0.0, ShownUnit::Share), "0.00\u{a0}%");
        assert_eq!(show(0.000_017, ShownUnit::Share), "0.0017\u{a0}%");
        assert_eq!(show(3e-9, ShownUnit::Share), "<0.0001\u{a0}%");
        assert_eq!(show(-1234.5, ShownUnit::Usd), "−$1,234.50");
        assert_eq!(show(7e-5, ShownUnit::Seconds), "70.00\u{a0}µs");
        assert_eq!(show(3.0 * 1024.0, ShownUnit::Bytes), "3.0\u{a0}KiB");
        assert_eq!(show(18.78, ShownUnit::Times), "18.78×");
    }
}
