// SPDX-License-Identifier: Apache-2.0
//! The consequences of a fault in one picture: the parts of its outage, each below the previous one
//! and starting at its end.

use super::super::bars::{Bar, Bars};
use super::super::document::{Figure, PageBlock};
use super::super::quantity::{ShownQuantity, ShownUnit};
use super::super::results::EmulatedFault;

const SECONDS_PER_PS: f64 = 1e-12;

pub(super) struct TimelinePart {
    pub(super) name: String,
    pub(super) ink: u8,
    pub(super) start: f64,
    pub(super) seconds: f64,
}

pub(super) fn picture(
    id: &'static str,
    title: &'static str,
    parts: impl IntoIterator<Item = TimelinePart>,
    caption: String,
) -> PageBlock {
    let bar = |part: TimelinePart| Bar {
        name: part.name,
        ink: part.ink,
        start: part.start,
        value: part.start + part.seconds,
        spread: None,
        label: ShownQuantity::new(part.seconds, ShownUnit::Seconds).show(),
    };
    let bars = parts.into_iter().map(bar).collect();
    let svg = Bars { title, unit: ShownUnit::Seconds, bars }.svg();
    PageBlock::Figure(Figure { id, svg, caption, data: vec![] })
}

/// Returns the picture of a fault's longest-waiting group. `None` if the fault never occurred or
/// had no consequences.
pub(super) fn of_worst(id: &'static str, fault: &EmulatedFault, of: &str) -> Option<PageBlock> {
    let began = fault.at_ps?;
    let mut parts = Vec::new();
    let mut start = 0.0;
    for (name, end) in [
        ("detected", fault.detected_ps),
        ("planned", fault.replanned_ps),
        ("light restored", fault.restored_ps),
    ] {
        let Some(end) = end.map(|end| end.saturating_sub(began) as f64 * SECONDS_PER_PS) else {
            break;
        };
        if end > start {
            parts.push(TimelinePart { name: name.to_owned(), ink: 1, start, seconds: end - start });
            start = end;
        }
    }
    let late = fault.delay_ps.filter(|late| *late > 0);
    if let Some(late) = late {
        let name = match &fault.groups_affected[..] {
            [group] => format!("{group} waits"),
            groups => format!("{} groups wait", groups.len()),
        };
        let seconds = late as f64 * SECONDS_PER_PS;
        parts.push(TimelinePart { name, ink: 3, start: 0.0, seconds });
    }
    if parts.is_empty() {
        return None;
    }
    let at = ShownQuantity::new(began as f64 * SECONDS_PER_PS, ShownUnit::Seconds).show();
    let mut caption = format!("{} {} at {at}{of}.", fault.parts.join(", "), fault.effect);
    if let Some(most) = late {
        let most = ShownQuantity::new(most as f64 * SECONDS_PER_PS, ShownUnit::Seconds).show();
        caption += &format!(" Of {}, the last to go on is {most} late.", waiting(fault));
    }
    Some(picture(id, "The fault that is waited for longest", parts, caption))
}

/// Maximum number of groups named in a picture.
const NAMED_MAX: usize = 8;

fn waiting(fault: &EmulatedFault) -> String {
    let named =
        fault.groups_affected.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match fault.groups_affected.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
