// SPDX-License-Identifier: Apache-2.0
//! One file per section of the page.

pub(super) mod bill;
pub(super) mod buy;
pub(super) mod cost;
pub(super) mod fabric;
pub(super) mod live;
pub(super) mod published;
pub(super) mod run;
pub(super) mod sweep;
mod timeline;
pub(super) mod training;
pub(super) mod waste;

/// The ideal switch, which is the bound.
pub(super) const BOUND: &str = "big-switch";

/// Returns the colour and dash pattern of a design: first for the fabric's own, last for the bound,
/// otherwise by order of appearance.
pub(super) fn ink_of(arch: &str, own: Option<&str>, all: &[String]) -> u8 {
    if arch == BOUND {
        return 9;
    }
    if own == Some(arch) {
        return 1;
    }
    let others = all.iter().filter(|name| *name != BOUND && Some(name.as_str()) != own);
    let place = others.into_iter().position(|name| name == arch).unwrap_or(0);
    u8::try_from(2 + place % 7).unwrap_or(2)
}
