// SPDX-License-Identifier: Apache-2.0
//! Units as types, so that a duration cannot be confused with a size, or a rate with a price.
//!
//! The engine's quantities are integers, so sums are independent of order. One byte at 100, 200, 400, 800 or 1600 Gb/s
//! takes a whole number of picoseconds (80, 40, 20, 10, 5). Money uses floating point.
//!
//! In JSON, a quantity is a plain number with its unit in the field name (`dark_time_ps`). In
//! user-written files, it is text with a unit such as `60us`, `400Gbps` or `4KiB` ([`Text`]).

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A quantity that users write as a number with a unit.
pub trait Quantity: Sized + Copy + fmt::Display {
    /// Noun phrase for messages, such as "a duration".
    const KIND: &'static str;
    /// Valid example for messages and schemas.
    const EXAMPLE: &'static str;
    /// Accepted suffixes and their factors to the base unit, as (numerator, denominator).
    const SUFFIXES: &'static [(&'static str, u128, u128)];
    fn from_base(base: u64) -> Self;
    fn base(self) -> u64;
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $example:literal, [$(($suffix:literal, $num:expr, $den:expr)),+ $(,)?]) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
            schemars::JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            pub const ZERO: Self = Self(0);
            pub const MAX: Self = Self(u64::MAX);
            pub const fn get(self) -> u64 {
                self.0
            }
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl Quantity for $name {
            const KIND: &'static str = $kind;
            const EXAMPLE: &'static str = $example;
            const SUFFIXES: &'static [(&'static str, u128, u128)] = &[$(($suffix, $num, $den)),+];
            fn from_base(base: u64) -> Self {
                Self(base)
            }
            fn base(self) -> u64 {
                self.0
            }
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl Mul<u64> for $name {
            type Output = Self;
            fn mul(self, times: u64) -> Self {
                Self(self.0 * times)
            }
        }
        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, Add::add)
            }
        }
        impl FromStr for $name {
            type Err = QuantityError;
            fn from_str(text: &str) -> Result<Self, QuantityError> {
                parse_quantity(text)
            }
        }
    };
}

unit! {
    /// A duration of simulated or physical time in picoseconds, up to 213 days.
    Picoseconds, "a duration", "60us",
    [("ps", 1, 1), ("ns", 1_000, 1), ("us", 1_000_000, 1), ("µs", 1_000_000, 1),
     ("ms", 1_000_000_000, 1), ("s", 1_000_000_000_000, 1), ("min", 60_000_000_000_000, 1),
     ("h", 3_600_000_000_000_000, 1)]
}
unit! {
    /// A duration of days or years, in milliseconds.
    Milliseconds, "a long duration", "90d",
    [("ms", 1, 1), ("s", 1_000, 1), ("min", 60_000, 1), ("h", 3_600_000, 1), ("d", 86_400_000, 1)]
}
unit! {
    /// A size, in bytes.
    Bytes, "a size", "4KiB",
    [("B", 1, 1), ("KiB", 1 << 10, 1), ("MiB", 1 << 20, 1), ("GiB", 1 << 30, 1), ("TiB", 1 << 40, 1),
     ("kB", 1_000, 1), ("KB", 1_000, 1), ("MB", 1_000_000, 1), ("GB", 1_000_000_000, 1), ("TB", 1_000_000_000_000, 1)]
}
unit! {
    /// A data rate, in bits per second.
    BitsPerSecond, "a data rate", "400Gbps",
    [("bps", 1, 1), ("kbps", 1_000, 1), ("Mbps", 1_000_000, 1), ("Gbps", 1_000_000_000, 1),
     ("Tbps", 1_000_000_000_000, 1), ("GB/s", 8_000_000_000, 1), ("TB/s", 8_000_000_000_000, 1)]
}

impl Picoseconds {
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos * 1_000)
    }
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000_000)
    }
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000_000)
    }
    /// Rounds to a whole picosecond.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e12).round() as u64)
    }
    /// Returns the seconds, for display and for formulas whose result is a ratio.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl Milliseconds {
    /// Returns the hours, for display and for formulas whose result is a ratio.
    pub fn as_hours(self) -> f64 {
        self.0 as f64 / 3.6e6
    }
}

const PS_OF_A_BYTE: u64 = 8 * 1_000_000_000_000;

impl BitsPerSecond {
    pub const fn from_gbps(gbps: u64) -> Self {
        Self(gbps * 1_000_000_000)
    }
    /// Rounds up to a whole picosecond. Panics if the rate is zero, but valid fabrics have no such rate.
    #[inline]
    pub fn time_for(self, size: Bytes) -> Picoseconds {
        assert!(self.0 > 0, "a link has a rate");
        // Up to 2.3 MB, this fits in 64 bits, where division is much faster.
        if let Some(scaled) = size.0.checked_mul(PS_OF_A_BYTE) {
            return Picoseconds(scaled.div_ceil(self.0));
        }
        let picoseconds =
            (u128::from(size.0) * u128::from(PS_OF_A_BYTE)).div_ceil(u128::from(self.0));
        Picoseconds(u64::try_from(picoseconds).unwrap_or(u64::MAX))
    }
    /// Returns the whole bytes transmitted in `time` at this rate.
    #[inline]
    pub fn bytes_in(self, time: Picoseconds) -> Bytes {
        // Up to 46 µs at 400 Gb/s, this fits in 64 bits, where division by a constant is fast.
        if let Some(scaled) = time.0.checked_mul(self.0) {
            return Bytes(scaled / PS_OF_A_BYTE);
        }
        Bytes((u128::from(time.0) * u128::from(self.0) / u128::from(PS_OF_A_BYTE)) as u64)
    }
    pub fn bytes_per_second(self) -> f64 {
        self.0 as f64 / 8.0
    }
}

/// An instant of simulated time, in picoseconds since the start of the run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct SimTime(pub u64);

impl SimTime {
    pub const START: Self = Self(0);
    /// Returns the time since `earlier`. Panics if that is later than `self`.
    pub fn since(self, earlier: Self) -> Picoseconds {
        assert!(earlier.0 <= self.0, "simulated time does not run backwards");
        Picoseconds(self.0 - earlier.0)
    }
}

impl Add<Picoseconds> for SimTime {
    type Output = Self;
    fn add(self, span: Picoseconds) -> Self {
        Self(self.0 + span.0)
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Picoseconds(self.0).fmt(f)
    }
}

/// Money in United States dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dollars(pub f64);

/// Returns the greatest common divisor.
pub const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the digits of a whole number with a comma between thousands.
pub fn thousands(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, scale: &[(u64, &str)]) -> fmt::Result {
    let &(factor, unit) =
        scale.iter().find(|(factor, _)| value >= *factor).unwrap_or(&scale[scale.len() - 1]);
    if value.is_multiple_of(factor) {
        return f.pad(&format!("{} {unit}", value / factor));
    }
    f.pad(&format!("{:.3} {unit}", value as f64 / factor as f64))
}

impl fmt::Display for Picoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = [
            (1_000_000_000_000, "s"),
            (1_000_000_000, "ms"),
            (1_000_000, "µs"),
            (1_000, "ns"),
            (1, "ps"),
        ];
        write_scaled(f, self.0, &scale)
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")];
        write_scaled(f, self.0, &scale)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
        write_scaled(f, self.0, &scale)
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = [
            (1_000_000_000_000, "Tb/s"),
            (1_000_000_000, "Gb/s"),
            (1_000_000, "Mb/s"),
            (1_000, "kb/s"),
            (1, "b/s"),
        ];
        write_scaled(f, self.0, &scale)
    }
}

/// Error of parsing a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error(
        "`{text}` is not {kind}; expected a number and a unit, such as `{example}` (units: \
            {units})"
    )]
    Spelling { text: String, kind: &'static str, example: &'static str, units: String },
    #[error("`{text}` is too large for {kind}")]
    TooLarge { text: String, kind: &'static str },
}

fn parse_quantity<Q: Quantity>(text: &str) -> Result<Q, QuantityError> {
    let spelling = || QuantityError::Spelling {
        text: text.to_owned(),
        kind: Q::KIND,
        example: Q::EXAMPLE,
        units: Q::SUFFIXES.iter().map(|(suffix, ..)| *suffix).collect::<Vec<_>>().join(", "),
    };
    let too_large = || QuantityError::TooLarge { text: text.to_owned(), kind: Q::KIND };
    let trimmed = text.trim();
    let digits_end =
        trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits_end);
    let &(_, numerator, denominator) =
        Q::SUFFIXES.iter().find(|(name, ..)| *name == suffix.trim()).ok_or_else(spelling)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(spelling());
    }
    if whole.len() + fraction.len() > 30 {
        return Err(too_large());
    }
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| spelling())?;
    let scaled = digits.checked_mul(numerator).ok_or_else(too_large)?;
    let divisor = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| too_large())?) * denominator;
    u64::try_from(scaled / divisor).map(Q::from_base).map_err(|_| too_large())
}

/// Text with a unit, used only in types that a file fills. All other types contain the bare quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<Q>(pub Q);

impl<'de, Q: Quantity + FromStr<Err = QuantityError>> Deserialize<'de> for Text<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Text).map_err(de::Error::custom)
    }
}

impl<Q: Quantity> Serialize for Text<Q> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&spell_exactly(self.0))
    }
}

/// For `#[serde(with = …)]`: a quantity that is [`Text`] in files.
pub mod as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Quantity, QuantityError, Text};

    pub fn serialize<Q: Quantity, S: Serializer>(
        quantity: &Q,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Text(*quantity).serialize(serializer)
    }

    pub fn deserialize<'de, Q, D: Deserializer<'de>>(deserializer: D) -> Result<Q, D::Error>
    where
        Q: Quantity + std::str::FromStr<Err = QuantityError>,
    {
        Text::deserialize(deserializer).map(|text| text.0)
    }
}

fn spell_exactly<Q: Quantity>(quantity: Q) -> String {
    let base = u128::from(quantity.base());
    let exact = Q::SUFFIXES.iter().filter(|(suffix, numerator, denominator)| {
        let usual = suffix.is_ascii() && !suffix.contains('/') && *denominator == 1;
        usual && *numerator <= base.max(1) && (base * 1000).is_multiple_of(*numerator)
    });
    let (suffix, numerator, _) = exact
        .max_by_key(|(_, numerator, _)| *numerator)
        .expect("every quantity is a whole number of its base unit");
    let thousandths = base * 1000 / numerator;
    let number = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    format!("{}{suffix}", number.trim_end_matches('0').trim_end_matches('.'))
}

impl<Q: Quantity> schemars::JsonSchema for Text<Q> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        Q::KIND.trim_start_matches("a ").replace(' ', "_").into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let units: Vec<&str> = Q::SUFFIXES.iter().map(|(suffix, ..)| *suffix).collect();
        schemars::json_schema!({
            "type": "string",
            "description": format!("{} with its unit ({})", Q::KIND, units.join(", ")),
            "pattern": format!("^[0-9]+(\\.[0-9]+)? *({})$", units.join("|")),
            "examples": [Q::EXAMPLE],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn serialisation_is_exact_at_the_rates_in_use() {
        for (gbps, ps_per_byte) in [(100, 80), (200, 40), (400, 20), (800, 10), (1600, 5)] {
            let rate = BitsPerSecond::from_gbps(gbps);
            assert_eq!(rate.time_for(Bytes(4096)), Picoseconds(4096 * ps_per_byte));
        }
    }

    proptest! {
        #[test]
        fn short_and_long_division_give_the_same_time(
            size in prop_oneof![0..10_000_u64, 2_305_842..2_305_844_u64, any::<u64>()],
            rate in 1..20_000_000_000_000_u64,
        ) {
            let exact = (u128::from(size) * 8_000_000_000_000).div_ceil(u128::from(rate));
            let exact = u64::try_from(exact).unwrap_or(u64::MAX);
            prop_assert_eq!(BitsPerSecond(rate).time_for(Bytes(size)), Picoseconds(exact));
        }
    }

    #[test]
    fn parses_quantities_with_fractions_and_units() {
        assert_eq!("60us".parse(), Ok(Picoseconds(60_000_000)));
        assert_eq!("1.5 GiB".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("6.4Tbps".parse(), Ok(BitsPerSecond(6_400_000_000_000)));
        assert_eq!("800GB/s".parse(), Ok(BitsPerSecond(6_400_000_000_000)));
    }

    #[test]
    fn written_quantities_are_short_and_exact() {
        let spell = |text: &str| spell_exactly(text.parse::<Picoseconds>().unwrap());
        for text in ["60us", "1ms", "100ns", "0ps", "1.5s", "2min", "60.000001us"] {
            assert_eq!(spell(text).parse::<Picoseconds>(), text.parse(), "{text}");
        }
        assert_eq!(spell("60us"), "60us");
        assert_eq!(spell("60000.001ns"), "60000.001ns");
        assert_eq!(spell_exactly(BitsPerSecond::from_gbps(3200)), "3.2Tbps");
        assert_eq!(spell_exactly(BitsPerSecond::from_gbps(400)), "400Gbps");
    }

    #[test]
    fn invalid_quantity_error_shows_the_format() {
        for text in ["60", "us", "60 lightyears", "-1us", "1..5us", "1.us", ""] {
            let error = text.parse::<Picoseconds>().unwrap_err();
            assert!(error.to_string().contains("60us"), "{error}");
        }
        let error = "99999999999999h".parse::<Picoseconds>().unwrap_err();
        assert!(matches!(error, QuantityError::TooLarge { .. }));
    }

    proptest! {
        #[test]
        fn written_quantities_round_trip(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            prop_assert_eq!(spell_exactly(Bytes(value)).parse(), Ok(Bytes(value)));
            prop_assert_eq!(spell_exactly(Picoseconds(value)).parse(), Ok(Picoseconds(value)));
            prop_assert_eq!(spell_exactly(BitsPerSecond(value)).parse(), Ok(BitsPerSecond(value)));
        }

        #[test]
        fn displayed_whole_quantities_round_trip(value in 0u64..1_000_000) {
            for size in [Bytes(value), Bytes(value << 20)] {
                let shown = size.to_string();
                if !shown.contains('.') {
                    prop_assert_eq!(shown.parse::<Bytes>().unwrap(), size);
                }
            }
        }
    }
}
