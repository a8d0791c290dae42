// SPDX-License-Identifier: Apache-2.0
//! A plotting backend that writes SVG with classes instead of colours, so that the style sheet
//! decides for light, dark and print.
//!
//! Coordinates are tenths of a pixel, because the library uses integers and curves need a finer
//! resolution.

use std::fmt::Write;

use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{FontTransform, RGBColor};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

pub(super) const PER_PX: i32 = 10;

/// Returns the colour that encodes class `ink-N`: its blue component is N.
pub(super) const fn ink(number: u8) -> RGBColor {
    RGBColor(0, 0, number)
}

pub(super) const TEXT: u8 = 200;
pub(super) const AXIS: u8 = 201;
pub(super) const GRID: u8 = 202;

pub(super) struct Surface<'a> {
    out: &'a mut String,
    width_px: u32,
    height_px: u32,
}

impl<'a> Surface<'a> {
    pub(super) fn new(out: &'a mut String, width_px: u32, height_px: u32) -> Self {
        Self { out, width_px, height_px }
    }

    fn class(color: BackendColor, is_filled: bool) -> String {
        let kind = if is_filled { "fill" } else { "line" };
        match color.rgb.2 {
            TEXT => "label".to_owned(),
            AXIS => "axis".to_owned(),
            GRID => "grid".to_owned(),
            number => format!("{kind} ink-{number}"),
        }
    }

    fn path(&mut self, class: &str, points: impl IntoIterator<Item = BackendCoord>, close: &str) {
        let mut at: Option<BackendCoord> = None;
        let mut data = String::new();
        for (x, y) in points {
            // Relative moves are shorter than absolute coordinates.
            match at {
                None => _ = write!(data, "M{},{}", Px(x), Px(y)),
                Some(old) if old == (x, y) => {}
                Some((old, same)) if same == y => _ = write!(data, "h{}", Px(x - old)),
                Some((same, old)) if same == x => _ = write!(data, "v{}", Px(y - old)),
                Some((left, top)) => _ = write!(data, "l{},{}", Px(x - left), Px(y - top)),
            }
            at = Some((x, y));
        }
        let _ = writeln!(self.out, r#"<path class="{class}" d="{data}{close}"/>"#);
    }
}

/// Formats a coordinate in pixels with the fewest digits.
struct Px(i32);

impl std::fmt::Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, tenth) = (self.0.abs() / PER_PX, self.0.abs() % PER_PX);
        let sign = if self.0 < 0 { "-" } else { "" };
        match (whole, tenth) {
            (_, 0) => write!(f, "{sign}{whole}"),
            (0, _) => write!(f, "{sign}.{tenth}"),
            _ => write!(f, "{sign}{whole}.{tenth}"),
        }
    }
}

type Result = std::result::Result<(), DrawingErrorKind<std::fmt::Error>>;

impl DrawingBackend for Surface<'_> {
    type ErrorType = std::fmt::Error;

    fn get_size(&self) -> (u32, u32) {
        (self.width_px * PER_PX.unsigned_abs(), self.height_px * PER_PX.unsigned_abs())
    }

    fn ensure_prepared(&mut self) -> Result {
        Ok(())
    }

    fn present(&mut self) -> Result {
        Ok(())
    }

    fn draw_pixel(&mut self, _: BackendCoord, _: BackendColor) -> Result {
        Ok(())
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Result {
        if style.color().alpha > 0.0 {
            self.path(&Self::class(style.color(), false), [from, to], "");
        }
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Result {
        if style.color().alpha > 0.0 {
            self.path(&Self::class(style.color(), false), path, "");
        }
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Result {
        self.path(&Self::class(style.color(), true), corners, "Z");
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        (left, top): BackendCoord,
        (right, bottom): BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result {
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        self.path(&Self::class(style.color(), fill), corners, "Z");
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result {
        let anchor = match style.anchor().h_pos {
            HPos::Left => "start",
            HPos::Center => "middle",
            HPos::Right => "end",
        };
        let shift = match style.anchor().v_pos {
            VPos::Top => ".76em",
            VPos::Center => ".34em",
            VPos::Bottom => "-.2em",
        };
        let turn = match style.transform() {
            FontTransform::None => String::new(),
            FontTransform::Rotate90 => format!(r#" transform="rotate(90 {} {})""#, Px(x), Px(y)),
            FontTransform::Rotate180 => format!(r#" transform="rotate(180 {} {})""#, Px(x), Px(y)),
            FontTransform::Rotate270 => format!(r#" transform="rotate(270 {} {})""#, Px(x), Px(y)),
        };
        let class = Self::class(style.color(), true);
        let text = super::drawing::escaped(text);
        let _ = writeln!(
            self.out,
            r#"<text class="{class}" x="{}" y="{}" dy="{shift}" text-anchor="{anchor}"{turn}>{text}</text>"#,
            Px(x),
            Px(y),
        );
        Ok(())
    }
}
