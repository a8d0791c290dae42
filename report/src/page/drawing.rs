// SPDX-License-Identifier: Apache-2.0
//! Drawings of fabrics: the ring, a section of it node by node, the reconfigurable tree.

pub(super) mod ring;
pub(super) mod states;
pub(super) mod stretch;
pub(super) mod tree;

/// Escapes text for HTML and SVG.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a coordinate with a resolution of a tenth of a pixel.
fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns a point on a circle around the centre of a drawing; turns count clockwise from the top.
fn polar(middle: f64, radius: f64, turns: f64) -> String {
    let angle = turns * std::f64::consts::TAU;
    format!("{},{}", px(middle + radius * angle.sin()), px(middle - radius * angle.cos()))
}

/// Returns a ring segment between two radii and two turns.
fn wedge(middle: f64, radii: [f64; 2], turns: [f64; 2]) -> String {
    let [inner, outer] = radii;
    let [from, to] = turns;
    if to - from > 0.999 {
        // A single arc cannot be a full circle, so draw two halves.
        let half = from + (to - from) / 2.0;
        return wedge(middle, radii, [from, half]) + &wedge(middle, radii, [half, to]);
    }
    let large = u8::from(to - from > 0.5);
    format!(
        "M{}A{outer_px},{outer_px} 0 {large} 1 {}L{}A{inner_px},{inner_px} 0 {large} 0 {}Z",
        polar(middle, outer, from),
        polar(middle, outer, to),
        polar(middle, inner, to),
        polar(middle, inner, from),
        outer_px = px(outer),
        inner_px = px(inner),
    )
}
