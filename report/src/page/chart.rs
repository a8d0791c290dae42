// SPDX-License-Identifier: Apache-2.0
//! Line charts, rendered for wide and for narrow screens with text of the same size. Labels at the
//! ends of curves replace a legend.

use std::fmt::Write;
use std::ops::Range;

use plotters::chart::ChartBuilder;
use plotters::drawing::IntoDrawingArea;
use plotters::element::PathElement;
use plotters::style::{Color, IntoFont, TRANSPARENT};

use super::drawing::escaped;
use super::ink::{AXIS, GRID, PER_PX, Surface, TEXT, ink};

#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) ink: u8,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) label: String,
    /// Value at the end, shown if there is space.
    pub(super) value: String,
    pub(super) hover: String,
}

/// Returns the largest x and y of the curves, or zero without points.
pub(super) fn reach(curves: &[Curve]) -> (f64, f64) {
    let points = curves.iter().flat_map(|curve| &curve.points);
    points.fold((0.0, 0.0), |(right, most), &(x, y)| (right.max(x), most.max(y)))
}

#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) range: Range<f64>,
    pub(super) title: &'static str,
    pub(super) show: fn(f64) -> String,
}

/// Curves with a common x axis.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) curves: Vec<Curve>,
    /// Height on wide and narrow screens.
    pub(super) heights_px: [u32; 2],
    /// Whether the area below the curves is filled.
    pub(super) is_filled: bool,
    /// An x value to annotate, with the text.
    pub(super) remark: Option<(f64, String)>,
}

/// Pixel positions of curve ends and the annotation.
type CurveEnds = (Vec<(i32, i32)>, Option<(i32, i32, String)>);

const WIDTHS_PX: [u32; 2] = [960, 340];
const VARIANTS: [&str; 2] = ["wide", "narrow"];
/// Space for the labels at the right.
const LABELS_PX: [u32; 2] = [150, 96];
const LINE_PX: i32 = 15;

impl Plot {
    pub(super) fn svg(&self) -> String {
        (0..2).map(|variant| self.variant(variant)).collect()
    }

    fn variant(&self, variant: usize) -> String {
        let (width, height) = (WIDTHS_PX[variant], self.heights_px[variant]);
        let mut body = String::new();
        let (ends, remark) =
            self.draw(&mut body, variant).expect("writing to a text does not fail");
        let left = 2;
        let _ = write!(
            body,
            r#"<text class="axis-title" x="{left}" y="11">{}</text>"#,
            escaped(self.y.title)
        );
        let bottom = height - 4;
        let middle = (width - LABELS_PX[variant]) / 2 + 24;
        let _ = write!(
            body,
            r#"<text class="axis-title" x="{middle}" y="{bottom}" text-anchor="middle">{}</text>"#,
            escaped(self.x.title)
        );
        label_ends(&mut body, &self.curves, &ends, variant, height);
        if let Some((x, y, text)) = remark {
            // On the side with more space.
            let is_left = x > i32::try_from(width / 2).unwrap_or(0);
            let (x, anchor) = if is_left { (x - 5, "end") } else { (x + 5, "start") };
            let _ = write!(
                body,
                r#"<text class="remark" x="{x}" y="{}" text-anchor="{anchor}">{}</text>"#,
                y + 4,
                escaped(&text)
            );
        }
        framed(VARIANTS[variant], width, height, &body)
    }

    /// Draws axes and curves. Returns the pixel position of each curve's end.
    fn draw(
        &self,
        out: &mut String,
        variant: usize,
    ) -> Result<CurveEnds, Box<dyn std::error::Error>> {
        let px = |px: u32| px * PER_PX.unsigned_abs();
        let (width, height) = (WIDTHS_PX[variant], self.heights_px[variant]);
        let area = Surface::new(out, width, height).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin_top(px(24))
            .margin_right(px(LABELS_PX[variant]))
            .set_left_and_bottom_label_area_size(px(46))
            .build_cartesian_2d(self.x.range.clone(), self.y.range.clone())?;
        let label = ("sans-serif", f64::from(12 * PER_PX)).into_font().color(&ink(TEXT));
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(if variant == 0 { 9 } else { 4 })
            .y_labels(if variant == 0 { 6 } else { 5 })
            .light_line_style(TRANSPARENT)
            .bold_line_style(ink(GRID))
            .axis_style(ink(AXIS))
            .label_style(label)
            .x_label_formatter(&|x| (self.x.show)(*x))
            .y_label_formatter(&|y| (self.y.show)(*y))
            .set_all_tick_mark_size(px(4))
            .draw()?;
        let columns = f64::from(width - LABELS_PX[variant]);
        let (mut ends, mut remark) = (Vec::new(), None);
        for curve in &self.curves {
            let points = thinned(&curve.points, &self.x.range, columns);
            let Some(&last) = points.last() else { continue };
            if self.is_filled {
                let mut shape = points.clone();
                shape.insert(0, (points[0].0, self.y.range.start));
                shape.push((last.0, self.y.range.start));
                let shape = plotters::element::Polygon::new(shape, ink(curve.ink).filled());
                chart.draw_series(std::iter::once(shape))?;
            }
            chart.draw_series(std::iter::once(PathElement::new(points, ink(curve.ink))))?;
            let (x, y) = chart.backend_coord(&last);
            ends.push((x / PER_PX, y / PER_PX));
        }
        if let Some((x, text)) = &self.remark {
            let line = vec![(*x, self.y.range.start), (*x, self.y.range.end)];
            chart.draw_series(std::iter::once(PathElement::new(line, ink(AXIS))))?;
            let (x, y) = chart.backend_coord(&(*x, self.y.range.end));
            remark = Some((x / PER_PX, y / PER_PX, text.clone()));
        }
        Ok((ends, remark))
    }
}

pub(super) fn framed(variant: &str, width: u32, height: u32, body: &str) -> String {
    format!(
        "<svg class=\"chart {variant}\" viewBox=\"0 0 {width} {height}\" role=\"img\" data-marks=\".line,.fill\">\n{body}</svg>\n"
    )
}

/// Draws labels at the ends of curves, moved apart to avoid overlap, each with a thin line to its
/// curve.
fn label_ends(
    out: &mut String,
    curves: &[Curve],
    ends: &[(i32, i32)],
    variant: usize,
    height: u32,
) {
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by_key(|index| (ends[*index].1, *index));
    let mut places: Vec<i32> = order.iter().map(|index| ends[*index].1).collect();
    spread(&mut places, 14, i32::try_from(height).unwrap_or(i32::MAX) - 52);
    for (index, place) in order.into_iter().zip(places) {
        let (curve, (x, y)) = (&curves[index], ends[index]);
        let (near, far) = (x + 3, x + 13);
        let _ = write!(
            out,
            r#"<path class="leader line ink-{0}" d="M{near},{y}L{far},{place}"/><text class="end ink-text-{0}" x="{1}" y="{place}" dy=".34em">{2}<title>{3}</title></text>"#,
            curve.ink,
            far + 3,
            if variant == 0 {
                escaped(format!("{} {}", curve.label, curve.value).trim_end())
            } else {
                escaped(&curve.label)
            },
            escaped(&curve.hover),
        );
    }
}

/// Moves ordered positions at least a line apart within the frame.
fn spread(places: &mut [i32], top: i32, bottom: i32) {
    let count = i32::try_from(places.len()).unwrap_or(0);
    let gap = LINE_PX.min((bottom - top) / count.max(1));
    for index in 1..places.len() {
        places[index] = places[index].max(places[index - 1] + gap);
    }
    let mut limit = bottom;
    for place in places.iter_mut().rev() {
        *place = (*place).min(limit);
        limit = *place - gap;
    }
}

/// Reduces the points to visible ones: the first, minimum, maximum and last of each pixel column,
/// which preserves extremes.
fn thinned(points: &[(f64, f64)], range: &Range<f64>, columns: f64) -> Vec<(f64, f64)> {
    let column = |x: f64| ((x - range.start) / (range.end - range.start) * columns).floor() as i64;
    let mut kept = Vec::new();
    for chunk in points.chunk_by(|a, b| column(a.0) == column(b.0)) {
        let at = |wanted: fn(f64, f64) -> bool| {
            (0..chunk.len())
                .reduce(|best, i| if wanted(chunk[i].1, chunk[best].1) { i } else { best })
        };
        let mut indices =
            vec![0, at(|a, b| a < b).unwrap_or(0), at(|a, b| a > b).unwrap_or(0), chunk.len() - 1];
        indices.sort_unstable();
        indices.dedup();
        kept.extend(indices.into_iter().map(|index| chunk[index]));
    }
    kept
}

/// Returns the corners of a step curve that holds each value until the next, up to `end`.
pub(super) fn steps(values: &[(f64, f64)], end: f64) -> Vec<(f64, f64)> {
    let mut points = Vec::with_capacity(values.len() * 2 + 1);
    for &(x, y) in values {
        if let Some(&(_, before)) = points.last() {
            points.push((x, before));
        }
        points.push((x, y));
    }
    if let Some(&(_, last)) = points.last() {
        points.push((end, last));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_move_apart_and_stay_inside() {
        let mut places = [10, 12, 13, 200];
        spread(&mut places, 10, 190);
        assert_eq!(places, [10, 25, 40, 190]);
        let mut low = [188, 189, 190];
        spread(&mut low, 10, 190);
        assert_eq!(low, [160, 175, 190]);
    }

    #[test]
    fn thinning_points_loses_no_extreme() {
        let mut points: Vec<(f64, f64)> =
            (0..100_000).map(|i| (f64::from(i), f64::from(i % 7))).collect();
        points[55_555].1 = 99.0;
        points[77_777].1 = -5.0;
        let kept = thinned(&points, &(0.0..100_000.0), 500.0);
        assert!(kept.len() <= 4 * 501, "{}", kept.len());
        assert!(kept.contains(&(55_555.0, 99.0)) && kept.contains(&(77_777.0, -5.0)));
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
        assert_eq!((kept.first(), kept.last()), (points.first(), points.last()));
    }

    #[test]
    fn steps_hold_their_value() {
        let corners = steps(&[(0.0, 1.0), (2.0, 5.0)], 3.0);
        assert_eq!(corners, [(0.0, 1.0), (2.0, 1.0), (2.0, 5.0), (3.0, 5.0)]);
    }
}
