// SPDX-License-Identifier: Apache-2.0
//! Horizontal bar charts. They use a labelled log axis if a linear one would reduce a bar to a
//! hairline.

use std::fmt::Write;

use plotters::chart::ChartBuilder;
use plotters::drawing::IntoDrawingArea;
use plotters::element::{PathElement, Rectangle};
use plotters::style::{Color, ShapeStyle};

use super::chart::framed;
use super::drawing::escaped;
use super::ink::{AXIS, GRID, PER_PX, Surface, ink};
use super::quantity::{ShownQuantity, ShownUnit};

#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) ink: u8,
    /// Start of the bar: 0 unless it is part of a timeline. A log axis shows its length from the
    /// left end.
    pub(super) start: f64,
    pub(super) value: f64,
    /// Low and high ends, drawn as a whisker.
    pub(super) spread: Option<(f64, f64)>,
    pub(super) label: String,
}

impl Bar {
    fn length(&self) -> f64 {
        self.value - self.start
    }
}

#[derive(Clone, Debug)]
pub(super) struct Bars {
    pub(super) title: &'static str,
    pub(super) unit: ShownUnit,
    pub(super) bars: Vec<Bar>,
}

const WIDTH_PX: u32 = 460;
const TOP_PX: u32 = 24;
/// Space for the value next to a bar.
const VALUES_PX: u32 = 104;
/// Space for the ticks of a log axis.
const TICKS_PX: u32 = 18;
/// Ratio of bar lengths above which the axis is logarithmic.
const MOST_TIMES: f64 = 30.0;
/// Maximum number of ticks of a log axis, without the first.
const MOST_TICKS: i32 = 4;

/// Position of names: next to their bars if all are short, otherwise above.
struct Names {
    bar_px: u32,
    left_px: u32,
    /// Centre and half height of a bar, in units of bars.
    middle: f64,
    half: f64,
}

const BESIDE: Names = Names { bar_px: 30, left_px: 104, middle: 0.5, half: 0.32 };
const ABOVE: Names = Names { bar_px: 46, left_px: 4, middle: 0.3, half: 0.22 };
const MOST_CHARS_BESIDE: usize = 13;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear {
        most: f64,
    },
    /// From a power of ten to `most`.
    Log {
        least_power: i32,
        most: f64,
    },
}

impl Scale {
    fn of(bars: &[Bar]) -> Self {
        let positive = || bars.iter().map(Bar::length).filter(|length| *length > 0.0);
        let longest = positive().fold(f64::MIN_POSITIVE, f64::max);
        let shortest = positive().fold(longest, f64::min);
        let reach = |bar: &Bar| bar.spread.map_or(bar.value, |(_, high)| high.max(bar.value));
        if longest <= MOST_TIMES * shortest {
            let most = bars.iter().map(reach).fold(f64::MIN_POSITIVE, f64::max);
            return Self::Linear { most };
        }
        let lows = bars.iter().filter_map(|bar| bar.spread).map(|(low, _)| low);
        let least = lows.filter(|low| *low > 0.0).fold(shortest, f64::min);
        let highs = bars.iter().filter_map(|bar| bar.spread).map(|(_, high)| high);
        // Leave half a power of ten below the smallest value, so that its bar is visible.
        let least_power = (least / 2.0).log10().floor() as i32;
        Self::Log { least_power, most: highs.fold(longest, f64::max) }
    }

    /// Returns the length of the axis.
    fn width(self) -> f64 {
        match self {
            Self::Linear { most } => most,
            Self::Log { least_power, most } => most.log10() - f64::from(least_power),
        }
    }

    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear { .. } => value,
            Self::Log { least_power, .. } if value > 0.0 => {
                (value.log10() - f64::from(least_power)).max(0.0)
            }
            Self::Log { .. } => 0.0,
        }
    }

    /// Returns both ends of a bar. `None` if it is zero on a log axis.
    fn ends(self, bar: &Bar) -> Option<(f64, f64)> {
        match self {
            Self::Linear { .. } => Some((bar.start, bar.value)),
            Self::Log { .. } => (bar.length() > 0.0).then(|| (0.0, self.place(bar.length()))),
        }
    }

    /// Returns the labelled powers of ten.
    fn ticks(self) -> Vec<i32> {
        let Self::Log { least_power, most } = self else { return Vec::new() };
        let last = most.log10().floor() as i32;
        let step = (last - least_power + MOST_TICKS - 1) / MOST_TICKS;
        (least_power..=last).step_by(usize::try_from(step).unwrap_or(1).max(1)).collect()
    }
}

impl Bars {
    /// Returns one drawing that is narrow enough for every screen.
    pub(super) fn svg(&self) -> String {
        let scale = Scale::of(&self.bars);
        let longest = self.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let names = if longest <= MOST_CHARS_BESIDE { BESIDE } else { ABOVE };
        let count = u32::try_from(self.bars.len()).unwrap_or(0);
        let (axis, ticks_px) = match scale {
            Scale::Linear { .. } => ("", 2),
            Scale::Log { .. } => (", log axis", TICKS_PX),
        };
        let height = TOP_PX + names.bar_px * count + ticks_px + 6;
        let title = escaped(self.title);
        let mut body = format!(r#"<text class="axis-title" x="2" y="12">{title}{axis}</text>"#);
        self.draw(&mut body, (scale, &names), height, ticks_px)
            .expect("writing to a text does not fail");
        framed("bars", WIDTH_PX, height, &body)
    }

    fn draw(
        &self,
        out: &mut String,
        (scale, names): (Scale, &Names),
        height: u32,
        ticks_px: u32,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let px = |px: u32| px * PER_PX.unsigned_abs();
        let count = self.bars.len() as f64;
        let mut ends = Vec::new();
        let mut ticks = Vec::new();
        {
            let area = Surface::new(out, WIDTH_PX, height).into_drawing_area();
            let mut chart = ChartBuilder::on(&area)
                .margin_top(px(TOP_PX))
                .margin_bottom(px(ticks_px + 4))
                .margin_left(px(names.left_px))
                .margin_right(px(VALUES_PX))
                .build_cartesian_2d(0.0..scale.width(), 0.0..count)?;
            let line = |points: Vec<(f64, f64)>, colour| {
                PathElement::new(points, ShapeStyle::from(ink(colour)))
            };
            for power in scale.ticks() {
                let value = 10f64.powi(power);
                let place = scale.place(value);
                chart.draw_series([line(vec![(place, 0.0), (place, count)], GRID)])?;
                let (x, y) = chart.backend_coord(&(place, 0.0));
                ticks.push((x / PER_PX, y / PER_PX, ShownQuantity::new(value, self.unit).tick()));
            }
            for (index, bar) in self.bars.iter().enumerate() {
                let middle = count - index as f64 - 1.0 + names.middle;
                let mut reach = 0.0;
                if let Some((start, end)) = scale.ends(bar) {
                    let corners = [(start, middle + names.half), (end, middle - names.half)];
                    chart.draw_series([Rectangle::new(corners, ink(bar.ink).filled())])?;
                    reach = end;
                }
                if let Some((low, high)) = bar.spread {
                    let (low, high) = (scale.place(low), scale.place(high));
                    chart.draw_series([
                        line(vec![(low, middle), (high, middle)], AXIS),
                        line(vec![(low, middle + 0.14), (low, middle - 0.14)], AXIS),
                        line(vec![(high, middle + 0.14), (high, middle - 0.14)], AXIS),
                    ])?;
                    reach = high.max(reach);
                }
                let (x, y) = chart.backend_coord(&(reach, middle));
                ends.push((x / PER_PX, y / PER_PX));
            }
        }
        for (x, y, text) in ticks {
            let y = y + 14;
            let anchor = if x < 30 { "start" } else { "middle" };
            let text = escaped(&text);
            let _ = write!(
                out,
                r#"<text class="label" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>"#
            );
        }
        for (bar, (x, y)) in self.bars.iter().zip(ends) {
            let (at, anchor) = if names.left_px == BESIDE.left_px {
                ((i64::from(names.left_px) - 8, y), "end")
            } else {
                ((i64::from(names.left_px), y - 19), "start")
            };
            let _ = write!(
                out,
                r#"<text class="label" x="{}" y="{}" dy=".34em" text-anchor="{anchor}">{}</text><text class="end" x="{}" y="{y}" dy=".34em">{}</text>"#,
                at.0,
                at.1,
                escaped(&bar.name),
                x + 8,
                escaped(&bar.label),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(lengths: &[f64]) -> Bars {
        let bar = |(index, length): (usize, &f64)| Bar {
            name: format!("bar {index}"),
            ink: 1,
            start: 0.0,
            value: *length,
            spread: None,
            label: ShownQuantity::new(*length, ShownUnit::Seconds).show(),
        };
        let bars = lengths.iter().enumerate().map(bar).collect();
        Bars { title: "time", unit: ShownUnit::Seconds, bars }
    }

    /// Returns the widths of the bars in pixels.
    fn widths(svg: &str) -> Vec<f64> {
        let paths = svg.split(r#"<path class="fill ink-1" d="M"#).skip(1);
        let width = |path: &str| -> f64 {
            let (_, across) = path.split_once('h').unwrap();
            across.split(|c: char| c.is_ascii_alphabetic()).next().unwrap().parse().unwrap()
        };
        paths.map(width).collect()
    }

    #[test]
    fn distant_bars_use_a_labelled_log_axis_with_visible_widths() {
        let svg = seconds(&[14.3e-6, 19.4e-6, 3.03e-3]).svg();
        assert!(svg.contains("time, log axis"), "{svg}");
        assert!(svg.contains("10\u{a0}µs") && svg.contains("1\u{a0}ms"), "{svg}");
        let widths = widths(&svg);
        assert_eq!(widths.len(), 3, "{svg}");
        assert!(widths.iter().all(|width| *width >= 8.0), "{widths:?}");
        let near = seconds(&[1.0, 29.0]).svg();
        assert!(!near.contains("log axis"), "{near}");
    }

    #[test]
    fn zero_has_no_bar_on_a_log_axis_and_is_shown_as_text() {
        let svg = seconds(&[0.0, 1e-6, 1.0]).svg();
        assert!(svg.contains("log axis") && svg.contains(">0\u{a0}s<"), "{svg}");
        assert_eq!(widths(&svg).len(), 2, "{svg}");
    }

    #[test]
    fn timeline_parts_on_a_log_axis_follow_their_duration() {
        let mut bars = seconds(&[1e-3, 1.0]);
        (bars.bars[1].start, bars.bars[1].value) = (1e-3, 2e-3);
        assert!(!bars.svg().contains("log axis"));
        bars.bars[1].value = 1.001;
        assert!(bars.svg().contains("log axis"));
    }

    #[test]
    fn names_are_never_cut() {
        let mut bars = seconds(&[1.0, 2.0]);
        bars.bars[0].name = "khop:3:spare (spare-node)".to_owned();
        assert!(bars.svg().contains(">khop:3:spare (spare-node)<"));
    }
}
